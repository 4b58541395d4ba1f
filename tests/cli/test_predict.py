"""`pome predict`: arrays in and out, states, what is missing or does not fit. NumPy is the judge of the files."""
import json
import zipfile

import numpy as np
import pytest


@pytest.fixture
def stored(package):
    return np.load(str(package).replace(".mlpackage", ".expected.npz"))


def causal(n_rows, end):
    mask = np.full((1, 1, n_rows, end), -30000, np.float16)
    for row in range(n_rows):
        mask[..., row, : end - n_rows + row + 1] = 0
    return mask


@pytest.fixture
def inputs(stored, tmp_path):
    prompt = stored["prompt"].astype(np.int32)[None]
    np.save(tmp_path / "ids.npy", prompt)
    np.save(tmp_path / "mask.npy", causal(prompt.shape[1], prompt.shape[1]))
    return ["--input", "inputIds=ids.npy", "--input", "causalMask=mask.npy"]


# A cache in fp16 moves the stored logits, which come from one in float32, by up to 0.08.
TOLERANCE = 0.1


def test_outputs_to_a_folder(pome, package, stored, inputs, tmp_path):
    done = pome("predict", package, *inputs, "--output", "out")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    logits = np.load(tmp_path / "out" / "logits.npy")
    assert logits.dtype == np.float16 and logits.shape == (1, len(stored["prompt"]), 512)
    assert np.abs(logits[0] - stored["prefill_logits"]).max() < TOLERANCE


def test_steps_with_states(pome, package, stored, inputs, tmp_path):
    """The prompt in one process, each further token in one of its own, the states in a file between them."""
    assert pome("predict", package, *inputs, "--state-out", "s.npz", "--output", "o.npz").returncode == 0
    assert set(np.load(tmp_path / "s.npz").files) == {"keyCache", "valueCache"}
    end = len(stored["prompt"])
    for step in range(4):
        end += 1
        np.save(tmp_path / "ids.npy", stored["greedy"][step].astype(np.int32).reshape(1, 1))
        np.save(tmp_path / "mask.npy", causal(1, end))
        done = pome("predict", package, *inputs, "--state-in", "s.npz", "--state-out", "s.npz", "--output", "o.npz")
        assert done.returncode == 0, done.stderr
        logits = np.load(tmp_path / "o.npz")["logits"][0, 0]
        assert np.abs(logits - stored["step_logits"][step]).max() < TOLERANCE


def test_every_form_of_an_array(pome, package, inputs, tmp_path):
    """Other types, byte orders and layouts of the same numbers give the same bytes."""
    ids, mask = np.load(tmp_path / "ids.npy"), np.load(tmp_path / "mask.npy")
    results = set()
    for n, (a, b) in enumerate([(ids, mask), (ids.astype(np.int64), mask.astype(np.float32)), (ids.astype(">i4"), mask.astype(">f2")),
                                (ids.astype(np.uint16), mask.astype(np.float64)),
                                (np.asfortranarray(ids), np.asfortranarray(mask))]):
        np.save(tmp_path / "a.npy", a)
        np.savez_compressed(tmp_path / "b.npz", causalMask=b, other=np.arange(3))
        done = pome("predict", package, "--input", "inputIds=a.npy", "--input", "causalMask=b.npz", "--output", f"{n}.npz")
        assert done.returncode == 0, done.stderr
        results.add(np.load(tmp_path / f"{n}.npz")["logits"].tobytes())
    assert len(results) == 1


def test_one_file_for_all_inputs(pome, package, inputs, tmp_path):
    np.savez(tmp_path / "in.npz", inputIds=np.load(tmp_path / "ids.npy"), causalMask=np.load(tmp_path / "mask.npy"), text=np.array("no input"))
    done = pome("predict", package, "--input", "in.npz")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("logits  fp16 [1, ")


def test_json_summary(pome, package, inputs, stored):
    summary = json.loads(pome("predict", package, *inputs, "--json").stdout)
    (logits,) = summary["outputs"]
    assert set(logits) == {"name", "dtype", "shape", "min", "max", "mean", "n_nan", "n_infinite"}
    assert logits["shape"] == [1, len(stored["prompt"]), 512] and logits["n_nan"] == 0
    assert abs(logits["max"] - stored["prefill_logits"].max()) < TOLERANCE
    assert abs(logits["mean"] - stored["prefill_logits"].mean()) < 0.02


def test_the_file_is_reproducible(pome, package, inputs, tmp_path):
    for name in ("a.npz", "b.npz"):
        pome("predict", package, *inputs, "--output", name)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    assert zipfile.ZipFile(tmp_path / "a.npz").namelist() == ["logits.npy"]


def test_scores(pome, golden, tmp_path):
    package = golden / "nocache" / "scores-range-fp32-tied.mlpackage"
    npz = np.load(str(package).replace(".mlpackage", ".expected.npz"))
    ids = npz["prompt"].astype(np.int32)[None]
    np.savez(tmp_path / "in.npz", input_ids=ids, attention_mask=np.ones_like(ids))
    assert pome("predict", package, "--input", "in.npz", "--output", "out.npz").returncode == 0
    assert np.abs(np.load(tmp_path / "out.npz")["token_scores"][0] - npz["prefill_scores"]).max() < 1e-5


# ---- what does not fit ----

def test_missing_inputs_are_listed(fails, package, inputs):
    fails(1, ["inputs are missing: inputIds int32 [1, 1..128], causalMask fp16 [1, 1, 1..128, 1..128]"], "predict", package)
    fails(1, ["inputs are missing: causalMask"], "predict", package, *inputs[:2])


def test_unknown_input(fails, package, inputs):
    fails(1, ["no input 'inputids'; did you mean 'inputIds'?", "it has: inputIds, causalMask"], "predict", package, "--input", "inputids=ids.npy")


@pytest.mark.parametrize("array,part", [
    (np.zeros((1, 200), np.int32), "inputIds"),
    (np.zeros((2, 3), np.int32), "inputIds"),
    (np.zeros(3, np.int32), "inputIds"),
    (np.array(["a"]), "<U1"),
    (np.zeros(3, np.complex64), "<c8"),
])
def test_arrays_that_do_not_fit(fails, package, inputs, tmp_path, array, part):
    np.save(tmp_path / "ids.npy", array)
    fails(1, [part], "predict", package, *inputs)


def test_files_that_are_not_there_or_damaged(fails, package, inputs, tmp_path):
    fails(1, ["no.npy: No such file or directory"], "predict", package, "--input", "inputIds=no.npy")
    fails(1, ["no.npz"], "predict", package, "--input", "no.npz")
    fails(1, ["expected NAME=FILE.npy"], "predict", package, "--input", "ids.npy")
    fails(1, ["not a regular file"], "predict", package, "--input", f"inputIds={tmp_path}")
    whole = (tmp_path / "ids.npy").read_bytes()
    for n in (0, 5, 20, len(whole) - 1):
        (tmp_path / "ids.npy").write_bytes(whole[:n])
        fails(1, ["ids.npy"], "predict", package, *inputs)
    (tmp_path / "x.npz").write_bytes(b"PK\x03\x04 no archive")
    fails(1, ["x.npz"], "predict", package, "--input", "x.npz")


def test_states_that_do_not_fit(fails, package, inputs, golden, tmp_path):
    np.savez(tmp_path / "s.npz", keyCache=np.zeros((4, 1, 2, 128, 16), np.float16))
    fails(1, ["no array for state 'valueCache'"], "predict", package, *inputs, "--state-in", "s.npz")
    np.savez(tmp_path / "s.npz", keyCache=np.zeros((4, 1, 2, 128, 8), np.float16), valueCache=np.zeros(1))
    fails(1, ["shape of 'keyCache'"], "predict", package, *inputs, "--state-in", "s.npz")
    stateless = golden / "nocache" / "layer1-logits-fixed64-lut6.mlpackage"
    np.savez(tmp_path / "in.npz", input_ids=np.zeros((1, 64), np.int32), attention_mask=np.ones((1, 64), np.int32))
    fails(1, ["has no states"], "predict", stateless, "--input", "in.npz", "--state-out", "s.npz")


def test_output_that_cannot_be_written(fails, package, inputs, tmp_path):
    (tmp_path / "file").write_text("")
    fails(1, ["file"], "predict", package, *inputs, "--output", "file/out")
    fails(1, ["no/where.npz"], "predict", package, *inputs, "--output", "no/where.npz")


def test_unknown_function(fails, package, inputs):
    fails(1, ["no function 'other'", "it has: main"], "predict", package, *inputs, "--function", "other")
