#!/usr/bin/env python3
"""Writes tests/ops/indexing_cases.txt: one-operator cases with results computed by numpy.

    python3 tests/oracle/make_indexing_cases.py > tests/ops/indexing_cases.txt

Where coremltools can be imported, the cases marked `checked` are built with its MIL builder too and its value
inference must give the same result (version 9.0 did). Format, one item a line:

    case NAME OP OPSET
    in PARAM DTYPE RANK DIM.. = VALUES     an input; `iota` for VALUES means 0, 1, 2, ..
    const PARAM DTYPE RANK DIM.. = VALUES  a constant
    str PARAM TEXT
    out DTYPE RANK DIM.. = VALUES          one line for each output
    fail TEXT                              instead of out: running must fail with a message that contains TEXT
"""
import copy
import itertools
import random
import sys

import numpy as np

try:
    import coremltools as ct
    from coremltools.converters.mil import Builder as mb
    from coremltools.converters.mil import mil as cmil
except ImportError:
    ct = None

rng = random.Random(7)
np_rng = np.random.default_rng(7)
NAMES = {"float32": "fp32", "float16": "fp16", "bool_": "bool"}
n_checked = 0


def dtype_name(a):
    return NAMES.get(a.dtype.name, a.dtype.name)


def values_text(a):
    flat = a.reshape(-1)
    if a.dtype != bool and flat.size > 2 and np.array_equal(flat, np.arange(flat.size)):
        return "iota"
    if a.dtype == bool:
        flat = flat.astype(int)
    return " ".join(f"{v:.9g}" if np.issubdtype(a.dtype, np.floating) else str(v) for v in flat)


def line(word, a, param=None):
    dims = " ".join([str(a.ndim)] + [str(d) for d in a.shape])
    print(" ".join([word] + ([param] if param else []) + [dtype_name(a), dims, "=", values_text(a)]).rstrip())


OPSETS = {15: "iOS15", 16: "iOS16", 17: "iOS17", 18: "iOS18"}


def check_with_coremltools(op, opset, params, outs):
    """Value inference of the same operator in coremltools must agree."""
    global n_checked
    if ct is None:
        return
    got = []

    @mb.program(input_specs=[mb.TensorSpec(shape=(1,))], opset_version=getattr(ct.target, OPSETS[opset]))
    def prog(dummy):
        r = getattr(mb, op)(**copy.deepcopy({k: v for k, v in params.items() if v is not None}))
        got.extend(r if isinstance(r, (list, tuple)) else [r])
        return mb.identity(x=dummy)

    for g, want in zip(got, outs, strict=True):
        v = np.asarray(g.val)
        assert v.shape == want.shape, (op, params, v.shape, want.shape)
        assert np.array_equal(v, want), (op, params, v, want)
    n_checked += 1


def case(name, op, opset, params, outs=None, fail=None, checked=False, runtime=("x",)):
    """params: arrays, strings, or lists of arrays (list parameters). Names in `runtime` are not constant."""
    print(f"case {name} {op} {opset}")
    for k, v in params.items():
        if v is None:
            continue
        if isinstance(v, str):
            print(f"str {k} {v}")
            continue
        for a in v if isinstance(v, list) else [v]:
            line("in" if k in runtime else "const", np.asarray(a), k)
    if fail is not None:
        print(f"fail {fail}")
        return
    outs = [np.asarray(o) for o in (outs if isinstance(outs, list) else [outs])]
    for o in outs:
        line("out", o)
    if checked:
        check_with_coremltools(op, opset, params, outs)


def i32(v):
    return np.array(v, np.int32)


def iota(shape, dtype=np.int32):
    return np.arange(int(np.prod(shape)), dtype=dtype).reshape(shape)


DTYPES = [np.float32, np.float16, np.int32, np.int8, np.uint8, np.int16, np.uint16, bool]


def some(shape, dtype):
    if dtype == bool:
        return np_rng.integers(0, 2, shape).astype(bool)
    if np.issubdtype(dtype, np.floating):
        return (np_rng.integers(-64, 64, shape) / 4).astype(dtype)
    return np_rng.integers(0 if np.dtype(dtype).kind == "u" else -60, 60, shape).astype(dtype)


# ---- slice_by_index: every mask and direction ----
def slice_of(shape, begin, end, stride, bm, em, sm):
    key = []
    for i, n in enumerate(shape):
        if sm[i]:
            b = 0 if bm[i] else begin[i]
            key.append(b)
        else:
            key.append(slice(None if bm[i] else begin[i], None if em[i] else end[i], stride[i]))
    return tuple(key)


def slice_case(name, shape, begin, end, stride=None, bm=None, em=None, sm=None, dtype=np.int32, index_dtype=np.int32,
               opset=17, checked=True):
    x = iota(shape) if dtype == np.int32 else some(shape, dtype)
    n = len(shape)
    key = slice_of(shape, begin, end, stride or [1] * n, bm or [False] * n, em or [False] * n, sm or [False] * n)
    out = x[key]
    params = dict(x=x, begin=np.array(begin, index_dtype), end=np.array(end, index_dtype))
    if stride:
        params["stride"] = np.array(stride, index_dtype)
    for k, m in (("begin_mask", bm), ("end_mask", em), ("squeeze_mask", sm)):
        if m is not None:
            params[k] = np.array(m, bool)
    # coremltools clamps an end before the first element to 0 even when going backwards, numpy to "before 0"
    differs = stride and any(s < 0 and e < -d for s, e, d in zip(stride, end, shape))
    case(name, "slice_by_index", opset, params, out, checked=checked and out.size > 0 and not differs)


def slices():
    # one axis: all small begins, ends and strides
    for stride in (1, 2, 3, -1, -2, -3):
        for begin, end in itertools.product((-6, -5, -2, 0, 1, 4, 5, 7), (-6, -5, -1, 0, 2, 5, 2147483647)):
            slice_case(f"line_{begin}_{end}_{stride}", (5,), [begin], [end], [stride])
    # masks on one axis
    for bm, em, stride in itertools.product((False, True), (False, True), (1, 2, -1, -2)):
        slice_case(f"mask_{int(bm)}{int(em)}_{stride}", (6,), [2], [4], [stride], [bm], [em])
    for begin, bm, em in itertools.product((-6, -1, 0, 3), (False, True), (False, True)):
        slice_case(f"squeeze_{begin}_{int(bm)}{int(em)}", (6,), [begin], [0], None, [bm], [em], [True])
    # several axes at random
    for i in range(120):
        n = rng.randint(1, 5)
        shape = [rng.choice((1, 2, 3, 4)) for _ in range(n)]
        sm = [rng.random() < 0.25 for _ in range(n)]
        begin = [rng.randrange(-d, d) if s else rng.randint(-d - 1, d + 1) for d, s in zip(shape, sm)]
        end = [rng.randint(-d - 1, d + 1) for d in shape]
        stride = [rng.choice((1, 1, 2, -1, -2)) for _ in range(n)]
        bm = [rng.random() < 0.4 for _ in range(n)]
        em = [rng.random() < 0.5 for _ in range(n)]
        slice_case(f"random_{i}", shape, begin, end, rng.choice((None, stride)), bm, em, sm,
                   index_dtype=rng.choice((np.int32, np.int32, np.int16, np.int8)), dtype=rng.choice(DTYPES),
                   checked=False)
    slice_case("huge_stride", (3, 4), [0, 0], [3, 4], [2147483647, 1])
    slice_case("huge_stride_back", (3, 4), [2, 3], [-9, -9], [-2147483647, -1], checked=False)
    slice_case("ios15", (3, 4), [-2, 0], [0, 3], em=[True, False], bm=[False, False], opset=15)
    case("zero_stride", "slice_by_index", 17, dict(x=iota((3,)), begin=i32([0]), end=i32([2]), stride=i32([0])),
         fail="stride")
    case("squeeze_past_end", "slice_by_index", 17,
         dict(x=iota((3,)), begin=i32([3]), end=i32([4]), squeeze_mask=np.array([True])), fail="begin")
    for i in range(20):
        n = rng.randint(1, 4)
        shape = [rng.randint(1, 5) for _ in range(n)]
        begin = [rng.randint(-d, d) for d in shape]
        first = [b + d if b < 0 else b for b, d in zip(begin, shape)]
        size = [rng.choice((-1, rng.randint(0, d - b))) for b, d in zip(first, shape)]
        x = iota(shape)
        out = x[tuple(slice(b, d if s == -1 else b + s) for b, s, d in zip(first, size, shape))]
        case(f"size_{i}", "slice_by_size", 15, dict(x=x, begin=i32(begin), size=i32(size)), out)
    case("size_beyond", "slice_by_size", 15, dict(x=iota((3,)), begin=i32([1]), size=i32([3])), fail="")


def updates():
    for i in range(60):
        n = rng.randint(1, 5)
        dtype = rng.choice(DTYPES)
        shape = [rng.choice((1, 2, 3, 4)) for _ in range(n)]
        sm = [rng.random() < 0.2 for _ in range(n)]
        if all(sm):
            sm[0] = False
        begin = [rng.randrange(-d, d) if s else rng.randint(-d, d) for d, s in zip(shape, sm)]
        end = [rng.randint(-d, d + 1) for d in shape]
        stride = [rng.choice((1, 1, 2, -1, -2)) for _ in range(n)]
        bm = [rng.random() < 0.5 for _ in range(n)]
        em = [rng.random() < 0.6 for _ in range(n)]
        key = slice_of(shape, begin, end, stride, bm, em, sm)
        x, out = some(shape, dtype), None
        update = some(x[key].shape, dtype)
        out = x.copy()
        out[key] = update
        case(f"update_{i}", "slice_update", 18,
             dict(x=x, update=update, begin=i32(begin), end=i32(end), stride=i32(stride), begin_mask=np.array(bm),
                  end_mask=np.array(em), squeeze_mask=np.array(sm)), out, runtime=("x", "update", "begin", "end"))
    case("update_wrong_shape", "slice_update", 18,
         dict(x=iota((4, 4)), update=iota((2, 3)), begin=i32([0, 0]), end=i32([2, 2])), fail="update",
         runtime=("x", "update"))


# ---- gather ----
INDEX_DTYPES = {15: [np.int32], 16: [np.int32, np.int16, np.uint16],
                17: [np.int32, np.int16, np.uint16, np.int8, np.uint8]}


def gather_np(x, idx, axis, batch, wraps):
    """Loops over every output position."""
    axis = axis % x.ndim
    lead, rest = x.shape[:axis], x.shape[axis + 1:]
    out = np.zeros(lead + idx.shape[batch:] + rest, x.dtype)
    for o in np.ndindex(*lead):
        for k in np.ndindex(*idx.shape[batch:]):
            v = int(idx[o[:batch] + k])
            if wraps and v < 0:
                v += x.shape[axis]
            if 0 <= v < x.shape[axis]:
                out[o + k] = x[o + (v,)]
    return out


def random_indices(shape, n, dtype, hostile, wraps):
    v = np_rng.integers(0, n, shape)
    if wraps and np.dtype(dtype).kind == "i":
        v = np.where(np_rng.random(shape) < 0.3, v - n, v)
    v = v.astype(dtype)
    if hostile and v.size:
        info = np.iinfo(dtype)
        for bad in (info.min, info.max, n, -n - 1):
            if info.min <= bad <= info.max:
                v.reshape(-1)[rng.randrange(v.size)] = bad
    return v


def gathers():
    for i in range(70):
        opset = rng.choice((15, 16, 17, 18))
        wraps = opset < 17
        n = rng.randint(1, 4)
        shape = [rng.randint(1, 4) for _ in range(n)]
        axis = rng.randrange(-n, n)
        batch = rng.randint(0, axis % n) if opset > 15 and rng.random() < 0.4 else 0
        idx_shape = shape[:batch] + [rng.randint(1, 3) for _ in range(rng.randint(0, 2))]
        if len(idx_shape) + n - 1 - batch > 5:
            continue
        dtype = rng.choice(DTYPES[:3] if opset < 17 else DTYPES[:-1])
        x = some(shape, dtype)
        idx = random_indices(idx_shape, shape[axis], rng.choice(INDEX_DTYPES[min(opset, 17)]), rng.random() < 0.4, wraps)
        params = dict(x=x, indices=idx, axis=i32(axis))
        if opset > 15:
            params["batch_dims"] = i32(batch)
        legal = not wraps and (idx >= 0).all() and (idx < shape[axis]).all()
        legal |= wraps and (idx >= -shape[axis]).all() and (idx < shape[axis]).all()
        case(f"gather_{i}", "gather", opset, params, gather_np(x, idx, axis, batch, wraps),
             checked=bool(legal) and batch == 0, runtime=("x", "indices"))
    big = iota((70000, 4))
    case("gather_69999", "gather", 17, dict(x=big, indices=i32([69999, -1, 70000, 65535])),
         np.stack([big[69999], 0 * big[0], 0 * big[0], big[65535]]), runtime=("x", "indices"))
    case("gather_u16", "gather", 17, dict(x=big, indices=np.array([65535, 65524], np.uint16)), big[[65535, 65524]],
         checked=True, runtime=("x", "indices"))
    case("gather_strict", "gather", 17,
         dict(x=iota((3, 2)), indices=i32([2, 0]), validate_indices=np.array(True)), iota((3, 2))[[2, 0]],
         runtime=("x", "indices"))
    for bad in (-1, 3, 2147483647, -2147483648):
        case(f"gather_invalid_{bad}", "gather", 17,
             dict(x=iota((3, 2)), indices=i32([2, bad]), validate_indices=np.array(True)),
             fail=f"index {bad} at position 1", runtime=("x", "indices"))
        case(f"along_invalid_{bad}", "gather_along_axis", 17,
             dict(x=iota((3, 2)), indices=i32([[2, bad]]), axis=i32(0), validate_indices=np.array(True)),
             fail=f"index {bad} at position 1", runtime=("x", "indices"))
        case(f"nd_invalid_{bad}", "gather_nd", 17,
             dict(x=iota((2, 3)), indices=i32([[0, 2], [1, bad]]), validate_indices=np.array(True)),
             fail=f"index {bad} at position 3", runtime=("x", "indices"))
    for i in range(40):
        opset = rng.choice((15, 16, 17))
        wraps = opset < 17
        n = rng.randint(1, 4)
        shape = [rng.randint(1, 4) for _ in range(n)]
        axis = rng.randrange(-n, n)
        idx_shape = list(shape)
        idx_shape[axis] = rng.randint(1, 5)
        x = some(shape, rng.choice(DTYPES[:3] if opset < 17 else DTYPES[:-1]))
        idx = random_indices(idx_shape, shape[axis], rng.choice(INDEX_DTYPES[opset]), rng.random() < 0.4, wraps)
        out = np.zeros(idx_shape, x.dtype)
        for at in np.ndindex(*idx_shape):
            v = int(idx[at]) + (shape[axis] if wraps and idx[at] < 0 else 0)
            if 0 <= v < shape[axis]:
                src = list(at)
                src[axis] = v
                out[at] = x[tuple(src)]
        legal = (idx >= (-shape[axis] if wraps else 0)).all() and (idx < shape[axis]).all()
        case(f"along_{i}", "gather_along_axis", opset, dict(x=x, indices=idx, axis=i32(axis)), out, checked=bool(legal),
             runtime=("x", "indices"))
    for i in range(40):
        opset = rng.choice((15, 16, 17))
        wraps = opset < 17
        n = rng.randint(1, 4)
        shape = [rng.randint(1, 4) for _ in range(n)]
        batch = rng.randint(0, n - 1) if opset > 15 and rng.random() < 0.4 else 0
        depth = rng.randint(1, n - batch)
        lead = shape[:batch] + [rng.randint(1, 3) for _ in range(rng.randint(0 if batch == 0 else 1, 2))]
        x = some(shape, rng.choice(DTYPES[:3] if opset < 17 else DTYPES[:-1]))
        dtype = rng.choice(INDEX_DTYPES[opset])
        hostile = rng.random() < 0.4
        idx = np.stack([random_indices(lead, shape[batch + k], dtype, hostile, wraps) for k in range(depth)], -1)
        out = np.zeros(lead + shape[batch + depth:], x.dtype)
        for at in np.ndindex(*lead):
            v = [int(a) + (shape[batch + k] if wraps and a < 0 else 0) for k, a in enumerate(idx[at])]
            if all(0 <= a < shape[batch + k] for k, a in enumerate(v)):
                out[at] = x[at[:batch] + tuple(v)]
        params = dict(x=x, indices=idx)
        if opset > 15:
            params["batch_dims"] = i32(batch)
        case(f"nd_{i}", "gather_nd", opset, params, out, runtime=("x", "indices"))


# ---- scatter ----
def combine(mode, d, u):
    if np.issubdtype(d.dtype, np.floating):
        return {"update": lambda: u, "add": lambda: d + u, "sub": lambda: d - u, "mul": lambda: d * u,
                "div": lambda: d / u, "max": lambda: np.maximum(d, u), "min": lambda: np.minimum(d, u)}[mode]()
    di, ui = d.astype(np.int64), u.astype(np.int64)
    safe = np.where(ui == 0, 1, ui)
    quotient = np.where(ui == 0, 0, np.sign(di) * np.sign(safe) * (abs(di) // abs(safe)))
    return {"update": ui, "add": di + ui, "sub": di - ui, "mul": di * ui, "div": quotient, "max": np.maximum(di, ui),
            "min": np.minimum(di, ui)}[mode].astype(d.dtype)


def scatters():
    modes = ["update", "add", "sub", "mul", "div", "max", "min", None]
    dtypes = [np.float32, np.int32, np.float32, np.int8, np.uint16]
    for i in range(64):
        opset = rng.choice((15, 17))
        wraps = opset == 15
        mode, dtype = modes[i % 8], rng.choice(dtypes[:2] if opset < 17 else dtypes)
        hostile = rng.random() < 0.4
        n = rng.randint(1, 4)
        shape = [rng.randint(1, 4) for _ in range(n)]
        data = some(shape, dtype)
        out = data.copy()
        kind = rng.choice(("scatter", "scatter_along_axis", "scatter_nd"))
        axis = rng.randrange(-n, n)

        def inside(v, d):
            v = int(v) + (d if wraps and v < 0 else 0)
            return v if 0 <= v < d else None

        def fixed(u):  # no division by zero for floats
            return np.where(u == 0, np.ones_like(u), u) if mode == "div" and np.issubdtype(dtype, np.floating) else u

        if kind == "scatter":
            idx = random_indices([rng.randint(1, 5)], shape[axis], np.int32, hostile, wraps)
            a = axis % n
            updates = fixed(some(shape[:a] + [len(idx)] + shape[a + 1:], dtype))
            moved, moved_updates = np.moveaxis(out, a, 0), np.moveaxis(updates, a, 0)
            for k, v in enumerate(idx):
                v = inside(v, shape[a])
                if v is not None:
                    moved[v] = combine(mode or "add", moved[v], moved_updates[k])
        elif kind == "scatter_along_axis":
            idx_shape = list(shape)
            idx_shape[axis] = rng.randint(1, 5)
            idx = random_indices(idx_shape, shape[axis], np.int32, hostile, wraps)
            updates = fixed(some(idx_shape, dtype))
            for at in np.ndindex(*idx_shape):
                v = inside(idx[at], shape[axis])
                if v is not None:
                    dst = list(at)
                    dst[axis] = v
                    out[tuple(dst)] = combine(mode or "add", out[tuple(dst)], updates[at])
        else:
            depth = rng.randint(1, n)
            lead = [rng.randint(1, 3) for _ in range(rng.randint(0, 2))]
            idx = np.stack([random_indices(lead, shape[k], np.int32, hostile, wraps) for k in range(depth)], -1)
            updates = fixed(some(lead + shape[depth:], dtype))
            for at in np.ndindex(*lead):
                v = [inside(a, shape[k]) for k, a in enumerate(idx[at])]
                if None not in v:
                    out[tuple(v)] = combine(mode or "add", np.asarray(out[tuple(v)]), np.asarray(updates[at]))
        params = dict(data=data, indices=idx, updates=updates)
        if kind != "scatter_nd":
            params["axis"] = i32(axis)
        params["mode"] = mode
        case(f"{kind}_{i}", kind, opset, params, out, runtime=("data", "indices", "updates"))
    strict = dict(data=iota((3, 2)), indices=i32([0, 7]), updates=iota((2, 2)), mode="update",
                  validate_indices=np.array(True))
    case("scatter_invalid", "scatter", 17, strict, fail="index 7 at position 1", runtime=("data", "indices", "updates"))
    case("scatter_nd_invalid", "scatter_nd", 17, dict(strict, indices=i32([[0], [-1]])),
         fail="index -1 at position 1", runtime=("data", "indices", "updates"))
    case("scatter_along_invalid", "scatter_along_axis", 17, dict(strict, indices=i32([[0, 0], [1, 3]]), axis=i32(0)),
         fail="index 3 at position 3", runtime=("data", "indices", "updates"))
    case("scatter_bad_mode", "scatter", 17, dict(strict, mode="replace"), fail="mode",
         runtime=("data", "indices", "updates"))


# ---- layout ----
def layouts():
    for i in range(24):
        n = rng.randint(1, 5)
        shape = [rng.choice((1, 2, 3, 4)) for _ in range(n)]
        dtype = rng.choice(DTYPES)
        x = some(shape, dtype)
        perm = list(range(n))
        rng.shuffle(perm)
        given = [p - n if rng.random() < 0.3 else p for p in perm]
        case(f"transpose_{i}", "transpose", 17, dict(x=x, perm=i32(given)), x.transpose(perm))
        axes = rng.sample(range(n), rng.randint(0, n))
        if axes:
            case(f"reverse_{i}", "reverse", 17, dict(x=x, axes=i32(axes)), np.flip(x, axes))
        reps = [rng.choice((1, 1, 2, 3)) for _ in range(n)]
        case(f"tile_{i}", "tile", 15, dict(x=x, reps=i32(reps)), np.tile(x, reps), checked=dtype in DTYPES[:3])
    case("reverse_all", "reverse", 17, dict(x=iota((2, 3))), iota((2, 3))[::-1, ::-1])
    for i in range(24):
        n = rng.randint(1, 4)
        shape = [rng.choice((1, 2, 3)) for _ in range(n)]
        dtype = rng.choice(DTYPES)
        count, axis = rng.randint(1, 4), rng.randrange(-n, n)
        xs = []
        for _ in range(count):
            s = list(shape)
            s[axis] = rng.randint(1, 3)
            xs.append(some(s, dtype))
        case(f"concat_{i}", "concat", 15, dict(values=xs, axis=i32(axis)), np.concatenate(xs, axis), runtime=("values",))
        xs = [some(shape, dtype) for _ in range(count)]
        inter = np.stack(xs, axis % n + 1).reshape(shape[:axis % n] + [-1] + shape[axis % n + 1:])
        case(f"interleave_{i}", "concat", 15, dict(values=xs, axis=i32(axis), interleave=np.array(True)), inter,
             runtime=("values",))
        axis = rng.randrange(-n - 1, n + 1)
        case(f"stack_{i}", "stack", 15, dict(values=xs, axis=i32(axis)), np.stack(xs, axis), runtime=("values",))
    case("concat_scalars", "concat", 15, dict(values=[i32(4), i32(-7), i32(9)], axis=i32(0)), i32([4, -7, 9]),
         runtime=("values",))
    for i in range(16):
        n = rng.randint(1, 4)
        shape = [rng.randint(1, 6) for _ in range(n)]
        axis = rng.randrange(-n, n)
        x = some(shape, rng.choice(DTYPES))
        cuts = sorted(rng.sample(range(1, shape[axis]), min(rng.randint(0, 2), shape[axis] - 1))) if shape[axis] > 1 else []
        parts = np.split(x, cuts, axis)
        case(f"split_{i}", "split", 15,
             dict(x=x, split_sizes=i32([p.shape[axis] for p in parts]), axis=i32(axis)), list(parts))
    case("split_equal", "split", 15, dict(x=iota((2, 6)), num_splits=i32(3), axis=i32(-1)), np.split(iota((2, 6)), 3, -1))
    for i in range(30):
        n = rng.randint(1, 4)
        mode = rng.choice(("constant", "reflect", "replicate"))
        shape = [rng.randint(1, 4) for _ in range(n)]
        k = rng.randint(1, min(n, 2) if mode != "constant" else n)
        pads = [(0, 0)] * (n - k)
        for d in shape[n - k:]:
            most = d - 1 if mode == "reflect" else 3
            pads.append((rng.randint(0, most), rng.randint(0, most)))
        x = some(shape, rng.choice((np.float32, np.float16)))
        kw = {"constant": dict(constant_values=x.dtype.type(1.5))}.get(mode, {})
        out = np.pad(x, pads, {"replicate": "edge"}.get(mode, mode), **kw)
        params = dict(x=x, pad=i32([v for p in pads[n - k:] for v in p]), mode=mode)
        if mode == "constant":
            params["constant_val"] = x.dtype.type(1.5)
        case(f"pad_{i}", "pad", 15, params, out)
    case("pad_reflect_far", "pad", 15, dict(x=some((1, 3), np.float32), pad=i32([3, 0]), mode="reflect"), fail="")
    for i in range(12):
        b = rng.choice((1, 2, 3))
        n, c, h, w = rng.randint(1, 2), rng.randint(1, 3), rng.randint(1, 3), rng.randint(1, 3)
        deep = some((n, c * b * b, h, w), np.float32)
        dcr = deep.reshape(n, b, b, c, h, w).transpose(0, 3, 4, 1, 5, 2).reshape(n, c, h * b, w * b)
        crd = deep.reshape(n, c, b, b, h, w).transpose(0, 1, 4, 2, 5, 3).reshape(n, c, h * b, w * b)
        case(f"d2s_{i}", "depth_to_space", 15, dict(x=deep, block_size=i32(b)), dcr)
        case(f"s2d_{i}", "space_to_depth", 15, dict(x=dcr, block_size=i32(b)), deep)
        case(f"shuffle_{i}", "pixel_shuffle", 15, dict(x=deep, upscale_factor=i32(b)), crd)
        case(f"unshuffle_{i}", "pixel_unshuffle", 16, dict(x=crd, downscale_factor=np.array(b, np.uint32)), deep)
        bh, bw = rng.choice((1, 2, 3)), rng.choice((1, 2))
        h, w = rng.randint(1, 3) * bh, rng.randint(1, 3) * bw
        pt, pl = rng.randint(0, min(2, h - 1)), rng.randint(0, min(2, w - 1))
        pb, pr = rng.randint(0, h - 1 - pt), rng.randint(0, w - 1 - pl)
        x = some((n, c, h - pt - pb, w - pl - pr), np.float32)
        padded = np.pad(x, ((0, 0), (0, 0), (pt, pb), (pl, pr)))
        batched = padded.reshape(n, c, h // bh, bh, w // bw, bw).transpose(3, 5, 0, 1, 2, 4)
        batched = batched.reshape(bh * bw * n, c, h // bh, w // bw)
        case(f"s2b_{i}", "space_to_batch", 15,
             dict(x=x, block_shape=i32([bh, bw]), paddings=i32([[pt, pb], [pl, pr]])), batched)
        y = some(batched.shape, np.float32)
        whole = y.reshape(bh, bw, n, c, h // bh, w // bw).transpose(2, 3, 4, 0, 5, 1).reshape(n, c, h, w)
        case(f"b2s_{i}", "batch_to_space", 15,
             dict(x=y, block_shape=i32([bh, bw]), crops=i32([[pt, pb], [pl, pr]])),
             whole[:, :, pt:h - pb, pl:w - pr])
    for i in range(12):
        n = rng.randint(1, 4)
        shape = [rng.randint(1, 6) for _ in range(n)]
        axis = rng.randrange(-n, n)
        size, stride = rng.randint(1, shape[axis]), rng.randint(1, 3)
        x = some(shape, rng.choice(DTYPES[:3]))
        win = np.lib.stride_tricks.sliding_window_view(x, size, axis % n)
        win = np.moveaxis(win, -1, axis % n + 1).take(range(0, shape[axis] - size + 1, stride), axis % n)
        case(f"windows_{i}", "sliding_windows", 15,
             dict(x=x, axis=i32(axis), size=i32(size), stride=i32(stride)), win)
    x = some((2, 3, 5, 6), np.float32)
    case("crop", "crop", 15, dict(x=x, crop_height=i32([1, 2]), crop_width=i32([0, 3])), x[:, :, 1:3, 0:3])
    for i in range(8):
        shape = [rng.randint(1, 4) for _ in range(3)]
        seq, batch = rng.sample(range(3), 2)
        x = some(shape, rng.choice(DTYPES))
        lengths = [rng.randint(0, shape[seq]) for _ in range(shape[batch])]
        out = x.copy()
        moved, src = np.moveaxis(out, (batch, seq), (0, 1)), np.moveaxis(x, (batch, seq), (0, 1))
        for b, ln in enumerate(lengths):
            moved[b, :ln] = src[b, :ln][::-1]
        case(f"revseq_{i}", "reverse_sequence", 17,
             dict(x=x, lengths=i32(lengths), seq_axis=i32(seq), batch_axis=i32(batch)), out, runtime=("x", "lengths"))
    case("revseq_too_long", "reverse_sequence", 17,
         dict(x=iota((2, 3)), lengths=i32([1, 4]), seq_axis=i32(1), batch_axis=i32(0)), fail="lengths[1]",
         runtime=("x", "lengths"))


def reshapes():
    x = iota((2, 3, 4))
    for name, opset, shape, out in (
            ("flat", 15, [-1], (24,)), ("same", 15, [0, 0, -1], (2, 3, 4)), ("two", 15, [4, -1], (4, 6)),
            ("copied_zero", 16, [0, 4, 3], (2, 4, 3)), ("right_zero", 17, [2, 3, 0], (2, 3, 4)),
            ("right_zero_more", 17, [6, 1, 0], (6, 1, 4)), ("five", 17, [1, 2, 1, -1, 2], (1, 2, 1, 6, 2))):
        case(f"reshape_{name}", "reshape", opset, dict(x=x, shape=i32(shape)), x.reshape(out))
    case("reshape_misfit", "reshape", 17, dict(x=x, shape=i32([5, 5])), fail="")
    case("expand", "expand_dims", 15, dict(x=x, axes=i32([0, -1, 3])), x.reshape(1, 2, 3, 1, 4, 1))
    case("expand_scalar", "expand_dims", 15, dict(x=i32(5), axes=i32([0])), i32([5]))
    y = iota((1, 3, 1, 2))
    case("squeeze_all", "squeeze", 15, dict(x=y), y.reshape(3, 2))
    case("squeeze_one", "squeeze", 15, dict(x=y, axes=i32([-2])), y.reshape(1, 3, 2))
    case("squeeze_kept", "squeeze", 15, dict(x=y, axes=i32([0, 1])), y.reshape(3, 1, 2))
    case("squeeze_to_scalar", "squeeze", 15, dict(x=iota((1, 1))), i32(0))
    for axis in (-1, 0, 1, 2):
        out = x.reshape(int(np.prod(x.shape[:axis])), -1)
        case(f"flatten_{axis}", "flatten2d", 15, dict(x=x, axis=i32(axis)), out)
    case("shape", "shape", 15, dict(x=some((3, 1, 2), bool)), i32([3, 1, 2]))
    case("shape_scalar", "shape", 15, dict(x=i32(1)), np.zeros(0, np.int32))
    case("identity", "identity", 15, dict(x=x), x)


def made():
    for i, (s, e, st) in enumerate(((0, 5, 1), (5, 0, -1), (-3, 8, 4), (7, -8, -3), (2, 3, 10))):
        case(f"range_{i}", "range_1d", 15, dict(end=i32(e), start=i32(s), step=i32(st)), np.arange(s, e, st, np.int32),
             checked=True, runtime=())
    for i, (s, e, st) in enumerate(((0, 2, 0.25), (1, -1, -0.5), (-0.75, 1.25, 0.5))):
        f = np.float32
        case(f"range_f{i}", "range_1d", 15, dict(end=f(e), start=f(s), step=f(st)), np.arange(s, e, st).astype(f),
             checked=True, runtime=())
    case("fill", "fill", 15, dict(shape=i32([2, 3]), value=np.float32(2.5)), np.full((2, 3), 2.5, np.float32))
    case("fill_half", "fill", 15, dict(shape=i32([3]), value=np.float16(-0.5)), np.full((3,), -0.5, np.float16))
    case("fill_int", "fill", 15, dict(shape=i32([2]), value=i32(-7)), i32([-7, -7]))
    case("fill_bool", "fill", 15, dict(shape=i32([2, 1]), value=np.array(True)), np.ones((2, 1), bool))
    case("fill_default", "fill", 15, dict(shape=i32([2])), np.zeros(2, np.float32))
    case("fill_like", "fill_like", 16, dict(ref_tensor=some((2, 2), np.float16), value=i32(3)), i32([[3, 3], [3, 3]]),
         runtime=("ref_tensor",))
    for i in range(12):
        n = rng.randint(0, 2)
        classes = rng.randint(1, 5)
        idx = np_rng.integers(-2, classes + 2, [rng.randint(1, 3) for _ in range(n)]).astype(np.int32)
        axis = rng.randrange(-n - 1, n + 1)
        out = np.moveaxis(np.equal(np.arange(classes), idx[..., None]), -1, axis)
        params = dict(indices=idx, one_hot_vector_size=i32(classes), axis=i32(axis))
        if i % 2:
            out = np.where(out, np.float32(2), np.float32(-1))
            params.update(on_value=np.float32(2), off_value=np.float32(-1))
        else:
            out = out.astype(np.int32)
        case(f"one_hot_{i}", "one_hot", 15, params, out, runtime=("indices",))
    for i in range(16):
        n = rng.randint(2, 4)
        shape = [rng.randint(1, 5) for _ in range(n)]
        x = some(shape, rng.choice((np.float32, np.float16, np.int32, bool)))
        lo, up = rng.randint(-1, 6), rng.randint(-1, 6)
        m, k = np.indices(shape[-2:])
        keep = ((lo < 0) | (m - k <= lo)) & ((up < 0) | (k - m <= up))
        case(f"band_{i}", "band_part", 15, dict(x=x, lower=i32(lo), upper=i32(up)), np.where(keep, x, x.dtype.type(0)))
    for i in range(8):
        shape = [rng.randint(1, 4) for _ in range(rng.randint(1, 4))]
        x = some(shape, rng.choice((np.float32, np.int32, bool))) * np_rng.integers(0, 2, shape)
        x = x.astype(rng.choice((np.float32, np.int32, bool)))
        case(f"non_zero_{i}", "non_zero", 15, dict(x=x), np.argwhere(x).astype(np.int32))


def einsums():
    for i, (eq, a, b) in enumerate((
            ("nchw,nwhu->nchu", (2, 3, 4, 5), (2, 5, 4, 6)), ("chw,whr->chr", (3, 4, 5), (5, 4, 6)),
            ("nchw,nwhu->nchu", (1, 3, 4, 5), (2, 5, 1, 6)), ("abcd,adce->abce", (2, 2, 3, 4), (2, 4, 3, 2)),
            ("ij,jk->ik", (3, 4), (4, 5)), ("ij,jk->ki", (3, 4), (4, 5)), ("ij,kj->ik", (3, 4), (5, 4)),
            ("ij,ij->ij", (3, 4), (3, 4)), ("ij,ij->", (3, 4), (3, 4)), ("i,j->ij", (3,), (4,)), ("i,j->ji", (3,), (4,)),
            ("ij,k->k", (3, 4), (5,)), ("ii,i->i", (4, 4), (4,)), ("ii,jj->ij", (3, 3), (2, 2)), ("i,->i", (3,), ()),
            ("bqhd,bkhd->bhqk", (2, 3, 4, 5), (2, 6, 4, 5)), ("bhqk,bkhd->bqhd", (2, 4, 3, 6), (2, 6, 4, 5)),
            ("abc,cd->abd", (2, 3, 4), (4, 5)), ("abc,bad->dca", (2, 3, 4), (3, 2, 5)),
            ("ijk,jil->kl", (2, 3, 4), (3, 2, 5)), ("ab,cd->dbca", (2, 3), (4, 5)))):
        for dtype in (np.float32, np.int32):
            x, y = some(a, dtype), some(b, dtype)
            # einsum of numpy does not take 1 for a broadcast size
            left, out = eq.split("->")
            sizes = {}
            for labels, t in zip(left.split(","), (x, y), strict=True):
                for c, d in zip(labels, t.shape, strict=True):
                    sizes[c] = max(sizes.get(c, 1), d)
            xb = np.broadcast_to(x, [sizes[c] for c in left.split(",")[0]])
            yb = np.broadcast_to(y, [sizes[c] for c in left.split(",")[1]])
            case(f"einsum_{i}_{np.dtype(dtype).name}", "einsum", 15, dict(values=[x, y], equation=eq),
                 np.einsum(eq, xb, yb), runtime=("values",))


def suppressions():
    for i in range(24):
        n, b, k, most = rng.randint(1, 2), rng.randint(1, 12), rng.randint(1, 3), rng.randint(1, 8)
        boxes = np_rng.integers(0, 12, (n, b, 4)).astype(np.float32)
        boxes[..., 2:] += 1
        scores = np_rng.permutation(n * b * k).reshape(n, b, k).astype(np.float32) / 4
        iou, floor, per_class = np.float32(rng.choice((0, 0.15, 0.4))), np.float32(rng.choice((-1, 3, 1000))), rng.random() < 0.5
        new = i % 2 == 1
        out = [np.zeros((n, most, 4), np.float32), np.zeros((n, most, k), np.float32), np.full((n, most), -1, np.int32),
               np.zeros(n, np.int32)]
        for j in range(n):
            best, cls = scores[j].max(-1), scores[j].argmax(-1)
            lo, hi = boxes[j, :, :2] - boxes[j, :, 2:] / 2, boxes[j, :, :2] + boxes[j, :, 2:] / 2
            kept = []
            for c in np.argsort(-best):
                if not new and best[c] < floor:
                    continue
                for other in kept:
                    side = np.clip(np.minimum(hi[c], hi[other]) - np.maximum(lo[c], lo[other]), 0, None)
                    inner = side.prod()
                    outer = boxes[j, c, 2:].prod() + boxes[j, other, 2:].prod() - inner
                    if inner / outer > iou and (not per_class or cls[c] == cls[other]):
                        break
                else:
                    kept.append(c)
            kept = (kept or [int(best.argmax())])[:most]
            out[0][j, :len(kept)], out[1][j, :len(kept)] = boxes[j, kept], scores[j, kept]
            out[2][j, :len(kept)], out[3][j] = kept, len(kept)
        params = dict(boxes=boxes, scores=scores, iou_threshold=iou, max_boxes=i32(most),
                      per_class_suppression=np.array(per_class))
        if new:
            params["boxes"], params["scores"] = boxes.swapaxes(1, 2), scores.swapaxes(1, 2)
            out = [out[0].swapaxes(1, 2), out[1].swapaxes(1, 2), out[2]]
        else:
            params["score_threshold"] = floor
        case(f"nms_{i}", "non_maximum_suppression", 17 if new else 15, params, out, runtime=("boxes", "scores"))


slices()
updates()
gathers()
scatters()
layouts()
reshapes()
made()
einsums()
suppressions()
print(f"{n_checked} cases agree with coremltools" if ct else "coremltools is not installed: not compared", file=sys.stderr)
