"""Forms of weights. Oracles: coremltools' own quantizers and decompression (codes, scales, offsets and tables; for k-means
the squared error), gguf's dequantization for kept GGUF types, numpy for 8-bit floats. Every form is opened by coremltools,
saved again, and gives the same logits afterwards."""
import json

import numpy as np
import pytest

from pome_api import Model, Session
from test_convert import (CHECKPOINT, change_config, checkpoint, convert, halves, read_safetensors, write_gguf,  # noqa: F401
                          write_safetensors)
from test_convert_targets import all_rows, through_coremltools

NAMES = {"embed_weight": "model.embed_tokens.weight", "layers_0_q_proj_weight": "model.layers.0.self_attn.q_proj.weight",
         "layers_1_down_weight": "model.layers.1.mlp.down_proj.weight", "layers_3_gate_weight": "model.layers.3.mlp.gate_proj.weight"}
GROUPED = ["--granularity", "per-grouped-channel", "--group-size", 16]


def constants(path):
    """{name: operator} of the compressed constants, as coremltools loads them."""
    ct = pytest.importorskip("coremltools")
    from coremltools.models import utils
    model = ct.models.MLModel(str(path), skip_model_load=True)
    program = utils._convert_model_spec_to_pymil_prog(model, model.get_spec().specificationVersion,
                                                      utils._milproto_to_pymil.load)
    return {op.outputs[0].name: op for op in program.functions["main"].operations if op.op_type.startswith("constexpr")}


def decompressed(op):
    """The operator's value by coremltools' decompression."""
    from coremltools.optimize import _utils
    if op.op_type == "constexpr_lut_to_dense":
        return _utils.lut_to_dense(op.indices.val, op.lut.val)
    return op.materialized_val_inference()


def source(folder=CHECKPOINT):
    tensors = read_safetensors(folder / "model.safetensors")
    return {ours: halves(tensors, theirs) for ours, theirs in NAMES.items()}


def check_decompression(path, tmp_path, ids=None):
    """Decompressed and saved by coremltools, or saved as it is, it gives the same logits."""
    ids = np.load(CHECKPOINT / "expected.npz")["prompt"].astype(np.int32) if ids is None else ids
    want = all_rows(path, ids)
    assert np.isfinite(want).all()
    for decompress in (True, False):
        saved, _ = through_coremltools(path, tmp_path, decompress=decompress)
        for again in saved:
            np.testing.assert_array_equal(all_rows(again, ids), want)


# ---- palettes ----

@pytest.mark.parametrize("group", [[], GROUPED], ids=["per-tensor", "per-group"])
@pytest.mark.parametrize("bits", [1, 2, 3, 4, 6, 8])
def test_uniform_palettes(pome, tmp_path, bits, group):
    """The very tables and indices of coremltools."""
    pytest.importorskip("coremltools")
    from coremltools.optimize.coreml._quantization_passes import palettize_weights
    out = tmp_path / "out.mlpackage"
    convert(pome, CHECKPOINT, out, "--quantize", f"lut{bits}", "--palette", "uniform", *group)
    found = constants(out)
    for name, w in source().items():
        want = palettize_weights.grouped_channelwise_compress(w, "UNIFORM", bits, 0, 16 if group else 0)
        np.testing.assert_array_equal(found[name].lut.val, want.lut, err_msg=name)
        np.testing.assert_array_equal(found[name].indices.val, want.indices, err_msg=name)


@pytest.mark.parametrize("group", [[], GROUPED], ids=["per-tensor", "per-group"])
@pytest.mark.parametrize("bits", [1, 2, 3, 4, 6, 8])
def test_kmeans_palettes(pome, tmp_path, bits, group):
    """Squared errors at most 1 % above those of coremltools, which clusters exactly from 10,000 elements on."""
    pytest.importorskip("coremltools")
    from coremltools.optimize import _utils
    from coremltools.optimize.coreml._quantization_passes import palettize_weights
    out = tmp_path / "out.mlpackage"
    convert(pome, CHECKPOINT, out, "--quantize", f"lut{bits}", *group)
    found = constants(out)
    for name, w in source().items():
        want = palettize_weights.grouped_channelwise_compress(w, "KMEANS", bits, 0, 16 if group else 0)
        assert found[name].lut.val.shape == want.lut.shape
        theirs = np.mean((_utils.lut_to_dense(want.indices, want.lut).astype(np.float64) - w) ** 2)
        ours = np.mean((decompressed(found[name]).astype(np.float64) - w) ** 2)
        assert ours <= 1.01 * theirs, (name, ours / theirs)


@pytest.mark.parametrize("options", [["lut3"], ["lut6", *GROUPED], ["lut4", "--target", "iOS16"], ["lut1"], ["uint4"],
                                     ["uint8", "--block-size", 16], ["uint8", "--block-size", 0, "--target", "iOS16"]],
                         ids=lambda o: "-".join(map(str, o)))
def test_coremltools_opens_it(pome, tmp_path, options):
    out = tmp_path / "out.mlpackage"
    convert(pome, CHECKPOINT, out, "--quantize", *options)
    check_decompression(out, tmp_path)


def test_few_values_are_exact(pome, checkpoint, tmp_path):
    """A palette with room for all different weights holds them."""
    tensors = read_safetensors(checkpoint / "model.safetensors")
    name = NAMES["layers_1_down_weight"]
    dtype, shape, _ = tensors[name]
    values = np.array([0.5, -0.25, 65504, 6e-8, -1.25, 0, -0.0], np.float16)
    w = values[np.random.default_rng(1).integers(0, len(values), shape)]
    tensors[name] = ("F16", shape, w.tobytes())
    write_safetensors(checkpoint / "model.safetensors", tensors)
    convert(pome, checkpoint, tmp_path / "out.mlpackage", "--quantize", "lut3", "--no-check")
    np.testing.assert_array_equal(decompressed(constants(tmp_path / "out.mlpackage")["layers_1_down_weight"]), w)


# ---- scales and offsets ----

@pytest.mark.parametrize("quantize", ["uint4", "uint8"])
@pytest.mark.parametrize("block", [32, 16, 0])
def test_linear_with_offsets(pome, tmp_path, quantize, block):
    """Codes, scales and offsets of coremltools' mode "linear"."""
    pytest.importorskip("coremltools")
    from coremltools.converters.mil.mil import types
    from coremltools.optimize import _utils
    out = tmp_path / "out.mlpackage"
    convert(pome, CHECKPOINT, out, "--quantize", quantize, "--block-size", block)
    found = constants(out)
    for name, w in source().items():
        size = w.shape[1] if block == 0 else block if w.shape[1] % block == 0 else 16
        codes, scale, offset = _utils.compute_qparams_by_dtype(w, types.string_to_builtin(quantize), "LINEAR", [1, size])
        np.testing.assert_array_equal(found[name].data.val, codes, err_msg=name)
        np.testing.assert_array_equal(found[name].scale.val, scale, err_msg=name)
        np.testing.assert_array_equal(found[name].offset.val, offset, err_msg=name)


FORMS = ["int4", "int8", "uint4", "uint8", "lut1", "lut2", "lut3", "lut4", "lut6", "lut8"]


@pytest.mark.parametrize("form", FORMS)
def test_strange_blocks(pome, checkpoint, tmp_path, form):
    """Blocks of zeros, with an infinity, a NaN, denormals, one value: finite, near, and named."""
    tensors = read_safetensors(checkpoint / "model.safetensors")
    name = NAMES["layers_3_gate_weight"]
    _, shape, _ = tensors[name]
    w = (np.random.default_rng(2).standard_normal(shape) * 0.02).astype(np.float32)
    w[0, :] = 0
    w[1, 0], w[2, 0], w[3, 0] = np.inf, np.nan, -1e6
    w[4, :] = np.arange(shape[1]) % 4 * 2.0 ** -24
    w[5, :] = 0.125
    tensors[name] = ("F32", shape, w.tobytes())
    write_safetensors(checkpoint / "model.safetensors", tensors)
    done = convert(pome, checkpoint, tmp_path / "out.mlpackage", "--quantize", form, "--no-check",
                   *(GROUPED[:3] + [1] if form in ("lut1", "lut2", "lut3") else []))
    assert f"{name}: 3 elements" in done.stderr
    got = decompressed(constants(tmp_path / "out.mlpackage")["layers_3_gate_weight"]).astype(np.float64)
    assert np.isfinite(got).all()
    if form.startswith("lut") and form not in ("lut1", "lut2", "lut3"):
        return  # one table for all
    assert not got[0].any()
    assert abs(got[1, 0]) > 60000 and got[3, 0] < -60000 and abs(got[2, 0]) < 0.1
    assert np.abs(got[5] - 0.125).max() < 1e-3
    assert np.abs(got[4] - w[4]).max() <= (0 if form != "lut1" else 2 ** -24)
    if form in TOPS:
        blocks = w[6:].reshape(-1, 32).astype(np.float16).astype(np.float64)
        off = np.abs(got[6:].reshape(-1, 32) - blocks).max(1)
        assert (off <= largest_difference(blocks, form)).all()


TOPS = {"int4": 7, "int8": 127, "uint4": 15, "uint8": 255}


def largest_difference(blocks, form):
    """Half a step, and what rounding the scale, the quotient and the product to halves, 2^-11 each, makes of it at the largest
    code. [n]"""
    low, high = np.minimum(blocks.min(1), 0), np.maximum(blocks.max(1), 0)
    top, span = TOPS[form], (high - low if form[0] == "u" else np.maximum(high, -low))
    return span / top * (0.5 + 3 * top / 2048)


def test_block_sizes_that_do_not_divide(pome, checkpoint, tmp_path):
    """Smaller blocks, then int8, then fp16; one warning each, near the source in any case."""
    change_config(checkpoint, intermediate_size=120)
    tensors = read_safetensors(checkpoint / "model.safetensors")
    cut = {}
    for name, (dtype, shape, data) in tensors.items():
        if ".mlp." in name:
            bits = np.frombuffer(data, np.uint16).reshape(shape)
            bits = bits[:, :120] if "down" in name else bits[:120]
            shape, data = bits.shape, bits.tobytes()
        cut[name] = (dtype, shape, data)
    write_safetensors(checkpoint / "model.safetensors", cut)
    w = halves(cut, NAMES["layers_1_down_weight"])
    for options, warning, kind in ((["int4"], "120 elements have no blocks of 32: int8", np.int8),
                                   (["uint4"], "120 elements have no blocks of 32: int8", np.int8),
                                   (["lut4", *GROUPED[:3], 48], "64 rows have no groups of 48: a table for all", None)):
        done = convert(pome, checkpoint, tmp_path / "out.mlpackage", "--quantize", *options, "--force")
        assert done.stderr.count("model.layers.1.mlp.down_proj.weight: ") == (1 if kind or options[0] == "lut4" else 0)
        assert warning in done.stderr
        op = constants(tmp_path / "out.mlpackage")["layers_1_down_weight"]
        if kind:
            assert op.data.val.dtype == kind and op.scale.val.shape == (64, 1)
            off = np.abs(decompressed(op).astype(np.float64) - w).max(1)
            assert (off <= largest_difference(w.astype(np.float64), "int8")).all()
    done = convert(pome, checkpoint, tmp_path / "out.mlpackage", "--quantize", "lut8", *GROUPED[:3], 1, "--force")
    assert "model.layers.1.mlp.down_proj.weight: a table per 1 rows" in done.stderr and "int8" in done.stderr


def test_rules_for_kinds(pome, tmp_path):
    out = tmp_path / "out.mlpackage"
    convert(pome, CHECKPOINT, out, "--quantize", "lut4", "--keep", "embedding=uint4", "--keep", "attention=lut2", "--keep", "head=fp16")
    found = constants(out)
    assert found["embed_weight"].op_type == "constexpr_blockwise_shift_scale" and "head_weight" not in found
    assert found["layers_0_q_proj_weight"].lut.val.shape == (1, 1, 4, 1)
    assert found["layers_1_down_weight"].lut.val.shape == (1, 1, 16, 1)
    check_decompression(out, tmp_path)


# ---- kept ----

def half(x):
    return x.astype(np.float16).astype(np.float64)


def neighbours(x, n):
    """The half nearest to x and n more on each side."""
    bits = np.float16(x).view(np.uint16).astype(np.int64)
    return (bits + np.arange(-n, n + 1)).astype(np.uint16).view(np.float16).astype(np.float64)


def least_difference(want, n_codes):
    """The least that the largest difference of a group can be with a scale and an offset that are halves, by trying: codes that
    are multiples of the source's, the scales around, for each the offsets around. Core ML's arithmetic."""
    levels = np.unique(want)
    step = np.diff(levels).min()
    codes, best = np.rint((want - levels[0]) / step), np.inf
    step = (levels[-1] - levels[0]) / codes.max()
    for k in range(1, int((n_codes - 1) // codes.max()) + 1):
        for scale in neighbours(step / k, 8):
            offset = neighbours(-levels[0] / scale, 4)[:, None]
            got = half(scale * half(codes * k - offset))
            best = min(best, np.abs(got - want).max(1).min())
    return best


def test_kept_values(pome, tmp_path):
    """Decompressed by coremltools, each element is gguf's within 0.01 of a step, or the rounding to fp16, or what no scale and
    offset can better: offsets of Q5_1, from 16 on, are 1/64 of a step apart."""
    out = tmp_path / "out.mlpackage"
    n_beyond = 0
    for kind, group in (("Q4_0", 32), ("Q4_1", 32), ("Q5_0", 32), ("Q5_1", 32), ("Q8_0", 32)):
        _, weights = write_gguf(tmp_path / "model.gguf", [kind])
        report = json.loads(convert(pome, tmp_path / "model.gguf", out, "--force").stdout)
        assert report["beyond_steps"] <= {"Q4_1": 0.01 + 1e-8, "Q5_1": 0.0125}.get(kind, 0)
        found = constants(out)
        for ours in ("embed_weight", "layers_0_q_proj_weight", "layers_1_down_weight", "layers_3_gate_weight"):
            want = weights[NAMES[ours]].astype(np.float64).reshape(-1, group)
            got = decompressed(found[ours]).astype(np.float64).reshape(want.shape)
            off = np.abs(got - want).max(1)
            rounding = np.abs(half(want) - want).max(1)
            gaps = np.diff(np.sort(want, axis=1), axis=1)
            step = np.where(gaps > 1e-6, gaps, np.inf).min(1)
            nearest = 0.01 if kind.endswith("_1") else 0
            beyond = off > np.maximum(nearest * step, rounding) + 1e-9
            assert not beyond.any() or kind == "Q5_1", (kind, ours)
            n_beyond += beyond.sum()
            for i in np.flatnonzero(beyond):
                assert off[i] <= least_difference(want[i], 256) + 1e-9, (kind, ours, i)
    assert n_beyond < 50  # or the test takes too long
    check_decompression(out, tmp_path)


# ---- 8-bit floats ----

def e4m3(w):
    """float32 to the nearest E4M3 code and back, by a table of all codes."""
    codes = np.arange(256, dtype=np.uint8)
    exponent, mantissa = (codes >> 3) & 15, codes & 7
    table = np.where(exponent == 0, mantissa * 2.0 ** -9, (1 + mantissa / 8) * 2.0 ** (exponent - 7.0))
    table = np.where(codes >= 128, -table, table)
    table[[0x7F, 0xFF]] = np.inf  # NaN
    order = np.argsort(table[np.isfinite(table)], kind="stable")
    finite = codes[np.isfinite(table)][order]
    at = np.searchsorted((table[finite][1:] + table[finite][:-1]) / 2, w)
    return finite[at], table[finite[at]]


@pytest.mark.parametrize("scheme", ["tensor", "row", "block", "inv"])
def test_scaled_fp8(pome, checkpoint, tmp_path, scheme):
    """Equal to a checkpoint of the products in float32."""
    rng = np.random.default_rng(5)
    tensors = read_safetensors(checkpoint / "model.safetensors")
    scaled, plain = {}, {}
    for name, (dtype, shape, data) in tensors.items():
        scaled[name] = plain[name] = (dtype, shape, data)
        if len(shape) != 2 or "embed" in name or "lm_head" in name:
            continue
        w = halves(tensors, name).astype(np.float32)
        block = {"tensor": shape, "row": (1, shape[1]), "block": (32, 48), "inv": (48, 32)}[scheme]
        n = [-(-shape[i] // block[i]) for i in range(2)]
        scales = rng.uniform(0.001, 0.01, n).astype(np.float32)
        full = np.repeat(np.repeat(scales, block[0], 0), block[1], 1)[:shape[0], :shape[1]]
        codes, values = e4m3(w / full)
        scaled[name] = ("F8_E4M3", shape, codes.tobytes())
        end = "_scale_inv" if scheme in ("block", "inv") else "_scale"
        scaled[name + end] = ("F32", [] if scheme == "tensor" else n, scales.tobytes())
        scaled[name.replace(".weight", ".input_scale")] = ("F32", [], np.float32(1).tobytes())
        plain[name] = ("F32", shape, (values.astype(np.float32) * full).astype(np.float32).tobytes())
    write_safetensors(checkpoint / "model.safetensors", plain)
    convert(pome, checkpoint, tmp_path / "plain.mlpackage", "--quantize", "none")
    write_safetensors(checkpoint / "model.safetensors", scaled)
    settings = {"block": {"quant_method": "fp8", "weight_block_size": [32, 48]}, "inv": {"quant_method": "fp8", "weight_block_size": [48, 32]},
                "tensor": {"quant_method": "fp8", "activation_scheme": "static"},
                "row": {"quant_method": "compressed-tensors", "format": "float-quantized",
                        "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "float", "strategy": "channel"}}}}}[scheme]
    change_config(checkpoint, quantization_config=settings)
    convert(pome, checkpoint, tmp_path / "scaled.mlpackage", "--quantize", "none")
    weights = "Data/com.apple.CoreML/weights/weight.bin"
    assert (tmp_path / "plain.mlpackage" / weights).read_bytes() == (tmp_path / "scaled.mlpackage" / weights).read_bytes()
    if scheme == "block":
        name = NAMES["layers_1_down_weight"]
        without = {k: v for k, v in scaled.items() if k != name + "_scale_inv"}
        write_safetensors(checkpoint / "model.safetensors", without)
        done = convert(pome, checkpoint, tmp_path / "bad.mlpackage", check=False)
        assert done.returncode == 1 and name in done.stderr and "scale" in done.stderr
        write_safetensors(checkpoint / "model.safetensors", scaled | {name + "_scale_inv": ("F32", [3, 3], bytes(36))})
        done = convert(pome, checkpoint, tmp_path / "bad.mlpackage", check=False)
        assert done.returncode == 1 and name + "_scale_inv" in done.stderr and "blocks of 32 x 48" in done.stderr


@pytest.mark.parametrize("settings,part", [({"quant_method": "gptq", "bits": 4}, "gptq"), ({"quant_method": "awq"}, "awq"),
                                           ({"quant_method": "compressed-tensors", "format": "pack-quantized"}, "pack-quantized"),
                                           ({"quant_method": "compressed-tensors", "format": "naive-quantized", "config_groups": {
                                               "group_0": {"weights": {"num_bits": 8, "type": "int"}}}}, "compressed-tensors"),
                                           ({"quant_method": "fp8", "weight_block_size": [128]}, "pair"),
                                           ({"quant_method": "fp8", "weight_block_size": [0, 128]}, "pair")])
def test_other_schemes_are_refused(pome, checkpoint, tmp_path, settings, part):
    change_config(checkpoint, quantization_config=settings)
    done = convert(pome, checkpoint, tmp_path / "out.mlpackage", check=False)
    assert done.returncode == 1 and part in done.stderr, done.stderr
