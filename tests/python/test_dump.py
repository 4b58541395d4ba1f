"""`predict --dump`, `predict --check-finite` and `inspect --plan` on a program whose every step NumPy can tell."""
import subprocess

import numpy as np
import pytest
from coremltools.converters.mil.mil import Builder as mb
from coremltools.converters.mil.mil import types

from mlpackage_writer import TARGETS, write_package


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    @mb.program(input_specs=[mb.TensorSpec((1, 4), dtype=types.fp16)], opset_version=TARGETS[17])
    def program(x):
        doubled = mb.mul(x=x, y=np.float16(2), name="doubled")
        grown = mb.exp(x=doubled, name="grown")
        turned = mb.transpose(x=grown, perm=[1, 0], name="turned")
        return mb.sub(x=turned, y=np.float16(1), name="out")

    path = tmp_path_factory.mktemp("dump") / "m.mlpackage"
    write_package(program, path, 17)
    return path


def run(pome, package, folder, values, *options):
    np.save(folder / "x.npy", np.array([values], np.float32))
    return subprocess.run([pome, "predict", package, "--input", "x=x.npy", "--output", "out.npz", *options], cwd=folder,
                          capture_output=True, text=True)


def test_dump_all(pome, package, tmp_path):
    done = run(pome, package, tmp_path, [0, 1, -1, 0.5], "--dump", "all")
    assert (done.returncode, done.stderr) == (0, "")
    z = np.load(tmp_path / "out.npz")
    assert sorted(z.files) == ["doubled", "grown", "out", "turned"]
    x = np.array([[0, 1, -1, 0.5]])
    np.testing.assert_array_equal(z["doubled"], 2 * x)
    np.testing.assert_allclose(z["grown"], np.exp(2 * x), rtol=1e-6)
    np.testing.assert_allclose(z["turned"], np.exp(2 * x).T, rtol=1e-6)
    np.testing.assert_allclose(z["out"], np.exp(2 * x).T - 1, rtol=1e-3)


def test_dump_one(pome, package, tmp_path):
    assert run(pome, package, tmp_path, [0, 1, 2, 3], "--dump", "grown").returncode == 0
    assert sorted(np.load(tmp_path / "out.npz").files) == ["grown", "out"]


def test_dump_of_nothing_known(pome, package, tmp_path):
    done = run(pome, package, tmp_path, [0, 1, 2, 3], "--dump", "shrunk")
    assert done.returncode == 1 and "shrunk" in done.stderr and not (tmp_path / "out.npz").exists()


def test_check_finite_names_the_first(pome, package, tmp_path):
    done = run(pome, package, tmp_path, [0, 6, 1, 1], "--check-finite", "--numerics", "fp16")  # e^12 > 65504
    assert done.returncode == 1 and "grown (exp)" in done.stderr and "0 NaN and 1 infinite of 4" in done.stderr
    assert run(pome, package, tmp_path, [0, 5, 1, 1], "--check-finite", "--numerics", "fp16").returncode == 0
    exact = run(pome, package, tmp_path, [0, 6, 1, 1], "--check-finite")  # fp32 up to the output, which is fp16
    assert exact.returncode == 1 and "out (output)" in exact.stderr
    nan = run(pome, package, tmp_path, [0, np.nan, 1, 1], "--check-finite")
    assert nan.returncode == 1 and "doubled (mul)" in nan.stderr and "1 NaN" in nan.stderr


def test_plan(pome, package):
    text = subprocess.run([pome, "inspect", package, "--plan"], capture_output=True, text=True, check=True).stdout
    lines = text.splitlines()
    assert "fused" in lines.pop(1) and "rms-norm 0" in text
    assert lines[0] == "plan of function main: 0 shape steps, 4 tensor steps, 0 dynamic steps"
    assert [line.split()[1:4] for line in lines[1:]] == [["tensor", "mul", "doubled"], ["tensor", "exp", "grown"],
                                                         ["tensor", "transpose", "turned"], ["tensor", "sub", "out"]]
    assert lines[3].endswith("fp16 [4, 1]")
