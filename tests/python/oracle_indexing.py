"""Gathering and scattering, reductions, sorting, products of matrices, by NumPy in double precision."""
import numpy as np

from oracle_draw import operator
from oracle_elementwise import double, wrapped
from oracle_program import Case, Out
from oracle_shapes import moved

# ---- gather, scatter ----


def indices(d, shape, n, parameter="indices"):
    """Negative ones count from the end before iOS 17 and are out of bounds from then on."""
    dtype = d.dtype(parameter)
    n = min(n, np.iinfo(dtype).max)
    low = -n if d.version < 17 and not dtype.startswith("u") else 0
    return d.array(shape, dtype, low, n - 1)


def checked(d, consts):
    if d.version >= 17 and d.flag():
        consts["validate_indices"] = d.flag()
    return consts


@operator("gather")
def gather(d):
    dtype = d.dtype("x")
    x = d.values(d.shape(1, 4, empty=False), dtype)
    axis = d.axis(x.ndim)
    at = axis % x.ndim
    batch = d.integer(0, min(at, 2)) if d.version >= 16 else 0
    shape = x.shape[:batch] + d.shape(0, 2, empty=d.number == 1)
    chosen = indices(d, shape, x.shape[at])
    if batch:
        rows = [np.take(x[i], chosen[i], at - batch) for i in np.ndindex(*x.shape[:batch])]
        values = np.stack(rows).reshape(x.shape[:batch] + rows[0].shape)
    else:
        values = np.take(x, chosen, at)
    consts = {"axis": axis} if axis or d.flag() else {}
    if batch or (d.version >= 16 and d.flag()):
        consts["batch_dims"] = batch
    return moved(d.op, {"x": x, "indices": chosen}, checked(d, consts), values, dtype)


@operator("gather_along_axis")
def gather_along_axis(d):
    dtype = d.dtype("x")
    x = d.values(d.shape(1, 4, empty=False), dtype)
    axis = d.axis(x.ndim)
    shape = list(x.shape)
    shape[axis] = d.integer(1, 8)
    chosen = indices(d, tuple(shape), x.shape[axis])
    values = np.take_along_axis(x, chosen.astype(np.int64), axis)
    return moved(d.op, {"x": x, "indices": chosen}, checked(d, {"axis": axis}), values, dtype)


@operator("gather_nd")
def gather_nd(d):
    dtype = d.dtype("x")
    x = d.values(d.shape(1, 4, empty=False), dtype)
    batch = d.integer(0, min(x.ndim - 1, 2)) if d.version >= 16 else 0
    depth = d.integer(1, x.ndim - batch)
    lead = x.shape[:batch] + d.shape(0, 2, empty=d.number == 1)
    limits = x.shape[batch: batch + depth]
    dtype_of = d.dtype("indices")
    low = -1 if d.version < 17 and not dtype_of.startswith("u") else 0
    chosen = np.stack([d.array(lead, dtype_of, low, min(n, 128) - 1) for n in limits], -1)
    rows = [x[i][tuple(np.moveaxis(chosen[i].astype(np.int64), -1, 0))] for i in np.ndindex(*x.shape[:batch])]
    values = np.stack(rows).reshape(x.shape[:batch] + rows[0].shape)
    consts = {"batch_dims": batch} if batch or (d.version >= 16 and d.flag()) else {}
    return moved(d.op, {"x": x, "indices": chosen}, checked(d, consts), values, dtype)


MODES = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "max": np.maximum, "min": np.minimum,
         "update": lambda old, new: new}


def scattered(d, dtype, data, updates, places):
    """data with updates[i] at places[i], one after the other."""
    mode = d.choice([None, *MODES])
    if dtype == "int32" and mode == "div":
        mode = "max"
    values = data.astype(np.int64) if dtype == "int32" else double(data)
    updates = updates.astype(np.int64) if dtype == "int32" else double(updates)
    for place, i in places:
        values[place] = MODES[mode or "add"](values[place], updates[i])
    return ({"mode": mode} if mode else {}), wrapped(values) if dtype == "int32" else values


def scatter_case(d, dtype, data, chosen, updates, consts, values):
    d.note("updates", dtype)
    case = Case(d.op, {"data": data, "indices": chosen, "updates": updates}, checked(d, consts), [Out(values, dtype)])
    case.tolerance = (2e-2, 2e-2) if dtype == "float16" else None  # each update may be rounded
    return case


@operator("scatter")
def scatter(d):
    dtype = d.dtype("data")
    data = d.array(d.shape(1, 4, empty=False), dtype, 1, 3)
    axis = d.axis(data.ndim)
    at = axis % data.ndim
    n = min(d.integer(1, 6), data.shape[at]) if d.flag() else d.integer(1, 4)
    chosen = indices(d, (n,), data.shape[at])
    updates = d.array(data.shape[:at] + (n,) + data.shape[at + 1:], dtype, 1, 3)
    lead = (slice(None),) * at
    consts, values = scattered(d, dtype, data, updates, [(lead + (int(k),), lead + (i,)) for i, k in enumerate(chosen)])
    return scatter_case(d, dtype, data, chosen, updates, {"axis": axis, **consts}, values)


@operator("scatter_along_axis")
def scatter_along_axis(d):
    dtype = d.dtype("data")
    data = d.array((3, 77) if d.number == 3 else d.shape(1, 4, 4, empty=False), dtype, 1, 3)
    axis = d.axis(data.ndim)
    at = axis % data.ndim
    shape = list(data.shape)
    shape[at] = d.integer(1, 4)
    chosen, updates = indices(d, tuple(shape), data.shape[at]), d.array(tuple(shape), dtype, 1, 3)
    places = [(i[:at] + (int(chosen[i]),) + i[at + 1:], i) for i in np.ndindex(*shape)]
    consts, values = scattered(d, dtype, data, updates, places)
    return scatter_case(d, dtype, data, chosen, updates, {"axis": axis, **consts}, values)


@operator("scatter_nd")
def scatter_nd(d):
    dtype = d.dtype("data")
    data = d.array(d.shape(1, 4, empty=False), dtype, 1, 3)
    depth = d.integer(1, data.ndim)
    lead = d.shape(1, 2, 4, empty=False) if d.number != 3 else (5,)
    low = -1 if d.version < 17 else 0
    chosen = np.stack([d.array(lead, d.note("indices", "int32"), low, n - 1) for n in data.shape[:depth]], -1)
    updates = d.array(lead + data.shape[depth:], dtype, 1, 3)
    consts, values = scattered(d, dtype, data, updates, [(tuple(chosen[i]), i) for i in np.ndindex(*lead)])
    return scatter_case(d, dtype, data, chosen, updates, consts, values)


# ---- reductions ----


def log_sum_exp(v, axis, keepdims):
    top = v.max(axis, keepdims=True)
    return np.log(np.exp(v - top).sum(axis, keepdims=keepdims)) + (top if keepdims else np.squeeze(top, axis))


REDUCE = {
    "reduce_l1_norm": lambda v, **o: np.abs(v).sum(**o), "reduce_l2_norm": lambda v, **o: np.sqrt((v * v).sum(**o)),
    "reduce_max": lambda v, **o: v.max(**o), "reduce_min": lambda v, **o: v.min(**o), "reduce_mean": lambda v, **o: v.mean(**o),
    "reduce_prod": lambda v, **o: v.prod(**o), "reduce_sum": lambda v, **o: v.sum(**o),
    "reduce_sum_square": lambda v, **o: (v * v).sum(**o), "reduce_log_sum": lambda v, **o: np.log(v.sum(**o)),
    "reduce_log_sum_exp": log_sum_exp,
}


@operator(*REDUCE)
def reduce(d):
    dtype = d.dtype("x")
    low = .05 if d.op == "reduce_log_sum" else -2
    if dtype == "int32":
        low = 1 if d.op == "reduce_log_sum" else -3
    shape = d.shape(1, 5, empty=d.op in ("reduce_sum", "reduce_sum_square", "reduce_l1_norm", "reduce_l2_norm", "reduce_prod"))
    x = d.array(shape, dtype, low, 2 if dtype != "int32" else 4)
    axes = None if d.flag() else tuple(int(a) for a in d.rng.permutation(x.ndim)[: d.integer(1, x.ndim)])
    keep = d.flag()
    consts = {} if axes is None else {"axes": np.array([a - x.ndim if d.flag() else a for a in axes], np.int32)}
    if keep or d.flag():
        consts["keep_dims"] = keep
    values = REDUCE[d.op](x.astype(np.int64) if dtype == "int32" and "log" not in d.op else double(x),
                          axis=axes or tuple(range(x.ndim)), keepdims=keep)
    if dtype == "int32":
        values = wrapped(np.trunc(values) if np.asarray(values).dtype.kind == "f" else values)
    return Case(d.op, {"x": x}, consts, [Out(np.asarray(values), dtype)])


@operator("reduce_argmax", "reduce_argmin")
def reduce_arg(d):
    dtype = d.dtype("x")
    shape = d.shape(1, 5, empty=False)
    x = np.asarray(np.round(d.array(shape, dtype, -4, 4)), dtype)  # with equal ones: the first wins
    axis = d.axis(x.ndim)
    keep = d.flag()
    consts, out = {"axis": axis, "keep_dims": keep}, "int32"
    if d.version >= 17 and d.flag():
        consts["output_dtype"] = out = d.choice(["int32", "uint16"])
    function = np.argmax if d.op == "reduce_argmax" else np.argmin
    return Case(d.op, {"x": x}, consts, [Out(function(x, axis, keepdims=keep), out)])


@operator("cumsum")
def cumsum(d):
    dtype = d.dtype("x")
    shape = d.shape(1, 5)
    x = d.array(shape, dtype)
    axis = d.integer(0, x.ndim - 1)
    exclusive, reverse = d.flag(), d.flag()
    v = x.astype(np.int64) if dtype == "int32" else double(x)
    v = np.flip(v, axis) if reverse else v
    sums = np.cumsum(v, axis) - (v if exclusive else 0)
    sums = np.flip(sums, axis) if reverse else sums
    given = {"axis": axis if axis < x.ndim - 1 or d.flag() else -1, "exclusive": exclusive, "reverse": reverse}
    consts = {k: v for k, v in given.items() if v or d.flag()}
    return Case(d.op, {"x": x}, consts, [Out(sums, dtype)])


# ---- sorting ----


def distinct(d, shape, dtype):
    """No two equal elements, where the type has so many."""
    n = int(np.prod(shape))
    info = np.iinfo(dtype) if np.dtype(dtype).kind in "iu" else None
    low = max(-n // 2, info.min) if info else -n // 2
    return (d.rng.permutation(n) + low).reshape(shape).astype(dtype)


def small_shape(d, dtype):
    shape = d.shape(1, 4, 5, empty=False)
    limit = 2 ** (8 * np.dtype(dtype).itemsize - 1) if np.dtype(dtype).kind in "iu" else 2000
    return shape if np.prod(shape) <= limit else (limit // 3, 3) if d.number == 3 else (2, 3, 4)


@operator("argsort")
def argsort(d):
    dtype = d.dtype("x")
    x = distinct(d, small_shape(d, dtype), dtype)
    axis, ascending = d.axis(x.ndim), d.flag()
    order = np.argsort(x if ascending else -x.astype(np.int64), axis, kind="stable")
    given = {"axis": axis, "ascending": ascending}
    return Case(d.op, {"x": x}, given, [Out(order, "int32")])


@operator("topk")
def topk(d):
    dtype = d.dtype("x")
    x = distinct(d, small_shape(d, dtype), dtype)
    axis, ascending = d.axis(x.ndim), d.flag()
    k = d.integer(1, min(x.shape[axis], 100))
    consts = {"axis": axis, "ascending": ascending, "k": np.array(k, d.dtype("k"))}
    if d.version >= 17 and d.rng.random() < .2:
        k, consts["k"] = x.shape[axis], np.array(-1, np.int32)
    order = np.argsort(x if ascending else -x.astype(np.int64), axis, kind="stable")
    order = np.take(order, np.arange(k), axis)
    outs = [Out(np.take_along_axis(x, order, axis), dtype), Out(order, "int32")]
    if d.version >= 16 and d.flag():
        consts["sort"] = True
    if d.version >= 16 and d.flag():
        consts["return_indices"] = d.flag()
        outs = outs[: 1 + consts["return_indices"]]
    if d.version >= 17 and len(outs) == 2 and d.flag():
        consts["output_indices_dtype"] = outs[1].dtype = d.choice(["int32", "uint16"])
    return Case(d.op, {"x": x}, consts, outs, exact_half=True)


@operator("non_zero")
def non_zero(d):
    dtype = d.dtype("x")
    x = d.values(d.shape(1, 5), dtype)
    x = x * d.array(x.shape, "bool").astype(x.dtype)
    return moved(d.op, {"x": x}, {}, np.argwhere(x), "int32", (0,))


# ---- products ----


@operator("matmul")
def matmul(d):
    dtype = d.note("y", d.dtype("x"))
    n, k, m = (d.integer(1, 7) for _ in range(3))
    if d.number == 3:
        n, k, m = 5, 300, 33
    if d.number == 2:
        n = k = m = 1
    if d.number == 1:
        n = 0
    lead = [d.integer(1, 3) for _ in range(d.integer(0, 3))]
    leads = [[1 if d.rng.random() < .3 else s for s in lead][d.integer(0, len(lead)):] for _ in range(2)]
    tx, ty = d.flag(), d.flag()
    shapes = [tuple(leads[0]) + ((k, n) if tx else (n, k)), tuple(leads[1]) + ((m, k) if ty else (k, m))]
    if d.number in (0, 9) or d.rng.random() < .1:  # vectors
        side = d.integer(0, 1)
        shapes[side], tx, ty = (k,), tx and side == 1, ty and side == 0
    x, y = (d.array(s, dtype, -3, 3) for s in shapes)
    consts = {name: v for name, v in (("transpose_x", tx), ("transpose_y", ty)) if v or d.flag()}
    v, w = double(x), double(y)
    values = np.matmul(v.swapaxes(-1, -2) if tx else v, w.swapaxes(-1, -2) if ty else w)
    inputs = {"x": x, "y": y}
    if d.rng.random() < .3 and d.number != 1:
        consts["y"] = inputs.pop("y")
    return Case(d.op, inputs, consts, [Out(values, dtype)])


@operator("linear")
def linear(d):
    dtype = d.dtype("x")
    n_in, n_out = (1, 1) if d.number == 2 else (257, 65) if d.number == 3 else (d.integer(1, 40), d.integer(1, 24))
    lead = (0,) if d.number == 1 else () if d.number == 0 else tuple(d.integer(1, 4) for _ in range(d.integer(0, 3)))
    x = d.array((*lead, n_in), dtype)
    kind = dtype if dtype == "int32" else d.other("weight", dtype)
    kind = kind if (kind == "int32") == (dtype == "int32") else dtype
    consts = {"weight": d.array((n_out, n_in), d.note("weight", kind), -1, 1)}
    if d.flag():
        consts["bias"] = d.array((n_out,), d.note("bias", kind))
    values = double(x) @ double(consts["weight"]).T + double(consts.get("bias", 0))
    return Case(d.op, {"x": x}, consts, [Out(values, dtype)])


@operator("einsum")
def einsum(d):
    dtype = d.choice(["float32", "float16"])
    n, c, h, w, u = (1,) * 5 if d.number == 2 else (1, 3, 5, 130, 33) if d.number == 3 else (d.integer(1, 5) for _ in range(5))
    with_batch, letters = d.flag(), d.choice(["nchwu", "bdaez"])
    a, b = ((n, c, h, w), (n, w, h, u)) if with_batch else ((c, h, w), (w, h, u))
    equation = "nchw,nwhu->nchu" if with_batch else "chw,whu->chu"
    if with_batch and d.flag():  # one of the two counts for all
        b = (1,) + b[1:]
    x, y = d.array(a, dtype), d.array(b, dtype)
    v, z = double(x), double(y)
    if with_batch:
        z = np.broadcast_to(z, (n,) + b[1:])
    spelled = equation.translate(str.maketrans("nchwu", letters))
    return Case(d.op, {"values": [x, y]}, {"equation": spelled}, [Out(np.einsum(equation, v, z), dtype)])


@operator("scaled_dot_product_attention")
def attention(d):
    dtype = d.note("key", d.note("value", d.dtype("query")))
    lead = tuple(d.integer(1, 3) for _ in range(d.integer(1, 3)))
    n, m, e, v = (1, 1, 1, 1) if d.number == 2 else (3, 131, 32, 16) if d.number == 3 else (d.integer(1, 6) for _ in range(4))
    query, key, value = (d.array(lead + s, dtype) for s in ((n, e), (m, e), (m, v)))
    inputs = {"query": query, "key": key, "value": value}
    scores = double(query) @ double(key).swapaxes(-1, -2) / np.sqrt(e)
    if d.flag():
        shape = tuple(s if d.flag() else 1 for s in lead) + (n if d.flag() else 1, m)
        kind = d.choice(["bool", dtype])
        d.note("attn_mask", kind)
        mask = d.array(shape[d.integer(0, len(lead)):], kind, -2, 2)
        if kind == "bool":
            mask[..., 0] = True  # a row without any has no result
            scores = np.where(mask, scores, -np.inf)
        else:
            scores = scores + double(mask)
        inputs["attn_mask"] = mask
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    values = weights / weights.sum(-1, keepdims=True) @ double(value)
    return Case(d.op, inputs, {}, [Out(values, dtype)])


@operator("softmax")
def softmax(d):
    dtype = d.dtype("x")
    x = d.array(d.shape(1, 5, empty=False), dtype, -9, 9)
    axis = d.axis(x.ndim)
    v = double(x)
    weights = np.exp(v - v.max(axis, keepdims=True))
    consts = {"axis": axis} if axis != -1 or d.flag() else {}
    return Case(d.op, {"x": x}, consts, [Out(weights / weights.sum(axis, keepdims=True), dtype)])


# ---- boxes ----


def overlap(a, b):
    """Of boxes with centre and size."""
    low, high = np.maximum(a[:2] - a[2:] / 2, b[:2] - b[2:] / 2), np.minimum(a[:2] + a[2:] / 2, b[:2] + b[2:] / 2)
    shared = np.prod(np.maximum(high - low, 0))
    return shared / (np.prod(a[2:]) + np.prod(b[2:]) - shared)


def suppressed(boxes, scores, threshold, least, n, per_class):
    """Numbers of the boxes that stay, the best first."""
    best, kind = scores.max(1), scores.argmax(1)
    kept = []
    for i in np.argsort(-best, kind="stable"):
        if best[i] < least:
            break
        if all((per_class and kind[i] != kind[j]) or overlap(boxes[i], boxes[j]) <= threshold for j in kept):
            kept.append(i)
    return kept[:n] or [int(best.argmax())]


@operator("non_maximum_suppression")
def non_maximum_suppression(d):
    dtype = d.note("scores", d.dtype("boxes"))
    n, count, kinds = (1, 1, 1) if d.number == 2 else (1, 40, 3) if d.number == 3 else (d.integer(1, 2), d.integer(2, 9), d.integer(1, 3))
    boxes = np.concatenate([d.array((n, count, 2), dtype, 0, 4), d.array((n, count, 2), dtype, 1, 4)], 2)
    scores = (d.rng.permutation(n * count * kinds).reshape(n, count, kinds) + 1).astype(dtype) / 16  # no two are equal
    threshold = d.choice([.2, .4, .6])
    most, per_class = d.integer(1, count + 2), d.flag()
    least = -np.inf
    consts = {"iou_threshold": np.array(threshold, dtype), "max_boxes": most, "per_class_suppression": per_class}
    if d.version < 17:
        least = float(d.choice([0., 1. / 32, 1.03]))
        consts["score_threshold"] = np.array(least, dtype)
    out_boxes, out_scores = np.zeros((n, most, 4)), np.zeros((n, most, kinds))
    numbers, counts = np.full((n, most), -1), np.zeros(n)
    for i in range(n):
        kept = suppressed(double(boxes[i]), double(scores[i]), float(consts["iou_threshold"]), least, most, per_class)
        counts[i], numbers[i, : len(kept)] = len(kept), kept
        out_boxes[i, : len(kept)], out_scores[i, : len(kept)] = boxes[i][kept], scores[i][kept]
    outs = [Out(out_boxes, dtype), Out(out_scores, dtype), Out(numbers, "int32"), Out(counts, "int32")]
    if d.version >= 17:
        boxes, scores = np.ascontiguousarray(boxes.swapaxes(1, 2)), np.ascontiguousarray(scores.swapaxes(1, 2))
        outs = [Out(out_boxes.swapaxes(1, 2), dtype), Out(out_scores.swapaxes(1, 2), dtype), outs[2]]
    return Case(d.op, {"boxes": boxes, "scores": scores}, consts, outs, exact_half=True)


