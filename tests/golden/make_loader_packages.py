"""Makes the packages of tests/golden/loader with coremltools (9.0): its protobuf classes, its weight writer, its builder.

    python make_loader_packages.py [FOLDER]      default: the folder loader beside this script

constants.mlpackage     a constant of every element type, immediate and in a weight file; constants.txt lists the values
description.mlpackage   every kind of feature description
control_flow.mlpackage  cond and while_loop with lists, from the model builder
pipeline.mlpackage      two programs after each other; pipeline.npz has inputs and the result, computed by NumPy
"""
import pathlib
import shutil
import sys
import uuid

import coremltools as ct
import numpy as np
from coremltools.converters.mil import Builder as mb
from coremltools.converters.mil.mil import types
from coremltools.libmilstoragepython import _BlobStorageWriter as Writer
from coremltools.proto import FeatureTypes_pb2 as ft
from coremltools.proto import MIL_pb2 as mil
from coremltools.proto import Model_pb2 as model_pb

N = 13  # odd, so that sub-byte payloads have padding
DT = mil.DataType

# MIL type: (numpy type, field of an immediate value, writer method or None, bits, lowest value of integers)
TYPES = {
    "BOOL": (np.bool_, "bools", None, 8, 0),
    "FLOAT16": (np.float16, "bytes", "write_fp16_data", 16, None),
    "FLOAT32": (np.float32, "floats", "write_float_data", 32, None),
    "FLOAT64": (np.float64, "doubles", None, 64, None),
    "INT4": (np.int8, "bytes", "write_int4_data", 4, -8),
    "INT8": (np.int8, "bytes", "write_int8_data", 8, -128),
    "INT16": (np.int16, "ints", "write_int16_data", 16, -(1 << 15)),
    "INT32": (np.int32, "ints", "write_int32_data", 32, -(1 << 31)),
    "INT64": (np.int64, "longInts", None, 64, -(1 << 63)),
    "UINT1": (np.uint8, "bytes", "write_uint1_data", 1, 0),
    "UINT2": (np.uint8, "bytes", "write_uint2_data", 2, 0),
    "UINT3": (np.uint8, "bytes", "write_uint3_data", 3, 0),
    "UINT4": (np.uint8, "bytes", "write_uint4_data", 4, 0),
    "UINT6": (np.uint8, "bytes", "write_uint6_data", 6, 0),
    "UINT8": (np.uint8, "bytes", "write_uint8_data", 8, 0),
    "UINT16": (np.uint16, "ints", "write_uint16_data", 16, 0),
    "UINT32": (np.uint32, "bytes", "write_uint32_data", 32, 0),
    "UINT64": (np.uint64, "longInts", None, 64, 0),
}
POME_NAMES = {"BOOL": "bool", "FLOAT16": "fp16", "FLOAT32": "fp32", "FLOAT64": "fp64"}


def values(name, rng):
    nt, _, _, bits, low = TYPES[name]
    if name == "BOOL":
        return rng.integers(0, 2, N).astype(nt)
    if low is None:
        v = rng.standard_normal(N).astype(nt)
        v[0], v[1] = np.finfo(nt).max, np.finfo(nt).smallest_subnormal
        return v
    high = low + (1 << bits) - 1
    v = [low, high] + [int(rng.integers(low, high, dtype=np.int64 if low < 0 else np.uint64, endpoint=True))
                       for _ in range(N - 2)]
    return np.array(v, dtype=nt)


def pack(name, v):
    """Bytes of an immediate value: sub-byte types are one bit stream, least significant bit first."""
    bits = TYPES[name][3]
    if bits >= 8:
        return v.tobytes()
    stream = ((v.astype(np.int64)[:, None] >> np.arange(bits)) & 1).astype(np.uint8).reshape(-1)
    return np.packbits(stream, bitorder="little").tobytes()


def tensor_type(t, code, shape):
    t.tensorType.dataType = code
    t.tensorType.rank = len(shape)
    for n in shape:
        t.tensorType.dimensions.add().constant.size = n


def set_immediate(value, name, v):
    tensor_type(value.type, DT.Value(name), list(v.shape))
    field = TYPES[name][1]
    t = value.immediateValue.tensor
    if field == "bytes":
        t.bytes.values = pack(name, v)
    elif name == "UINT64":
        t.longInts.values.extend(v.astype(np.int64).tolist())
    else:
        getattr(t, field).values.extend(v.tolist())


def set_text(value, text):
    tensor_type(value.type, DT.Value("STRING"), [])
    value.immediateValue.tensor.strings.values.append(text)


def add_const(block, op_name, fill):
    op = block.operations.add(type="const")
    set_text(op.attributes["name"], op_name)
    fill(op.attributes["val"])
    out = op.outputs.add(name=op_name)
    out.type.CopyFrom(op.attributes["val"].type)
    return out


def write_package(path, spec, weights=None):
    if path.exists():
        shutil.rmtree(path)
    data = path / "Data" / "com.apple.CoreML"
    data.mkdir(parents=True)
    (data / "model.mlmodel").write_bytes(spec.SerializeToString(deterministic=True))
    items = [("model.mlmodel", "CoreML Model Specification")]
    if weights:
        (data / "weights").mkdir()
        shutil.move(weights, data / "weights" / "weight.bin")
        items.append(("weights", "CoreML Model Weights"))
    ids = [str(uuid.uuid5(uuid.NAMESPACE_URL, path.name + "/" + name)) for name, _ in items]
    entries = ",\n".join(
        f'        "{i}": {{\n            "author": "com.apple.CoreML",\n            "description": "{d}",\n'
        f'            "name": "{n}",\n            "path": "com.apple.CoreML/{n}"\n        }}'
        for i, (n, d) in sorted(zip(ids, items)))
    (path / "Manifest.json").write_text(
        f'{{\n    "fileFormatVersion": "1.0.0",\n    "itemInfoEntries": {{\n{entries}\n    }},\n'
        f'    "rootModelIdentifier": "{ids[0]}"\n}}\n')


def new_program(opset="CoreML8"):
    spec = model_pb.Model(specificationVersion=9)
    spec.mlProgram.version = 1
    f = spec.mlProgram.functions["main"]
    f.opset = opset
    x = f.inputs.add(name="x")
    tensor_type(x.type, DT.Value("FLOAT32"), [2])
    block = f.block_specializations[opset]
    block.outputs.append("x")
    described = spec.description.input.add(name="x")
    described.type.multiArrayType.shape.append(2)
    described.type.multiArrayType.dataType = ft.ArrayFeatureType.FLOAT32
    out = spec.description.output.add(name="x")
    out.type.multiArrayType.shape.append(2)
    out.type.multiArrayType.dataType = ft.ArrayFeatureType.FLOAT32
    return spec, block


def constants(folder):
    rng = np.random.default_rng(20)
    spec, block = new_program()
    weights = folder / "weight.bin"
    weights.unlink(missing_ok=True)
    writer = Writer(str(weights))
    lines = []

    def use(name):
        """Constants are values of a program: a use of each keeps it reachable."""
        op = block.operations.add(type="identity")
        op.inputs["x"].arguments.add(name=name)
        op.outputs.add(name="use_" + name).type.CopyFrom(block.operations[-2].outputs[0].type)

    def note(const, name, shape, v):
        text = " ".join(float(x).hex() if x.dtype.kind == "f" else str(int(x)) for x in v.reshape(-1))
        lines.append(f"{const} {POME_NAMES.get(name, name.lower())} {'x'.join(map(str, shape))} {text}")

    for name, (nt, field, method, bits, low) in TYPES.items():
        v = values(name, rng)
        add_const(block, "imm_" + name.lower(), lambda value: set_immediate(value, name, v))
        use("imm_" + name.lower())
        note("imm_" + name.lower(), name, [N], v)
        if method:
            v = values(name, rng)
            offset = getattr(writer, method)(v.view(np.uint16) if name == "FLOAT16" else v)

            def fill(value):
                tensor_type(value.type, DT.Value(name), [1, N])
                value.blobFileValue.fileName = "@model_path/weights/weight.bin"
                value.blobFileValue.offset = offset

            add_const(block, "blob_" + name.lower(), fill)
            use("blob_" + name.lower())
            note("blob_" + name.lower(), name, [1, N], v)
    del writer
    write_package(folder / "constants.mlpackage", spec, weights)
    (folder / "constants.txt").write_text("\n".join(lines) + "\n")


def description(folder):
    spec = model_pb.Model(specificationVersion=10)
    spec.mlProgram.version = 1
    md = spec.description.metadata
    md.shortDescription, md.versionString, md.author, md.license = "Every kind of feature", "1.5", "Nobody", "none"
    md.userDefined["com.example.key"] = "a value with \u00fcmlauts"
    d = spec.description
    d.defaultFunctionName = "second"
    for fname in ("first", "second"):
        fd = d.functions.add(name=fname)
        f = spec.mlProgram.functions[fname]
        f.opset = "CoreML8"
        block = f.block_specializations["CoreML8"]

        def array(features, name, shape, code="FLOAT32", note=""):
            x = features.add(name=name, shortDescription=note)
            x.type.multiArrayType.shape.extend(shape)
            x.type.multiArrayType.dataType = ft.ArrayFeatureType.ArrayDataType.Value(code)
            return x.type

        def value(name, code, dims, state=False):
            v = f.inputs.add(name=name)
            t = v.type.stateType.wrappedType.tensorType if state else v.type.tensorType
            t.dataType, t.rank = DT.Value(code), len(dims)
            for n in dims:
                if n is None:
                    t.dimensions.add().unknown.variadic = False
                else:
                    t.dimensions.add().constant.size = n

        # The program lists its inputs in another order than the description.
        value("cache", "FLOAT16", [1, 2, 8], state=True)
        value("optional", "INT32", [4])
        value("ranged", "FLOAT16", [1, None])
        value("fixed", "FLOAT32", [2, 3])
        block.outputs.append("ranged")
        array(fd.input, "fixed", [2, 3], note="a fixed shape")
        t = array(fd.input, "ranged", [1, 5], "FLOAT16")
        for low, high in ((1, 1), (1, -1)):
            t.multiArrayType.shapeRange.sizeRanges.add(lowerBound=low, upperBound=high)
        t = array(fd.input, "optional", [4], "INT32")
        t.isOptional = True
        t.multiArrayType.intDefaultValue = -7
        s = fd.state.add(name="cache")
        s.type.stateType.arrayType.shape.extend([1, 2, 8])
        s.type.stateType.arrayType.dataType = ft.ArrayFeatureType.FLOAT16
        if fname == "second":
            value("listed", "INT32", [1, None])
            value("bytes", "INT8", [3])
            value("picture", "FLOAT32", [1, 3, 20, 10])
            t = array(fd.input, "listed", [1, 8], "INT32")
            for n in (1, 8, 32):  # the default is not the first
                t.multiArrayType.enumeratedShapes.shapes.add(shape=[1, n])
            t = array(fd.input, "bytes", [3], "INT8")
            t.isOptional = True
            t.multiArrayType.floatDefaultValue = 2.5
            p = fd.input.add(name="picture")
            p.type.imageType.width, p.type.imageType.height = 10, 20
            p.type.imageType.colorSpace = ft.ImageFeatureType.RGB
            p = fd.output.add(name="label")
            p.type.stringType.SetInParent()
            p = fd.output.add(name="probabilities")
            p.type.dictionaryType.stringKeyType.SetInParent()
            fd.predictedFeatureName, fd.predictedProbabilitiesName = "label", "probabilities"
        array(fd.output, "ranged", [], "FLOAT16")
    write_package(folder / "description.mlpackage", spec)


def control_flow(folder):
    @mb.program(input_specs=[mb.TensorSpec((2, 3)), mb.TensorSpec((1,), dtype=types.int32)],
                opset_version=ct.target.iOS17)
    def program(x, n):
        count = mb.squeeze(x=n, name="count")
        zero = np.float32(0)

        def grows(i, acc):
            return mb.less(x=i, y=count)

        def step(i, acc):
            return mb.add(x=i, y=1), mb.add(x=acc, y=x)

        _, total = mb.while_loop(_cond=grows, _body=step, loop_vars=(np.int32(0), mb.mul(x=x, y=zero)))
        positive = mb.greater(x=mb.reduce_sum(x=total, keep_dims=False), y=zero)
        return mb.cond(pred=positive, _true_fn=lambda: mb.relu(x=total), _false_fn=lambda: mb.abs(x=total), name="out")

    model = ct.convert(program, convert_to="mlprogram", minimum_deployment_target=ct.target.iOS17,
                       compute_precision=ct.precision.FLOAT32)
    spec = model.get_spec()
    spec.description.metadata.userDefined.clear()
    write_package(folder / "control_flow.mlpackage", spec)


def pipeline(folder):
    rng = np.random.default_rng(7)
    first, second = (rng.integers(-8, 9, shape).astype(np.float32) for shape in ((16, 8), (4, 16)))

    @mb.program(input_specs=[mb.TensorSpec((1, 8))])
    def stage0(x):
        return mb.relu(x=mb.linear(x=x, weight=first), name="hidden")

    @mb.program(input_specs=[mb.TensorSpec((1, 16)), mb.TensorSpec((1, 4))])
    def stage1(hidden, shift):
        return mb.add(x=mb.linear(x=hidden, weight=second), y=shift, name="y")

    models = [ct.convert(p, convert_to="mlprogram", minimum_deployment_target=ct.target.iOS16,
                         compute_precision=ct.precision.FLOAT16) for p in (stage0, stage1)]
    shutil.rmtree(folder / "pipeline.mlpackage", ignore_errors=True)
    ct.utils.make_pipeline(*models).save(str(folder / "pipeline.mlpackage"))
    x, shift = rng.integers(-4, 5, (1, 8)).astype(np.float32), rng.integers(-4, 5, (1, 4)).astype(np.float32)
    np.savez(folder / "pipeline.npz", x=x, shift=shift, y=np.maximum(x @ first.T, 0) @ second.T + shift)  # small integers: exact


if __name__ == "__main__":
    target = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parent / "loader"
    target.mkdir(parents=True, exist_ok=True)
    constants(target)
    description(target)
    control_flow(target)
    pipeline(target)
