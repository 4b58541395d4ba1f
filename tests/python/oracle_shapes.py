"""Operators that move elements without looking at them: shapes, slices, joining, padding, filling."""
import math

import numpy as np

from oracle_draw import operator
from oracle_program import Case, Out

ANY = ["float32", "float16", "int32", "bool"]
SMALL = ["int8", "uint8", "int16", "uint16"]


def moved(op, inputs, consts, values, dtype, unknown=()):
    return Case(op, inputs, consts, [Out(np.asarray(values), dtype, unknown)], exact_half=True)


def source(d, low=0, high=5, **options):
    dtype = d.dtype("x")
    return d.values(d.shape(low, high, **options), dtype), dtype


def any_dtype(d):
    return d.choice(ANY + (SMALL if d.opset >= 17 else []))


def numbers(d, parameter, values):
    """A vector of integers in one of the types that the parameter takes."""
    return np.asarray(values, d.dtype(parameter))


def late(d, consts, *names):
    """Some constants come at run time instead: (inputs, consts, whether they do)."""
    if d.flag():
        return {}, consts, False
    return {n: np.asarray(consts[n]) for n in names}, {k: v for k, v in consts.items() if k not in names}, True


@operator("reshape")
def reshape(d):
    x, dtype = source(d)
    size, shape = x.size, []
    for _ in range(d.integer(0, 4)):
        factors = [n for n in range(1, 13) if size and size % n == 0] or [1]
        shape.append(d.choice(factors))
        size //= shape[-1]
    shape.append(size)
    if x.size == 0:
        shape = list(x.shape)[::-1]
    if len(shape) == 1 and x.size == 1:
        shape = []
    wanted, given = x.reshape(shape), list(shape)
    if x.size and given and d.flag():
        given[d.integer(0, len(given) - 1)] = -1
    elif x.size and x.ndim and d.version < 17 and d.flag():  # 0: the axis of the same number
        given, wanted = [0 if d.flag() else n for n in x.shape], x
    elif x.size and x.ndim and d.version >= 17 and d.flag():  # 0: the axis counted from the right, 1 where there is none
        extra = d.integer(0, 2)
        given = [0] * extra + [0 if d.flag() else n for n in x.shape]
        wanted = x.reshape((1,) * extra + x.shape)
    if x.size == 0 and d.version < 17:
        given, wanted = [n or 0 for n in x.shape], x
    if any(g == 0 for g in given) and d.version >= 17 and x.size == 0:
        given, wanted = [0] * x.ndim, x
    dtype_of_shape = d.dtype("shape") if max(map(abs, given), default=0) < 128 else d.note("shape", "int32")
    shape = np.asarray(given, dtype_of_shape)
    if not given:
        return moved(d.op, {"x": x}, {"shape": shape}, wanted, dtype)
    inputs, consts, is_late = late(d, {"shape": shape}, "shape")
    return moved(d.op, {"x": x, **inputs}, consts, wanted, dtype, tuple(range(wanted.ndim)) if is_late else ())


@operator("reshape_like")
def reshape_like(d):
    x, dtype = source(d, 1, 4, empty=False)
    shape = x.shape
    cut = d.integer(0, len(shape))
    refs, begins, ends, masks = [], [], [], []
    for part in (shape[:cut], shape[cut:]):
        before, after = (tuple(d.integer(1, 3) for _ in range(d.integer(0, 1))) for _ in range(2))
        to_end = not after and d.flag()
        refs.append(d.values(before + part + after, d.choice(ANY)) if before + part + after else d.values((1,), "int32"))
        begins.append(np.int32(len(before)))
        ends.append(np.int32(len(before) + len(part) if not to_end else 0))
        masks.append(np.bool_(to_end))
        if not before + part + after:
            begins[-1], ends[-1], masks[-1] = np.int32(0), np.int32(0), np.bool_(False)
    d.dtype("x")
    return moved(d.op, {"x": x.reshape(-1), "ref_tensors": refs}, {"begins": begins, "ends": ends, "end_masks": masks}, x, dtype)


@operator("expand_dims")
def expand_dims(d):
    x, dtype = source(d, 0, 4)
    n = d.integer(1, 2)
    axes = d.rng.permutation(x.ndim + n)[:n]
    axes = np.array([a - (x.ndim + n) if d.flag() else a for a in axes], np.int32)
    return moved(d.op, {"x": x}, {"axes": axes}, np.expand_dims(x, tuple(axes.tolist())), dtype)


@operator("squeeze")
def squeeze(d):
    x, dtype = source(d, 1, 5)
    shape = tuple(1 if d.flag() else n for n in x.shape)
    x = d.values(shape, dtype)
    ones = [i for i, n in enumerate(shape) if n == 1]
    if not ones or d.flag():
        return moved(d.op, {"x": x}, {}, np.squeeze(x), dtype)
    axes = [a - x.ndim if d.flag() else a for a in ones if d.flag()] or ones[:1]
    return moved(d.op, {"x": x}, {"axes": np.array(axes, np.int32)}, np.squeeze(x, tuple(axes)), dtype)


@operator("transpose")
def transpose(d):
    x, dtype = source(d, 1)
    perm = d.rng.permutation(x.ndim)
    given = np.array([p - x.ndim if d.flag() else p for p in perm], np.int32)
    return moved(d.op, {"x": x}, {"perm": given}, x.transpose(perm), dtype)


@operator("reverse")
def reverse(d):
    x, dtype = source(d, 1)
    axes = None if d.flag() else [int(a) for a in d.rng.permutation(x.ndim)[: d.integer(1, x.ndim)]]
    consts = {} if axes is None else {"axes": np.array([a - x.ndim if d.flag() else a for a in axes], np.int32)}
    return moved(d.op, {"x": x}, consts, np.flip(x, axes), dtype)


@operator("reverse_sequence")
def reverse_sequence(d):
    x, dtype = source(d, 2, 4, empty=False)
    seq, batch = (int(a) for a in d.rng.permutation(x.ndim)[:2])
    lengths = d.array((x.shape[batch],), d.dtype("lengths"), 0, min(x.shape[seq], 100))
    values = x.copy()
    for b, n in enumerate(lengths):
        part, original = np.moveaxis(values, (batch, seq), (0, 1))[b], np.moveaxis(x, (batch, seq), (0, 1))[b]
        part[:n] = original[:n][::-1]
    return moved(d.op, {"x": x, "lengths": lengths}, {"seq_axis": seq, "batch_axis": batch}, values, dtype)


@operator("flatten2d")
def flatten2d(d):
    x, dtype = source(d, 1)
    axis = d.integer(-x.ndim, x.ndim - 1)
    cut = axis % x.ndim
    return moved(d.op, {"x": x}, {"axis": axis}, x.reshape(math.prod(x.shape[:cut]), math.prod(x.shape[cut:])), dtype)


@operator("shape")
def shape_of(d):
    x, _ = source(d, 1)
    return moved(d.op, {"x": x}, {}, np.array(x.shape, np.int32), "int32")


@operator("tile")
def tile(d):
    x, dtype = source(d, 1, 4)
    reps = np.array([d.integer(1, 3) for _ in x.shape], np.int32)
    inputs, consts, is_late = late(d, {"reps": reps}, "reps")
    return moved(d.op, {"x": x, **inputs}, consts, np.tile(x, reps), dtype, tuple(range(x.ndim)) if is_late else ())


@operator("concat")
def concat(d):
    dtype, shape = any_dtype(d), list(d.shape(1, 5))
    axis, n = d.axis(len(shape)), d.integer(1, 4)
    if d.number == 0:
        parts = [d.values((), dtype) for _ in range(n)]
        return moved(d.op, {"values": parts}, {"axis": 0}, np.stack(parts), dtype)
    consts = {"axis": axis}
    if d.flag():
        consts["interleave"] = d.flag()
    parts = []
    for _ in range(n):
        if not consts.get("interleave") and d.number != 1:
            shape[axis] = d.integer(1, 5)
        parts.append(d.values(tuple(shape), dtype))
    values = np.concatenate(parts, axis)
    if consts.get("interleave"):
        at = axis % len(shape)
        values = np.stack(parts, at + 1).reshape(values.shape)
    return moved(d.op, {"values": parts}, consts, values, dtype)


@operator("stack")
def stack(d):
    dtype, shape = any_dtype(d), d.shape(0, 4)
    axis = d.integer(-len(shape) - 1, len(shape))
    parts = [d.values(shape, dtype) for _ in range(d.integer(1, 4))]
    return moved(d.op, {"values": parts}, {"axis": axis}, np.stack(parts, axis), dtype)


@operator("split")
def split(d):
    x, dtype = source(d, 1)
    axis, n = d.axis(x.ndim), d.integer(1, 4)
    sizes = [d.integer(1, 3) for _ in range(n)]
    by_number = d.flag()
    sizes = sizes[:1] * n if by_number else sizes
    shape = list(x.shape)
    shape[axis] = sum(sizes)
    x = d.values(tuple(shape), dtype)
    consts = {"num_splits": n} if by_number else {"split_sizes": np.array(sizes, np.int32)}
    if by_number and d.flag():
        consts["split_sizes"] = np.array(sizes, np.int32)
    parts = np.split(x, np.cumsum(sizes)[:-1], axis)
    return Case(d.op, {"x": x}, {**consts, "axis": axis}, [Out(p, dtype) for p in parts], exact_half=True)


@operator("pad")
def pad(d):
    dtype = d.dtype("x")
    mode = d.choice([None, "constant", "reflect", "replicate"])
    moving = mode in ("reflect", "replicate")
    x = d.array(d.shape(1, 4, empty=not moving), dtype)
    n = d.integer(1, min(x.ndim, 2 if moving else 4))
    amounts = []
    for size in x.shape[-n:]:
        high = min(size - 1, 3) if mode == "reflect" else 3
        amounts.append((d.integer(0, high), d.integer(0, high)))
    consts = {"mode": mode} if mode else {}
    value = 0
    if not moving and d.flag():
        value = consts["constant_val"] = d.array((), dtype)
    full = [(0, 0)] * (x.ndim - n) + amounts
    options = {"mode": "edge" if mode == "replicate" else mode or "constant"}
    values = np.pad(x, full, **options, **({} if moving else {"constant_values": value}))
    if not moving and d.flag():
        pads = np.array(full, np.int32).ravel()
        return moved(d.op, {"x": x, "pad": pads}, consts, values, dtype, tuple(range(x.ndim)))
    return moved(d.op, {"x": x}, {**consts, "pad": np.array(amounts, np.int32).ravel()}, values, dtype)


def image(d, dtype, channels=1, factor=1):
    if d.number == 3:
        return d.array((1, 2 * channels, 16 * factor, 33 * factor), dtype)
    n, c, h, w = (1, 1, 1, 1) if d.number == 2 else (d.integer(1, 3), d.integer(1, 3), d.integer(1, 4), d.integer(1, 4))
    return d.array((n, c * channels, h * factor, w * factor), dtype)


@operator("depth_to_space", "pixel_shuffle")
def depth_to_space(d):
    f, dtype = d.integer(1, 3), d.dtype("x")
    x = image(d, dtype, f * f)
    n, c, h, w = x.shape
    if d.op == "depth_to_space":  # TensorFlow's order of channels, and PyTorch's
        values = x.reshape(n, f, f, c // f ** 2, h, w).transpose(0, 3, 4, 1, 5, 2)
    else:
        values = x.reshape(n, c // f ** 2, f, f, h, w).transpose(0, 1, 4, 2, 5, 3)
    name = "block_size" if d.op == "depth_to_space" else "upscale_factor"
    return moved(d.op, {"x": x}, {name: f}, values.reshape(n, c // f ** 2, h * f, w * f), dtype)


@operator("space_to_depth", "pixel_unshuffle")
def space_to_depth(d):
    f, dtype = d.integer(1, 3), d.dtype("x")
    x = image(d, dtype, 1, f)
    n, c, h, w = x.shape
    parts = x.reshape(n, c, h // f, f, w // f, f)
    values = parts.transpose(0, 3, 5, 1, 2, 4) if d.op == "space_to_depth" else parts.transpose(0, 1, 3, 5, 2, 4)
    consts = {"block_size": f} if d.op == "space_to_depth" else {"downscale_factor": np.uint32(f)}
    return moved(d.op, {"x": x}, consts, values.reshape(n, c * f * f, h // f, w // f), dtype)


@operator("space_to_batch")
def space_to_batch(d):
    dtype = d.dtype("x")
    block = [d.integer(1, 3), d.integer(1, 3)]
    x = image(d, dtype)
    pads = []
    for size, b in zip(x.shape[2:], block):
        before = d.integer(0, 2)
        pads.append((before, -(size + before) % b))
    wide = np.pad(x, [(0, 0), (0, 0), *pads])
    n, c, h, w = wide.shape
    bh, bw = block
    values = wide.reshape(n, c, h // bh, bh, w // bw, bw).transpose(3, 5, 0, 1, 2, 4).reshape(-1, c, h // bh, w // bw)
    return moved(d.op, {"x": x}, {"block_shape": np.array(block, np.int32), "paddings": np.array(pads, np.int32)}, values, dtype)


@operator("batch_to_space")
def batch_to_space(d):
    dtype = d.dtype("x")
    bh, bw = d.integer(1, 3), d.integer(1, 3)
    n, c, h, w = image(d, dtype).shape
    x = d.array((n * bh * bw, c, h, w), dtype)
    wide = x.reshape(bh, bw, n, c, h, w).transpose(2, 3, 4, 0, 5, 1).reshape(n, c, h * bh, w * bw)
    crops = [(d.integer(0, min(1, size - 1)), 0) for size in wide.shape[2:]]
    values = wide[:, :, crops[0][0]:, crops[1][0]:]
    return moved(d.op, {"x": x}, {"block_shape": np.array([bh, bw], np.int32), "crops": np.array(crops, np.int32)}, values, dtype)


@operator("crop")
def crop(d):
    dtype = d.dtype("x")
    x = image(d, dtype, 1, 2)
    sides = [(d.integer(0, (n - 1) // 2), d.integer(0, (n - 1) // 2)) for n in x.shape[-2:]]
    (top, bottom), (left, right) = sides
    values = x[..., top:x.shape[-2] - bottom, left:x.shape[-1] - right]
    return moved(d.op, {"x": x}, {"crop_height": np.array(sides[0], np.int32), "crop_width": np.array(sides[1], np.int32)}, values, dtype)


@operator("sliding_windows")
def sliding_windows(d):
    x, dtype = source(d, 1, 4, empty=False)
    axis = d.axis(x.ndim)
    size, stride = d.integer(1, min(x.shape[axis], 9)), d.integer(1, 3)
    at = axis % x.ndim
    values = np.moveaxis(np.lib.stride_tricks.sliding_window_view(x, size, at), -1, at + 1)
    values = values[(slice(None),) * at + (slice(None, None, stride),)]
    consts = {"axis": axis, "size": size, **({"stride": stride} if stride > 1 or d.flag() else {})}
    return moved(d.op, {"x": x}, consts, values, dtype)


# ---- slices ----


def draw_slice(d, shape):
    """(begin, end, stride, begin_mask, end_mask) that leave something of every axis."""
    rows = []
    for n in shape:
        for _ in range(50):
            stride = d.choice([1, 1, 1, 2, 3, -1, -2])
            begin, end = d.integer(-n - 1, n), d.integer(-n - 1, n + 3)
            masks = d.rng.random() < .25, d.rng.random() < .25
            taken = range(n)[slice(None if masks[0] else begin, None if masks[1] else end, stride)]
            if len(taken) and n > 1 and -n <= begin < n:
                break
        else:
            begin, end, stride, masks = 0, n, 1, (False, False)
        rows.append((begin, end, stride, *masks))
    return [list(column) for column in zip(*rows)] if rows else [[], [], [], [], []]


def index_of(begin, end, stride, begin_mask, end_mask, squeeze):
    index = []
    for b, e, s, bm, em, sq in zip(begin, end, stride, begin_mask, end_mask, squeeze):
        index.append((0 if bm else b) if sq else slice(None if bm else b, None if em else e, s))
    return tuple(index)


def slice_constants(d, begin, end, stride, begin_mask, end_mask, squeeze):
    consts = {"begin": numbers(d, "begin", begin), "end": numbers(d, "end", end)}
    if any(s != 1 for s in stride) or d.flag():
        consts["stride"] = numbers(d, "stride", stride)
    for name, mask in (("begin_mask", begin_mask), ("end_mask", end_mask), ("squeeze_mask", squeeze)):
        if any(mask) or d.flag():
            consts[name] = np.array(mask, np.bool_)
    return consts


def narrow(d):
    """Bounds are below 128 where they may be int8."""
    return (3, 100) if d.number == 3 else d.shape(1, 5)


@operator("slice_by_index")
def slice_by_index(d):
    dtype = d.dtype("x")
    x = d.values(narrow(d), dtype)
    begin, end, stride, begin_mask, end_mask = draw_slice(d, x.shape)
    squeeze = [d.rng.random() < .2 and -n <= b < n for n, b in zip(x.shape, begin)]
    consts = slice_constants(d, begin, end, stride, begin_mask, end_mask, squeeze)
    values = x[index_of(begin, end, stride, begin_mask, end_mask, squeeze)]
    inputs, consts, is_late = late(d, consts, "begin", "end")
    return moved(d.op, {"x": x, **inputs}, consts, values, dtype, tuple(range(np.ndim(values))) if is_late else ())


@operator("slice_by_size")
def slice_by_size(d):
    dtype = d.dtype("x")
    x = d.values(narrow(d), dtype)
    begin = [d.integer(0, max(n - 1, 0)) for n in x.shape]
    size = [d.integer(min(1, n), n - b) for n, b in zip(x.shape, begin)]
    values = x[tuple(slice(b, b + s) for b, s in zip(begin, size))]
    to_end = [d.flag() and b + s == n for b, s, n in zip(begin, size, x.shape)]
    given = {"begin": numbers(d, "begin", [b - n if n and d.flag() else b for b, n in zip(begin, x.shape)]),
             "size": numbers(d, "size", [-1 if e else s for e, s in zip(to_end, size)])}
    inputs, consts, is_late = late(d, given, "begin")
    if is_late and d.flag():
        inputs["size"] = consts.pop("size")
    return moved(d.op, {"x": x, **inputs}, consts, values, dtype, tuple(range(x.ndim)) if is_late else ())


@operator("slice_update")
def slice_update(d):
    dtype = d.note("update", d.dtype("x"))
    x = d.values(narrow(d), dtype)
    begin, end, stride, begin_mask, end_mask = draw_slice(d, x.shape)
    squeeze = [d.rng.random() < .2 and i > 0 and -n <= b < n for i, (n, b) in enumerate(zip(x.shape, begin))]
    consts = slice_constants(d, begin, end, stride, begin_mask, end_mask, squeeze)
    values, index = x.copy(), index_of(begin, end, stride, begin_mask, end_mask, squeeze)
    update = d.values(x[index].shape, dtype)
    values[index] = update
    inputs, consts, _ = late(d, consts, "begin", "end")
    return moved(d.op, {"x": x, "update": update, **inputs}, consts, values, dtype)


# ---- made from little ----


@operator("fill")
def fill(d):
    shape, dtype = d.shape(1, 5), d.dtype("value")
    consts, value = {"shape": np.array(shape, np.int32)}, 0.
    if d.flag():
        value = consts["value"] = d.values((), dtype)
    else:
        dtype = "float32"
    inputs, consts, is_late = late(d, consts, "shape")
    return moved(d.op, inputs, consts, np.full(shape, value), dtype, tuple(range(len(shape))) if is_late else ())


@operator("fill_like")
def fill_like(d):
    shape, dtype = d.shape(), d.dtype("value")
    consts = {"value": d.values((), dtype)} if d.flag() else {}
    reference = d.values(shape, d.dtype("ref_tensor"))
    return moved(d.op, {"ref_tensor": reference}, consts, np.full(shape, consts.get("value", 0.)), dtype if consts else "float32")


@operator("range_1d")
def range_1d(d):
    dtype = d.note("step", d.note("start", d.dtype("end")))
    unit = 1 if dtype == "int32" else .25
    start, step = d.integer(-20, 20), d.choice([1, 2, 3, 7, -1, -4])
    n = (0, 1, 1, 500)[d.number] if d.number < 4 else d.integer(1, 12)
    end = start + step * (n - 1) + (1 if step > 0 else -1) * d.integer(1, abs(step)) if n else start
    values = np.arange(start, end, step) * unit
    assert len(values) == n
    given = {name: np.array(v * unit, dtype) for name, v in (("start", start), ("end", end), ("step", step))}
    inputs = {name: v for name, v in given.items() if d.flag()}
    consts = {name: v for name, v in given.items() if name not in inputs}
    return moved(d.op, inputs, consts, values, dtype, (0,) if inputs else ())


@operator("one_hot")
def one_hot(d):
    size, shape = d.integer(1, 7), d.shape(0, 4)
    indices, axis = d.array(shape, d.dtype("indices"), 0, size - 1), d.integer(-len(shape) - 1, len(shape))
    consts, on, off, dtype = {"one_hot_vector_size": np.int32(size), "axis": axis}, 1, 0, "int32"
    if d.flag():
        dtype = d.note("off_value", d.dtype("on_value"))
        on, off = consts["on_value"], consts["off_value"] = d.values((), dtype), d.values((), dtype)
    d.note("one_hot_vector_size", "int32")
    at = axis % (len(shape) + 1)
    hit = np.expand_dims(indices, at) == np.arange(size).reshape((-1,) + (1,) * (len(shape) - at))
    values = np.where(hit, on, off)
    inputs, consts, is_late = late(d, consts, "one_hot_vector_size")
    return moved(d.op, {"indices": indices, **inputs}, consts, values, dtype, (at,) if is_late else ())


@operator("band_part")
def band_part(d):
    x, dtype = source(d, 2, 4)
    lower, upper = d.integer(-1, 4), d.integer(-1, 4)
    rows, columns = np.ogrid[: x.shape[-2], : x.shape[-1]]
    kept = ((lower < 0) | (rows - columns <= lower)) & ((upper < 0) | (columns - rows <= upper))
    consts = {name: v for name, v in (("lower", lower), ("upper", upper)) if v != -1 or d.flag()}
    return moved(d.op, {"x": x}, consts, np.where(kept, x, np.zeros((), x.dtype)), dtype)
