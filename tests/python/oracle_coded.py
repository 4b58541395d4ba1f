"""Compressed constants and quantization, by NumPy: what the definitions in coremltools say, a step at a time."""
import numpy as np

from oracle_draw import operator
from oracle_elementwise import double
from oracle_program import BITS, Case, Out, Packed

RANGES = {"int4": (-8, 7), "uint1": (0, 1), "uint2": (0, 3), "uint3": (0, 7), "uint4": (0, 15), "uint6": (0, 63)}


def shape_of(d, low=1, high=4):
    """Constants are not empty."""
    return d.shape(low, high, empty=False)


def codes(d, shape, dtype):
    """Values of a type, and the constant that holds them."""
    if dtype in RANGES:
        values = d.array(shape, "int64", *RANGES[dtype])
        return values, Packed(values, dtype)
    values = d.array(shape, dtype, -2, 2) if dtype.startswith("float") else d.values(shape, dtype)
    return values, values


def bit_stream(values, n):
    return np.packbits(np.asarray(values).ravel()[:, None] >> np.arange(n) & 1, bitorder="little")


def scaled(q, zero, scale):
    """In the type of the scale, each step rounded."""
    kind = scale.dtype
    return (double((double(q).astype(kind).astype(np.float64) - double(np.asarray(zero, np.float64).astype(kind))).astype(kind)) * double(scale)).astype(kind)


@operator("constexpr_affine_dequantize")
def affine_dequantize(d):
    q = d.values(shape_of(d), d.dtype("quantized_data"))
    axis, kind = d.axis(q.ndim), d.dtype("scale")
    n = q.shape[axis]
    scale = d.array((n,) if d.flag() else (), kind, .01, .1)
    zero_kind = d.choice(["float32", q.dtype.name])
    d.note("zero_point", zero_kind)
    zero = d.array((n,) if d.flag() else (), zero_kind, 0, 20)
    side = [1] * q.ndim
    side[axis] = -1
    wide = [v.reshape(side) if v.ndim else v for v in (scale, zero)]
    values = double(wide[0]) * (double(q) - double(wide[1]))
    return Case(d.op, {}, {"quantized_data": q, "zero_point": zero, "scale": scale, "axis": axis}, [Out(values, kind)], exact_half=True)


@operator("constexpr_cast")
def constexpr_cast(d):
    x = d.array(shape_of(d), d.dtype("source_val"))
    return Case(d.op, {}, {"source_val": x, "output_dtype": "fp32"}, [Out(x, "float32")])


def looked_up(index, table, axis):
    """table: [groups..., entries, vector]"""
    groups = table.shape[: index.ndim]
    at = np.ogrid[tuple(slice(n) for n in index.shape)]
    group = tuple(a // (n // g) for a, n, g in zip(at, index.shape, groups))
    values = table[(*group, index)]  # [..., vector]
    if table.shape[-1] == 1:
        return values[..., 0]
    values = np.moveaxis(values, -1, axis % index.ndim + 1)
    shape = list(index.shape)
    shape[axis] *= table.shape[-1]
    return values.reshape(shape)


def grouped(d, rank_low=1, rank_high=4):
    """A shape and how many groups each axis has."""
    if d.number == 3:
        return (16, 260), (4, 2)
    groups = [1 if d.number == 2 else d.integer(1, 3) for _ in range(d.integer(rank_low, rank_high))]
    return tuple(g * (1 if d.number == 2 else d.integer(1, 4)) for g in groups), tuple(groups)


@operator("constexpr_lut_to_dense")
def lut_to_dense(d):
    kind = d.dtype("lut")
    if d.version < 18:
        shape, n = shape_of(d), d.choice([1, 2, 4, 6, 8])
        d.note("indices", "uint8")
        index, table = d.array(shape, "int64", 0, 2 ** n - 1), d.values((2 ** n,), kind)
        consts = {"indices": bit_stream(index, n), "lut": table, "shape": np.array(shape, np.uint32)}
        return Case(d.op, {}, consts, [Out(table[index], kind)], exact_half=True)
    (shape, groups), width = grouped(d), d.dtype("indices")
    n, vector = BITS.get(width, 8), d.choice([1, 1, 2, 3])
    index, stored = codes(d, shape, width)
    table, axis = d.values((*groups, 2 ** n, vector), kind), d.axis(len(shape))
    consts = {"indices": stored, "lut": table, **({"vector_axis": axis} if vector > 1 else {})}
    return Case(d.op, {}, consts, [Out(looked_up(index, table, axis), kind)], exact_half=True)


def sparse(d, shape):
    """A mask with something in it."""
    mask = d.array(shape, "bool")
    mask.reshape(-1)[0] = True
    return mask


def filled(mask, values):
    dense = np.zeros(mask.shape, values.dtype)
    dense[mask] = values
    return dense


@operator("constexpr_sparse_to_dense")
def sparse_to_dense(d):
    mask, kind = sparse(d, shape_of(d)), d.dtype("nonzero_data")
    values, stored = codes(d, (int(mask.sum()),), kind)
    dense = filled(mask, values)
    if d.version < 18:
        d.note("mask", "uint8")
        consts = {"nonzero_data": stored, "mask": bit_stream(mask.astype(int), 1), "shape": np.array(mask.shape, np.uint32)}
    else:
        consts = {"nonzero_data": stored, "mask": Packed(mask.astype(int), d.dtype("mask"))}
    case = Case(d.op, {}, consts, [Out(dense, kind)], exact_half=True)
    if kind in RANGES:  # such a type leaves no model
        one = np.full((1,) * mask.ndim, .5, np.float32)
        case.then = ("constexpr_blockwise_shift_scale", {"data": 0, "scale": one}, [Out(dense * .5, "float32")])
    return case


@operator("constexpr_blockwise_shift_scale")
def blockwise(d):
    (shape, groups), kind, out = grouped(d), d.dtype("data"), d.dtype("scale")
    values, stored = codes(d, shape, kind)
    scale = d.array(groups, out, .01, .5)
    consts, offset = {"data": stored, "scale": scale}, np.zeros(groups)
    if d.flag():
        offset, consts["offset"] = codes(d, groups, d.note("offset", out if kind.startswith("float") else kind))
    for axis, (n, g) in enumerate(zip(shape, groups)):
        scale, offset = scale.repeat(n // g, axis), offset.repeat(n // g, axis)
    return Case(d.op, {}, consts, [Out(scaled(values, offset, scale), out)], exact_half=True)


def dense_again(case, mask, values, kind):
    """The mask and the values that an operator gives, made dense to be seen."""
    case.then = ("constexpr_sparse_to_dense", {"mask": 0, "nonzero_data": 1}, [Out(filled(mask, values), kind)])
    return case


@operator("constexpr_sparse_blockwise_shift_scale")
def sparse_blockwise(d):
    (shape, groups), kind, out = grouped(d), d.dtype("nonzero_data"), d.dtype("scale")
    mask = sparse(d, shape)
    values, stored = codes(d, (int(mask.sum()),), kind)
    scale, offset = d.array(groups, out, .01, .5), np.zeros(groups)
    consts = {"data_mask": Packed(mask.astype(int), d.dtype("data_mask")), "nonzero_data": stored, "scale": scale}
    if d.flag():
        offset, consts["offset"] = codes(d, groups, d.note("offset", out if kind.startswith("float") else kind))
    for axis, (n, g) in enumerate(zip(shape, groups)):
        scale, offset = scale.repeat(n // g, axis), offset.repeat(n // g, axis)
    wanted = scaled(values, offset[mask], scale[mask])
    case = Case(d.op, {}, consts, [Out(mask, "uint1"), Out(wanted, out)], exact_half=True)
    return dense_again(case, mask, wanted, out)


@operator("constexpr_lut_to_sparse")
def lut_to_sparse(d):
    (shape, groups), kind, width = grouped(d), d.dtype("lut"), d.dtype("indices_nonzero_data")
    mask, n, vector = sparse(d, shape), BITS.get(width, 8), d.choice([1, 1, 2, 3])
    index, stored = codes(d, (int(mask.sum()),), width)
    table, axis = d.values((*groups, 2 ** n, vector), kind), d.axis(len(shape))
    consts = {"indices_mask": Packed(mask.astype(int), d.dtype("indices_mask")), "indices_nonzero_data": stored, "lut": table}
    if vector > 1:
        consts["vector_axis"] = axis
    wide = mask.repeat(vector, axis)
    wanted = looked_up(filled(mask, index), table, axis)[wide]
    case = Case(d.op, {}, consts, [Out(wide, "uint1"), Out(wanted, kind)], exact_half=True)
    return dense_again(case, wide, wanted, kind)


@operator("quantize")
def quantize(d):
    kind, target = d.dtype("input"), d.choice(["int8", "uint8"])
    x = d.array(d.shape(1, 4), kind, -4, 4)
    axis = d.axis(x.ndim)
    consts, n = {"output_dtype": target}, x.shape[axis]
    per_axis = d.flag() and n > 0
    scale = consts["scale"] = np.asarray(2. ** d.rng.integers(-6, -3, (n,) if per_axis else ()), d.note("scale", kind))
    zero = np.zeros((), target)
    if d.flag():
        zero = consts["zero_point"] = d.array(scale.shape, d.note("zero_point", target), 0, 20)
    if per_axis:
        consts["axis"] = axis
        side = [1] * x.ndim
        side[axis] = -1
        scale, zero = scale.reshape(side), zero.reshape(side) if zero.ndim else zero
    limit = np.iinfo(target)
    values = np.clip(np.rint(double(x) / double(scale)) + double(zero), limit.min, limit.max)
    return Case(d.op, {"input": x}, consts, [Out(values, target)])


@operator("dequantize")
def dequantize(d):
    kind, out = d.dtype("input"), d.dtype("scale")
    x = d.values(d.shape(1, 4), kind)
    axis = d.axis(x.ndim)
    n = x.shape[axis]
    per_axis = d.flag() and n > 0
    consts = {"scale": d.array((n,) if per_axis else (), out, .01, .2)}
    zero = np.zeros(())
    if d.flag():
        zero = consts["zero_point"] = d.values(consts["scale"].shape, d.note("zero_point", kind))
    scale = consts["scale"]
    if per_axis:
        consts["axis"] = axis
        side = [1] * x.ndim
        side[axis] = -1
        scale, zero = scale.reshape(side), zero.reshape(side) if zero.ndim else zero
    return Case(d.op, {"input": x}, consts, [Out(double(scale) * (double(x) - double(zero)), out)], exact_half=True)
