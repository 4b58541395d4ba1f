"""Which failures of coremltools' own tests tests/coremltools/known.toml excuses."""
import importlib.util
import pathlib

FILE = pathlib.Path(__file__).resolve().parent.parent / "coremltools" / "suite.py"
spec = importlib.util.spec_from_file_location("coremltools_suite", FILE)
suite = importlib.util.module_from_spec(spec)
spec.loader.exec_module(suite)

GRU = ("coremltools/converters/mil/mil/ops/tests/iOS17/test_recurrent.py::TestGRU::test_builder_to_backend_smoke"
       "[backend=BackendConfig(backend='mlprogram', precision='%s', opset_version=<AvailableTarget.iOS17: 8>)-dtype=<class 'numpy.%s'>]")
REFUSED = "AssertionError: \nNot equal to tolerance rtol=1e-05, atol=0.0001\n\nMismatched elements: 1 / 3 (33.3%)\nMax absolute"


def result(id, message, **more):
    return {"id": id, "outcome": "failed", "predictions": 1, "message": message, "operators": ["gru"], **more}


def test_a_reason_covers_what_it_explains_and_no_more():
    entries = suite.read_known()
    near = result(GRU % ("fp32", "float16"), REFUSED, half_error=1.0)
    assert suite.find_known(entries, near)["whose"] == "theirs"
    for other in (
        {**near, "half_error": 40.0},                      # a wrong result of the same test
        {**near, "half_error": float("inf")},              # NaN, or another shape
        result(near["id"], REFUSED),                       # nothing was measured
        {**near, "message": "the process died of signal 11"},
        {**near, "id": GRU % ("fp32", "float32")},
        {**near, "id": GRU % ("fp16", "float16")},
    ):
        assert suite.find_known(entries, other) is None, other
    count = suite.Count([near, {**near, "id": near["id"] + "2", "half_error": 40.0}, {**near, "id": "x", "outcome": "passed"}], entries)
    assert (count.predicted, count.passed, count.whose["theirs"], count.whose["unknown"]) == (3, 1, 1, 1)
    assert count.fair == 0.5 and len(count.unknown) == 1


def test_every_failure_is_explained_narrowly():
    for entry in suite.read_known():
        assert entry.get("message"), f"{entry['test']}: any failure of the test would be excused"
