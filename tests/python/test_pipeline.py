"""Pipelines of ML Programs as coremltools makes them; NumPy runs the stages."""
import logging
import warnings

import numpy as np
import pytest

logging.disable(logging.WARNING)
warnings.filterwarnings("ignore")
ct = pytest.importorskip("coremltools")

from coremltools.converters.mil.mil import Builder as mb  # noqa: E402

from pome_api import Model  # noqa: E402

X = np.linspace(-1, 2, 6, dtype=np.float32).reshape(2, 3)
LABELS = ["low", "middle", "high"]


def stage(body, source, target, **options):
    scope = {"body": body}
    exec(f"def function({source}):\n    return body({source})", scope)
    program = mb.program(input_specs=[mb.TensorSpec(shape=X.shape)], opset_version=ct.target.iOS16)(scope["function"])
    return ct.convert(program, compute_precision=ct.precision.FLOAT32, minimum_deployment_target=ct.target.iOS16,
                      skip_model_load=True, **options)


def first():
    weight = np.arange(9, dtype=np.float32).reshape(3, 3) / 4
    return stage(lambda x: mb.linear(x=x, weight=weight, name="h"), "x", "h"), X @ weight.T


def package(path, *stages):
    pipeline = ct.utils.make_pipeline(*stages, compute_units=ct.ComputeUnit.CPU_ONLY)
    pipeline.save(str(path))
    return path


def test_two_stages(tmp_path):
    model, hidden = first()
    second = stage(lambda h: mb.tanh(x=mb.add(x=h, y=np.float32(.5)), name="y"), "h", "y")
    with Model(package(tmp_path / "p.mlpackage", model, second), threads=1) as pipeline:
        np.testing.assert_allclose(pipeline.predict({"x": X})["y"], np.tanh(hidden + .5), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["pipeline", "pipelineClassifier"])
def test_ends_in_a_classifier(kind, tmp_path):
    model, hidden = first()
    second = stage(lambda h: mb.reduce_sum(x=h, axes=[0], keep_dims=False, name="p"), "h", "p",
                   classifier_config=ct.ClassifierConfig(LABELS))
    path = package(tmp_path / "p.mlpackage", model, second)
    if kind != "pipeline":
        file = path / "Data" / "com.apple.CoreML" / "model.mlmodel"
        spec = ct.proto.Model_pb2.Model.FromString(file.read_bytes())
        stages = list(spec.pipeline.models)
        spec.pipelineClassifier.pipeline.models.extend(stages)
        spec.description.predictedFeatureName = "classLabel"
        spec.description.predictedProbabilitiesName = "classLabel_probs"
        file.write_bytes(spec.SerializeToString())
    want = hidden.sum(0)
    with Model(path, threads=1) as pipeline:
        got = pipeline.predict({"x": X})
    assert got["classLabel"] == LABELS[int(want.argmax())]
    np.testing.assert_allclose(got["classLabel_probs"], want, rtol=1e-5)
