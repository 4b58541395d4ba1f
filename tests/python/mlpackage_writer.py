"""Programs made with coremltools' builder, written as packages without its conversion passes: what is built is what the
file holds."""
import json
import os
import pathlib
import uuid

import coremltools as ct
import numpy as np
from coremltools.converters.mil.backend.mil.load import load as to_proto
from coremltools.converters.mil.mil import Builder as mb
from coremltools.converters.mil.mil import types

TARGETS = {15: ct.target.iOS15, 16: ct.target.iOS16, 17: ct.target.iOS17, 18: ct.target.iOS18}
SPEC_VERSION = {15: 6, 16: 7, 17: 8, 18: 9}
TYPES = {"float32": types.fp32, "float16": types.fp16, "int32": types.int32}
UNUSED = "without_use"
CAST_NAME = {"bool": "bool", "int8": "int8", "uint8": "uint8", "int16": "int16", "uint16": "uint16"}


def write_package(program, path, opset):
    """Writes a coremltools program as it is."""
    root = pathlib.Path(path)
    weights = root / "Data" / "com.apple.CoreML" / "weights"
    weights.mkdir(parents=True)
    model = to_proto(program, weights_dir=str(weights), specification_version=SPEC_VERSION[opset])
    (weights.parent / "model.mlmodel").write_bytes(model.SerializeToString())
    items = {str(uuid.UUID(int=i)): {"author": "com.apple.CoreML", "description": text, "name": name,
                                     "path": "com.apple.CoreML/" + name}
             for i, (name, text) in enumerate((("model.mlmodel", "CoreML Model Specification"),
                                               ("weights", "CoreML Model Weights"))) if os.path.exists(weights.parent / name)}
    manifest = {"fileFormatVersion": "1.0.0", "itemInfoEntries": items, "rootModelIdentifier": str(uuid.UUID(int=0))}
    (root / "Manifest.json").write_text(json.dumps(manifest))


def flatten(inputs):
    """[(parameter, index or None, feature name, array)]; a list of arrays feeds a parameter with several bindings."""
    for parameter, value in inputs.items():
        if isinstance(value, list):
            for i, array in enumerate(value):
                yield parameter, i, f"{parameter}_{i}", array
        else:
            yield parameter, None, f"in_{parameter}", value


def boundary_dtype(array):
    """Models take fp32, fp16 and int32; other types enter as int32 and are cast inside."""
    return array.dtype.name if array.dtype.name in TYPES else "int32"


def feeds(inputs):
    """{feature name: array} for a program made by build()."""
    return {name: np.ascontiguousarray(array.astype(boundary_dtype(array))).reshape(array.shape or (1,))
            for _, _, name, array in flatten(inputs)}


def call(op, bound, consts):
    result = getattr(mb, op)(**bound, **consts)
    return result if isinstance(result, (list, tuple)) else [result]


def bind(inputs, make):
    """Arguments for the builder: make(feature name, array) gives the variable of each input."""
    bound = {}
    for parameter, index, name, array in flatten(inputs):
        variable = make(name, array)
        if index is None:
            bound[parameter] = variable
        else:
            bound.setdefault(parameter, []).append(variable)
    return bound


def build(op, opset, inputs, consts, folded=False):
    """A program of one operator over run-time inputs; outputs out_0, out_1, ... (bool and small integers as int32).
    With `folded` the inputs are constants of the program, and an input without use stands in their place."""
    arrays = {} if folded else {name: array for _, _, name, array in flatten(inputs)}
    specs = [mb.TensorSpec(shape=array.shape or (1,), dtype=TYPES[boundary_dtype(array)]) for array in arrays.values()]

    def enter(variables):
        def make(name, array):
            if folded:
                return mb.const(val=array, name=name)
            variable = variables[name]
            if array.shape == ():  # models take no scalars
                variable = mb.squeeze(x=variable, axes=[0])
            if array.dtype.name in CAST_NAME:
                variable = mb.cast(x=variable, dtype=CAST_NAME[array.dtype.name])
            return variable

        outputs = []
        for i, output in enumerate(call(op, bind(inputs, make), consts)):
            if output.dtype not in TYPES.values():
                output = mb.cast(x=output, dtype="int32")
            if output.rank == 0:
                output = mb.expand_dims(x=output, axes=[0])
            outputs.append(mb.identity(x=output, name=f"out_{i}"))
        return tuple(outputs)

    if folded:
        arrays, specs = {UNUSED: None}, [mb.TensorSpec(shape=(1,), dtype=types.fp32)]
    return build_function(list(arrays), specs, opset, enter)


def build_function(names, specs, opset, body):
    # mb.program takes the names of the inputs from the function's parameters.
    source = f"def function({', '.join(names)}):\n    return body(dict({', '.join(f'{n}={n}' for n in names)}))\n"
    scope = {"body": body}
    exec(source, scope)
    return mb.program(input_specs=specs, opset_version=TARGETS[opset])(scope["function"])


def evaluate(op, opset, inputs, consts):
    """Values of the outputs as coremltools' own value inference gives them for constant inputs; None where it has none."""
    values = []

    def body(_):
        results = call(op, bind(inputs, lambda name, array: mb.const(val=array, name=name + "_const")), consts)
        values.extend(None if r.val is None else np.asarray(r.val) for r in results)
        return (mb.identity(x=mb.const(val=np.float32(0), name="zero"), name="unused"),)

    build_function([], [], opset, body)
    return values
