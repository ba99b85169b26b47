#!/usr/bin/env python3
"""Looks at each source by itself, several at a time, each once per content: again only when it, a header of the project,
or .clang-tidy has changed. Those of src/, bench/, examples/ and bindings/ are clang-tidy's; of tests it is only seen that
they compile, without the other sources of their unit.

Usage: tidy.py CLANG_TIDY BUILD_DIR JOBS SECONDS BUDGET    (at most SECONDS for each source; none is begun once BUDGET
seconds are over, and what was changed last comes first)
"""
import concurrent.futures
import hashlib
import json
import pathlib
import re
import shlex
import subprocess
import sys
import time

HOMES = ("src", "bench", "examples", "bindings", "tests")


def digest(*parts):
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def headers_digest(root):
    headers = sorted(p for home in ("include", *HOMES) for p in (root / home).rglob("*.h"))
    return digest((root / ".clang-tidy").read_bytes(), *(p.read_bytes() for p in headers)).encode()


def age_of_change(root):
    """By path: 0 for what the newest commit changed, and so on; what is not committed is not in it."""
    run = subprocess.run(["git", "log", "--format=", "--name-only"], capture_output=True, text=True, check=True)
    ages = {}
    for name in run.stdout.split("\n"):
        ages.setdefault(root / name, len(ages))
    return ages


def main():
    tidy, build, jobs = sys.argv[1], pathlib.Path(sys.argv[2]).resolve(), int(sys.argv[3])
    limit, end = float(sys.argv[4]), time.monotonic() + float(sys.argv[5])
    root = pathlib.Path.cwd()
    clean = build / "tidy"
    clean.mkdir(exist_ok=True)
    common = headers_digest(root)
    sources, commands = {}, {}
    for command in json.loads((build / "compile_commands.json").read_text()):
        path = pathlib.Path(command["file"])
        if path.suffix == ".cc" and path.is_relative_to(root) and path.relative_to(root).parts[0] in HOMES:
            text = path.read_bytes()
            if b"gyre/torch/" in text:
                continue  # Clang 16 does not take the headers of LibTorch 1.13 as C++20
            sources[path] = clean / digest(common, text, command["command"].encode())
            commands[path] = command["command"]
    ages = age_of_change(root)
    pending = [(path, stamp) for path, stamp in sources.items() if not stamp.exists()]
    pending.sort(key=lambda item: (ages.get(item[0], -1), item[0]))
    left_out = []

    def look(path, stamp):
        if time.monotonic() > end:
            left_out.append(path)
            return True, ""
        if path.is_relative_to(root / "tests"):
            words = shlex.split(re.sub(r"^.*?ccache ", "", commands[path]))
            words = [word for word in words if word != "-c"] + ["-fsyntax-only"]
        else:
            # The flags are those of GCC, some of which Clang does not know.
            words = [tidy, "--quiet", "--extra-arg=-Wno-unknown-warning-option", "-p", str(build), str(path)]
        try:
            run = subprocess.run(words, cwd=build, capture_output=True, text=True, timeout=limit)
        except subprocess.TimeoutExpired:
            return False, f"{path.relative_to(root)}: took more than {limit:.0f} s\n"
        if run.returncode == 0 and not run.stdout.strip():
            stamp.touch()
            return True, ""
        return False, run.stdout or run.stderr

    good, seen = True, set()
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for fine, text in pool.map(lambda item: look(*item), pending):
            good &= fine
            # A header's finding is told by every source that includes it; once is enough.
            for finding in re.split(r"(?m)^(?=/.*: (?:warning|error): )", text.replace(f"{root}/", "/")):
                if finding.strip() and finding not in seen:
                    seen.add(finding)
                    print(finding, end="")
    looked = len(pending) - len(left_out)
    print(f"{looked} of {len(sources)} sources looked at, {len(sources) - len(pending)} are as they were when they were clean")
    if left_out:
        print(f"NOT looked at, for want of time: {len(left_out)} sources, those whose last change is oldest")
    sys.exit(0 if good else 1)


main()
