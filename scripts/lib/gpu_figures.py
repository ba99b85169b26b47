#!/usr/bin/env python3
"""What scripts/test-gpu's figures say of each other: shares of what the hardware does alone, and times beside others.

Usage: gpu_figures.py FIGURES   lines of JSON of `gyre-bench gpu` and bench/gpu/torch_topk. Prints a line for each
comparison that they have the figures for, or that they have none. What they are to be, it does not judge.
"""
import json
import pathlib
import sys


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


def of_task(task, ratios):
    operation, ranks, hosts, count, in_place = task
    where = f"{ranks} ranks" + (f" on {hosts} hosts" if hosts > 1 else "")
    name = f"{operation} of {size(count)}, {where}, {'in place' if in_place else 'out of place'}"
    if "copy" in ratios:
        yield f"{name}: {ratios['copy']:.1%} of the rate of copies of as many bytes within the GPU's memory"
    if "host-copy" in ratios and "gyre-host" in ratios:
        slower = max(("host-copy", "gyre-host"), key=ratios.get)
        words = {"host-copy": "copies to the host and back", "gyre-host": "the same of the host's memory"}[slower]
        yield f"{name}: {ratios[slower]:.1%} of the slower of the two it is made of, which is {words}"
    if "nccl" in ratios:
        yield f"{name}: NCCL itself takes {ratios['nccl']:.2f} times as long"


def of_kernels(lines):
    """Each group of kernels, from the one that comes least near to copies to the one that comes nearest."""
    groups = {}
    for line in lines:
        if line.get("op") == "gpu_kernel":
            groups.setdefault(line["group"], []).append(line)
    for group, kernels in groups.items():
        least, most = (choose(kernels, key=lambda line: line["share_of_copy"]) for choose in (min, max))
        yield (f"{group}: {least['share_of_copy']:.1%} ({least['kernel']}, {least['time_us_med']:.1f} us) to "
               f"{most['share_of_copy']:.1%} ({most['kernel']}) of the rate of copies of as many bytes")


def of_compression(lines):
    """A step of deep gradient compression beside PyTorch's, which is of gradients in f32."""
    ours = {line["kernel"].rsplit(", ", 1)[-1]: line["time_us_med"]
            for line in lines if line.get("kernel", "").startswith("DGC step, 99.9 %, f32, ")}
    for line in lines:
        if line["lib"] != "torch":
            continue
        name = f"{line['elements'] * 1e-6:.1f} M elements"
        if name in ours:
            yield (f"DGC step, {name}: {ours[name]:.1f} us; torch.topk and masking {line['time_us_med']:.1f} us, "
                   f"{line['time_us_med'] / ours[name]:.2f} times as long")


def main():
    lines = [json.loads(line) for line in pathlib.Path(sys.argv[1]).read_text().splitlines()]
    said = [text for task, ratios in sorted(comparisons(lines).items()) for text in of_task(task, ratios)]
    said += [*of_kernels(lines), *of_compression(lines)]
    print("\n".join(said) if said else "no figures to compare")


if __name__ == "__main__":
    main()
