#!/usr/bin/env python3
"""Checks that the library neither ends the process nor writes to the standard streams.

    check_sources.py [ROOT]

A grep over src/ with comments and string literals removed. Prints each offence and exits 1 if there is any."""
import pathlib
import re
import sys

FORBIDDEN = re.compile(r"\b(exit|_exit|_Exit|quick_exit|abort|printf|vprintf|puts|putchar|perror|stdout|stderr|"
                       r"sleep|system|gets|strcpy|strcat|sprintf|vsprintf|rand|srand)\b(?!\s*:)")
TOKENS = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
# format(printf, ...) in an attribute is no call; #include lines name no function.
HARMLESS = re.compile(r"format\s*\(\s*printf\b|^\s*#\s*include[^\n]*", re.M)


def blank(match):
    return re.sub(r"[^\n]", " ", match.group(0))


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent).resolve()
    offences = 0
    for path in sorted(root.glob("src/**/*.[ch]")):
        text = HARMLESS.sub(blank, TOKENS.sub(blank, path.read_text(encoding="utf-8")))
        for number, line in enumerate(text.splitlines(), 1):
            for word in FORBIDDEN.findall(line):
                print(f"{path.relative_to(root)}:{number}: {word} has no place in the library")
                offences += 1
    return bool(offences)


if __name__ == "__main__":
    sys.exit(main())
