"""Lists the tests that were skipped in the last run of ctest, one line for each, with the reason.

    python3 tests/skipped.py BUILD_FOLDER          for example build/release

It reads ctest's own log (Testing/Temporary/LastTest.log in the build folder; the path of such a log may be given instead).
The log has the whole output of every test, while a JUnit file has only its first kilobyte. So single cases are found that
were skipped inside a program that passed as a whole: GoogleTest's, and unittest's if it runs with --verbose.
"""
import ast
import os
import re
import sys

COLUMNS = 100
# One test of the log: its name, and everything up to the next one.
TEST = re.compile(r"^\d+/\d+ Test: (?P<name>.*)\n(?P<text>(?:(?!\d+/\d+ Testing: ).*\n?)*)", re.M)
OUTPUT = re.compile(r"^Output:\n-+\n(.*?)^<end of output>$", re.M | re.S)
# GoogleTest prints the place, the reason in one or more lines, and then which case it was.
GTEST = re.compile(r": Skipped\n(?P<reason>(?:(?!\[ ).*\n)*?)\s*\[  SKIPPED \] (?P<case>[^\s(]+) \(\d+ ms\)")
# unittest prints the case, perhaps its description, and the reason as Python writes a string.
UNITTEST = re.compile(r"^ *(?P<case>\w+) \((?P<where>[\w.]+)\)(?:\n.*?| .*?)? \.\.\. skipped (?P<reason>'.*'|\".*\")$", re.M)


def cases(output):
    """(case, reason) of everything that was skipped in one test's output, each once."""
    found = {}
    for match in GTEST.finditer(output):
        found[match["case"]] = " ".join(match["reason"].split())
    for match in UNITTEST.finditer(output):
        group = match["where"].removeprefix("__main__.").removesuffix(match["case"]).strip(".")
        found[f"{group}.{match['case']}" if group else match["case"]] = str(ast.literal_eval(match["reason"]))
    return found


def skipped(log):
    """(test, reason) of everything that was skipped in a log of ctest."""
    found = []
    for test in TEST.finditer(log):
        name, output = test["name"], OUTPUT.search(test["text"])
        inside = cases(output[1]) if output else {}
        for case, reason in inside.items():
            whole = name if name.endswith(case) else f"{name} {case}"
            found.append((whole, reason or "no reason was given"))
        if not inside and re.search(r"^Test Skipped\.$", test["text"], re.M):
            found.append((name, "no reason was given"))
    return found


def line(name, reason):
    """At most COLUMNS wide. The reason tells more than the name, so the name is the first to be shortened."""
    room = max(COLUMNS - len(f"  : {reason}"), 40)
    if len(name) > room:
        name = name[:room - 3] + "..."
    text = f"  {name}: {reason}"
    return text if len(text) <= COLUMNS else text[:COLUMNS - 3] + "..."


def main():
    if len(sys.argv) != 2:
        sys.exit("which build folder? try: python3 tests/skipped.py build/release")
    path = sys.argv[1]
    if os.path.isdir(path):
        path = os.path.join(path, "Testing", "Temporary", "LastTest.log")
    try:
        with open(path, errors="replace") as file:
            found = skipped(file.read())
    except OSError as error:
        print(f"skipped tests: not known, ctest's log cannot be read: {error}"[:COLUMNS])
        return
    print(f"skipped tests: {len(found)}")
    for name, reason in found:
        print(line(name, reason))


if __name__ == "__main__":
    main()
