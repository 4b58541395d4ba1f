"""Conversion to other kinds of packages: iOS 16, fp32, states per layer. Oracle: transformers on tiny random models; every
kind is opened, loaded into a program and saved again by coremltools, and gives the same logits afterwards."""
import contextlib
import json
import signal
import subprocess
import time

import numpy as np
import pytest

from family_models import make_model
from pome_api import DTYPES, Model, Session
from test_convert import (CHECKPOINT, assert_same_files, change_config, checkpoint, convert,  # noqa: F401 (a fixture)
                          read_safetensors, write_safetensors)

FAMILIES = ["llama-tied-biased", "llama3", "mistral-window", "qwen3", "gemma2", "gemma3", "phi3", "openelm", "gpt2"]


def oracle(family, folder, n=100):
    torch = pytest.importorskip("torch")
    model = make_model(family, folder)
    ids = np.random.default_rng(3).integers(0, 384, n).astype(np.int32)
    with torch.no_grad():
        return ids, model(torch.from_numpy(ids.astype(np.int64))[None]).logits[0].double().numpy()


def assert_close(got, want, tolerance):
    assert np.isfinite(got).all()
    away = (got - want) / want.std()
    assert np.abs(away).max() <= 2 * tolerance and np.sqrt(np.mean(away ** 2)) <= tolerance / 2, (np.abs(away).max(), away.std())


def all_rows(path, ids, numerics="exact"):
    with Model(path, numerics) as opened, Session(opened) as session:
        return session.feed_all(ids)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("options,tolerance", [(["--target", "iOS16", "--quantize", "none"], 0.006), (["--precision", "fp32"], 5e-5),
                                               (["--target", "iOS16", "--precision", "fp32"], 5e-5)],
                         ids=["ios16", "fp32", "ios16-fp32"])
def test_without_cache(pome, tmp_path, family, options, tolerance):
    ids, want = oracle(family, tmp_path / "model")
    out = tmp_path / "out.mlpackage"
    convert(pome, tmp_path / "model", out, *options, "--context", 128)
    assert_close(all_rows(out, ids), want, tolerance)


@pytest.mark.parametrize("names", ["apple", "snake"])
def test_states_per_layer(pome, tmp_path, names):
    ids, want = oracle("gemma3", tmp_path / "model")
    out = tmp_path / "out.mlpackage"
    convert(pome, tmp_path / "model", out, "--quantize", "none", "--context", 128, "--states", "per-layer", "--names", names)
    with Model(out, "exact") as opened, Session(opened) as session:
        whole = session.feed_all(ids)
        session.clear()
        session.append(ids[:37])
        steps = np.array([session.append(ids[i:i + 1]) for i in range(37, 60)])
        states = {opened.function().states[i].name.decode(): tuple(opened.function().states[i].shape[:4]) for i in range(14)}
    assert_close(whole, want, 0.006)
    assert_close(steps, want[37:60], 0.006)
    stem = "keyCache" if names == "apple" else "key_cache"
    assert states[f"{stem}_0"] == states[f"{stem}_6"] == (1, 1, 128, 32)


# ---- sets of chunks ----

class Chunks(contextlib.ExitStack):
    """The packages PREFIX_chunk1 ... of a set, opened; the other two of a set with a window by name."""

    def __init__(self, folder, numerics="exact"):
        super().__init__()
        self.n = len(list(folder.glob("*_chunk*.mlpackage")))
        self.models = [self.enter_context(Model(self.path(folder, i), numerics)) for i in range(self.n)]
        self.run = [self.enter_context(m.predictor()) for m in self.models]
        self.states = [self.enter_context(m.state()) if m.function().n_states else None for m in self.models]
        self.processors = {p.stem: self.enter_context(self.enter_context(Model(p, numerics)).predictor())
                           for p in folder.glob("*-processor.mlpackage")}

    @staticmethod
    def path(folder, i):
        return folder / f"{folder.name}_chunk{i + 1}.mlpackage"

    def through(self, i, given, values):
        """Runs package i with what it takes of `values`."""
        names = self.models[i].input_names()
        return self.run[i]({**{k: values[k] for k in names if k in values}, **given}, self.states[i])


def stateful_logits(chunks, ids, begin, names=("inputIds", "causalMask")):
    """Logits [n, vocabulary] of tokens begin ... of a text, the earlier ones of which are in the states."""
    n, end = len(ids) - begin, len(ids)
    mask = np.where(np.arange(end)[None] > np.arange(begin, end)[:, None], -np.inf, 0).astype(np.float16)[None, None]
    values = chunks.through(0, {names[0]: ids[None, begin:].astype(np.int32), names[1]: mask}, {})
    assert set(values) <= {"x", "cos", "sin", "mask"}
    for i in range(1, chunks.n - 1):
        values |= {"x": chunks.through(i, {}, values)["new_x"]}
    logits = chunks.through(chunks.n - 1, {}, values)["logits"]
    assert logits.shape[:2] == (1, n)
    return logits[0].astype(np.float64)


def sizes(folder, n):
    """Layers in each group, from the states or the caches."""
    found = []
    for i in range(1, n + 1):
        with Model(Chunks.path(folder, i)) as model:
            f = model.function()
            found.append(f.states[0].shape[0] if f.n_states else sum(name.startswith("k_cache") for name in model.input_names()))
    return found


@pytest.mark.parametrize("family", FAMILIES)
def test_stateful_chunks(pome, tmp_path, family):
    ids, want = oracle(family, tmp_path / "model")
    out = tmp_path / "out"
    report = json.loads(convert(pome, tmp_path / "model", f"{out}/", "--chunks", 2, "--quantize", "none", "--context", 128).stdout)
    assert report["packages"] == 4 and sorted(p.name for p in out.glob("*.mlpackage")) == [f"out_chunk{i}.mlpackage" for i in range(1, 5)]
    layers = sizes(out, 2)
    assert layers[0] - layers[1] in (0, 1) and sum(layers) == report["layers"]
    with Chunks(out) as chunks:
        got = [stateful_logits(chunks, ids[:37], 0)]
        got += [stateful_logits(chunks, ids[:n], n - 1) for n in range(38, 60)]
        got += [stateful_logits(chunks, ids, 59)]
    assert_close(np.concatenate(got), want, 0.006)
    if family == "gemma3":
        with Chunks(out, "fp16") as chunks:
            assert_close(stateful_logits(chunks, ids, 0), want, 0.05)


WINDOW, CACHED = 64, 448


def window_logits(chunks, ids, n_prompt):
    """Logits [n - n_prompt + 1, vocabulary] of the last tokens of a text as the host of these sets computes them: whole windows
    of the prompt first, then a window again for each token, whose keys and values go into the cache once it is full."""
    caches, rows = {}, []
    for count in [*range(WINDOW, n_prompt, WINDOW), *range(n_prompt, len(ids) + 1)]:
        m = (count - 1) % WINDOW + 1
        window = np.zeros((1, WINDOW), np.int32)
        window[0, :m] = ids[count - m:count]
        length = np.array([count + WINDOW - m], np.int32)
        values = chunks.run[0]({"input_ids": window, "full_sequence_length": length})
        for i in range(1, chunks.n - 1):
            mine = caches.setdefault(i, {})
            for name in chunks.models[i].input_names():
                if "_cache_" in name and name not in mine:
                    shape = next(chunks.models[i].function().inputs[k] for k in range(chunks.models[i].function().n_inputs)
                                 if chunks.models[i].function().inputs[k].name.decode() == name).shape[:4]
                    mine[name] = np.zeros(shape, np.float16)
            given = chunks.through(i, mine, values)
            values |= {"x": given["new_x"]}
            if m < WINDOW:
                continue
            for k in range(len(mine) // 2):
                moved = chunks.processors["cache-processor"]({
                    "old_k_cache": mine[f"k_cache_{k}"], "new_k_cache": given[f"new_k_cache_{k}"],
                    "old_v_cache": mine[f"v_cache_{k}"], "new_v_cache": given[f"new_v_cache_{k}"]})
                mine |= {f"k_cache_{k}": moved["updated_k_cache"], f"v_cache_{k}": moved["updated_v_cache"]}
        parts = chunks.run[chunks.n - 1]({"x": values["x"]})
        logits = np.concatenate([parts[k] for k in sorted(parts, key=lambda k: int(k.partition("_")[2] or 0))], -1)
        assert chunks.processors["logit-processor"](parts)["argmax"][0, m - 1] == logits[0, m - 1].argmax()
        if count >= n_prompt:
            rows.append(logits[0, m - 1].astype(np.float64))
    return np.array(rows)


@pytest.mark.parametrize("family", [f for f in FAMILIES if f not in ("gpt2", "openelm")])  # those are refused, see below
@pytest.mark.parametrize("target", ["iOS18", "iOS16"])
def test_window_chunks(pome, tmp_path, family, target):
    if target == "iOS16" and family not in ("llama3", "gemma3"):
        pytest.skip("two families tell")
    ids, want = oracle(family, tmp_path / "model", 150)
    out = tmp_path / "out"
    convert(pome, tmp_path / "model", out, "--chunks", 2, "--chunk-style", "llm-cli", "--quantize", "none", "--target", target)
    with Chunks(out) as chunks:
        got = window_logits(chunks, ids, 100)
    assert_close(got, want[99:], 0.006)
    top = np.sort(want[99:], axis=-1)
    sure = top[:, -1] - top[:, -2] > 0.02 * want.std()
    assert sure.mean() > 0.7
    np.testing.assert_array_equal(got.argmax(-1)[sure], want[99:].argmax(-1)[sure])


def test_window_chunks_have_the_known_interface(pome, checkpoint, tmp_path):
    """Names, shapes and types of the sets that coreml-llm-cli runs."""
    out = tmp_path / "tiny-llama"
    convert(pome, checkpoint, out, "--chunks", 2, "--chunk-style", "llm-cli")
    assert (out / "tokenizer.json").exists()

    def features(name):
        with Model(out / f"{name}.mlpackage") as model:
            f = model.function()
            return [[(fs[i].name.decode(), DTYPES[fs[i].dtype], tuple(fs[i].shape[:fs[i].rank])) for i in range(n)]
                    for fs, n in ((f.inputs, f.n_inputs), (f.outputs, f.n_outputs))]

    half, whole = "float16", "int32"
    x = ("x", half, (1, 64, 8, 8))
    shared = [x, ("cos", half, (16, 64)), ("sin", half, (16, 64)), ("mask", half, (1, 1, 64, 512))]
    caches = [(f"{kind}_cache_{i}", half, (1, 32, 1, 448)) for i in range(2) for kind in "kv"]
    new = [(f"new_{kind}_cache_{i}", half, (1, 32, 1, 64)) for i in range(2) for kind in "kv"]
    assert features("tiny-llama_chunk1") == [[("input_ids", whole, (1, 64)), ("full_sequence_length", whole, (1,))], shared]
    for i in (2, 3):
        assert features(f"tiny-llama_chunk{i}") == [shared + caches, [("new_x", half, (1, 64, 8, 8))] + new]
    assert features("tiny-llama_chunk4") == [[x], [("logits", half, (1, 64, 512))]]
    assert features("logit-processor") == [[("logits", half, (1, 64, 512))], [("argmax", whole, (1, 64))]]
    assert features("cache-processor") == [
        [(f"{age}_{kind}_cache", half, (1, 32, 1, n)) for kind in "kv" for age, n in (("old", 448), ("new", 64))],
        [(f"updated_{kind}_cache", half, (1, 32, 1, 448)) for kind in "kv"]]


# ---- coremltools ----

def through_coremltools(path, folder, decompress=False):
    """The package loaded into a MIL program by coremltools and saved from it; gives the new path and the program."""
    ct = pytest.importorskip("coremltools")
    from coremltools.converters.mil.mil.passes.pass_registry import PASS_REGISTRY
    from coremltools.models import utils
    model = ct.models.MLModel(str(path), skip_model_load=True)
    model.save(str(folder / "resaved.mlpackage"))
    program = utils._convert_model_spec_to_pymil_prog(model, model.get_spec().specificationVersion,
                                                      utils._milproto_to_pymil.load)
    nothing = PASS_REGISTRY["common::dead_code_elimination"]
    again = ct.optimize.coreml.decompress_weights(model) if decompress else utils._apply_graph_pass(model, nothing)
    assert again.get_spec().specificationVersion == model.get_spec().specificationVersion
    again.save(str(folder / "again.mlpackage"))
    return [folder / "resaved.mlpackage", folder / "again.mlpackage"], program


KINDS = {
    "ios16": ["--target", "iOS16"],
    "ios16-none": ["--target", "iOS16", "--quantize", "none"],
    "fp32": ["--precision", "fp32"],
    "per-layer": ["--states", "per-layer"],
    "per-layer-snake": ["--states", "per-layer", "--names", "snake"],
    "stacked": [],
}


@pytest.mark.parametrize("kind", KINDS)
def test_coremltools_opens_it(pome, checkpoint, tmp_path, kind):
    ct = pytest.importorskip("coremltools")
    out = tmp_path / "out.mlpackage"
    convert(pome, checkpoint, out, *KINDS[kind])
    ids = np.load(CHECKPOINT / "expected.npz")["prompt"].astype(np.int32)
    want = all_rows(out, ids)
    saved, program = through_coremltools(out, tmp_path, decompress="ios16" == kind)
    for path in saved:
        np.testing.assert_array_equal(all_rows(path, ids), want)
    spec = ct.models.MLModel(str(out), skip_model_load=True).get_spec()
    main = program.functions["main"]
    if "ios16" in kind:
        assert spec.specificationVersion == 7 and main.opset_version == ct.target.iOS16
        assert not {op.op_type for op in main.operations} & {"scaled_dot_product_attention", "read_state"}
    else:
        assert spec.specificationVersion == 9 and main.opset_version == ct.target.iOS18
    names = [f.name for f in spec.description.state]
    stems = ("key_cache", "value_cache") if "snake" in kind else ("keyCache", "valueCache")
    assert names == ([f"{stem}_{i}" for i in range(4) for stem in stems] if "per-layer" in kind
                     else list(stems) if kind == "stacked" else [])
    length = spec.description.input[0].type.multiArrayType.shapeRange.sizeRanges[1]
    assert (length.lowerBound, length.upperBound) == (1, 128)


def random_inputs(model, seed=0):
    """Values for a package of a set, as flexible sizes 5 tokens of 9."""
    rng, values = np.random.default_rng(seed), {}
    f = model.function()
    for feature in (f.inputs[i] for i in range(f.n_inputs)):
        name, shape = feature.name.decode(), [feature.shape[k] for k in range(feature.rank)]
        if feature.is_ranged:
            shape = [9 if k == 3 else 5 if feature.range[k].max > feature.range[k].min else n for k, n in enumerate(shape)]
        if DTYPES[feature.dtype] == "int32":
            values[name] = rng.integers(0, 300, shape).astype(np.int32) if len(shape) == 2 else np.array([100], np.int32)
        else:
            values[name] = (rng.standard_normal(shape) * 0.5).astype(np.float16)
    return values


SETS = {
    "stateful": [],
    "stateful-per-layer-snake": ["--states", "per-layer", "--names", "snake"],
    "llm-cli": ["--chunk-style", "llm-cli"],
    "llm-cli-lut4": ["--chunk-style", "llm-cli", "--quantize", "lut4", "--granularity", "per-grouped-channel", "--group-size", 16],
    "llm-cli-ios16": ["--chunk-style", "llm-cli", "--target", "iOS16"],
    "llm-cli-ios16-lut6": ["--chunk-style", "llm-cli", "--target", "iOS16", "--quantize", "lut6"],
}


@pytest.mark.parametrize("kind", SETS)
def test_coremltools_opens_sets(pome, checkpoint, tmp_path, kind):
    pytest.importorskip("coremltools")
    out = tmp_path / "out"
    convert(pome, checkpoint, out, "--chunks", 2, *SETS[kind])
    packages = sorted(out.glob("*.mlpackage"))
    assert len(packages) == (6 if "llm-cli" in kind else 4)
    for package in packages:
        folder = tmp_path / package.stem
        folder.mkdir()
        with Model(package, "exact") as model:
            values = random_inputs(model)
            want = model.predict(values)
        saved, program = through_coremltools(package, folder, decompress=kind == "llm-cli")
        assert program.functions["main"].opset_version.value == (7 if "ios16" in kind else 9)
        for path in saved:
            with Model(path, "exact") as model:
                got = model.predict(values)
            for name in want:
                np.testing.assert_array_equal(got[name], want[name], err_msg=f"{package.name} {name}")


@pytest.mark.parametrize("family", ["gemma2", "gemma3", "qwen2", "phi3-partial-longrope", "gpt2", "openelm"])
def test_coremltools_opens_families(pome, tmp_path, family):
    pytest.importorskip("coremltools")
    ids, _ = oracle(family, tmp_path / "model", 60)
    out = tmp_path / "out.mlpackage"
    convert(pome, tmp_path / "model", out, "--quantize", "none", "--context", 128)
    want = all_rows(out, ids)
    for path in through_coremltools(out, tmp_path)[0]:
        np.testing.assert_array_equal(all_rows(path, ids), want)


# ---- what packages say of themselves; options ----

def test_metadata(pome, checkpoint, tmp_path):
    ct = pytest.importorskip("coremltools")
    convert(pome, checkpoint, tmp_path / "a.mlpackage", "--model-name", "owner/model")
    convert(pome, checkpoint, tmp_path / "b", "--model-name", "owner/model", "--chunks", 1, "--chunk-style", "llm-cli")
    convert(pome, checkpoint, tmp_path / "c.mlpackage", "--precision", "fp32")
    for path in [tmp_path / "a.mlpackage", *(tmp_path / "b").glob("*.mlpackage")]:
        user = ct.models.MLModel(str(path), skip_model_load=True).user_defined_metadata
        assert user["co.huggingface.exporters.name"] == "owner/model"
        assert user["co.huggingface.exporters.architecture"] == "LlamaForCausalLM"
        assert user["co.huggingface.exporters.precision"] == "float16"
    user = ct.models.MLModel(str(tmp_path / "c.mlpackage"), skip_model_load=True).user_defined_metadata
    assert "co.huggingface.exporters.name" not in user and user["co.huggingface.exporters.precision"] == "float32"


@pytest.mark.parametrize("out,options,parts", [
    ("out.mlpackage", ["--target", "iOS16", "--quantize", "int4"], ["iOS 16", "int4"]),
    ("out.mlpackage", ["--target", "iOS16", "--keep", "head=int4"], ["head", "iOS 16"]),
    ("out.mlpackage", ["--target", "iOS16", "--block-size", 32, "--quantize", "int8"], ["iOS 16", "blocks"]),
    ("out.mlpackage", ["--target", "iOS16", "--states", "per-layer"], ["no states"]),
    ("out.mlpackage", ["--precision", "fp32", "--quantize", "int8"], ["fp32"]),
    ("out.mlpackage", ["--chunks", 2], ["folder"]),
    ("out", [], [".mlpackage"]),
    ("out", ["--chunks", 5], ["4 layers", "5 chunks"]),
    ("out", ["--chunks", 2, "--target", "iOS16"], ["no states", "llm-cli"]),
    ("out", ["--chunks", 2, "--precision", "fp32"], ["fp16"]),
    ("out", ["--chunks", 2, "--chunk-style", "llm-cli", "--context", 1024], ["512", "1024"]),
    ("out", ["--chunks", 2, "--chunk-style", "llm-cli", "--states", "per-layer"], ["llm-cli", "no states"]),
])
def test_refused_options(pome, checkpoint, tmp_path, out, options, parts):
    done = convert(pome, checkpoint, tmp_path / out, *options, check=False)
    assert done.returncode == 1, done.stderr
    for part in parts:
        assert part in done.stderr, done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["checkpoint"]


@pytest.mark.parametrize("family,parts", [("gpt2", ["learned positions"]), ("openelm", ["heads in each layer"]),
                                          ("llama-dynamic", ["dynamic"]), ("llama-longrope", ["longrope"])])
def test_families_that_windows_cannot_express(pome, tmp_path, family, parts):
    make_model(family, tmp_path / "model")
    done = convert(pome, tmp_path / "model", tmp_path / "out", "--chunks", 2, "--chunk-style", "llm-cli", check=False)
    assert done.returncode == 1 and "llm-cli" in done.stderr, done.stderr
    for part in parts:
        assert part in done.stderr, done.stderr


def test_large_vocabularies_have_several_heads(pome, checkpoint, tmp_path):
    tensors = read_safetensors(checkpoint / "model.safetensors")
    n_vocab, rng = 40_000, np.random.default_rng(2)
    bits = (rng.standard_normal((n_vocab, 64)).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        tensors[name] = ("BF16", [n_vocab, 64], bits.tobytes())
    write_safetensors(checkpoint / "model.safetensors", tensors)
    change_config(checkpoint, vocab_size=n_vocab)
    one, out = tmp_path / "one.mlpackage", tmp_path / "out"
    convert(pome, checkpoint, one, "--quantize", "none")
    convert(pome, checkpoint, out, "--quantize", "none", "--chunks", 1, "--chunk-style", "llm-cli")
    ids = rng.integers(0, n_vocab, 20)
    with Chunks(out) as chunks:
        f = chunks.models[-1].function()
        assert [f.outputs[i].shape[2] for i in range(f.n_outputs)] == [13333, 13333, 13334]
        got = window_logits(chunks, ids, 20)
    assert_close(got[0], all_rows(one, ids)[-1].astype(np.float64), 0.006)


# ---- sets are written as one ----

def test_sets_are_whole_or_not_there(pome, checkpoint, tmp_path):
    out = tmp_path / "set"
    planned = json.loads(convert(pome, checkpoint, out, "--chunks", 2, "--dry-run").stdout)
    assert planned["packages"] == 4 and not out.exists()
    convert(pome, checkpoint, out, "--chunks", 2)
    assert sum(p.stat().st_size for p in out.rglob("weight.bin")) == planned["weights_bytes"]
    assert not list(out.rglob("progress")) and (out / "tokenizer.json").exists()
    assert not list(out.glob("*.mlpackage/tokenizer.json"))
    again = tmp_path / "other" / "set"
    again.parent.mkdir()
    convert(pome, checkpoint, again, "--chunks", 2)
    assert_same_files(out, again)
    refused = convert(pome, checkpoint, out, "--chunks", 3, check=False)
    assert refused.returncode == 1 and "--force" in refused.stderr
    convert(pome, checkpoint, out, "--chunks", 3, "--force")
    assert len(list(out.glob("*.mlpackage"))) == 5
    assert sorted(p.name for p in tmp_path.iterdir()) == ["checkpoint", "other", "set"]


def test_sets_resume_after_a_kill(pome, checkpoint, tmp_path):
    """A large embedding makes the first and the last package long enough to be killed in."""
    n_vocab = 150_000
    rows = np.random.default_rng(1).standard_normal((n_vocab, 64)).astype(np.float32)
    tensors = read_safetensors(checkpoint / "model.safetensors")
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        tensors[name] = ("BF16", [n_vocab, 64], (rows.view(np.uint32) >> 16).astype(np.uint16).tobytes())
    write_safetensors(checkpoint / "model.safetensors", tensors)
    change_config(checkpoint, vocab_size=n_vocab)
    whole, resumed = tmp_path / "whole" / "set", tmp_path / "resumed" / "set"
    whole.parent.mkdir()
    resumed.parent.mkdir()
    options = ["--no-check", "--quantize-search", "mse", "--chunks", 2, "--chunk-style", "llm-cli"]
    convert(pome, checkpoint, whole, *options)
    other = subprocess.Popen([pome, "convert", str(checkpoint), str(resumed), "--no-check", "--quantize-search", "mse", "--chunks", "4"],
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(0.5)
    other.kill()  # what another conversion left must not get in
    other.wait()
    n_killed = 0
    for delay in (0.1, 0.3, 0.5, 0.8):
        process = subprocess.Popen([pome, "convert", str(checkpoint), str(resumed), "--resume", *map(str, options)],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(delay)
        process.kill()
        n_killed += process.wait() == -signal.SIGKILL
        if resumed.exists():
            break
    assert n_killed > 0
    if not resumed.exists():
        convert(pome, checkpoint, resumed, "--resume", *options)
    assert_same_files(whole, resumed)


@pytest.mark.parametrize("family", ["gemma2", "mistral-window"])
def test_finite_in_halves(pome, tmp_path, family):
    """Every result of every operator, each rounded to a half, is a number."""
    ids, want = oracle(family, tmp_path / "model")
    np.save(tmp_path / "ids.npy", ids[None])
    np.save(tmp_path / "mask.npy", np.triu(np.full((1, 1, 100, 100), -32752, np.float16), 1))
    inputs = ["--input", f"inputIds={tmp_path / 'ids.npy'}", "--input", f"causalMask={tmp_path / 'mask.npy'}"]
    for name, options in (("a.mlpackage", []), ("b.mlpackage", ["--target", "iOS16"])):
        out = tmp_path / name
        convert(pome, tmp_path / "model", out, "--quantize", "none", "--context", 128, *options)
        done = subprocess.run([pome, "predict", str(out), *inputs[:2 if "--target" in options else 4], "--numerics", "fp16",
                               "--check-finite"], text=True, capture_output=True)
        assert done.returncode == 0, done.stderr
        assert_close(all_rows(out, ids, "fp16"), want, 0.05)
