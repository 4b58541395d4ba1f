"""Packages with stored results: greedy paths through `pome run`, logits through predictions, in exact and in fp16 mode.
With POME_SAMPLES set, every package below that folder that has expected values is run too."""
import os
import pathlib
import subprocess

import numpy as np
import pytest

from pome_api import Model

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "golden"
MARGIN = 0.1  # where the two best logits are nearer than this, a run may part from the stored path
# Largest difference from the stored logits, whose standard deviation is about 8.5. The stored ones come from a cache in
# float32; rounding the cache to the fp16 that the package declares, and nothing else, moves them by up to 0.08.
TOLERANCE = {"exact": 0.1, "fp16": 0.3}
# Against values computed with a cache in fp16 (fp16_states.npz): half a step of an fp16 logit below 32, and a little.
TOLERANCE_FP16_STATES = 0.02
TOLERANCE_STATELESS = 0.05


def expected_files():
    roots = [GOLDEN] + [pathlib.Path(p) for p in [os.environ.get("POME_SAMPLES")] if p]
    for root in roots:
        for npz in sorted(root.rglob("*.expected.npz")):
            package = npz.with_name(npz.name.removesuffix(".expected.npz") + ".mlpackage")
            if package.is_dir():
                yield f"{npz.parent.name}/{package.stem}", package, npz


def functions(npz):
    """Function names that a file of expected values speaks of; None is the default one."""
    return sorted({key.rpartition(".")[0] or None for key in np.load(npz).files if key.rpartition(".")[2] == "greedy"},
                  key=lambda name: name or "")


CASES = [(f"{label}{':' + function if function else ''}", package, npz, function)
         for label, package, npz in expected_files() for function in functions(npz)]
each_case = pytest.mark.parametrize("package,npz,function", [case[1:] for case in CASES], ids=[case[0] for case in CASES])


def stored(npz, function):
    prefix = function + "." if function else ""
    data = np.load(npz)
    return {key.removeprefix(prefix): data[key] for key in data.files if key.startswith(prefix)}


def run_greedy(pome, package, ids, n, options):
    command = [pome, "run", str(package), "--ids", ",".join(map(str, ids)), "--temperature", "0", "--print-ids", "--ignore-eos",
               "--max-new-tokens", str(n), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1, "ids belong in one line"
    return [int(word) for word in done.stdout.split()]


def check_path(got, want, margins):
    assert len(got) == len(want)
    sure = next((i for i, margin in enumerate(margins) if margin < MARGIN), len(want))
    assert got[:sure] == list(want[:sure])


@each_case
@pytest.mark.parametrize("numerics", ["exact", "fp16", "fast"])
def test_greedy_path(pome, package, npz, function, numerics):
    want = stored(npz, function)
    options = ["--numerics", numerics] + (["--function", function] if function else [])
    got = run_greedy(pome, package, want["prompt"].tolist(), len(want["greedy"]), options)
    if numerics == "fast":  # int8 activations may leave the path anywhere; the first choices are clear ones
        assert len(got) == len(want["greedy"]) and all(0 <= i < 512 for i in got)
    else:
        check_path(got, want["greedy"].tolist(), want["margins"])


# ---- logits, each kind of package driven by hand ----

def causal(n, end):
    """[1, 1, n, end]: row i sees the first end - n + i + 1 columns."""
    return np.where(np.arange(end) <= np.arange(end - n, end)[:, None], 0, -np.inf).astype(np.float16)[None, None]


class Driver:
    """Feeds ids to a model whatever its kind; gives one row of logits for each."""

    def __init__(self, model, run, state, function):
        info = model.function(function)
        self.run, self.state = run, state
        self.inputs = {info.inputs[i].name.decode(): info.inputs[i] for i in range(info.n_inputs)}
        self.ids = next(name for name in self.inputs if name.lower().replace("_", "") == "inputids")
        self.mask = next((name for name in self.inputs if name.lower().replace("_", "") == "causalmask"), None)
        self.outputs = [info.outputs[i].name.decode() for i in range(info.n_outputs)]
        self.caches = {name: np.zeros([0 if f.is_ranged and f.range[k].min == 0 else f.shape[k] for k in range(f.rank)], np.float16)
                       for name, f in self.inputs.items() if "cache" in name.lower() or "past" in name}
        self.fed = []

    def lengths(self):
        """Query lengths a call may have: listed, or None for any."""
        f = self.inputs[self.ids]
        return sorted(f.enumerated[i * f.rank + 1] for i in range(f.n_enumerated)) or None

    def feed(self, ids):
        if not self.state and not self.caches:
            return self.feed_whole(ids)
        rows, listed = [], self.lengths()
        while ids:
            n = len(ids) if not listed else max(k for k in listed if k <= len(ids))
            rows.append(self.call(ids[:n]))
            ids = ids[n:]
        return np.concatenate(rows)

    def call(self, ids):
        n, end = len(ids), len(self.fed) + len(ids)
        inputs = {self.ids: np.array([ids], np.int32), **self.caches}
        if "position" in self.inputs:
            inputs["position"] = np.array([len(self.fed)], np.int32)
        if self.mask:
            whole = self.lengths() is not None  # listed lengths go with a mask over the whole context
            mask = causal(n, end)
            if whole:
                size = self.inputs[self.mask].shape[3]
                mask = np.concatenate([mask, np.full((1, 1, n, size - end), -np.inf, np.float16)], 3)
            inputs[self.mask] = mask
        out = self.run(inputs, self.state)
        for name, output in zip(self.caches, [o for o in self.outputs if "present" in o], strict=True):
            self.caches[name] = out[output]
        self.fed += ids
        return out[self.outputs[0]][0].astype(np.float64)

    def feed_whole(self, ids):
        before, self.fed = len(self.fed), self.fed + ids
        f, n = self.inputs[self.ids], len(self.fed)
        listed = self.lengths()
        size = n if f.is_ranged and not listed else min(k for k in listed or [f.shape[1]] if k >= n)
        inputs = {self.ids: np.array([self.fed + [0] * (size - n)], np.int32)}
        if "attention_mask" in self.inputs:
            inputs["attention_mask"] = np.array([[1] * n + [0] * (size - n)], np.int32)
        return self.run(inputs, None)[self.outputs[0]][0, before:n].astype(np.float64)


@each_case
@pytest.mark.parametrize("numerics", ["exact", "fp16"])
def test_logits(package, npz, function, numerics):
    want = stored(npz, function)
    with Model(package, numerics) as model, model.predictor(function) as run:
        if model.function(function).n_states:
            with model.state(function) as state:
                check_logits(Driver(model, run, state, function), want, package, function, numerics)
        else:
            check_logits(Driver(model, run, None, function), want, package, function, numerics)


def check_logits(driver, want, package, function, numerics):
    prefill = driver.feed(want["prompt"].tolist())
    if "prefill_scores" in want:
        # Scores are a softmax: the sum is 1, and the logits are compared through it.
        tolerance = 1e-5 if numerics == "exact" else 1e-3
        assert np.abs(prefill - want["prefill_scores"]).max() <= tolerance
        assert np.abs(prefill.sum(-1) - 1).max() <= tolerance
        return
    steps = np.concatenate([driver.feed([int(i)]) for i in want["greedy"][: len(want["step_logits"])]])
    tolerance = TOLERANCE[numerics] if driver.state or numerics == "fp16" else TOLERANCE_STATELESS
    assert np.abs(prefill - want["prefill_logits"]).max() <= tolerance
    assert np.abs(steps - want["step_logits"]).max() <= tolerance
    fp16_states = np.load(GOLDEN / "fp16_states.npz")
    label = f"{package.parent.name}/{package.stem}" + (f":{function}" if function else "")
    if numerics == "exact" and driver.state and package.is_relative_to(GOLDEN):
        assert np.abs(prefill - fp16_states[label + ".prefill_logits"]).max() <= TOLERANCE_FP16_STATES
        assert np.abs(steps - fp16_states[label + ".step_logits"]).max() <= TOLERANCE_FP16_STATES


@pytest.mark.parametrize("package,npz", [case[1:3] for case in CASES if "explicit-kv" in case[2].parts],
                         ids=[case[0] for case in CASES if "explicit-kv" in case[2].parts])
def test_explicit_caches(package, npz):
    """The greedy path by predictions that hand the caches on; test_greedy_path has `run` do so."""
    want = stored(npz, None)
    with Model(package, "exact") as model, model.predictor() as run:
        driver, got = Driver(model, run, None, None), []
        row = driver.feed(want["prompt"].tolist())[-1]
        for _ in want["greedy"]:
            got.append(int(row.argmax()))
            row = driver.feed(got[-1:])[-1]
    check_path(got, want["greedy"].tolist(), want["margins"])


# ---- the same through the command ----

@pytest.mark.parametrize("name,ids", [("nocache/layer1-logits-fixed64-lut6", "input_ids"), ("explicit-kv/static-int4", "inputIds")])
def test_predict_command(pome, golden, tmp_path, name, ids):
    want = np.load(golden / (name + ".expected.npz"))
    prompt = want["prompt"]
    n = len(prompt)
    inputs = {ids: prompt[None]}
    if name.startswith("nocache"):
        inputs = {ids: np.zeros((1, 64), np.int32), "attention_mask": np.zeros((1, 64), np.int32)}
        inputs[ids][0, :n], inputs["attention_mask"][0, :n] = prompt, 1
    else:
        cache = np.zeros((4, 1, 2, 128, 16), np.float16)
        inputs |= {"causalMask": causal(n, n), "keyCache": cache, "valueCache": cache}
    options = []
    for key, value in inputs.items():
        np.save(tmp_path / f"{key}.npy", value)
        options += ["--input", f"{key}={tmp_path / key}.npy"]
    out = tmp_path / "out.npz"
    done = subprocess.run([pome, "predict", str(golden / (name + ".mlpackage")), *options, "--output", str(out), "--numerics", "exact"],
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    logits = np.load(out)["logits"]
    assert logits.dtype == np.float16
    assert np.abs(logits[0, :n].astype(np.float64) - want["prefill_logits"]).max() <= TOLERANCE_STATELESS
