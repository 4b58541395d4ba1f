"""Cases of single operators for test_coremltools_ops.py: what to feed, what to give as constants, at which opset.

Random but reproducible: every case draws from a generator seeded by its own name."""
import dataclasses
import itertools
import zlib

import numpy as np


@dataclasses.dataclass
class Case:
    name: str
    op: str
    opset: int                      # 15, 16, 17, 18
    inputs: dict                    # given at run time, by parameter; a list of arrays where the parameter is a list
    consts: dict                    # constants of the program
    tolerance: tuple = None         # (relative, absolute), else by dtype
    skip: str = None                # reason why coremltools' answer is not taken
    outputs: tuple = None           # which outputs are compared (all)


FLOAT = {"fp32": np.float32, "fp16": np.float16}
INT = {"int32": np.int32, "int16": np.int16, "uint16": np.uint16, "int8": np.int8, "uint8": np.uint8}
ALL = {**FLOAT, **INT, "bool": np.bool_}

_cases = []


class Draw:
    def __init__(self, name):
        self.rng = np.random.default_rng(zlib.crc32(name.encode()))

    def __call__(self, shape, dtype, low=-3.0, high=3.0):
        dtype = np.dtype(dtype)
        if dtype == np.bool_:
            return np.asarray(self.rng.integers(0, 2, shape), np.bool_)
        if dtype.kind in "iu":
            low = max(int(low), np.iinfo(dtype).min)
            return np.asarray(self.rng.integers(low, int(high) + 1, shape), dtype)
        return np.asarray(self.rng.uniform(low, high, shape), dtype)


def add(op, label, opset, make, **options):
    """make(draw) -> (inputs, consts)"""
    name = f"{op}-{label}-{opset}" if label else f"{op}-{opset}"
    inputs, consts = make(Draw(name))
    _cases.append(Case(name, op, opset, inputs, consts, **options))


def shape_name(shape):
    return "x".join(map(str, shape)) if shape else "scalar"


def opsets_for(dtype):
    """Opsets at which a case of this dtype is worth running: fp16 inputs exist from 16, small integers from 17."""
    return (15, 18) if dtype in ("fp32", "int32", "bool") else (16, 18) if dtype == "fp16" else (17, 18)


# ---- elementwise unary: (operator, lowest, highest, dtypes) ----

UNARY = [
    ("abs", -3, 3, "fp32 fp16 int32"), ("acos", -1, 1, "fp32 fp16"), ("asin", -1, 1, "fp32 fp16"), ("atan", -9, 9, "fp32 fp16"),
    ("atanh", -.99, .99, "fp32 fp16"), ("ceil", -3, 3, "fp32 fp16"), ("cos", -9, 9, "fp32 fp16"), ("cosh", -3, 3, "fp32 fp16"),
    ("erf", -3, 3, "fp32 fp16"), ("exp", -9, 5, "fp32 fp16"), ("exp2", -9, 5, "fp32 fp16"), ("floor", -3, 3, "fp32 fp16"),
    ("identity", -3, 3, "fp32 fp16 int32"), ("relu", -3, 3, "fp32 fp16"), ("relu6", -3, 9, "fp32 fp16"),
    ("round", -5, 5, "fp32 fp16"), ("sigmoid", -9, 9, "fp32 fp16"), ("sign", -3, 3, "fp32 fp16 int32"),
    ("sin", -9, 9, "fp32 fp16"), ("sinh", -3, 3, "fp32 fp16"), ("softplus", -9, 9, "fp32 fp16"), ("softsign", -9, 9, "fp32 fp16"),
    ("sqrt", 0, 9, "fp32 fp16"), ("square", -3, 3, "fp32 fp16 int32"), ("tan", -1.2, 1.2, "fp32 fp16"),
    ("tanh", -4, 4, "fp32 fp16"),
]
for op, low, high, dtypes in UNARY:
    for dtype in dtypes.split():
        for shape, opset in zip(((7,), (2, 3, 4)), opsets_for(dtype)):
            add(op, f"{dtype}-{shape_name(shape)}", opset, lambda d: ({"x": d(shape, ALL[dtype], low, high)}, {}))
for op in ("relu", "tanh", "abs", "identity"):
    for shape in ((), (0,), (2, 0, 3), (1, 1, 1, 1), (2, 1, 3, 2, 2)):
        add(op, f"fp32-{shape_name(shape)}", 17, lambda d: ({"x": d(shape, np.float32)}, {}))
for value in (.5, 1.5, 2.5, -.5, -1.5, 2 ** 23 + 1.0, -.2):
    add("round", f"half-{value}", 17, lambda d: ({"x": np.array([value], np.float32)}, {}))
for op in ("inverse", "log", "rsqrt"):
    for dtype in FLOAT:
        for epsilon in (None, 1e-4, 0.5):
            add(op, f"{dtype}-eps{epsilon}", 17, lambda d: (
                {"x": d((3, 5), FLOAT[dtype], .1, 6)}, {} if epsilon is None else {"epsilon": FLOAT[dtype](epsilon)}))
for dtype in FLOAT:
    for alpha in (-1.0, .25, 1.0):
        add("threshold", f"{dtype}-{alpha}", 17, lambda d: ({"x": d((4, 6), FLOAT[dtype])}, {"alpha": FLOAT[dtype](alpha)}))
        add("clip", f"{dtype}-{alpha}", 17, lambda d: (
            {"x": d((4, 6), FLOAT[dtype])}, {"alpha": FLOAT[dtype](-alpha * alpha), "beta": FLOAT[dtype](abs(alpha))}))
add("logical_not", "", 15, lambda d: ({"x": d((3, 4), np.bool_)}, {}))

CAST = {"fp32": "fp32 fp16 int32 bool int8 uint8 int16 uint16", "fp16": "fp32 fp16 int32 bool int8 uint8 int16 uint16",
        "int32": "fp32 fp16 int32 bool int8 uint8 int16 uint16", "bool": "fp32 fp16 int32",
        "int16": "fp32 fp16 int32 bool", "uint16": "fp32 int32", "int8": "fp32 int32 bool", "uint8": "fp16 int32"}
for source, targets in CAST.items():
    for target in targets.split():
        add("cast", f"{source}-{target}", 17, lambda d: (
            {"x": d((5, 4), ALL[source], 0 if "u" in source + target else -5, 5)}, {"dtype": target}))
for target in ("int32", "int16", "int8"):
    add("cast", f"negative-fraction-{target}", 17, lambda d: ({"x": np.array([-1.9, -.5, .5, 1.9, 2.0], np.float32)}, {"dtype": target}))
add("cast", "out-of-range-uint8", 17, lambda d: ({"x": np.array([300.7, -1.9], np.float32)}, {"dtype": "uint8"}),
    skip="coremltools wraps (44, 255); the rule is saturation")

# ---- activations with parameters ----

for dtype, opset in (("fp32", 15), ("fp32", 18), ("fp16", 17)):
    f = FLOAT[dtype]
    for op, consts in (("clamped_relu", {"alpha": .3, "beta": 1.5}), ("clamped_relu", {"alpha": -1.0, "beta": 0.5}),
                       ("elu", {"alpha": 1.3}), ("leaky_relu", {"alpha": .1}), ("linear_activation", {"alpha": 1.7, "beta": -.4}),
                       ("scaled_tanh", {"alpha": 1.2, "beta": .7}), ("sigmoid_hard", {"alpha": .2, "beta": .5}),
                       ("thresholded_relu", {"alpha": .8})):
        add(op, dtype + "-" + "-".join(f"{v}" for v in consts.values()), opset,
            lambda d: ({"x": d((2, 3, 5), f)}, {k: f(v) for k, v in consts.items()}))
    for shape in ((2, 3, 4), (1, 3, 2, 2), (2, 3, 1, 2, 2)):
        same = len(shape) != 4
        add("prelu", f"{dtype}-{shape_name(shape)}", opset, lambda d: (
            {"x": d(shape, f)}, {"alpha": np.full(3, .25, f) if same else d((3,), f, .1, .9)}))
        add("softplus_parametric", f"{dtype}-{shape_name(shape)}", opset, lambda d: (
            {"x": d(shape, f)}, {"alpha": d((3,), f, .5, 2), "beta": d((3,), f, .5, 2)}))
    for mode in (None, "EXACT", "TANH_APPROXIMATION", "SIGMOID_APPROXIMATION"):
        add("gelu", f"{dtype}-{mode}", opset, lambda d: ({"x": d((4, 9), f, -5, 5)}, {} if mode is None else {"mode": mode}))
    for shape, axis in (((7,), 0), ((3, 4), None), ((3, 4), 0), ((2, 3, 4), 1), ((2, 3, 4), -3), ((1, 2, 2, 3, 2), -2)):
        add("softmax", f"{dtype}-{shape_name(shape)}-{axis}", opset, lambda d: (
            {"x": d(shape, f, -9, 9)}, {} if axis is None else {"axis": axis}))

# ---- elementwise binary ----

BROADCAST = [((4,), (4,)), ((2, 3), (3,)), ((2, 1, 4), (3, 1)), ((), (2, 2)), ((1, 2, 3, 1), (2, 1, 2, 1, 4)), ((0, 3), (1, 3))]
ARITHMETIC = ("add", "sub", "mul", "maximum", "minimum")
COMPARE = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
for op in ARITHMETIC + COMPARE:
    for dtype in ("fp32", "fp16", "int32"):
        for i, (a, b) in enumerate(BROADCAST):
            if op in COMPARE and (i in (2, 5)):
                continue
            low, high = (-2, 2) if op in COMPARE and dtype == "int32" else (-5, 5)
            add(op, f"{dtype}-{shape_name(a)}-{shape_name(b)}", opsets_for(dtype)[i % 2], lambda d: (
                {"x": d(a, ALL[dtype], low, high), "y": d(b, ALL[dtype], low, high)}, {}))
    add(op, "constant", 18, lambda d: ({"x": d((3, 4), np.float32)}, {"y": np.float32(1.5)}))
for dtype in ("fp32", "fp16", "int32"):
    for op in ("real_div", "floor_div", "mod"):
        for i, (a, b) in enumerate(BROADCAST[:5]):
            def divide(d):
                y = d(b, ALL[dtype], 1, 4) * d.rng.choice([-1, 1], b).astype(ALL[dtype])
                x = d(a, ALL[dtype], -9, 9)
                if op == "real_div" and dtype == "int32":  # the only use with a defined result: exact quotients
                    x, y = np.broadcast_arrays(x, y)
                    x = x * y
                return {"x": np.asarray(x), "y": np.asarray(y)}, {}
            add(op, f"{dtype}-{shape_name(a)}-{shape_name(b)}", opsets_for(dtype)[i % 2], divide)
    add("pow", dtype, 17, lambda d: ({"x": d((3, 4), ALL[dtype], 1, 4), "y": d((4,), ALL[dtype], 0, 3)}, {}))
add("pow", "negative-base", 17, lambda d: ({"x": np.array([-2, -1.5, 3], np.float32), "y": np.array([2, 3, -1], np.float32)}, {}))
add("pow", "fractional", 15, lambda d: ({"x": d((2, 3), np.float32, .1, 4)}, {"y": np.float32(.5)}))
add("pow", "int-negative-exponent", 17, lambda d: ({"x": np.array([2], np.int32), "y": np.array([-1], np.int32)}, {}),
    skip="coremltools raises on integers to a negative power")
for a, b in itertools.product((7, -7, 7.5, -7.5), (2, -2, 2.5)):
    add("mod", f"{a}-{b}", 17, lambda d: ({"x": np.array([a], np.float32), "y": np.array([b], np.float32)}, {}))
    add("floor_div", f"{a}-{b}", 17, lambda d: ({"x": np.array([a], np.float32), "y": np.array([b], np.float32)}, {}))
for op in ("logical_and", "logical_or", "logical_xor"):
    for a, b in BROADCAST[:4]:
        add(op, f"{shape_name(a)}-{shape_name(b)}", 16, lambda d: ({"x": d(a, np.bool_), "y": d(b, np.bool_)}, {}))

# ---- select, fill, shapes ----

for dtype in ("fp32", "fp16", "int32", "bool"):
    for c, a, b in (((3,), (3,), (3,)), ((2, 3), (2, 3), (2, 3)), ((), (), ())):
        add("select", f"{dtype}-{shape_name(c)}", 17, lambda d: (
            {"cond": d(c, np.bool_), "a": d(a, ALL[dtype]), "b": d(b, ALL[dtype])}, {}))
add("select", "nan-not-chosen", 15, lambda d: (
    {"cond": np.array([True, False]), "a": np.array([1, np.nan], np.float32), "b": np.array([np.inf, 2], np.float32)}, {}))
for value in (np.float32(1.5), np.int32(-3), np.bool_(True), np.float16(.25)):
    for shape in ((3,), (2, 0), (2, 3, 1)):
        add("fill", f"{value.dtype}-{shape_name(shape)}", 17, lambda d: ({"shape": np.array(shape, np.int32)}, {"value": value}))
    add("fill_like", f"{value.dtype}", 17, lambda d: ({"ref_tensor": d((2, 3), np.float32)}, {"value": value}))
for start, end, step in ((0, 5, 1), (5, 0, -2), (2, 2, 1), (-3, 4, 3), (0, 1, 10)):
    add("range_1d", f"int32-{start}-{end}-{step}", 17, lambda d: (
        {"start": np.int32(start), "end": np.int32(end), "step": np.int32(step)}, {}))
    add("range_1d", f"fp32-{start}-{end}-{step}", 15, lambda d: (
        {"start": np.float32(start), "end": np.float32(end), "step": np.float32(step)}, {}))
for shape in ((3,), (2, 0, 4), (1, 2, 3, 4, 5)):
    add("shape", shape_name(shape), 15, lambda d: ({"x": d(shape, np.float32)}, {}))
for dtype in ("fp32", "fp16", "int32", "bool"):
    for shape, new in (((2, 6), (3, 4)), ((2, 3, 4), (-1, 4)), ((24,), (2, 3, 2, 2)), ((1,), ()), ((2, 3, 4), (6, -1, 2, 1))):
        add("reshape", f"{dtype}-{shape_name(shape)}-{shape_name(new)}", 17, lambda d: (
            {"x": d(shape, ALL[dtype])}, {"shape": np.array(new, np.int32)}))
    for shape, axes in (((3,), (0,)), ((2, 3), (1,)), ((2, 3), (-1,)), ((2, 3), (0, 3)), ((), (0, 1))):
        add("expand_dims", f"{dtype}-{shape_name(shape)}-{axes}", 17, lambda d: ({"x": d(shape, ALL[dtype])}, {"axes": np.array(axes)}))
    for shape, axes in (((1, 3), (0,)), ((1, 3, 1), None), ((2, 1, 1, 3), (-2,)), ((1, 1, 2), (0, 1))):
        add("squeeze", f"{dtype}-{shape_name(shape)}-{axes}", 17, lambda d: (
            {"x": d(shape, ALL[dtype])}, {} if axes is None else {"axes": np.array(axes)}))
    for shape, perm in (((2, 3), (1, 0)), ((2, 3, 4), (2, 0, 1)), ((2, 3, 4), (-1, 0, 1)), ((1, 2, 3, 2, 2), (4, 2, 0, 1, 3)),
                        ((5,), (0,)), ((2, 0), (1, 0))):
        add("transpose", f"{dtype}-{shape_name(shape)}-{perm}", 17, lambda d: ({"x": d(shape, ALL[dtype])}, {"perm": np.array(perm)}))
    for shape, reps in (((3,), (2,)), ((2, 3), (2, 1)), ((2, 1, 3), (1, 4, 2)), ((1, 1, 1, 2), (3, 1, 2, 1))):
        add("tile", f"{dtype}-{shape_name(shape)}-{reps}", 17, lambda d: (
            {"x": d(shape, ALL[dtype])}, {"reps": np.array(reps, np.int32)}))
    for shape, axes in (((4,), (0,)), ((2, 3, 4), (1, 2)), ((2, 3, 4), None), ((2, 3), (-1,))):
        add("reverse", f"{dtype}-{shape_name(shape)}-{axes}", 17, lambda d: (
            {"x": d(shape, ALL[dtype])}, {} if axes is None else {"axes": np.array(axes)}))
for axis in (1, 2, -1):  # coremltools cannot fold axis 0
    add("flatten2d", f"{axis}", 15, lambda d: ({"x": d((2, 3, 4), np.float32)}, {"axis": axis}))
# ---- concat, stack, split ----

for dtype in ("fp32", "fp16", "int32", "bool"):
    for shapes, axis in ((((2,), (3,)), 0), (((2, 1), (2, 3), (2, 2)), 1), (((1, 2, 3), (1, 4, 3)), -2), (((2, 0), (2, 2)), 1)):
        add("concat", f"{dtype}-{axis}-{'-'.join(map(shape_name, shapes))}", 17, lambda d: (
            {"values": [d(s, ALL[dtype]) for s in shapes]}, {"axis": axis}))
    for shape, n, axis in (((3,), 2, 0), ((2, 3), 3, 1), ((2, 3), 2, -1), ((2, 3), 1, 2)):
        add("stack", f"{dtype}-{shape_name(shape)}-{n}-{axis}", 17, lambda d: (
            {"values": [d(shape, ALL[dtype]) for _ in range(n)]}, {"axis": axis}))
    for shape, options in (((6,), {"num_splits": 3, "axis": 0}), ((2, 6), {"num_splits": 2, "axis": -1}),
                           ((5, 2), {"split_sizes": np.array([1, 4]), "axis": 0}),
                           ((2, 6, 2), {"split_sizes": np.array([1, 2, 3]), "axis": 1})):
        add("split", f"{dtype}-{shape_name(shape)}-{options['axis']}", 17, lambda d: ({"x": d(shape, ALL[dtype])}, dict(options)))
add("concat", "interleave", 17, lambda d: ({"values": [d((2, 3), np.float32), d((2, 3), np.float32)]}, {"axis": 1, "interleave": True}),
    skip="coremltools folds without interleaving")

# ---- slicing ----

SLICES = [
    ((6,), {"begin": [1], "end": [4]}), ((6,), {"begin": [5], "end": [0], "stride": [-2]}), ((6,), {"begin": [-3], "end": [-1]}),
    ((6,), {"begin": [0], "end": [0], "end_mask": [True]}), ((6,), {"begin": [0], "end": [3], "begin_mask": [True]}),
    ((6,), {"begin": [0], "end": [0], "stride": [-1], "begin_mask": [True], "end_mask": [True]}),
    ((6,), {"begin": [2], "end": [100], "stride": [2]}), ((6,), {"begin": [-100], "end": [3]}),
    ((4, 5), {"begin": [1, 0], "end": [3, 5]}), ((4, 5), {"begin": [1, 2], "end": [2, 4], "squeeze_mask": [True, False]}),
    ((4, 5), {"begin": [-1, 0], "end": [0, 0], "squeeze_mask": [True, False], "end_mask": [False, True]}),
    ((2, 3, 4), {"begin": [0, 2, 0], "end": [2, 0, 4], "stride": [1, -1, 3]}),
    ((2, 3, 4), {"begin": [0, 0, -2], "end": [1, 0, 0], "end_mask": [False, True, True]}),
    ((2, 2, 2, 3, 2), {"begin": [0, 1, 0, 0, 0], "end": [2, 2, 2, 2, 1], "stride": [1, 1, 1, 2, 1]}),
    ((6,), {"begin": [3], "end": [2147483647]}),
]
for dtype in ("fp32", "fp16", "int32", "bool"):
    for i, (shape, consts) in enumerate(SLICES):
        add("slice_by_index", f"{dtype}-{i}", (15, 17, 18)[i % 3] if dtype != "fp16" else 17, lambda d: (
            {"x": d(shape, ALL[dtype])}, {k: np.array(v) for k, v in consts.items()}))
for i, (shape, consts) in enumerate(SLICES):
    add("slice_by_index", f"runtime-{i}", 17, lambda d: (
        {"x": d(shape, np.float32), "begin": np.array(consts["begin"], np.int32), "end": np.array(consts["end"], np.int32)},
        {k: np.array(v) for k, v in consts.items() if k not in ("begin", "end")}))
for shape, begin, size in (((6,), (2,), (3,)), ((4, 5), (1, 0), (2, -1)), ((2, 3, 4), (0, 1, 2), (2, 2, 1)), ((4, 5), (0, 0), (-1, -1))):
    add("slice_by_size", shape_name(shape) + f"-{size}", 15, lambda d: (
        {"x": d(shape, np.float32), "begin": np.array(begin, np.int32)}, {"size": np.array(size, np.int32)}))
for dtype in ("fp32", "fp16", "int32"):
    for i, (shape, consts) in enumerate(SLICES):
        if "squeeze_mask" in consts:
            continue
        def update(d):
            index = tuple(slice(None if consts.get("begin_mask", [False] * 9)[k] else b, None if consts.get("end_mask", [False] * 9)[k] else e,
                                consts.get("stride", [1] * 9)[k]) for k, (b, e) in enumerate(zip(consts["begin"], consts["end"])))
            x = d(shape, ALL[dtype])
            return {"x": x, "update": d(x[index].shape, ALL[dtype])}, {k: np.array(v) for k, v in consts.items()}
        add("slice_update", f"{dtype}-{i}", 18, update)

# ---- gather, scatter ----

for dtype in ("fp32", "fp16", "int32"):
    for shape, index_shape, axis in (((5,), (3,), 0), ((5, 3), (2,), 0), ((4, 5), (2, 3), 1), ((2, 3, 4), (2,), -2), ((4, 3), (), 0)):
        for opset in (15 if dtype != "fp16" else 16, 17):
            add("gather", f"{dtype}-{shape_name(shape)}-{shape_name(index_shape)}-{axis}", opset, lambda d: (
                {"x": d(shape, ALL[dtype]), "indices": d(index_shape, np.int32, 0, shape[axis] - 1)}, {"axis": axis}))
    for batch_dims, shape, index_shape, axis in ((1, (2, 5), (2, 3), 1), (1, (2, 3, 4), (2, 2), 2), (2, (2, 3, 4), (2, 3, 2), 2)):
        add("gather", f"{dtype}-batch{batch_dims}-{shape_name(shape)}-{axis}", 17, lambda d: (
            {"x": d(shape, ALL[dtype]), "indices": d(index_shape, np.int32, 0, shape[axis] - 1)},
            {"axis": axis, "batch_dims": batch_dims, "validate_indices": False}))
    for shape, index_shape, axis in (((5,), (3,), 0), ((4, 3), (4, 2), 1), ((4, 3), (6, 3), 0), ((2, 3, 4), (2, 3, 1), -1)):
        add("gather_along_axis", f"{dtype}-{shape_name(shape)}-{axis}", 17, lambda d: (
            {"x": d(shape, ALL[dtype]), "indices": d(index_shape, np.int32, 0, shape[axis] - 1)}, {"axis": axis}))
for dtype in ("uint16", "int16", "uint8", "int8"):
    add("gather", f"indices-{dtype}", 17, lambda d: ({"x": d((6, 2), np.float32), "indices": d((4,), INT[dtype], 0, 5)}, {"axis": 0}))
    add("gather", f"x-{dtype}", 17, lambda d: ({"x": d((6, 2), INT[dtype], 0, 9), "indices": d((4,), np.int32, 0, 5)}, {"axis": 0}))
add("gather", "negative-index", 15, lambda d: ({"x": d((5, 2), np.float32), "indices": np.array([-1, 2, -5], np.int32)}, {"axis": 0}))
add("gather", "negative-index", 17, lambda d: ({"x": d((5, 2), np.float32), "indices": np.array([-1, 2], np.int32)}, {"axis": 0}),
    skip="coremltools folds with wrapped indices; from iOS 17 a negative index is out of bounds at run time")
for mode in ("add", "sub", "mul", "div", "max", "min", "update"):
    for axis in (0, 1):
        def scatter(d):
            data = d((3, 4), np.float32, 1, 4)
            shape = (2, 4) if axis == 0 else (3, 3)
            # every target once, so that the order of updates does not matter
            indices = np.stack([d.rng.permutation(data.shape[axis])[: shape[axis]] for _ in range(shape[1 - axis])], 1 if axis == 0 else 0)
            return {"data": data, "indices": indices.astype(np.int32), "updates": d(shape, np.float32, 1, 4)}, {"axis": axis, "mode": mode}
        add("scatter_along_axis", f"{mode}-{axis}", 15 if axis else 17, scatter,
            skip=None if mode == "update" else "coremltools folds every mode as `update`")

# ---- reductions ----

REDUCE = ("reduce_l1_norm", "reduce_l2_norm", "reduce_max", "reduce_mean", "reduce_min", "reduce_prod", "reduce_sum",
          "reduce_sum_square", "reduce_log_sum", "reduce_log_sum_exp")
for op in REDUCE:
    low, high = (.1, 3) if op == "reduce_log_sum" else (-2, 2)
    for dtype in ("fp32", "fp16") + (("int32",) if op not in ("reduce_log_sum", "reduce_log_sum_exp", "reduce_l2_norm", "reduce_mean") else ()):
        for shape, axes, keep in (((7,), None, False), ((3, 4), (0,), True), ((3, 4), (-1,), False), ((2, 3, 4), (0, 2), True),
                                  ((2, 3, 4), (1,), False), ((2, 3, 4), None, True)):
            if op == "reduce_log_sum_exp" and axes is not None and len(axes) > 1:
                continue
            add(op, f"{dtype}-{shape_name(shape)}-{axes}-{keep}", 16, lambda d: (
                {"x": d(shape, ALL[dtype], low, high)}, {"keep_dims": keep, **({} if axes is None else {"axes": np.array(axes)})}))
for op in ("reduce_argmax", "reduce_argmin"):
    for dtype in ("fp32", "fp16", "int32"):
        for shape, axis, keep in (((7,), 0, True), ((3, 4), 1, False), ((3, 4), -2, True), ((2, 3, 4), None, False)):
            add(op, f"{dtype}-{shape_name(shape)}-{axis}-{keep}", 16, lambda d: (
                {"x": d(shape, ALL[dtype], -9, 9)}, {"keep_dims": keep, **({} if axis is None else {"axis": axis})}))
    add(op, "ties", 17, lambda d: ({"x": np.array([[1, 3, 3, 1, 1]], np.float32)}, {"axis": 1, "keep_dims": False}))

# ---- normalization, linear algebra ----

for dtype, opset in (("fp32", 15), ("fp16", 17)):
    f = FLOAT[dtype]
    for shape, axes in (((3, 8), (-1,)), ((2, 3, 4), (1, 2)), ((2, 3, 4), (2,)), ((2, 4, 3), (-1,))):
        for affine in (False, True):
            add("layer_norm", f"{dtype}-{shape_name(shape)}-{axes}-{affine}", opset, lambda d: (
                {"x": d(shape, f)}, {"axes": np.array(axes), "epsilon": f(1e-3), **(
                    {"gamma": d([shape[a] for a in axes], f, .5, 2), "beta": d([shape[a] for a in axes], f)} if affine else {})}))
    for shape in ((2, 3, 4), (1, 2, 3, 2)):
        add("l2_norm", f"{dtype}-{shape_name(shape)}", opset, lambda d: ({"x": d(shape, f)}, {"epsilon": f(1e-3)}))
    for a, b in (((3, 4), (5, 4)), ((2, 3, 4), (5, 4)), ((1, 4), (7, 4)), ((4,), (5, 4))):
        for bias in (False, True):
            add("linear", f"{dtype}-{shape_name(a)}-{shape_name(b)}-{bias}", opset, lambda d: (
                {"x": d(a, f)}, {"weight": d(b, f), **({"bias": d(b[:1], f)} if bias else {})}))
    for a, b, tx, ty in (((3, 4), (4, 5), False, False), ((4, 3), (4, 5), True, False), ((3, 4), (5, 4), False, True),
                         ((2, 3, 4), (2, 4, 2), False, False), ((2, 1, 3, 4), (3, 4, 2), False, False), ((4, 3), (5, 4), True, True)):
        add("matmul", f"{dtype}-{shape_name(a)}-{shape_name(b)}-{tx}-{ty}", opset, lambda d: (
            {"x": d(a, f), "y": d(b, f)}, {"transpose_x": tx, "transpose_y": ty}))
    for equation, a, b in (("nchw,nwhu->nchu", (1, 2, 3, 4), (1, 4, 3, 5)), ("chw,whr->chr", (2, 3, 4), (4, 3, 5))):
        add("einsum", f"{dtype}-{equation}", opset, lambda d: ({"values": [d(a, f), d(b, f)]}, {"equation": equation}))
    for q, k, v, m in (((1, 3, 4), (1, 5, 4), (1, 5, 4), None), ((1, 2, 3, 4), (1, 2, 5, 4), (1, 2, 5, 6), (1, 1, 3, 5)),
                       ((2, 2, 1, 8), (2, 2, 7, 8), (2, 2, 7, 8), (1, 7)), ((1, 2, 3, 4), (1, 2, 3, 4), (1, 2, 3, 4), "bool")):
        def attention(d):
            inputs = {"query": d(q, f), "key": d(k, f), "value": d(v, f)}
            if m == "bool":
                inputs["attn_mask"] = np.tril(np.ones((q[-2], k[-2]), np.bool_))
            elif m:
                inputs["attn_mask"] = d(m, f)
            return inputs, {}
        add("scaled_dot_product_attention", f"{dtype}-{shape_name(q)}-{m}", 18, attention)

# ---- sorting, cumulative, the rest ----

for dtype in ("fp32", "fp16", "int32"):
    def distinct(d, shape):
        return d.rng.permutation(int(np.prod(shape))).reshape(shape).astype(ALL[dtype])
    for shape, axis, ascending in (((7,), -1, False), ((3, 5), 1, True), ((3, 5), 0, False), ((2, 3, 4), 1, True)):
        if dtype != "int32":
            add("argsort", f"{dtype}-{shape_name(shape)}-{axis}-{ascending}", 17, lambda d: (
                {"x": distinct(d, shape)}, {"axis": axis, "ascending": ascending}))
        for opset in (16, 17) if dtype != "int32" else (17,):
            add("topk", f"{dtype}-{shape_name(shape)}-{axis}-{ascending}", opset, lambda d: (
                {"x": distinct(d, shape)}, {"k": 3, "axis": axis, "ascending": ascending}))
    for shape, axis, exclusive, reverse in (((5,), 0, False, False), ((3, 4), 1, False, True), ((3, 4), 0, False, True), ((2, 3, 4), -1, False, False)):
        add("cumsum", f"{dtype}-{shape_name(shape)}-{axis}-{exclusive}-{reverse}", 16, lambda d: (
            {"x": d(shape, ALL[dtype])}, {"axis": axis, "exclusive": exclusive, "reverse": reverse}))
    add("non_zero", dtype, 17, lambda d: ({"x": d((3, 4), ALL[dtype]) * d((3, 4), np.bool_).astype(ALL[dtype])}, {}))
add("topk", "all", 17, lambda d: ({"x": np.array([[3, 1, 2]], np.float32)}, {"k": -1, "axis": 1}),
    skip="coremltools gives n - 1 elements for k = -1; the rule is all of them")
for dtype in FLOAT:
    for lower, upper in ((-1, 0), (0, -1), (1, 1), (0, 0), (-1, -1), (2, 0)):
        for shape in ((4, 4), (2, 3, 5)):
            add("band_part", f"{dtype}-{shape_name(shape)}-{lower}-{upper}", 17, lambda d: (
                {"x": d(shape, FLOAT[dtype])}, {"lower": lower, "upper": upper}))
for dtype in ("fp32", "fp16"):
    for shape, pad, mode in (((4,), (1, 2), "constant"), ((2, 3), (0, 1, 2, 0), "constant"), ((1, 2, 4), (1, 2), "reflect"),
                             ((1, 2, 4), (2, 1), "replicate"), ((2, 3, 4), (1, 1, 2, 0), "reflect"), ((2, 3), (1, 0, 0, 1), "replicate")):
        add("pad", f"{dtype}-{shape_name(shape)}-{pad}-{mode}", 17, lambda d: (
            {"x": d(shape, ALL[dtype])}, {"pad": np.array(pad), "mode": mode, **({"constant_val": ALL[dtype](2)} if mode == "constant" else {})}))
for dtype, target in itertools.product(FLOAT, ("int8", "uint8")):
    add("quantize", f"{dtype}-{target}", 17, lambda d: (
        {"input": d((3, 8), FLOAT[dtype], 0 if target == "uint8" else -4, 4)},
        {"scale": FLOAT[dtype](.03125), "output_dtype": target}))
    add("quantize", f"{dtype}-{target}-channel", 17, lambda d: (
        {"input": d((3, 8), FLOAT[dtype], -4, 4)},
        {"scale": np.array([.03125, .0625, .125], FLOAT[dtype]), "zero_point": d((3,), INT[target], 0, 20), "axis": 0, "output_dtype": target}))

CASES = list(_cases)
