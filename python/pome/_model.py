"""Models: any ML Program, its functions and states."""
from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _pome
from ._errors import ArgumentError

NUMERICS = {"exact": 0, "fast": 1, "fp16": 2}


@dataclass(frozen=True)
class Feature:
    """One input, output or state of a function.

    Attributes:
        name: as in the model.
        description: what the author wrote, or ``""``.
        kind: ``"tensor"``, ``"image"``, ``"dictionary"``, ``"string"``, ``"int64"``, ``"double"`` or ``"sequence"``.
        dtype: element type as the model calls it: ``"fp16"``, ``"int32"``, ...
        shape: the default shape; -1 where an output's axis is flexible; ``None``: not known before a prediction.
        range: ``(min, max)`` for each axis, max -1 for unbounded; ``None``: only ``shape`` or the enumerated ones.
        enumerated: the only shapes allowed, the default first; ``()`` if the shape is fixed or ranged.
        is_optional: the input may be left out.
        default: what a missing optional input is filled with, or ``None``.
        text: type and shapes as one line.
        color: of images, the order of the program's planes: ``"gray"``, ``"gray_f16"``, ``"rgb"``, ``"bgr"``; else ``""``.
        classes: the labels that a classifier's output speaks of, texts or integers; ``()`` for everything else.

    >>> feature = pome.Model("llm.mlpackage").inputs[0]
    >>> feature.name, feature.dtype, feature.shape, feature.range
    ('inputIds', 'int32', (1, 1), ((1, 1), (1, 128)))
    """

    name: str
    description: str
    kind: str
    dtype: str
    shape: tuple[int, ...] | None
    range: tuple[tuple[int, int], ...] | None
    enumerated: tuple[tuple[int, ...], ...]
    is_optional: bool
    default: float | None
    text: str
    color: str = ""
    classes: tuple[str, ...] | tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}  {self.text}"


@dataclass(frozen=True)
class Function:
    """A function of a model: its name and what goes in and out.

    >>> function = pome.Model("adapters.mlpackage").function("base")
    >>> [feature.name for feature in function.inputs + function.states]
    ['inputIds', 'causalMask', 'keyCache', 'valueCache']
    """

    name: str
    inputs: tuple[Feature, ...]
    outputs: tuple[Feature, ...]
    states: tuple[Feature, ...]


def _feature(d: dict[str, Any]) -> Feature:
    d = dict(d)
    has_default = d.pop("has_default")
    default = d.pop("default", None)
    return Feature(**d, default=default if has_default else None)


def _function(d: dict[str, Any]) -> Function:
    return Function(d["name"], *(tuple(map(_feature, d[kind])) for kind in ("inputs", "outputs", "states")))


_PIXEL_MODES = {"gray": ("L", "I", "I;16", "F"), "gray_f16": ("L", "I", "I;16", "F")}  # of PIL; the first is converted to


def image_pixels(feature: Feature, image: Any) -> NDArray[Any]:
    """Pixels of a PIL image in the colors of an image feature, whatever its mode is."""
    if feature.kind != "image":
        raise ArgumentError(f"input {feature.name}: an image, wanted {feature.text}", "ARG", 5)
    modes = _PIXEL_MODES.get(feature.color, ("RGB", "RGBA", "RGBX"))
    if image.mode not in modes and "transparency" in image.info:  # else a warning about it
        image = image.convert("RGBA")
    return np.asarray(image if image.mode in modes else image.convert(modes[0]))


def _as_array(value: ArrayLike, feature: Feature) -> Any:
    """An array the engine can read as it lies; copies only what has an odd layout, byte order or type."""
    name = feature.name
    array = image_pixels(feature, value) if hasattr(value, "getbands") else np.asarray(value)
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        raise TypeError(f"input '{name}' is an array of {array.dtype}: wanted are numbers of at most 64 bits, or bool")
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if not array.flags.aligned or any(s % array.itemsize for s in array.strides):
        array = np.ascontiguousarray(array)
    return array


def _result(feature: Feature, value: Any) -> Any:
    """An output as :meth:`Model.predict` gives it."""
    if isinstance(value, str):
        return value
    array = np.asarray(value)
    if feature.kind == "dictionary":
        return dict(zip(feature.classes, array.tolist()))
    if feature.kind == "int64":
        return int(array.reshape(()))
    return array


def numerics_code(name: str) -> int:
    if name not in NUMERICS:
        raise ValueError(f"numerics '{name}': there are {', '.join(NUMERICS)}")
    return NUMERICS[name]


WEIGHTS = {"auto": 0, "clone": 1, "link": 2, "copy": 3}


def compile(
    path: str | os.PathLike[str], out: str | os.PathLike[str], *, weights: str = "auto", force: bool = False
) -> None:
    """Writes the compiled form of a package, a folder ``NAME.mlmodelc``.

    Args:
        path: a package, or a folder of packages; then ``out`` is a folder too.
        weights: how weight files get there: ``"clone"``, ``"link"``, ``"copy"``, or ``"auto"``: the first that works.
        force: replace what is at ``out``.

    Raises:
        ArgumentError: ``out`` is there already, or its name does not fit.
        FormatError, UnsupportedError, FileError: as :class:`Model`.

    >>> pome.compile("llm.mlpackage", "llm.mlmodelc")
    >>> pome.Model("llm.mlmodelc").inputs == pome.Model("llm.mlpackage").inputs
    True
    """
    if weights not in WEIGHTS:
        raise ValueError(f"weights '{weights}': there are {', '.join(WEIGHTS)}")
    _pome.compile(path, out, WEIGHTS[weights], force)


class State(Mapping[str, NDArray[Any]]):
    """What a model keeps between predictions: arrays by name, all zero at first. Made by :meth:`Model.state`.

    The arrays are views of the engine's memory, so that writing ``state["keyCache"][...] = 0`` changes it. They may be
    read and written whenever no prediction with this state runs. Predictions of several threads cannot share a state.

    >>> state = pome.Model("llm.mlpackage").state()
    >>> state["keyCache"][...] = 1
    >>> state.clear()
    >>> bool(state["keyCache"].any())
    False
    """

    def __init__(self, native: _pome.State, function: Function) -> None:
        self._native = native
        self._function = function

    def __getitem__(self, name: str) -> NDArray[Any]:
        return np.asarray(self._native.tensor(name))

    def __iter__(self) -> Iterator[str]:
        return (feature.name for feature in self._function.states)

    def __len__(self) -> int:
        return len(self._function.states)

    def __eq__(self, other: object) -> bool:
        return self is other  # what the arrays hold changes

    def __hash__(self) -> int:
        return id(self)

    def __reduce__(self) -> str:
        raise TypeError("a State cannot be pickled or copied: it is bound to this process; copy its arrays instead")

    def clear(self) -> None:
        """Sets all elements to zero."""
        self._native.clear()


class Model:
    """A Core ML package, opened for prediction. Opening maps the weights and checks the program.

    >>> model = pome.Model("scores.mlpackage")
    >>> print(model.inputs[0])
    input_ids  int32 [1, 1..128]
    >>> ids = np.array([[1, 2, 3]])
    >>> outputs = model.predict({"input_ids": ids, "attention_mask": np.ones_like(ids)})
    >>> outputs["token_scores"].shape, outputs["token_scores"].dtype
    ((1, 3, 512), dtype('float32'))

    A model may be used by several threads at once: each prediction runs with memory of its own, and all share the
    weights. The interpreter's lock is released while the engine works.

    Args:
        path: a ``.mlpackage`` or compiled ``.mlmodelc`` folder.
        numerics: ``"exact"`` (constants as in the file, float32 between operators), ``"fast"`` (activations of quantized
            linear layers may be int8) or ``"fp16"`` (every result rounded to its declared type).
        threads: how many threads a prediction uses; 0: as many as the process may use. Results do not depend on it.
        no_fuse: fusions to leave out, comma-separated, or ``"all"``.

    Raises:
        FileError: there is no such file.
        FormatError: the file is damaged; ``offset`` tells where.
        UnsupportedError: another kind of model, or operators without an implementation.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, numerics: str = "exact", threads: int = 0, no_fuse: str | None = None
    ) -> None:
        self._begin(_pome.Model(path, numerics_code(numerics), threads, no_fuse), numerics)

    @classmethod
    def _wrap(cls, native: _pome.Model, numerics: str) -> Model:
        """A model that is open already."""
        made = cls.__new__(cls)
        made._begin(native, numerics)
        return made

    def _begin(self, native: _pome.Model, numerics: str) -> None:
        self._native = native
        self._info = self._native.describe()
        self._functions = {f.name: f for f in map(_function, self._info["functions"])}
        self._default: str = self._info["functions"][self._info["default_function"]]["name"]
        self._idle: dict[str, list[_pome.Predictor]] = {name: [] for name in self._functions}
        self.numerics = numerics

    def __repr__(self) -> str:
        return f"pome.Model({self.path!r})"

    def __reduce__(self) -> str:
        raise TypeError("a Model cannot be pickled: it is bound to this process; open the package again instead")

    @property
    def path(self) -> str:
        """The package folder."""
        return self._info["path"]

    @property
    def specification_version(self) -> int:
        """Core ML's number for the format: 6 is iOS 15, 9 is iOS 18."""
        return self._info["specification_version"]

    @property
    def metadata(self) -> dict[str, str]:
        """The user-defined keys, and ``short_description``, ``version``, ``author`` and ``license`` where they are given."""
        info = self._info
        named = {"short_description": info["short_description"], "version": info["version"], "author": info["author"],
                 "license": info["license"]}
        return {**{key: text for key, text in named.items() if text}, **info["metadata"]}

    @property
    def weights_bytes(self) -> int:
        """Size of the mapped weight files."""
        return self._info["weights_bytes"]

    @property
    def functions(self) -> dict[str, Function]:
        """The functions by name."""
        return dict(self._functions)

    @property
    def default_function(self) -> str:
        """The function that is run where none is named."""
        return self._default

    def function(self, name: str | None = None) -> Function:
        """The function of that name; ``None``: the default one. Raises KeyError, listing what there is."""
        try:
            return self._functions[name or self._default]
        except KeyError:
            raise KeyError(f"no function '{name}': there are {', '.join(self._functions)}") from None

    @property
    def inputs(self) -> tuple[Feature, ...]:
        """Inputs of the default function."""
        return self.function().inputs

    @property
    def outputs(self) -> tuple[Feature, ...]:
        """Outputs of the default function."""
        return self.function().outputs

    @property
    def states(self) -> tuple[Feature, ...]:
        """States of the default function."""
        return self.function().states

    def describe(self) -> str:
        """Functions with inputs, states and outputs, a line each.

        >>> print(pome.Model("scores.mlpackage").describe())
        scores.mlpackage, specification 6
        function main
          input   input_ids  int32 [1, 1..128]
          input   attention_mask  int32 [1, 1..128]
          output  token_scores  fp32 [flexible]
        """
        lines = [f"{os.path.basename(self.path)}, specification {self.specification_version}"]
        for function in self._functions.values():
            lines.append(f"function {function.name}")
            for kind, features in (("input", function.inputs), ("state", function.states), ("output", function.outputs)):
                lines += [f"  {kind:6}  {feature}" for feature in features]
        return "\n".join(lines)

    def mil(self, function: str | None = None) -> str:
        """The program as MIL text: all functions, or one."""
        return self._native.mil(-1 if function is None else list(self._functions).index(self.function(function).name))

    def state(self, function: str | None = None) -> State:
        """A new state of zeros for a function.

        >>> state = pome.Model("llm.mlpackage").state()
        >>> {name: (array.shape, str(array.dtype)) for name, array in state.items()}
        {'keyCache': ((4, 1, 2, 128, 16), 'float16'), 'valueCache': ((4, 1, 2, 128, 16), 'float16')}
        """
        chosen = self.function(function)
        return State(self._native.state(chosen.name), chosen)

    def predict(
        self, inputs: Mapping[str, ArrayLike], state: State | None = None, *, function: str | None = None
    ) -> dict[str, Any]:
        """Runs a function once.

        Args:
            inputs: arrays by name, of any numeric type: what differs from the declared type is converted (floats to
                integers by truncation). Arrays are read as they lie, with any strides. Optional inputs may be left out.
                An image is an array of pixels, [height, width, 3] or [height, width] in gray with values from 0 to 255, or
                the program's planes [1, channels, height, width], or a PIL image of any mode.
            state: from :meth:`state`; needed where the function has states. It is updated in place.
            function: ``None``: the default one.

        Returns:
            New arrays by name, in the declared types. Images come as pixels, uint8 [height, width, 3] or [height, width]. A
            classifier gives its label as a text or integer, and its probabilities as a dictionary by label.

        Raises:
            KeyError: a name that is no input of the function, or no function.
            ArgumentError: a missing input, a shape that the model does not allow, a state that does not fit the function.
            FormatError, UnsupportedError: the data led to something that has no result, a negative length for instance.
        """
        chosen = self.function(function)
        unknown = [name for name in inputs if all(name != f.name for f in chosen.inputs)]
        if unknown:
            raise KeyError(f"no input '{unknown[0]}': there are {', '.join(f.name for f in chosen.inputs)}")
        given = tuple(_as_array(inputs[f.name], f) if inputs.get(f.name) is not None else None for f in chosen.inputs)
        if not (state is None or isinstance(state, State)):
            raise TypeError(f"the state is a {type(state).__name__}, wanted one made by Model.state()")
        predictor = self._take(chosen.name)
        try:
            tensors = predictor.run(given, state._native if state is not None else None)
        finally:
            self._give_back(chosen.name, predictor)
        return {f.name: _result(f, t) for f, t in zip(chosen.outputs, tensors)}

    def predict_batch(
        self, batch: Iterable[Mapping[str, ArrayLike]], *, function: str | None = None
    ) -> list[dict[str, Any]]:
        """Runs a function without states once for each element, in order. Raises as :meth:`predict`.

        >>> ids = np.array([[1, 2, 3]])
        >>> batch = [{"input_ids": ids[:, :n], "attention_mask": np.ones((1, n))} for n in (1, 3)]
        >>> [outputs["token_scores"].shape for outputs in pome.Model("scores.mlpackage").predict_batch(batch)]
        [(1, 1, 512), (1, 3, 512)]
        """
        return [self.predict(inputs, function=function) for inputs in batch]

    def _take(self, function: str) -> _pome.Predictor:
        try:
            return self._idle[function].pop()  # lists need no lock, which a fork could leave locked
        except IndexError:
            return self._native.predictor(function)

    def _give_back(self, function: str, predictor: _pome.Predictor) -> None:
        self._idle[function].append(predictor)
