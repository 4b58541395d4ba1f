"""Speculation in the command: the ids are those of plain decoding, acceptance is reported, a cache that cannot go back is
named. A difference is allowed only where the two best logits are practically equal (fast numerics)."""
import json
import os
import pathlib
import subprocess

import numpy as np
import pytest

from pome_api import Model, Session

MODELS = pathlib.Path(os.environ.get("POME_MODELS", pathlib.Path(__file__).resolve().parent.parent.parent / "build" / "models"))
TIE = 1e-3  # of the logits' standard deviation


def run(pome, package, ids, n, *args):
    command = [pome, "run", str(package), "--ids", ",".join(map(str, ids)), "-n", str(n), "--ignore-eos", "--print-ids", "--json", "--stats", *args]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout), done.stderr


def assert_same(package, numerics, prompt, plain, drafted):
    """Equal ids, or a first difference at a tie."""
    if plain == drafted:
        return
    at = next(i for i, (a, b) in enumerate(zip(plain, drafted)) if a != b)
    with Model(package, numerics) as model, Session(model) as session:
        logits = session.feed_all(prompt + plain[:at])[-1]
    second, first = np.sort(logits)[-2:]
    assert {plain[at], drafted[at]} == set(np.argsort(logits)[-2:]), (at, plain[at], drafted[at])
    assert first - second < TIE * logits.std(), (at, first - second, logits.std())


PROMPTS = [[(i * step + begin) % 500 + 1 for i in range(length)] for begin, step, length in ((1, 7, 5), (3, 1, 20), (9, 111, 12))]
PROMPTS.append([5, 9, 200, 31, 77, 5, 9, 200, 31, 77, 5, 9])


@pytest.mark.parametrize("name", ["apple/int4-block32", "enumerated/stateful-int4", "nocache/scores-range-fp32-tied"])
@pytest.mark.parametrize("numerics", ["exact", "fast"])
def test_same_ids(pome, golden, name, numerics):
    package = golden / f"{name}.mlpackage"
    for prompt in PROMPTS:
        plain, _ = run(pome, package, prompt, 60, "--temperature", "0", "--numerics", numerics)
        assert "drafted_tokens" not in plain
        drafted, _ = run(pome, package, prompt, 60, "--temperature", "0", "--numerics", numerics, "--speculate", "8")
        if numerics == "exact":
            assert drafted["ids"] == plain["ids"]
        assert_same(package, numerics, prompt, plain["ids"], drafted["ids"])
        assert 0 <= drafted["accepted_tokens"] <= drafted["drafted_tokens"]
        assert drafted["stats"]["decode_passes"] + drafted["accepted_tokens"] == plain["stats"]["decode_passes"] == 59


def test_same_ids_with_seeds(pome, golden):
    package = golden / "apple" / "int4-block32.mlpackage"
    sample = ["--temperature", "1.5", "--top-k", "20", "--numerics", "exact"]
    for seed in range(4):
        answers = [run(pome, package, PROMPTS[3], 80, *sample, "--seed", str(seed), "--speculate", n)[0]["ids"] for n in ("0", "4")]
        assert answers[0] == answers[1]


def test_stats(pome, golden):
    command = [pome, "run", str(golden / "apple" / "int4-block32.mlpackage"), "--ids", "1,2,3,1,2,3,1,2", "-n", "50", "--ignore-eos",
               "--print-ids", "--temperature", "0", "--stats"]
    text = subprocess.run([*command, "--speculate", "8"], capture_output=True, text=True, check=True).stderr
    line = next(line for line in text.splitlines() if line.startswith("drafts "))
    assert "accepted" in line and "passes" in line
    assert "drafts " not in subprocess.run(command, capture_output=True, text=True, check=True).stderr


def test_a_cache_that_moves(pome, golden):
    package = golden / "snake" / "shift-fp16.mlpackage"
    plain, _ = run(pome, package, PROMPTS[0], 20, "--temperature", "0")
    answer, notes = run(pome, package, PROMPTS[0], 20, "--temperature", "0", "--speculate", "8")
    assert answer["ids"] == plain["ids"]
    assert "--speculate is not used: the model's cache cannot go back" in notes


def test_wrong_lengths(pome, golden):
    for n in ("-1", "128", "many"):
        done = subprocess.run([pome, "run", str(golden / "apple" / "int4-block32.mlpackage"), "--ids", "1", "--speculate", n],
                              capture_output=True, text=True)
        assert done.returncode == 2 and "--speculate" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("numerics", ["fast", "exact"])
def test_smollm2(pome, numerics):
    """Prompts without and with repeats; with POME_TEST_LONG in the environment 20 of them, 256 tokens each."""
    if numerics == "exact" and "POME_TEST_LONG" not in os.environ:
        pytest.skip("takes minutes; POME_TEST_LONG in the environment runs it")
    package = MODELS / "smollm2-135m-int4.mlpackage"
    if not package.exists():
        pytest.skip("scripts/make_smollm2.py has not been run")
    n_same, n_tokens = 0, 256 if "POME_TEST_LONG" in os.environ else 96
    prompts = range(20) if "POME_TEST_LONG" in os.environ else (0, 3, 8, 19)
    for i in prompts:
        prompt = [(i * 7919 + k * (31 + i)) % 49000 + 1 for k in range(6 + 2 * i)]
        prompt += prompt[: i]
        plain, drafted = (run(pome, package, prompt, n_tokens, "--temperature", "0", "--numerics", numerics, "--speculate", n)[0]
                          for n in ("0", "16"))
        assert_same(package, numerics, prompt, plain["ids"], drafted["ids"])
        n_same += plain["ids"] == drafted["ids"]
    assert n_same >= 0.75 * len(prompts)
