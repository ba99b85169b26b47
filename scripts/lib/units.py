#!/usr/bin/env python3
"""Looks at how the build in BUILD_DIR compiles: no warning, and no unit that takes too long.

Usage: units.py BUILD_DIR JOBS SECONDS

Warnings: every compile command is run once more. The compiler cache has the results, and repeats what the compiler
said; what it has not is compiled. Times: a unit that took the build longer than SECONDS is compiled again, without the
cache, and fails if it takes more than SECONDS of processor time, twice. (A unit that the build took from the cache was
compiled, and measured, where it got there.)
Exit code 1 after a finding.
"""
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import tempfile


def seconds_of_build(build):
    """By output: how long the build's last run of its step took."""
    seconds = {}
    for line in (build / ".ninja_log").read_text().splitlines()[1:]:
        start, end, _, output, _ = line.split("\t")
        seconds[output] = (int(end) - int(start)) / 1000
    return seconds


def compile_unit(entry, environment):
    """(exit code, what the compiler said, processor seconds)."""
    command, output = entry["command"].split(" -o ", 1)
    with tempfile.TemporaryDirectory() as folder, open(pathlib.Path(folder) / "said", "w+") as said:
        command = f"{command} -o {folder}/unit.o {output.split(' ', 1)[1]}"
        process = subprocess.Popen(
            ["sh", "-c", f"exec ccache {command}"], cwd=entry["directory"], env={**os.environ, **environment},
            stdin=subprocess.DEVNULL, stdout=said, stderr=said)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        return process.returncode, said.read(), usage.ru_utime + usage.ru_stime


def main():
    build, jobs, limit = pathlib.Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    root = str(pathlib.Path.cwd())
    took = seconds_of_build(build)
    cache = {"CCACHE_BASEDIR": root, "CCACHE_NOHASHDIR": "1", "CCACHE_DEPEND": "1"}
    entries = json.loads((build / "compile_commands.json").read_text())
    for entry in entries:
        entry["output"] = entry["command"].split(" -o ", 1)[1].split(" ", 1)[0]
    built = [entry for entry in entries if entry["output"] in took]
    good = True
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for entry, (code, said, _) in zip(built, pool.map(lambda entry: compile_unit(entry, cache), built)):
            if code != 0 or said.strip():
                good = False
                print(f"{entry['output']}: the compiler says:\n{said}")
    slow = [entry for entry in built if took[entry["output"]] > limit]
    for entry in slow:
        spent = min(compile_unit(entry, {"CCACHE_DISABLE": "1"})[2] for _ in range(2))
        if spent > limit:
            good = False
            print(f"{entry['output']}: compiling it takes {spent:.0f} s of processor time, {limit:.0f} is the most")
    print(f"{len(built)} units compile without a warning, {len(slow)} of them measured again" if good else "")
    sys.exit(0 if good else 1)


main()
