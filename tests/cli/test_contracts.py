"""Every contract through the command: greedy ids, what inspect says, --contract and --map, refusals with their wording."""
import json
import shutil

import numpy as np
import pytest

SETS = ["anemll", "coreml-llm-sliding", "coreml-llm-caches"]
GREEDY = ["--temperature", "0", "--print-ids", "--ignore-eos", "--numerics", "exact", "--quiet"]


def ids_of(values):
    return ",".join(map(str, values))


def run_ids(pome, model, prompt, n, *options):
    done = pome("run", model, "--ids", ids_of(prompt), "--max-new-tokens", n, *GREEDY, *options)
    assert done.returncode == 0, done.stderr
    return [int(word) for word in done.stdout.split()]


@pytest.fixture
def copied(golden, tmp_path):
    """copied("anemll"): a set of tests/golden/contracts that may be broken."""
    def copy(name):
        return shutil.copytree(golden / "contracts" / name, tmp_path / name)
    return copy


def explain(pome, model, *options):
    done = pome("inspect", model, *options)
    assert done.returncode == 0, done.stderr
    return next(line.strip() for line in done.stdout.splitlines() if "contract:" in line)


# ---- sets ----

@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("prefix", ["", "long_"])
def test_greedy_path_of_sets(pome, golden, name, prefix):
    folder = golden / "contracts" / name
    want = np.load(folder / "expected.npz")
    assert want[prefix + "margins"].min() > 0.2
    got = run_ids(pome, folder, want[prefix + "prompt"].tolist(), len(want[prefix + "greedy"]))
    assert got == want[prefix + "greedy"].tolist()


@pytest.mark.parametrize("name", SETS)
def test_speculation_changes_nothing(pome, golden, name):
    folder = golden / "contracts" / name
    want = np.load(folder / "expected.npz")
    assert run_ids(pome, folder, want["long_prompt"].tolist(), 24, "--speculate", "8") == want["long_greedy"].tolist()


def test_prompts_of_awkward_lengths(pome, golden):
    """ANEMLL's batch is 16: one by one, one batch, a padded one, several, up to the end of the context."""
    folder = golden / "contracts" / "anemll"
    want = np.load(folder / "expected.npz")
    whole = want["long_prompt"].tolist() + want["long_greedy"].tolist()
    first = len(want["long_prompt"])
    for n in (first, first + 1, first + 10, first + 11, first + 12):
        assert run_ids(pome, folder, whole[:n], 3) == whole[n:n + 3]
    done = pome("run", folder, "--ids", ids_of([1] * 64), "--max-new-tokens", "4", *GREEDY)
    assert done.returncode == 0 and len(done.stdout.split()) == 1  # the context is full
    done = pome("run", folder, "--ids", ids_of([1] * 65), *GREEDY)
    assert done.returncode == 1 and "65 tokens" in done.stderr and "64" in done.stderr


def test_what_inspect_says_of_sets(pome, golden):
    assert explain(pome, golden / "contracts/anemll") == (
        "contract: anemll, 2 chunks, prefill of 16, 1 state, ids=input_ids, mask=causal_mask (context), position=current_pos, "
        "logits=logits1..logits8, because embeddings, layers with a common state and a head are models of their own, and meta.yaml "
        "is there; context 64, vocabulary 96")
    text = explain(pome, golden / "contracts/coreml-llm-caches")
    assert text.startswith("contract: coreml-llm, 3 chunks, 4 caches") and text.endswith("vocabulary 96, no logits")
    document = json.loads(pome("inspect", golden / "contracts/anemll", "--json").stdout)
    assert document["contract"].startswith("anemll, 2 chunks") and len(document["models"]) == 4


def test_a_model_that_picks_tokens_itself(pome, fails, golden, tmp_path):
    folder = golden / "contracts/coreml-llm-sliding"
    want = np.load(folder / "expected.npz")
    done = pome("run", folder, "--ids", ids_of(want["prompt"]), "--max-new-tokens", "24", "--print-ids", "--ignore-eos", "--temperature", "2")
    assert [int(i) for i in done.stdout.split()] == want["greedy"].tolist()
    assert "picks tokens itself and gives no logits: temperature, top-k and the like do nothing" in done.stderr
    (tmp_path / "ids.txt").write_text("1 2 3")
    fails(1, ["the model picks tokens itself and gives no logits to measure"], "perplexity", folder, tmp_path / "ids.txt")


def test_broken_anemll_sets(fails, copied):
    folder = copied("anemll")
    shutil.rmtree(folder / "llama_FFN_PF_chunk_02of02.mlpackage")
    fails(1, ["fit no known contract: 1 of 2 chunks of layers are there", "nearest: anemll"], "run", folder, "--ids", "1", *GREEDY)
    shutil.rmtree(folder)
    folder = copied("anemll")
    shutil.rmtree(folder / "llama_lm_head.mlpackage")
    fails(1, ["there is no model with a head (hidden states in, logits out)"], "run", folder, "--ids", "1", *GREEDY)


def test_broken_coreml_llm_sets(fails, copied):
    folder = copied("coreml-llm-sliding")
    scales = folder / "embed_tokens_scales.bin"
    scales.write_bytes(scales.read_bytes()[:-2])
    fails(1, ["embed_tokens_scales.bin: 190 bytes, 96 rows need 192"], "run", folder, "--ids", "1", *GREEDY)
    (folder / "embed_tokens_q8.bin").unlink()
    fails(1, ["input 'hidden_states' wants embed_tokens_q8.bin and its scales, or embed_weight.bin"], "run", folder, "--ids", "1", *GREEDY)
    folder = copied("coreml-llm-caches")
    (folder / "model_config.json").write_text("{}")
    fails(1, ["input 'cos' wants rotary rows (.npy, or rope_theta in model_config.json)"], "run", folder, "--ids", "1", *GREEDY)
    np.save(folder / "cos.npy", np.zeros((64, 4), np.float16))
    fails(1, ["cos.npy: the shape is not [positions, 8]"], "run", folder, "--ids", "1", *GREEDY)
    (folder / "cos.npy").write_bytes(b"\x93NUMPY\x01\x00\xff\xff")
    fails(1, ["cos.npy: no .npy array"], "run", folder, "--ids", "1", *GREEDY)


@pytest.mark.parametrize("gone, reason", [
    ("chunk_0", "chunk_0 is missing: the chunks begin with chunk_1"),
    ("chunk_1", "between chunk_0 and chunk_2 chunks are missing")])
def test_chunks_that_could_be_left_out(fails, copied, gone, reason):
    """What is left fits together, but is another model."""
    folder = copied("coreml-llm-caches")
    shutil.copytree(folder / "chunk_1.mlpackage", folder / "chunk_2.mlpackage")
    shutil.rmtree(folder / (gone + ".mlpackage"))
    fails(1, [reason], "run", folder, "--ids", "1", *GREEDY)


@pytest.mark.parametrize("text, reason", [
    ("", "model_config.json:1:"), ('{"embed_scale": 2', "model_config.json:1:"), ("[]", "found no object"),
    ('{"embed_scale": "2.0"}', "embed_scale is no number")])
def test_scales_that_cannot_be_read(fails, copied, text, reason):
    """Passed over, they would be 1, and the tokens wrong."""
    folder = copied("coreml-llm-sliding")
    (folder / "model_config.json").write_text(text)
    fails(1, ["model_config.json", reason], "run", folder, "--ids", "1", *GREEDY)


def test_parts_that_are_mapped_twice(fails, golden):
    package = golden / "apple/int4-block32.mlpackage"
    for maps, reason in ((["ids=inputIds", "ids=causalMask"], "both 'inputIds' and 'causalMask' are mapped to ids, wanted one"),
                         (["ids=inputIds", "mask=inputIds"], "'inputIds' is mapped to ids and to mask"),
                         (["ids=inputIds", "ids=inputIds"], "'inputIds' is mapped to ids twice"),
                         (["position=inputIds"], "'inputIds' is mapped to the position, but is no int32 [1]"),
                         (["position=causalMask"], "'causalMask' is mapped to the position, but is no int32 [1]")):
        fails(1, [reason], "run", package, "--ids", "1", *GREEDY, *(word for m in maps for word in ("--map", m)))


def test_parts_that_reach_nothing(fails, golden):
    for package, word, reason in (("chunks-lut4-split", "cache_in=x", "its parts are found by name, 'x' cannot be mapped"),
                                  ("contracts/anemll", "ids=input_ids", "its parts are found by name"),
                                  ("nocache/scores-range-fp32-tied.mlpackage", "cache_in=input_ids", "there is no cache that")):
        fails(1, [reason], "run", golden / package, "--ids", "1", *GREEDY, "--map", word)


def test_two_models_in_one_folder(pome, fails, copied, golden):
    folder = copied("coreml-llm-caches")
    for package in (golden / "contracts/anemll").glob("*.mlpackage"):
        shutil.copytree(package, folder / package.name)
    fails(1, ["two contracts fit equally well: anemll, 2 chunks", "and: coreml-llm, 3 chunks", "--contract 'anemll' or --contract 'coreml-llm'"],
          "run", folder, "--ids", "1", *GREEDY)
    want = np.load(folder / "expected.npz")
    assert run_ids(pome, folder, want["prompt"].tolist(), 24, "--contract", "anemll") == want["greedy"].tolist()
    assert run_ids(pome, folder, want["prompt"].tolist(), 24, "--contract", "coreml-llm") == want["greedy"].tolist()


# ---- single models ----

def test_what_inspect_says(pome, golden):
    assert explain(pome, golden / "apple/int4-block32.mlpackage") == (
        "contract: stateful, 2 states, ids=inputIds, mask=causalMask (end), logits=logits, because there are states and a float mask; "
        "context 128, vocabulary 512")
    assert "contract: explicit-kv, 2 caches, ids=inputIds, mask=causalMask (end)" in explain(pome, golden / "explicit-kv/static-int4.mlpackage")
    assert "(keyCache to presentKeys, ...)" in explain(pome, golden / "explicit-kv/static-int4.mlpackage")
    assert explain(pome, golden / "nocache/scores-range-fp32-tied.mlpackage").startswith(
        "contract: no-cache, ids=input_ids, mask=attention_mask, logits=token_scores, because nothing keeps a cache")
    assert explain(pome, golden / "chunks-lut4-split/tiny-llama_chunk4.mlpackage") == (
        "contract: none, because function 'main' fits no known contract: tiny-llama_chunk4 is one chunk of a set: give "
        "the folder that it is in")


def test_contract_and_map(pome, fails, golden):
    package = golden / "explicit-kv" / "static-int4.mlpackage"
    want = np.load(golden / "explicit-kv" / "static-int4.expected.npz")
    prompt, greedy = want["prompt"].tolist(), want["greedy"].tolist()
    maps = ["ids=inputIds", "mask=causalMask", "logits=logits", "cache_in=keyCache", "cache_out=presentKeys", "cache_in=valueCache",
            "cache_out=presentValues"]
    options = [word for role in maps for word in ("--map", role)]
    assert run_ids(pome, package, prompt, 24, "--contract", "explicit-kv", *options) == greedy
    crossed = ["--map", "cache_in=keyCache", "--map", "cache_out=presentValues", "--map", "cache_in=valueCache", "--map", "cache_out=presentKeys"]
    assert run_ids(pome, package, prompt, 24, *crossed) != greedy  # the caller's word counts, even against names
    fails(1, ["function 'main' does not fit the contract 'stateful': there are no states"], "run", package, "--ids", "1", "--contract", "stateful")
    fails(1, ["no contract is called 'state'; there are: stateful, explicit-kv"], "run", package, "--ids", "1", "--contract", "state")
    fails(1, ["--map ids: ROLE=NAME is wanted"], "run", package, "--ids", "1", "--map", "ids")
    fails(1, ["no part is called 'tokens'; there are: ids, mask"], "run", package, "--ids", "1", "--map", "tokens=inputIds")
    fails(1, ["'x' is mapped to ids, but nothing in the model is called so"], "run", package, "--ids", "1", "--map", "ids=x")
    fails(1, ["'keyCache' is mapped to cache_in, but no output of its type to cache_out"], "run", package, "--ids", "1", "--map",
          "cache_in=keyCache", "--map", "cache_out=logits")
    assert "--contract NAME" in pome("bench", "--help").stdout and "--map ROLE=NAME" in pome("perplexity", "--help").stdout


@pytest.mark.parametrize("name", ["enumerated/stateful-int4", "nocache/layer1-logits-fixed64-lut6", "nocache/scores-range-fp32-tied",
                                  "explicit-kv/static-int4"])
def test_flexible_shapes(pome, golden, name):
    """Listed lengths (1, 8, 32), a fixed window of 64, a range: prompts that meet none of them give the same path."""
    want = np.load(golden / (name + ".expected.npz"))
    whole = want["prompt"].tolist() + want["greedy"].tolist()
    first = len(want["prompt"])
    for n in (first, first + 1, first + 3, first + 8, first + 9, first + 20):
        n_new = min(3, len(whole) - n)
        if want["margins"][n - first:n - first + n_new].min() > 0.1:
            assert run_ids(pome, golden / (name + ".mlpackage"), whole[:n], n_new) == whole[n:n + n_new]
