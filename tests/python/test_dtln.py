"""An echo canceller whose two LSTM layers are loops over lists of tensors: ten steps against the layers written out in
NumPy, in double. Runs where POME_SAMPLES (or a folder beside it) holds DTLN_AEC_128_Part1.mlpackage."""
import os
import pathlib

import numpy as np
import pytest

from pome_api import Model


def find_package():
    samples = os.environ.get("POME_SAMPLES")
    if samples:
        for root in (pathlib.Path(samples), pathlib.Path(samples).parent):
            found = sorted(root.rglob("DTLN_AEC_128_Part1.mlpackage"))
            if found:
                return found[0]
    pytest.skip("needs POME_SAMPLES with DTLN_AEC_128_Part1.mlpackage, which cannot be redistributed")


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


class Reference:
    """Weights by the operator that uses them, read through coremltools."""

    def __init__(self, path):
        ct = pytest.importorskip("coremltools")
        from coremltools.converters.mil.frontend.milproto.load import load
        model = ct.models.MLModel(str(path), skip_model_load=True)
        spec = model.get_spec()
        body = load(spec, spec.specificationVersion, model.weights_dir).functions["main"]
        self.ops = {op.name: op for op in body.operations}
        self.loops = [op for op in body.operations if op.op_type == "while_loop"]

    def const(self, name, parameter="y"):
        return np.asarray(self.ops[name].inputs[parameter].val, np.float64)

    def norm(self, x, which):
        x = np.log(x + self.const(f"DTLN_AEC_Part1_{which}_log_add") + self.const(f"DTLN_AEC_Part1_{which}_log_Log", "epsilon"))
        x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt((x * x).mean(-1, keepdims=True) + self.const(f"DTLN_AEC_Part1_{which}_norm_add"))
        return x * self.const(f"DTLN_AEC_Part1_{which}_norm_mul") + self.const(f"DTLN_AEC_Part1_{which}_norm_add_1")

    def times(self, op, value):
        weight = np.asarray(op.y.val, np.float64)
        return value @ (weight.T if op.transpose_y.val else weight)

    def lstm(self, layer, x, h, c):  # x [batch, n_in], h and c [batch, 128]
        ops = list(self.loops[layer].blocks[1].operations)
        bias = next(np.asarray(op.y.val, np.float64) for op in ops if op.op_type == "add" and op.y.val is not None and op.y.val.size == 512)
        gates = bias
        for op in ops:
            if op.op_type == "matmul":  # one of the list's element, one of the state
                from_list = op.x.op is not None and op.x.op.op_type == "list_read"
                gates = gates + self.times(op, x if from_list else h)
        i, f, g, o = np.split(gates, 4, -1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        return sigmoid(o) * np.tanh(c), c

    def step(self, mic, lpb, states):
        x = np.concatenate([self.norm(mic, "mic"), self.norm(lpb, "lpb")], -1)[:, 0]
        h0, c0 = self.lstm(0, x, states[:, 0, :, 0], states[:, 0, :, 1])
        h1, c1 = self.lstm(1, h0, states[:, 1, :, 0], states[:, 1, :, 1])
        states = np.stack([np.stack([h0, h1], 1), np.stack([c0, c1], 1)], -1)
        dense = self.ops["DTLN_AEC_Part1_dense_mask_1_Tensordot_MatMul"]
        mask = self.times(dense, h1) + self.const("DTLN_AEC_Part1_dense_mask_1_BiasAdd")
        return sigmoid(mask).reshape(len(x), 1, -1), states


@pytest.mark.parametrize("batch", [1, 2])
def test_ten_steps(batch):
    path = find_package()
    reference = Reference(path)
    rng = np.random.default_rng(batch)
    want_states = np.zeros((batch, 2, 128, 2))
    got_states = want_states.astype(np.float32)
    with Model(path, "exact") as model, model.predictor() as run:
        for _ in range(10):
            mic, lpb = (rng.uniform(0, 3, (batch, 1, 257)).astype(np.float32) for _ in range(2))
            want, want_states = reference.step(mic.astype(np.float64), lpb.astype(np.float64), want_states)
            out = run({"mic_magnitude": mic, "lpb_magnitude": lpb, "states_in": got_states})
            got_states = out["Identity_1"]
            np.testing.assert_allclose(out["Identity"], want, atol=1e-5)
            np.testing.assert_allclose(got_states, want_states, atol=1e-5)
    assert np.abs(want_states).max() > 0.01
