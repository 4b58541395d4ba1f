"""`pome tokenize`: ids and pieces of a text, and back. The expected values are those of Hugging Face's tokenizers
for the same file (tests/golden/README.md)."""
import json

import pytest


@pytest.fixture
def expected(tokenizer):
    return json.loads((tokenizer / "expected.json").read_text())


def test_encode_and_decode(pome, tokenizer, expected):
    for case in expected["encode"]:
        if not case["ids"]:
            continue
        done = pome("tokenize", tokenizer, "--json", "--", case["text"])
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["ids"] == case["ids"]
        ids = ",".join(map(str, case["ids"]))
        decoded = json.loads(pome("tokenize", tokenizer, "--decode", ids, "--keep-special", "--json").stdout)
        assert decoded["text"] == case["decoded"]


def test_lines(pome, tokenizer):
    done = pome("tokenize", tokenizer, "The quick brown fox")
    lines = [line.split("\t") for line in done.stdout.splitlines()]
    assert [int(i) for i, _ in lines] == [338, 444, 433, 442]
    assert "".join(piece for _, piece in lines) == "TheĠquickĠbrownĠfox"


def test_stdin(pome, tokenizer):
    assert pome("tokenize", tokenizer, input="The quick\n").stdout == pome("tokenize", tokenizer, "The quick").stdout


def test_special_tokens(pome, tokenizer):
    text = "<|im_start|>"
    assert len(pome("tokenize", tokenizer, text).stdout.splitlines()) == 1
    assert len(pome("tokenize", tokenizer, text, "--no-special").stdout.splitlines()) > 1


def test_chat(pome, tokenizer, expected):
    ids = [int(line.split("\t")[0]) for line in pome("tokenize", tokenizer, "--chat", "What is a cache?").stdout.splitlines()]
    system = expected["chat"]["messages"][0]["content"]
    assert expected["chat"]["messages"][1]["content"] == "What is a cache?"
    whole = expected["chat"]["ids"]
    assert ids[-10:] == whole[-10:] and (system is None or len(ids) <= len(whole))


def test_beside_a_model(pome, copied, tokenizer):
    (copied.parent / "tokenizer.json").write_bytes((tokenizer / "tokenizer.json").read_bytes())
    assert pome("tokenize", copied, "The quick").stdout == pome("tokenize", tokenizer, "The quick").stdout


def test_wrong_usage(fails, tokenizer, package):
    fails(2, ["'x' is not a token id"], "tokenize", tokenizer, "--decode", "x")
    fails(2, ["--decode takes ids"], "tokenize", tokenizer, "--decode", "1", "text")
    fails(1, ["no tokenizer.json in"], "tokenize", package, "text")
    fails(1, ["nothing"], "tokenize", "nothing", "text")
