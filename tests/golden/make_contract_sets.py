#!/usr/bin/env python3
"""Makes the sets of models in contracts/ with coremltools: one small Llama in the forms in which public projects cut and
feed it. The expected values are PyTorch's, in float32, for the weights in the files.

    make_contract_sets.py [OUT [NAME...]]    (coremltools 9, torch, numpy; OUT defaults to contracts/ beside this file)

Modelled on the public conversion sources of ANEMLL (meta.yaml, embeddings, FFN_PF functions, lm_head) and CoreML-LLM
(chunks with rotary rows and masks as inputs, arg-max inside); nothing is taken from them but names and shapes."""
import json
import pathlib
import shutil
import sys

import coremltools as ct
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

HIDDEN, HEADS, KV, DIM, FFN, VOCAB, LAYERS, CONTEXT, BATCH = 32, 4, 2, 8, 48, 96, 2, 64, 16
F16, I32 = np.float16, np.int32
SPLIT = 8  # parts of ANEMLL's head


def exact(t):
    return t.half().float()


def make_weights(seed):
    g = torch.Generator().manual_seed(seed)
    draw = lambda *shape: exact(torch.randn(*shape, generator=g) / shape[-1] ** 0.5)
    w = {"embed": exact(torch.randn(VOCAB, HIDDEN, generator=g) * 0.5), "head": exact(draw(VOCAB, HIDDEN) * 6),
         "norm": exact(1 + 0.1 * torch.randn(HIDDEN, generator=g))}
    for i in range(LAYERS):
        w[i] = {"q": draw(HEADS * DIM, HIDDEN) , "k": draw(KV * DIM, HIDDEN), "v": draw(KV * DIM, HIDDEN), "o": draw(HIDDEN, HEADS * DIM),
                "gate": draw(FFN, HIDDEN), "up": draw(FFN, HIDDEN), "down": draw(HIDDEN, FFN),
                "n1": exact(1 + 0.1 * torch.randn(HIDDEN, generator=g)), "n2": exact(1 + 0.1 * torch.randn(HIDDEN, generator=g))}
        w[i]["q"] = exact(w[i]["q"] * 2)
    return w


def rotary():
    inverse = 1.0 / (10000.0 ** (torch.arange(0, DIM, 2).float() / DIM))
    angle = torch.outer(torch.arange(CONTEXT).float(), inverse)
    angle = torch.cat((angle, angle), -1)
    return exact(angle.cos()), exact(angle.sin())  # [CONTEXT, DIM]


def rotate(t, cos, sin):
    half = DIM // 2
    return t * cos + torch.cat((-t[..., half:], t[..., :half]), -1) * sin


def norm(x, weight):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * weight


def attend(q, k, v, mask):
    """q [1, HEADS, n, DIM], k and v [1, KV, m, DIM]."""
    k = k.repeat_interleave(HEADS // KV, 1)
    v = v.repeat_interleave(HEADS // KV, 1)
    return torch.matmul(torch.softmax(torch.matmul(q, k.transpose(2, 3)) * DIM ** -0.5 + mask, -1), v)


# ---- the reference ----

def reference(w, ids):
    """Logits of all rows [n, VOCAB], whole sequence at once. w["window"]: how far back each layer sees."""
    n = len(ids)
    cos, sin = (t[:n] for t in rotary())
    x = w["embed"][torch.tensor(ids)][None]
    for i in range(LAYERS):
        near = torch.ones(n, n).triu(1 - w.get("window", {}).get(i, n)).tril() > 0
        mask = torch.where(near, 0.0, float("-inf"))
        x = x + F.linear(attend(*projections(w[i], norm(x, w[i]["n1"]), cos, sin), mask).transpose(1, 2).reshape(1, n, -1), w[i]["o"])
        x = x + feed_forward(w[i], norm(x, w[i]["n2"]))
    return F.linear(norm(x, w["norm"]), w["head"])[0]


def projections(layer, h, cos, sin):
    n = h.shape[1]
    split = lambda t, heads: t.view(1, n, heads, DIM).transpose(1, 2)
    q, k, v = split(F.linear(h, layer["q"]), HEADS), split(F.linear(h, layer["k"]), KV), split(F.linear(h, layer["v"]), KV)
    return rotate(q, cos, sin), rotate(k, cos, sin), v


def feed_forward(layer, h):
    return F.linear(F.silu(F.linear(h, layer["gate"])) * F.linear(h, layer["up"]), layer["down"])


def greedy(w, prompt, n):
    """Ids, and how far the second choice was behind."""
    ids, new, margins = list(prompt), [], []
    for _ in range(n):
        row = reference(w, ids)[-1]
        best = row.topk(2)
        new.append(int(best.indices[0]))
        margins.append(float(best.values[0] - best.values[1]))
        ids.append(new[-1])
    return new, margins


def clear_prompt(w, length, n, avoid=0):
    """The seeded prompt of this length whose greedy path has the clearest choices."""
    g = torch.Generator().manual_seed(length)
    pool = [torch.randint(0, VOCAB, (length,), generator=g).tolist() for _ in range(24)]
    return max(pool, key=lambda p: min(greedy(w, p, n)[1]))


def expected(w):
    out = {}
    for prefix, length, n in (("", 7, 24), ("long_", 37, 24)):
        prompt = clear_prompt(w, length, n)
        new, margins = greedy(w, prompt, n)
        out |= {prefix + "prompt": np.array(prompt, I32), prefix + "greedy": np.array(new, I32), prefix + "margins": np.array(margins, np.float32),
                prefix + "prefill_logits": reference(w, prompt).numpy()}
    return out


# ---- conversion ----

def convert(module, examples, inputs, outputs, states=None, target=ct.target.iOS18):
    traced = torch.jit.trace(module.eval(), examples, check_trace=False)
    return ct.convert(traced, inputs=inputs, outputs=outputs, states=states, minimum_deployment_target=target, skip_model_load=True)


def tensor(name, shape, dtype=F16):
    return ct.TensorType(name=name, shape=shape, dtype=dtype)


def out(*names, dtype=F16):
    return [ct.TensorType(name=n, dtype=dtype) for n in names]


def conv(weight):
    c = nn.Conv2d(weight.shape[1], weight.shape[0], 1, bias=False)
    c.weight.data = weight[:, :, None, None].clone()
    return c


class Projected(nn.Module):
    """The linear parts of a layer as 1x1 convolutions over [1, channels, 1, n], and its norms."""

    def __init__(self, layer):
        super().__init__()
        for name in ("q", "k", "v", "o", "gate", "up", "down"):
            setattr(self, name, conv(layer[name]))
        self.n1, self.n2 = (nn.Parameter(layer[n].clone()) for n in ("n1", "n2"))

    def heads(self, c, h, heads, n):
        return c(h.permute(0, 2, 1).unsqueeze(2)).view(1, heads, DIM, n).permute(0, 1, 3, 2)

    def finish(self, x, a, n):
        a = a.permute(0, 1, 3, 2).reshape(1, HEADS * DIM, 1, n)
        x = x + self.o(a).squeeze(2).permute(0, 2, 1)
        h = norm(x, self.n2).permute(0, 2, 1).unsqueeze(2)
        return x + self.down(F.silu(self.gate(h)) * self.up(h)).squeeze(2).permute(0, 2, 1)


# ---- ANEMLL ----

class Embeddings(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.table = nn.Embedding.from_pretrained(w["embed"].clone())

    def forward(self, input_ids):
        return self.table(input_ids)


class AnemllLayers(nn.Module):
    """Layers [begin, end) over one cache of all layers, keys before values: [2 * LAYERS, KV, CONTEXT, DIM]."""

    def __init__(self, w, begin, end, is_prefill):
        super().__init__()
        self.layers = nn.ModuleList([Projected(w[i]) for i in range(begin, end)])
        self.begin, self.is_prefill, self.is_last = begin, is_prefill, end == LAYERS
        self.norm = nn.Parameter(w["norm"].clone())
        cos, sin = rotary()
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        self.register_buffer("kv_cache_0", torch.zeros(2 * LAYERS, KV, CONTEXT, DIM))

    def forward(self, hidden_states, position_ids, causal_mask, current_pos):
        n, x = hidden_states.shape[1], hidden_states
        cos, sin = (self.cos[position_ids], self.sin[position_ids]) if self.is_prefill else (self.cos[current_pos], self.sin[current_pos])
        begin = current_pos[0]
        for k, layer in enumerate(self.layers):
            i, h = self.begin + k, norm(x, layer.n1)
            q, key, value = layer.heads(layer.q, h, HEADS, n), layer.heads(layer.k, h, KV, n), layer.heads(layer.v, h, KV, n)
            self.kv_cache_0[i:i + 1, :, begin:begin + n, :] = rotate(key, cos, sin)
            self.kv_cache_0[LAYERS + i:LAYERS + i + 1, :, begin:begin + n, :] = value
            a = attend(rotate(q, cos, sin), self.kv_cache_0[i:i + 1], self.kv_cache_0[LAYERS + i:LAYERS + i + 1], causal_mask)
            x = layer.finish(x, a, n)
        if not self.is_last:
            return x
        return norm(x, self.norm)[:, 0:1, :] if self.is_prefill else norm(x, self.norm)


class AnemllHead(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.heads = nn.ModuleList([conv(part) for part in w["head"].chunk(SPLIT)])

    def forward(self, hidden_states):
        h = hidden_states.permute(0, 2, 1).unsqueeze(2)
        return tuple(head(h).squeeze(2).transpose(1, 2) for head in self.heads)


def anemll_layers(w, begin, end, is_prefill):
    n = BATCH if is_prefill else 1
    m = AnemllLayers(w, begin, end, is_prefill)
    state = ct.StateType(wrapped_type=ct.TensorType(shape=tuple(m.kv_cache_0.shape), dtype=F16), name="kv_cache_0")
    examples = (torch.zeros(1, n, HIDDEN), torch.zeros(n, dtype=torch.int32), torch.zeros(1, 1, n, CONTEXT), torch.zeros(1, dtype=torch.int32))
    return convert(m, examples, [tensor("hidden_states", (1, n, HIDDEN)), tensor("position_ids", (n,), I32),
                                 tensor("causal_mask", (1, 1, n, CONTEXT)), tensor("current_pos", (1,), I32)], out("output_hidden_states"), [state])


META = """model_info:
  name: anemll-tiny-ctx{context}
  version: 0.3.4
  description: |
    A tiny model with random weights
    Context length: {context}
  license: MIT
  parameters:
    context_length: {context}
    batch_size: {batch}
    lut_embeddings: none
    lut_ffn: none
    lut_lmhead: none
    num_chunks: {chunks}
    model_prefix: llama
    embeddings: llama_embeddings.mlmodelc
    lm_head: llama_lm_head.mlmodelc
    ffn: llama_FFN_PF.mlmodelc
    split_lm_head: {split}
"""


def make_anemll(w, folder, chunks):
    sizes = ct.EnumeratedShapes(shapes=[[1, 1], [1, BATCH]], default=[1, 1])
    convert(Embeddings(w), torch.zeros(1, 1, dtype=torch.int32), [tensor("input_ids", sizes, I32)], out("hidden_states")).save(
        str(folder / "llama_embeddings.mlpackage"))
    convert(AnemllHead(w), torch.zeros(1, 1, HIDDEN), [tensor("hidden_states", (1, 1, HIDDEN))],
            out(*[f"logits{i + 1}" for i in range(SPLIT)])).save(str(folder / "llama_lm_head.mlpackage"))
    for c in range(chunks):
        begin, end = c * LAYERS // chunks, (c + 1) * LAYERS // chunks
        descriptor = ct.utils.MultiFunctionDescriptor()
        for name in ("infer", "prefill"):
            part = folder / f"{name}.mlpackage"
            anemll_layers(w, begin, end, name == "prefill").save(str(part))
            descriptor.add_function(str(part), src_function_name="main", target_function_name=name)
        descriptor.default_function_name = "infer"
        suffix = f"_chunk_{c + 1:02d}of{chunks:02d}" if chunks > 1 else ""
        ct.utils.save_multifunction(descriptor, str(folder / f"llama_FFN_PF{suffix}.mlpackage"))
        for name in ("infer", "prefill"):
            shutil.rmtree(folder / f"{name}.mlpackage")
    (folder / "meta.yaml").write_text(META.format(context=CONTEXT, batch=BATCH, chunks=chunks, split=SPLIT))


# ---- CoreML-LLM ----

def argmax(logits):
    return logits.argmax(-1).to(torch.int32)


class SlidingChunk(nn.Module):
    """Layer 0 over a window that moves left, layer 1 over the whole context and a head that takes the arg-max."""

    def __init__(self, w, index):
        super().__init__()
        self.layer, self.index = Projected(w[index]), index
        self.norm, self.head = nn.Parameter(w["norm"].clone()), conv(w["head"])

    def forward(self, hidden_states, causal_mask_full, causal_mask_sliding, update_mask, cos, sin, k, v):
        layer, x = self.layer, hidden_states
        h = norm(x, layer.n1)
        q, key, value = layer.heads(layer.q, h, HEADS, 1), layer.heads(layer.k, h, KV, 1), layer.heads(layer.v, h, KV, 1)
        key = rotate(key, cos, sin)
        if self.index == 0:
            k, v = torch.cat((k[:, :, 1:], key), 2), torch.cat((v[:, :, 1:], value), 2)
            mask = causal_mask_sliding
        else:
            k, v = k * (1 - update_mask) + key * update_mask, v * (1 - update_mask) + value * update_mask
            mask = causal_mask_full
        x = layer.finish(x, attend(rotate(q, cos, sin), k, v, mask), 1)
        if self.index == 0:
            return x, k, v
        logits = self.head(norm(x, self.norm).permute(0, 2, 1).unsqueeze(2)).squeeze(2).transpose(1, 2)
        return argmax(logits), logits.amax(-1), k, v


WINDOW = 16


def int8_rows(weight):
    """CoreML-LLM's tables: codes, and a scale per row of which 127 codes make the largest value."""
    scale = exact(weight.abs().amax(1, keepdim=True))
    code = (weight / scale * 127).round().clamp(-127, 127)
    return code.numpy().astype(np.int8), scale.numpy().astype(F16), exact(code * scale / 127)


def write_sliding(w, folder):
    codes, scales, _ = int8_rows(w["source"] / 2)
    (folder / "embed_tokens_q8.bin").write_bytes(codes.tobytes())
    (folder / "embed_tokens_scales.bin").write_bytes(scales.tobytes())
    json.dump({"hidden_size": HIDDEN, "context_length": CONTEXT, "vocab_size": VOCAB, "embed_scale": 2.0, "sliding_window": WINDOW},
              open(folder / "model_config.json", "w"))
    for name, table in zip(("cos", "sin"), rotary()):
        for kind in ("sliding", "full"):
            np.save(folder / f"{name}_{kind}.npy", table.numpy().astype(F16))


def make_sliding(w, folder):
    write_sliding(w, folder)
    for index in range(LAYERS):
        rows, kind, short = (WINDOW, "sliding", "s") if index == 0 else (CONTEXT, "full", "f")
        shapes = {"hidden_states": (1, 1, HIDDEN), "causal_mask_full": (1, 1, 1, CONTEXT), "causal_mask_sliding": (1, 1, 1, WINDOW),
                  "update_mask": (1, 1, CONTEXT, 1), f"cos_{short}": (1, 1, 1, DIM), f"sin_{short}": (1, 1, 1, DIM),
                  f"K_{kind}_in": (1, KV, rows, DIM), f"V_{kind}_in": (1, KV, rows, DIM)}
        results = out("hidden_states_out") if index == 0 else [*out("token_id", dtype=I32), *out("token_logit")]
        convert(SlidingChunk(w, index), tuple(torch.zeros(s) for s in shapes.values()), [tensor(n, s) for n, s in shapes.items()],
                [*results, *out(f"K_{kind}_out", f"V_{kind}_out")]).save(str(folder / f"chunk{index + 1}.mlpackage"))


class CacheChunk(nn.Module):
    """One layer whose caches are written where the position says."""

    def __init__(self, w, index):
        super().__init__()
        self.layer = Projected(w[index])
        self.register_buffer("rows", torch.arange(CONTEXT).float().view(1, 1, CONTEXT, 1), persistent=False)

    def forward(self, hidden_in, position, cos, sin, k, v):
        layer, x = self.layer, hidden_in
        h, cos, sin = norm(x, layer.n1), cos.unsqueeze(1), sin.unsqueeze(1)
        q, key, value = layer.heads(layer.q, h, HEADS, 1), layer.heads(layer.k, h, KV, 1), layer.heads(layer.v, h, KV, 1)
        is_row = self.rows.eq(position.view(1, 1, 1, 1))
        k, v = torch.where(is_row, rotate(key, cos, sin), k), torch.where(is_row, value, v)
        mask = (self.rows.view(1, 1, 1, CONTEXT) > position.view(1, 1, 1, 1)).float() * -1e4
        return layer.finish(x, attend(rotate(q, cos, sin), k, v, mask), 1), k, v


class CacheHead(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.norm, self.head = nn.Parameter(w["norm"].clone()), conv(w["head"])

    def forward(self, hidden_in):
        return argmax(self.head(norm(hidden_in, self.norm).permute(0, 2, 1).unsqueeze(2)).squeeze(2).transpose(1, 2))


def make_caches(w, folder):
    (folder / "embed_weight.bin").write_bytes(w["embed"].numpy().astype(F16).tobytes())
    json.dump({"rope_theta": 10000.0}, open(folder / "model_config.json", "w"))
    for i in range(LAYERS):
        shapes = {"hidden_in": (1, 1, HIDDEN), "position": (1,), "cos": (1, 1, DIM), "sin": (1, 1, DIM),
                  f"k_{i}": (1, KV, CONTEXT, DIM), f"v_{i}": (1, KV, CONTEXT, DIM)}
        inputs = [tensor(n, s, np.float32 if n == "position" else F16) for n, s in shapes.items()]
        convert(CacheChunk(w, i), tuple(torch.zeros(s) for s in shapes.values()), inputs, out("hidden", f"new_k_{i}", f"new_v_{i}")).save(
            str(folder / f"chunk_{i}.mlpackage"))
    convert(CacheHead(w), torch.zeros(1, 1, HIDDEN), [tensor("hidden_in", (1, 1, HIDDEN))], out("next_token", dtype=I32)).save(
        str(folder / "chunk_head.mlpackage"))


def main(root, only):
    torch.manual_seed(0)
    w = make_weights(5)
    sliding = dict(w, source=w["embed"], embed=int8_rows(w["embed"] / 2)[2] * 2, window={0: WINDOW})
    for name, weights, make in (("anemll", w, lambda f: make_anemll(w, f, 2)), ("coreml-llm-sliding", sliding, lambda f: make_sliding(sliding, f)),
                                ("coreml-llm-caches", w, lambda f: make_caches(w, f))):
        if only and name not in only:
            continue
        values = expected(weights)
        folder = root / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        make(folder)
        np.savez_compressed(folder / "expected.npz", **values)
        print(name, sum(f.stat().st_size for f in folder.rglob("*") if f.is_file()), "bytes, least margin", values["margins"].min(), values["long_margins"].min())


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent / "contracts", sys.argv[2:])
