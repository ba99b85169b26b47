#!/usr/bin/env python3
"""Looks for functions of one name that several sources of a unit have in their anonymous namespaces.

Usage: unit_names.py BUILD_DIR

In the unit they are overloads: a call in one source may reach the function of another, and no compiler says so.
Exit code 1 if there are any.
"""
import collections
import pathlib
import re
import sys

ANONYMOUS = re.compile(r"(?ms)^namespace \{$(.*?)^\}  // namespace$")
FUNCTION = re.compile(r"^(?:[A-Za-z_][\w:<>,*& ]*?)[ *&](\w+)\([^;{]*\)(?: noexcept)? \{", re.MULTILINE)


def main():
    build, root = pathlib.Path(sys.argv[1]), pathlib.Path.cwd()
    good = True
    units = sorted(build.rglob("units/*/*.cc"))
    for unit in units:
        sources = collections.defaultdict(set)
        for name in re.findall(r'#include "([^"]+)"', unit.read_text()):
            path = root / name
            for inside in ANONYMOUS.findall(path.read_text()):
                for function in FUNCTION.findall(inside):
                    sources[function].add(str(path.relative_to(root)))
        for function, homes in sources.items():
            if len(homes) > 1:
                good = False
                print(f"{function}() is in {' and in '.join(sorted(homes))}, which are compiled as one unit: rename one")
    if not units:
        print(f"{build} has no unit of several sources")
    sys.exit(0 if good and units else 1)


main()
