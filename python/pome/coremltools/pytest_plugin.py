"""pytest -p pome.coremltools.pytest_plugin: runs coremltools' own tests, or tests that use coremltools, on Linux.

Besides what importing pome.coremltools does: ``platform.machine()`` says "aarch64" (coremltools' tests leave things out on x86_64),
and the environment asks for ML Programs on the CPU.

    --pome-log FILE     append a JSON line per test: id, outcome, message, number of predictions, operators of the programs that
                        predicted; half_error, see _half_error
    --pome-sample K     of each test function at most K parameter sets, evenly spaced
    --pome-shard I/N    of these the I-th of N parts
    --pome-skip FILE    leave out the tests that FILE lists, an id per line
"""
from __future__ import annotations

import gc
import importlib
import importlib.machinery
import json
import os
import platform
import sys
import types
from collections.abc import Collection

import numpy as np
import pytest

for _name, _value in (("PYMIL_TEST_TARGETS", "mlprogram"), ("COMPUTE_UNITS", "CPU_ONLY"), ("TORCH_FRONTENDS", "TORCHSCRIPT")):
    os.environ.setdefault(_name, _value)


def _nms(boxes, scores, iou_threshold):
    """Boxes in order of their scores, but for those that overlap one before them by more than the threshold."""
    import torch

    def area(box):
        return (box[..., 2] - box[..., 0]) * (box[..., 3] - box[..., 1])

    shared = torch.cat([torch.maximum(boxes[:, None, :2], boxes[:, :2]), torch.minimum(boxes[:, None, 2:], boxes[:, 2:])], 2)
    common = (shared[..., 2:] - shared[..., :2]).clamp(min=0).prod(2)
    overlap = common / (area(boxes)[:, None] + area(boxes) - common)
    kept: list[int] = []
    for i in torch.argsort(scores, descending=True, stable=True).tolist():
        if not (overlap[i, kept].double() > iou_threshold).any():  # in double, as torchvision compares
            kept.append(i)
    return torch.tensor(kept, dtype=torch.int64)


_libraries = []  # what is defined lives as long


def _import_torchvision_without_its_binary() -> None:
    """As made for GPUs beside a PyTorch for CPUs: its networks are Python, and of its operators coremltools converts `nms` alone."""
    import torch

    library = torch.library.Library("torchvision", "DEF")
    _libraries.append(library)
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    library.impl("nms", _nms, "CPU")
    for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:  # of the first try
        del sys.modules[name]
    import torchvision

    torchvision.ops.boxes._assert_has_ops = lambda: None


def _stand_in_for_torchvision() -> None:
    """Test files import it at their top; where it does not load, what needs it is skipped."""
    try:
        import torchvision  # noqa: F401
    except ImportError:
        pass
    except Exception:
        try:
            return _import_torchvision_without_its_binary()
        except Exception:
            pass
    else:
        return
    module = types.ModuleType("torchvision")
    module.__spec__ = importlib.machinery.ModuleSpec("torchvision", None)
    module.__version__ = "0.0"

    def missing(name):
        if name.startswith("__"):
            raise AttributeError(name)
        pytest.skip("torchvision is not installed")

    module.__getattr__ = missing
    sys.modules["torchvision"] = module


def _keep_parameters() -> None:
    """Tests pass itertools.product(...) to parametrize, which a class that inherits the test would find used up."""
    from _pytest.mark.structures import MarkDecorator

    original = MarkDecorator.__call__

    def call(self, *args, **kwargs):
        if self.name == "parametrize":
            if len(args) >= 2 and not isinstance(args[1], Collection):
                args = (args[0], list(args[1]), *args[2:])
            if "argvalues" in kwargs and not isinstance(kwargs["argvalues"], Collection):
                kwargs["argvalues"] = list(kwargs["argvalues"])
        return original(self, *args, **kwargs)

    MarkDecorator.__call__ = call


_keep_parameters()
_stand_in_for_torchvision()
platform.machine = lambda: "aarch64"

import coremltools  # noqa: E402
import pome.coremltools  # noqa: E402

coremltools._deps._HAS_TORCH_VISION = True  # it asked before there was a stand-in
from pome.coremltools import native  # noqa: E402



def _default_to_programs() -> None:
    """Helpers of the tests convert to neural networks unless told otherwise, whatever PYMIL_TEST_TARGETS says."""
    names = ("coremltools.converters.mil.testing_utils", "coremltools.converters.mil.frontend.torch.test.testing_utils")
    for name in names:
        try:
            module = importlib.import_module(name)
        except ImportError:  # without PyTorch
            continue
        for thing in list(vars(module).values()):
            for function in vars(thing).values() if isinstance(thing, type) else (thing,):
                function = getattr(function, "__func__", function)
                defaults = getattr(function, "__defaults__", None) or ()
                if isinstance(function, types.FunctionType) and ("neuralnetwork", "fp32") in defaults:
                    function.__defaults__ = tuple(
                        ("mlprogram", "fp32") if value == ("neuralnetwork", "fp32") else value for value in defaults
                    )


if "neuralnetwork" not in os.environ["PYMIL_TEST_TARGETS"]:
    _default_to_programs()

_predictions = 0
_operators: set[str] = set()


def _operators_of(block) -> set[str]:
    return {o.type for o in block.operations if o.type != "const"}.union(*(_operators_of(b) for o in block.operations for b in o.blocks))


def _operators_in(path: str) -> set[str]:
    """Those of a package's program."""
    spec = coremltools.proto.Model_pb2.Model()
    try:
        with open(os.path.join(path, native.MODEL_FILE), "rb") as file:
            spec.ParseFromString(file.read())
    except OSError:  # a compiled folder
        return set()
    blocks = [b for f in spec.mlProgram.functions.values() for b in f.block_specializations.values()]
    return set().union(*map(_operators_of, blocks))


def _count_predictions() -> None:
    def counted(method):
        def call(model, *args):
            global _predictions
            _predictions += 1
            if not hasattr(model, "_operators"):
                model._operators = _operators_in(model._path)
            _operators.update(model._operators)
            return method(model, *args)

        return call

    native._MLModelProxy.predict = counted(native._MLModelProxy.predict)


_count_predictions()


_half_errors: list[float] = []


def _half_error(actual, desired) -> float:
    """How far two results are apart when both are rounded to half precision, in units of the last place of the largest: 0 if they
    are the same as halves."""
    actual, desired = np.asarray(actual), np.asarray(desired)
    if actual.shape != desired.shape or not (np.isfinite(actual).all() and np.isfinite(desired).all()):
        return np.inf
    with np.errstate(over="ignore", invalid="ignore"):
        difference = np.abs(actual.astype(np.float16).astype(float) - desired.astype(np.float16).astype(float)).max(initial=0)
        return float(difference / np.spacing(np.abs(desired).max(initial=0).astype(np.float16)))


def _measure_failures() -> None:
    """What np.testing.assert_allclose refuses is measured for the log."""
    original = np.testing.assert_allclose

    def assert_allclose(actual, desired, *args, **kwargs):
        try:
            return original(actual, desired, *args, **kwargs)
        except AssertionError:
            try:
                _half_errors.append(_half_error(actual, desired))
            except (TypeError, ValueError):  # no numbers
                _half_errors.append(np.inf)
            raise

    np.testing.assert_allclose = assert_allclose


_measure_failures()


def pytest_addoption(parser):
    parser.addoption("--pome-log", metavar="FILE", help="append a JSON line per test")
    parser.addoption("--pome-sample", metavar="K", type=int, default=0, help="at most K parameter sets of each test function")
    parser.addoption("--pome-shard", metavar="I/N", default="0/1", help="the I-th of N parts")
    parser.addoption("--pome-skip", metavar="FILE", help="leave out the tests that FILE lists")


def pytest_report_header(config):
    return f"coremltools runs on pome {pome.__version__}, macOS {'.'.join(map(str, pome.coremltools.MACOS_VERSION))}"


def _sample(items: list, most: int) -> list:
    """At most so many parameter sets of each function, the first and the last among them."""
    groups: dict[str, list] = {}
    for item in items:
        groups.setdefault(item.nodeid.split("[")[0], []).append(item)
    chosen = set()
    for group in groups.values():
        n = min(most, len(group))
        chosen |= {id(group[round(i * (len(group) - 1) / max(1, n - 1))]) for i in range(n)}
    return [item for item in items if id(item) in chosen]


def pytest_collection_modifyitems(config, items):
    kept = list(items)
    if config.getoption("--pome-sample"):
        kept = _sample(kept, config.getoption("--pome-sample"))
    part, parts = map(int, config.getoption("--pome-shard").split("/"))
    kept = kept[part::parts]
    if config.getoption("--pome-skip"):
        with open(config.getoption("--pome-skip"), encoding="utf-8") as file:
            done = set(file.read().splitlines())
        kept = [item for item in kept if item.nodeid not in done]
    chosen = set(map(id, kept))
    config.hook.pytest_deselected(items=[item for item in items if id(item) not in chosen])
    items[:] = kept


# Every conversion ends with gc.collect(), which walks thousands of collected tests: what is alive is set aside now and then.
_SET_ASIDE_EVERY = 50
_finished = 0


def _set_aside() -> None:
    gc.collect()
    gc.freeze()


def pytest_collection_finish(session):
    _set_aside()


def pytest_runtest_logfinish(nodeid, location):
    global _finished
    _finished += 1
    if _finished % _SET_ASIDE_EVERY == 0:
        _set_aside()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    before = _predictions
    _operators.clear()
    _half_errors.clear()
    try:
        return (yield)
    finally:
        item.user_properties.append(("predictions", _predictions - before))
        item.user_properties.append(("operators", sorted(_operators)))
        if _half_errors:
            item.user_properties.append(("half_error", max(_half_errors)))


def _message(report) -> str:
    if report.outcome == "failed":
        crash = getattr(report.longrepr, "reprcrash", None)
        return (crash.message if crash else str(report.longrepr))[:1000]
    if report.outcome == "skipped":
        return str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)[:300]
    return ""


class _Log:
    def __init__(self, path: str) -> None:
        self.path = path

    def pytest_runtest_logstart(self, nodeid, location):
        """The test at hand, should it end the process."""
        with open(self.path + ".running", "w", encoding="utf-8") as file:
            file.write(nodeid)

    def pytest_runtest_logreport(self, report):
        if report.when != "call" and report.outcome == "passed":
            return
        line = {
            "id": report.nodeid,
            "outcome": "xfailed" if hasattr(report, "wasxfail") and report.outcome == "skipped" else report.outcome,
            "when": report.when,
            "seconds": round(report.duration, 3),
            "predictions": dict(report.user_properties).get("predictions", 0),
            "operators": dict(report.user_properties).get("operators", []),
            "message": _message(report),
        }
        if report.outcome == "failed" and "half_error" in dict(report.user_properties):
            line["half_error"] = dict(report.user_properties)["half_error"]
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def pytest_configure(config):
    path = config.getoption("--pome-log")
    if path and not hasattr(config, "workerinput"):  # with several processes the first one writes
        config.pluginmanager.register(_Log(path), "pome-log")
