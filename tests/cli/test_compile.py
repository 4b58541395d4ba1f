"""`pome compile`: the compiled form gives the same tokens as stored ones, and the folder is whole or not there."""
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import time

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
GOLDEN = ROOT / "tests" / "golden"
POME = os.environ.get("POME", str(ROOT / "build" / "release" / "cli" / "pome"))
KINDS = ["apple/int4-block32", "apple/layer1-lut4-vector2", "apple/layer1-sparse50-int8", "apple/layer1-uint4-block32-asym",
         "enumerated/stateful-int4", "multifunction/int4-block32", "nocache/layer1-logits-fixed64-lut6",
         "nocache/scores-range-fp32-tied", "snake/shift-fp16"]
LFS = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"


@pytest.fixture
def compiled(pome, package, tmp_path):
    target = tmp_path / "tiny.mlmodelc"
    done = pome("compile", package, target)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert done.stdout.startswith(f"{target}\n")
    return target


def tokens(pome, model, prompt, n, *more):
    done = pome("run", model, "--ids", ",".join(map(str, prompt)), "--temperature", "0", "--print-ids", "--ignore-eos",
                "--max-new-tokens", n, "--numerics", "exact", *more)
    assert done.returncode == 0, done.stderr
    return [int(t) for t in done.stdout.split()]


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_are_those_of_pytorch(pome, tmp_path, kind):
    """Also without the side files: the interface then follows from the program."""
    expected = np.load(GOLDEN / f"{kind}.expected.npz")
    target = tmp_path / "m.mlmodelc"
    assert pome("compile", GOLDEN / f"{kind}.mlpackage", target).returncode == 0
    for keys in [k for k in expected.files if k.split(".")[-1] == "greedy"]:
        prefix = keys[: -len("greedy")]
        more = ["--function", prefix.rstrip(".")] if prefix else []
        for _ in range(2):
            assert tokens(pome, target, expected[prefix + "prompt"].tolist(), 8, *more) == expected[keys].tolist()[:8]
            for name in ("coremldata.bin", "metadata.json"):
                (target / name).unlink(missing_ok=True)
        assert pome("compile", GOLDEN / f"{kind}.mlpackage", target, "--force").returncode == 0


def test_results_are_the_same_bits(pome, package, compiled, tmp_path):
    np.savez(tmp_path / "in.npz", inputIds=np.arange(5, dtype=np.int32)[None],
             causalMask=np.triu(np.full((5, 5), -np.inf, np.float16), 1)[None, None])
    outputs = []
    for model in (package, compiled):
        done = pome("predict", model, "--input", "in.npz", "--output", f"{model.suffix}.npz")
        assert done.returncode == 0, done.stderr
        outputs.append(np.load(tmp_path / f"{model.suffix}.npz")["logits"].tobytes())
    assert outputs[0] == outputs[1]


@pytest.mark.parametrize("kind", KINDS + ["loader/constants", "loader/control_flow", "chunks-lut4-split/tiny-llama_chunk4"])
def test_program_and_interface_survive(pome, tmp_path, kind):
    package, target = GOLDEN / f"{kind}.mlpackage", tmp_path / "m.mlmodelc"
    done = pome("compile", package, target)
    if kind == "loader/constants":  # some of its weights have types of floats that no operator takes
        assert done.returncode == 0, done.stderr
    described = [pome("inspect", m, "--json") for m in (package, target)]
    if described[0].returncode:  # operators without implementation: the program is what counts
        return
    a, b = (json.loads(d.stdout) for d in described)
    a.pop("path"), b.pop("path")
    assert a == b
    texts = [pome("inspect", m, "--mil") for m in (package, target)]
    assert texts[0].returncode == texts[1].returncode == 0 and texts[0].stdout == texts[1].stdout != ""


def test_text_is_spelled_as_compilers_do(pome, tmp_path):
    """What coremltools' own tests look for in the text, by specification version."""
    blob = "BLOBFILE(path = string(\"@model_path/weights/weight.bin\"), offset = uint64(64))"
    pome("compile", GOLDEN / "multifunction/int4-block32.mlpackage", "new.mlmodelc")
    text = (tmp_path / "new.mlmodelc/model.mil").read_text()
    assert text.startswith("program(1.3)\n[buildInfo = dict<string, string>({{")
    assert text.count("    func ") == 2 and text.count(blob) == 2  # the same weight cited from each function
    assert re.search(r"int32 \w+ = const\(\)\[name = string\(\"\w+\"\), val = int32\(-?\d+\)\];", text)
    assert "constexpr_blockwise_shift_scale(data = tensor<int4, [" in text
    pome("compile", GOLDEN / "chunks-lut4-split/tiny-llama_chunk4.mlpackage", "old.mlmodelc")
    text = (tmp_path / "old.mlmodelc/model.mil").read_text()
    assert text.startswith("program(1.0)\n[buildInfo = dict<tensor<string, []>, tensor<string, []>>({{")
    assert "constexpr_lut_to_dense()[indices = tensor<uint8, [8192]>(BLOBFILE(path = tensor<string, []>(\"@model_path/weights/" \
           "weight.bin\"), offset = tensor<uint64, []>(256)))" in text
    assert not re.search(r"[ (]string\(", text)
    for line in text.splitlines():  # every operation is named, arguments are sorted
        if " = " in line and line.endswith("];") and "buildInfo" not in line:
            assert "name = tensor<string, []>(" in line, line
        arguments = re.search(r" = [a-z_]+\(((?:\w+ = [\w]+(?:, )?)+)\)\[", line)
        if arguments:
            names = re.findall(r"(\w+) = ", arguments.group(1))
            assert names == sorted(names), line


def test_side_files(pome, compiled, package):
    (meta,) = json.loads((compiled / "metadata.json").read_text())
    assert meta["specificationVersion"] == 9 and meta["modelType"] == {"name": "MLModelType_mlProgram"}
    ids = {f["name"]: f for f in meta["inputSchema"]}["inputIds"]
    assert ids["shape"] == "[1, 1]" and ids["shapeRange"] == "[[1, 1], [1, 128]]" and ids["shapeFlexibility"] == "1 × 1...128"
    assert ids["dataType"] == "Int32" and ids["hasShapeFlexibility"] == "1" and ids["isOptional"] == "0"
    assert [s["formattedType"] for s in meta["stateSchema"]] == ["State (Float16 4 × 1 × 2 × 128 × 16)"] * 2
    assert meta["mlProgramOperationTypeHistogram"]["Ios18.scaledDotProductAttention"] == 4
    assert meta["userDefinedMetadata"]["co.huggingface.exporters.name"] == "tiny/llama-64x4"
    assert meta["availability"]["macOS"] == "15.0" and meta["generatedClassName"] == "tiny"
    binary = (compiled / "coremldata.bin").read_bytes()
    assert binary[:8] == bytes([0xF6, 1, 0, 0, 5, 0, 0, 0]) and b"\7\0\0\0\0\0\0\0generic" in binary
    assert binary.endswith(bytes([0xF6, 1]) + bytes(14)) and b"inputIds" in binary


@pytest.mark.parametrize("way, is_same", [("link", True), ("copy", False)])
def test_ways_of_placing_weights(pome, copied, tmp_path, way, is_same):
    weights = copied / "Data/com.apple.CoreML/weights/weight.bin"
    (copied / "tokenizer.json").write_text("{}")
    done = pome("compile", copied, "m.mlmodelc", "--weights", way, "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report[{"link": "linked", "copy": "copied"}[way]] == 2 and report["models"] == 1
    ours = tmp_path / "m.mlmodelc/weights/weight.bin"
    assert ours.read_bytes() == weights.read_bytes() and ours.samefile(weights) == is_same
    assert (tmp_path / "m.mlmodelc/tokenizer.json").read_text() == "{}"
    assert not list(tmp_path.glob("*.partial"))


def test_weights_behind_a_link(pome, copied, tmp_path):
    """As in the Hub's cache: the file is taken, not the link."""
    weights = copied / "Data/com.apple.CoreML/weights/weight.bin"
    weights.rename(tmp_path / "blob")
    weights.symlink_to(tmp_path / "blob")
    assert pome("compile", copied, "m.mlmodelc").returncode == 0
    assert not (tmp_path / "m.mlmodelc/weights/weight.bin").is_symlink()


def test_a_folder_of_packages(pome, tmp_path):
    source = tmp_path / "set"
    shutil.copytree(GOLDEN / "chunks-lut4-split", source)
    (source / "meta.yaml").write_text("a: b\n")
    packages = sorted(p.stem for p in source.glob("*.mlpackage"))
    done = pome("compile", source, "out")
    assert done.returncode == 0 and f"models        {len(packages)}" in done.stdout, done.stderr
    assert sorted(p.stem for p in (tmp_path / "out").glob("*.mlmodelc")) == packages
    assert (tmp_path / "out/meta.yaml").read_text() == "a: b\n"
    assert pome("inspect", tmp_path / "out/tiny-llama_chunk4.mlmodelc").returncode == 0
    assert pome("compile", source, "out", "--force").returncode == 0
    assert f"{len(packages)} packages" in pome("compile", source, "out.mlmodelc").stderr


def test_what_is_there_is_kept(pome, fails, package, compiled, tmp_path):
    before = (compiled / "model.mil").stat().st_mtime_ns
    fails(1, ["tiny.mlmodelc exists", "--force"], "compile", package, compiled)
    assert (compiled / "model.mil").stat().st_mtime_ns == before
    assert pome("compile", package, compiled, "--force").returncode == 0
    (tmp_path / "d.mlmodelc").mkdir()
    (tmp_path / "d.mlmodelc/letter.txt").write_text("dear")
    fails(1, ["other things than a compiled model"], "compile", package, "d.mlmodelc", "--force")
    fails(1, ["name ends in .mlmodelc"], "compile", package, "tiny")
    said = fails(1, ["is compiled already: wanted a package"], "compile", compiled, "again.mlmodelc")
    assert said.count(str(compiled)) == 1
    fails(1, ["y.mlmodelc lies inside the package"], "compile", package, package / "y.mlmodelc")
    fails(1, ["y.mlmodelc lies inside the package"], "compile", package, package / "Data/y.mlmodelc")
    fails(1, ["no such file"], "compile", "nothing.mlpackage", "n.mlmodelc")
    fails(1, ["there is no such folder"], "compile", package, "no/where.mlmodelc")
    assert not (tmp_path / "again.mlmodelc").exists() and not list(tmp_path.glob("*.partial"))


def test_a_full_disk_leaves_nothing(package, tmp_path, environment):
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    done = subprocess.run([POME, "compile", package, "m.mlmodelc", "--weights", "copy"], cwd=tmp_path, env=environment,
                          capture_output=True, text=True, preexec_fn=limit, timeout=60)
    assert done.returncode == 1 and "m.mlmodelc.partial/" in done.stderr, done
    assert not list(tmp_path.glob("m.mlmodelc*"))


def test_killed_at_any_moment(pome, copied, tmp_path, environment):
    """What is under the final name is whole; what is left beside it is no obstacle."""
    weights = copied / "Data/com.apple.CoreML/weights/weight.bin"
    with open(weights, "r+b") as f:
        f.truncate(200 << 20)  # nothing cites what is behind: it only takes time to copy
    target, n_killed = tmp_path / "m.mlmodelc", 0
    for delay in (0.0, 0.002, 0.005, 0.01, 0.02, 0.04):
        process = subprocess.Popen([POME, "compile", copied, target, "--weights", "copy", "--force"], env=environment,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(delay)
        process.kill()
        n_killed += process.wait() == -signal.SIGKILL
        if target.exists():
            assert (target / "metadata.json").exists() and (target / "weights/weight.bin").stat().st_size == 200 << 20
    assert n_killed >= 1
    assert pome("compile", copied, target, "--force").returncode == 0
    assert sorted(p.name for p in target.iterdir()) == ["coremldata.bin", "metadata.json", "model.mil", "weights"]


# ---- damaged and unusual folders ----


@pytest.mark.parametrize("below", ["model.mil", "weights", "weights/weight.bin", "coremldata.bin", "metadata.json", "."])
def test_a_path_in_the_folder_stands_for_it(pome, compiled, below):
    done = pome("inspect", compiled / below)
    assert done.returncode == 0 and "contract" not in done.stderr and "keyCache" in done.stdout, done.stderr


def test_a_folder_with_one_compiled_model(pome, compiled, tmp_path):
    (tmp_path / "repo").mkdir()
    compiled.rename(tmp_path / "repo/tiny.mlmodelc")
    assert "keyCache" in pome("inspect", tmp_path / "repo").stdout


def test_truncated_text(fails, compiled):
    text = (compiled / "model.mil").read_text()
    for n in (0, 10, len(text) // 3, len(text) // 2, len(text) - 20, len(text) - 3):
        (compiled / "model.mil").write_text(text[:n])
        message = fails(1, ["model.mil: line ", ", column "], "inspect", compiled)
        assert f"line {text[:n].count(chr(10)) + 1}," in message, message


def test_line_ends_and_mark_of_other_editors(pome, compiled):
    want = pome("inspect", compiled, "--mil").stdout
    text = (compiled / "model.mil").read_text()
    (compiled / "model.mil").write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    assert pome("inspect", compiled, "--mil").stdout == want != ""


def test_pointers_of_git_lfs(fails, compiled, copied):
    for model, folder in ((compiled, compiled), (copied, copied / "Data/com.apple.CoreML")):
        path = folder / "weights/weight.bin"
        path.unlink()
        path.write_text(LFS)
        fails(1, ["weight.bin is a Git LFS pointer", "git lfs pull"], "inspect", model)
    (compiled / "model.mil").write_text(LFS)
    fails(1, ["model.mil: a Git LFS pointer"], "inspect", compiled)


def test_missing_parts(pome, fails, compiled):
    (compiled / "weights/weight.bin").rename(compiled / "weights/other.bin")
    fails(1, ["weights/weight.bin: the weight file is missing"], "inspect", compiled)
    (compiled / "weights/other.bin").rename(compiled / "weights/weight.bin")
    (compiled / "metadata.json").write_text("[{")
    (compiled / "coremldata.bin").write_bytes(b"\xf6\1" + bytes(100))
    done = pome("inspect", compiled)
    assert done.returncode == 0 and "metadata.json is passed over" in done.stderr and "keyCache" in done.stdout
    (compiled / "model.mil").unlink()
    fails(1, ["model.mil is missing"], "inspect", compiled)
    (compiled / "coremldata.bin").write_bytes(bytes([0xF4, 1]) + bytes(100))
    fails(1, ["of kind neuralNetwork, not an ML Program"], "inspect", compiled)


def test_weights_of_another_model(fails, pome, compiled, tmp_path):
    pome("compile", GOLDEN / "apple/layer1-lut4-vector2.mlpackage", "other.mlmodelc")
    shutil.copyfile(tmp_path / "other.mlmodelc/weights/weight.bin", tmp_path / "w")
    (compiled / "weights/weight.bin").unlink()
    (tmp_path / "w").rename(compiled / "weights/weight.bin")
    fails(1, ["weight.bin: blob at 0x"], "inspect", compiled)


def test_a_program_written_by_hand_with_zero_weights(pome, tmp_path):
    """Weights of the right size and nothing else: the result is what is left, the bias."""
    folder = tmp_path / "hand.mlmodelc"
    (folder / "weights").mkdir(parents=True)
    blob = b"".join(v.to_bytes(s, "little") for v, s in ((0xDEADBEEF, 4), (1, 4), (2 * 3 * 2, 8), (128, 8))) + bytes(40)
    (folder / "weights/w.bin").write_bytes((1).to_bytes(4, "little") + (2).to_bytes(4, "little") + bytes(56) + blob + bytes(12))
    (folder / "model.mil").write_text(
        "program(1.0)\n{ func main<ios16>(tensor<fp32, [1, 3]> x) {\n"
        " tensor<fp16, [2, 3]> w = const()[val = tensor<fp16, [2, 3]>(BLOBFILE(path = string(\"@model_path/weights/w.bin\"), "
        "offset = tensor<uint64, []>(64)))];\n"
        " tensor<fp16, [1, 3]> h = cast(dtype = string(\"fp16\"), x = x);\n"
        " tensor<fp16, [1, 2]> y = linear(bias = tensor<fp16, [2]>([0x1p+0, -0x1.8p+1]), weight = w, x = h);\n } -> (y); }")
    np.save(tmp_path / "x.npy", np.ones((1, 3), np.float32))
    done = pome("predict", folder, "--input", "x=x.npy", "--output", "y.npz")
    assert done.returncode == 0, done.stderr
    assert np.load(tmp_path / "y.npz")["y"].tolist() == [[1, -3]]


# ---- pipelines ----


def predicted(pome, tmp_path, model):
    stored = np.load(GOLDEN / "loader/pipeline.npz")
    np.savez(tmp_path / "in.npz", x=stored["x"], shift=stored["shift"])
    done = pome("predict", model, "--input", "in.npz", "--output", "out.npz")
    assert done.returncode == 0, done.stderr
    return np.load(tmp_path / "out.npz")["y"].tolist(), stored["y"].tolist()


def test_a_pipeline_runs_as_one_program(pome, tmp_path):
    package = GOLDEN / "loader/pipeline.mlpackage"
    got, wanted = predicted(pome, tmp_path, package)
    assert got == wanted
    assert pome("compile", package, "p.mlmodelc").returncode == 0
    assert sorted(p.name for p in (tmp_path / "p.mlmodelc/weights").iterdir()) == ["0-weight.bin", "1-weight.bin"]
    got, wanted = predicted(pome, tmp_path, tmp_path / "p.mlmodelc")
    assert got == wanted


STAGE = """program(1.0)
{{ func main<{opset}>({inputs}) {{
 tensor<fp16, [2]> w = const()[val = tensor<fp16, [2]>(BLOBFILE(path = string("@model_path/weights/weight.bin"), offset = uint64(64)))];
 {body}
 }} -> ({output}); }}
"""


def write_stage(folder, weights, **parts):
    (folder / "weights").mkdir(parents=True)
    record = b"".join(v.to_bytes(s, "little") for v, s in ((0xDEADBEEF, 4), (1, 4), (4, 8), (128, 8))) + bytes(40)
    header = (1).to_bytes(4, "little") + (2).to_bytes(4, "little") + bytes(56)
    (folder / "weights/weight.bin").write_bytes(header + record + np.array(weights, np.float16).tobytes())
    (folder / "model.mil").write_text(STAGE.format(**parts))


def test_a_compiled_pipeline(pome, fails, tmp_path):
    """Stages in folders, each with its weights; fp32 between them, fp16 within the second; values of one name in both."""
    folder = tmp_path / "p.mlmodelc"
    write_stage(folder / "model0", [2, 3], opset="ios16", inputs="tensor<fp32, [2]> x", output="h",
                body='tensor<fp32, [2]> f = cast(dtype = string("fp32"), x = w); tensor<fp32, [2]> h = mul(x = x, y = f);')
    write_stage(folder / "model1", [10, 20], opset="ios16", inputs="tensor<fp16, [2]> h, tensor<fp16, [2]> z", output="y",
                body="tensor<fp16, [2]> f = add(x = h, y = w); tensor<fp16, [2]> y = mul(x = f, y = z);")
    np.savez(tmp_path / "in.npz", x=np.array([1, 2], np.float32), z=np.array([1, -1], np.float16))
    done = pome("predict", folder, "--input", "in.npz", "--output", "out.npz")
    assert done.returncode == 0, done.stderr
    assert np.load(tmp_path / "out.npz")["y"].tolist() == [12, -26]
    (folder / "model1").rename(folder / "model2")
    fails(1, ["p.mlmodelc: found model2 but no model1"], "inspect", folder)
    (folder / "model2").rename(folder / "model1")
    text = folder / "model1/model.mil"
    text.write_text(text.read_text().replace("ios16", "ios18"))
    fails(1, ["p.mlmodelc: the stages of the pipeline are for different operator sets, CoreML6 and CoreML8"], "inspect", folder)
    text.unlink()
    fails(1, ["p.mlmodelc/model1: model.mil is missing"], "inspect", folder)
