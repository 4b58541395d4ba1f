"""OpenELM in plain PyTorch, from its paper (Mehta et al., 2024, arXiv 2404.14619) and the fields and tensor names of its
published checkpoints; transformers does not have it. Layer i has query_heads[i] heads that share kv_heads[i] keys and values,
and a gated feed-forward network of its own width."""
import json
import types

import torch
from torch import nn
from torch.nn import functional as F


def width_of(multiplier, config):
    """A multiple of the model's width in whole divisors, never less than 0.9 of it."""
    divisor, wanted = config["ffn_dim_divisor"], multiplier * config["model_dim"]
    width = max(divisor, int(wanted + divisor / 2) // divisor * divisor)
    return width + divisor if width < 0.9 * wanted else width


class RMSNorm(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x):
        return x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-6) * self.weight


def turn(x, theta):
    """Rotary positions over the last axis of x [batch, heads, n, dim]: element i turns with element i + dim / 2."""
    half = x.shape[-1] // 2
    angle = torch.outer(torch.arange(x.shape[2]).double(), theta ** (-torch.arange(half).double() / half))
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class Attention(nn.Module):
    def __init__(self, config, layer):
        super().__init__()
        self.dim, self.theta = config["head_dim"], config["rope_freq_constant"]
        self.n_query, self.n_kv = config["num_query_heads"][layer], config["num_kv_heads"][layer]
        self.qkv_proj = nn.Linear(config["model_dim"], (self.n_query + 2 * self.n_kv) * self.dim, bias=False)
        self.out_proj = nn.Linear(self.n_query * self.dim, config["model_dim"], bias=False)
        normalizes = config["normalize_qk_projections"]
        self.q_norm = RMSNorm(self.dim) if normalizes else None
        self.k_norm = RMSNorm(self.dim) if normalizes else None

    def forward(self, x):
        batch, n, _ = x.shape
        heads = self.qkv_proj(x).view(batch, n, -1, self.dim).transpose(1, 2)
        q, k, v = heads[:, :self.n_query], heads[:, self.n_query:-self.n_kv], heads[:, -self.n_kv:]
        if self.q_norm:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k = turn(q, self.theta), turn(k, self.theta)
        k, v = (t.repeat_interleave(self.n_query // self.n_kv, 1) for t in (k, v))
        scores = q @ k.transpose(2, 3) / self.dim ** 0.5
        scores = scores.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), -torch.inf)
        y = scores.softmax(-1) @ v
        return self.out_proj(y.transpose(1, 2).reshape(batch, n, -1))


class FeedForward(nn.Module):
    def __init__(self, config, layer):
        super().__init__()
        self.width = width_of(config["ffn_multipliers"][layer], config)
        self.proj_1 = nn.Linear(config["model_dim"], 2 * self.width, bias=False)
        self.proj_2 = nn.Linear(self.width, config["model_dim"], bias=False)

    def forward(self, x):
        y = self.proj_1(x)
        return self.proj_2(F.silu(y[..., :self.width]) * y[..., self.width:])


class Layer(nn.Module):
    def __init__(self, config, layer):
        super().__init__()
        self.attn, self.ffn = Attention(config, layer), FeedForward(config, layer)
        self.attn_norm, self.ffn_norm = RMSNorm(config["model_dim"]), RMSNorm(config["model_dim"])

    def forward(self, x):
        x = x + self.attn(self.attn_norm(x))
        return x + self.ffn(self.ffn_norm(x))


class OpenELM(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.transformer = nn.Module()
        self.transformer.token_embeddings = nn.Embedding(config["vocab_size"], config["model_dim"])
        self.transformer.layers = nn.ModuleList(Layer(config, i) for i in range(config["num_transformer_layers"]))
        self.transformer.norm = RMSNorm(config["model_dim"])
        shares = config["share_input_output_layers"]
        self.lm_head = None if shares else nn.Linear(config["model_dim"], config["vocab_size"], bias=False)
        for p in self.parameters():
            if p.ndim == 2:
                nn.init.normal_(p, std=0.02)

    def forward(self, ids):
        x = self.transformer.token_embeddings(ids)
        for layer in self.transformer.layers:
            x = layer(x)
        head = self.lm_head or self.transformer.token_embeddings
        return types.SimpleNamespace(logits=F.linear(self.transformer.norm(x), head.weight))

    def save_pretrained(self, folder):
        from safetensors.torch import save_file
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(self.config))
        save_file(dict(self.state_dict()), str(folder / "model.safetensors"), metadata={"format": "pt"})
