"""Rotary positions: inverse frequencies of every kind of scaling against transformers' ROPE_INIT_FUNCTIONS, and logits of
tiny models at positions from 8,000 on."""
import json
import os
import pathlib
import subprocess

import numpy as np
import pytest

from family_models import logits_by_steps, logits_of, make_model, tiny
from pome_api import Model, Session
from test_convert import convert

FACTORS = dict(short_factor=[1 + 0.02 * i for i in range(32)], long_factor=[1 + 0.5 * i for i in range(32)])
PLAIN = {"Llama": {}, "Phi3": dict(pad_token_id=0)}
# what ROPE_INIT_FUNCTIONS are asked for: (kind of model, scaling, more fields of the configuration)
SCALINGS = {
    "default": ("Llama", dict(rope_type="default"), {}),
    "theta": ("Llama", dict(rope_type="default"), dict(rope_theta=1e6)),
    "linear": ("Llama", dict(rope_type="linear", factor=3.5), {}),
    "dynamic": ("Llama", dict(rope_type="dynamic", factor=3.0), {}),
    "dynamic-original": ("Llama", dict(rope_type="dynamic", factor=2.0), dict(original_max_position_embeddings=512)),
    "llama3": ("Llama", dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                             original_max_position_embeddings=1024), dict(rope_theta=500000.0)),
    "llama3-outer": ("Llama", dict(rope_type="llama3", factor=32.0, low_freq_factor=1.0, high_freq_factor=2.0,
                                   original_max_position_embeddings=1024), dict(original_max_position_embeddings=256)),
    "yarn": ("Llama", dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=512), {}),
    "yarn-default-original": ("Llama", dict(rope_type="yarn", factor=16.0), dict(rope_theta=1e6)),
    "yarn-no-factor": ("Llama", dict(rope_type="yarn", factor=None, original_max_position_embeddings=256), {}),
    "yarn-mscale": ("Llama", dict(rope_type="yarn", factor=40.0, mscale=0.8, mscale_all_dim=1.1, beta_fast=24.0, beta_slow=2.0,
                                  original_max_position_embeddings=512), {}),
    "yarn-half-mscale": ("Llama", dict(rope_type="yarn", factor=40.0, mscale=0.8, original_max_position_embeddings=512), {}),
    "yarn-untruncated": ("Llama", dict(rope_type="yarn", factor=4.0, truncate=False, attention_factor=1.3,
                                       original_max_position_embeddings=512), {}),
    "longrope": ("Llama", dict(rope_type="longrope", factor=4.0, original_max_position_embeddings=512, **FACTORS), {}),
    "longrope-attention": ("Llama", dict(rope_type="longrope", attention_factor=1.2, original_max_position_embeddings=512,
                                         **FACTORS), {}),
    "phi3-longrope": ("Phi3", dict(type="longrope", **FACTORS), dict(original_max_position_embeddings=512)),
    "phi3-default-original": ("Phi3", dict(type="longrope", original_max_position_embeddings=512, **FACTORS), dict(max_position_embeddings=16384)),
    "phi3-partial": ("Phi3", dict(type="yarn", short_factor=FACTORS["short_factor"][:24], long_factor=FACTORS["long_factor"][:24]),
                     dict(original_max_position_embeddings=1024, partial_rotary_factor=0.75)),
}


class Probe:
    def __init__(self):
        build = pathlib.Path(os.environ["POME_LIBRARY"]).parent
        program = next((p for p in (build / "tests" / "rope_probe", build / "rope_probe") if p.exists()), None)
        if program is None:
            pytest.skip("rope_probe is not built")
        self.process = subprocess.Popen([str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, config, positions, local=False):
        self.process.stdin.write(json.dumps({"config": str(config), "positions": positions, "local": local}) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


@pytest.fixture(scope="module")
def probe():
    p = Probe()
    yield p
    p.process.stdin.close()
    p.process.wait()


def configuration(name, folder):
    """The configuration as transformers reads it; its file is as a person writes one, not as transformers saves it."""
    transformers = pytest.importorskip("transformers")
    kind, scaling, more = SCALINGS[name]
    fields = dict(hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                  vocab_size=384, max_position_embeddings=2048, rms_norm_eps=1e-5) | PLAIN[kind] | more
    text = fields | dict(model_type=kind.lower(), rope_scaling=scaling)
    (folder / "config.json").write_text(json.dumps(text))
    return getattr(transformers, kind + "Config")(**json.loads(json.dumps(fields | dict(rope_scaling=scaling))))


def reference(config, position):
    """(inverse frequencies, factor) that transformers uses for a token at a position that is generated step by step."""
    import torch
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
    kind = config.rope_parameters["rope_type"]
    if kind == "default":
        from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
        inv, factor = LlamaRotaryEmbedding.compute_default_rope_parameters(config)
    else:
        inv, factor = ROPE_INIT_FUNCTIONS[kind](config, torch.device("cpu"), seq_len=position + 1)
    return inv.double().numpy(), factor


@pytest.mark.parametrize("name", SCALINGS)
def test_frequencies(probe, tmp_path, name):
    config = configuration(name, tmp_path)
    positions = [0, 1, 511, 512, 1023, 1024, 2047, 2048, 4095, 4096, 8191]
    got = probe.ask(tmp_path / "config.json", positions)
    assert "error" not in got, got
    for position, row in zip(positions, got["rows"]):
        want, factor = reference(config, position)
        assert got["factor"] == pytest.approx(factor, rel=1e-6)
        np.testing.assert_allclose(row, want, rtol=1e-6, err_msg=f"position {position}")


def test_local_frequencies(probe, tmp_path):
    """Gemma 3: layers with a window turn by a base of their own, without scaling, in the old fields and in the new ones."""
    base = dict(model_type="gemma3_text", hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
                num_key_value_heads=1, head_dim=32, vocab_size=384, max_position_embeddings=256)
    want = 20000.0 ** -(np.arange(16) / 16), 3e5 ** -(np.arange(16) / 16) / 8
    for fields in (dict(rope_theta=3e5, rope_local_base_freq=20000.0, rope_scaling=dict(rope_type="linear", factor=8.0)),
                   dict(rope_parameters=dict(sliding_attention=dict(rope_type="default", rope_theta=20000.0),
                                             full_attention=dict(rope_type="linear", factor=8.0, rope_theta=3e5)))):
        (tmp_path / "config.json").write_text(json.dumps(base | fields))
        np.testing.assert_allclose(probe.ask(tmp_path / "config.json", [7], local=True)["rows"][0], want[0], rtol=1e-12)
        np.testing.assert_allclose(probe.ask(tmp_path / "config.json", [7])["rows"][0], want[1], rtol=1e-12)


# ---- logits at positions beyond 8,000 ----

def small(**more):
    return tiny(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, **more)


SHORT, LONG = [1.0, 1.1, 1.2, 1.3, 1.5, 1.7, 2.0, 2.5], [1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 6.0, 8.0]
FAR = {
    "default": ("Llama", small(max_position_embeddings=8192)),
    "llama3": ("Llama", small(max_position_embeddings=8192, rope_scaling=dict(
        rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=1024))),
    "linear": ("Llama", small(max_position_embeddings=8192, rope_scaling=dict(rope_type="linear", factor=4.0))),
    "yarn": ("Llama", small(max_position_embeddings=8192, rope_scaling=dict(
        rope_type="yarn", factor=8.0, original_max_position_embeddings=1024))),
    # prefill up to the original length, then step by step
    "dynamic": ("Llama", small(max_position_embeddings=8000, rope_scaling=dict(rope_type="dynamic", factor=4.0))),
    "longrope": ("Llama", small(max_position_embeddings=32000, rope_scaling=dict(
        rope_type="longrope", original_max_position_embeddings=8000, short_factor=SHORT, long_factor=LONG))),
}


@pytest.mark.parametrize("name", FAR)
def test_far_positions(pome, tmp_path, name):
    n, n_steps = 8000, 64
    model = make_model(FAR[name], tmp_path / "model")
    ids = np.random.default_rng(6).integers(0, 384, n + n_steps).astype(np.int32)
    by_steps = name in ("dynamic", "longrope")
    model.set_attn_implementation("sdpa")
    want = logits_by_steps(model, ids, n) if by_steps else logits_of(model, ids)[n - 1:]
    out = tmp_path / "out.mlpackage"
    convert(pome, tmp_path / "model", out, "--quantize", "none", "--context", 8192)
    with Model(out, "exact") as opened, Session(opened) as session:
        got = np.array([session.append(ids[:n])] + [session.append(ids[i:i + 1]) for i in range(n, n + n_steps)])
    assert np.abs(got - want).max() <= 0.006 * want.std()
