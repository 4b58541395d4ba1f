#!/usr/bin/env python3
"""Writes a checkpoint of random bf16 weights in the shape of a real model, sharded, with a small tokenizer: for measuring
time and memory of conversions. Equal arguments give equal bytes. Needs numpy; holds one pool of 64 MB in memory.

    make_checkpoint.py OUT [--shape mistral-7b|llama2-7b|llama3-1b|tiny] [--shards N] [--seed N]

The weights of a tensor are runs of the pool from random places, scaled so that activations stay near 1. What the model says
is noise, but finite noise.
"""
import argparse
import json
import pathlib
import struct
import time

import numpy as np

SHAPES = {  # model_type, hidden, ffn, heads, key/value heads, vocabulary, layers, head of its own, rotary base, positions
    "mistral-7b": ("mistral", 4096, 14336, 32, 8, 32768, 32, True, 1e6, 32768),
    "llama2-7b": ("llama", 4096, 11008, 32, 32, 32000, 32, True, 1e4, 4096),
    "llama3-1b": ("llama", 2048, 8192, 32, 8, 128256, 16, False, 5e5, 131072),
    "tiny": ("mistral", 64, 192, 4, 2, 512, 2, True, 1e4, 256),
}
POOL_ELEMENTS = 1 << 25  # of 2 bytes
RUN_ELEMENTS = 1 << 22


def config_of(shape):
    kind, hidden, ffn, heads, kv_heads, vocab, layers, has_head, theta, positions = SHAPES[shape]
    return {
        "architectures": [{"mistral": "MistralForCausalLM", "llama": "LlamaForCausalLM"}[kind]], "model_type": kind,
        "hidden_size": hidden, "intermediate_size": ffn, "num_hidden_layers": layers, "num_attention_heads": heads,
        "num_key_value_heads": kv_heads, "head_dim": hidden // heads, "vocab_size": vocab, "hidden_act": "silu",
        "rms_norm_eps": 1e-5, "rope_theta": theta, "max_position_embeddings": positions, "sliding_window": None,
        "tie_word_embeddings": not has_head, "torch_dtype": "bfloat16", "bos_token_id": 1, "eos_token_id": 2,
    }


def tensors_of(c):
    """(name, shape) in the order of published checkpoints."""
    h, f, kv = c["hidden_size"], c["intermediate_size"], c["num_key_value_heads"] * c["head_dim"]
    yield "model.embed_tokens.weight", (c["vocab_size"], h)
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        yield p + "input_layernorm.weight", (h,)
        yield p + "mlp.down_proj.weight", (h, f)
        yield p + "mlp.gate_proj.weight", (f, h)
        yield p + "mlp.up_proj.weight", (f, h)
        yield p + "post_attention_layernorm.weight", (h,)
        yield p + "self_attn.k_proj.weight", (kv, h)
        yield p + "self_attn.o_proj.weight", (h, h)
        yield p + "self_attn.q_proj.weight", (h, h)
        yield p + "self_attn.v_proj.weight", (kv, h)
    yield "model.norm.weight", (h,)
    if not c["tie_word_embeddings"]:
        yield "lm_head.weight", (c["vocab_size"], h)


def n_bytes(shape):
    return int(np.prod(shape)) * 2


def shards_of(tensors, n_shards):
    """Lists of tensors of about equal size."""
    left = sum(n_bytes(s) for _, s in tensors)
    shards, at = [], 0
    for i in range(n_shards):
        shard, size = [], 0
        while at < len(tensors) and (i == n_shards - 1 or size < left / (n_shards - i)):
            shard.append(tensors[at])
            size += n_bytes(tensors[at][1])
            at += 1
        left -= size
        shards.append(shard)
    return shards


def to_bf16(x):
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


class Weights:
    """Runs of random values. The pool has standard deviation 1; other ones are powers of two, which only moves the exponent."""

    def __init__(self, seed):
        self.random = np.random.default_rng(seed)
        self.pool = np.empty(POOL_ELEMENTS, np.uint16)
        for at in range(0, POOL_ELEMENTS, RUN_ELEMENTS):
            self.pool[at:at + RUN_ELEMENTS] = to_bf16(self.random.standard_normal(RUN_ELEMENTS, np.float32))

    def runs(self, shape):
        """The values of one tensor, piece by piece."""
        n = int(np.prod(shape))
        if len(shape) == 1:
            yield np.full(n, 0x3F80, np.uint16)  # norms: 1
            return
        exponent = int(round(np.log2(1 / np.sqrt(shape[1]))))
        for at in range(0, n, RUN_ELEMENTS):
            size = min(RUN_ELEMENTS, n - at)
            start = int(self.random.integers(0, POOL_ELEMENTS - size + 1))
            run = self.pool[start:start + size]
            small = (run & 0x7F80) < (-exponent + 1) << 7  # would leave the range of normal numbers
            scaled = (run.view(np.int16) + np.int16(exponent << 7)).view(np.uint16)
            scaled[small] = 0
            yield scaled


def write_shard(path, tensors, weights):
    header, at = {}, 0
    for name, shape in tensors:
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, at + n_bytes(shape)]}
        at += n_bytes(shape)
    header["__metadata__"] = {"format": "pt"}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb", buffering=0) as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for _, shape in tensors:
            for run in weights.runs(shape):
                f.write(run.data)


def byte_symbols():
    """The printable characters that byte-level tokenizers write bytes as."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in kept]
    return {b: chr(b) for b in kept} | {b: chr(256 + i) for i, b in enumerate(others)}


def write_tokenizer(folder, n_vocab):
    """Bytes, and words w0, w1, ... that fill up the vocabulary."""
    special = ["<unk>", "<s>", "</s>"]
    vocab = {piece: i for i, piece in enumerate(special)}
    for symbol in byte_symbols().values():
        vocab[symbol] = len(vocab)
    while len(vocab) < n_vocab:
        vocab[f"w{len(vocab)}"] = len(vocab)
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": i, "content": piece, **flags} for i, piece in enumerate(special)],
        "normalizer": None, "pre_tokenizer": level, "post_processor": level, "decoder": level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "vocab": vocab, "merges": []},
    }
    template = "{% for m in messages %}{{ m.role + ': ' + m.content + '\\n' }}{% endfor %}assistant:"
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>",
              "chat_template": template}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1))
    (folder / "generation_config.json").write_text(json.dumps({"bos_token_id": 1, "eos_token_id": 2}))


def write(folder, shape, n_shards, seed):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    config = config_of(shape)
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    write_tokenizer(folder, config["vocab_size"])
    weights = Weights(seed)
    shards = shards_of(list(tensors_of(config)), n_shards)
    if n_shards == 1:
        write_shard(folder / "model.safetensors", shards[0], weights)
        return
    index, total = {}, 0
    for i, shard in enumerate(shards, 1):
        name = f"model-{i:05}-of-{n_shards:05}.safetensors"
        write_shard(folder / name, shard, weights)
        index |= {tensor: name for tensor, _ in shard}
        total += sum(n_bytes(s) for _, s in shard)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": total}, "weight_map": index}))


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("out")
    p.add_argument("--shape", choices=SHAPES, default="mistral-7b")
    p.add_argument("--shards", type=int, default=3)
    p.add_argument("--seed", type=int, default=0)
    a = p.parse_args()
    begin = time.monotonic()
    write(a.out, a.shape, a.shards, a.seed)
    size = sum(f.stat().st_size for f in pathlib.Path(a.out).glob("*.safetensors"))
    print(f"{a.out}: {size / 1e9:.2f} GB in {time.monotonic() - begin:.0f} s")


if __name__ == "__main__":
    main()
