"""Conversion to other kinds of packages: iOS 16, fp32, states per layer. Oracle: transformers on tiny random models; every
kind is opened, loaded into a program and saved again by coremltools, and gives the same logits afterwards."""
import json
import subprocess

import numpy as np
import pytest

from family_models import make_model
from pome_api import Model, Session
from test_convert import CHECKPOINT, checkpoint, convert  # noqa: F401 (a fixture)

FAMILIES = ["llama-tied-biased", "llama3", "mistral-window", "qwen3", "gemma2", "gemma3", "phi3"]


def oracle(family, folder, n=100):
    torch = pytest.importorskip("torch")
    model = make_model(family, folder)
    ids = np.random.default_rng(3).integers(0, 384, n).astype(np.int32)
    with torch.no_grad():
        return ids, model(torch.from_numpy(ids.astype(np.int64))[None]).logits[0].double().numpy()


def assert_close(got, want, tolerance):
    assert np.isfinite(got).all()
    assert np.sqrt(np.mean((got - want) ** 2)) <= tolerance * want.std()
    assert np.abs(got - want).max() <= 4 * tolerance * want.std()


def all_rows(path, ids, numerics="exact"):
    with Model(path, numerics) as opened, Session(opened) as session:
        return session.feed_all(ids)


def opsets(path):
    text = subprocess.run(["strings", str(path / "Data/com.apple.CoreML/model.mlmodel")], text=True, capture_output=True).stdout
    return {line for line in text.splitlines() if line.startswith("CoreML")}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("options,tolerance", [(["--target", "iOS16", "--quantize", "none"], 0.003), (["--precision", "fp32"], 1e-4),
                                               (["--target", "iOS16", "--precision", "fp32"], 1e-4)],
                         ids=["ios16", "fp32", "ios16-fp32"])
def test_without_cache(pome, tmp_path, family, options, tolerance):
    ids, want = oracle(family, tmp_path / "model")
    out = tmp_path / "out.mlpackage"
    convert(pome, tmp_path / "model", out, *options, "--context", 128)
    assert_close(all_rows(out, ids), want, tolerance)


# ---- coremltools ----

def through_coremltools(path, folder, decompress=False):
    """The package loaded into a MIL program by coremltools and saved from it; gives the new path and the program."""
    ct = pytest.importorskip("coremltools")
    from coremltools.converters.mil.mil.passes.pass_registry import PASS_REGISTRY
    from coremltools.models import utils
    model = ct.models.MLModel(str(path), skip_model_load=True)
    model.save(str(folder / "resaved.mlpackage"))
    program = utils._convert_model_spec_to_pymil_prog(model, model.get_spec().specificationVersion,
                                                      utils._milproto_to_pymil.load)
    nothing = PASS_REGISTRY["common::dead_code_elimination"]
    again = ct.optimize.coreml.decompress_weights(model) if decompress else utils._apply_graph_pass(model, nothing)
    assert again.get_spec().specificationVersion == model.get_spec().specificationVersion
    again.save(str(folder / "again.mlpackage"))
    return [folder / "resaved.mlpackage", folder / "again.mlpackage"], program


KINDS = {
    "ios16": ["--target", "iOS16"],
    "ios16-none": ["--target", "iOS16", "--quantize", "none"],
    "fp32": ["--precision", "fp32"],
    "per-layer": ["--states", "per-layer"],
    "per-layer-snake": ["--states", "per-layer", "--names", "snake"],
    "stacked": [],
}


@pytest.mark.parametrize("kind", KINDS)
def test_coremltools_opens_it(pome, checkpoint, tmp_path, kind):
    ct = pytest.importorskip("coremltools")
    out = tmp_path / "out.mlpackage"
    convert(pome, checkpoint, out, *KINDS[kind])
    ids = np.load(CHECKPOINT / "expected.npz")["prompt"].astype(np.int32)
    want = all_rows(out, ids)
    saved, program = through_coremltools(out, tmp_path, decompress="ios16" == kind)
    for path in saved:
        np.testing.assert_array_equal(all_rows(path, ids), want)
    spec = ct.models.MLModel(str(out), skip_model_load=True).get_spec()
    main = program.functions["main"]
    if "ios16" in kind:
        assert spec.specificationVersion == 7 and main.opset_version == ct.target.iOS16
        assert not {op.op_type for op in main.operations} & {"scaled_dot_product_attention", "read_state"}
    else:
        assert spec.specificationVersion == 9 and main.opset_version == ct.target.iOS18
    names = [f.name for f in spec.description.state]
    stems = ("key_cache", "value_cache") if "snake" in kind else ("keyCache", "valueCache")
    assert names == ([f"{stem}_{i}" for i in range(4) for stem in stems] if "per-layer" in kind
                     else list(stems) if kind == "stacked" else [])
    length = spec.description.input[0].type.multiArrayType.shapeRange.sizeRanges[1]
    assert (length.lowerBound, length.upperBound) == (1, 128)
