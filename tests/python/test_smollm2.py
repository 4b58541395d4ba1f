"""A real model in four encodings against PyTorch in float32 on the weights that are in the package.

Packages and reference values are made once and kept in POME_MODELS (build/models)."""
import hashlib
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from pome_api import Model, Session

pytestmark = pytest.mark.slow
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MODELS = pathlib.Path(os.environ.get("POME_MODELS", ROOT / "build" / "models"))
SCRIPT = ROOT / "scripts" / "make_smollm2.py"
QUANTIZE = ["none", "int8", "lut4", "int4"]
CONTEXT = 512
MARGIN = 0.1
TEXTS = [
    "The old lighthouse keeper climbed the stairs every evening, counting each of the two hundred and twelve steps aloud. " * 16,
    "#include <stdio.h>\n\nint main(void)\n{\n    for (int i = 0; i < 10; i++)\n        printf(\"%d\\n\", i * i);\n    return 0;\n}\n" * 9,
    "Größe, naïve café, 東京タワー, emoji 🙂🚀, números 1234567890 and \t tabs \n\n in between; " * 12,
]


def package_path(quantize):
    return MODELS / f"smollm2-135m-{'fp16' if quantize == 'none' else quantize}.mlpackage"


def stamp():
    """Changes when the packages or the reference values would."""
    return hashlib.sha256(SCRIPT.read_bytes() + repr(TEXTS).encode()).hexdigest()[:16]


@pytest.fixture(scope="session")
def packages():
    for name in ("coremltools", "torch", "transformers", "gguf"):
        pytest.importorskip(name)
    made = MODELS / f"packages-{hashlib.sha256(SCRIPT.read_bytes()).hexdigest()[:16]}"
    if not made.exists():
        for quantize in QUANTIZE:
            subprocess.run(["rm", "-rf", str(package_path(quantize))], check=True)
        subprocess.run([sys.executable, str(SCRIPT), str(MODELS), "--context", str(CONTEXT), "--quantize", *QUANTIZE], check=True,
                       capture_output=True)
        made.touch()
    return package_path


def weights_in(path, config):
    """The weights of a package, decompressed by coremltools, under the names of make_smollm2.py."""
    import coremltools as ct
    import torch

    whole = ct.optimize.coreml.decompress_weights(ct.models.MLModel(str(path), skip_model_load=True))
    found = ct.optimize.coreml.get_weights_metadata(whole, weight_threshold=100)

    def get(stem):
        names = [name for name in found if name in (stem, stem + "_quantized", stem + "_palettized")]
        assert len(names) == 1, (stem, names)
        return torch.from_numpy(found[names[0]].val.astype(np.float32))

    weights = {"embed": get("embed_weight_to_fp16"), "norm": get("norm_weight_to_fp16")}
    for i in range(config["n_layers"]):
        for part in ("q", "k", "v", "o", "gate", "up", "down", "n1", "n2"):
            weights[f"layers.{i}.{part}"] = get(f"layers_{i}_{part}_weight_to_fp16")
    weights["head"] = weights["embed"]  # tied: one constant serves both
    return weights


@pytest.fixture(scope="session")
def reference(packages):
    """(quantize) -> [(ids, logits [n, n_vocab])], computed by PyTorch."""
    def compute(quantize):
        stored = MODELS / f"reference-{quantize}-{stamp()}.npz"
        if not stored.exists():
            sys.path.insert(0, str(SCRIPT.parent))
            import make_smollm2 as maker
            import torch
            from transformers import AutoTokenizer

            tokenizer = AutoTokenizer.from_pretrained(str(MODELS))
            config, _, _ = maker.load_gguf(maker.find_gguf())
            config["epsilon"] = float(np.float16(config["epsilon"]))
            model = maker.StatefulLlama(config, weights_in(packages(quantize), config), CONTEXT).eval()
            model.cos.copy_(model.cos.half().float())  # the tables are fp16 in the package
            model.sin.copy_(model.sin.half().float())
            values = {}
            for i, text in enumerate(TEXTS):
                ids = tokenizer.encode(text)[:300]
                assert len(ids) == 300
                logits = model(torch.tensor([ids], dtype=torch.int32), maker.causal_mask(len(ids), len(ids)))
                values |= {f"ids{i}": np.array(ids, np.int32), f"logits{i}": logits[0].numpy()}
            np.savez(stored, **values)
        data = np.load(stored)
        return [(data[f"ids{i}"], data[f"logits{i}"]) for i in range(len(TEXTS))]

    return compute


def check_rows(got, want):
    top = np.sort(want, axis=-1)
    sure = top[:, -1] - top[:, -2] > MARGIN
    assert sure.any() or len(sure) < 5
    np.testing.assert_array_equal(got.argmax(-1)[sure], want.argmax(-1)[sure])
    cosine = (got * want).sum(-1) / (np.linalg.norm(got, axis=-1) * np.linalg.norm(want, axis=-1))
    assert cosine.min() >= 0.9999


@pytest.mark.parametrize("quantize", QUANTIZE)
def test_every_prompt_position(packages, reference, quantize):
    with Model(packages(quantize), "exact") as model, Session(model) as session:
        for ids, want in reference(quantize):
            for n in (1, 2, 3, 17, 64, 65, 129, 300):
                session.clear()
                check_rows(session.feed_all(ids[:n]).astype(np.float64), want[:n].astype(np.float64))


@pytest.mark.parametrize("quantize", QUANTIZE)
def test_pieces_equal_one_pass(packages, reference, quantize):
    ids, want = reference(quantize)[0]
    rng = np.random.default_rng(7)
    with Model(packages(quantize), "exact") as model, Session(model) as session:
        whole = session.feed_all(ids)
        for cuts in ([1], [299], [150], sorted(rng.choice(np.arange(1, 300), 7, replace=False))):
            session.clear()
            for begin, end in zip([0, *cuts], [*cuts, 300]):
                last = session.append(ids[begin:end])
                assert np.abs(last - whole[end - 1]).max() <= 1e-3 * want.std()


@pytest.mark.parametrize("numerics", ["exact", "fast", "fp16"])
@pytest.mark.parametrize("quantize", ["none", "int4"])
def test_threads_change_no_bit(packages, reference, quantize, numerics):
    ids = reference(quantize)[1][0][:70]
    rows = []
    for threads in (1, 2, 3, 5):
        with Model(packages(quantize), numerics, threads) as model, Session(model) as session:
            rows.append(np.concatenate([session.feed_all(ids), session.append(ids[:1])[None]]))
    for other in rows[1:]:
        np.testing.assert_array_equal(rows[0].view(np.uint32), other.view(np.uint32))


def test_run_needs_little_memory(pome, packages):
    path = packages("int4")
    size = sum(p.stat().st_size for p in path.rglob("*") if p.is_file())
    cache = 2 * 30 * 3 * CONTEXT * 64 * 2  # two states, layers, heads, rows, head size, bytes
    # A small process in between: what a process held before it became the command counts as the command's peak.
    script = ("import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True); "
              "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)")
    done = subprocess.run([sys.executable, "-c", script, pome, "run", str(path), "Why is the sky blue?", "--temperature", "0",
                           "--max-new-tokens", "40"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) > 5
    assert int(done.stderr.split()[-1]) * 1024 <= size + cache + 60e6
