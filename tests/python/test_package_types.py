"""The package's types: mypy --strict finds nothing in a program that uses everything, and finds what is wrong in one that is."""
import os
import pathlib
import re
import subprocess
import sys

import pytest

if os.environ.get("POME_PACKAGE"):
    import mypy  # noqa: F401
    import pome as package
else:
    pytest.importorskip("mypy")
    package = pytest.importorskip("pome")

PROGRAM = pathlib.Path(__file__).resolve().parent / "programs" / "typed_user.py"

WRONG = {
    "pome.Model(3)": "arg-type",
    "pome.LLM('m').generate([1], max_new_tokens='4')": "arg-type",
    "pome.Model('m', precision='fp16')": "call-arg",
    "pome.Model('m').inputs[0].size": "attr-defined",
    "x: int = pome.LLM('m').contract": "assignment",
    "y: list[str] = pome.Tokenizer('t').encode('hello')": "assignment",
    "pome.none": "attr-defined",
}


def check(*arguments, cwd):
    return subprocess.run([sys.executable, "-m", "mypy", "--strict", "--cache-dir", cwd / "cache", *map(str, arguments)],
                          capture_output=True, text=True, cwd=cwd)


def test_strict(tmp_path):
    installed = pathlib.Path(package.__file__).parent
    assert (installed / "py.typed").exists() and (installed / "_pome.pyi").exists()
    wrong = tmp_path / "wrong.py"
    wrong.write_text("import pome\n\n" + "\n".join(WRONG) + "\n")
    done = check(PROGRAM, wrong, cwd=tmp_path)
    found = dict(re.findall(r"wrong\.py:(\d+): error: .*\[([a-z-]+)\]", done.stdout))
    assert found == {str(3 + i): code for i, code in enumerate(WRONG.values())}, done.stdout
    assert "typed_user.py" not in done.stdout


def test_the_package_itself(tmp_path):
    """Without pome.coremltools: coremltools has no types."""
    done = check("-p", "pome", cwd=tmp_path)
    assert [line for line in done.stdout.splitlines() if ": error:" in line and "pome/coremltools/" not in line] == []
    assert "checked" in done.stdout
