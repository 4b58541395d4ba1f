"""Sets of chunks: ids in and out, whole windows against new columns, coreml-llm-cli's options, traces, and folders that lack
something."""
import json
import shutil

import numpy as np
import pytest

IDS = ["--print-ids", "--temperature", "0", "--ignore-eos"]
WEIGHTS = "Data/com.apple.CoreML/weights/weight.bin"
MODEL = "Data/com.apple.CoreML/model.mlmodel"


@pytest.fixture(scope="session")
def chunks(golden):
    return golden / "chunks-lut4-split"


@pytest.fixture(scope="session")
def stored(chunks):
    return np.load(chunks / "expected.npz")


@pytest.fixture
def copy(chunks, tmp_path):
    return shutil.copytree(chunks, tmp_path / "set")


def joined(ids):
    return ",".join(map(str, ids))


def ids_of(done):
    assert done.returncode == 0, done.stderr
    return list(map(int, done.stdout.split()))


@pytest.mark.parametrize("which", ["", "long_"])
@pytest.mark.parametrize("options", [["exact"], ["exact", "--whole-windows"], ["fp16"], ["exact", "--threads", "3"]])
def test_stored_results(pome, chunks, stored, which, options):
    done = pome("run", chunks, "--ids", joined(stored[which + "prompt"]), "-n", 24, *IDS, "--numerics", *options)
    assert ids_of(done) == stored[which + "greedy"].tolist() and done.stderr == ""


@pytest.mark.parametrize("n", [1, 63, 64, 65, 449, 700])
def test_beyond_the_context(pome, chunks, stored, n):
    """700 tokens are more than the context of 512: caches slide, positions go on."""
    done = pome("run", chunks, "--ids", joined(stored["prompt"]), "-n", n, *IDS, "--numerics", "exact")
    assert ids_of(done) == stored["slid"][:n].tolist()


@pytest.mark.parametrize("numerics", ["exact", "fp16"])
def test_new_columns_are_those_of_whole_windows(pome, chunks, stored, numerics):
    base = ["run", chunks, "--ids", joined(stored["long_prompt"]), "-n", 150, *IDS, "--numerics", numerics]
    new, whole = pome(*base), pome(*base, "--whole-windows")
    assert len(ids_of(new)) == 150 and new.stdout == whole.stdout


def test_speculation_changes_no_answer(pome, chunks):
    base = ["run", chunks, "--ids", joined([7, 8, 9] * 20), "-n", 150, *IDS, "--numerics", "exact"]
    assert ids_of(pome(*base)) == ids_of(pome(*base, "--speculate", "8"))


def test_compiled_set(pome, chunks, stored, tmp_path):
    done = pome("compile", chunks, tmp_path / "compiled")
    assert done.returncode == 0, done.stderr
    done = pome("run", tmp_path / "compiled", "--ids", joined(stored["prompt"]), "-n", 24, *IDS, "--numerics", "exact")
    assert ids_of(done) == stored["greedy"].tolist()


def test_set_with_states(pome, golden, tmp_path):
    expected = np.load(golden / "checkpoint" / "expected.npz")
    assert pome("convert", golden / "checkpoint", tmp_path / "tiny", "--chunks", 2, "--quantize", "none", "--context", 128).returncode == 0
    base = ["run", tmp_path / "tiny", *IDS, "--numerics", "exact", "--ids", joined(expected["prompt"])]
    assert ids_of(pome(*base, "-n", 24)) == expected["greedy"].tolist()
    done = pome(*base, "-n", 500)
    assert "the context of 128 tokens is full" in done.stderr and len(ids_of(done)) == 129 - len(expected["prompt"])
    (tmp_path / "tiny" / "tiny_chunk2.mlpackage").rename(tmp_path / "chunk2")
    assert "chunks are missing" in pome(*base).stderr


def test_options_of_coreml_llm_cli(pome, fails, chunks, golden, stored, tmp_path):
    tokenizer = golden / "tokenizer"
    hub = tmp_path / "hf" / "hub" / "models--some--set"
    (hub / "refs").mkdir(parents=True)
    (hub / "refs" / "main").write_text("abc123")
    shutil.copytree(chunks, hub / "snapshots" / "abc123")
    env = {"HF_HOME": str(tmp_path / "hf")}
    plain = pome("run", chunks, "Once", "--tokenizer", tokenizer, "--raw", "--temperature", 0, "-n", 8)
    assert plain.returncode == 0, plain.stderr
    by_id = pome("run", "--repo-id", "some/set", "Once", "--tokenizer-name", tokenizer, "--raw", "--temperature", 0,
                 "--max-new-tokens", 8, env=env)
    by_folder = pome("run", "--local-model-directory", chunks, "--local-model-prefix", "tiny-llama", "--tokenizer-name", tokenizer,
                     "--cache-processor-model-name", "cache-processor.mlmodelc", "--logit-processor-model-name",
                     "logit-processor.mlmodelc", "--raw", "--temperature", 0, "--max-new-tokens", 8, "--verbose", "Once")
    assert by_id.stdout == by_folder.stdout == plain.stdout
    assert "tiny-llama_chunk2 opened in " in by_folder.stderr
    fails(1, ["other/set is not in the local Hub cache", "nothing is downloaded"], "run", "--repo-id", "other/set", "Once", env=env)
    fails(1, ["some/none is not in the local Hub cache"], "run", chunks, "Once", "--tokenizer-name", "some/none", env=env)
    fails(2, ["give one of them"], "run", "--repo-id", "a/b", "--local-model-directory", chunks, "Once")
    fails(2, ["what follows is the prompt"], "run", "--repo-id", "a/b", "model", "Once")
    fails(2, ["no MODEL is given", "\nusage: pome run MODEL [PROMPT] | --repo-id OWNER/NAME [PROMPT] [options]\n"], "run")
    fails(1, ["there is no model cp.mlmodelc"], "run", "--local-model-directory", chunks, "--cache-processor-model-name",
          "cp.mlmodelc", "--ids", "1", *IDS)
    fails(1, ["no model in", "'other_chunk1'"], "run", "--local-model-directory", chunks, "--local-model-prefix", "other", "--ids",
          "1", *IDS, "--cache-processor-model-name", "x", "--logit-processor-model-name", "y")


def test_processors_that_are_named_wrong(fails, chunks):
    def refuse(reason, *names):
        options = zip(["--cache-processor-model-name", "--logit-processor-model-name"], names)
        fails(1, [reason], "run", "--local-model-directory", chunks, *[x for pair in options for x in pair], "--ids", "1", *IDS)

    refuse("tiny-llama_chunk2 is named as a model beside the chunks, but is one of them", "tiny-llama_chunk2")
    refuse("tiny-llama_chunk2.mlpackage is named as a model beside the chunks", "cache-processor", "tiny-llama_chunk2.mlpackage")
    refuse("cache-processor is named as cache processor and as logit processor", "cache-processor", "cache-processor")


def test_the_folder_around(fails, copy, tmp_path):
    """People name the folder that a download made."""
    (tmp_path / "around" / "empty").mkdir(parents=True)
    copy.rename(tmp_path / "around" / "set")
    for verb in ("run", "inspect"):
        fails(1, ["around is not a Core ML package", "; its folder around/set holds 6 models: name that"], verb, "around")
    for name in ("tiny-llama_chunk1", "tiny-llama_chunk2", "tiny-llama_chunk3", "cache-processor", "logit-processor"):
        shutil.rmtree(tmp_path / "around" / "set" / f"{name}.mlpackage")
    fails(1, ["; its folder around/set holds 1 model: name that"], "inspect", "around")
    (tmp_path / "around" / "set" / "tiny-llama_chunk4.mlpackage").rename(tmp_path / "around" / "model")
    fails(1, ["; its folder around/model is one: name that"], "inspect", "around")
    assert "its folder" not in fails(1, ["not a Core ML package"], "inspect", "around/empty")


def test_links_that_lead_nowhere(fails, tmp_path):
    (tmp_path / "model.mlpackage").symlink_to("gone/model.mlpackage")
    for verb, more in (("run", ["--ids", "1"]), ("inspect", []), ("compile", ["out.mlmodelc"])):
        fails(1, ["model.mlpackage is a link to gone/model.mlpackage, which is not there"], verb, "model.mlpackage", *more)


def test_few_chunks(fails, copy):
    for name in ("tiny-llama_chunk3", "tiny-llama_chunk4"):
        shutil.rmtree(copy / f"{name}.mlpackage")
    fails(1, ["there are 2 chunks of 'tiny-llama': a first"], "run", copy, "--ids", "1", *IDS)
    shutil.rmtree(copy / "tiny-llama_chunk2.mlpackage")
    fails(1, ["there is 1 chunk of 'tiny-llama': a first"], "run", copy, "--ids", "1", *IDS)
    fails(1, ["do not fit the contract 'llm-cli'"], "run", copy, "--ids", "1", *IDS, "--contract", "llm-cli")


def test_report(pome, chunks, stored):
    done = pome("run", chunks, "--ids", joined(stored["prompt"]), "-n", 9, *IDS, "--stats")
    for line in ["Compile + Load: ", "Prompt        : ", "Generate      : ", " ms / token", " token / sec", "contract   llm-cli, 4 chunks"]:
        assert line in done.stderr
    stats = json.loads(pome("run", chunks, "--ids", "1,2", "-n", 9, *IDS, "--stats", "--json").stdout)["stats"]
    assert stats["token_ms"] > 0 and stats["tokens_per_s"] > 0 and stats["token_ms_stdev"] >= 0


def test_trace(pome, chunks, tmp_path):
    ids = [i * 37 % 500 for i in range(3 * 64 + 1)]
    done = pome("run", chunks, "--ids", joined(ids), "-n", 1, *IDS, "--trace", tmp_path / "trace.json", "--threads", 2)
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert done.returncode == 0
    assert {e["name"] for e in events if e["cat"] == "load"} >= {"tiny-llama_chunk1", "cache-processor"}
    for chunk in ("tiny-llama_chunk2", "tiny-llama_chunk3"):
        mine = {kind: [e for e in events if e["cat"] == kind and e["name"] == chunk] for kind in ("predict", "update", "wait")}
        assert [e["args"]["step"] for e in mine["predict"]] == [64, 128, 192, 193]
        assert [e["args"]["step"] for e in sorted(mine["update"], key=lambda e: e["ts"])] == [64, 128, 192]
        for e in mine["update"]:  # after its own prediction, before the next one
            before = next(p for p in mine["predict"] if p["args"]["step"] == e["args"]["step"])
            after = next(p for p in mine["predict"] if p["args"]["step"] > e["args"]["step"])
            assert before["ts"] + before["dur"] <= e["ts"] + 1 and e["ts"] + e["dur"] <= after["ts"] + 1


def rename_output(folder):
    path = folder / "tiny-llama_chunk2.mlpackage" / MODEL
    path.write_bytes(path.read_bytes().replace(b"new_x", b"out_x"))


def exchange_weights(folder):
    shutil.copy(folder / "tiny-llama_chunk4.mlpackage" / WEIGHTS, folder / "tiny-llama_chunk2.mlpackage" / WEIGHTS)


def leave_pointer(folder):
    (folder / "tiny-llama_chunk3.mlpackage" / WEIGHTS).write_text(
        "version https://git-lfs.github.com/spec/v1\noid sha256:4665a5ea423c2713d436b5ee50593a9640e0018c1550b5a0002f74190d6caea8\nsize 12345\n")


def cut_program(folder):
    path = folder / "tiny-llama_chunk3.mlpackage" / MODEL
    path.write_bytes(path.read_bytes()[:3000])


def remove(name):
    return lambda folder: shutil.rmtree(folder / (name + ".mlpackage"))


BROKEN = {
    "first": (remove("tiny-llama_chunk1"), ["tiny-llama_chunk1 is missing: the chunks begin with tiny-llama_chunk2"]),
    "last": (remove("tiny-llama_chunk4"), ["tiny-llama_chunk3, the last chunk, gives no logits", "are later chunks missing?"]),
    "gap": (remove("tiny-llama_chunk3"), ["between tiny-llama_chunk2 and tiny-llama_chunk4 chunks are missing"]),
    "two": (lambda f: shutil.copytree(f / "tiny-llama_chunk2.mlpackage", f / "other_chunk2.mlpackage"),
            ["chunks of two models: 'other' and 'tiny-llama'", "--local-model-prefix"]),
    "cache": (remove("cache-processor"), ["no cache processor is among them", "old_v_cache and new_v_cache: there is logit-processor ("]),
    "logits": (remove("logit-processor"), ["no logit processor is among them", ": there is cache-processor ("]),
    "renamed": (rename_output, ["tiny-llama_chunk2 has no output 'new_x'", "it gives out_x"]),
    "weights": (exchange_weights, ["tiny-llama_chunk2", "weight.bin", "holds", "the program says"]),
    "pointer": (leave_pointer, ["tiny-llama_chunk3.mlpackage", "Git LFS pointer"]),
    "cut": (cut_program, ["tiny-llama_chunk3.mlpackage", "needs", "ends after"]),
}


@pytest.mark.parametrize("how", BROKEN)
def test_broken_folder(fails, copy, how):
    broken, parts = BROKEN[how]
    broken(copy)
    fails(1, parts, "run", copy, "--ids", "1,2", *IDS)


def test_weights_of_a_chunk_with_the_same_program(pome, copy, stored):
    """Nothing in the files tells which of the two is right: a warning names both."""
    shutil.copy(copy / "tiny-llama_chunk3.mlpackage" / WEIGHTS, copy / "tiny-llama_chunk2.mlpackage" / WEIGHTS)
    done = pome("run", copy, "--ids", joined(stored["prompt"]), "-n", 4, *IDS)
    assert done.returncode == 0 and "warning: tiny-llama_chunk2 and tiny-llama_chunk3 have the same weights" in done.stderr
    assert done.stderr.count("\n") == 1


def test_prefix_that_is_not_there(fails, chunks):
    fails(1, ["no model in", "is called 'llama_chunk1'"], "run", chunks, "--local-model-prefix", "llama", "--ids", "1", *IDS)


def test_one_chunk_alone(fails, chunks):
    fails(1, ["tiny-llama_chunk2 is one chunk of a set: give the folder that it is in"], "run",
          chunks / "tiny-llama_chunk2.mlpackage", "--ids", "1,2", *IDS)


def test_prefix_chooses(pome, copy, stored):
    for n in (1, 2, 3, 4):
        shutil.copytree(copy / f"tiny-llama_chunk{n}.mlpackage", copy / f"other_chunk{n}.mlpackage")
    done = pome("run", copy, "--local-model-prefix", "other_", "--ids", joined(stored["prompt"]), "-n", 5, *IDS, "--numerics", "exact")
    assert ids_of(done) == stored["greedy"][:5].tolist()
