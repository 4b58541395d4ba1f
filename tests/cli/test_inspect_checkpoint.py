"""`pome inspect` of checkpoints, against the gguf and safetensors packages; damaged files give one clear error."""
import json
import os
import shutil
import struct

import gguf
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

# Q8_1 is never stored, and the package's size for it is that of an older layout.
STORED_TYPES = [t for t in gguf.GGML_QUANT_SIZES if t != gguf.GGMLQuantizationType.Q8_1]


def change_config(folder, **fields):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def tensors_of_safetensors(paths):
    found = {}
    for path in paths:
        with safe_open(path, "numpy") as f:
            for name in f.keys():
                part = f.get_slice(name)
                found[name] = {"type": part.get_dtype(), "shape": part.get_shape()}
    return found


def by_type(tensors):
    """{type: (tensors, elements)}"""
    sums = {}
    for t in tensors:
        n, elements = sums.get(t["type"], (0, 0))
        sums[t["type"]] = (n + 1, elements + int(np.prod(t["shape"])))
    return sums


def inspect(pome, path, *options):
    done = pome("inspect", path, "--json", "--tensors", *options)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("what", ["folder", "file"])
def test_folder_and_file(pome, checkpoint, what):
    path = checkpoint if what == "folder" else checkpoint / "model.safetensors"
    info = inspect(pome, path)
    config = json.loads((checkpoint / "config.json").read_text())
    expected = tensors_of_safetensors([checkpoint / "model.safetensors"])
    assert {t["name"]: {"type": t["type"], "shape": t["shape"]} for t in info["tensors"]} == expected
    assert {t["type"]: (t["tensors"], t["elements"]) for t in info["types"]} == by_type(expected.values())
    assert info["parameters"] == sum(int(np.prod(t["shape"])) for t in expected.values())
    assert (info["kind"], info["format"], info["version"], info["files"]) == ("checkpoint", "safetensors", None, 1)
    assert info["bytes"] == (checkpoint / "model.safetensors").stat().st_size
    assert info["architecture"] == config["architectures"][0] and info["config"] == config
    assert [info[k] for k in ("layers", "hidden", "feed_forward", "heads", "key_value_heads", "vocabulary", "positions")] == [
        config[k] for k in ("num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads",
                            "num_key_value_heads", "vocab_size", "max_position_embeddings")]
    assert (info["tokenizer"], info["tokenizer_problem"], info["generation"]) == ("tokenizer.json", None, "generation_config.json")
    template = json.loads((checkpoint / "tokenizer_config.json").read_text()).get("chat_template")
    assert info["chat_template"] == ("tokenizer_config.json" if template else None)


def test_conversion_is_what_convert_makes(pome, checkpoint, tmp_path):
    said = inspect(pome, checkpoint)["conversion"]
    out = tmp_path / "out.mlpackage"
    done = pome("convert", checkpoint, out, "--json")
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    assert said.pop("possible") is True
    assert said == {k: made[k] for k in said} and said["weights_bytes"] > 0
    assert (out / "Data/com.apple.CoreML/weights/weight.bin").stat().st_size == said["weights_bytes"]


def test_shards(pome, fails, checkpoint):
    with safe_open(checkpoint / "model.safetensors", "numpy") as f:
        names = list(f.keys())
    shapes = tensors_of_safetensors([checkpoint / "model.safetensors"])
    parts = [{n: np.zeros(shapes[n]["shape"], np.float16) for n in names[i::3]} for i in range(3)]
    files = [f"model-{i}-of-3.safetensors" for i in (1, 2, 3)]
    for part, file in zip(parts, files):
        save_file(part, checkpoint / file)
    (checkpoint / "model.safetensors").unlink()
    index = {n: file for part, file in zip(parts, files) for n in part}
    (checkpoint / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    info = inspect(pome, checkpoint)
    assert info["files"] == 3 and info["types"][0]["type"] == "F16" and len(info["tensors"]) == len(names)
    assert info["bytes"] == sum((checkpoint / f).stat().st_size for f in files)
    for file in files[1:]:
        (checkpoint / file).unlink()
    fails(1, ["shards are missing", *files[1:]], "inspect", checkpoint)


def test_text(pome, checkpoint):
    done = pome("inspect", checkpoint)
    assert done.returncode == 0
    for part in ("format      safetensors, 1 file", "architecture LlamaForCausalLM", "layers 4, hidden 64",
                 "tokenizer   tokenizer.json", "convert     yes: int4"):
        assert part in done.stdout, done.stdout
    assert "model.norm.weight" not in done.stdout
    assert "model.norm.weight [64]" in pome("inspect", checkpoint, "--tensors").stdout


@pytest.mark.parametrize("fields, reason", [
    ({"model_type": "mamba", "architectures": ["MambaForCausalLM"]}, '"mamba"'),
    ({"rope_scaling": {"rope_type": "spiral", "factor": 2.0}}, '"spiral"'),
    ({"hidden_size": 128}, "the configuration asks for"),
    ({"quantization_config": {"bits": 4}}, "quantized by another tool"),
])
def test_what_cannot_be_converted_is_shown_with_the_reason(pome, checkpoint, fields, reason):
    change_config(checkpoint, **fields)
    info = inspect(pome, checkpoint)
    assert info["conversion"]["possible"] is False and reason in info["conversion"]["reason"], info["conversion"]
    assert info["parameters"] > 0 and info["config"] | fields == info["config"]
    assert "convert     no: " in pome("inspect", checkpoint).stdout


def test_without_configuration_and_tokenizer(pome, checkpoint, tmp_path):
    shutil.copy(checkpoint / "model.safetensors", tmp_path / "alone.safetensors")
    info = inspect(pome, tmp_path / "alone.safetensors")
    assert info["architecture"] is None and info["layers"] is None and info["tokenizer"] is None and info["config"] == {}
    assert "config.json" in info["conversion"]["reason"] and len(info["tensors"]) == len(
        tensors_of_safetensors([checkpoint / "model.safetensors"]))


def test_tokenizers_that_cannot_be_used(pome, checkpoint):
    (checkpoint / "tokenizer.json").write_text('{"model": {"type": "Oracle"}}')
    info = inspect(pome, checkpoint)
    assert info["tokenizer"] == "tokenizer.json" and info["tokenizer_problem"]
    (checkpoint / "tokenizer.json").rename(checkpoint / "tokenizer.model")
    info = inspect(pome, checkpoint)
    assert info["tokenizer"] == "tokenizer.model" and "tokenizer.json" in info["tokenizer_problem"]


def test_sizes_inside_a_text_config(pome, checkpoint):
    config = json.loads((checkpoint / "config.json").read_text())
    (checkpoint / "config.json").write_text(json.dumps({"model_type": "gemma3", "text_config": config}))
    info = inspect(pome, checkpoint)
    assert info["hidden"] == config["hidden_size"] and info["layers"] == config["num_hidden_layers"]


# ---- GGUF ----

@pytest.fixture
def model(tmp_path):
    """A GGUF file with a tensor of every type."""
    path = tmp_path / "model.gguf"
    w = gguf.GGUFWriter(path, "llama")
    w.add_name("every type")
    w.add_block_count(3)
    w.add_embedding_length(512)
    w.add_head_count(8)
    w.add_context_length(77)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_int32("some.negative", -5)
    w.add_uint64("some.large", 2**64 - 1)
    w.add_float64("some.infinity", float("inf"))
    w.add_string("some.text", "Äpfel \x1b[31m")
    w.add_bool("some.truth", True)
    w.add_array("some.list", [1, 2, 3])
    w.add_tokenizer_model("gpt2")
    w.add_token_list(["a", "b", "c"])
    w.add_chat_template("{{ messages }}")
    rng = np.random.default_rng(3)
    for t in STORED_TYPES:
        block, size = gguf.GGML_QUANT_SIZES[t]
        w.add_tensor(f"t.{t.name}", rng.integers(0, 256, (5, 512 // block * size), np.uint8), raw_dtype=t)
    w.add_tensor("vector", np.arange(7, dtype=np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return path


def test_every_type_of_gguf(pome, model):
    info = inspect(pome, model)
    reader = gguf.GGUFReader(model)
    expected = {t.name: (t.tensor_type.name, [int(n) for n in reversed(t.shape)], int(t.n_bytes)) for t in reader.tensors}
    assert {t["name"]: (t["type"], t["shape"], t["bytes"]) for t in info["tensors"]} == expected
    assert info["parameters"] == sum(int(t.n_elements) for t in reader.tensors)
    assert (info["format"], info["version"], info["bytes"]) == ("GGUF", 3, model.stat().st_size)
    assert (info["layers"], info["hidden"], info["heads"], info["head_size"], info["vocabulary"], info["positions"]) == (
        3, 512, 8, 64, 3, 77)
    assert (info["tokenizer"], info["chat_template"]) == ("tokenizer.ggml.tokens", "tokenizer.chat_template")
    config = info["config"]
    assert config["some.negative"] == -5 and config["some.large"] == float(2**64 - 1) and config["some.infinity"] is None
    assert config["some.text"] == "Äpfel \x1b[31m" and config["some.truth"] is True and "some.list" not in config
    assert config["llama.attention.layer_norm_rms_epsilon"] == float(np.float32(1e-5))
    assert info["conversion"]["possible"] is False


def test_no_escape_sequences_reach_the_terminal(pome, tmp_path):
    path = tmp_path / "model.gguf"
    w = gguf.GGUFWriter(path, "evil\x1b[31m")
    w.add_name("evil\x1b[32m\nformat      fine")
    w.add_tensor("evil\x1b[33m", np.zeros((2, 3), np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    done = pome("inspect", path, "--tensors")
    assert done.returncode == 0 and "\x1b" not in done.stdout + done.stderr and "\nformat      fine" not in done.stdout
    assert done.stdout.count("evil") >= 3


def test_a_type_from_the_future(pome, model):
    data = model.read_bytes()
    name = b"t.Q1_0"
    at = data.index(name) + len(name) + 4 + 2 * 8
    model.write_bytes(data[:at] + struct.pack("<I", 999) + data[at + 4:])
    tensor = next(t for t in inspect(pome, model)["tensors"] if t["name"] == "t.Q1_0")
    assert tensor["type"] == "type 999" and tensor["bytes"] == 0 and tensor["shape"] == [5, 512]


# ---- damage ----

def one_error(done, *parts):
    assert done.returncode == 1 and done.stdout == "", done
    lines = done.stderr.splitlines()
    assert len(lines) == 1 and lines[0].startswith("pome: "), lines
    for part in parts:
        assert part in lines[0], lines


@pytest.mark.parametrize("kept", [0, 3, 4, 10, 24, 60, 400, -4000, -8])
def test_cut_gguf(pome, model, kept):
    data = model.read_bytes()
    model.write_bytes(data[:kept])
    done = pome("inspect", model)
    if kept in (0, 3):  # not recognizable
        assert done.returncode == 1 and len(done.stderr.splitlines()) == 1
    else:
        one_error(done, "model.gguf", "GGUF" if kept > 0 else "download incomplete")


@pytest.mark.parametrize("kept", [0, 4, 8, 100, -1])
def test_cut_safetensors(pome, checkpoint, kept):
    path = checkpoint / "model.safetensors"
    path.write_bytes(path.read_bytes()[:kept])
    one_error(pome("inspect", checkpoint), "model.safetensors")
    one_error(pome("inspect", path), "model.safetensors")


@pytest.mark.parametrize("header, part", [
    (b"[]", "no object"),
    (b'{"a": 1}', '"a"'),
    (b'{"a": {"dtype": "F32", "shape": [1099511627776, 1099511627776], "data_offsets": [0, 4]}}', "more elements"),
    (b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 40000]}}', "bytes 0 to 40000"),
    (b'{"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}', "its shape needs 8"),
    (b'{"a": {"dtype": "F33", "shape": [1], "data_offsets": [0, 4]}}', '"F33"'),
    (b"[" * 5000, "header"),
])
def test_lying_headers(pome, tmp_path, header, part):
    path = tmp_path / "lying.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + b"\0" * 4)
    one_error(pome("inspect", path), "lying.safetensors", part)


def test_headers_of_impossible_length(pome, tmp_path):
    path = tmp_path / "lying.safetensors"
    for n in (2**63, 2**64 - 1, 2**40, 5):
        path.write_bytes(struct.pack("<Q", n) + b"{}  ")
        one_error(pome("inspect", path), "lying.safetensors")


def test_damaged_configuration(pome, checkpoint):
    (checkpoint / "config.json").write_text('{"hidden_size": ')
    one_error(pome("inspect", checkpoint), "config.json")


def test_what_is_no_checkpoint(pome, fails, checkpoint, package, tmp_path):
    fails(1, ["missing.safetensors"], "inspect", tmp_path / "missing.safetensors")
    fails(1, ["is no checkpoint"], "inspect", package, "--tensors")
    for option in (["--mil"], ["--plan"], ["--function", "main"]):
        fails(1, ["is a checkpoint, which has no program"], "inspect", checkpoint, *option)
    os.mkfifo(tmp_path / "fifo.safetensors")
    one_error(pome("inspect", tmp_path / "fifo.safetensors"), "not a regular file")
