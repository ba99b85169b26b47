#!/usr/bin/env python3
"""Compiles each header by itself, with the flags of the build in BUILD_DIR. Exit code 1 if one does not compile.
Headers called *-inl.h are left out: Highway has them compiled once for each instruction set, by the source they serve.

Usage: headers.py BUILD_DIR JOBS
"""
import concurrent.futures
import json
import pathlib
import shlex
import shutil
import subprocess
import sys

KEPT = ("-D", "-I", "-std=")


def flags_of(build):
    """The defines, include folders and language of all of the build's sources together; of a macro that two define
    differently, the first."""
    flags = {}
    defined = set()
    for command in json.loads((build / "compile_commands.json").read_text()):
        words = iter(shlex.split(command["command"]))
        for word in words:
            if word == "-isystem":
                flags[f"-isystem{next(words)}"] = None
            elif word.startswith("-D") and word not in flags:
                if word.split("=")[0] not in defined:
                    flags[word] = None
                defined.add(word.split("=")[0])
            elif word.startswith(KEPT):
                flags[word] = None
    return list(flags)


def main():
    build, jobs = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    folder = build / "headers"
    folder.mkdir(exist_ok=True)
    root = pathlib.Path.cwd()
    compiler = ([ccache] if (ccache := shutil.which("ccache")) else []) + ["c++"]
    flags = flags_of(build) + [f"-I{root}/include", f"-I{root}/src", f"-I{root}/tests", "-Wall", "-Wextra", "-Werror"]
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.h"], capture_output=True, text=True, check=True
    ).stdout.split()
    listed = [header for header in listed if not header.endswith("-inl.h") and (root / header).exists()]

    def compiles(header):
        source = folder / (header.replace("/", "__") + ".cc")
        text = f'#include "{root / header}"\n'
        if not source.exists() or source.read_text() != text:
            source.write_text(text)
        command = [*compiler, *flags, "-O0", "-c", str(source), "-o", str(source.with_suffix(".o"))]
        run = subprocess.run(command, capture_output=True, text=True)
        return header, run.returncode == 0, run.stderr

    good = True
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for header, fine, errors in pool.map(compiles, listed):
            if not fine:
                good = False
                print(f"{header}: does not compile alone:\n{errors}")
    print(f"{len(listed)} headers")
    sys.exit(0 if good else 1)


main()
