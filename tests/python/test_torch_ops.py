"""Recurrent layers and sampling of images, for which coremltools infers no values: against PyTorch in double precision, as
the converter and coremltools' own tests lay the parameters out."""
import numpy as np
import pytest

torch = pytest.importorskip("torch")
writer = pytest.importorskip("mlpackage_writer", reason="needs coremltools")

from pome_api import Model  # noqa: E402

F = torch.nn.functional


def predict(tmp_path, op, opset, inputs, consts):
    path = tmp_path / "one.mlpackage"
    writer.write_package(writer.build(op, opset, inputs, consts), path, opset)
    with Model(path, threads=1) as model:
        outputs = model.predict(writer.feeds(inputs))
    return [outputs[f"out_{i}"] for i in range(len(outputs))]


def near(got, want, half):
    np.testing.assert_allclose(got, want, rtol=4e-3 if half else 2e-5, atol=3e-3 if half else 2e-6)


def parameters(module, name, reverse):
    return module.state_dict()[name + "_l0" + ("_reverse" if reverse else "")].numpy()


def reordered(array, order):
    parts = np.split(array, len(order))
    return np.concatenate([parts[i] for i in order])


def in_half(module):
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(p.half().double())


@pytest.mark.parametrize("case", range(24))
def test_recurrent(case, tmp_path):
    rng = np.random.default_rng(case)
    torch.manual_seed(case)
    kind, half = ("rnn", "gru", "lstm")[case % 3], case % 4 == 3
    both, reverse = kind == "lstm" and case % 2 == 1, case % 2 == 0 and case % 8 > 3
    steps, batch, n_in, hidden = (int(rng.integers(1, n)) for n in (9, 4, 20, 12))
    sequence, bias = bool(case // 3 % 2), bool(case // 5 % 2)
    dtype, opset = (np.float16, 18) if half else (np.float32, 18 if kind == "gru" else 15)
    module = {"rnn": torch.nn.RNN, "gru": torch.nn.GRU, "lstm": torch.nn.LSTM}[kind](
        n_in, hidden, bias=bias, bidirectional=both).double()
    if half:
        in_half(module)
    order = {"rnn": [0], "gru": [0, 2, 1], "lstm": [0, 1, 3, 2]}[kind]  # torch: r z n; i f g o
    x = rng.uniform(-1, 1, (steps, batch, n_in)).astype(dtype)
    states = [rng.uniform(-1, 1, (batch, hidden * (1 + both))).astype(dtype) for _ in range(1 + (kind == "lstm"))]
    split = [torch.from_numpy(np.stack(np.split(s.astype(np.float64), 1 + both, axis=1))) for s in states]
    feed = torch.from_numpy(x.astype(np.float64))
    with torch.no_grad():
        y, last = module(feed.flip(0) if reverse else feed, split[0] if kind != "lstm" else tuple(split))
    y, last = y.numpy(), [np.concatenate(list(s.numpy()), axis=1) for s in (last if kind == "lstm" else [last])]
    consts = {"output_sequence": sequence, "direction": "bidirectional" if both else "reverse" if reverse else "forward"}
    for side in range(1 + both):
        tail = "_back" if side else ""
        consts["weight_ih" + tail] = reordered(parameters(module, "weight_ih", side), order).astype(dtype)
        consts["weight_hh" + tail] = reordered(parameters(module, "weight_hh", side), order).astype(dtype)
        if bias and kind == "gru":
            consts["input_bias"] = reordered(parameters(module, "bias_ih", side), order).astype(dtype)
            consts["bias"] = reordered(parameters(module, "bias_hh", side), order).astype(dtype)
        elif bias:
            total = parameters(module, "bias_ih", side) + parameters(module, "bias_hh", side)
            consts["bias" + tail] = reordered(total, order).astype(dtype)
    if kind == "gru":
        consts["reset_after"] = True
    inputs = {"x": x, "initial_h": states[0], **({"initial_c": states[1]} if kind == "lstm" else {})}
    got = predict(tmp_path, kind, opset, inputs, consts)
    want = y if sequence else last[0][None]
    for g, w in zip(got, [want, *last], strict=True):
        near(g, w, half)


@pytest.mark.parametrize("case", range(16))
def test_interpolate(case, tmp_path):
    rng = np.random.default_rng(case)
    half, align = case % 4 == 3, bool(case % 2)
    dtype = np.float16 if half else np.float32
    x = rng.uniform(-4, 4, (2, 3, int(rng.integers(1, 9)), int(rng.integers(1, 9)))).astype(dtype)
    n = [int(v) for v in rng.integers(1, 14, 2)]
    wide = torch.from_numpy(x.astype(np.float64))
    want = F.interpolate(wide, n, mode="bilinear", align_corners=align).numpy()
    mode = "STRICT_ALIGN_CORNERS" if align else "UNALIGN_CORNERS"
    size = {"target_size_height": n[0], "target_size_width": n[1]}
    near(predict(tmp_path, "resize_bilinear", 17, {"x": x}, {**size, "sampling_mode": mode})[0], want, half)
    near(predict(tmp_path / "nearest", "resize_nearest_neighbor", 17, {"x": x}, size)[0],
         F.interpolate(wide, n, mode="nearest").numpy(), half)
    got = predict(tmp_path / "any", "resize", 17, {"x": x}, {
        "shape": np.array(n, np.int32), "resized_dims": np.uint32(2), "sampling_mode": mode})[0]
    near(got, want, half)
    if not align:
        got = predict(tmp_path / "exact", "resize", 17, {"x": x}, {
            "shape": np.array(n, np.int32), "resized_dims": np.uint32(2), "sampling_mode": mode,
            "interpolation_mode": "NEAREST_NEIGHBOR"})[0]
        near(got, F.interpolate(wide, n, mode="nearest-exact").numpy(), half)


@pytest.mark.parametrize("case", range(24))
def test_grid_sample(case, tmp_path):
    rng = np.random.default_rng(case)
    align, mode = bool(case % 2), ("bilinear", "nearest")[case // 2 % 2]
    pad = ("zeros", "border", "reflection")[case // 4 % 3]
    x = rng.uniform(-4, 4, (2, 3, 4, 5)).astype(np.float32)
    grid = rng.uniform(-2.5, 2.5, (2, 3, 2, 2)).astype(np.float32)
    want = F.grid_sample(torch.from_numpy(x.astype(np.float64)), torch.from_numpy(grid.astype(np.float64)), mode, pad,
                         align).numpy()
    padding = {"zeros": "constant", "border": "border", "reflection": "reflection" if align else "symmetric"}[pad]
    got = predict(tmp_path, "resample", 17, {"x": x, "coordinates": grid}, {
        "sampling_mode": mode, "padding_mode": padding, "padding_value": np.float32(0), "align_corners": align,
        "coordinates_mode": "normalized_minus_one_to_one"})[0]
    near(got, want, False)
    matrix = rng.uniform(-1.2, 1.2, (2, 6)).astype(np.float32)
    where = F.affine_grid(torch.from_numpy(matrix.astype(np.float64).reshape(2, 2, 3)), [2, 3, 4, 3], align_corners=True)
    got = predict(tmp_path / "affine", "affine", 15, {"x": x, "transform_matrix": matrix}, {
        "output_height": 4, "output_width": 3, "sampling_mode": "bilinear", "padding_mode": "constant",
        "padding_value": np.float32(0), "coordinates_mode": "normalized_minus_one_to_one", "align_corners": True})[0]
    near(got, F.grid_sample(torch.from_numpy(x.astype(np.float64)), where, align_corners=True).numpy(), False)
