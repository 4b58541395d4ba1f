"""Whole networks that coremltools converts from PyTorch, in fp32, against PyTorch."""
import logging
import re
import subprocess
import warnings

import numpy as np
import pytest

logging.disable(logging.WARNING)
warnings.filterwarnings("ignore")
ct = pytest.importorskip("coremltools")
torch = pytest.importorskip("torch")

import networks  # noqa: E402
from pome_api import Model  # noqa: E402

SMALL = ((1, 8, 1, 1), (4, 12, 2, 2), (4, 16, 2, 2))
CASES = {
    "mobilenet": (lambda: networks.mobilenet(10, SMALL, 64), (1, 3, 64, 48)),
    "resnet": (lambda: networks.resnet(10, (8, 16, 32)), (2, 3, 64, 64)),
    "unet": (lambda: networks.liven(networks.Unet()), (1, 3, 32, 40)),
    "conv_lstm": (lambda: networks.liven(networks.ConvLstm()), (1, 6, 16, 16)),
    "conv_gates": (lambda: networks.liven(networks.ConvGates()), (2, 5, 12, 9)),
    "vit": (lambda: networks.Vit().eval(), (1, 3, 32, 32)),
}


@pytest.mark.parametrize("name", CASES)
def test_like_torch(name, tmp_path):
    make, shape = CASES[name]
    torch.manual_seed(0)
    network, x = make(), torch.randn(shape)
    with torch.no_grad():
        want = network(x).numpy()
        traced = torch.jit.trace(network, x)
    assert want.std() > .02  # a signal arrives
    ct.convert(traced, inputs=[ct.TensorType(name="x", shape=shape)], outputs=[ct.TensorType(name="y")],
               minimum_deployment_target=ct.target.iOS18, compute_precision=ct.precision.FLOAT32,
               skip_model_load=True).save(str(tmp_path / "m.mlpackage"))
    with Model(tmp_path / "m.mlpackage", threads=2) as model:
        got = model.predict({"x": x.numpy()})["y"]
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4 * np.abs(want).max())


def test_winograd_is_a_fusion(tmp_path, pome):
    """Found where there are channels and positions enough, left out when asked, and nothing but rounding away from what was there before."""
    torch.manual_seed(0)
    network, x = networks.resnet(10, (16, 24, 48)), torch.randn(1, 3, 96, 64)
    with torch.no_grad():
        want = network.double()(x.double()).numpy()
        traced = torch.jit.trace(network.float(), x)
    path = tmp_path / "m.mlpackage"
    ct.convert(traced, inputs=[ct.TensorType(name="x", shape=x.shape)], outputs=[ct.TensorType(name="y")],
               minimum_deployment_target=ct.target.iOS18, compute_precision=ct.precision.FLOAT32, skip_model_load=True).save(str(path))
    text = subprocess.run([pome, "inspect", "--plan", str(path)], capture_output=True, text=True, check=True).stdout
    assert re.search(r"^fused: .*\bwinograd 4\b", text, re.M), text
    got = []
    for left_out in (None, "winograd"):
        with Model(path, threads=2, no_fuse=left_out) as model:
            got.append(model.predict({"x": x.numpy()})["y"])
    assert not np.array_equal(*got)
    errors = [np.abs(y - want).max() / np.abs(want).max() for y in got]
    assert errors[0] < 1e-6 and errors[1] < 1e-6, errors
