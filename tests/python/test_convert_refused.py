"""What conversion refuses by name: configurations that say something unknown, and tensors that contradict them."""
import json

import numpy as np
import pytest

from family_models import gpt2, make_model, openelm, tiny
from test_convert import convert, read_safetensors, refused, write_safetensors

LONGROPE = dict(rope_type="longrope", short_factor=[1.0] * 8, long_factor=[1.0] * 8)
SLIDING, FULL = "sliding_attention", "full_attention"
BASES = {"openelm": openelm(), "gpt2": gpt2()}
# (model_type, fields of config.json, words of the message)
CONFIGURATIONS = [
    # architectures
    ("granite", dict(logits_scaling=8.0), ["architecture", "granite", "openelm, gpt2"]),
    (None, {}, ["model_type is missing"]),
    # rotary scaling
    ("llama", dict(rope_scaling=dict(rope_type="spiral", factor=2.0)), ["rope type", "spiral", "longrope"]),
    ("llama", dict(rope_scaling=dict(rope_type="default", mrope_section=[2, 3, 3])), ["mrope_section"]),
    ("llama", dict(rope_scaling=dict(rope_type="linear", factor=0.5)), ["factor is 0.5"]),
    ("llama", dict(rope_scaling=dict(rope_type="linear", factor="2")), ["factor is a text"]),
    ("llama", dict(rope_scaling=dict(rope_type="linear")), ["factor is 0"]),
    ("llama", dict(rope_scaling=dict(rope_type="llama3", factor=8.0, low_freq_factor=4.0, high_freq_factor=1.0)),
     ["low_freq_factor is 4", "high_freq_factor 1"]),
    ("llama", dict(rope_scaling=dict(rope_type="yarn", factor=4.0, beta_slow=-1.0)), ["beta_slow"]),
    ("llama", dict(rope_scaling=LONGROPE | dict(long_factor=[1.0] * 7)), ["long_factor", "8 positive numbers"]),
    ("llama", dict(rope_scaling=LONGROPE | dict(short_factor=[1.0] * 7 + [0])), ["short_factor", "8 positive numbers"]),
    ("llama", dict(rope_scaling=7), ["rope_scaling is no object"]),
    ("llama", dict(rope_parameters={FULL: dict(rope_type="default"), SLIDING: dict(rope_type="default")}),
     ["each kind of layer", "llama"]),
    ("llama", dict(partial_rotary_factor=0.5), ["partial_rotary_factor", "llama"]),
    ("llama", dict(rope_parameters=dict(rope_type="default", partial_rotary_factor=0.5)), ["partial_rotary_factor", "llama"]),
    ("phi3", dict(partial_rotary_factor=1.5), ["partial_rotary_factor is 1.5"]),
    ("phi3", dict(partial_rotary_factor=0.2), ["3 rotated elements"]),
    ("gemma3_text", dict(rope_parameters={SLIDING: dict(rope_type="spiral"), FULL: dict(rope_type="default")}), ["spiral"]),
    *(("llama", dict(rope_theta=theta), [f"rope_theta, the base of rotated elements, is {text}, wanted 10 to 1e+12"])
      for theta, text in ((1e308, "1e+308"), (2e12, "2e+12"), (9.5, "9.5"), (1e-30, "1e-30"), (0, "0"), (-10000, "-10000"))),
    *(("llama", dict(rope_theta=theta), ["not JSON", text]) for theta, text in ((float("inf"), "Infinity"), (float("nan"), "NaN"))),
    ("llama", dict(rope_theta="10000"), ["rope_theta is a text", "a number"]),
    ("llama", dict(rope_parameters=dict(rope_type="default", rope_theta=1e13)), ["rope_theta", "1e+13", "10 to 1e+12"]),
    ("openelm", dict(rope_freq_constant=1e308), ["rope_freq_constant", "1e+308", "10 to 1e+12"]),
    ("gemma3_text", dict(rope_local_base_freq=0.5), ["rope_local_base_freq", "locally rotated", "0.5", "10 to 1e+12"]),
    # activations
    ("llama", dict(hidden_act="relu6"), ["activation", "relu6"]),
    ("gemma2", dict(hidden_activation="quick_gelu"), ["activation", "quick_gelu"]),
    ("gpt2", dict(activation_function="tanh"), ["activation", "tanh"]),
    ("openelm", dict(activation_fn_name="mish"), ["activation", "mish"]),
    # kinds of layers, windows
    ("qwen3", dict(layer_types=[FULL, "linear_attention", FULL]), ["layer type", "linear_attention"]),
    ("qwen3", dict(layer_types=[FULL, SLIDING]), ["layer_types has 2 entries for 3 layers"]),
    ("qwen2", dict(layer_types=[FULL, SLIDING, SLIDING]), [SLIDING, "no sliding_window"]),
    ("qwen2", dict(use_sliding_window=1), ["use_sliding_window is a whole number"]),
    ("llama", dict(layer_types=[FULL, SLIDING, SLIDING]), [SLIDING]),
    ("llama", dict(sliding_window=64), ["sliding_window", "llama"]),
    ("mistral", dict(sliding_window=64, layer_types=[FULL, SLIDING, FULL]), [FULL, "mistral"]),
    ("mistral", dict(sliding_window=64, use_sliding_window=False), ["use_sliding_window", "mistral"]),
    ("gemma2", dict(sliding_window_pattern=0), ["sliding_window_pattern"]),
    # flags of attention, scales
    ("mistral", dict(attention_bias=True), ["attention_bias", "mistral"]),
    ("phi3", dict(attention_bias=True), ["attention_bias", "phi3"]),
    ("qwen2", dict(mlp_bias=True), ["mlp_bias", "qwen2"]),
    ("llama", dict(attention_bias="yes"), ["attention_bias is a text"]),
    ("llama", dict(logits_scaling=8.0), ["logits_scaling", "llama"]),
    ("llama", dict(logit_scale=0.25), ["logit_scale"]),
    ("llama", dict(residual_multiplier=0.22), ["residual_multiplier"]),
    ("llama", dict(attention_multiplier=0.015), ["attention_multiplier"]),
    ("llama", dict(embedding_multiplier=12), ["embedding_multiplier"]),
    ("llama", dict(qk_clip=100), ["qk_clip"]),
    ("llama", dict(clip_qkv=8.0), ["clip_qkv"]),
    ("llama", dict(use_qk_norm=True), ["use_qk_norm"]),
    ("llama", dict(attn_logit_softcapping=50.0), ["attn_logit_softcapping"]),
    ("qwen3", dict(final_logit_softcapping=30.0), ["final_logit_softcapping"]),
    ("llama", dict(query_pre_attn_scalar=64), ["query_pre_attn_scalar"]),
    ("gemma2", dict(query_pre_attn_scalar=0), ["query_pre_attn_scalar is 0"]),
    ("gemma3_text", dict(use_bidirectional_attention=True), ["use_bidirectional_attention"]),
    ("llama", dict(num_local_experts=8), ["num_local_experts"]),
    ("llama", dict(no_rope_layers=[1, 1, 0]), ["no_rope_layers"]),
    ("llama", dict(kv_lora_rank=512), ["kv_lora_rank"]),
    ("gpt2", dict(scale_attn_by_inverse_layer_idx=True), ["scale_attn_by_inverse_layer_idx"]),
    ("gpt2", dict(add_cross_attention=True), ["add_cross_attention"]),
    ("openelm", dict(ffn_with_glu=False), ["ffn_with_glu"]),
    ("openelm", dict(normalization_layer_name="layer_norm"), ["normalization_layer_name", "layer_norm"]),
    # sizes
    ("llama", dict(hidden_size="large"), ["hidden_size is a text"]),
    ("llama", dict(num_hidden_layers=None), ["num_hidden_layers is missing"]),
    ("llama", dict(num_key_value_heads=3), ["4 heads", "3"]),
    ("llama", dict(head_dim=15), ["15 rotated elements"]),
    ("llama", dict(num_attention_heads=5, num_key_value_heads=5), ["64", "5 heads"]),
    ("llama", dict(rms_norm_eps=0), ["epsilon"]),
    ("gpt2", dict(n_positions=None), ["number of positions"]),
    ("openelm", dict(num_query_heads=[2, 4, 4]), ["num_query_heads", "4 positive numbers"]),
    ("openelm", dict(num_query_heads=[2, 4, 3, 8]), ["3 heads", "2 key/value heads"]),
    ("openelm", dict(ffn_multipliers=[0.5, 4.0]), ["ffn_multipliers", "4 positive numbers"]),
    ("openelm", dict(ffn_multipliers=None), ["ffn_multipliers"]),
]


@pytest.mark.parametrize("kind,fields,parts", CONFIGURATIONS, ids=lambda v: None if isinstance(v, list) else
                         str(v) if not isinstance(v, dict) else "-".join(v))
def test_configuration(pome, tmp_path, kind, fields, parts):
    folder = tmp_path / "model"
    folder.mkdir()
    config = BASES.get(kind, tiny()) | dict(model_type=kind) | fields
    (folder / "config.json").write_text(json.dumps(config))
    write_safetensors(folder / "model.safetensors", {"x": ("F32", [1], bytes(4))})
    refused(pome, folder, tmp_path, "config.json", *parts)


def test_unknown_fields_are_warned_about(pome, tmp_path):
    make_model("llama", tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps(config | dict(novelty=3, other=False, third=[], image_token_id=7, logits_scaling=1.0, qk_clip=None)))
    warnings = convert(pome, tmp_path / "model", tmp_path / "out.mlpackage", "--dry-run").stderr
    assert "novelty" in warnings
    assert not any(name in warnings for name in ("other", "third", "image_token_id", "logits_scaling", "qk_clip"))


CODES, PALETTES = "--quantize int8, int4, uint8 and uint4", "--quantize lut1, lut2, lut3, lut4, lut6 and lut8"


@pytest.mark.parametrize("options,parts", [
    (["--palette", "kmeans", "--quantize", "int4"], ["--palette ", "int4", PALETTES]),
    (["--palette", "uniform"], ["--palette ", PALETTES]),
    (["--granularity", "per-tensor", "--quantize", "uint8"], ["--granularity ", "uint8", PALETTES]),
    (["--granularity", "per-grouped-channel", "--group-size", 16, "--quantize", "none"], ["--granularity ", "fp16", PALETTES]),
    (["--palette", "kmeans", "--keep", "head=int8"], ["--palette ", PALETTES]),
    (["--block-size", 32, "--quantize", "lut4"], ["--block-size ", "lut4", CODES]),
    (["--block-size", 0, "--quantize", "none"], ["--block-size ", "fp16", CODES]),
    (["--block-size", 32, "--precision", "fp32"], ["--block-size ", "fp32", CODES]),
    (["--block-size", 32, "--quantize", "lut4", "--keep", "head=fp16"], ["--block-size ", CODES]),
], ids=lambda v: "-".join(map(str, v)) if str(v[0]).startswith("--") and len(v) > 1 else None)
@pytest.mark.parametrize("dry", [[], ["--dry-run"]], ids=["written", "dry"])
def test_options_of_other_weights(pome, models, tmp_path, options, parts, dry):
    done = convert(pome, models("llama"), tmp_path / "out.mlpackage", *options, *dry, check=False)
    assert done.returncode == 1 and done.stdout == "", done
    for part in ["does not apply", *parts]:
        assert part in done.stderr, done.stderr
    assert not list(tmp_path.iterdir())


def test_group_size_without_groups(pome, models, tmp_path):
    for options in (["--quantize", "lut4"], ["--quantize", "lut4", "--granularity", "per-tensor"], ["--quantize", "int4"]):
        done = convert(pome, models("llama"), tmp_path / "out.mlpackage", "--group-size", 32, *options, check=False)
        assert done.returncode == 2 and "--granularity per-grouped-channel" in done.stderr and "lut4" in done.stderr, done


def test_options_of_some_weights(pome, models, tmp_path):
    """What applies to the weights that --keep names is no mistake."""
    for options in (["--palette", "uniform", "--quantize", "int4", "--keep", "head=lut4"],
                    ["--granularity", "per-tensor", "--block-size", 16, "--quantize", "lut8", "--keep", "mlp=uint4"],
                    ["--granularity", "per-grouped-channel", "--group-size", 8, "--palette", "kmeans", "--quantize", "lut2"]):
        convert(pome, models("llama"), tmp_path / "out.mlpackage", "--dry-run", *options)


# ---- tensors ----

@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Saved models by family, made once."""
    made = {}

    def get(family):
        if family not in made:
            made[family] = tmp_path_factory.mktemp("models") / family
            make_model(family, made[family])
        return made[family]
    return get


def cut(tensors, name, axis=0, by=16):
    dtype, shape, data = tensors[name]
    array = np.frombuffer(data, np.float32).reshape(shape)
    array = np.ascontiguousarray(array[: shape[0] - by] if axis == 0 else array[:, : shape[1] - by])
    return {name: (dtype, list(array.shape), array.tobytes())}


def zeros(name, *shape):
    return {name: ("F32", list(shape), bytes(4 * int(np.prod(shape))))}


LAYER = "model.layers.1."
TENSORS = [
    ("llama", lambda t: cut(t, LAYER + "self_attn.q_proj.weight"), [LAYER + "self_attn.q_proj.weight", "[48, 64]", "[64, 64]"]),
    ("llama", lambda t: cut(t, LAYER + "self_attn.k_proj.weight"), ["k_proj", "[16, 64]", "[32, 64]"]),
    ("llama", lambda t: cut(t, LAYER + "self_attn.o_proj.weight", 1), ["o_proj", "[64, 48]", "[64, 64]"]),
    ("llama", lambda t: cut(t, LAYER + "mlp.down_proj.weight", 1), ["down_proj", "[64, 144]", "[64, 160]"]),
    ("llama", lambda t: cut(t, LAYER + "input_layernorm.weight"), ["input_layernorm", "48", "64"]),
    ("llama", lambda t: cut(t, "model.norm.weight"), ["model.norm.weight", "48", "64"]),
    ("llama", lambda t: cut(t, "model.embed_tokens.weight"), ["embed_tokens", "368", "384"]),
    ("llama", lambda t: cut(t, "lm_head.weight"), ["lm_head", "368", "384"]),
    ("llama", lambda t: zeros(LAYER + "self_attn.q_proj.bias", 64), ["q_proj.bias", "does not"]),
    ("llama", lambda t: zeros("lm_head.bias", 384), ["lm_head.bias", "does not"]),
    ("llama", lambda t: zeros(LAYER + "self_attn.q_norm.weight", 16), ["q_norm", "does not"]),
    ("llama-tied-biased", lambda t: {LAYER + "self_attn.o_proj.bias": None}, ["missing", LAYER + "self_attn.o_proj.bias"]),
    ("llama-tied-biased", lambda t: cut(t, LAYER + "mlp.up_proj.bias"), ["up_proj.bias", "144", "160"]),
    ("qwen2", lambda t: {LAYER + "self_attn.k_proj.bias": None}, ["missing", LAYER + "self_attn.k_proj.bias"]),
    ("qwen2", lambda t: zeros(LAYER + "self_attn.o_proj.bias", 64), ["o_proj.bias", "does not"]),
    ("qwen3", lambda t: cut(t, LAYER + "self_attn.k_norm.weight"), ["k_norm", "16", "32"]),
    ("qwen3", lambda t: {LAYER + "self_attn.q_norm.weight": None}, ["missing", "q_norm"]),
    ("gemma2", lambda t: {LAYER + "post_feedforward_layernorm.weight": None}, ["missing", "post_feedforward_layernorm"]),
    ("phi3", lambda t: cut(t, LAYER + "self_attn.qkv_proj.weight"), ["qkv_proj", "112", "128"]),
    ("phi3", lambda t: cut(t, LAYER + "mlp.gate_up_proj.weight"), ["gate_up_proj", "304", "320"]),
    ("openelm", lambda t: cut(t, "transformer.layers.3.attn.qkv_proj.weight"), ["layers.3.attn.qkv_proj", "240", "256"]),
    ("openelm", lambda t: cut(t, "transformer.layers.2.ffn.proj_2.weight", 1), ["layers.2.ffn.proj_2", "[64, 112]", "[64, 128]"]),
    ("openelm-plain", lambda t: zeros("transformer.layers.0.attn.q_norm.weight", 16), ["q_norm", "does not"]),
    ("gpt2", lambda t: cut(t, "transformer.h.1.attn.c_attn.weight", 1), ["c_attn.weight", "176", "192"]),
    ("gpt2", lambda t: cut(t, "transformer.h.1.attn.c_attn.bias"), ["c_attn.bias", "176", "192"]),
    ("gpt2", lambda t: cut(t, "transformer.h.1.mlp.c_proj.weight"), ["mlp.c_proj", "[64, 240]", "[64, 256]"]),
    ("gpt2", lambda t: cut(t, "transformer.wpe.weight"), ["wpe", "240", "256"]),
    ("gpt2", lambda t: {"transformer.h.2.ln_1.bias": None}, ["missing", "transformer.h.2.ln_1.bias"]),
    ("gpt2", lambda t: zeros("transformer.h.0.crossattention.q_attn.weight", 64, 64), ["crossattention", "does not"]),
]


@pytest.mark.parametrize("family,change,parts", TENSORS, ids=[f"{t[0]}-{t[2][0].split('.')[-2 if '.' in t[2][0] else 0]}-{i}"
                                                              for i, t in enumerate(TENSORS)])
def test_tensors(pome, models, tmp_path, family, change, parts):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_bytes((models(family) / "config.json").read_bytes())
    tensors = read_safetensors(models(family) / "model.safetensors")
    tensors = {name: t for name, t in (tensors | change(tensors)).items() if t}
    write_safetensors(folder / "model.safetensors", tensors)
    refused(pome, folder, tmp_path, *parts)


def test_tied_heads(pome, models, tmp_path):
    """Whether the embedding is the head is what the configuration says, whatever the family's default."""
    for family, ties in (("llama", False), ("smollm2", True), ("gemma2", True), ("gpt2", True), ("gpt2-variant", False),
                         ("openelm", True), ("openelm-plain", False)):
        report = json.loads(convert(pome, models(family), tmp_path / "out.mlpackage", "--dry-run").stdout)
        assert report["tied_head"] == ties, family


# ---- GGUF ----

@pytest.mark.parametrize("key,kind,value,parts", [
    ("general.architecture", "string", "mamba2", ["mamba2", "llama"]),
    ("llama.expert_count", "uint32", 8, ["expert_count"]),
    ("llama.logit_scale", "float32", 0.5, ["logit_scale"]),
    ("llama.attention.clamp_kqv", "float32", 8.0, ["clamp_kqv"]),
    *(("llama.rope.freq_base", "float32", base, ["base of rotated elements", f"is {text}, wanted 10 to 1e+12"])
      for base, text in ((float("inf"), "inf"), (float("nan"), "nan"), (float("-inf"), "-inf"), (0.0, "0"), (1e38, "1e+38"))),
    ("llama.rope.scaling.type", "string", "spiral", ["spiral"]),
    ("llama.attention.value_length", "uint32", 32, ["keys of 16", "values of 32"]),
    ("llama.attention.head_count", "array", [4, 4, 4], ["head_count", "2 numbers"]),
    ("llama.attention.head_count", "array", [4, 3], ["3 heads"]),
])
def test_gguf(pome, tmp_path, key, kind, value, parts):
    gguf = pytest.importorskip("gguf")
    fields = {"general.architecture": ("string", "llama"), "llama.block_count": ("uint32", 2),
              "llama.embedding_length": ("uint32", 64), "llama.feed_forward_length": ("uint32", 96),
              "llama.attention.head_count": ("uint32", 4), "llama.attention.head_count_kv": ("uint32", 2),
              "llama.attention.key_length": ("uint32", 16), "llama.attention.layer_norm_rms_epsilon": ("float32", 1e-5)}
    fields[key] = (kind, value)
    writer = gguf.GGUFWriter(None, "llama")
    del writer.kv_data[0]["general.architecture"]
    for name, (type_name, v) in fields.items():
        getattr(writer, "add_" + type_name)(name, v)
    writer.add_tensor("token_embd.weight", np.zeros((384, 64), np.float32))
    writer.write_header_to_file(tmp_path / "model.gguf")
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    refused(pome, tmp_path / "model.gguf", tmp_path, *parts)
