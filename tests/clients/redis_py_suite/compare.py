"""Compares results of redis-py's tests.

    compare.py KNOWN ORACLE.xml OURS.xml...

Fails if a test that passes with the oracle does not pass with one of ours and is not in KNOWN, or if a
test of KNOWN passes with all of ours: then its line must go.
"""

import sys
import xml.etree.ElementTree as xml
from collections import Counter
from pathlib import Path


def outcomes(file):
    found = {}
    for case in xml.parse(file).iter("testcase"):
        outcome = next((tag for tag in ("failure", "error", "skipped") if case.find(tag) is not None), "passed")
        words = case.find(outcome).get("message") or "" if outcome != "passed" else ""
        name = f"{case.get('classname').removeprefix('tests.')}::{case.get('name')}"
        # A test may have an error after its end in addition.
        if found.get(name, ("passed",))[0] in ("passed", "skipped"):
            found[name] = (outcome, words)
    return found


def known(file):
    """Lines `test<TAB>reason`; the name of a test stands for all its parameters."""
    lines = [line for line in Path(file).read_text().splitlines() if line and not line.startswith("#")]
    return dict(line.split("\t", 1) for line in lines)


def main():
    expected = known(sys.argv[1])
    oracle = outcomes(sys.argv[2])
    wrong, used = [], set()
    for file in sys.argv[2:]:
        counts = Counter(outcome for outcome, _ in outcomes(file).values())
        failed = counts["failure"] + counts["error"]
        print(f"{Path(file).stem}: {counts['passed']} passed, {failed} failed, {counts['skipped']} skipped")
    for file in sys.argv[3:]:
        ours = outcomes(file)
        for name, (outcome, _) in oracle.items():
            got, words = ours.get(name, ("missing", ""))
            if outcome != "passed" or got == "passed":
                continue
            whole = name.split("[")[0]
            used.add(whole)
            if whole not in expected:
                wrong.append(f"{name} ({Path(file).stem}): {got} {words[:300]!r}")
        more = [name for name, (outcome, _) in ours.items() if outcome == "passed" and oracle.get(name, ("",))[0] in ("failure", "error")]
        print(f"{Path(file).stem}: {len(more)} tests pass that fail with {Path(sys.argv[2]).stem}: {', '.join(sorted(more))}")
    names = {name.split("[")[0] for name in oracle}
    passing = [name for name in expected if name in names and name not in used]
    for line in wrong:
        print(f"NOT KNOWN: {line}")
    for name in passing:
        print(f"PASSES, so its line must go: {name}")
    if wrong or passing:
        sys.exit(1)
    print(f"{len(used)} known differences, no other")


main()
