"""Conversion of every family: tiny random models against transformers (and OpenELM against plain PyTorch), in fp16 with a
cache, whole and step by step, and in fp32."""
import numpy as np
import pytest

from family_models import FAMILIES, logits_by_steps, logits_of, make_model
from pome_api import Model, Session
from test_convert import convert


def random_ids(n, seed=3):
    return np.random.default_rng(seed).integers(0, 384, n).astype(np.int32)


def worst(got, want):
    """The largest difference, in standard deviations of what is wanted."""
    assert np.isfinite(got).all()
    return np.abs(got - want).max() / want.std()


@pytest.mark.parametrize("family", FAMILIES)
def test_family(pome, tmp_path, family):
    model = make_model(family, tmp_path / "model")
    ids = random_ids(100)
    want = logits_of(model, ids)
    out = tmp_path / "out.mlpackage"
    done = convert(pome, tmp_path / "model", out, "--quantize", "none", "--context", 128)
    assert done.stderr.count("warning") == 1 and "no tokenizer" in done.stderr, done.stderr
    with Model(out, "exact") as opened, Session(opened) as session:
        whole = session.feed_all(ids)
        session.clear()
        steps = np.array([session.append(ids[:37])] + [session.append(ids[i:i + 1]) for i in range(37, 60)])
    convert(pome, tmp_path / "model", out, "--precision", "fp32", "--context", 128, "--force")
    with Model(out, "exact") as opened, Session(opened) as session:
        exact = session.feed_all(ids)
    figures = worst(whole, want), worst(steps, want[36:60]), worst(exact, want)
    print(family, *(f"{f:.2g}" for f in figures))
    assert figures[0] <= 0.006 and figures[1] <= 0.006 and figures[2] <= 1e-4
