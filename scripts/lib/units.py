#!/usr/bin/env python3
"""Looks at how TARGET, which was built in BUILD_DIR, compiles: no warning, and no unit that takes too long.

Usage: units.py BUILD_DIR TARGET JOBS SECONDS

Warnings: every compile command is run once more. The compiler cache has the results, and repeats what the compiler
said; what it has not is compiled. Times: a unit that took the build longer than SECONDS is compiled again, without the
cache, and fails if it takes more than SECONDS of processor time, twice; of many such units, the slowest 12. (A unit
that the build took from the cache was compiled, and measured, where it got there.) SECONDS are those of a machine that compiles YARDSTICK in 1.2 s; a slower
one gets more of them.
Exit code 1 after a finding.
"""
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile


MOST_MEASURED = 12
YARDSTICK = "#include <absl/status/statusor.h>\n#include <absl/strings/str_format.h>\n#include <functional>\n#include <map>\n"


def slowness():
    """How many times as long as 1.2 s this machine takes for YARDSTICK, and 1 at least."""
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "yardstick.cc"
        source.write_text(YARDSTICK)
        command = f"c++ -std=c++20 -O2 -o {folder}/yardstick.o -c {source}"
        return max(1.0, min(compile_unit(folder, command)[2] for _ in range(3)) / 1.2)


def seconds_of_build(build):
    """By output: how long the build's last run of its step took."""
    seconds = {}
    for line in (build / ".ninja_log").read_text().splitlines()[1:]:
        start, end, _, output, _ = line.split("\t")
        seconds[output] = (int(end) - int(start)) / 1000
    return seconds


def commands_of(build, target):
    """By output: the command that compiles it, the compiler cache and all."""
    run = subprocess.run(["ninja", "-C", build, "-t", "commands", target], capture_output=True, text=True, check=True)
    found = (re.search(r" -o (\S+\.o) -c ", line) for line in run.stdout.splitlines())
    return {match[1]: match.string for match in found if match}


def compile_unit(build, command, **environment):
    """(exit code, what the compiler said, processor seconds). The object goes nowhere."""
    with tempfile.TemporaryDirectory() as folder, open(pathlib.Path(folder) / "said", "w+") as said:
        command = re.sub(r" -o \S+\.o -c ", f" -o {folder}/unit.o -c ", command)
        process = subprocess.Popen(
            ["sh", "-c", f"exec {command}"], cwd=build, env={**os.environ, **environment},
            stdin=subprocess.DEVNULL, stdout=said, stderr=said)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        return process.returncode, said.read(), usage.ru_utime + usage.ru_stime


def main():
    build, target, jobs, limit = pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
    took = seconds_of_build(build)
    units = commands_of(build, target)
    good = True
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for output, (code, said, _) in zip(units, pool.map(lambda command: compile_unit(build, command), units.values())):
            if code != 0 or said.strip():
                good = False
                print(f"{output}: the compiler says:\n{said}")
    # LibTorch's headers alone take longer.
    limit *= slowness()
    slow = [output for output in units if took.get(output, 0) > limit and "torch" not in output]
    # On a busy machine all units take long: those that took longest are enough.
    slow = sorted(slow, key=lambda output: -took[output])[:MOST_MEASURED]
    for output in slow:
        # Beside other work processor time is more than alone: so, alone, and the better one of two.
        spent = compile_unit(build, units[output], CCACHE_DISABLE="1")[2]
        if spent > limit:
            spent = min(spent, compile_unit(build, units[output], CCACHE_DISABLE="1")[2])
        if spent > limit:
            good = False
            print(f"{output}: compiling it takes {spent:.0f} s of processor time, {limit:.0f} is the most")
    print(f"{len(units)} units compiled, {len(slow)} of them measured again")
    if not units:
        print(f"no compile command of {target} was found in {build}")
    sys.exit(0 if good and units else 1)


main()
