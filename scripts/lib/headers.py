#!/usr/bin/env python3
"""Compiles each header by itself, with the flags of the build in BUILD_DIR. Exit code 1 if one does not compile.
Left out are those that the build compiles so already, because a source includes them before anything else, and those
called *-inl.h: Highway has them compiled once for each instruction set, by the source they serve.

Usage: headers.py BUILD_DIR JOBS
"""
import concurrent.futures
import json
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

KEPT = ("-D", "-I", "-std=")


def flags_of(build):
    """The defines, include folders and language of all of the build's C++ sources together; of a macro that two define
    differently, the first."""
    flags = {}
    defined = set()
    for command in json.loads((build / "compile_commands.json").read_text()):
        if command["file"].endswith((".c", ".cu")):
            continue
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


def included_first(build, root):
    """The headers that a source of the build includes before anything else."""
    first = set()
    for command in json.loads((build / "compile_commands.json").read_text()):
        source = pathlib.Path(command["file"])
        include = re.search(r'(?m)^\s*#\s*include\s+(?:"([^"]+)"|<)', source.read_text()) if source.exists() else None
        if include and include[1]:
            homes = (source.parent, root / "include", root / "src", root / "tests", root)
            first |= {(home / include[1]).resolve() for home in homes}
    return first


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
    # A binding's header takes the library that it binds; the binding's test begins with it.
    listed = [header for header in listed if not header.startswith("bindings/")]
    listed = [header for header in listed if not header.endswith("-inl.h") and (root / header).exists()]
    proved = included_first(build, root)
    pending = [header for header in listed if (root / header).resolve() not in proved]

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
        for header, fine, errors in pool.map(compiles, pending):
            if not fine:
                good = False
                print(f"{header}: does not compile alone:\n{errors}")
    print(f"{len(pending)} of {len(listed)} headers compiled, a source of the build begins with each of the others")
    sys.exit(0 if good else 1)


main()
