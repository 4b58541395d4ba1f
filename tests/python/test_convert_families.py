"""Conversion of every family: tiny random models against transformers (and OpenELM against plain PyTorch), in fp16 with a
cache, whole and step by step, and in fp32."""
import numpy as np
import pytest

import gguf_models
from family_models import FAMILIES, logits_of, make_model
from pome_api import Model, Session
from test_convert import convert, read_safetensors, write_safetensors


def random_ids(n, seed=3):
    return np.random.default_rng(seed).integers(0, 384, n).astype(np.int32)


def worst(got, want):
    """The largest difference, in standard deviations of what is wanted."""
    assert np.isfinite(got).all()
    return np.abs(got - want).max() / want.std()


@pytest.mark.parametrize("family", FAMILIES)
def test_family(pome, tmp_path, family):
    model = make_model(family, tmp_path / "model")
    ids = random_ids(100)
    want = logits_of(model, ids)
    out = tmp_path / "out.mlpackage"
    done = convert(pome, tmp_path / "model", out, "--quantize", "none", "--context", 128)
    assert done.stderr.count("warning") == 1 and "no tokenizer" in done.stderr, done.stderr
    with Model(out, "exact") as opened, Session(opened) as session:
        whole = session.feed_all(ids)
        session.clear()
        steps = np.array([session.append(ids[:37])] + [session.append(ids[i:i + 1]) for i in range(37, 60)])
    convert(pome, tmp_path / "model", out, "--precision", "fp32", "--context", 128, "--force")
    with Model(out, "exact") as opened, Session(opened) as session:
        exact = session.feed_all(ids)
    figures = worst(whole, want), worst(steps, want[36:60]), worst(exact, want)
    print(family, *(f"{f:.2g}" for f in figures))
    assert figures[0] <= 0.006 and figures[1] <= 0.006 and figures[2] <= 1e-4


# ---- other files of the same models ----

def assert_close(pome, source, folder, model, ids, *options):
    want = logits_of(model, ids)
    out = folder / "out.mlpackage"
    convert(pome, source, out, "--quantize", "none", "--context", 128, "--force", *options)
    with Model(out, "exact") as opened, Session(opened) as session:
        assert worst(session.feed_all(ids), want) <= 0.006


@pytest.mark.parametrize("family", ["smollm2", "llama-tied-biased", "llama-linear", "llama-yarn", "qwen2", "qwen3", "gemma2", "gemma3", "phi3",
                                    "phi3-partial-longrope", "openelm", "gpt2"])
def test_gguf_family(pome, tmp_path, family):
    kind, fields = FAMILIES[family]
    if kind.startswith("Gemma"):
        fields = fields | dict(query_pre_attn_scalar=fields["head_dim"])  # all that these files can say
    model = make_model((kind, fields))
    gguf_models.write_model(tmp_path / "model.gguf", kind, model)
    assert_close(pome, tmp_path / "model.gguf", tmp_path, model, random_ids(100))


def test_bare_names(pome, tmp_path):
    """Files of a model without its head leave the prefix out; old ones of GPT-2 hold its causal masks too."""
    for family, prefix in (("gpt2", "transformer."), ("smollm2", "model.")):
        model = make_model(family, tmp_path / family)
        file = tmp_path / family / "model.safetensors"
        tensors = {name.removeprefix(prefix): t for name, t in read_safetensors(file).items()}
        if family == "gpt2":
            tensors |= {f"h.{i}.attn.bias": ("F32", [1, 1, 2, 2], np.tril(np.ones((2, 2), np.float32)).tobytes()) for i in range(3)}
        write_safetensors(file, tensors)
        assert_close(pome, tmp_path / family, tmp_path, model, random_ids(60))


@pytest.mark.parametrize("family", ["openelm", "gpt2", "gemma3"])
def test_states_per_layer(pome, tmp_path, family):
    """Each state has the heads of its layer; stacked ones have room for the most."""
    model = make_model(family, tmp_path / "model")
    assert_close(pome, tmp_path / "model", tmp_path, model, random_ids(60), "--states", "per-layer")
    if family == "openelm":
        with Model(tmp_path / "out.mlpackage") as opened:
            main = opened.function(None)
            assert [main.states[i].shape[1] for i in range(main.n_states)] == [1, 1, 2, 2, 2, 2, 4, 4]


@pytest.mark.parametrize("quantize", ["int4", "int8"])
def test_matrices_by_columns_are_quantized(pome, tmp_path, quantize):
    """GPT-2 stores [in, out]: quantized it is the same model as one that stores [out, in]."""
    model = make_model("gpt2", tmp_path / "model")
    gguf_models.write_model(tmp_path / "model.gguf", "GPT2", model)
    weights = []
    for source in (tmp_path / "model", tmp_path / "model.gguf"):
        convert(pome, source, tmp_path / "out.mlpackage", "--quantize", quantize, "--context", 64, "--force")
        weights.append((tmp_path / "out.mlpackage/Data/com.apple.CoreML/weights/weight.bin").read_bytes())
    assert weights[0] == weights[1]
