"""`pome diff`: NumPy computes the errors that it must show."""
import json
import logging
import subprocess
import warnings

import numpy as np
import pytest

logging.disable(logging.WARNING)
warnings.filterwarnings("ignore")
writer = pytest.importorskip("mlpackage_writer", reason="needs coremltools")

from coremltools.converters.mil.mil import Builder as mb  # noqa: E402
from coremltools.converters.mil.mil import types  # noqa: E402

X = np.linspace(-3, 3, 24, dtype=np.float16).reshape(4, 6)


def package(path, factor, dtype=types.fp16, suffix=""):
    number = np.float16 if dtype is types.fp16 else np.float32

    def body(inputs):
        wide = mb.mul(x=inputs["x"], y=number(factor), name="wide" + suffix)
        back = mb.mul(x=wide, y=number(1 / 1024), name="back" + suffix)
        return (mb.add(x=back, y=number(.25), name="y"),)

    writer.write_package(writer.build_function(["x"], [mb.TensorSpec(shape=X.shape, dtype=dtype)], 17, body), path, 17)
    return path


@pytest.fixture
def diff(pome, tmp_path):
    np.save(tmp_path / "x.npy", X)

    def run(*arguments):
        return subprocess.run([pome, "diff", *map(str, arguments), "--input", f"x={tmp_path / 'x.npy'}"], capture_output=True,
                              text=True)

    return run


def test_where_half_precision_overflows(diff, tmp_path):
    model = package(tmp_path / "m.mlpackage", 30000)
    done = diff(model, "--json", "--all")
    assert done.returncode == 1, done.stderr
    shown = json.loads(done.stdout)
    assert shown["first_diverging"]["name"] == "wide" and shown["first_diverging"]["op"] == "mul"
    assert not shown["first_diverging"]["finite_alike"] and not shown["agree"]
    assert [r["name"] for r in shown["results"]] == ["wide", "back", "y"]
    assert "first below 40 dB\n  wide" in diff(model).stdout


def test_error_and_ratio_of_two_models(diff, tmp_path):
    a = package(tmp_path / "a.mlpackage", 1024, types.fp32)
    b = package(tmp_path / "b.mlpackage", 1028, suffix="_cast_fp16")
    done = diff(a, b, "--all", "--json", "--snr", 70)
    shown = json.loads(done.stdout)
    wide = {r["name"]: r for r in shown["results"]}["wide_cast_fp16"]
    x = X.astype(np.float64)
    want = np.abs(x).max()
    factor = float(np.float16(1028))
    want *= abs(factor - 1024)
    if want == 0:
        assert wide["snr_db"] is None
    else:
        assert wide["max_error"] == pytest.approx(want, rel=1e-3)
        assert wide["snr_db"] == pytest.approx(20 * np.log10(1024 / abs(factor - 1024)), abs=1e-3)
    got = shown["outputs"][0]
    y, z = x + .25, (x * factor / 1024 + .25).astype(np.float16).astype(np.float64)
    noise = ((y - z) ** 2).sum()
    assert got["max_error"] == pytest.approx(np.abs(y - z).max(), rel=2e-2)
    assert got["snr_db"] == pytest.approx(10 * np.log10((y ** 2).sum() / noise), abs=0.1)
    assert done.returncode == (got["snr_db"] < 70)


def test_equal_models(diff, tmp_path):
    model = package(tmp_path / "m.mlpackage", 512)
    done = diff(model, model)
    assert (done.returncode, done.stderr) == (0, "")
    assert "y " in done.stdout and "equal" in done.stdout and "none below 40 dB" in done.stdout


def test_nothing_in_common(diff, pome, tmp_path):
    model = package(tmp_path / "m.mlpackage", 2)
    done = subprocess.run([pome, "diff", str(model)], capture_output=True, text=True)
    assert done.returncode == 1 and "inputs are missing: x" in done.stderr
