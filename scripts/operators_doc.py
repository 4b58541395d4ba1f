#!/usr/bin/env python3
"""Writes docs/operators.md from the operator table and the tables of implementations.

    operators_doc.py            writes the file
    operators_doc.py --check    exits 1, with the first line that differs, if the file is not current"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOC = ROOT / "docs" / "operators.md"
HEAD = """# Operators

Made by `scripts/operators_doc.py` from `src/mil/ops.def` and the tables in `src/ops`; do not edit. How many of coremltools' own
tests each passes is in [coremltools-tests.md](coremltools-tests.md).

*Since* is the first opset (iOS 15 = CoreML5, 16 = CoreML6, 17 = CoreML7, 18 = CoreML8). Parameters: `?` optional, `!` must be a
constant, `...` several values, `(17+)` from that opset on, `(-16)` up to that one. *Runs* says what carries the operator out:
a family in `src/ops`, the runtime itself (control flow), or the decoder of compressed constants; `-` means that a program with the operator
is refused when it is opened.
"""
OP = re.compile(r"^OP\((\w+), (\d+), (-?\d+), (.*), (\w+)\)")
IN = re.compile(r"^IN\((\w+), (\w+), (\d+), (\d+), (.*), ([^,]*)\)")


def read_table():
    """[(section, [(name, since, flags, [parameter text])])]"""
    sections = []
    for line in (ROOT / "src/mil/ops.def").read_text().splitlines():
        if line.startswith("/* ---- "):
            sections.append((line.strip("/*- "), []))
        elif found := OP.match(line):
            sections[-1][1].append((found[1], int(found[2]), found[4], []))
        elif found := IN.match(line):
            operator = sections[-1][1][-1]
            assert operator[0] == found[1], line
            flags = found[6]
            text = found[2] + ("!" if "CONST" in flags else "") + ("?" if "OPTIONAL" in flags else "") + ("..." if "_LIST" in flags else "")
            since, until = int(found[3]), int(found[4])
            if since > operator[1]:
                text += f" ({since}+)"
            if until:
                text += f" (-{until})"
            operator[3].append(text)
    return sections


def implementations(names):
    """{operator: what runs it}"""
    runs = {}
    listed = set(re.findall(r"^FAMILY\((\w+)\)", (ROOT / "src/ops/families.def").read_text(), re.M))
    for source in sorted((ROOT / "src/ops").glob("*.c")):
        for family, table in re.findall(r"^const pome_op_impl pome_ops_(\w+)\[\] = \{(.*?)\};", source.read_text(), re.M | re.S):
            if family not in listed:
                continue
            table = re.sub(r"/\*.*?\*/", "", table, flags=re.S)
            for name in re.findall(r"POME_OP_(\w+)", table) + re.findall(r"\b[A-Z][A-Z_0-9]*\(\s*(\w+)", table):
                if name in names:
                    runs[name] = f"`{source.name}`"
    for folder, text in (("runtime", "runtime"), ("passes", "runtime")):
        source = "".join(p.read_text() for p in sorted((ROOT / "src" / folder).glob("*.c")))
        for name in ("cond", "while_loop"):
            if f"POME_OP_{name}" in source:
                runs.setdefault(name, text)
    encoded = "".join(p.read_text() for p in sorted((ROOT / "src/ops").glob("encoded*.c")))
    for name in names:
        if name.startswith("constexpr_") and f"POME_OP_{name}" in encoded:
            runs.setdefault(name, "decoder")
    runs["const"] = "loader"
    return runs


def render():
    sections = read_table()
    names = {operator[0] for _, operators in sections for operator in operators}
    runs = implementations(names)
    lines = [HEAD, f"{len(runs)} of {len(names)} operators run.\n"]
    for section, operators in sections:
        lines += [f"## {section}\n", "| operator | since | parameters | runs |", "|---|---|---|---|"]
        lines += [f"| `{name}` | {since} | {', '.join(parameters)} | {runs.get(name, '-')} |" for name, since, _, parameters in operators]
        lines.append("")
    return "\n".join(lines)


def main():
    text = render()
    if "--check" not in sys.argv:
        DOC.write_text(text)
        return 0
    found = DOC.read_text() if DOC.exists() else ""
    if found == text:
        return 0
    for is_line, want_line in zip(found.splitlines() + ["(end)"], text.splitlines() + ["(end)"]):
        if is_line != want_line:
            print(f"docs/operators.md is not current; run scripts/operators_doc.py\n  is:     {is_line}\n  wanted: {want_line}")
            break
    return 1


if __name__ == "__main__":
    sys.exit(main())
