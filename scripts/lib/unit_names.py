#!/usr/bin/env python3
"""Looks for functions of one name that several sources of a unity build's unit have in their anonymous namespaces.

Usage: unit_names.py BUILD_DIR

In the unit they are overloads: a call in one source may reach the function of another, and no compiler says so.
Exit code 1 if there are any.
"""
import collections
import pathlib
import re
import sys

FUNCTION = re.compile(r"^(?:[A-Za-z_][\w:<>,*& ]*?)[ *&](\w+)\([^;{]*\)(?: const)?(?: noexcept)? \{", re.MULTILINE)


def main():
    build, root = pathlib.Path(sys.argv[1]), pathlib.Path.cwd()
    good = True
    for unit in sorted(build.rglob("Unity/*.cxx")):
        sources = collections.defaultdict(set)
        for name in re.findall(r'#include "([^"]+)"', unit.read_text()):
            path = pathlib.Path(name)
            for found in FUNCTION.finditer(path.read_text() if path.exists() else ""):
                if "::" not in found[0].split("(")[0]:
                    sources[found[1]].add(str(path.relative_to(root)))
        for function, homes in sources.items():
            if len(homes) > 1:
                good = False
                print(f"{function}() is in {' and in '.join(sorted(homes))}, which are compiled as one unit: rename one")
    sys.exit(0 if good else 1)


main()
