#!/usr/bin/env python3
"""Checks that each layer includes only what the layering of docs/architecture.md allows, that file names are unique, and
that no source carries a file name with other than snake_case.

    check_layers.py [ROOT]

Prints each offence as FILE:LINE: text and exits 1 if there is any."""
import pathlib
import re
import sys

# layer: (layers it may include besides itself, or single headers of them); public headers are free to all but kernels.
ALLOWED = {
    "base": (),
    "formats": ("base",),
    "mil": ("base",),
    "passes": ("base", "mil", "ops"),
    "kernels": ("base/cpu.h", "base/f16.h"),
    "ops": ("base", "mil", "kernels"),
    "runtime": ("base", "mil", "passes", "ops", "kernels"),
    "text": ("base", "formats"),
    "llm": ("base", "formats", "text", "runtime"),
    "convert": ("base", "formats", "mil", "passes", "text"),
}
# Files that may include more than their layer.
EXTRA = [
    (re.compile(r"^src/mil/(load|save)\w*\.[ch]$"), ("formats",)),
    # Format detection ("this is a GGUF file, convert it") and package opening happen where a model is opened.
    (re.compile(r"^src/runtime/model\w*\.[ch]$"), ("formats",)),
    # An encoded constant is described by the program, decoded by an operator family.
    (re.compile(r"^src/mil/program\.h$"), ()),
]
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')
UNIQUE_EXEMPT = {"CMakeLists.txt", "README.md", "conftest.py", "Manifest.json", "model.mlmodel", "weight.bin", "expected.npz",
                 "__init__.py", "run"}
SNAKE = re.compile(r"^[a-z0-9_]+$")


def fits(include, allowed):
    return any(include == a or include.startswith(a + "/") for a in allowed)


def check_includes(root):
    for path in sorted(root.glob("src/**/*.[ch]")) + sorted(root.glob("cli/**/*.[ch]")) + sorted(root.glob("python/**/*.[ch]")) + sorted(root.glob("include/**/*.h")):
        rel = path.relative_to(root).as_posix()
        layer = rel.split("/")[1] if rel.startswith("src/") else rel.split("/")[0]
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            found = INCLUDE.match(line)
            if not found:
                continue
            include = found.group(1)
            if layer == "include":
                good = include.startswith("pome/")
            elif layer in ("cli", "python"):  # public headers and its own files, which lie in one folder
                good = include.startswith("pome/") or (path.parent / include).exists()
            elif layer not in ALLOWED:
                yield f"{rel}:{number}: folder {layer} is not a known layer"
                break
            else:
                allowed = (layer,) + ALLOWED[layer] + sum((e for p, e in EXTRA if p.match(rel)), ())
                good = fits(include, allowed) or (include.startswith("pome/") and layer != "kernels")
            if not good:
                yield f"{rel}:{number}: {layer} may not include \"{include}\""


def check_names(root):
    seen = {}
    for path in sorted(root.glob("**/*")):
        rel = path.relative_to(root).as_posix()
        if not path.is_file() or rel.startswith(("build", ".git/", ".cache/")) or "__pycache__" in rel:
            continue
        if any(part.endswith(".mlpackage") for part in path.parts):
            continue
        if path.suffix in (".c", ".h", ".py", ".def", ".proto", ".sh"):
            if not SNAKE.match(path.stem.replace(".", "_")):
                yield f"{rel}: file names are snake_case"
            # Public headers are always written pome/x.h; a private header may extend the public one of its name.
            name = "pome/" + path.name if rel.startswith("include/") else path.name
            if name in seen and name not in UNIQUE_EXEMPT:
                yield f"{rel}: same name as {seen[name]}"
            seen.setdefault(name, rel)


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent).resolve()
    offences = list(check_includes(root)) + list(check_names(root))
    for offence in offences:
        print(offence)
    return bool(offences)


if __name__ == "__main__":
    sys.exit(main())
