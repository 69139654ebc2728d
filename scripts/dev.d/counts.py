#!/usr/bin/env python3
"""Counts what tests did: counts.py [--step NAME=OUTCOME]... DIRECTORY...

Each directory holds ctest.junit (ctest --output-junit) and, for a test that is a GoogleTest binary,
<ctest name>.xml, whose cases are counted instead of the one ctest entry. A binary that died before
it wrote its XML counts as one failure. A step whose OUTCOME is "ok" counts as one that passed, any
other as one that failed. Prints failed and skipped tests with their reasons, then the
line "N passed, N failed, N skipped". Exits 1 if anything failed or nothing ran.
"""

import argparse
import os
import sys
import xml.etree.ElementTree as ElementTree


def first_lines(text, count=3):
    lines = [line.strip() for line in (text or "").strip().splitlines() if line.strip()]
    return " | ".join(lines[:count])


def gtest_cases(path):
    """Yields (name, outcome, reason) for each case of a GoogleTest XML file."""
    for case in ElementTree.parse(path).iter("testcase"):
        name = f"{case.get('classname')}.{case.get('name')}"
        failure = case.find("failure")
        skipped = case.find("skipped")
        if failure is not None:
            yield name, "failed", first_lines(failure.get("message") or failure.text)
        elif skipped is not None:
            # GoogleTest writes "file:line\nmessage"; the place says less than the message.
            text = (skipped.get("message") or skipped.text or "").strip()
            yield name, "skipped", first_lines("\n".join(text.splitlines()[1:]) or text)
        elif case.get("status") == "notrun":
            yield name, "skipped", "disabled in the source"
        else:
            yield name, "passed", ""


def ctest_entries(junit):
    """Yields (name, outcome, reason) for each entry ctest ran."""
    for case in ElementTree.parse(junit).iter("testcase"):
        output = case.findtext("system-out") or ""
        last = output.strip().splitlines()[-1:] or ["no output"]
        status = case.get("status")
        if status in ("run", "passed"):
            yield case.get("name"), "passed", ""
        elif status in ("notrun", "disabled", "skipped"):
            skipped = case.find("skipped")
            message = skipped.get("message", "") if skipped is not None else ""
            yield case.get("name"), "skipped", last[0] if output.strip() else message
        else:
            yield case.get("name"), "failed", last[0]


def results(directory):
    junit = os.path.join(directory, "ctest.junit")
    if not os.path.exists(junit):
        yield directory, "failed", "ctest left no results"
        return
    for name, outcome, reason in ctest_entries(junit):
        xml = os.path.join(directory, name + ".xml")
        if not os.path.exists(xml):
            yield name, outcome, reason
            continue
        cases = list(gtest_cases(xml))
        for case, case_outcome, case_reason in cases:
            yield f"{name}: {case}", case_outcome, case_reason
        if outcome == "failed" and all(entry[1] != "failed" for entry in cases):
            # For instance a sanitizer's report at exit, or a time limit.
            yield name, "failed", reason


def count(directories, steps=(), out=sys.stdout):
    """Prints what the module's docstring says; returns the exit code."""
    found = [("step", name, "passed" if outcome == "ok" else "failed", "see above")
             for name, outcome in steps]
    for directory in directories:
        preset = os.path.basename(os.path.dirname(os.path.abspath(directory)))
        found += [(preset, *result) for result in results(directory)]
    for wanted in ("skipped", "failed"):
        for where, name, outcome, reason in found:
            if outcome == wanted:
                print(f"{wanted.upper()} [{where}] {name}: {reason or 'no reason given'}", file=out)
    passed, failed, skipped = (
        sum(outcome == wanted for _, _, outcome, _ in found)
        for wanted in ("passed", "failed", "skipped"))
    print(f"{passed} passed, {failed} failed, {skipped} skipped", file=out)
    return 1 if failed or not passed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--step", action="append", default=[], metavar="NAME=OUTCOME")
    parser.add_argument("directories", nargs="*")
    arguments = parser.parse_args()
    return count(arguments.directories, [step.rsplit("=", 1) for step in arguments.step])


if __name__ == "__main__":
    sys.exit(main())
