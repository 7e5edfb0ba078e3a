#!/usr/bin/env python3
"""Prints the build targets that the asked tests need, one per line, as meson has noted them.

usage: test_targets.py BUILD [NAME...] [--suite SUITE] [other options of `meson test`]     (without names: of all tests)

Exits with 2 and says which names are alike where there is no test of a name.
"""
import argparse
import difflib
import json
import pathlib
import sys


def read(build, what):
    return json.loads((build / "meson-info" / f"intro-{what}.json").read_text())


def main():
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--suite", action="append", default=[])
    options, rest = parser.parse_known_args()
    build = options.build.resolve()
    tests = read(build, "tests")
    names = {test["name"] for test in tests}
    asked = []
    value = False  # whether the word before it was an option that takes one
    for word in rest:
        if not word.startswith("-") and not value:
            asked.append(word)
        value = word in ("--repeat", "--maxfail", "-t", "--timeout-multiplier", "--num-processes", "--test-args", "--logbase", "--setup", "--wrap")
    for name in asked:
        if name not in names:
            alike = difflib.get_close_matches(name, names, 3) or difflib.get_close_matches(name + "_test", names, 3)
            print(f"test: there is no test '{name}'" + (f"; did you mean {' or '.join(alike)}?" if alike else ""), file=sys.stderr)
            return 2
    wanted = [test for test in tests if (not asked or test["name"] in asked) and
              (not options.suite or any(suite.split(":")[-1] in options.suite for suite in test["suite"]))]
    if not wanted:
        print("test: there is no such suite", file=sys.stderr)
        return 2
    files = {target["id"]: target["filename"] for target in read(build, "targets")}
    needed = {path for test in wanted for target in test["depends"] for path in files[target]}
    for path in sorted(needed):
        print(pathlib.Path(path).relative_to(build).as_posix())
    return 0


if __name__ == "__main__":
    sys.exit(main())
