#!/usr/bin/env python3
"""Adds up what CTest ran, in cases of GoogleTest rather than in binaries, so that a skipped case is seen.

Usage: count_tests.py FOLDER...   each with ctest.xml (ctest --output-junit), tests.json (ctest --show-only=json-v1)
and GoogleTest's <binary>.xml files. A binary labelled "gtest" that leaves none has failed, whatever its exit code: it
ended before its last case; so has a test that CTest did not come to. Prints every failed and every skipped case, then
the totals. Exit code 1 if anything failed or nothing ran.
"""
import json
import pathlib
import sys
import xml.etree.ElementTree as ElementTree


def message(element):
    """The text of a failure or skip in one line, without the file and line it starts with."""
    lines = [line.strip() for line in (element.get("message") or "").splitlines() if line.strip()]
    return " ".join(lines[1:] or lines) or "no reason given"


def gtest_cases(report):
    """Yields (name, verdict, reason) of each case in a GoogleTest report."""
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        name = f'{case.get("classname")}.{case.get("name")}'
        if (failure := case.find("failure")) is not None:
            yield name, "failed", message(failure)
        elif (skip := case.find("skipped")) is not None:
            yield name, "skipped", message(skip)
        elif case.get("status") == "run":
            yield name, "passed", ""
        elif case.get("result") == "suppressed":
            yield name, "skipped", "disabled in its source"


def listed_tests(folder):
    """{name of each test: whether it is labelled "gtest"}."""
    tests = {}
    for test in json.loads((folder / "tests.json").read_text())["tests"]:
        properties = {each["name"]: each["value"] for each in test.get("properties", [])}
        tests[test["name"]] = "gtest" in properties.get("LABELS", [])
    return tests


def said_skip(entry):
    """Why the test was skipped, as it said itself with its SKIP_RETURN_CODE; none if it was not."""
    mark = entry.find("skipped")
    if mark is None or not (mark.get("message") or "").startswith("SKIP_RETURN_CODE"):
        return None
    lines = [line.strip() for line in (entry.findtext("system-out") or "").splitlines()]
    return next((line.removeprefix("SKIPPED: ") for line in lines if line.startswith("SKIPPED: ")), "no reason given")


def ctest_cases(folder):
    """Yields (name, verdict, reason) of each case of one run of CTest."""
    expected = listed_tests(folder)
    begun = set()
    for entry in ElementTree.parse(folder / "ctest.xml").getroot().iter("testcase"):
        name, status = entry.get("name"), entry.get("status")
        begun.add(name)
        report = folder / f"{name}.xml"
        cases = list(gtest_cases(report)) if report.exists() else []
        for case, verdict, reason in cases:
            yield f"{name}: {case}", verdict, reason
        if (why := said_skip(entry)) is not None:
            yield name, "skipped", why
        elif status in ("fail", "notrun") and not any(verdict == "failed" for _, verdict, _ in cases):
            yield name, "failed", "it crashed, timed out, could not start, or a sanitizer spoke at its end"
        elif status == "disabled":
            yield name, "skipped", "disabled in CTest"
        elif expected.get(name) and not cases:
            yield name, "failed", "it ended with code 0 without a report of its cases"
        elif not cases:
            yield name, "passed", ""
    for name in sorted(expected.keys() - begun):
        yield name, "failed", "it was not begun"


def main():
    totals = {"passed": 0, "failed": 0, "skipped": 0}
    for folder in map(pathlib.Path, sys.argv[1:]):
        if not (folder / "ctest.xml").exists():
            totals["failed"] += 1
            print(f"failed: {folder.parent.name}: {folder.name}: was not run")
            continue
        for name, verdict, reason in ctest_cases(folder):
            totals[verdict] += 1
            if verdict != "passed":
                print(f"{verdict}: {folder.parent.name}: {name}: {reason}")
    print(", ".join(f"{count} {verdict}" for verdict, count in totals.items()))
    sys.exit(1 if totals["failed"] or not totals["passed"] else 0)


main()
