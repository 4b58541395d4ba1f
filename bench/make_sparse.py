#!/usr/bin/env python3
"""Prunes the fp16 weights of a package by magnitude and stores what is left as Core ML's sparse constants.

    bench/make_sparse.py MODEL.mlpackage OUT.mlpackage --percent 50

Matrices of at least 2,048 elements lose their smallest elements, so many percent of each; the rest stays as it is. Needs
coremltools (bench/requirements-coremltools.txt) for the description's classes and the writer of weight files. Its own
pruning gives constants of the same form, but takes minutes for a model of this size."""
import argparse
import pathlib
import shutil

import numpy as np
from coremltools.libmilstoragepython import _BlobStorageWriter as BlobWriter
from coremltools.proto import MIL_pb2, Model_pb2

MIN_ELEMENTS = 2048
BLOB_RECORD = 64  # a blob's record; its data's size and offset are 64-bit integers at 8 and 16
COPIED = {MIL_pb2.FLOAT16: ("write_fp16_data", np.uint16), MIL_pb2.FLOAT32: ("write_float_data", np.float32),
          MIL_pb2.INT32: ("write_int32_data", np.int32), MIL_pb2.INT8: ("write_int8_data", np.int8),
          MIL_pb2.UINT8: ("write_uint8_data", np.uint8)}


def blob_at(weights, offset):
    size, begin = np.frombuffer(weights, np.uint64, 2, offset + 8)
    return weights[int(begin):int(begin) + int(size)]


def shape_of(value):
    return [d.constant.size for d in value.type.tensorType.dimensions]


def set_tensor_type(value, dtype, shape):
    tensor = value.type.tensorType
    tensor.dataType, tensor.rank = dtype, len(shape)
    del tensor.dimensions[:]
    for size in shape:
        tensor.dimensions.add().constant.size = int(size)


def pruned(halves, percent):
    """Bits that are kept: ties at the threshold are all dropped or all kept as they come."""
    n_drop = halves.size * percent // 100
    magnitude = halves & 0x7FFF  # of finite halves the order of magnitudes is that of these bits
    keep = np.ones(halves.size, bool)
    keep[np.argpartition(magnitude, n_drop)[:n_drop]] = False
    return keep


def make_sparse(op, value, writer, halves, percent):
    shape, path = shape_of(value), value.blobFileValue.fileName
    keep = pruned(halves, percent)
    places = {"nonzero_data": (MIL_pb2.FLOAT16, [int(keep.sum())], writer.write_fp16_data(halves[keep])),
              "mask": (MIL_pb2.UINT1, shape, writer.write_uint1_data(keep.astype(np.uint8)))}
    name = MIL_pb2.Value()
    name.CopyFrom(op.attributes["name"])
    op.type = "constexpr_sparse_to_dense"
    for key in list(op.attributes):
        del op.attributes[key]
    op.attributes["name"].CopyFrom(name)
    for key, (dtype, dims, offset) in places.items():
        part = op.inputs[key].arguments.add().value
        set_tensor_type(part, dtype, dims)
        part.blobFileValue.fileName, part.blobFileValue.offset = path, offset


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model", type=pathlib.Path)
    p.add_argument("out", type=pathlib.Path)
    p.add_argument("--percent", type=int, default=50, metavar="N", help="elements that become 0 (50)")
    args = p.parse_args()
    inside = pathlib.Path("Data") / "com.apple.CoreML"
    weights = (args.model / inside / "weights" / "weight.bin").read_bytes()
    spec = Model_pb2.Model()
    spec.ParseFromString((args.model / inside / "model.mlmodel").read_bytes())
    shutil.copytree(args.model, args.out, ignore=shutil.ignore_patterns("weight.bin"))
    writer = BlobWriter(str(args.out / inside / "weights" / "weight.bin"), True)
    for function in spec.mlProgram.functions.values():
        for block in function.block_specializations.values():
            for op in block.operations:
                value = op.attributes["val"] if op.type == "const" else None
                if value is None or value.WhichOneof("value") != "blobFileValue":
                    continue
                shape, dtype = shape_of(value), value.type.tensorType.dataType
                write, numpy_type = COPIED[dtype]
                data = np.frombuffer(blob_at(weights, value.blobFileValue.offset), numpy_type)
                if dtype == MIL_pb2.FLOAT16 and len(shape) >= 2 and data.size >= MIN_ELEMENTS and "weight" in op.outputs[0].name:
                    make_sparse(op, value, writer, data, args.percent)
                else:
                    value.blobFileValue.offset = getattr(writer, write)(data)
    del writer
    (args.out / inside / "model.mlmodel").write_bytes(spec.SerializeToString())


if __name__ == "__main__":
    main()
