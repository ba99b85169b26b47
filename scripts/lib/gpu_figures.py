#!/usr/bin/env python3
"""What scripts/test-gpu's figures say of each other: shares of what the hardware does alone, and times beside others.

Usage: gpu_figures.py [--strict] FIGURES   lines of JSON of `gyre-bench gpu`, bench/gpu/torch_topk and cudnn_cnn.
Prints a line for each comparison that they have the figures for, or that they have none; those that there is a target
for say it, and whether it was met. With --strict, exit code 1 if one was missed.
"""
import argparse
import json
import pathlib
import sys

# What the figures are to be.
GROUPS = {"packing": 0.85, "reductions": 0.9}  # least share of the rate of copies that each kernel comes to
DGC_SHARE = 0.8                                # likewise, of a step of DGC of f32 gradients, at 20 bytes an element
AGAINST_TORCH = 10                             # times as fast as torch.topk and masking
AGAINST_NCCL = 0.9                             # of NCCL's own rate, in the largest allreduce
IPC_SHARE, IPC_BYTES = 0.5, 64 << 20           # of the rate of copies, in an allreduce of ranks on one GPU
LAUNCH_US = 20                                 # of the host, for a step by graphs: less than that
STAGED_SHARE = 0.8                             # of the slower of copies to the host and the network, in the largest
MISSED = "MISSED"


def verdict(met, target):
    return f"; target {target}: {'met' if met else MISSED}"


def size(count):
    return f"{count >> 20} MiB" if count >= 1 << 20 else f"{count >> 10} KiB"


def comparisons(lines):
    """Ratios of others' times to Gyre's: {(operation, ranks, hosts, bytes, in place): {library: ratio}}."""
    tasks = {}
    for line in lines:
        if line.get("ratio") is not None:
            task = (line["op"], line["ranks"], line["hosts"], line["bytes"], line["in_place"])
            tasks.setdefault(task, {})[line["lib"]] = line["ratio"]
    return tasks


def name_of(task):
    operation, ranks, hosts, count, in_place = task
    where = f"{ranks} ranks" + (f" on {hosts} hosts" if hosts > 1 else "")
    return f"{operation} of {size(count)}, {where}, {'in place' if in_place else 'out of place'}"


def of_task(task, ratios, largest=False):
    """`largest`: whether targets are for this size."""
    name = name_of(task)
    if "copy" in ratios:
        yield f"{name}: {ratios['copy']:.1%} of the rate of as many copies of its bytes at once, a process each"
    if "host-copy" in ratios and "gyre-host" in ratios:
        slower = max(("host-copy", "gyre-host"), key=ratios.get)
        words = {"host-copy": "copies to the host and back", "gyre-host": "the same of the host's memory"}[slower]
        target = verdict(ratios[slower] >= STAGED_SHARE, f"{STAGED_SHARE:.0%}") if largest else ""
        yield f"{name}: {ratios[slower]:.1%} of the slower of the two it is made of, which is {words}{target}"
    if "nccl" in ratios:
        target = verdict(ratios["nccl"] >= AGAINST_NCCL, f"{AGAINST_NCCL}") if largest else ""
        yield f"{name}: NCCL itself takes {ratios['nccl']:.2f} times as long{target}"


def of_tasks(lines):
    tasks = comparisons(lines)
    largest = {}
    for operation, ranks, hosts, count, in_place in tasks:
        kind = (operation, ranks, hosts, in_place)
        largest[kind] = max(largest.get(kind, 0), count)
    for task, ratios in sorted(tasks.items()):
        operation, ranks, hosts, count, in_place = task
        # One rank alone has nothing to move.
        is_largest = operation == "allreduce" and ranks > 1 and count == largest[operation, ranks, hosts, in_place]
        yield from of_task(task, ratios, is_largest)


def of_ipc(lines):
    """Allreduces of ranks on one GPU beside what a copy within its memory comes to, one process alone and by events: by
    the bytes that each rank has to read and write (2S), and by those that it does (6S: docs/gpu_backends.md). The target
    is for the first: what else is moved is the way it is done."""
    copies = [line for line in lines if line.get("op") == "gpu_kernel"]
    if not copies:
        return
    copy = max(copies, key=lambda line: line["bytes"])["copy_gbs"]
    beside_copies = {task for task, ratios in comparisons(lines).items() if "copy" in ratios}
    for line in lines:
        task = tuple(line.get(key) for key in ("op", "ranks", "hosts", "bytes", "in_place"))
        if line.get("lib") != "gyre" or task not in beside_copies or line["ranks"] < 2 or line["bytes"] != IPC_BYTES:
            continue
        rates = {factor: line["ranks"] * factor * line["bytes"] / line["time_us_med"] * 1e-3 for factor in (2, 6)}
        yield (f"{name_of(task)}: N*2S/t {rates[2]:.0f} GB/s, {rates[2] / copy:.1%} of a copy's {copy:.0f} GB/s"
               f"{verdict(rates[2] >= IPC_SHARE * copy, f'{IPC_SHARE:.0%} by N*2S/t')}"
               f"; N*6S/t, what is moved, {rates[6]:.0f} GB/s, {rates[6] / copy:.1%}")


def of_kernels(lines):
    """Each group of kernels, from the one that comes least near to copies to the one that comes nearest."""
    groups = {}
    for line in lines:
        if line.get("op") == "gpu_kernel":
            groups.setdefault(line["group"], []).append(line)
    for group, kernels in groups.items():
        least, most = (choose(kernels, key=lambda line: line["share_of_copy"]) for choose in (min, max))
        bound = GROUPS.get(group)
        target = verdict(least["share_of_copy"] >= bound, f"{bound:.0%}") if bound else ""
        yield (f"{group}: {least['share_of_copy']:.1%} ({least['kernel']}, {least['time_us_med']:.1f} us) to "
               f"{most['share_of_copy']:.1%} ({most['kernel']}) of the rate of copies of as many bytes{target}")


def of_compression(lines):
    """A step of deep gradient compression beside PyTorch's, which is of gradients in f32."""
    ours = {line["kernel"].rsplit(", ", 1)[-1]: line
            for line in lines if line.get("kernel", "").startswith("DGC step, 99.9 %, f32, ")}
    for name, line in ours.items():
        share = line["share_of_copy"]
        yield (f"DGC step, {name}: {share:.1%} of the rate of copies of as many bytes"
               f"{verdict(share >= DGC_SHARE, f'{DGC_SHARE:.0%}')}")
    for line in lines:
        if line.get("lib") != "torch":
            continue
        name = f"{line['elements'] * 1e-6:.1f} M elements"
        if name in ours:
            took = ours[name]["time_us_med"]
            times = line["time_us_med"] / took
            yield (f"DGC step, {name}: {took:.1f} us; torch.topk and masking {line['time_us_med']:.1f} us, "
                   f"{times:.2f} times as long{verdict(times >= AGAINST_TORCH, f'{AGAINST_TORCH} times')}")


def of_steps(lines):
    """What the host takes to queue a step by graphs."""
    for line in lines:
        if line.get("op") == "gpu_step" and line["graphs"]:
            step = f"step of {line['model']}, {line['dtype']}, {line['ranks']} ranks, by graphs"
            took = line["host_us_med"]
            yield f"{step}: {took:.1f} us of the host{verdict(took < LAUNCH_US, f'less than {LAUNCH_US} us')}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strict", action="store_true", help="exit code 1 if a target was missed")
    parser.add_argument("figures", type=pathlib.Path)
    options = parser.parse_args()
    lines = [json.loads(line) for line in options.figures.read_text().splitlines()]
    said = [*of_tasks(lines), *of_ipc(lines), *of_kernels(lines), *of_compression(lines), *of_steps(lines)]
    print("\n".join(said) if said else "no figures to compare")
    missed = sum(MISSED in text for text in said)
    if missed:
        print(f"targets missed: {missed}")
    return 1 if missed and options.strict else 0


if __name__ == "__main__":
    sys.exit(main())
