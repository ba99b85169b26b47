#!/usr/bin/env python3
"""Compiles each header by itself, with the flags of the build in BUILD_DIR. Exit code 1 if one does not compile, or
brings in more than LINES lines, its own and those of all files that it includes.
Not compiled are those that a source includes before anything else (tidy.py looks at each source by itself), and those
called *-inl.h: Highway has them compiled once for each instruction set, by the source they serve.

Usage: headers.py BUILD_DIR JOBS LINES
"""
import concurrent.futures
import functools
import json
import os
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


INCLUDE = re.compile(r'(?m)^\s*#\s*include\s+[<"]([^">]+)[>"]')


class Weights:
    """How many lines a header brings in: its own, and those of all files that it includes."""

    def __init__(self, flags, homes):
        self.flags, self.homes = flags, homes

    @functools.cache
    def lines_of(self, path):
        with open(path, "rb") as file:
            return sum(1 for _ in file)

    @functools.cache
    def files_of_others(self, name):
        """What a header of the system or of a package brings in. -M names it in the form of a Makefile's rule."""
        run = subprocess.run(["c++", *self.flags, "-M", "-x", "c++", "-"], input=f"#include <{name}>\n",
                             capture_output=True, text=True)
        return frozenset(map(os.path.realpath, run.stdout.replace("\\\n", " ").split()[2:]))

    @functools.cache
    def files_of(self, path):
        files = {str(path)}
        for name in INCLUDE.findall(path.read_text()):
            own = next((home / name for home in (path.parent, *self.homes) if (home / name).exists()), None)
            files |= self.files_of(own.resolve()) if own else self.files_of_others(name)
        return frozenset(files)

    def lines(self, path):
        return sum(map(self.lines_of, self.files_of(path.resolve())))


def main():
    build, jobs, most_lines = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
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
    # What tests and benchmarks include is up to them.
    library = [header for header in listed if header.startswith(("include/", "src/"))]
    weights = Weights(flags, [root / "include", root / "src", build / "generated"])
    lines = [(header, weights.lines(root / header)) for header in library]
    for header, count in lines:
        if count > most_lines:
            good = False
            print(f"{header}: brings in {count} lines, {most_lines} are the most")
    heaviest, count = max(lines, key=lambda item: item[1])
    print(f"the heaviest header of the library, {heaviest}, brings in {count} lines")
    print(f"{len(pending)} of {len(listed)} headers compiled, a source of the build begins with each of the others")
    sys.exit(0 if good else 1)


main()
