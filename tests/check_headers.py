#!/usr/bin/env python3
"""Checks that every public header compiles alone, as C17 and from C++17, and that every internal header compiles alone.

    check_headers.py CC GENERATED [CXX]

GENERATED is the folder that holds formats/coreml.pb-c.h."""
import pathlib
import subprocess
import sys
import tempfile

WARN = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]


def compiles(compiler, language, standard, include, folders, extra=()):
    with tempfile.TemporaryDirectory() as scratch:
        source = pathlib.Path(scratch, "alone." + {"c": "c", "c++": "cc"}[language])
        # Twice: an include guard is missing if the second one fails.
        source.write_text(f'#include "{include}"\n#include "{include}"\nextern int pome_alone;\n')
        flags = [f"-I{f}" for f in folders] + ["-fsyntax-only", f"-std={standard}", *WARN, *extra]
        done = subprocess.run([compiler, *flags, str(source)], capture_output=True, text=True)
        if done.returncode:
            print(f"{include} does not compile alone as {standard}:\n{done.stderr}")
        return done.returncode == 0


def main():
    root = pathlib.Path(__file__).parent.parent.resolve()
    cc, generated = sys.argv[1:3]
    cxx = sys.argv[3] if len(sys.argv) > 3 else None
    good = True
    for header in sorted(root.glob("include/pome/*.h")):
        name = "pome/" + header.name
        good &= compiles(cc, "c", "c17", name, [root / "include"])
        if cxx:
            good &= compiles(cxx, "c++", "c++17", name, [root / "include"])
    for header in sorted(root.glob("src/**/*.h")):
        text = header.read_text(encoding="utf-8")
        if "#ifndef" not in text.split("#include")[0] or header.parent.name in ("x86", "arm"):
            continue  # a template, or for one instruction set
        good &= compiles(cc, "c", "c17", header.relative_to(root / "src").as_posix(), [root / "include", root / "src", generated],
                         ["-Wno-unused-function", "-D_GNU_SOURCE"])
    return not good


if __name__ == "__main__":
    sys.exit(main())
