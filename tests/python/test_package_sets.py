"""pome.LLM over sets of chunks, contracts and functions: the ids that are stored beside the models of tests/golden, which PyTorch
and NumPy computed."""
import gc
import os
import pathlib
import pickle
import shutil
import subprocess

import numpy as np
import pytest

if os.environ.get("POME_PACKAGE"):
    import pome as package
else:
    package = pytest.importorskip("pome")

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "golden"
CHUNKS = GOLDEN / "chunks-lut4-split"
CONTRACTS = ["anemll", "coreml-llm-sliding", "coreml-llm-caches"]


def greedy(llm, prompt, n, **options):
    generation = llm.generate(prompt, temperature=0, max_new_tokens=n, ignore_eos=True, **options)
    generation.read()
    return generation.ids


@pytest.fixture(scope="module")
def stored():
    return np.load(CHUNKS / "expected.npz")


SINGLE = GOLDEN / "apple" / "int4-block32.mlpackage"


@pytest.mark.parametrize("options, said", [({"prefix": "llama"}, "'llama' is for folders of chunks"),
                                           ({"cache_processor": "cp"}, "'cp' is for folders of chunks"),
                                           ({"logit_processor": "lp"}, "is for folders of chunks"),
                                           ({"whole_windows": True}, "contract stateful does not have"),
                                           ({"block": -1}, "blocks of -1 tokens"), ({"context": -1}, "context -1")])
def test_options_of_sets_are_refused_for_one_model(options, said):
    with pytest.raises(package.Error, match=said):
        package.LLM(SINGLE, **options)


@pytest.mark.parametrize("options", [{}, {"threads": 3}, {"whole_windows": True}, {"numerics": "fp16"}],
                         ids=["exact", "threads", "whole", "fp16"])
def test_windows(stored, options):
    llm = package.LLM(CHUNKS, **options)
    assert llm.contract.startswith("llm-cli, 4 chunks") and len(llm.models) == 6 and llm.has_cache and llm.has_logits
    assert "cache processor" in llm.reason and (llm.n_context >= 512, llm.n_vocab) == (True, 512)
    for which in ("", "long_"):
        assert greedy(llm, stored[which + "prompt"], 24) == stored[which + "greedy"].tolist()


def test_windows_beyond_the_context(stored):
    assert greedy(package.LLM(CHUNKS), stored["prompt"], 700) == stored["slid"].tolist()


@pytest.mark.parametrize("name", CONTRACTS)
def test_other_projects_sets(name):
    want = np.load(GOLDEN / "contracts" / name / "expected.npz")
    llm = package.LLM(GOLDEN / "contracts" / name, threads=2)
    for prefix in ("", "long_"):
        path = want[prefix + "greedy"].tolist()
        assert greedy(llm, want[prefix + "prompt"], len(path)) == path
        assert greedy(llm, want[prefix + "prompt"], len(path), speculate=8) == path
    assert llm.has_logits == (name == "anemll")
    logits = llm.session().feed(want["prompt"])
    if llm.has_logits:
        assert np.abs(logits - want["prefill_logits"][-1]).max() < 0.05
    else:
        assert logits.argmax() == want["greedy"][0] and np.isneginf(logits).sum() == llm.n_vocab - 1


def test_sessions_of_a_set_are_independent(stored):
    llm = package.LLM(CHUNKS)
    prompt, path = stored["prompt"].tolist(), stored["greedy"].tolist()
    one, two = llm.session(), llm.session()
    one.feed(prompt)
    two.feed([5, 6, 7])
    assert one.append(path[:1]).argmax() == path[1]
    assert one.feed(prompt + path[:3]).argmax() == path[3] and one.n_reused == len(prompt) + 1
    assert two.feed(prompt).argmax() == path[0]


def test_chunks_that_the_command_makes(pome, tmp_path):
    expected = np.load(GOLDEN / "checkpoint" / "expected.npz")
    subprocess.run([pome, "convert", GOLDEN / "checkpoint", tmp_path / "tiny", "--chunks", "2", "--quantize", "none", "--context", "128"],
                   check=True, capture_output=True)
    llm = package.LLM(tmp_path / "tiny")
    assert llm.contract.startswith("stateful-chunks")
    assert greedy(llm, expected["prompt"], 24) == expected["greedy"].tolist()
    package.compile(tmp_path / "tiny", tmp_path / "compiled")
    assert greedy(package.LLM(tmp_path / "compiled"), expected["prompt"], 24) == expected["greedy"].tolist()
    shutil.rmtree(tmp_path / "tiny" / "tiny_chunk2.mlpackage")
    with pytest.raises(package.UnsupportedError, match="chunks are missing"):
        package.LLM(tmp_path / "tiny")


def test_contract_and_map(tmp_path):
    path = GOLDEN / "explicit-kv" / "static-int4.mlpackage"
    want = np.load(GOLDEN / "explicit-kv" / "static-int4.expected.npz")
    prompt, path_ids = want["prompt"], want["greedy"].tolist()
    roles = {"ids": "inputIds", "mask": "causalMask", "logits": "logits", "cache_in": ["keyCache", "valueCache"],
             "cache_out": ["presentKeys", "presentValues"]}
    assert greedy(package.LLM(path, contract="explicit-kv", map=roles), prompt, 24) == path_ids
    crossed = {**roles, "cache_out": ["presentValues", "presentKeys"]}
    assert greedy(package.LLM(path, map=crossed), prompt, 24) != path_ids  # the caller's word counts, even against names
    for options, text in (({"contract": "stateful"}, "there are no states"), ({"contract": "state"}, "no contract is called 'state'"),
                          ({"map": {"tokens": "inputIds"}}, "no part is called 'tokens'"), ({"map": {"ids": "x"}}, "'x' is mapped to ids"),
                          ({"function": "other"}, "other")):
        with pytest.raises(package.Error, match=text) as caught:
            package.LLM(path, **options)
        assert caught.value.code in ("ARG", "UNSUPPORTED") and caught.value.message == str(caught.value)
    folder = shutil.copytree(GOLDEN / "contracts" / "coreml-llm-caches", tmp_path / "both")
    for model in (GOLDEN / "contracts" / "anemll").glob("*.mlpackage"):
        shutil.copytree(model, folder / model.name)
    with pytest.raises(package.UnsupportedError, match="two contracts fit equally well"):
        package.LLM(folder)
    want = np.load(folder / "expected.npz")
    for contract in ("anemll", "coreml-llm"):
        assert greedy(package.LLM(folder, contract=contract), want["prompt"], 24) == want["greedy"].tolist()


def test_functions_share_an_open_model():
    model = package.Model(GOLDEN / "multifunction" / "int4-block32.mlpackage", threads=1)
    expected = np.load(GOLDEN / "multifunction" / "int4-block32.expected.npz")
    engines = {name: package.LLM(model, function=name) for name in model.functions}
    assert sorted(engines) == ["adapter", "base"]
    for name, llm in engines.items():
        assert llm.function == name and llm.functions == tuple(model.functions) and llm.model is model
        assert greedy(llm, expected[name + ".prompt"], 24) == expected[name + ".greedy"].tolist()
    assert package.LLM(model).function == model.default_function
    with pytest.raises(ValueError, match="open"):
        package.LLM(model, numerics="fp16")


def test_which_models_of_a_folder(stored, tmp_path):
    folder = shutil.copytree(CHUNKS, tmp_path / "set")
    for package_path in sorted(folder.glob("*_chunk*.mlpackage")):
        shutil.copytree(package_path, folder / package_path.name.replace("tiny-llama", "other"))
    shutil.copytree(folder / "cache-processor.mlpackage", folder / "cp.mlpackage")
    shutil.rmtree(folder / "cache-processor.mlpackage")
    llm = package.LLM(folder, prefix="tiny-llama", cache_processor="cp", logit_processor="logit-processor.mlmodelc")
    assert greedy(llm, stored["prompt"], 24) == stored["greedy"].tolist()
    with pytest.raises(package.FileError, match="there is no model none"):
        package.LLM(folder, prefix="tiny-llama", cache_processor="none")
    with pytest.raises(package.FormatError, match="not a Core ML package"):
        package.ModelSet(GOLDEN)


def test_a_set_of_models(stored):
    parts = package.ModelSet(CHUNKS, threads=2)
    assert len(parts) == 6 and "logit-processor" in parts and parts["tiny-llama_chunk2"].numerics == "exact"
    assert set(parts.open_seconds) == set(parts) and min(parts.open_seconds.values()) > 0
    one, two = package.LLM(parts), package.LLM(parts, whole_windows=True)
    assert greedy(one, stored["prompt"], 5) == greedy(two, stored["prompt"], 5) == stored["greedy"][:5].tolist()
    assert one.model is parts["cache-processor"] and one.path == str(CHUNKS)
    inputs = {"input_ids": np.arange(64)[None], "full_sequence_length": [64]}
    model = parts["tiny-llama_chunk1"]
    want = model.predict(inputs)
    for thing in (parts, parts._native):
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(thing)
    with pytest.raises(ValueError, match="open"):
        package.LLM(parts, threads=1)
    del parts, one, two, thing
    gc.collect()
    again = model.predict(inputs)  # a part keeps its set open
    assert all(np.array_equal(want[name], again[name]) for name in want)
    alone = package.ModelSet(GOLDEN / "apple" / "int4-block32.mlpackage")
    assert list(alone) == ["int4-block32"]


def test_folders_of_the_hub_cache(stored, tmp_path, monkeypatch):
    repository = tmp_path / "hf" / "hub" / "models--some--set"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("abc123")
    shutil.copytree(CHUNKS, repository / "snapshots" / "abc123")
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    folder = package.hub_folder("some/set")
    assert folder == str(repository / "snapshots" / "abc123")
    assert greedy(package.LLM(folder, tokenizer=GOLDEN / "tokenizer"), stored["prompt"], 3) == stored["greedy"][:3].tolist()
    with pytest.raises(package.FileError, match="other/set"):
        package.hub_folder("other/set")
    with pytest.raises(package.ArgumentError):
        package.hub_folder("../up")
