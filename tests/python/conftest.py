"""Where the tests find what they test: POME is the command, POME_LIBRARY the shared library; scripts/test sets both.
POME_SAMPLES may name a folder with more packages and their expected values."""
import os
import pathlib
import sys

import pytest

sys.path.insert(0, os.path.dirname(__file__))
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: takes a minute or more, makes full-size packages")
    os.environ.setdefault("TQDM_DISABLE", "1")  # no progress bars in logs
    build = ROOT / "build" / "release"
    os.environ.setdefault("POME", str(build / "cli" / "pome"))
    os.environ.setdefault("POME_LIBRARY", str(build / "libpome.so"))


@pytest.fixture(scope="session")
def pome():
    return os.environ["POME"]


@pytest.fixture(scope="session")
def golden():
    return ROOT / "tests" / "golden"
