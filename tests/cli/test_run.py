"""`pome run`: ids in and out, text, where the tokenizer is found, limits, errors, interruption."""
import json
import pathlib
import re
import shutil
import signal
import subprocess
import time

import numpy as np
import pytest

from conftest import POME

IDS = ["--print-ids", "--temperature", "0", "--ignore-eos"]


def stored(package):
    return np.load(str(package).replace(".mlpackage", ".expected.npz"))


def joined(ids):
    return ",".join(map(str, ids))


def test_ids_in_one_line_and_nothing_else(pome, package):
    npz = stored(package)
    done = pome("run", package, "--ids", joined(npz["prompt"]), "-n", 24, "--numerics", "exact", *IDS)
    assert done.returncode == 0 and done.stderr == ""
    assert done.stdout == " ".join(map(str, npz["greedy"])) + "\n"


def test_ids_may_be_separated_by_spaces(pome, package):
    assert pome("run", package, "--ids", "1 2 3", "-n", 5, *IDS).stdout == pome("run", package, "--ids", "1,2,3", "-n", 5, *IDS).stdout


def test_no_new_tokens_is_an_empty_line(pome, package):
    done = pome("run", package, "--ids", "1,2", "--max-new-tokens", 0, *IDS)
    assert (done.returncode, done.stdout) == (0, "\n")


def test_max_length_is_an_alias(pome, package):
    assert len(pome("run", package, "--ids", "1,2", "--max-length", 3, *IDS).stdout.split()) == 3


def test_threads_change_nothing(pome, package):
    one, three = (pome("run", package, "--ids", joined(range(1, 60)), "-n", 20, "--threads", n, *IDS).stdout for n in (1, 3))
    assert one == three and len(one.split()) == 20


def test_full_context_is_a_note_and_success(pome, package):
    done = pome("run", package, "--ids", "1,2,3", "-n", 1000, *IDS)
    assert done.returncode == 0
    assert done.stderr == "pome: the context of 128 tokens is full\n"
    assert len(done.stdout.split()) == 126  # 125 rows are left; the last one still gives a token
    assert pome("run", package, "--ids", "1,2,3", "-n", 1000, "--quiet", *IDS).stderr == ""


def test_lowered_context(pome, fails, package):
    done = pome("run", package, "--ids", "1,2,3", "-n", 1000, "--context", 10, *IDS)
    assert done.returncode == 0 and len(done.stdout.split()) == 8 and "context of 10 tokens" in done.stderr
    fails(1, ["context 200 asked for, the model holds 128"], "run", package, "--ids", "1", "--context", 200, *IDS)


def test_prompt_longer_than_the_context(fails, package):
    fails(1, ["the prompt has 129 tokens, the context holds 128"], "run", package, "--ids", joined(range(129)), *IDS[:1])


def test_id_outside_the_vocabulary(pome, package):
    done = pome("run", package, "--ids", "1,512", *IDS)
    assert done.returncode == 1 and "token id 512 at position 1 is outside the vocabulary of 512" in done.stderr


def test_functions(pome, fails, golden):
    package = golden / "multifunction" / "int4-block32.mlpackage"
    npz = stored(package)
    for name in ("base", "adapter"):
        done = pome("run", package, "--function", name, "--ids", joined(npz[f"{name}.prompt"]), "-n", 24, "--numerics", "exact", *IDS)
        assert done.stdout.split() == [str(i) for i in npz[f"{name}.greedy"]]
    fails(1, ["no function 'third'", "it has: base, adapter"], "run", package, "--function", "third", "--ids", "1", *IDS)


def test_seeds(pome, package):
    draw = ["run", package, "--ids", "1,2,3", "-n", 30, "--print-ids", "--ignore-eos"]
    assert pome(*draw, "--seed", 5).stdout == pome(*draw, "--seed", 5).stdout
    assert len({pome(*draw, "--seed", n).stdout for n in range(4)}) == 4
    assert pome(*draw).stdout != pome(*draw).stdout


def test_json(pome, package):
    done = pome("run", package, "--ids", "1,2,3", "-n", 4, "--json", "--stats", "--seed", 9, *IDS)
    answer = json.loads(done.stdout)
    assert set(answer) == {"text", "ids", "finish_reason", "prompt_tokens", "reused_tokens", "new_tokens", "seed", "stats"}
    assert len(answer["ids"]) == answer["new_tokens"] == 4 and answer["prompt_tokens"] == 3
    assert (answer["text"], answer["finish_reason"], answer["seed"]) == (None, "length", 9)
    assert set(answer["stats"]) == {"load_s", "prompt_tokens_per_s", "decode_tokens_per_s", "decode_passes", "peak_memory_bytes", "tokenizer", "contract",
                                    "prompt_ms", "token_ms", "token_ms_stdev", "tokens_per_s", "tokens_per_s_stdev"}
    assert answer["stats"]["peak_memory_bytes"] > 1 << 20


def test_stats_go_to_stderr(pome, package):
    done = pome("run", package, "--ids", "1,2,3", "-n", 4, "--stats", *IDS)
    assert len(done.stdout.split()) == 4
    for line in (r"load +\d", r"prompt +3 tokens", r"decode +4 tokens", r"memory +\d", r"tokenizer +none",
                 r"contract +stateful, 2 states, ids=inputIds, mask=causalMask \(end\), logits=logits", r"seed +\d"):
        assert re.search("^" + line, done.stderr, re.M), done.stderr


# ---- what is no model ----

def test_no_such_file(fails):
    fails(1, ["nothing.mlpackage"], "run", "nothing.mlpackage", "--ids", "1", *IDS)


def test_a_file_inside_the_package(pome, package):
    for inside in ("Manifest.json", "Data/com.apple.CoreML/model.mlmodel", "Data/com.apple.CoreML/weights/weight.bin"):
        done = pome("run", package / inside, "--ids", "1,2", "-n", 2, *IDS)
        assert done.returncode == 0 and len(done.stdout.split()) == 2
        assert f"lies inside the model {package}" in done.stderr


def test_a_checkpoint_gets_the_convert_line(fails, tmp_path):
    (tmp_path / "x.gguf").write_bytes(b"GGUF" + bytes(100))
    fails(1, ["pome convert", "x.gguf"], "run", "x.gguf", "--ids", "1", *IDS)
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "llama"}')
    (folder / "model.safetensors").write_bytes(bytes(16))
    fails(1, ["pome convert", "checkpoint"], "run", folder, "--ids", "1", *IDS)


def test_damaged_package(fails, copied):
    weights = copied / "Data/com.apple.CoreML/weights/weight.bin"
    weights.write_bytes(weights.read_bytes()[:1000])
    fails(1, ["weight.bin"], "run", copied, "--ids", "1", *IDS)
    weights.unlink()
    fails(1, ["weight.bin"], "run", copied, "--ids", "1", *IDS)


def test_unknown_contract_lists_what_is_there(fails, golden):
    fails(1, ["fits no known contract: tiny-llama_chunk4 is one chunk of a set", "seen: inputs x fp16 [1, 64, 8, 8]; outputs logits_0",
              "nearest: ", "expected: "],
          "run", golden / "chunks-lut4-split" / "tiny-llama_chunk4.mlpackage", "--ids", "1", *IDS)


# ---- text ----

TEXT = ["--temperature", "0", "-n", "12", "--raw"]


def test_text_matches_ids(pome, package, tokenizer):
    text = pome("run", package, "The quick", "--tokenizer", tokenizer, *TEXT)
    assert text.returncode == 0 and text.stderr == "" and text.stdout.endswith("\n")
    ids = pome("run", package, "The quick", "--tokenizer", tokenizer, "--print-ids", *TEXT).stdout.split()
    decoded = pome("tokenize", tokenizer, "--decode", joined(ids)).stdout
    assert text.stdout == decoded and len(ids) == 12


def test_prompt_sources_agree(pome, package, tokenizer):
    args = ["--tokenizer", tokenizer, *TEXT]
    answers = {pome("run", package, "The quick", *args).stdout, pome("run", package, "--prompt", "The quick", *args).stdout,
               pome("run", package, *args, input="The quick\n").stdout, pome("run", package, "-", *args, input="The quick").stdout}
    assert len(answers) == 1 and answers.pop().strip()


def test_ids_without_a_tokenizer_cannot_be_text(fails, package):
    fails(1, ["no tokenizer.json in"], "run", package, "--ids", "1,2")


def put(tokenizer, folder):
    folder.mkdir(parents=True, exist_ok=True)
    for file in tokenizer.iterdir():
        shutil.copy(file, folder)
    return folder


def hub(root, *, ref=True, commit="abc123"):
    repository = root / "models--tiny--llama-64x4"
    if ref:
        (repository / "refs").mkdir(parents=True, exist_ok=True)
        (repository / "refs" / "main").write_text(commit)
    return repository / "snapshots" / commit


def source(pome, *args, **more):
    done = pome("run", *args, "hello", "--stats", *TEXT, **more)
    assert done.returncode == 0, done.stderr
    return pathlib.Path(re.search(r"^tokenizer +(.*)$", done.stderr, re.M).group(1)).parent


def test_where_the_tokenizer_is_found(pome, copied, tokenizer, tmp_path):
    """Each place wins over those put up before it."""
    cache = put(tokenizer, hub(tmp_path / ".cache" / "huggingface" / "hub"))
    assert source(pome, copied) == cache
    assert source(pome, "models/tiny.mlpackage") == cache
    home = put(tokenizer, hub(tmp_path / "hf" / "hub", ref=False))
    assert source(pome, copied, env={"HF_HOME": str(tmp_path / "hf")}) == home
    other = put(tokenizer, hub(tmp_path / "other"))
    assert source(pome, copied, env={"HF_HUB_CACHE": str(tmp_path / "other"), "HF_HOME": str(tmp_path / "hf")}) == other
    beside = put(tokenizer, copied.parent)
    assert source(pome, copied) == beside
    inside = put(tokenizer, copied / "tokenizer-copy") and put(tokenizer, copied)
    assert source(pome, copied) == inside
    given = put(tokenizer, tmp_path / "given")
    assert source(pome, copied, "--tokenizer", given) == given
    assert source(pome, copied, "--tokenizer", given / "tokenizer.json") == given


def test_tokenizer_that_is_not_there(fails, copied, tokenizer, tmp_path):
    put(tokenizer, copied)
    fails(1, ["missing"], "run", copied, "hello", "--tokenizer", tmp_path / "missing", *TEXT)


def test_places_that_were_tried_are_named(fails, copied, tmp_path):
    fails(1, ["no tokenizer.json in", str(copied), str(copied.parent), ".cache/huggingface/hub/models--tiny--llama-64x4"],
          "run", copied, "hello", *TEXT)


def test_stop_string_is_cut_out(pome, package, tokenizer):
    args = ["run", package, "The quick", "--tokenizer", tokenizer, *TEXT]
    whole = pome(*args).stdout[:-1]
    stop = whole[len(whole) // 2: len(whole) // 2 + 3]
    cut = pome(*args, "--stop", "not to be found", "--stop", stop)
    assert cut.returncode == 0 and cut.stdout == whole[: whole.index(stop)] + "\n"
    answer = json.loads(pome(*args, "--stop", stop, "--json").stdout)
    assert answer["finish_reason"] == "stop" and answer["text"] == whole[: whole.index(stop)]


def test_chat_template_is_used_unless_raw(pome, package, tokenizer):
    def n_prompt(*args):
        return json.loads(pome("run", package, "hello", "--tokenizer", tokenizer, "--json", "-n", 1, *args).stdout)["prompt_tokens"]

    raw = n_prompt("--raw")
    assert n_prompt() > raw
    assert n_prompt("--system", "Be brief.") > n_prompt()
    chat = pome("tokenize", tokenizer, "--chat", "hello").stdout.splitlines()
    assert n_prompt() == len(chat)


def test_no_prompt_on_an_empty_stdin(pome, package, tokenizer):
    done = pome("run", package, "--tokenizer", tokenizer, *TEXT, input="")
    assert done.returncode == 1 and "the prompt is empty" in done.stderr


# ---- interruption ----

@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_stops_cleanly(environment, golden, number):
    """The full sequence is computed again for every token, so there is time to interrupt."""
    package = golden / "nocache" / "scores-range-fp32-tied.mlpackage"
    command = [POME, "run", str(package), "--ids", "1,2,3", "-n", "1000", "--threads", "1", *IDS]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    child.stdout.read(1)
    child.send_signal(number)
    out, _ = child.communicate(timeout=30)
    if child.returncode != 0:  # 0: it was quicker than the signal
        assert child.returncode == 130
        assert out.endswith("\n") and out.count("\n") == 1
