#!/usr/bin/env python3
"""Makes tests/ops/data/encoded_cases.bin: compressed constants and what coremltools decompresses them to.

    make_encoded_cases.py OUT

Needs coremltools 9 and numpy. The values come from the `decompress` functions of coremltools' own constexpr
operators, on operands drawn here. Layout of the file, all little-endian (read by tests/ops/test_encoded.c):

    "PENC" u32 n_cases
    case:   u8 length, name (ASCII); u32 n_ops; ops; u32 output; i32 dtype of the result, i32 rank, i64 dims[rank];
            f32 values[product of dims]
    op:     u8 length, name of the operator; u32 n_inputs; inputs
    input:  u8 length, name of the parameter; i32 from_op (-1: a tensor), i32 from_output;
            i32 dtype, i32 rank, i64 dims[rank]; u32 n_bytes, the payload (none if from another op)

An op may use the ops before it; the last one is the case. dtype numbers are those of pome_dtype."""
import struct
import sys

import numpy as np
from coremltools.converters.mil.mil.ops.defs.iOS16 import constexpr_ops as c16
from coremltools.converters.mil.mil.ops.defs.iOS18 import compression as c18

DTYPES = ("none bool fp16 fp32 fp64 bf16 f8e4m3fn f8e5m2 int4 int8 int16 int32 int64 uint1 uint2 uint3 uint4 uint6 "
          "uint8 uint16 uint32 uint64 string").split()
NUMPY = {"fp16": np.float16, "fp32": np.float32, "int8": np.int8, "uint8": np.uint8, "int32": np.int32,
         "uint32": np.uint32}
BITS = {"int4": 4, "uint1": 1, "uint2": 2, "uint3": 3, "uint4": 4, "uint6": 6}
rng = np.random.default_rng(20250721)


class Tensor:
    """Values with a MIL type; sub-byte types hold theirs in a byte each."""

    def __init__(self, dtype, values):
        self.dtype, self.values = dtype, np.asarray(values)

    def payload(self):
        if self.dtype == "string":
            return str(self.values).encode()
        if self.dtype not in BITS:
            return self.values.astype(NUMPY[self.dtype]).tobytes()
        n = BITS[self.dtype]
        codes = self.values.astype(np.int64).ravel() & (2 ** n - 1)
        bits = ((codes[:, None] >> np.arange(n)) & 1).astype(np.uint8).ravel()
        return np.packbits(bits, bitorder="little").tobytes()


class Ref:
    def __init__(self, op, output, dtype, values):
        self.op, self.output, self.dtype, self.values = op, output, dtype, np.asarray(values)


def name(text):
    return bytes([len(text)]) + text.encode()


def shape(values):
    return struct.pack("<i", values.ndim) + struct.pack(f"<{values.ndim}q", *values.shape)


class Case:
    def __init__(self, title):
        self.title, self.ops, self.result = title, [], None

    def add(self, op, outputs, **inputs):
        """outputs: [(dtype, values)]; returns references to them."""
        blob = name(op) + struct.pack("<I", len(inputs))
        for parameter, x in inputs.items():
            ref = isinstance(x, Ref)
            data = b"" if ref else x.payload()
            blob += name(parameter) + struct.pack("<iii", x.op if ref else -1, x.output if ref else 0,
                                                  DTYPES.index(x.dtype))
            blob += shape(x.values) + struct.pack("<I", len(data)) + data
        self.ops.append(blob)
        refs = [Ref(len(self.ops) - 1, i, dtype, values) for i, (dtype, values) in enumerate(outputs)]
        self.result = refs[-1]
        return refs

    def pack(self):
        r = self.result
        values = r.values.astype(np.float32)
        return (name(self.title) + struct.pack("<I", len(self.ops)) + b"".join(self.ops) +
                struct.pack("<Ii", r.output, DTYPES.index(r.dtype)) + shape(r.values) + values.tobytes())


def draw(dtype, *dims):
    """Codes over the whole range; floats of several magnitudes, some subnormal as halves."""
    if dtype in BITS:
        n = BITS[dtype]
        low, high = (-(2 ** (n - 1)), 2 ** (n - 1)) if dtype[0] == "i" else (0, 2 ** n)
        return Tensor(dtype, rng.integers(low, high, dims).astype(np.int8 if low else np.uint8))
    if dtype in ("int8", "uint8"):
        return Tensor(dtype, rng.integers(-128 if dtype == "int8" else 0, 128 if dtype == "int8" else 256, dims)
                      .astype(NUMPY[dtype]))
    values = rng.normal(size=dims) * 10.0 ** rng.integers(-6, 1, dims)
    return Tensor(dtype, values.astype(NUMPY[dtype]))


def blockwise(case, data, scale, offset=None):
    inputs = {"data": data, "scale": scale} | ({"offset": offset} if offset else {})
    out = c18.constexpr_blockwise_shift_scale.decompress(data.values, scale.values, offset.values if offset else None)
    return case.add("constexpr_blockwise_shift_scale", [(scale.dtype, out.astype(scale.values.dtype))], **inputs)[0]


def lut(case, indices, table, axis=None):
    inputs = {"indices": indices, "lut": table}
    if axis is not None:
        inputs["vector_axis"] = Tensor("int32", np.int32(axis))
    out = c18.constexpr_lut_to_dense.decompress(indices.values, table.values, axis)
    return case.add("constexpr_lut_to_dense", [(table.dtype, out)], **inputs)[0]


def sparse(case, nonzero, mask):
    out = c18.constexpr_sparse_to_dense.decompress(nonzero.values, mask.values)
    return case.add("constexpr_sparse_to_dense", [(nonzero.dtype, out)], nonzero_data=nonzero, mask=mask)[0]


def draw_mask(density, *dims):
    return Tensor("uint1", (rng.random(dims) < density).astype(np.uint8))


def cases():
    for data in ("int4", "uint4", "int8", "uint8"):
        for scale in ("fp16", "fp32"):
            for dims, blocks in (((6, 64), (6, 2)), ((5, 7), (5, 1)), ((4, 6), (1, 1)), ((4, 9), (2, 3)),
                                 ((3, 8), (1, 8)), ((2, 6, 4, 4), (2, 3, 1, 2)), ((4, 96, 1, 1), (4, 3, 1, 1)),
                                 ((37,), (37,))):
                for offset in (None, data, scale):
                    c = Case(f"blockwise {data} {scale} {dims} {blocks} {offset}")
                    blockwise(c, draw(data, *dims), draw(scale, *blocks), draw(offset, *blocks) if offset else None)
                    yield c
    for data, scale, offset in (("fp32", "fp16", "fp16"), ("fp16", "fp16", None), ("fp16", "fp32", "fp16"),
                                ("int8", "fp16", "fp32"), ("fp32", "fp16", "fp32")):
        c = Case(f"blockwise floats {data} {scale} {offset}")
        blockwise(c, draw(data, 4, 8), draw(scale, 4, 2), draw(offset, 4, 2) if offset else None)
        yield c
    c = Case("blockwise zero and huge scales")
    blockwise(c, draw("int4", 4, 32), Tensor("fp16", np.array([[0], [6e4], [-6e-8], [65504]], np.float16)))
    yield c

    for n in (1, 2, 3, 4, 6, 8):
        for table in ("fp16", "fp32", "int8", "uint8"):
            for dims, groups, vector, axis in (((6, 35), (1, 1), 1, None), ((8, 33), (4, 1), 1, None),
                                               ((4, 24), (1, 3), 1, 1), ((6, 4), (2, 2), 1, None),
                                               ((4, 6), (2, 1), 2, 0), ((4, 6), (2, 3), 4, -1),
                                               ((3, 4, 2, 5), (3, 2, 1, 1), 3, 1)):
                if n >= 6 and (vector > 2 or groups == (2, 2) or table in ("fp32", "uint8")):  # large tables
                    continue
                c = Case(f"lut uint{n} {table} {dims} {groups} {vector} {axis}")
                lut(c, draw("uint8" if n == 8 else f"uint{n}", *dims), draw(table, *groups, 2 ** n, vector), axis)
                yield c
    c = Case("lut of int8, then scale per channel")
    blockwise(c, lut(c, draw("uint4", 8, 40), draw("int8", 2, 1, 16, 1)), draw("fp16", 8, 1))
    yield c
    c = Case("lut of fp16, then scale per channel, odd rows")
    blockwise(c, lut(c, draw("uint4", 7, 33), draw("fp16", 1, 1, 16, 1)), draw("fp16", 7, 1))
    yield c
    c = Case("lut of uint8 pairs, then blocks with offset")
    blockwise(c, lut(c, draw("uint6", 4, 8), draw("uint8", 1, 1, 64, 2), 1), draw("fp16", 4, 2), draw("uint8", 4, 2))
    yield c

    for density in (0, 0.1, 0.5, 1):
        for data in ("fp16", "fp32", "int8", "uint8", "int4", "uint4"):
            c = Case(f"sparse {data} {density}")
            mask = draw_mask(density, 13, 97 if data == "int8" else 31)
            sparse(c, draw(data, int(mask.values.sum())), mask)
            yield c
    c = Case("sparse, long")
    mask = draw_mask(0.3, 70, 101)
    sparse(c, draw("uint4", int(mask.values.sum())), mask)
    yield c
    c = Case("sparse int4, then blocks")
    mask = draw_mask(0.5, 6, 64)
    blockwise(c, sparse(c, draw("int4", int(mask.values.sum())), mask), draw("fp16", 6, 2))
    yield c

    for n, table, dims, groups, vector, axis in ((4, "fp16", (8, 50), (1, 1), 1, None), (2, "fp16", (9, 40), (3, 1), 1, 0),
                                                 (3, "int8", (4, 30), (2, 5), 1, None), (4, "fp16", (4, 9), (2, 1), 2, 0),
                                                 (6, "fp32", (4, 6), (1, 2), 3, -1), (1, "uint8", (5, 200), (5, 1), 1, None),
                                                 (8, "fp16", (2, 3, 4, 5), (2, 1, 2, 1), 2, 1)):
        for output in (0, 1, 2):
            c = Case(f"lut to sparse uint{n} {table} {dims} {groups} {vector} {axis}, output {output}")
            mask, t = draw_mask(0.4, *dims), draw(table, *groups, 2 ** n, vector)
            indices = draw("uint8" if n == 8 else f"uint{n}", int(mask.values.sum()))
            inputs = {"indices_mask": mask, "indices_nonzero_data": indices, "lut": t}
            if axis is not None:
                inputs["vector_axis"] = Tensor("int32", np.int32(axis))
            m, v = c18.constexpr_lut_to_sparse.decompress(mask.values, indices.values, t.values, axis)
            refs = c.add("constexpr_lut_to_sparse", [("uint1", m), (table, v)], **inputs)
            c.result = refs[output] if output < 2 else sparse(c, refs[1], refs[0])
            yield c
    for data, scale, dims, blocks, offset in (("int8", "fp16", (8, 50), (8, 1), None), ("uint8", "fp16", (6, 64), (6, 2), "uint8"),
                                              ("int4", "fp32", (4, 30), (1, 1), "fp32"), ("uint4", "fp16", (6, 40), (3, 4), "fp16")):
        for output in (0, 1, 2):
            c = Case(f"sparse blockwise {data} {scale} {dims} {blocks} {offset}, output {output}")
            mask, s = draw_mask(0.4, *dims), draw(scale, *blocks)
            o = draw(offset, *blocks) if offset else None
            nonzero = draw(data, int(mask.values.sum()))
            inputs = {"data_mask": mask, "nonzero_data": nonzero, "scale": s} | ({"offset": o} if o else {})
            m, v = c18.constexpr_sparse_blockwise_shift_scale.decompress(mask.values, nonzero.values, s.values,
                                                                         o.values if o else None)
            refs = c.add("constexpr_sparse_blockwise_shift_scale", [("uint1", m), (scale, v.astype(s.values.dtype))],
                         **inputs)
            c.result = refs[output] if output < 2 else sparse(c, refs[1], refs[0])
            yield c

    for data in ("int8", "uint8"):
        for scale in ("fp16", "fp32"):
            for zero in (data, "fp32", "zeros"):
                for dims, axis, vectors in (((6, 40), 0, "sz"), ((6, 40), -1, "s"), ((3, 4, 5), 1, "z"), ((4, 7), 0, "")):
                    c = Case(f"affine {data} {scale} {zero} {dims} {axis} '{vectors}'")
                    q, k = draw(data, *dims), (dims[axis],)
                    s = draw(scale, *(k if "s" in vectors else ()))
                    z = draw(data if zero == "zeros" else zero, *(k if "z" in vectors else ()))
                    if zero == "zeros":
                        z.values = z.values * 0
                    out = c16.constexpr_affine_dequantize.decompress(q.values, z.values, s.values, axis)
                    c.add("constexpr_affine_dequantize", [(scale, out)], quantized_data=q, zero_point=z, scale=s,
                          axis=Tensor("int32", np.int32(axis)))
                    yield c
    for n in (1, 2, 4, 6, 8):
        for table in ("fp16", "fp32", "int8", "uint8"):
            dims = (5, 13)
            codes, t = draw("uint8" if n == 8 else f"uint{n}", *dims), draw(table, 2 ** n)
            packed = np.frombuffer(codes.payload(), np.uint8)
            c = Case(f"flat lut {n} bits {table}")
            out = c16.constexpr_lut_to_dense.decompress(t.values, packed, np.array(dims, np.uint32))
            c.add("constexpr_lut_to_dense", [(table, out)], indices=Tensor("uint8", packed), lut=t,
                  shape=Tensor("uint32", np.array(dims, np.uint32)))
            yield c
    for data in ("fp16", "fp32", "int8", "uint8"):
        dims = (5, 13)
        mask = draw_mask(0.5, *dims)
        packed, nonzero = np.frombuffer(mask.payload(), np.uint8), draw(data, int(mask.values.sum()))
        out = np.zeros(dims, nonzero.values.dtype)  # decompress() of iOS 16 fails on padding bits: the same rule, written out
        out[mask.values != 0] = nonzero.values
        c = Case(f"flat sparse {data}")
        c.add("constexpr_sparse_to_dense", [(data, out)], nonzero_data=nonzero, mask=Tensor("uint8", packed),
              shape=Tensor("uint32", np.array(dims, np.uint32)))
        yield c
    c = Case("cast")
    source = Tensor("fp16", np.array([0x0001, 0x00a8, 0x03ff, 0x0400, 0x80a8, 0x7bff, 0x8000], np.uint16).view(np.float16))
    c.add("constexpr_cast", [("fp32", np.float32(source.values))], source_val=source, output_dtype=Tensor("string", "fp32"))
    yield c


def main():
    with np.errstate(all="ignore"):
        blobs = [c.pack() for c in cases()]
    with open(sys.argv[1], "wb") as f:
        f.write(b"PENC" + struct.pack("<I", len(blobs)) + b"".join(blobs))
    print(len(blobs), "cases")


if __name__ == "__main__":
    main()
