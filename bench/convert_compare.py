#!/usr/bin/env python3
"""Converts SmolLM2-135M-Instruct to int4 (blocks of 32) with pome and with torch and coremltools, in turns, and compares
time and memory. Both start from the same bf16 checkpoint folder and end with a package on disk.

    convert_compare.py [--pome POME] [--work FOLDER] [--rounds N] [--csv FILE]

Ours is counted as anonymous memory (the mapped input can be dropped at any time), theirs as resident memory. Exits 1 unless
pome is 30 times faster and needs a 20th of the memory, in medians. Python packages: bench/requirements-coremltools.txt.
"""
import argparse
import json
import pathlib
import shutil
import statistics
import sys

import measuring

ROOT = measuring.ROOT
sys.path.insert(0, str(ROOT / "scripts"))
SPEED_MIN, MEMORY_MIN = 30, 20
PARTS = {"self_attn.q_proj": "q", "self_attn.k_proj": "k", "self_attn.v_proj": "v", "self_attn.o_proj": "o", "mlp.gate_proj": "gate",
         "mlp.up_proj": "up", "mlp.down_proj": "down", "input_layernorm": "n1", "post_attention_layernorm": "n2"}


def make_checkpoint(folder):
    """The weights of the GGUF file as a Hugging Face folder in bf16."""
    import make_smollm2
    import torch
    from safetensors.torch import save_file

    gguf = make_smollm2.find_gguf()
    config, weights, tokens = make_smollm2.load_gguf(gguf)
    names = {"embed": "model.embed_tokens", "norm": "model.norm"}
    for layer in range(config["n_layers"]):
        names |= {f"layers.{layer}.{short}": f"model.layers.{layer}.{long}" for long, short in PARTS.items()}
    partial = folder.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    save_file({f"{name}.weight": weights[short].to(torch.bfloat16).contiguous() for short, name in names.items()},
              partial / "model.safetensors", metadata={"format": "pt"})
    make_smollm2.write_tokenizer(gguf, tokens, partial)
    (partial / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "torch_dtype": "bfloat16",
        "hidden_size": config["d_model"], "num_hidden_layers": config["n_layers"], "num_attention_heads": config["n_heads"],
        "num_key_value_heads": config["n_kv_heads"], "head_dim": config["d_head"], "rms_norm_eps": config["epsilon"],
        "rope_theta": config["rope_base"], "intermediate_size": weights["layers.0.gate"].shape[0],
        "vocab_size": weights["embed"].shape[0], "max_position_embeddings": 8192, "tie_word_embeddings": True}, indent=1))
    partial.rename(folder)


def with_coremltools(checkpoint, out, context):
    """The other road, in a process of its own."""
    import make_smollm2
    from safetensors.torch import load_file

    c = json.loads((checkpoint / "config.json").read_text())
    config = {"d_model": c["hidden_size"], "n_layers": c["num_hidden_layers"], "n_heads": c["num_attention_heads"],
              "n_kv_heads": c["num_key_value_heads"], "epsilon": c["rms_norm_eps"], "rope_base": c["rope_theta"],
              "d_head": c["head_dim"]}
    weights = {}
    for name, value in load_file(checkpoint / "model.safetensors").items():
        stem = name.removesuffix(".weight").removeprefix("model.")
        short = {"embed_tokens": "embed", "norm": "norm"}.get(stem)
        if not short:
            _, layer, part = stem.split(".", 2)
            short = f"layers.{layer}.{PARTS[part]}"
        weights[short] = value.float()
    weights["head"] = weights["embed"]
    make_smollm2.compress(make_smollm2.convert(config, weights, context), "int4").save(str(out))


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--pome", default=str(ROOT / "build/release/cli/pome"))
    p.add_argument("--work", type=pathlib.Path, default=ROOT / "build" / "convert-compare")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--context", type=int, default=512)
    p.add_argument("--csv", type=pathlib.Path)
    p.add_argument("--coremltools", nargs=2, type=pathlib.Path, metavar=("CHECKPOINT", "OUT"), help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.coremltools:
        with_coremltools(*a.coremltools, a.context)
        return 0
    checkpoint = a.work / "smollm2-135m-bf16"
    if not checkpoint.exists():
        make_checkpoint(checkpoint)
    rows = []
    for turn in range(a.rounds):
        for tool in ("pome", "coremltools"):
            out = a.work / f"{tool}.mlpackage"
            shutil.rmtree(out, ignore_errors=True)
            if tool == "pome":
                command = [a.pome, "convert", checkpoint, out, "--quantize", "int4", "--context", a.context, "--quiet"]
            else:
                command = [sys.executable, __file__, "--coremltools", checkpoint, out, "--context", a.context]
            m = measuring.run(command)
            rows.append(measuring.machine() | {
                "tool": tool, "seconds": round(m["seconds"], 3), "cpu_seconds": round(m["cpu_seconds"], 3),
                "peak_anonymous_bytes": m["peak_anonymous_bytes"], "peak_resident_bytes": m["peak_resident_bytes"],
                "package_bytes": measuring.folder_bytes(out)})
            print(f"round {turn + 1}: {tool} {m['seconds']:.2f} s, {m['peak_anonymous_bytes'] / 1e6:.1f} MB anonymous, "
                  f"{m['peak_resident_bytes'] / 1e6:.1f} MB resident", flush=True)
            if a.csv:
                measuring.append(a.csv, rows[-1:])
    def median(tool, what):
        return statistics.median(r[what] for r in rows if r["tool"] == tool)

    faster = median("coremltools", "seconds") / median("pome", "seconds")
    smaller = median("coremltools", "peak_resident_bytes") / median("pome", "peak_anonymous_bytes")
    print(f"pome is {faster:.0f} times faster and needs 1/{smaller:.0f} of the memory")
    return 0 if faster >= SPEED_MIN and smaller >= MEMORY_MIN else 1


if __name__ == "__main__":
    sys.exit(main())
