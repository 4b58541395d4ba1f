"""`pome perplexity`: windows, strides, stored runs, comparisons. Expected values come from the logits that PyTorch gave
for the packages (tests/golden/README.md), and from the file format read and written here by other means."""
import json
import math
import os
import pathlib
import signal
import subprocess
import time

import numpy as np
import pytest

from conftest import POME


def log_softmax(x):
    x = x.astype(np.float64)
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


class Stored:
    """Prompt and log probabilities of a package from elsewhere."""

    def __init__(self, package):
        npz = np.load(str(package).replace(".mlpackage", ".expected.npz"))
        self.ids = npz["prompt"]
        self.log_p = log_softmax(npz["prefill_logits"])

    def nll(self, positions, offset=0):
        return [-self.log_p[i - offset, self.ids[i + 1]] for i in positions]


@pytest.fixture
def stored(package):
    return Stored(package)


@pytest.fixture
def ids_file(stored, tmp_path):
    path = tmp_path / "ids.txt"
    path.write_text(" ".join(map(str, stored.ids)) + "\n")
    return path


def result(pome, *args):
    done = pome("perplexity", *args, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def write_run(path, n_context, ids, log_p):
    """A stored run as llama.cpp's perplexity tool writes it."""
    n_windows, n_vocab = len(ids) // n_context, log_p.shape[-1]
    with open(path, "wb") as f:
        f.write(b"_logits_" + np.array([n_context, n_vocab, n_windows], "<i4").tobytes())
        f.write(np.asarray(ids[:n_windows * n_context], "<i4").tobytes())
        for row in log_p:
            low = max(row.min(), row.max() - 16)
            scale = (row.max() - low) / 65535
            f.write(np.array([scale, low], "<f4").tobytes())
            codes = np.clip(np.rint((row - low) / scale), 0, 65535).astype("<u2")
            f.write(np.concatenate([codes, np.zeros(n_vocab % 2, "<u2")]).tobytes())


def read_run(path):
    data = path.read_bytes()
    assert data[:8] == b"_logits_"
    n_context, n_vocab, n_windows = np.frombuffer(data, "<i4", 3, 8)
    ids = np.frombuffer(data, "<i4", n_context * n_windows, 20)
    rows = np.frombuffer(data, "<u2", offset=20 + ids.nbytes).reshape(n_windows * (n_context - 1 - n_context // 2), -1)
    head = np.ascontiguousarray(rows[:, :4]).view("<f4")
    return n_context, ids, head[:, :1].astype(np.float64) * rows[:, 4:4 + n_vocab] + head[:, 1:]


def test_one_window_with_every_token_scored(pome, package, stored, ids_file):
    d = result(pome, package, ids_file, "--ids", "-c", 11, "--stride", 11)
    nll = stored.nll(range(10))
    assert d["scored"] == 10 and d["windows"] == 1 and d["tokens"] == 11 and d["numerics"] == "exact"
    assert d["nll"] == pytest.approx(np.mean(nll), rel=1e-3)
    assert d["perplexity"] == pytest.approx(math.exp(np.mean(nll)), rel=1e-2)
    assert d["perplexity_stderr"] == pytest.approx(math.exp(np.mean(nll)) * np.std(nll) / 3, rel=2e-2)


def test_second_half_of_windows(pome, package, stored, tmp_path):
    """Two equal windows: each gives what the prompt alone gives, so none sees the other."""
    (tmp_path / "twice.txt").write_text(",".join(map(str, [*stored.ids[:10], *stored.ids[:10], 5, 6])))
    d = result(pome, package, "twice.txt", "--ids", "-c", 10)
    assert d["windows"] == 2 and d["scored"] == 2 * 4 and d["stride"] == 0
    assert d["nll"] == pytest.approx(np.mean(stored.nll(range(5, 9))), rel=1e-3)
    assert result(pome, package, "twice.txt", "--ids", "-c", 10, "--chunks", 1)["scored"] == 4


def test_strides_score_each_token_once(pome, package, golden, stored, ids_file):
    for stride, windows, scored in ((1, 6, 10), (2, 4, 10), (3, 3, 10), (5, 2, 10), (6, 2, 9)):  # nothing stands before token 6
        d = result(pome, package, ids_file, "--ids", "-c", 6, "--stride", stride)
        assert (d["windows"], d["scored"]) == (windows, scored), stride
    first = sum(stored.nll(range(5)))
    one = result(pome, package, ids_file, "--ids", "-c", 6, "--stride", 1, "--chunks", 1)
    assert one["nll"] * 5 == pytest.approx(first, rel=1e-3) and one["scored"] == 5


def test_short_text_is_one_strided_window(pome, fails, package, stored, tmp_path):
    (tmp_path / "short.txt").write_text(" ".join(map(str, stored.ids[:4])))
    d = result(pome, package, "short.txt", "--ids", "--stride", 64)
    assert d["scored"] == 3 and d["nll"] == pytest.approx(np.mean(stored.nll(range(3))), rel=1e-3)
    fails(1, ["the text has 4 tokens, a window takes 128"], "perplexity", package, "short.txt", "--ids")


def test_without_a_cache(pome, golden, tmp_path):
    """Scores (a softmax) of a model that sees the whole text each time."""
    package = golden / "nocache" / "scores-range-fp32-tied.mlpackage"
    npz = np.load(str(package).replace(".mlpackage", ".expected.npz"))
    (tmp_path / "ids.txt").write_text(" ".join(map(str, npz["prompt"])))
    nll = [-math.log(npz["prefill_scores"][i, npz["prompt"][i + 1]]) for i in range(13)]
    d = result(pome, package, "ids.txt", "--ids", "-c", 14, "--stride", 14)
    assert d["nll"] == pytest.approx(np.mean(nll), rel=1e-3) and d["scored"] == 13


def test_text(pome, package, tokenizer, tmp_path):
    text = "The quick brown fox jumps over the lazy dog. " * 12
    (tmp_path / "text.txt").write_text(text)
    lines = pome("tokenize", tokenizer, text).stdout.splitlines()
    (tmp_path / "ids.txt").write_text(" ".join(line.split("\t")[0] for line in lines))
    by_text = result(pome, package, "text.txt", "--tokenizer", tokenizer, "-c", 32, "--stride", 32)
    by_ids = result(pome, package, "ids.txt", "--ids", "-c", 32, "--stride", 32)
    assert by_text["tokens"] == len(lines) and by_text["nll"] == by_ids["nll"]
    done = pome("perplexity", package, "-", "--tokenizer", tokenizer, "-c", 32, "--stride", 32, "--json", input=text)
    assert json.loads(done.stdout)["nll"] == by_text["nll"]


def test_logits_are_stored(pome, package, stored, ids_file, tmp_path):
    d = result(pome, package, ids_file, "--ids", "-c", 11, "--logits-out", "run.logits")
    n_context, ids, log_p = read_run(tmp_path / "run.logits")
    assert n_context == 11 and ids.tolist() == stored.ids.tolist() and log_p.shape == (5, 512)
    want = np.maximum(stored.log_p[5:10], stored.log_p[5:10].max(-1, keepdims=True) - 16)
    np.testing.assert_allclose(log_p, want, atol=3e-2)
    assert d["nll"] == pytest.approx(np.mean(stored.nll(range(5, 10))), rel=1e-3)
    assert sorted(p.name for p in tmp_path.glob("run*")) == ["run.logits"]


def test_comparison_with_a_stored_run(pome, package, stored, ids_file, tmp_path):
    rng = np.random.default_rng(3)
    base = log_softmax(stored.log_p[5:10] + rng.normal(0, 2, (5, 512)))
    base[1] = stored.log_p[6]
    write_run(tmp_path / "base.logits", 11, stored.ids, base)
    model = stored.log_p[5:10]
    divergence = (np.exp(base) * (base - model)).sum(-1)
    clipped = np.maximum(base, base.max(-1, keepdims=True) - 16)  # as the file has it
    next_ids = stored.ids[6:11]
    rows = np.arange(5)
    for args in ((), (ids_file, "--ids")):
        d = result(pome, package, *args, "--compare", "base.logits")["divergence"]
        assert d["kl_mean"] == pytest.approx(divergence.mean(), rel=2e-2)
        assert d["kl_max"] == pytest.approx(divergence.max(), rel=2e-2)
        assert d["kl_median"] == pytest.approx(np.median(divergence), rel=2e-2)
        assert d["kl_stderr"] == pytest.approx(divergence.std() / 2, rel=2e-2)
        assert d["top1_agreement"] == pytest.approx((base.argmax(-1) == model.argmax(-1)).mean())
        assert d["perplexity_base"] == pytest.approx(np.exp(-clipped[rows, next_ids].mean()), rel=1e-3)
        ratio = np.exp((clipped - model)[rows, next_ids].mean())
        assert d["perplexity_ratio"] == pytest.approx(ratio, rel=3e-2)
        change = np.exp(model[rows, next_ids]) - np.exp(clipped[rows, next_ids])
        assert d["probability_rms"] == pytest.approx(np.sqrt((change ** 2).mean()), rel=2e-2, abs=1e-6)
    text = pome("perplexity", package, "--compare", "base.logits")
    assert text.returncode == 0 and "KL divergence  mean 0." in text.stdout and "same top token" in text.stdout


def test_a_run_equals_itself(pome, package, ids_file):
    pome("perplexity", package, ids_file, "--ids", "-c", 5, "--logits-out", "run.logits")
    d = result(pome, package, "--compare", "run.logits")
    assert d["windows"] == 2 and d["context"] == 5
    assert 0 <= d["divergence"]["kl_max"] < 1e-5 and d["divergence"]["top1_agreement"] == 1


def test_numerics_side_by_side(pome, package, ids_file, tmp_path):
    """The same figures as through a file."""
    pome("perplexity", package, ids_file, "--ids", "-c", 11, "--numerics", "exact", "--logits-out", "exact.logits")
    stored = result(pome, package, "--compare", "exact.logits", "--numerics", "fp16")["divergence"]
    beside = result(pome, package, ids_file, "--ids", "-c", 11, "--against", "exact", "--numerics", "fp16")
    d = beside["divergence"]
    assert beside["numerics"] == "fp16" and d["base"] == "exact" and d["kl_mean"] > 0
    assert d["kl_mean"] == pytest.approx(stored["kl_mean"], abs=1e-5)
    exact = result(pome, package, ids_file, "--ids", "-c", 11, "--numerics", "exact")
    assert d["perplexity_base"] == pytest.approx(exact["perplexity"], rel=1e-4)
    assert d["perplexity_ratio"] == pytest.approx(beside["perplexity"] / exact["perplexity"], rel=1e-4)
    assert d["top1_agreement"] == stored["top1_agreement"]


def test_threads_change_nothing(pome, package, ids_file):
    one, three = (result(pome, package, ids_file, "--ids", "-c", 11, "--threads", n)["nll"] for n in (1, 3))
    assert one == three


def test_damaged_runs_are_refused(fails, package, stored, tmp_path):
    good = tmp_path / "good.logits"
    write_run(good, 11, stored.ids, stored.log_p[5:10])
    data = good.read_bytes()
    bad = tmp_path / "bad.logits"

    def refuse(content, *parts):
        bad.write_bytes(content)
        fails(1, ["bad.logits", *parts], "perplexity", package, "--compare", bad)

    refuse(b"", "no file of log probabilities")
    refuse(b"_logitz_" + data[8:], "no file of log probabilities")
    refuse(data[:19], "no file of log probabilities")
    for cut in (20, 40, len(data) - 1):
        refuse(data[:cut], f"{cut} bytes, expected {len(data)}")
    for words in ((0, 512, 1), (11, -1, 1), (11, 512, 0), (2**30, 512, 1), (11, 512, -5)):
        refuse(data[:8] + np.array(words, "<i4").tobytes() + data[20:], "cannot be")
    refuse(data[:8] + np.array((2**20, 512, 2**30), "<i4").tobytes() + data[20:], "bytes, expected")
    refuse(data[:64] + np.array([np.nan], "<f4").tobytes() + data[68:], "a row holds no numbers")
    for step, low in ((1, 0), (-1, -5), (3e38, -16), (0, 0.5), (1e-4, -3)):
        refuse(data[:64] + np.array([step, low], "<f4").tobytes() + data[72:], "logarithms of probabilities are at most 0")
    bad.write_bytes(data[:20] + np.array([512], "<i4").tobytes() + data[24:])
    fails(1, ["token id 512 at position 0 is outside the vocabulary"], "perplexity", package, "--compare", bad)
    fails(1, ["nothing.logits: No such file"], "perplexity", package, "--compare", "nothing.logits")


def test_figures_beyond_a_double(pome, package, stored, tmp_path):
    """A base that finds every token impossible; JSON has no infinity."""
    path = tmp_path / "none.logits"
    write_run(path, 11, stored.ids, stored.log_p[5:10])
    data = bytearray(path.read_bytes())
    row = (len(data) - 64) // 5
    for i in range(5):
        data[64 + i * row:72 + i * row] = np.array([0, -1e30], "<f4").tobytes()
    path.write_bytes(data)
    d = result(pome, package, "--compare", path)["divergence"]
    assert d["perplexity_base"] is None and d["kl_mean"] == 0 and d["perplexity_ratio"] == 0
    assert "perplexity inf" in pome("perplexity", package, "--compare", path).stdout


def test_stored_run_of_something_else(fails, golden, package, stored, ids_file, tmp_path):
    write_run(tmp_path / "base.logits", 11, [*stored.ids[:10], 1], stored.log_p[5:10])
    fails(1, ["made of another text: token 10 differs"], "perplexity", package, ids_file, "--ids", "--compare", "base.logits")
    write_run(tmp_path / "small.logits", 11, stored.ids, stored.log_p[5:10, :100])
    fails(1, ["vocabulary of 100, the model one of 512"], "perplexity", package, "--compare", "small.logits")
    write_run(tmp_path / "long.logits", 200, [1] * 200, np.repeat(stored.log_p[:1], 99, 0))
    fails(1, ["windows of 200 tokens, the model holds 128"], "perplexity", package, "--compare", "long.logits")


def test_a_stored_run_takes_no_devices_place(fails, package, ids_file, tmp_path):
    """Its name is given by renaming, which would replace a pipe, a device or a folder."""
    os.mkfifo(tmp_path / "pipe")
    for target in ("pipe", ".", "/dev/null"):
        fails(1, [f"{target} is not a regular file"], "perplexity", package, ids_file, "--ids", "-c", 11, "--logits-out", target)
    assert (tmp_path / "pipe").is_fifo() and pathlib.Path("/dev/null").is_char_device()
    assert not list(tmp_path.glob("*.partial"))


def test_full_disk(package, ids_file, environment, tmp_path):
    """A limit on file sizes stands for it."""
    (tmp_path / "run.logits").write_text("old")
    done = subprocess.run(["sh", "-c", 'ulimit -f 4; trap "" XFSZ; exec "$@"', "sh", POME, "perplexity", str(package), str(ids_file),
                           "--ids", "-c", "11", "--logits-out", "run.logits"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, cwd=tmp_path, env=environment, timeout=60)
    assert done.returncode == 1 and "run.logits.partial: File too large" in done.stderr
    assert (tmp_path / "run.logits").read_text() == "old" and not list(tmp_path.glob("*.partial"))


def test_texts_that_are_none(pome, fails, package, tokenizer, tmp_path):
    base = ["--tokenizer", tokenizer, "-c", 32]
    fails(1, ["the text has 0 tokens, a window takes 32"], "perplexity", package, "-", *base, input="")
    fails(1, ["the text has 0 tokens, a window takes 32"], "perplexity", package, "-", *base, "--stride", 4, input="")
    fails(1, ["a window takes 32"], "perplexity", package, "-", *base, input="Hi")
    (tmp_path / "utf16.txt").write_bytes("Once upon a time. ".encode("utf-16-le") * 20)
    (tmp_path / "latin1.txt").write_bytes("Où est-il? ".encode("latin-1") * 20)
    done = pome("perplexity", package, "latin1.txt", *base)
    assert done.returncode == 0 and "latin1.txt is not UTF-8" in done.stderr
    assert pome("perplexity", package, "latin1.txt", *base, "-q").stderr == ""
    done = pome("perplexity", package, "utf16.txt", *base)  # of ASCII it is UTF-8, with zeros
    assert done.returncode == 0 and done.stderr == ""
    fails(1, ["standard input: 'x' is not a token id"], "perplexity", package, "-", "--ids", "-c", 4, input="1 2 x")
    one = pome("perplexity", package, "-", *base, "--chunks", 1, "-c", 4, input="Once upon a time there was")
    assert "(1 token scored in 1 window of 4," in one.stdout, one.stdout


def test_output_that_cannot_be_written(package, ids_file, environment, tmp_path):
    for end in (["--json"], []):
        with open("/dev/full", "w") as full:
            done = subprocess.run([POME, "perplexity", str(package), str(ids_file), "--ids", "-c", "11", *end], stdout=full,
                                  stderr=subprocess.PIPE, text=True, env=environment, timeout=60)
        assert done.returncode == 1 and "cannot write to standard output: No space left on device" in done.stderr


def test_wrong_usage(fails, package, ids_file, tmp_path):
    fails(2, ["no text"], "perplexity", package)
    fails(2, ["too few arguments"], "perplexity")
    fails(2, ["exclude each other"], "perplexity", package, ids_file, "--compare", "x", "--against", "fast")
    fails(2, ["no --stride with --logits-out"], "perplexity", package, ids_file, "--stride", 4, "--logits-out", "x")
    fails(2, ["nothing would differ"], "perplexity", package, ids_file, "--numerics", "fast", "--against", "fast")
    fails(1, ["--stride 100 is longer than a window of 64"], "perplexity", package, ids_file, "--ids", "-c", 64, "--stride", 100)
    fails(1, ["missing.txt: No such file"], "perplexity", package, "missing.txt", "--ids")
    fails(1, ["tokenizer"], "perplexity", package, ids_file)
    (tmp_path / "bad.txt").write_text("1 2 x")
    fails(1, ["bad.txt: 'x' is not a token id"], "perplexity", package, "bad.txt", "--ids")
    (tmp_path / "big.txt").write_text("1 2 600 3 4 5")
    fails(1, ["token id 600 at position 2 is outside the vocabulary of 512"], "perplexity", package, "big.txt", "--ids", "-c", 4)
    fails(1, ["nowhere/x.logits"], "perplexity", package, ids_file, "--ids", "-c", 11, "--logits-out", "nowhere/x.logits")


def test_interruption(package, environment, tmp_path):
    (tmp_path / "ids.txt").write_text(" ".join(str(i % 512) for i in range(200000)))
    process = subprocess.Popen([POME, "perplexity", str(package), "ids.txt", "--ids", "-c", "32", "--logits-out", "run.logits"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path, env=environment)
    begin = time.monotonic()
    while not (tmp_path / "run.logits.partial").exists() and time.monotonic() - begin < 30:
        time.sleep(0.01)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130 and err == "", err
    assert "interrupted after " in out
    assert not (tmp_path / "run.logits").exists() and not (tmp_path / "run.logits.partial").exists()
