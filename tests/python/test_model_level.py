"""What surrounds a program: images, defaults, shapes, functions, pipelines, other kinds of models; through pome.Model and through
coremltools' own classes, in one process that has imported pome.coremltools."""
import os
import pathlib
import subprocess
import sys
import textwrap

import numpy as np
import pytest

if os.environ.get("POME_PACKAGE"):
    import pome as package
else:
    package = pytest.importorskip("pome")
pytest.importorskip("coremltools")

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "golden"

HEAD = """
    import logging, os, sys, tracemalloc, warnings
    logging.disable(logging.WARNING)
    warnings.filterwarnings("ignore")
    import pome.coremltools
    import coremltools as ct
    import numpy as np
    import torch
    from coremltools.converters.mil import Builder as mb
    from PIL import Image

    folder, golden = sys.argv[1:]
    FULL = dict(minimum_deployment_target=ct.target.iOS17, compute_precision=ct.precision.FLOAT32)

    def traced(function, *shapes):
        class Network(torch.nn.Module):
            def forward(self, *inputs):
                return function(*inputs)
        return torch.jit.trace(Network().eval(), tuple(torch.ones(s) for s in shapes))

    def refused(call, *words):
        try:
            call()
        except (RuntimeError, pome.Error) as error:
            assert all(word in str(error) for word in words), error
        else:
            raise AssertionError("not refused")

    def saved(model, name):
        path = os.path.join(folder, name + ".mlpackage")
        model.save(path)
        return pome.Model(path, threads=1)
"""

IMAGES = """
    pixels = np.random.default_rng(0).integers(0, 256, (4, 6, 3), np.uint8)
    gray = np.random.default_rng(1).integers(0, 256, (4, 6), np.uint8)

    def network(layout, channels):
        @mb.program(input_specs=[mb.TensorSpec(shape=(1, channels, 4, 6))], opset_version=ct.target.iOS16)
        def program(x):
            return mb.mul(x=x, y=np.float32(.5), name="y")
        image = ct.ImageType(name="x", shape=(1, channels, 4, 6), color_layout=getattr(ct.colorlayout, layout), scale=.5,
                             bias=[1., 2., 3.] if channels == 3 else 3.)
        model = ct.convert(program, inputs=[image], minimum_deployment_target=ct.target.iOS16, compute_precision=ct.precision.FLOAT32)
        spec = model.get_spec()
        kind = spec.description.output[0].type.imageType
        kind.width, kind.height, kind.colorSpace = 6, 4, kind.ColorSpace.Value(layout)
        return ct.models.MLModel(spec, weights_dir=model.weights_dir)

    biases = {"RGB": [1, 2, 3], "BGR": [3, 2, 1]}  # by red, green, blue: the program's planes have them
    for layout in ("RGB", "BGR"):
        model = network(layout, 3)
        wanted = (pixels * .5 + biases[layout]) * .5
        out = model.predict({"x": Image.fromarray(pixels)})["y"]
        assert (out.mode, out.size) == ("RGBA", (6, 4))
        assert np.abs(np.asarray(out)[..., :3] - wanted).max() <= .5, layout
        opened = saved(model, layout)
        assert opened.inputs[0].kind == "image" and opened.inputs[0].color == layout.lower()
        for given in (pixels, Image.fromarray(pixels), np.ascontiguousarray(pixels[:, ::-1])[:, ::-1]):
            got = opened.predict({"x": given})["y"]
            assert got.dtype == np.uint8 and np.abs(got - wanted).max() <= .5
        planes = np.moveaxis(pixels if layout == "RGB" else pixels[..., ::-1], 2, 0)[None]
        assert np.array_equal(opened.predict({"x": planes})["y"], got)

    model = network("GRAYSCALE", 1)
    wanted = (gray * .5 + 3) * .5
    out = model.predict({"x": Image.fromarray(gray)})["y"]
    assert (out.mode, out.size) == ("L", (6, 4)) and np.abs(np.asarray(out) - wanted).max() <= .5
    assert np.abs(saved(model, "gray").predict({"x": gray})["y"] - wanted).max() <= .5

    model = network("GRAYSCALE_FLOAT16", 1)
    values = (gray / 7).astype(np.float16)
    wanted = (values.astype(np.float64) * .5 + 3) * .5
    out = model.predict({"x": Image.fromarray(values.astype(np.float32))})["y"]
    assert out.mode == "F" and np.allclose(np.asarray(out), wanted, rtol=1e-3)
    got = saved(model, "half").predict({"x": values})["y"]
    assert got.dtype == np.float16 and np.allclose(got, wanted, rtol=1e-3)
"""

SHAPES = """
    # defaults
    inputs = [ct.TensorType(name="x", shape=(1, ct.RangeDim(1, 5, default=3))),
              ct.TensorType(name="y", shape=(1, 1), default_value=np.full((1, 1), 4, np.float32))]
    model = ct.convert(traced(lambda x, y: x * 2 + y, (1, 3), (1, 1)), inputs=inputs, outputs=[ct.TensorType(name="z")], **FULL)
    for n in (1, 4, 5):
        assert np.array_equal(model.predict({"x": np.ones((1, n))})["z"], np.full((1, n), 6))
        assert np.array_equal(model.predict({"x": np.ones((1, n)), "y": [[7.]]})["z"], np.full((1, n), 9))
    refused(lambda: model.predict({"x": np.ones((1, 6))}), "[1, 6]", "1..5")
    refused(lambda: model.predict({"y": [[7.]]}), "x")
    opened = saved(model, "default")
    x, y = opened.inputs
    assert y.is_optional and y.default == 4 and x.default is None and not x.is_optional and x.range == ((1, 1), (1, 5))
    assert np.array_equal(opened.predict({"x": [[1, 2]]})["z"], [[6, 8]])
    assert np.array_equal(opened.predict({"x": [[1, 2]], "y": None})["z"], [[6, 8]])

    # listed shapes
    model = ct.convert(traced(lambda x: x + 1, (1, 3)), inputs=[ct.TensorType(name="x", shape=ct.EnumeratedShapes([(1, 3), (2, 6)]))],
                       outputs=[ct.TensorType(name="z")], **FULL)
    for shape in ((1, 3), (2, 6)):
        assert np.array_equal(model.predict({"x": np.zeros(shape)})["z"], np.ones(shape))
    refused(lambda: model.predict({"x": np.zeros((1, 6))}), "[1, 6]", "[1, 3] or [2, 6]")

    # the caller's types, as Core ML takes them
    for dtype in (np.float64, np.float32, np.float16, np.int64, np.int32, np.uint8, np.int8, np.bool_):
        got = model.predict({"x": np.ones((1, 3), dtype)})["z"]
        assert got.dtype == np.float32 and np.array_equal(got, np.full((1, 3), 2))
    refused(lambda: model.predict({"x": {"a": 1}}), "dict")

    # several functions, several models after each other
    two = os.path.join(golden, "multifunction", "int4-block32.mlpackage")
    stored = np.load(two.replace(".mlpackage", ".expected.npz"))
    for name in ("base", "adapter"):
        model = ct.models.MLModel(two, function_name=name)
        prompt = stored[name + ".prompt"]
        n = len(prompt)
        mask = np.triu(np.full((n, n), -np.inf, np.float32), 1)[None, None]
        logits = model.predict({"inputIds": prompt[None], "causalMask": mask}, model.make_state())["logits"]
        assert np.abs(logits[0] - stored[name + ".prefill_logits"]).max() < .2
    pipeline = os.path.join(golden, "loader", "pipeline.mlpackage")
    stored = np.load(os.path.join(golden, "loader", "pipeline.npz"))
    model = ct.models.MLModel(pipeline)
    names = [f.name for f in model.get_spec().description.input]
    got = model.predict({name: stored[name] for name in names})
    for name, value in got.items():
        assert np.allclose(value, stored[name], rtol=1e-5), name
    assert set(got) <= set(stored.files) and got

    # compiled ones: states, functions, lists of inputs, durations
    compiled = ct.models.CompiledMLModel(ct.models.utils.compile_model(two, os.path.join(folder, "two.mlmodelc")), function_name="adapter")
    state = compiled.make_state()
    one = {"inputIds": [[int(prompt[0])]], "causalMask": np.zeros((1, 1, 1, 1))}
    first = compiled.predict(one, state)["logits"]
    assert np.abs(first[0, 0] - np.load(two.replace(".mlpackage", ".expected.npz"))["adapter.prefill_logits"][0]).max() < .2
    assert np.abs(state.read_state("keyCache")).max() > 0
    model = ct.convert(traced(lambda x: x * x, (2,)), inputs=[ct.TensorType(name="x", shape=(2,))], outputs=[ct.TensorType(name="z")], **FULL)
    compiled = ct.models.CompiledMLModel(model.get_compiled_model_path())
    assert [list(out["z"]) for out in compiled.predict([{"x": [1, 2]}, {"x": [3, 4]}])] == [[1, 4], [9, 16]]
    assert compiled._proxy.get_load_duration_in_nano_seconds() > 0 and compiled._proxy.get_last_predict_duration_in_nano_seconds() > 0

    # other kinds of models: what they are, and what to do
    for kind, words in (("neuralNetworkClassifier", "coremltools.convert"), ("treeEnsembleClassifier", "the library that it came from"),
                        ("glmRegressor", "the library that it came from"), ("customModel", "only an application")):
        spec = ct.proto.Model_pb2.Model(specificationVersion=4)
        getattr(spec, kind).SetInParent()
        path = os.path.join(folder, kind + ".mlmodel")
        open(path, "wb").write(spec.SerializeToString())
        refused(lambda: pome.Model(path), kind, "not an ML Program", words)
"""

COPIES = """
    # a large input is read where it lies, whatever its strides, and each output is copied once
    n = 1 << 22
    model = ct.convert(traced(lambda x: (x * 2).sum(1), (2, n)), inputs=[ct.TensorType(name="x", shape=(2, n))],
                       outputs=[ct.TensorType(name="z")], **FULL)
    opened = saved(model, "large")
    x = np.random.default_rng(0).standard_normal((n, 2), np.float32).T
    opened.predict({"x": x})
    tracemalloc.start()
    got = opened.predict({"x": x})["z"]
    peak = tracemalloc.get_traced_memory()[1]
    assert peak < x.nbytes / 100, peak
    assert np.allclose(got, 2 * x.astype(np.float64).sum(1), rtol=1e-3, atol=1e-1)
    state = pome.Model(os.path.join(golden, "apple", "int4-block32.mlpackage")).state()
    assert np.shares_memory(state["keyCache"], state["keyCache"])
"""


def test_models(tmp_path):
    """In one process: most of the time goes into its imports."""
    path = tmp_path / "program.py"
    path.write_text("".join(map(textwrap.dedent, (HEAD, IMAGES, SHAPES, COPIES))) + "\nprint('all good')\n")
    done = subprocess.run([sys.executable, path, tmp_path, GOLDEN], capture_output=True, text=True, env={**os.environ, "POME_THREADS": "1"})
    assert done.returncode == 0 and done.stdout.splitlines()[-1] == "all good", done.stderr[-3000:]
