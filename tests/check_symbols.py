#!/usr/bin/env python3
"""Checks the names that the libraries give to a linker.

    check_symbols.py NM LIBPOME_A [LIBPOME_SO]

Every external symbol of the static library starts with pome_ (generated protobuf code too: its package is `pome`);
the shared library exports just what the public headers declare with POME_API."""
import pathlib
import re
import subprocess
import sys

# Added by compilers, sanitizers and linkers, not by us.
TOOL = re.compile(r"^(_init|_fini|_edata|_end|__bss_start|__asan_|__odr_asan|__tsan_|__ubsan_|__sancov|__sanitizer|"
                  r"asan\.|DW\.ref\.|__start___|__stop___|_GLOBAL_OFFSET_TABLE_)")


def defined(nm, library, *options):
    out = subprocess.run([nm, "--defined-only", "--extern-only", "--format=posix", *options, library], check=True,
                         capture_output=True, text=True).stdout
    return sorted({line.split()[0] for line in out.splitlines() if len(line.split()) >= 2 and not TOOL.match(line)})


def declared(root):
    names = set()
    for header in root.glob("include/pome/*.h"):
        text = re.sub(r"/\*.*?\*/", " ", header.read_text(encoding="utf-8"), flags=re.S)
        for declaration in re.findall(r"POME_API([^;{]*);", text):
            names.update(re.findall(r"\b(pome_\w+)\s*\(", declaration)[:1])
    return names


def main():
    nm, static = sys.argv[1:3]
    offences = [f"{static}: {s} does not start with pome_" for s in defined(nm, static) if not s.startswith("pome_")]
    if len(sys.argv) > 3:
        public = declared(pathlib.Path(__file__).parent.parent)
        exported = set(defined(nm, sys.argv[3], "--dynamic"))
        offences += [f"{sys.argv[3]}: {s} is exported but no public header declares it" for s in sorted(exported - public)]
        offences += [f"{sys.argv[3]}: {s} is declared in a public header but not exported" for s in sorted(public - exported)]
    for offence in offences:
        print(offence)
    return bool(offences)


if __name__ == "__main__":
    sys.exit(main())
