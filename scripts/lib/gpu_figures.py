#!/usr/bin/env python3
"""What scripts/test-gpu's figures say of each other: shares of what the hardware does alone, and times beside others.

Usage: gpu_figures.py [--strict] FIGURES   lines of JSON of `gyre-bench gpu`, bench/gpu/torch_topk and cudnn_cnn.
Prints a line for each comparison that they have the figures for; those that there is a target for say it, and whether
it was met; and which targets there is no figure for. Results that are wrong are named, compared with nothing, and make
the exit code 1. With --strict, so does a target that was missed, or that there is no figure for.
"""
import argparse
import json
import math
import pathlib
import sys
from typing import NamedTuple

# What the figures are to be.
GROUPS = {"packing": 0.85, "reductions": 0.9}  # least share of the rate of copies that each kernel comes to
DGC_SHARE = 0.8                                # likewise, of a step of DGC of f32 gradients, at 20 bytes an element
AGAINST_TORCH = 10                             # times as fast as torch.topk and masking
AGAINST_NCCL = 0.9                             # of NCCL's own rate, in the largest allreduce
IPC_SHARE, IPC_BYTES = 0.5, 64 << 20           # of the rate of copies, in an allreduce of ranks on one GPU
LAUNCH_US, LAUNCHED = 20, "resnet50"           # of the host, for a step of that model by graphs: less than that
STAGED_SHARE = 0.8                             # of the slower of copies to the host and the network, in the largest
# What the loss is to end below, of the first batch's, as tests/examples/cudnn_cnn_test.cc asks of fewer steps of a
# smaller network; and of what guessing among ten classes costs, for the first may well be more than that: random
# weights are sure of what is wrong, and to be sure of nothing takes a few steps and no look at an image.
LEARNT, GUESSING = 0.8, math.log(10)
NOISE = 0.05  # an assumption: by how much images/s of two runs of the same may differ
TARGETS = ("packing", "reductions", "DGC", "torch", "IPC", "staged", "NCCL", "graphs", "overlap")


class Said(NamedTuple):
    """A line, and which target it says something of, if any."""
    text: str
    target: str = ""
    met: bool = True


def verdict(met, target):
    return f"; target {target}: {'met' if met else 'MISSED'}"


def size(count):
    return f"{count >> 20} MiB" if count >= 1 << 20 else f"{count >> 10} KiB"


def task_of(line):
    return tuple(line.get(key) for key in ("op", "ranks", "hosts", "bytes", "in_place"))


def comparisons(lines):
    """Ratios of others' times to Gyre's: {(operation, ranks, hosts, bytes, in place): {library: ratio}}."""
    tasks = {}
    for line in lines:
        if line.get("ratio") is not None:
            tasks.setdefault(task_of(line), {})[line["lib"]] = line["ratio"]
    return tasks


def name_of(task):
    operation, ranks, hosts, count, in_place = task
    where = f"{ranks} ranks" + (f" on {hosts} hosts" if hosts > 1 else "")
    return f"{operation} of {size(count)}, {where}, {'in place' if in_place else 'out of place'}"


def of_task(task, ratios, largest=False):
    """`largest`: whether targets are for this size."""
    name = name_of(task)
    if "copy" in ratios:
        yield Said(f"{name}: {ratios['copy']:.1%} of the rate of as many copies of its bytes at once, a process each")
    if "host-copy" in ratios and "gyre-host" in ratios:
        slower = max(("host-copy", "gyre-host"), key=ratios.get)
        words = {"host-copy": "copies to the host and back", "gyre-host": "the same of the host's memory"}[slower]
        text = f"{name}: {ratios[slower]:.1%} of the slower of the two it is made of, which is {words}"
        met = ratios[slower] >= STAGED_SHARE
        yield Said(text + verdict(met, f"{STAGED_SHARE:.0%}"), "staged", met) if largest else Said(text)
    if "nccl" in ratios:
        text = f"{name}: NCCL itself takes {ratios['nccl']:.2f} times as long"
        met = ratios["nccl"] >= AGAINST_NCCL
        yield Said(text + verdict(met, f"{AGAINST_NCCL}"), "NCCL", met) if largest else Said(text)


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
    the bytes that each rank has to read and write (2S), and by those that it does (6S: docs/gpu_backends.md). The
    target is for the first: what else is moved is the way it is done."""
    copies = [line for line in lines if line.get("op") == "gpu_kernel"]
    if not copies:
        return
    copy = max(copies, key=lambda line: line["bytes"])["copy_gbs"]
    beside_copies = {task for task, ratios in comparisons(lines).items() if "copy" in ratios}
    for line in lines:
        task = task_of(line)
        if line.get("lib") != "gyre" or task not in beside_copies or line["ranks"] < 2 or line["bytes"] != IPC_BYTES:
            continue
        rates = {factor: line["ranks"] * factor * line["bytes"] / line["time_us_med"] * 1e-3 for factor in (2, 6)}
        met = rates[2] >= IPC_SHARE * copy
        yield Said(f"{name_of(task)}: N*2S/t {rates[2]:.0f} GB/s, {rates[2] / copy:.1%} of a copy's {copy:.0f} GB/s"
                   f"{verdict(met, f'{IPC_SHARE:.0%} by N*2S/t')}"
                   f"; N*6S/t, what is moved, {rates[6]:.0f} GB/s, {rates[6] / copy:.1%}", "IPC", met)


def of_kernels(lines):
    """Each group of kernels, from the one that comes least near to copies to the one that comes nearest."""
    groups = {}
    for line in lines:
        if line.get("op") == "gpu_kernel":
            groups.setdefault(line["group"], []).append(line)
    for group, kernels in groups.items():
        least, most = (choose(kernels, key=lambda line: line["share_of_copy"]) for choose in (min, max))
        bound = GROUPS.get(group)
        text = (f"{group}: {least['share_of_copy']:.1%} ({least['kernel']}, {least['time_us_med']:.1f} us) to "
                f"{most['share_of_copy']:.1%} ({most['kernel']}) of the rate of copies of as many bytes")
        met = bound is None or least["share_of_copy"] >= bound
        yield Said(text + verdict(met, f"{bound:.0%}"), group, met) if bound else Said(text)


def of_compression(lines):
    """A step of deep gradient compression beside PyTorch's, which is of gradients in f32. The target is for masking as
    the algorithm has it, by a mask; PyTorch moves less where it writes zeros by their indices."""
    ours = {line["kernel"].rsplit(", ", 1)[-1]: line
            for line in lines if line.get("kernel", "").startswith("DGC step, 99.9 %, f32, ")}
    for name, line in ours.items():
        share = line["share_of_copy"]
        met = share >= DGC_SHARE
        yield Said(f"DGC step, {name}: {share:.1%} of the rate of copies of as many bytes"
                   f"{verdict(met, f'{DGC_SHARE:.0%}')}", "DGC", met)
    for line in lines:
        name = f"{line['elements'] * 1e-6:.1f} M elements" if line.get("lib") == "torch" else None
        if name not in ours:
            continue
        took = ours[name]["time_us_med"]
        times = line["time_us_med"] / took
        text = (f"DGC step, {name}: {took:.1f} us; torch.topk and masking by {line['masking']} "
                f"{line['time_us_med']:.1f} us, {times:.2f} times as long")
        met = times >= AGAINST_TORCH
        judged = line["masking"] == "mask"
        yield Said(text + verdict(met, f"{AGAINST_TORCH} times"), "torch", met) if judged else Said(text)


def of_steps(lines):
    """What the host takes to queue a step by graphs. The target is for one rank's, of the model that it was set for."""
    for line in lines:
        if line.get("op") == "gpu_step" and line["graphs"]:
            took = line["host_us_med"]
            step = f"step of {line['model']}, {line['dtype']}, {line['ranks']} ranks, by graphs"
            text = f"{step}: {took:.1f} us of the host"
            met = took < LAUNCH_US
            judged = line["model"] == LAUNCHED and line["ranks"] == 1
            yield Said(text + verdict(met, f"less than {LAUNCH_US} us"), "graphs", met) if judged else Said(text)


def trained(line):
    """Whether it is a line of cudnn_cnn's."""
    return "first_loss" in line


def name_of_training(line):
    return f"cudnn_cnn, {line['precision']}, {line['ranks']} ranks, {'with' if line['overlap'] else 'without'} overlap"


def of_training(lines):
    """What training came to, and of several ranks what overlap does for it: less of the time is exposed communication,
    and no fewer images a second, but for noise."""
    runs = {(line["precision"], line["ranks"], line["overlap"]): line for line in lines if trained(line)}
    for (precision, ranks, overlap), line in runs.items():
        replicas = "; replicas identical" if ranks > 1 else ""
        yield Said(f"{name_of_training(line)}: loss {line['first_loss']:.4f} to {line['last_loss']:.4f}, "
                   f"{line['last_accuracy']:.1f} % right; {line['images_per_s']:.0f} images/s{replicas}")
        without = runs.get((precision, ranks, False))
        if not overlap or ranks < 2 or without is None:
            continue
        met = (line["exposed_communication"] < without["exposed_communication"]
               and line["images_per_s"] >= (1 - NOISE) * without["images_per_s"])
        target = f"less exposed, and images/s not lower by more than {NOISE:.0%}"
        yield Said(f"overlap: cudnn_cnn, {precision}, {ranks} ranks: {line['exposed_communication']:.1%} of the time "
                   f"exposed, {without['exposed_communication']:.1%} without; {line['images_per_s']:.0f} images/s, "
                   f"{without['images_per_s']:.0f} without{verdict(met, target)}", "overlap", met)


def wrongs(lines):
    """What is wrong with results: {the line's position: words}."""
    found = {}
    for at, line in enumerate(lines):
        if line.get("right") is False:
            found[at] = f"{line['kernel']}: other results than the host's"
        elif line.get("wrong"):
            found[at] = f"{name_of(task_of(line))}, {line['lib']}: {line['wrong']} wrong"
        elif trained(line) and not line["replicas_identical"]:
            found[at] = f"{name_of_training(line)}: replicas differ"
        elif trained(line) and (line["first_loss"] is None or line["last_loss"] is None):
            found[at] = f"{name_of_training(line)}: its loss is no number"
        elif trained(line) and not line["last_loss"] < LEARNT * min(line["first_loss"], GUESSING):
            found[at] = (f"{name_of_training(line)}: loss {line['first_loss']:.4f} to {line['last_loss']:.4f}, which "
                         f"is not below {LEARNT} of that and of guessing's {GUESSING:.4f}")
    return found


def right_ones(lines, wrong):
    """The others; and nothing of a task that one was wrong in: ratios are of two."""
    tasks = {task_of(lines[at]) for at in wrong if lines[at].get("wrong")}
    return [line for at, line in enumerate(lines) if at not in wrong and task_of(line) not in tasks]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strict", action="store_true", help="exit code 1 if a target was missed, or has no figure")
    parser.add_argument("--without", default="", metavar="TARGETS",
                        help=f"by commas, of {', '.join(TARGETS)}: those this machine cannot have figures for")
    parser.add_argument("figures", type=pathlib.Path)
    options = parser.parse_args()
    without = set(filter(None, options.without.split(",")))
    if not without <= set(TARGETS):
        parser.error(f"no target is called {', '.join(sorted(without - set(TARGETS)))}")
    lines = [json.loads(line) for line in options.figures.read_text().splitlines()]
    wrong = wrongs(lines)
    lines = right_ones(lines, wrong)
    said = [each for of in (of_tasks, of_ipc, of_kernels, of_compression, of_steps, of_training) for each in of(lines)]
    judged = {each.target for each in said}
    missed = sum(not each.met for each in said)
    absent = [target for target in TARGETS if target not in judged]
    lacking = [target for target in absent if target not in without]
    for each in said:
        print(each.text)
    if missed:
        print(f"targets missed: {missed}")
    if lacking:
        print(f"no figure for: {', '.join(lacking)}")
    if len(absent) > len(lacking):
        print(f"no figure for, on this machine: {', '.join(target for target in absent if target in without)}")
    for words in wrong.values():
        print(f"WRONG: {words}")
    return 1 if wrong or options.strict and (missed or lacking) else 0


if __name__ == "__main__":
    sys.exit(main())
