#!/usr/bin/env python3
"""Holds the sources to the layer table: includes point downwards only, siblings never include each other, programs
outside src/ see the public headers alone. Prints each breach; exit code 1 if there is any."""
import pathlib
import re
import sys

# What each folder of src/ may include beside itself and the public headers. Top of the table last.
BELOW_TRANSPORT = {"base", "device", "net"}
BELOW_COLLECTIVES = BELOW_TRANSPORT | {"transport", "bootstrap"}
BELOW_FUSION = BELOW_COLLECTIVES | {"collectives", "compression", "optimizer"}
ALLOWED = {
    "base": set(),
    "device": {"base"},
    "net": {"base", "device"},
    "transport": BELOW_TRANSPORT,
    "bootstrap": BELOW_TRANSPORT,
    "collectives": BELOW_COLLECTIVES,
    "compression": {"base", "device"},  # pure: no communication
    "optimizer": {"base", "device"},  # pure
    "fusion": BELOW_FUSION,
    "ps": BELOW_FUSION,
    "runtime": BELOW_FUSION | {"fusion", "ps"},
    "launch": {"base", "net", "bootstrap", "ps"},
}
# Folders outside src/, and which of src/ they may include.
OUTSIDE = {"examples": set(), "bindings": set(), "bench": {"base", "compression", "device", "transport/sim", "collectives/pricing", "collectives/selection"}}
# Folders of interchangeable backends: from outside, only their factory.h, and only where everything is put together.
# transport/shm is none of them: a host's shared memory is what collectives/shm and the runtime stand on.
BACKENDS = re.compile(r"^(transport/(?:tcp|ucx|sim)|collectives/(?:gpu_hierarchical|ipc|mpi|nccl|staged)|device/cuda)/(.+)$")
COMPOSERS = {"runtime", "bench"}

INCLUDE = re.compile(r'^\s*#\s*include\s+(?:"([^"]+)"|<(gyre/[^>]+)>)')
SUFFIXES = {".h", ".cc", ".cpp", ".cu", ".cuh", ".c", ".in"}


def includes(path):
    """Yields (line number, included path) of the project's own style: "folder/file"."""
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
        if found := INCLUDE.match(line):
            yield number, found[1] or found[2]


def breach(home, source, target):
    """Why the file `source` in folder `home` may not include `target`, or None."""
    layer = target.split("/")[0]
    if layer == "gyre" or layer not in ALLOWED:
        return None  # the public face, or a library's header
    if backend := BACKENDS.match(target):
        folder, file = backend.groups()
        if not source.startswith(f"src/{folder}/"):
            if home in COMPOSERS and file == "factory.h":
                return None
            return f"a backend is reached through its factory.h, from {' and '.join(sorted(COMPOSERS))} only"
    if home in ALLOWED:
        return None if layer == home or layer in ALLOWED[home] else f"{home} may not include {layer}"
    allowed = OUTSIDE[home]
    if layer in allowed or any(target.startswith(f"{folder}/") for folder in allowed):
        return None
    return f"{home}/ sees the public headers only"


def check(root):
    known = {folder.name for folder in (root / "src").iterdir() if folder.is_dir()}
    for stranger in sorted(known - set(ALLOWED)):
        yield f"src/{stranger}: not in the layer table (scripts/lib/layers.py)"
    homes = [(name, root / "src" / name) for name in known & set(ALLOWED)] + [(n, root / n) for n in OUTSIDE]
    for home, folder in sorted(homes):
        for path in sorted(p for p in folder.rglob("*") if p.suffix in SUFFIXES):
            source = str(path.relative_to(root))
            for number, target in includes(path):
                if why := breach(home, source, target):
                    yield f'{source}:{number}: includes "{target}": {why}'
    for path in sorted((root / "include").rglob("*.h")):
        for number, target in includes(path):
            if target.split("/")[0] in ALLOWED:
                yield f'{path.relative_to(root)}:{number}: a public header includes "{target}"'


breaches = list(check(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")))
print("\n".join(breaches), end="\n" if breaches else "")
sys.exit(1 if breaches else 0)
