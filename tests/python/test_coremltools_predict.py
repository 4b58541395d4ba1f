"""pome.coremltools: coremltools' own classes predict, in programs that know nothing of it."""
import os
import pathlib
import shutil
import subprocess
import sys
import textwrap

import numpy as np
import pytest

if os.environ.get("POME_PACKAGE"):
    import pome as package
else:
    package = pytest.importorskip("pome")

HERE = pathlib.Path(__file__).resolve().parent
GOLDEN = HERE.parent / "golden"
ENVIRONMENT = {**os.environ, "PYTHONWARNINGS": "default", "POME_THREADS": "1"}


def run(*arguments, good=True):
    done = subprocess.run([sys.executable, *map(str, arguments)], capture_output=True, text=True, env=ENVIRONMENT)
    assert (done.returncode == 0) == good, done.stderr
    return done


PROGRAM = """
    import os, pathlib, shutil, sys
    import numpy as np
    import coremltools as ct
    from coremltools.converters.mil import Builder as mb, mil

    folder, golden = sys.argv[1:]

    @mb.program(input_specs=[mb.TensorSpec(shape=(2, 3))], opset_version=ct.target.iOS18)
    def twice(x):
        return mb.add(x=x, y=x, name="y")

    def refused(call, *words):
        try:
            call()
        except RuntimeError as error:
            assert all(word in str(error) for word in words), error
        else:
            raise AssertionError("not refused")

    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    model = ct.convert(twice, minimum_deployment_target=ct.target.iOS18)
    assert model.last_predict_duration_in_nano_seconds is None
    y = model.predict({"x": x})["y"]
    assert y.dtype == np.float32 and np.array_equal(y, 2 * x)
    assert model.load_duration_in_nano_seconds > 0 and model.last_predict_duration_in_nano_seconds > 0
    assert np.array_equal(model.predict({"x": x.astype(np.float16)})["y"], 2 * x)
    assert np.array_equal(model.predict({"x": x.astype(np.int32)})["y"], 2 * x)
    assert np.array_equal(model.predict({"x": x.T.copy().T})["y"], 2 * x)
    batch = model.predict([{"x": x}, {"x": x + 1}])
    assert np.array_equal(batch[1]["y"], 2 * x + 2) and len(batch) == 2
    refused(lambda: model.predict({"x": np.zeros((3, 3))}), "[3, 3]", "[2, 3]", "Unable to compute the prediction")
    refused(lambda: model.predict({"x": "text"}), "input 'x'")
    try:
        model.predict({"z": x})
    except KeyError:
        pass

    # shapes that are not admissible, in the framework's words too
    @mb.program(input_specs=[mb.TensorSpec(shape=(mil.get_new_symbol(), 3))], opset_version=ct.target.iOS16)
    def flexible(x):
        return mb.relu(x=x, name="y")

    ranged = ct.convert(flexible, inputs=[ct.TensorType(name="x", shape=(ct.RangeDim(2, 5), 3))])
    refused(lambda: ranged.predict({"x": np.zeros((6, 3))}), "[6, 3]", "Size (6) of dimension (0) is not in allowed range (2..5)")
    listed = ct.convert(flexible, inputs=[ct.TensorType(name="x", shape=ct.EnumeratedShapes([(2, 3), (4, 3)]))])
    refused(lambda: listed.predict({"x": np.zeros((3, 3))}), "Unable to compute the prediction",
            "MultiArray Shape (3 x 3) was not in enumerated set of allowed shapes")
    assert listed.predict({"x": np.ones((4, 3))})["y"].shape == (4, 3)

    package = os.path.join(folder, "twice.mlpackage")
    model.save(package)
    assert np.array_equal(ct.models.MLModel(package).predict({"x": x})["y"], 2 * x)

    # compiled folders
    kept = os.path.join(folder, "kept.mlmodelc")
    shutil.copytree(model.get_compiled_model_path(), kept)
    assert os.path.exists(os.path.join(kept, "model.mil"))
    for path in (kept, ct.models.utils.compile_model(package),
                 ct.models.utils.compile_model(package, os.path.join(folder, "named.mlmodelc")),
                 ct.models.utils.compile_model(model.get_spec())):
        compiled = ct.models.CompiledMLModel(path, ct.ComputeUnit.CPU_ONLY)
        assert np.array_equal(compiled.predict({"x": x})["y"], 2 * x)
    refused(lambda: ct.models.CompiledMLModel(os.path.join(folder, "none.mlmodelc")), "none.mlmodelc")

    plan = ct.models.compute_plan.MLComputePlan.load_from_path(kept)
    (add,) = [o for o in plan.model_structure.program.functions["main"].block.operations if o.operator_name == "add"]
    assert [b.name for b in add.inputs["x"].bindings] == ["x_to_fp16"] and plan.get_estimated_cost_for_mlprogram_operation(add).weight > 0
    assert "CPU" in type(plan.get_compute_device_usage_for_mlprogram_operation(add).preferred_compute_device).__name__

    # assets
    for asset in (ct.models.model.MLModelAsset.from_path(kept),
                  ct.models.model.MLModelAsset.from_memory(model.get_spec().SerializeToString())):
        loaded = ct.models.CompiledMLModel.from_asset(asset)
        assert np.array_equal(loaded.predict({"x": x})["y"], 2 * x)
    model_file = os.path.join(golden, "apple", "int4-block32.mlpackage", "Data", "com.apple.CoreML")
    blob = pathlib.Path(model_file, "weights", "weight.bin").read_bytes()
    spec = pathlib.Path(model_file, "model.mlmodel").read_bytes()
    asset = ct.models.model.MLModelAsset.from_memory(spec, {"weights/weight.bin": blob})
    assert ct.models.CompiledMLModel.from_asset(asset).make_state() is not None

    # states
    @mb.program(input_specs=[mb.TensorSpec(shape=(3,)), mb.StateTensorSpec((3,), dtype=ct.converters.mil.mil.types.fp16)],
                opset_version=ct.target.iOS18)
    def sum_up(x, total):
        new = mb.add(x=mb.read_state(input=total), y=mb.cast(x=x, dtype="fp16"))
        return mb.coreml_update_state(state=total, value=new)

    model = ct.convert(sum_up, minimum_deployment_target=ct.target.iOS18)
    state, other = model.make_state(), model.make_state()
    for _ in range(3):
        out = list(model.predict({"x": np.array([1, 2, 3.0])}, state).values())[0]
    assert np.array_equal(out, [3, 6, 9]) and np.array_equal(state.read_state("total"), out)
    assert state.read_state("total").dtype == np.float32 and not other.read_state("total").any()
    other.write_state("total", np.array([7, 7, 7.0]))
    assert np.array_equal(other.read_state("total"), [7, 7, 7])
    refused(lambda: other.write_state("total", np.zeros(4)), "[4]", "[3]")
    refused(lambda: other.read_state("none"), "none", "total")
    refused(lambda: model.predict({"x": np.zeros(3)}), "state")

    # several functions
    two = os.path.join(golden, "multifunction", "int4-block32.mlpackage")
    for name in ("base", "adapter"):
        model = ct.models.MLModel(two, function_name=name)
        assert model.make_state() is not None

    # classifiers and images
    from PIL import Image

    @mb.program(input_specs=[mb.TensorSpec(shape=(1, 3, 4, 6))], opset_version=ct.target.iOS16)
    def brightest(x):
        return mb.softmax(x=mb.mul(x=mb.reduce_mean(x=x, axes=[2, 3]), y=np.float32(0.05)), name="p")

    colors = np.random.default_rng(0).integers(0, 50, (4, 6, 3), np.uint8)
    colors[..., 0] += 200
    picture = Image.fromarray(colors)
    image = ct.ImageType(name="x", shape=(1, 3, 4, 6), color_layout=ct.colorlayout.BGR)
    model = ct.convert(brightest, inputs=[image], classifier_config=ct.ClassifierConfig(["blue", "green", "red"]),
                       minimum_deployment_target=ct.target.iOS16)
    out = model.predict({"x": picture})
    assert out["classLabel"] == "red" and max(out["classLabel_probs"], key=out["classLabel_probs"].get) == "red", out
    assert list(out["classLabel_probs"]) == ["blue", "green", "red"] and abs(sum(out["classLabel_probs"].values()) - 1) < 1e-2

    @mb.program(input_specs=[mb.TensorSpec(shape=(1, 3, 4, 6))], opset_version=ct.target.iOS16)
    def halved(x):
        return mb.mul(x=x, y=np.float32(0.5), name="y")

    image = ct.ImageType(name="x", shape=(1, 3, 4, 6), color_layout=ct.colorlayout.RGB)
    model = ct.convert(halved, inputs=[image], minimum_deployment_target=ct.target.iOS16,
                       compute_precision=ct.precision.FLOAT32)
    spec = model.get_spec()
    kind = spec.description.output[0].type.imageType
    kind.width, kind.height, kind.colorSpace = 6, 4, kind.ColorSpace.Value("RGB")
    model = ct.models.MLModel(spec, weights_dir=model.weights_dir)
    out = model.predict({"x": picture})["y"]
    assert out.mode == "RGBA" and out.size == (6, 4)
    assert np.abs(np.asarray(out)[..., :3] - colors / 2.0).max() <= 0.5 and (np.asarray(out)[..., 3] == 255).all()
    refused(lambda: model.predict({"x": Image.fromarray(colors[:2])}), "image")

    # other kinds of model
    spec = ct.proto.Model_pb2.Model()
    spec.specificationVersion = 4
    spec.description.input.add().name = "x"
    spec.description.input[0].type.multiArrayType.shape.append(1)
    spec.description.input[0].type.multiArrayType.dataType = 65568
    spec.description.output.add().CopyFrom(spec.description.input[0])
    spec.description.output[0].name = "y"
    spec.neuralNetwork.layers.add().name = "l"
    refused(lambda: ct.models.MLModel(spec).predict({"x": np.zeros(1)}), "neuralNetwork", "ML Program")

    devices = ct.models.MLModel.get_available_compute_devices()
    assert [type(device).__name__ for device in devices] == ["MLCPUComputeDevice"]
    print("all good")
"""


def test_the_classes_of_coremltools(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM))
    before = sorted((p, p.stat().st_mtime_ns) for p in coremltools_folder().rglob("*.py"))
    assert run("-m", "pome.coremltools", program, tmp_path, GOLDEN).stdout.split("\n")[-2] == "all good"
    assert before == sorted((p, p.stat().st_mtime_ns) for p in coremltools_folder().rglob("*.py"))


def coremltools_folder():
    import importlib.util

    return pathlib.Path(importlib.util.find_spec("coremltools").origin).parent


PREDICT = """
import sys, warnings
import coremltools as ct
if sys.argv[1] == "with":
    import pome.coremltools
model = ct.models.MLModel("llm.mlpackage")
state = model.make_state()
print(model.predict({"inputIds": [[1]], "causalMask": [[[[0.0]]]]}, state)["logits"].shape)
"""


OPERATORS = """
    import sys
    import numpy as np
    import coremltools as ct
    from coremltools.converters.mil import Builder as mb, mil
    from coremltools.converters.mil.mil import types

    def convert(program, precision=ct.precision.FLOAT32, **options):
        return ct.convert(program, compute_precision=precision, minimum_deployment_target=ct.target.iOS17,
                          compute_units=ct.ComputeUnit.CPU_ONLY, **options)

    # constants of another type than what they are multiplied with
    draw = np.random.default_rng(5)
    kinds = {np.float16: types.fp16, np.float32: types.fp32, np.int32: types.int32}
    for one, kind in kinds.items():
        for other in kinds:
            x, y = draw.integers(-9, 10, (2, 5)).astype(one), draw.integers(-9, 10, (5, 3)).astype(other)
            bias = draw.integers(-9, 10, 3).astype(other)
            spec = [mb.TensorSpec(shape=x.shape, dtype=kind)]

            @mb.program(input_specs=spec, opset_version=ct.target.iOS17)
            def right(x):
                return mb.matmul(x=x, y=y, name="right"), mb.linear(x=x, weight=y.T.copy(), bias=bias, name="linear")

            @mb.program(input_specs=spec, opset_version=ct.target.iOS17)
            def left(x):
                return mb.matmul(x=y, y=x, transpose_x=True, transpose_y=True, name="left")

            want = x.astype(float) @ y.astype(float)
            out = convert(right, pass_pipeline=ct.PassPipeline.EMPTY).predict({"x": x})
            assert np.array_equal(out["right"], want) and np.array_equal(out["linear"], want + bias), (one, other)
            out = convert(left, pass_pipeline=ct.PassPipeline.EMPTY).predict({"x": x})
            assert np.array_equal(out["left"], want.T), (one, other)

    # a result whose rank only the input's length tells, in halves through a cast
    @mb.program(input_specs=[mb.TensorSpec(shape=(mil.get_new_symbol(),), dtype=types.int32)], opset_version=ct.target.iOS17)
    def filled(shape):
        return mb.relu(x=mb.fill(shape=shape, value=2.5), name="y")

    for precision in (ct.precision.FLOAT16, ct.precision.FLOAT32):
        model = convert(filled, precision, inputs=[ct.TensorType(name="shape", shape=(ct.RangeDim(1, 4),), dtype=np.int32)])
        for shape in ((2, 1, 3), (4,), (1, 2, 3, 2), (2, 1, 3)):
            out = model.predict({"shape": np.array(shape, np.int32)})["y"]
            assert out.shape == shape and (out == 2.5).all(), (precision, shape, out)
    print("all good")
"""


def test_operators_that_conversion_seldom_makes(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(OPERATORS))
    assert run("-m", "pome.coremltools", program).stdout.endswith("all good\n")


def test_importing_it_is_enough(tmp_path, monkeypatch):
    """Even after coremltools; and nothing happens without."""
    (tmp_path / "llm.mlpackage").symlink_to(GOLDEN / "apple" / "int4-block32.mlpackage")
    monkeypatch.chdir(tmp_path)
    assert run("-c", PREDICT, "with").stdout.strip() == "(1, 1, 512)"
    assert "macOS" in run("-c", PREDICT, "without", good=False).stderr


def test_a_program_for_a_mac_runs_unchanged(tmp_path, pome):
    """Text from a package that `pome convert` made, with the tokenizer of transformers; the command says the same."""
    checkpoint = tmp_path / "checkpoint"
    shutil.copytree(GOLDEN / "checkpoint", checkpoint)
    for file in (GOLDEN / "tokenizer").glob("*.json"):
        shutil.copy(file, checkpoint)
    model = tmp_path / "model.mlpackage"
    subprocess.run([pome, "convert", checkpoint, model], check=True, capture_output=True)
    done = run("-m", "pome.coremltools", HERE / "programs" / "generate_text.py", model, GOLDEN / "tokenizer", "hello world", 12)
    ids, text = done.stdout.split("\n", 1)
    llm = package.LLM(model, tokenizer=GOLDEN / "tokenizer")
    generation = llm.generate("hello world", temperature=0, max_new_tokens=12, ignore_eos=True)
    generation.read()
    assert [int(id) for id in ids.split()] == generation.ids
    assert text[:3] == llm.tokenizer.decode(generation.ids, skip_special=False)[:3]


def test_the_command_runs_a_script_as_python_does(tmp_path):
    script = tmp_path / "script.py"
    (tmp_path / "beside.py").write_text("print('found')")
    script.write_text("import beside, sys, coremltools\nassert sys.argv[1:] == ['-m', 'x'] and __name__ == '__main__'\nsys.exit(3)\n")
    done = run("-m", "pome.coremltools", script, "-m", "x", good=False)
    assert done.returncode == 3 and done.stdout.strip() == "found"
    done = run("-m", "pome.coremltools", tmp_path / "none.py", good=False)
    assert done.returncode == 2 and "none.py: no such file" in done.stderr
