"""Functions of many independent operators, written as protobuf messages directly: fast enough for thousands of parameter sets.

A case is one operator: arrays that come in at run time, constants, and the outputs that are wanted, in double precision."""
import dataclasses
import json
import pathlib
import uuid

import numpy as np
from coremltools import proto

MIL, Model = proto.MIL_pb2, proto.Model_pb2
OPSETS = {15: "CoreML5", 16: "CoreML6", 17: "CoreML7", 18: "CoreML8", 26: "CoreML9"}
SPEC_VERSION = {15: 6, 16: 7, 17: 8, 18: 9, 26: 10}
CODES = {"float16": MIL.FLOAT16, "float32": MIL.FLOAT32, "bool": MIL.BOOL, "int8": MIL.INT8, "int16": MIL.INT16, "int32": MIL.INT32,
         "uint8": MIL.UINT8, "uint16": MIL.UINT16, "uint32": MIL.UINT32, "int4": MIL.INT4, "uint1": MIL.UINT1, "uint2": MIL.UINT2,
         "uint3": MIL.UINT3, "uint4": MIL.UINT4, "uint6": MIL.UINT6, "string": MIL.STRING}
NAMES = {"float16": "fp16", "float32": "fp32"}  # MIL's own spelling where it differs
FEATURE = {"float32": 65568, "float16": 65552, "int32": 131104}
BITS = {"int4": 4, "uint1": 1, "uint2": 2, "uint3": 3, "uint4": 4, "uint6": 6}


@dataclasses.dataclass
class Packed:
    """An array of a type with less than eight bits."""
    values: np.ndarray
    dtype: str


@dataclasses.dataclass
class Out:
    """What is wanted: values in double (or integers), the declared type, and the axes of unknown length."""
    values: np.ndarray
    dtype: str
    unknown: tuple = ()


@dataclasses.dataclass
class Case:
    op: str
    inputs: dict            # by parameter: an array, or a list of arrays
    consts: dict            # by parameter: a scalar, text, array, Packed, or a list of scalars for literal lists
    outs: list
    exact_half: bool = False  # fp16 results within one unit in the last place
    compare: object = None  # instead of comparing with `outs`: a function of the outputs that gives a complaint or None
    tolerance: tuple = None  # (relative, absolute), else by type
    build: object = None    # for operators in the midst of others: (program, names of the inputs) gives names of the outputs
    then: tuple = None      # (operator, {parameter: number of an output of `op`, or a constant}, its outputs): seen instead

    @property
    def seen(self):
        return self.then[2] if self.then else self.outs

    def __str__(self):
        def show(value):
            if isinstance(value, list):
                return "[" + ", ".join(map(show, value)) + "]"
            if isinstance(value, Packed):
                return f"{value.dtype}{list(value.values.shape)}"
            array = np.asarray(value)
            return str(value) if array.size < 9 and array.ndim < 2 else f"{array.dtype}{list(array.shape)}"
        values = ", ".join(f"{k}={show(v)}" for k, v in {**self.inputs, **self.consts}.items())
        kinds = ", ".join(f"{a.dtype}{list(a.shape)}" for v in self.inputs.values() for a in (v if isinstance(v, list) else [v]))
        return f"{self.op}({values}; {kinds})"


def value_type(dtype, shape):
    kind = MIL.ValueType()
    tensor = kind.tensorType
    tensor.dataType, tensor.rank = CODES[dtype], len(shape)
    for n in shape:
        dimension = tensor.dimensions.add()
        if n is None:
            dimension.unknown.variadic = False
        else:
            dimension.constant.size = int(n)
    return kind


def pack(values, dtype):
    """One stream of bits, least significant bit first."""
    n = BITS[dtype]
    codes = np.asarray(values).astype(np.int64).ravel() & (2 ** n - 1)
    return np.packbits(codes[:, None] >> np.arange(n) & 1, bitorder="little").tobytes()


def immediate(value):
    if isinstance(value, Packed):
        made = MIL.Value(type=value_type(value.dtype, value.values.shape))
        made.immediateValue.tensor.bytes.values = pack(value.values, value.dtype)
        return made
    if isinstance(value, str):
        made = MIL.Value(type=value_type("string", ()))
        made.immediateValue.tensor.strings.values.append(value)
        return made
    array = np.asarray(value)
    if array.dtype == np.int64:
        array = array.astype(np.int32)
    if array.dtype == np.float64:
        array = array.astype(np.float32)
    made = MIL.Value(type=value_type(array.dtype.name, array.shape))
    tensor = made.immediateValue.tensor
    if array.dtype == np.bool_:
        tensor.bools.values.extend(array.ravel().tolist())
        tensor.bools.SetInParent()
    elif array.dtype in (np.int32, np.int16, np.uint16):
        tensor.ints.values.extend(array.ravel().tolist())
        tensor.ints.SetInParent()
    elif array.dtype == np.float32:
        tensor.floats.values.extend(array.ravel().tolist())
        tensor.floats.SetInParent()
    else:  # fp16, int8, uint8, uint32
        tensor.bytes.values = array.tobytes()
        tensor.bytes.SetInParent()
    return made


class Program:
    """One function `main` at an opset; features are named after the case's number."""

    def __init__(self, opset):
        self.opset = opset
        self.model = Model.Model(specificationVersion=SPEC_VERSION[opset])
        self.model.mlProgram.version = 1
        self.function = self.model.mlProgram.functions["main"]
        self.function.opset = OPSETS[opset]
        self.block = self.function.block_specializations[OPSETS[opset]]
        self.boundary = {"float32", "int32"} | ({"float16"} if opset >= 16 else set())
        self.n_names = 0

    def name(self, stem):
        self.n_names += 1
        return f"{stem}_{self.n_names}"

    def const(self, value):
        """The name of a constant."""
        name, value = self.name("c"), immediate(value)
        operation = self.block.operations.add(type="const")
        operation.attributes["val"].CopyFrom(value)
        operation.attributes["name"].CopyFrom(immediate(name))
        operation.outputs.add(name=name, type=value.type)
        return name

    def operation(self, kind, inputs, outputs, attributes=None):
        """inputs: {parameter: a name, a Value, or a list of them}; outputs: [(name, type)]"""
        operation = self.block.operations.add(type=kind)
        for parameter, given in inputs.items():
            for one in given if isinstance(given, list) else [given]:
                binding = operation.inputs[parameter].arguments.add()
                if isinstance(one, str):
                    binding.name = one
                else:
                    binding.value.CopyFrom(one)
        for key, value in (attributes or {}).items():
            operation.attributes[key].CopyFrom(value)
        for name, kind in outputs:
            operation.outputs.add(name=name, type=kind)
        operation.attributes["name"].CopyFrom(immediate(outputs[0][0] if outputs else self.name("op")))

    def step(self, kind, inputs, dtype, shape, name=None):
        """An operator of one output; gives its name."""
        name = name or self.name("t")
        self.operation(kind, inputs, [(name, value_type(dtype, shape))])
        return name

    def cast(self, name, dtype, shape):
        return self.step("cast", {"x": name, "dtype": immediate(NAMES.get(dtype, dtype))}, dtype, shape)

    def enter(self, name, array):
        """A feature of the model for an array, as what it is inside."""
        dtype = array.dtype.name
        outer = dtype if dtype in self.boundary else "float32" if dtype == "float16" else "int32"
        shape = array.shape or (1,)
        feature = self.model.description.input.add(name=name)
        feature.type.multiArrayType.dataType = FEATURE[outer]
        feature.type.multiArrayType.shape.extend(shape)
        self.function.inputs.add(name=name, type=value_type(outer, shape))
        if array.shape == ():
            name = self.step("squeeze", {"x": name, "axes": immediate(np.zeros(1, np.int32))}, outer, ())
        return name if outer == dtype else self.cast(name, dtype, array.shape)

    def leave(self, name, out, inner):
        """A feature `name` for the value `inner`."""
        shape = tuple(None if i in out.unknown else n for i, n in enumerate(out.values.shape))
        outer = out.dtype if out.dtype in self.boundary else "float32" if out.dtype == "float16" else "int32"
        if outer != out.dtype:
            inner = self.cast(inner, outer, shape)
        if shape == ():
            inner = self.step("expand_dims", {"x": inner, "axes": immediate(np.zeros(1, np.int32))}, outer, (1,))
        inner = self.step("identity", {"x": inner}, outer, shape or (1,), name)
        feature = self.model.description.output.add(name=name)
        feature.type.multiArrayType.dataType = FEATURE[outer]
        self.block.outputs.append(name)

    def add(self, case, number):
        """The operator of a case over inputs `inN_...`, with outputs `outN_...`."""
        inputs = {}
        for parameter, given in case.inputs.items():
            arrays = given if isinstance(given, list) else [given]
            names = [self.enter(f"in{number}_{parameter}_{i}", array) for i, array in enumerate(arrays)]
            inputs[parameter] = names if isinstance(given, list) else names[0]
        if case.build:
            for i, (out, inner) in enumerate(zip(case.outs, case.build(self, inputs), strict=True)):
                self.leave(f"out{number}_{i}", out, inner)
            return
        attributes = {}
        for parameter, value in case.consts.items():
            if case.op.startswith("constexpr_") and self.opset < 18:
                attributes[parameter] = immediate(value)
            elif isinstance(value, list):
                inputs[parameter] = [immediate(one) for one in value]
            else:  # both spellings occur in files
                inputs[parameter] = self.const(value) if number % 2 and not case.op.startswith("constexpr_") else immediate(value)
        outputs = []
        for i, out in enumerate(case.outs):
            shape = tuple(None if k in out.unknown else n for k, n in enumerate(out.values.shape))
            outputs.append((self.name(f"o{number}"), value_type(out.dtype, shape)))
        self.operation(case.op, inputs, outputs, attributes)
        if case.then:
            op, given, outs = case.then
            inputs = {p: outputs[v][0] if type(v) is int else immediate(v) for p, v in given.items()}
            outputs = [(self.name(f"o{number}"), value_type(out.dtype, out.values.shape)) for out in outs]
            self.operation(op, inputs, outputs)
        for i, out in enumerate(case.seen):
            self.leave(f"out{number}_{i}", out, outputs[i][0])

    def write(self, path):
        folder = pathlib.Path(path) / "Data" / "com.apple.CoreML"
        folder.mkdir(parents=True)
        (folder / "model.mlmodel").write_bytes(self.model.SerializeToString())
        key = str(uuid.UUID(int=0))
        entry = {"author": "com.apple.CoreML", "description": "CoreML Model Specification", "name": "model.mlmodel",
                 "path": "com.apple.CoreML/model.mlmodel"}
        manifest = {"fileFormatVersion": "1.0.0", "itemInfoEntries": {key: entry}, "rootModelIdentifier": key}
        (pathlib.Path(path) / "Manifest.json").write_text(json.dumps(manifest))


def feeds(case, number, boundary):
    made = {}
    for parameter, given in case.inputs.items():
        for i, array in enumerate(given if isinstance(given, list) else [given]):
            dtype = array.dtype.name
            outer = dtype if dtype in boundary else "float32" if dtype == "float16" else "int32"
            made[f"in{number}_{parameter}_{i}"] = np.ascontiguousarray(array.astype(outer)).reshape(array.shape or (1,))
    return made


def half_steps(got, want):
    """Units in the last place between two arrays of fp16."""
    def order(a):
        bits = a.view(np.int16).astype(np.int32)
        return np.where(bits < 0, -(bits & 0x7fff), bits)
    return np.abs(order(got) - order(want))


def complaint(case, got):
    """None if the outputs of a case are right."""
    if case.compare:
        return case.compare(got)
    for i, (value, out) in enumerate(zip(got, case.seen, strict=True)):
        want = np.asarray(out.values)
        if value.size != want.size or (want.ndim and value.shape != want.shape):
            return f"output {i} has shape {list(value.shape)}, wanted {list(want.shape)}"
        value = value.reshape(want.shape)
        if out.dtype not in ("float32", "float16"):
            wrong = value.astype(np.int64) != want.astype(np.int64)
        else:
            with np.errstate(all="ignore"):
                rounded = want.astype(out.dtype).astype(np.float64)
                value = value.astype(np.float64)
                if case.tolerance:
                    relative, absolute = case.tolerance
                elif out.dtype == "float32":
                    relative, absolute = 1e-5, 1e-4
                else:
                    finite = np.abs(rounded[np.isfinite(rounded)])
                    relative, absolute = 2.0 ** -10, 2.0 ** -12 * max(finite.max(initial=0), 2.0 ** -6)
                wrong = ~np.isclose(value, rounded, rtol=relative, atol=absolute, equal_nan=True)
                if out.dtype == "float16" and case.exact_half:
                    steps = half_steps(np.ascontiguousarray(value.astype(np.float16)), np.ascontiguousarray(want.astype(np.float16)))
                    wrong = (steps > 1) & ~(np.isnan(value) & np.isnan(want))
        if wrong.any():
            where = tuple(int(k[0]) for k in np.nonzero(np.atleast_1d(wrong)))
            found, wanted = np.atleast_1d(value)[where], np.atleast_1d(want)[where]
            return f"output {i}: {int(wrong.sum())} of {wrong.size} are wrong; at {list(where)} {found}, wanted {wanted}"
    return None
