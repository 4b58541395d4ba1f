"""Runs the command in a scratch folder with a clean environment. POME is the command; scripts/test sets it."""
import os
import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
GOLDEN = ROOT / "tests" / "golden"
POME = os.environ.get("POME", str(ROOT / "build" / "release" / "cli" / "pome"))


@pytest.fixture
def environment(tmp_path):
    """No settings from outside, a home of its own, English."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("POME", "HF_", "XDG_")) or k == "POME_CPU"}
    return dict(kept, HOME=str(tmp_path), LC_ALL="C.UTF-8", TERM="dumb")


@pytest.fixture
def pome(tmp_path, environment):
    """pome("run", ..., input="text", env={...}) -> CompletedProcess with text."""

    def run(*args, input=None, env=None, **more):
        if input is None and "stdin" not in more:
            more["stdin"] = subprocess.DEVNULL
        elif input is not None:
            more["input"] = input
        if "stdout" not in more:
            more["stdout"] = subprocess.PIPE
        return subprocess.run([POME, *map(str, args)], stderr=subprocess.PIPE, text=True, timeout=120, cwd=tmp_path,
                              env=dict(environment, **(env or {})), **more)

    return run


@pytest.fixture
def fails(pome):
    """Runs what must fail: with this exit status, nothing on stdout, and a message that has all of the parts."""

    def run(status, parts, *args, **more):
        done = pome(*args, **more)
        assert done.returncode == status, (done.returncode, done.stderr)
        assert done.stdout == ""
        for part in parts:
            assert part in done.stderr, done.stderr
        return done.stderr

    return run


@pytest.fixture(scope="session")
def golden():
    return GOLDEN


@pytest.fixture
def package(golden):
    return golden / "apple" / "int4-block32.mlpackage"


@pytest.fixture
def tokenizer(golden):
    return golden / "tokenizer"


@pytest.fixture
def copied(package, tmp_path):
    """A package of one's own to put things beside or to damage."""
    target = tmp_path / "models" / "tiny.mlpackage"
    shutil.copytree(package, target)
    return target


@pytest.fixture
def checkpoint(golden, tmp_path):
    """A folder with the tokenizer, to be changed."""
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    for name in ("config.json", "model.safetensors"):
        shutil.copy(golden / "checkpoint" / name, folder)
    for file in (golden / "tokenizer").glob("*.json"):
        shutil.copy(file, folder)
    return folder
