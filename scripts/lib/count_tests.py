#!/usr/bin/env python3
"""Adds up what CTest ran, in cases of GoogleTest rather than in binaries, so that a skipped case is seen.

Usage: count_tests.py FOLDER...   each with ctest.xml (ctest --output-junit) and GoogleTest's <binary>.json files.
Prints every failed and every skipped case, then the totals. Exit code 1 if anything failed or nothing ran.
"""
import json
import pathlib
import sys
import xml.etree.ElementTree as ElementTree


def gtest_cases(report):
    """Yields (name, verdict, reason) of each case in a GoogleTest JSON report."""
    for suite in report["testsuites"]:
        for case in suite["testsuite"]:
            name = f'{suite["name"]}.{case["name"]}'
            if case.get("failures"):
                yield name, "failed", case["failures"][0]["failure"].strip().splitlines()[-1]
            elif case.get("result") == "SKIPPED":
                messages = [skip.get("message", "").strip() for skip in case.get("skipped", [])]
                yield name, "skipped", " ".join(messages) or "no reason given"
            elif case.get("result") == "COMPLETED":
                yield name, "passed", ""


def ctest_cases(folder):
    """Yields (name, verdict, reason) of each case of one run of CTest."""
    for entry in ElementTree.parse(folder / "ctest.xml").getroot().iter("testcase"):
        name, status = entry.get("name"), entry.get("status")
        report = folder / f"{name}.json"
        cases = list(gtest_cases(json.loads(report.read_text()))) if report.exists() else []
        yield from ((f"{name}: {case}", verdict, reason) for case, verdict, reason in cases)
        if status == "fail" and not any(verdict == "failed" for _, verdict, _ in cases):
            failure = entry.find("failure")
            reason = failure.get("message") if failure is not None else ""
            yield name, "failed", f"{reason} (it crashed, timed out, or a sanitizer spoke at its end)"
        elif not cases:
            skipped = status in ("notrun", "disabled")
            yield name, "skipped" if skipped else "passed", "not run" if skipped else ""


def main():
    totals = {"passed": 0, "failed": 0, "skipped": 0}
    for folder in map(pathlib.Path, sys.argv[1:]):
        for name, verdict, reason in ctest_cases(folder):
            totals[verdict] += 1
            if verdict != "passed":
                print(f"{verdict}: {folder.parent.name}: {name}: {reason}")
    print(", ".join(f"{count} {verdict}" for verdict, count in totals.items()))
    sys.exit(1 if totals["failed"] or not totals["passed"] else 0)


main()
