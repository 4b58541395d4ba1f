"""Models as GGUF files, written with the gguf package by the names and conventions of llama.cpp's converter."""
import numpy as np
import pytest

ARCHITECTURES = {"Llama": "LLAMA", "Qwen2": "QWEN2", "Qwen3": "QWEN3", "Gemma2": "GEMMA2", "Gemma3Text": "GEMMA3", "Phi3": "PHI3",
                 "OpenELM": "OPENELM", "GPT2": "GPT2"}


def interleave(weight, n_heads):
    """Rows in the order of GGUF's Llama files."""
    return weight.reshape(n_heads, 2, -1, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


def add_sizes(w, kind, config):
    get = config.get if kind == "OpenELM" else lambda name, default=None: getattr(config, name, default)
    if kind == "OpenELM":
        from openelm_model import width_of
        w.add_embedding_length(config["model_dim"])
        w.add_feed_forward_length([width_of(m, config) for m in config["ffn_multipliers"]])
        w.add_head_count(config["num_query_heads"])
        w.add_head_count_kv(config["num_kv_heads"])
        w.add_context_length(config["max_context_length"])
        w.add_rope_freq_base(config["rope_freq_constant"])
        w.add_layer_norm_rms_eps(1e-6)
    elif kind == "GPT2":
        w.add_embedding_length(config.n_embd)
        w.add_feed_forward_length(config.n_inner or 4 * config.n_embd)
        w.add_head_count(config.n_head)
        w.add_context_length(config.n_positions)
        w.add_layer_norm_eps(config.layer_norm_epsilon)
        return
    else:
        w.add_embedding_length(config.hidden_size)
        w.add_feed_forward_length(config.intermediate_size)
        w.add_head_count(config.num_attention_heads)
        w.add_head_count_kv(config.num_key_value_heads)
        w.add_context_length(config.max_position_embeddings)
        w.add_layer_norm_rms_eps(config.rms_norm_eps)
    head_dim = get("head_dim") or config.hidden_size // config.num_attention_heads
    w.add_key_length(head_dim)
    w.add_value_length(head_dim)
    if kind == "OpenELM":
        w.add_rope_dimension_count(head_dim)
        return
    rope = config.rope_parameters
    rope = rope.get("full_attention", rope)
    w.add_rope_freq_base(rope["rope_theta"])
    w.add_rope_dimension_count(int(head_dim * rope.get("partial_rotary_factor", 1)))
    if get("sliding_window"):
        w.add_sliding_window(config.sliding_window)
    if get("attn_logit_softcapping"):
        w.add_attn_logit_softcapping(config.attn_logit_softcapping)
    if get("final_logit_softcapping"):
        w.add_final_logit_softcapping(config.final_logit_softcapping)
    add_scaling(w, rope, config)


def add_scaling(w, rope, config):
    import gguf
    kind = rope["rope_type"]
    if kind == "longrope":
        original = rope["original_max_position_embeddings"]
        factor = config.max_position_embeddings / original
        w.add_rope_scaling_orig_ctx_len(original)
        w.add_rope_scaling_attn_factors(float(np.sqrt(1 + np.log(factor) / np.log(original))))
        for name in ("long", "short"):
            w.add_tensor(f"rope_factors_{name}.weight", np.array(rope[name + "_factor"], np.float32))
    elif kind == "yarn":
        w.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        w.add_rope_scaling_factor(rope["factor"])
        w.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    elif kind == "linear":
        w.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        w.add_rope_scaling_factor(rope["factor"])


def write_model(path, kind, model):
    gguf = pytest.importorskip("gguf")
    config = model.config
    n_layers = config["num_transformer_layers"] if kind == "OpenELM" else config.num_hidden_layers
    arch = gguf.MODEL_ARCH[ARCHITECTURES[kind]]
    names = gguf.get_tensor_name_map(arch, n_layers)
    w = gguf.GGUFWriter(str(path), gguf.MODEL_ARCH_NAMES[arch])
    w.add_block_count(n_layers)
    add_sizes(w, kind, config)
    for name, tensor in model.state_dict().items():
        value = tensor.numpy()
        if name == "lm_head.weight" and (kind == "OpenELM" or config.tie_word_embeddings):
            continue
        if kind == "GPT2" and value.ndim == 2 and ".h." in name:
            value = value.T
        if kind.startswith("Gemma") and name.endswith("norm.weight"):
            value = value + 1
        if kind == "Llama" and ("q_proj" in name or "k_proj" in name):
            value = interleave(value, config.num_attention_heads if "q_proj" in name else config.num_key_value_heads)
        parts = {names.get_name(name, try_suffixes=(".weight", ".bias")): value}
        if "ffn.proj_1" in name:
            stem = name.split(".")[2]
            parts = dict(zip((f"blk.{stem}.ffn_gate.weight", f"blk.{stem}.ffn_up.weight"), np.split(value, 2)))
        for part, values in parts.items():
            assert part, name
            w.add_tensor(part, np.ascontiguousarray(values, np.float16 if values.ndim == 2 else np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
