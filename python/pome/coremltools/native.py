"""Stands in for coremltools' binary module ``libcoremlpython``: the same names, with the engine behind them.

The interface is coremltools' own (its classes call it with positional arguments); failures are RuntimeErrors."""
from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import tempfile
import time
import uuid
import weakref
from typing import Any

import numpy as np

import pome
from pome._model import image_pixels

EXPORTED = (
    "_MLModelProxy",
    "_MLModelAssetProxy",
    "_MLComputePlanProxy",
    "_MLModelStructureProgramOperationProxy",
    "_MLModelStructureNeuralNetworkLayerProxy",
    "_MLCPUComputeDeviceProxy",
    "_MLGPUComputeDeviceProxy",
    "_MLNeuralEngineComputeDeviceProxy",
    "_State",
)

MAXIMUM_SPECIFICATION_VERSION = 10
MODEL_FILE = os.path.join("Data", "com.apple.CoreML", "model.mlmodel")
DESCRIPTION = "model.mlmodel"  # in the compiled folders made here
CANNOT_PREDICT = "Unable to compute the prediction using ML Program"  # the framework's words, which callers look for


@contextlib.contextmanager
def _runtime_errors(prefix: str = ""):
    """coremltools lets only RuntimeErrors pass where a model cannot be loaded."""
    try:
        yield
    except RuntimeError as error:
        if not isinstance(error, pome.Error):
            raise
        raise RuntimeError(prefix + str(error)) from error
    except (pome.Error, KeyError, TypeError, ValueError, OSError) as error:
        text = error.args[0] if isinstance(error, KeyError) and error.args else error
        raise RuntimeError(f"{prefix}{text}") from error


def _open(path: str) -> pome.Model:
    return pome.Model(
        path, numerics=os.environ.get("POME_NUMERICS", "exact"), threads=int(os.environ.get("POME_THREADS", "0"))
    )


# ---- packages and compiled folders ----


def _write_package(folder: str, spec: bytes, files: dict[str, bytes]) -> str:
    """A package with these files beside the model ("weights/weight.bin": ...)."""
    model = os.path.join(folder, MODEL_FILE)
    os.makedirs(os.path.dirname(model))
    pathlib.Path(model).write_bytes(spec)
    items = {"com.apple.CoreML/model.mlmodel": "CoreML Model Specification"}
    for name, data in files.items():
        path = pathlib.PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts:
            raise RuntimeError(f"'{name}' lies outside the model")
        target = pathlib.Path(os.path.dirname(model), path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        items[f"com.apple.CoreML/{path.parts[0]}"] = "CoreML Model Weights"
    entries = {
        str(uuid.uuid4()).upper(): {"author": "com.apple.CoreML", "description": text, "name": path.split("/")[-1], "path": path}
        for path, text in items.items()
    }
    manifest = {"fileFormatVersion": "1.0.0", "itemInfoEntries": entries, "rootModelIdentifier": next(iter(entries))}
    pathlib.Path(folder, "Manifest.json").write_text(json.dumps(manifest, indent=4))
    return folder


def _package_of(path: str, scratch: str) -> str:
    """What to open for a path: a lone .mlmodel becomes a package in `scratch`."""
    if path.endswith(".mlmodel"):
        if not os.path.isfile(path):
            raise RuntimeError(f"{path}: no such file")
        return _write_package(os.path.join(scratch, "model.mlpackage"), pathlib.Path(path).read_bytes(), {})
    return path


def _compile(package: str, destination: str) -> str:
    """A compiled folder, with the package's description for `structure`."""
    pome.compile(package, destination)
    if os.path.exists(os.path.join(package, MODEL_FILE)):
        shutil.copy(os.path.join(package, MODEL_FILE), os.path.join(destination, DESCRIPTION))
    return destination


# ---- values ----


def _image(feature: pome.Feature, pixels: np.ndarray) -> Any:
    """As the framework gives images: colors with an opaque alpha, halves as floats."""
    from PIL import Image

    if pixels.ndim == 2:
        return Image.fromarray(pixels.astype(np.float32) if pixels.dtype == np.float16 else pixels)
    opaque = np.full((*pixels.shape[:2], 1), 255, np.uint8)
    return Image.fromarray(np.ascontiguousarray(np.concatenate([pixels[..., :3], opaque], axis=2)))


def _to_engine(feature: pome.Feature, value: Any) -> Any:
    if hasattr(value, "getbands"):  # a PIL image
        return image_pixels(feature, value)
    if isinstance(value, (bytes, str, dict)):
        raise RuntimeError(f"input {feature.name}: {type(value).__name__}, wanted {feature.text}")
    array = np.asarray(value)
    if array.ndim == 0 and feature.shape is not None and len(feature.shape) == 1:
        array = array.reshape(1)
    return array


def _framework_words(features: dict[str, pome.Feature], given: dict) -> str:
    """What the framework says of an array whose shape is not admissible, for callers that look for it."""
    for name, array in given.items():
        feature = features.get(name)
        if feature is None or feature.kind != "tensor" or feature.shape is None or not isinstance(array, np.ndarray):
            continue
        if feature.enumerated and array.shape not in feature.enumerated:
            return f"; MultiArray Shape ({' x '.join(map(str, array.shape))}) was not in enumerated set of allowed shapes"
        if feature.range and array.ndim == len(feature.range):
            for axis, (size, (least, most)) in enumerate(zip(array.shape, feature.range)):
                if size < least or 0 <= most < size:
                    return f"; Size ({size}) of dimension ({axis}) is not in allowed range ({least}..{most})"
    return ""


def _from_engine(feature: pome.Feature, array: Any) -> Any:
    """Core ML's arrays have few types: halves come as float32, small integers and truth values as int32."""
    if not isinstance(array, np.ndarray):
        return array
    if feature.kind == "image":
        return _image(feature, array)
    if array.dtype == np.float16:
        array = array.astype(np.float32)
    elif array.dtype in (np.bool_, np.uint8, np.int16, np.uint16, np.uint32):
        array = array.astype(np.int32)
    return array.reshape(1) if array.ndim == 0 else array


class _State:
    """The arrays that a model keeps between predictions."""

    def __init__(self, state: pome.State) -> None:
        self._state = state

    def _find(self, name: str) -> np.ndarray:
        if name not in self._state:
            raise RuntimeError(f"no state '{name}': there are {', '.join(self._state)}")
        return self._state[name]

    def read_state(self, name: str) -> np.ndarray:
        array = self._find(name)
        return array.astype(np.float32) if array.dtype == np.float16 else array.copy()

    def write_state(self, name: str, value: np.ndarray) -> None:
        array, value = self._find(name), np.asarray(value)
        if array.shape != value.shape:
            raise RuntimeError(f"state '{name}': shape {list(value.shape)}, wanted {list(array.shape)}")
        with _runtime_errors(f"state '{name}': "), np.errstate(over="ignore"):
            array[...] = value


class _MLModelAssetProxy:
    """A model that is not opened yet: a path, and the folder that goes with this object, if any."""

    def __init__(self, path: str, scratch: Any = None) -> None:
        self.path = path
        self._scratch = scratch


class _MLModelProxy:
    def __init__(self, path: str, compute_units: str, function_name: str, optimization_hints: dict, asset: Any) -> None:
        begin = time.perf_counter_ns()
        self._scratch: Any = None
        self._compiled: str | None = None
        self._last_ns: int | None = None
        self._asset = asset
        if asset is not None:
            path = asset.path
        path = os.path.expanduser(path)
        if not os.path.exists(path):
            raise RuntimeError(f"{path}: no such file or folder")
        with _runtime_errors():
            self._path = _package_of(path, self._folder()) if path.endswith(".mlmodel") else path
            self._model = _open(self._path)
            self._function = self._model.function(function_name or None)
        self._load_ns = time.perf_counter_ns() - begin

    def _folder(self) -> str:
        """A temporary folder that goes with this object."""
        if self._scratch is None:
            self._scratch = tempfile.mkdtemp(prefix="pome-")
            weakref.finalize(self, shutil.rmtree, self._scratch, ignore_errors=True)
        return self._scratch

    def predict(self, features: dict, state: _State | None) -> dict:
        inputs = {f.name: f for f in self._function.inputs}
        with _runtime_errors(f"{CANNOT_PREDICT}: "):
            given = {name: _to_engine(inputs[name], value) if name in inputs else value for name, value in features.items()}
            begin = time.perf_counter_ns()
            try:
                outputs = self._model.predict(given, state._state if state is not None else None, function=self._function.name)
            except pome.Error as error:
                raise RuntimeError(f"{CANNOT_PREDICT}: {error}{_framework_words(inputs, given)}") from error
            self._last_ns = time.perf_counter_ns() - begin
        return {f.name: _from_engine(f, outputs[f.name]) for f in self._function.outputs}

    def batchPredict(self, batch: list[dict]) -> list[dict]:
        begin = time.perf_counter_ns()
        results = [self.predict(features, None) for features in batch]
        self._last_ns = time.perf_counter_ns() - begin
        return results

    def newState(self) -> _State:
        with _runtime_errors():
            return _State(self._model.state(self._function.name))

    def get_compiled_model_path(self) -> str:
        if self._path.rstrip("/").endswith(".mlmodelc"):
            return self._path
        if self._compiled is None:
            with _runtime_errors():
                name = os.path.splitext(os.path.basename(self._path.rstrip("/")))[0]
                self._compiled = _compile(self._path, os.path.join(self._folder(), name + ".mlmodelc"))
        return self._compiled

    def get_load_duration_in_nano_seconds(self) -> int:
        return self._load_ns

    def get_last_predict_duration_in_nano_seconds(self) -> int | None:
        return self._last_ns

    @staticmethod
    def compileModel(path: str) -> str:
        path = os.path.expanduser(path)
        scratch = tempfile.mkdtemp(prefix="pome-")
        name = os.path.splitext(os.path.basename(path.rstrip("/")))[0]
        try:
            with _runtime_errors():
                if not os.path.exists(path):
                    raise RuntimeError(f"{path}: no such file or folder")
                return _compile(_package_of(path, scratch), os.path.join(scratch, name + ".mlmodelc"))
        except BaseException:
            shutil.rmtree(scratch, ignore_errors=True)
            raise

    @staticmethod
    def create_model_asset_from_path(path: str) -> Any:
        from coremltools.models.model import MLModelAsset

        path = os.path.expanduser(path)
        if not os.path.exists(path):
            raise RuntimeError(f"{path}: no such file or folder")
        return MLModelAsset(_MLModelAssetProxy(path))

    @staticmethod
    def create_model_asset_from_memory(spec: bytes, blobs: dict[str, bytes]) -> Any:
        from coremltools.models.model import MLModelAsset

        scratch = tempfile.mkdtemp(prefix="pome-")
        package = _write_package(os.path.join(scratch, "model.mlpackage"), spec, blobs)
        proxy = _MLModelAssetProxy(package)
        weakref.finalize(proxy, shutil.rmtree, scratch, ignore_errors=True)
        return MLModelAsset(proxy)

    @staticmethod
    def maximum_supported_specification_version() -> int:
        return MAXIMUM_SPECIFICATION_VERSION

    @staticmethod
    def auto_set_specification_version(spec: Any) -> Any:
        """The lowest version that has the opsets of a program; other kinds of model stay as they are."""
        from coremltools.proto import Model_pb2

        model = spec
        if isinstance(spec, bytes):
            model = Model_pb2.Model()
            model.ParseFromString(spec)
        if model.WhichOneof("Type") == "mlProgram":
            opsets = [f.opset.removeprefix("CoreML") for f in model.mlProgram.functions.values()]
            if opsets and all(o.isdigit() for o in opsets):
                model.specificationVersion = max(map(int, opsets)) + 1
        return model.SerializeToString() if isinstance(spec, bytes) else model

    @staticmethod
    def get_available_compute_devices() -> list:
        from coremltools.models.compute_device import MLCPUComputeDevice

        return [MLCPUComputeDevice(_MLCPUComputeDeviceProxy())]

    get_all_compute_devices = get_available_compute_devices

    @staticmethod
    def get_model_structure(path: str) -> Any:
        from . import structure

        with _runtime_errors():
            return structure.read(path)[0]

    @staticmethod
    def get_compute_plan(path: str, compute_units: str) -> Any:
        from coremltools.models.compute_plan import MLComputePlan

        from . import structure

        with _runtime_errors():
            return MLComputePlan(_MLComputePlanProxy(*structure.read(path)))


# ---- devices, structure, plan ----


class _MLCPUComputeDeviceProxy:
    pass


class _MLGPUComputeDeviceProxy:
    pass


class _MLNeuralEngineComputeDeviceProxy:
    def get_total_core_count(self) -> int:
        return 0


class _MLModelStructureProgramOperationProxy:
    def __init__(self, cost: float = 0.0) -> None:
        self.cost = cost


class _MLModelStructureNeuralNetworkLayerProxy:
    pass


class _MLComputePlanProxy:
    """Everything runs on the CPU; the cost of an operator is its share of the arithmetic."""

    def __init__(self, structure: Any = None, total: float = 0.0) -> None:
        self.model_structure = structure
        self._total = total

    def get_compute_device_usage_for_mlprogram_operation(self, operation: Any) -> Any:
        from coremltools.models.compute_device import MLCPUComputeDevice
        from coremltools.models.compute_plan import MLComputePlanDeviceUsage

        if operation.operator_name == "const":
            return None
        device = MLCPUComputeDevice(_MLCPUComputeDeviceProxy())
        return MLComputePlanDeviceUsage(device, [device])

    def get_estimated_cost_for_mlprogram_operation(self, operation: Any) -> Any:
        from coremltools.models.compute_plan import MLComputePlanCost

        if operation.operator_name == "const":
            return None
        return MLComputePlanCost(operation.__proxy__.cost / self._total if self._total else 0.0)

    def get_compute_device_usage_for_neuralnetwork_layer(self, layer: Any) -> Any:
        return None
