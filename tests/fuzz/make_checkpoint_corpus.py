#!/usr/bin/env python3
"""Makes the seeds of fuzz_safetensors, fuzz_gguf_model and fuzz_lm_config.

    make_checkpoint_corpus.py CORPUS_FOLDER

Needs gguf and numpy."""
import json
import pathlib
import struct
import sys

import gguf
import numpy as np

ROOT = pathlib.Path(sys.argv[1])


def safetensors(name, header, data=b""):
    text = json.dumps(header).encode() if isinstance(header, dict) else header
    (ROOT / "safetensors" / name).write_bytes(struct.pack("<Q", len(text)) + text + data)


safetensors("two", {"__metadata__": {"format": "pt"}, "a": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]},
                    "b": {"dtype": "F32", "shape": [], "data_offsets": [12, 16]}}, bytes(range(16)))
safetensors("empty", {"a": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}})
safetensors("overlap", {"a": {"dtype": "F16", "shape": [4], "data_offsets": [0, 8]},
                        "b": {"dtype": "F16", "shape": [4], "data_offsets": [4, 12]}}, bytes(12))
safetensors("huge", {"a": {"dtype": "F64", "shape": [1 << 40, 1 << 40], "data_offsets": [0, 8]}}, bytes(8))
safetensors("cut", b'{"a": {"dtype": "F32", "shape": [1')

writer = gguf.GGUFWriter(str(ROOT / "gguf_model" / "small"), "llama")
writer.add_block_count(1)
writer.add_embedding_length(64)
writer.add_feed_forward_length(64)
writer.add_head_count(4)
writer.add_head_count_kv(2)
writer.add_layer_norm_rms_eps(1e-5)
writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
writer.add_rope_scaling_factor(2.0)
writer.add_token_list(["a", "b"])
rng = np.random.default_rng(1)
for kind in ("F32", "Q4_0", "Q4_1", "Q5_0", "Q8_0", "Q6_K"):
    t = gguf.GGMLQuantizationType[kind]
    if kind == "F32":
        writer.add_tensor("token_embd.weight", rng.standard_normal((2, 4)).astype(np.float32))
        continue
    block, size = gguf.GGML_QUANT_SIZES[t]
    writer.add_tensor(kind, rng.integers(0, 255, (1, size), dtype=np.uint8), raw_shape=(1, size), raw_dtype=t)
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()

BASE = dict(model_type="llama", num_hidden_layers=2, hidden_size=64, intermediate_size=96, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=128)
CONFIGS = {
    "llama": BASE | dict(rope_scaling=dict(rope_type="llama3", factor=8, low_freq_factor=1, high_freq_factor=4,
                                           original_max_position_embeddings=32)),
    "gemma": BASE | dict(model_type="gemma3_text", head_dim=32, sliding_window=8, query_pre_attn_scalar=32,
                         layer_types=["sliding_attention", "full_attention"],
                         rope_parameters=dict(full_attention=dict(rope_theta=1e6, rope_type="yarn", factor=4),
                                              sliding_attention=dict(rope_theta=1e4))),
    "phi": BASE | dict(model_type="phi3", partial_rotary_factor=0.5, original_max_position_embeddings=64,
                       rope_scaling=dict(type="longrope", short_factor=[1, 2, 3, 4], long_factor=[1, 2, 3, 4])),
    "openelm": dict(model_type="openelm", num_transformer_layers=2, model_dim=64, head_dim=16, num_query_heads=[2, 4],
                    num_kv_heads=[1, 2], ffn_multipliers=[0.5, 4.0], ffn_dim_divisor=32, max_context_length=128,
                    normalize_qk_projections=True, share_input_output_layers=True, rope_freq_constant=10000),
    "gpt2": dict(model_type="gpt2", n_layer=2, n_embd=64, n_head=4, n_positions=128, n_inner=None,
                 activation_function="gelu_new", layer_norm_epsilon=1e-5),
    "qwen": BASE | dict(model_type="qwen2", use_sliding_window=True, sliding_window=16, max_window_layers=1),
    "dynamic": BASE | dict(rope_scaling=dict(type="dynamic", factor=2)),
}
for name, fields in CONFIGS.items():
    (ROOT / "lm_config" / name).write_text(json.dumps(fields))
