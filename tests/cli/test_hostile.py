"""Files and streams that are not what they should be: an error that says so, and no wait, crash or silent loss."""
import json
import os
import resource
import struct
import zipfile

import numpy as np
import pytest

IDS = ["--ids", "1,2,3", "--temperature", "0", "--print-ids", "--max-new-tokens", "1"]


@pytest.mark.parametrize("part", ["Manifest.json", "Data/com.apple.CoreML/model.mlmodel", "Data/com.apple.CoreML/weights/weight.bin"])
def test_a_fifo_in_a_package_is_not_waited_for(fails, copied, part):
    (copied / part).unlink()
    os.mkfifo(copied / part)
    fails(1, [part.rsplit("/", 1)[-1], "not a regular file"], "run", copied, *IDS)


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "generation_config.json"])
def test_a_fifo_beside_a_tokenizer_is_not_waited_for(fails, tokenizer, tmp_path, name):
    for file in tokenizer.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / name).unlink()
    os.mkfifo(tmp_path / name)
    fails(1, [name, "not a regular file"], "tokenize", tmp_path, "text")


@pytest.mark.parametrize("verb", [["inspect"], ["run", *IDS], ["tokenize", "text"]])
def test_a_fifo_for_a_model_is_not_waited_for(fails, tmp_path, verb):
    os.mkfifo(tmp_path / "model")
    fails(1, ["model"], verb[0], tmp_path / "model", *verb[1:])


def test_a_fifo_for_an_input_is_not_waited_for(fails, package, tmp_path):
    os.mkfifo(tmp_path / "x.npy")
    fails(1, ["x.npy", "not a regular file"], "predict", package, "--input", "inputIds=x.npy")


def half_precision_records(weights):
    """(start, size in bytes) of every payload of type 1; records lie at multiples of 64."""
    for at in range(64, len(weights) - 63, 64):
        sentinel, code, size, start = struct.unpack_from("<IIQQ", weights, at)
        if sentinel == 0xDEADBEEF and code == 1:
            yield start, size


@pytest.mark.parametrize("bits", [0x7E00, 0x7C00])  # NaN, infinity
def test_one_bad_weight_is_never_passed_over(pome, copied, bits):
    """A bad scale in the head makes a single logit bad; the others would still give a plausible token."""
    path = copied / "Data/com.apple.CoreML/weights/weight.bin"
    weights = path.read_bytes()
    messages = []
    for start, size in list(half_precision_records(weights))[-3:]:
        damaged = bytearray(weights)
        struct.pack_into("<H", damaged, start, bits)
        path.write_bytes(damaged)
        done = pome("run", copied, *IDS)
        assert done.returncode == 1 and not done.stdout.strip(), (start, size, done)
        messages.append(done.stderr)
    assert any("the logit of token 0 after 3 tokens is" in m for m in messages), messages


@pytest.mark.parametrize("verb", [["run", "--temperature", "0", "--max-new-tokens", "1"], ["tokenize"]])
def test_standard_input_that_would_be_cut(fails, package, tokenizer, verb):
    args = [verb[0], package, "--tokenizer", tokenizer, *verb[1:]]
    fails(1, ["cannot read the"], *args, input="hi\0there")
    folder = os.open("/", os.O_RDONLY)
    fails(1, ["cannot read the", "directory"], *args, stdin=folder)
    os.close(folder)


def test_the_fault_of_a_tokenizer_is_named(fails, tokenizer, tmp_path):
    """Not that the folder it is in is no model."""
    text = (tokenizer / "tokenizer.json").read_text()
    (tmp_path / "tokenizer.json").write_text(text[: len(text) // 2])
    fails(1, ["tokenizer.json", "not JSON"], "tokenize", tmp_path, "text")
    fails(1, ["tokenizer.json", "not JSON"], "tokenize", tmp_path / "tokenizer.json", "text")


def test_a_normalizer_that_multiplies_the_text(fails, tokenizer, tmp_path):
    content = json.loads((tokenizer / "tokenizer.json").read_text())
    step = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 1000}
    content["normalizer"] = {"type": "Sequence", "normalizers": [step] * 10}
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    fails(1, ["normalization makes more than"], "tokenize", tmp_path, "aaaa")


def test_a_limit_on_file_sizes_is_a_failed_write(fails, package, tmp_path):
    np.save(tmp_path / "ids.npy", np.array([[1, 2, 3]], np.int32))
    np.save(tmp_path / "mask.npy", np.zeros((1, 1, 3, 3), np.float16))
    inputs = ["--input", "inputIds=ids.npy", "--input", "causalMask=mask.npy"]
    limit = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))}
    fails(1, ["too large"], "predict", package, *inputs, "--output", "out", **limit)
    (tmp_path / "out.npz").write_bytes(b"")
    fails(1, ["out.npz"], "predict", package, *inputs, "--output", "out.npz", **limit)


def test_a_failed_write_keeps_the_old_file(fails, package, tmp_path):
    z = np.load(str(package).replace(".mlpackage", ".expected.npz"))
    np.save(tmp_path / "ids.npy", z["prompt"].astype(np.int32)[None])
    n = len(z["prompt"])
    np.save(tmp_path / "mask.npy", np.triu(np.full((1, 1, n, n), -30000, np.float16), 1))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "logits.npy").write_bytes(b"old")
    limit = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))}
    fails(1, ["out/logits.npy"], "predict", package, "--input", "inputIds=ids.npy", "--input", "causalMask=mask.npy",
          "--output", "out", **limit)
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["logits.npy"]
    assert (tmp_path / "out" / "logits.npy").read_bytes() == b"old"


def test_an_archive_that_unpacks_to_too_much(fails, package, tmp_path):
    with zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("inputIds.npy", bytes(1000))
        archive.infolist()[0].file_size = 1 << 40
    fails(1, ["x.npz: inputIds.npy", "1099511627776 bytes"], "predict", package, "--input", "x.npz")


@pytest.mark.parametrize("values", [[1, 2**40, 3], [1, -(2**31) - 1, 3], [1.0, 2.5, 3.0], [1.0, np.nan, 3.0], [1.0, np.inf, 3.0]])
def test_numbers_that_conversion_would_change(fails, package, tmp_path, values):
    np.save(tmp_path / "ids.npy", np.array([values]))
    fails(1, ["input 'inputIds': element 1 is"], "predict", package, "--input", "inputIds=ids.npy")


def test_types_that_cannot_be_read_are_named(fails, package, tmp_path):
    np.save(tmp_path / "ids.npy", np.array([[1j]]))
    fails(1, ["element type '<c16';"], "predict", package, "--input", "inputIds=ids.npy")


def test_ids_that_are_no_tokens(fails, tokenizer):
    """Decoding passes over them; the command does not print nothing."""
    fails(1, ["token id 512 is outside the vocabulary of 512"], "tokenize", tokenizer, "--decode", "511,512")
