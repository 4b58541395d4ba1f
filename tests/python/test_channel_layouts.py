"""Layers in the forms of other converters: convolutions over (B, C, 1, S) with attention as matmul and softmax, and with a
product per head by einsum. Fused, each fusion left out, and unfused against NumPy in double; `inspect --plan` says what
was found."""
import re
import subprocess

import numpy as np
import pytest

writer = pytest.importorskip("mlpackage_writer", reason="needs coremltools")

from pome_api import Model  # noqa: E402

B, S, T, C, H, K, D, F = 1, 6, 10, 32, 4, 2, 8, 48  # S new positions, T keys, H query heads over K, feed-forward F
HALF_STEP = 2.0 ** -10


def weights():
    rng = np.random.default_rng(5)
    sizes = {"q": (H * D, C), "k": (K * D, C), "v": (K * D, C), "o": (C, H * D), "gate": (F, C), "up": (F, C), "down": (C, F)}
    w = {name: rng.normal(0, size[1] ** -0.5, size).astype(np.float16) for name, size in sizes.items()}
    w["gamma"] = rng.normal(1, 0.1, C).astype(np.float16)
    w["bias"] = rng.normal(0, 0.1, H * D).astype(np.float16)
    return w


def feeds():
    rng = np.random.default_rng(6)
    mask = np.where(np.arange(T)[None, :] <= np.arange(S)[:, None] + T - S, 0, -np.inf)
    return {"x": rng.normal(0, 1, (B, S, C)).astype(np.float16), "mask": mask[None, None].astype(np.float16),
            "old_k": rng.normal(0, 1, (B, K, T - S, D)).astype(np.float16),
            "old_v": rng.normal(0, 1, (B, K, T - S, D)).astype(np.float16)}


def reference(w, f):
    w = {name: value.astype(np.float64) for name, value in w.items()}
    x, mask = f["x"].astype(np.float64), f["mask"].astype(np.float64)

    def norm(v):
        return v / np.sqrt((v * v).mean(-1, keepdims=True) + 1e-5) * w["gamma"]

    n = norm(x)
    q = (n @ w["q"].T + w["bias"]).reshape(B, S, H, D).transpose(0, 2, 1, 3)
    k = np.concatenate([f["old_k"].astype(np.float64), (n @ w["k"].T).reshape(B, S, K, D).transpose(0, 2, 1, 3)], 2)
    v = np.concatenate([f["old_v"].astype(np.float64), (n @ w["v"].T).reshape(B, S, K, D).transpose(0, 2, 1, 3)], 2)
    k, v = k.repeat(H // K, 1), v.repeat(H // K, 1)
    scores = q @ k.transpose(0, 1, 3, 2) * D ** -0.5 + mask
    scores = np.exp(scores - scores.max(-1, keepdims=True))
    attended = (scores / scores.sum(-1, keepdims=True)) @ v
    x = x + attended.transpose(0, 2, 1, 3).reshape(B, S, H * D) @ w["o"].T
    n = norm(x)
    gate = n @ w["gate"].T
    return x + (gate / (1 + np.exp(-gate)) * (n @ w["up"].T)) @ w["down"].T


def rms_norm(mb, v, w, axis):
    mean = mb.reduce_mean(x=mb.mul(x=v, y=v), axes=[axis], keep_dims=True)
    scale = mb.rsqrt(x=mb.add(x=mean, y=np.float16(1e-5)), epsilon=np.float16(0))
    shape = (1, C, 1, 1) if axis == 1 else (C,)
    return mb.mul(x=mb.mul(x=v, y=scale), y=w["gamma"].reshape(shape))


def conv(mb, v, weight, bias=None):
    given = {} if bias is None else {"bias": bias}
    return mb.conv(x=v, weight=weight[:, :, None, None], **given)


def feed_forward(mb, v, w, axis):
    n = rms_norm(mb, v, w, axis)
    gated = mb.mul(x=mb.silu(x=conv(mb, n, w["gate"])), y=conv(mb, n, w["up"]))
    return mb.add(x=v, y=conv(mb, gated, w["down"]))


def rows_between(mb, w):
    """Norms over rows, each convolution between two transposes, heads repeated by expand_dims and tile."""

    def columns(v):
        return mb.expand_dims(x=mb.transpose(x=v, perm=[0, 2, 1]), axes=[2])

    def heads(v, n):
        return mb.transpose(x=mb.reshape(x=v, shape=[B, n, D, S]), perm=[0, 1, 3, 2])

    def repeated(v):
        wide = mb.tile(x=mb.expand_dims(x=v, axes=[2]), reps=[1, 1, H // K, 1, 1])
        return mb.reshape(x=wide, shape=[B, H, T, D])

    def body(x, mask, old_k, old_v):
        n = columns(rms_norm(mb, x, w, -1))
        q = heads(conv(mb, n, w["q"], w["bias"]), H)
        k = repeated(mb.concat(values=[old_k, heads(conv(mb, n, w["k"]), K)], axis=2))
        v = repeated(mb.concat(values=[old_v, heads(conv(mb, n, w["v"]), K)], axis=2))
        scores = mb.matmul(x=q, y=mb.transpose(x=k, perm=[0, 1, 3, 2]))
        scores = mb.add(x=mb.mul(x=scores, y=np.float16(D ** -0.5)), y=mask)
        attended = mb.matmul(x=mb.softmax(x=scores, axis=-1), y=v)
        joined = mb.reshape(x=mb.transpose(x=attended, perm=[0, 2, 1, 3]), shape=[B, S, C])
        out = mb.squeeze(x=conv(mb, columns(joined), w["o"]), axes=[2])
        x = mb.add(x=x, y=mb.transpose(x=out, perm=[0, 2, 1]))
        n = columns(rms_norm(mb, x, w, -1))
        gated = mb.mul(x=mb.silu(x=conv(mb, n, w["gate"])), y=conv(mb, n, w["up"]))
        out = mb.squeeze(x=conv(mb, gated, w["down"]), axes=[2])
        return mb.add(x=x, y=mb.transpose(x=out, perm=[0, 2, 1]), name="y")

    return body


def heads_apart(mb, w):
    """Channels first throughout; every head is a slice of channels with products of its own."""

    def body(x, mask, old_k, old_v):
        x = mb.expand_dims(x=mb.transpose(x=x, perm=[0, 2, 1]), axes=[2])  # [B, C, 1, S]
        n = rms_norm(mb, x, w, 1)
        q, k, v = conv(mb, n, w["q"], w["bias"]), conv(mb, n, w["k"]), conv(mb, n, w["v"])
        key_mask = mb.transpose(x=mask, perm=[0, 3, 1, 2])  # [1, T, 1, S]
        attended = []
        for h in range(H):
            kv = h // (H // K)
            part = mb.slice_by_index(x=q, begin=[0, h * D, 0, 0], end=[B, (h + 1) * D, 1, S])
            own = [mb.slice_by_index(x=t, begin=[0, kv * D, 0, 0], end=[B, (kv + 1) * D, 1, S]) for t in (k, v)]
            old = [mb.slice_by_index(x=t, begin=[0, kv, 0, 0], end=[B, kv + 1, T - S, D]) for t in (old_k, old_v)]
            keys = mb.concat(values=[mb.transpose(x=old[0], perm=[0, 2, 1, 3]), mb.transpose(x=own[0], perm=[0, 3, 2, 1])], axis=1)
            values = mb.concat(values=[mb.transpose(x=old[1], perm=[0, 3, 1, 2]), own[1]], axis=3)
            scores = mb.einsum(values=[keys, mb.mul(x=part, y=np.float16(D ** -0.5))], equation="nchw,nwhu->nchu")
            chances = mb.softmax(x=mb.add(x=scores, y=key_mask), axis=1)
            attended.append(mb.einsum(values=[values, chances], equation="nchw,nwhu->nchu"))
        x = mb.add(x=x, y=conv(mb, mb.concat(values=attended, axis=1), w["o"]))
        x = feed_forward(mb, x, w, 1)
        return mb.transpose(x=mb.squeeze(x=x, axes=[2]), perm=[0, 2, 1], name="y")

    return body


FORMS = {"rows_between": (rows_between, {"attention": 1, "conv-linear": 7, "rms-norm": 2, "gated-linear": 1, "linears": 1}),
         "heads_apart": (heads_apart, {"attention": H, "conv-linear": 7, "rms-norm": 2, "gated-linear": 1, "linears": 1})}


@pytest.fixture(scope="module", params=FORMS)
def package(request, tmp_path_factory):
    make, counts = FORMS[request.param]
    mb, f, w = writer.mb, feeds(), weights()
    body = make(mb, w)
    specs = [mb.TensorSpec(shape=f[name].shape, dtype=writer.types.fp16) for name in ("x", "mask", "old_k", "old_v")]

    @mb.program(input_specs=specs, opset_version=writer.TARGETS[17])
    def program(x, mask, old_k, old_v):
        return body(x, mask, old_k, old_v)

    path = tmp_path_factory.mktemp(request.param) / "layer.mlpackage"
    writer.write_package(program, path, 17)
    return path, counts, f, reference(w, f)


def test_counts(package, pome):
    path, counts, _, _ = package
    text = subprocess.run([pome, "inspect", "--plan", str(path)], capture_output=True, text=True, check=True).stdout
    line = re.search(r"^fused: (.*)$", text, re.M).group(1)
    found = dict(re.findall(r"([a-z-]+) (\d+)", line))
    assert {name: int(found[name]) for name in counts} == counts
    assert not re.search(r"^ *\d+ +tensor +(softmax|einsum|conv|matmul) ", text, re.M)


@pytest.mark.parametrize("left_out", ["", "all", "attention", "conv-linear", "rms-norm", "linears,gated-linear"])
def test_values(package, left_out):
    path, _, f, wanted = package
    for threads in (1, 3):
        with Model(path, threads=threads, no_fuse=left_out) as model:
            got = model.predict(f)["y"]
        np.testing.assert_allclose(got, wanted, rtol=HALF_STEP, atol=1e-4)
