#!/usr/bin/env python3
"""Writes tests/unit/data/infer_cases.json: operators as coremltools builds them, with the types it infers.

    python3 tests/oracle/make_infer_cases.py > tests/unit/data/infer_cases.json

Needs coremltools 9. A case is one operator with all its inputs as coremltools records them (defaults included), the
names of those that were given, and the types of its results. Sizes: numbers; symbols of the inputs as numbers below
-1; null where coremltools makes a symbol of its own. `reject` cases are those that coremltools refuses.
"""
import itertools
import json
import sys

import coremltools as ct
import numpy as np
from coremltools.converters.mil import Builder as mb
from coremltools.converters.mil.mil import get_new_symbol, types
from coremltools.converters.mil.mil.types.symbolic import is_symbolic

OPSETS = {15: ct.target.iOS15, 16: ct.target.iOS16, 17: ct.target.iOS17, 18: ct.target.iOS18}
DTYPES = {"fp16": types.fp16, "fp32": types.fp32, "int32": types.int32, "bool": types.bool, "int8": types.int8,
          "uint8": types.uint8, "int16": types.int16, "uint16": types.uint16}
SUB_BYTE = {"int4", "uint1", "uint2", "uint3", "uint4", "uint6"}
VALUES_MAX = 64
cases = []


class T:
    """A tensor known at run time only. Sizes that are strings are symbols."""

    def __init__(self, *shape, dtype="fp32"):
        self.shape, self.dtype = shape, dtype


def i32(*v):
    return np.array(v, np.int32)


def build(opset, op, args):
    """The operator as built, and the placeholders' symbols."""
    symbols, specs, holders, built = {}, [], [], []

    def placeholder(t):
        shape = t.shape or (1,)
        shape = [symbols.setdefault(d, get_new_symbol()) if isinstance(d, str) else d for d in shape]
        specs.append(mb.TensorSpec(shape=tuple(shape), dtype=DTYPES[t.dtype]))
        holders.append(t)

    def each(f, v):
        if isinstance(v, T):
            return f(v)
        return [each(f, x) for x in v] if isinstance(v, (list, tuple)) else v

    for v in args.values():
        each(placeholder, v)
    specs.append(mb.TensorSpec(shape=(1,), dtype=types.fp32))
    names = [f"a{i}" for i in range(len(specs))]

    def body(*variables):
        # An input cannot be a scalar: one element, squeezed.
        given = {id(t): v if t.shape else mb.squeeze(x=v, axes=[0]) for t, v in zip(holders, variables)}
        result = getattr(mb, op)(**{k: each(lambda t: given[id(t)], v) for k, v in args.items()})
        built.append((result[0] if isinstance(result, (list, tuple)) else result).op)
        return variables[-1]

    main = eval(f"lambda {', '.join(names)}: body({', '.join(names)})", {"body": body})
    mb.program(input_specs=specs, opset_version=OPSETS[opset])(main)
    return built[0], symbols


def size(d, numbers):
    return numbers.get(d) if is_symbolic(d) else int(d)


def type_of(var, numbers):
    dtype = types.builtin_to_string(var.dtype)
    return {"dtype": dtype, "shape": [size(d, numbers) for d in var.shape]}


def value_of(var):
    if var.val is None:
        return {}
    v = np.array(var.val)
    if types.builtin_to_string(var.dtype) in SUB_BYTE or v.size > VALUES_MAX:
        return {"const": True}
    return {"value": v.reshape(-1).tolist()}


def record(op, numbers):
    inputs = {}
    for name, value in op.inputs.items():
        if value is None:
            continue
        several = isinstance(value, (list, tuple))
        inputs[name] = [dict(type_of(v, numbers), **value_of(v)) for v in (value if several else [value])]
    return inputs


def case(opset, name, **args):
    try:
        op, symbols = build(opset, name, args)
    except Exception as e:
        sys.exit(f"{name} (iOS {opset}) {args}: {type(e).__name__} {e}")
    numbers = {s: -2 - i for i, s in enumerate(symbols.values())}
    cases.append({"op": name, "opset": opset, "inputs": record(op, numbers), "given": list(args),
                  "out": [type_of(v, numbers) for v in op.outputs]})


def reject(opset, name, **args):
    """What coremltools refuses. The inputs are written as they are given."""
    try:
        build(opset, name, args)
    except Exception:
        pass
    else:
        sys.exit(f"coremltools accepts {name} {args}")

    def plain(v):
        if isinstance(v, T):
            return {"dtype": v.dtype, "shape": [-2 - ord(d) + ord("a") if isinstance(d, str) else d for d in v.shape]}
        a = np.array(v)
        if a.dtype.kind == "U":
            return {"dtype": "string", "shape": [], "value": [str(v)]}
        kinds = {"bool": "bool", "float64": "fp32", "float32": "fp32", "float16": "fp16"}
        dtype = kinds.get(str(a.dtype), "int32" if str(a.dtype) == "int64" else str(a.dtype))
        contents = {"const": True} if a.size > VALUES_MAX else {"value": a.reshape(-1).tolist()}
        return dict(dtype=dtype, shape=list(a.shape), **contents)

    inputs = {k: [plain(x) for x in v] if isinstance(v, (list, tuple)) else [plain(v)] for k, v in args.items()}
    cases.append({"op": name, "opset": opset, "inputs": inputs, "given": list(args), "reject": True})


SHAPES = [(), (3,), (2, 3), ("s", 4), (1, 2, 3, 4), (1, "s", 2, "t", 3)]


def elementwise():
    for op in ("relu relu6 sigmoid silu softplus softsign acos asin atan atanh ceil cos cosh erf exp floor round sin "
               "sinh sqrt tan tanh").split():
        case(15, op, x=T(2, "s", dtype="fp16"))
    for op, dtype in itertools.product("abs exp2 sign square".split(), ("fp16", "int32")):
        case(15, op, x=T(1, 3, dtype=dtype))
    for shape in SHAPES:
        case(15, "tanh", x=T(*shape))
    for op in ("elu", "leaky_relu", "thresholded_relu"):
        case(15, op, x=T(2, 3), alpha=np.float32(0.5))
        case(17, op, x=T(2, 3, dtype="fp16"), alpha=np.float32(0.5))
    for op in ("clamped_relu", "linear_activation", "scaled_tanh", "sigmoid_hard"):
        case(15, op, x=T(2, "s"), alpha=np.float32(0.5), beta=np.float32(1))
    for op in ("inverse", "log", "rsqrt"):
        case(15, op, x=T(2, 3))
        case(17, op, x=T(2, 3, dtype="fp16"), epsilon=np.float32(1e-3))
    for mode in ("EXACT", "TANH_APPROXIMATION", "SIGMOID_APPROXIMATION"):
        case(15, "gelu", x=T(2, 3), mode=mode)
    reject(15, "gelu", x=T(2, 3), mode="exact")
    case(15, "threshold", x=T(4, dtype="int32"), alpha=np.int32(3))
    case(15, "clip", x=T(4), alpha=np.float32(0), beta=np.float32(0))
    case(17, "clip", x=T(4), alpha=np.float32(0), beta=np.float32(6))
    reject(17, "clip", x=T(4), alpha=np.float32(6), beta=np.float32(6))
    case(15, "logical_not", x=T(2, 2, dtype="bool"))
    for rank in (3, 4, 5):
        case(15, "prelu", x=T(*([2] * rank)), alpha=np.float32([0.5, 0.5]))
    reject(15, "prelu", x=T(2, 2, 2), alpha=np.float32([0.5, 0.6]))
    reject(15, "prelu", x=T(2, 2), alpha=np.float32([0.5, 0.5]))
    reject(15, "prelu", x=T(2, 3, 2, 2), alpha=np.float32([0.5, 0.5]))
    case(15, "softplus_parametric", x=T(1, 2, 3), alpha=np.float32([1, 2]), beta=np.float32([1, 2]))
    reject(15, "softplus_parametric", x=T(1, 2, 3), alpha=np.float32([1, 2, 3]), beta=np.float32([1, 2]))
    for axis in (-1, 0, 1):
        case(15, "softmax", x=T(2, "s"), axis=axis)
    for opset, src, dst in itertools.product((15, 17), ("fp16", "fp32", "int32", "bool"), ("fp16", "fp32", "int32", "bool")):
        case(opset, "cast", x=T(2, "s", dtype=src), dtype=dst)
    for dst in ("int8", "uint8", "int16", "uint16"):
        case(17, "cast", x=T(dtype="int32"), dtype=dst)
        case(17, "cast", x=T(3, dtype=dst), dtype="fp32")
    reject(17, "cast", x=T(3), dtype="float")
    for op in "add floor_div maximum minimum mod mul real_div pow sub equal greater greater_equal less less_equal not_equal".split():
        case(15, op, x=T(2, 1, 3), y=T(4, 1))
        case(15, op, x=T(dtype="int32"), y=T("s", dtype="int32"))
    for op in ("logical_and", "logical_or", "logical_xor"):
        case(15, op, x=T(2, 1, dtype="bool"), y=T(3, dtype="bool"))
    pairs = [((), ()), ((3,), ()), ((2, 3), (3,)), ((1,), (5,)), (("s",), (1,)), (("s",), (4,)), (("s",), ("s",)),
             (("s",), ("t",)), (("s", 1), (1, "t")), ((1, "s", 4), (2, 1, 1)), ((2, 3, 1, 5), (1, 4, 1))]
    for a, b in pairs:
        case(15, "add", x=T(*a), y=T(*b))
    reject(15, "add", x=T(2), y=T(3))
    reject(15, "mul", x=T(2, 3), y=T(2, 1, 2))
    case(15, "select", cond=T(2, 3, dtype="bool"), a=T(2, 3), b=T())
    case(15, "select", cond=T(dtype="bool"), a=T("s", 3, dtype="int32"), b=T("s", 1, dtype="int32"))
    reject(15, "select", cond=T(2, dtype="bool"), a=T(2, 3), b=T(2, 2))


def normalization():
    v = np.ones(3, np.float32)
    for opset, x in ((15, T(1, 3, 4)), (15, T(1, 3, 4, "s")), (17, T(1, 3, 4, 2, 2, dtype="fp16"))):
        case(opset, "batch_norm", x=x, mean=v, variance=v, gamma=v, beta=v)
    case(15, "instance_norm", x=T(2, 3, 4))
    case(15, "instance_norm", x=T(2, 3, 4, 5), gamma=v, beta=v)
    for rank in (3, 4):
        case(15, "l2_norm", x=T(*([2] * rank)))
    reject(15, "l2_norm", x=T(2, 2))
    for axes in ((-1,), (1, 2), (0, 1, 2), (-2,)):
        case(15, "layer_norm", x=T(2, "s", 3), axes=i32(*axes))
    case(15, "layer_norm", x=T(2, "s", 3), axes=i32(-1), gamma=v, beta=v)
    reject(15, "layer_norm", x=T(2, 3, 4), axes=i32(-1), gamma=v)
    reject(15, "layer_norm", x=T(2, 3), axes=i32(2))
    case(15, "local_response_norm", x=T(1, 3, 4, 4), size=3)


def reductions():
    ops = ["reduce_" + s for s in "l1_norm l2_norm log_sum log_sum_exp max mean min prod sum sum_square".split()]
    for op in ops:
        case(15, op, x=T(2, 3, 4), axes=i32(1))
        case(15, op, x=T(2, "s", dtype="fp16"))
    for axes, keep in itertools.product(((0,), (-1,), (0, 2), (2, -3), (0, 1, 2)), (False, True)):
        case(15, "reduce_sum", x=T(2, "s", 4, dtype="int32"), axes=i32(*axes), keep_dims=keep)
    case(15, "reduce_max", x=T())
    case(15, "reduce_max", x=T(2, 3), keep_dims=True)
    reject(15, "reduce_sum", x=T(2, 3), axes=i32(2))
    for op, keep, axis in itertools.product(("reduce_argmax", "reduce_argmin"), (False, True), (-1, 0)):
        case(15, op, x=T(2, "s"), axis=axis, keep_dims=keep)
    for dtype in ("int32", "uint16"):
        case(17, "reduce_argmax", x=T(2, 3, dtype="fp16"), axis=1, output_dtype=dtype)
    reject(17, "reduce_argmax", x=T(2, 3), output_dtype="int64")


def linear():
    for x in (T(4), T(2, 4), T(1, "s", 4), T(2, 1, "s", 4), T(2, "t")):
        case(15, "linear", x=x, weight=np.ones((3, 4), np.float32))
        case(15, "linear", x=x, weight=np.ones((3, 4), np.float32), bias=np.ones(3, np.float32))
    case(17, "linear", x=T(2, 4, dtype="fp16"), weight=np.ones((3, 4), np.float32))
    reject(15, "linear", x=T(2, 4), weight=np.ones((3, 5), np.float32))
    reject(15, "linear", x=T(2, 4), weight=np.ones((3, 4), np.float32), bias=np.ones(4, np.float32))
    pairs = [((2, 3), (3, 4)), ((3,), (3, 4)), ((5, 2, 3), (3, 4)), ((2, 3), (5, 3, 4)), (("b", 2, 3), ("b", 3, "n")),
             ((1, 2, 3), (6, 3, 4)), ((5, 1, 2, 3), (7, 3, 4)), (("b", "m", "k"), (1, "k", 4))]
    for a, b in pairs:
        case(15, "matmul", x=T(*a), y=T(*b))
    for tx, ty in itertools.product((False, True), (False, True)):
        a, b = ((2, 4, 3) if tx else (2, 3, 4)), ((2, 5, 4) if ty else (2, 4, 5))
        case(15, "matmul", x=T(*a, dtype="fp16"), y=T(*b, dtype="fp16"), transpose_x=tx, transpose_y=ty)
    case(17, "matmul", x=T(2, 3, dtype="fp16"), y=np.ones((3, 4), np.float32))
    case(17, "matmul", x=np.ones((2, 3), np.float32), y=T(3, 4, dtype="fp16"))
    reject(17, "matmul", x=T(2, 3, dtype="fp16"), y=T(3, 4))
    reject(15, "matmul", x=T(2, 3), y=T(4, 3))
    reject(15, "matmul", x=T(3), y=T(3, 4), transpose_x=True)
    reject(15, "matmul", x=T(2, 2, 3), y=T(3, 3, 4))
    case(15, "einsum", values=[T(2, 3, 4, 5), T(2, 5, 4, 6)], equation="nchw,nwhu->nchu")
    case(15, "einsum", values=[T(1, 3, 1, 5), T(2, 5, 4, 6)], equation="nchw,nwhu->nchu")
    case(15, "einsum", values=[T(2, 3, "s", 5), T(2, 5, "s", 6)], equation="abcd,adce->abce")
    case(15, "einsum", values=[T(3, 4, 5), T(5, 4, 6)], equation="chw,whr->chr")
    reject(15, "einsum", values=[T(3, 4, 5), T(6, 4, 6)], equation="chw,whr->chr")
    reject(15, "einsum", values=[T(3, 4, 5), T(5, 4, 6)], equation="chw,whr")
    for q, k, v, m in (((1, 2, 3, 4), (1, 2, 5, 4), (1, 2, 5, 6), (1, 1, 3, 5)), ((2, "l", 4), (2, "k", 4), (2, "k", 4), None),
                       ((1, 2, "l", 4), (1, 2, "k", 4), (1, 2, "k", 4), (1, 1, "l", "k")), ((2, 3, 4), (2, 5, 4), (2, 5, 4), (5,))):
        mask = {} if m is None else {"attn_mask": T(*m)}
        case(18, "scaled_dot_product_attention", query=T(*q), key=T(*k), value=T(*v), **mask)
    case(18, "scaled_dot_product_attention", query=T(1, 2, 4, dtype="fp16"), key=T(1, 3, 4, dtype="fp16"),
         value=T(1, 3, 4, dtype="fp16"), attn_mask=T(2, 3, dtype="bool"))
    reject(18, "scaled_dot_product_attention", query=T(2, 4), key=T(3, 4), value=T(3, 4))
    reject(18, "scaled_dot_product_attention", query=T(1, 2, 4), key=T(1, 3, 5), value=T(1, 3, 4))
    reject(18, "scaled_dot_product_attention", query=T(1, 2, 4), key=T(1, 3, 4), value=T(1, 2, 4))
    reject(18, "scaled_dot_product_attention", query=T(1, 2, 4), key=T(2, 3, 4), value=T(2, 3, 4))
    reject(18, "scaled_dot_product_attention", query=T(1, 2, 4), key=T(1, 3, 4), value=T(1, 3, 4), attn_mask=T(2, 4))


def convolution():
    def w(*shape):
        return np.ones(shape, np.float32)

    case(15, "conv", x=T(1, 2, 8), weight=w(3, 2, 3))
    case(15, "conv", x=T(1, 2, 8, 9), weight=w(3, 2, 3, 3), bias=w(3))
    case(15, "conv", x=T(1, 2, 8, 9, 7), weight=w(3, 2, 3, 3, 2))
    case(15, "conv", x=T(1, 4, 1, "s", dtype="fp16"), weight=np.ones((3, 4, 1, 1), np.float16))
    for pad_type, stride, dilation, n in itertools.product(("valid", "same", "custom"), (1, 2, 3), (1, 2), (7, 8)):
        pad = {"pad": i32(1, 2)} if pad_type == "custom" else {}
        case(16, "conv", x=T(1, 2, n), weight=w(3, 2, 3), pad_type=pad_type, strides=i32(stride),
             dilations=i32(dilation), **pad)
    case(16, "conv", x=T(1, 2, 7), weight=w(3, 2, 2), pad_type="same_lower", strides=i32(2))
    case(15, "conv", x=T(1, 4, 8), weight=w(4, 1, 3), groups=4)
    case(17, "conv", x=T(1, 2, 8, dtype="fp16"), weight=w(3, 2, 3), bias=w(3))
    case(17, "conv", x=T(1, 2, 8), weight=T(3, 2, 3), bias=T(3))
    reject(15, "conv", x=T(1, 2, 7), weight=w(3, 2, 2), pad_type="same_lower")
    reject(15, "conv", x=T(1, 3, 8), weight=w(3, 2, 3))
    reject(15, "conv", x=T(1, 2, 2), weight=w(3, 2, 3))
    reject(15, "conv", x=T(1, 2, 8), weight=w(3, 2, 3), bias=w(4))
    reject(15, "conv", x=T(1, 2, 8), weight=w(3, 2, 3), pad_type="full")
    reject(15, "conv", x=T(1, 2, 8), weight=w(3, 2, 3), pad_type="custom", pad=i32(1))
    for pad_type, stride, dilation in itertools.product(("valid", "same", "custom"), (1, 2), (1, 2)):
        pad = {"pad": i32(1, 0)} if pad_type == "custom" else {}
        case(15, "conv_transpose", x=T(1, 2, 5), weight=w(2, 3, 3), pad_type=pad_type, strides=i32(stride),
             dilations=i32(dilation), **pad)
    case(15, "conv_transpose", x=T(1, 4, 5, 6), weight=w(4, 3, 2, 2), groups=2, strides=i32(2, 2), bias=w(6))
    case(15, "conv_transpose", x=T(1, 2, 5), weight=w(2, 3, 3), strides=i32(2), output_shape=i32(1, 3, 12),
         pad_type="custom", pad=i32(0, 0))
    reject(15, "conv_transpose", x=T(1, 2, 5), weight=w(2, 3, 3), bias=w(4))
    for op, pad_type, stride, n in itertools.product(("avg_pool", "max_pool", "l2_pool"), ("valid", "same", "custom"), (1, 2), (7, 8)):
        pad = {"pad": i32(1, 1)} if pad_type == "custom" else {}
        case(15, op, x=T(1, 2, n), kernel_sizes=i32(3), strides=i32(stride), pad_type=pad_type, **pad)
    for stride, pad, n in itertools.product((1, 2, 3), (0, 1), (5, 6, 7, 8)):
        case(15, "max_pool", x=T(1, 2, n, 9), kernel_sizes=i32(2, 3), strides=i32(stride, stride), pad_type="custom",
             pad=i32(pad, pad, pad, pad), ceil_mode=True)
    case(15, "avg_pool", x=T(1, 2, 4, 4, 4), kernel_sizes=i32(2, 2, 2), pad_type="valid", exclude_padding_from_average=True)
    reject(15, "l2_pool", x=T(1, 2, 4, 4, 4), kernel_sizes=i32(2, 2, 2), pad_type="valid")
    reject(15, "max_pool", x=T(1, 2, 4, 4, 4), kernel_sizes=i32(2, 2, 2), pad_type="valid", ceil_mode=True)
    reject(15, "max_pool", x=T(1, 2, 4), kernel_sizes=i32(2), pad_type="same", ceil_mode=True)
    reject(15, "max_pool", x=T(1, 2, 4), kernel_sizes=i32(2), pad_type="custom", pad=i32(0, 1), ceil_mode=True)
    reject(15, "max_pool", x=T(1, 2, 4), kernel_sizes=i32(2), pad_type="same_lower")
    reject(15, "max_pool", x=T(1, 2, 4), kernel_sizes=i32(5), pad_type="valid")
    reject(15, "max_pool", x=T(1, 2, 4), kernel_sizes=i32(2, 2), pad_type="valid")


def gather():
    for opset, axis in itertools.product((15, 17), (0, 1, -1)):
        case(opset, "gather", x=T(4, "s", 3), indices=T(2, "t", dtype="int32"), axis=axis)
        case(opset, "gather", x=T(4, 5, dtype="int32"), indices=T(dtype="int32"), axis=axis if axis < 2 else 0)
    case(15, "gather", x=T(4), indices=T(dtype="int32"))
    for batch, axis in ((0, 1), (1, 1), (1, 2), (2, 2)):
        case(16, "gather", x=T(2, 3, 4, 5), indices=T(2, 3, 6, dtype="int32"), axis=axis, batch_dims=batch)
    case(17, "gather", x=T(8, 4, dtype="int8"), indices=T(3, dtype="uint16"))
    reject(15, "gather", x=T(4, 5), indices=T(2, dtype="int32"), axis=2)
    reject(16, "gather", x=T(4, 5), indices=T(2, dtype="int32"), batch_dims=2, axis=1)
    for axis in (0, 1, -1):
        idx = [2, 3]
        idx[axis] = 7
        case(15, "gather_along_axis", x=T(2, 3), indices=T(*idx, dtype="int32"), axis=axis)
    case(17, "gather_along_axis", x=T(2, "s", dtype="fp16"), indices=T(2, 5, dtype="int16"), axis=1)
    reject(15, "gather_along_axis", x=T(2, 3), indices=T(4, 4, dtype="int32"), axis=1)
    reject(15, "gather_along_axis", x=T(2, 3), indices=T(2, dtype="int32"), axis=0)
    for k in (1, 2, 3):
        case(15, "gather_nd", x=T(2, 3, 4), indices=T(5, "s", k, dtype="int32"))
    case(16, "gather_nd", x=T(2, 3, 4, 5), indices=T(2, 6, 2, dtype="int32"), batch_dims=1)
    reject(15, "gather_nd", x=T(2, 3), indices=T(5, 3, dtype="int32"))
    for opset, axis in itertools.product((15, 17), (0, 1, -1)):
        shape = [4, 3]
        shape[axis] = 2
        case(opset, "scatter", data=T(4, 3), indices=T(2, dtype="int32"), updates=T(*shape), axis=axis, mode="update")
        case(opset, "scatter_along_axis", data=T(4, 3), indices=T(*shape, dtype="int32"), updates=T(*shape), axis=axis)
    for mode in ("update", "add", "sub", "mul", "div", "max", "min"):
        case(15, "scatter_nd", data=T(4, 3), indices=T("s", 1, dtype="int32"), updates=T("s", 3), mode=mode)
    reject(15, "scatter", data=T(4, 3), indices=T(2, dtype="int32"), updates=T(3, 3))
    reject(15, "scatter_along_axis", data=T(4, 3), indices=T(2, 2, dtype="int32"), updates=T(2, 2))
    reject(15, "scatter_nd", data=T(4, 3), indices=T(2, 1, dtype="int32"), updates=T(2, 4))


def slicing():
    def s(shape, begin, end, opset=15, **more):
        more = {k: np.array(v, np.int32 if k == "stride" else bool) for k, v in more.items()}
        case(opset, "slice_by_index", x=T(*shape), begin=i32(*begin), end=i32(*end), **more)

    for b, e, st in ((0, 5, 1), (2, 7, 2), (0, 100, 3), (-3, 10, 1), (0, -2, 1), (-20, 4, 1), (3, 3, 1), (4, 5, 1),
                     (8, 2, -1), (8, 2, -3), (-1, -5, -1), (9, 0, -2), (0, 2147483647, 1), (5, -7, -1)):
        s((10,), (b,), (e,), stride=[st])
    for bm, em, st in itertools.product((False, True), (False, True), (1, 2, -1, -3)):
        b, e = (2, 7) if st > 0 else (7, 2)
        s((10, 4), (b, 0), (e, 4), stride=[st, 1], begin_mask=[bm, False], end_mask=[em, True])
    for squeeze in itertools.product((False, True), repeat=2):
        s((3, 4), (1, 2), (2, 4), squeeze_mask=squeeze)
        s(("s", 4), (0, 2), (1, 3), squeeze_mask=squeeze)
    s(("s", 4), (0, 0), (0, 0), begin_mask=[True, True], end_mask=[True, True])
    s(("s", 4), (0, 0), (0, 0), begin_mask=[True, True], end_mask=[True, True], stride=[-1, 2])
    s(("s",), (0,), (1,))
    s(("s",), (-1,), (0,), end_mask=[True])
    s(("s",), (0,), (0,), end_mask=[True], stride=[-1])
    s(("s",), (2,), (2,))
    s(("s",), (1,), (5,))
    s(("s",), (0,), (-1,), begin_mask=[True])
    s((2, 3, 4), (0, 1, -1), (2, 3, 0), end_mask=[True, False, True], squeeze_mask=[False, False, True], opset=17)
    case(15, "slice_by_index", x=T(4, 5), begin=T(2, dtype="int32"), end=T(2, dtype="int32"))
    case(15, "slice_by_index", x=T(4, 5), begin=T(2, dtype="int32"), end=T(2, dtype="int32"),
         begin_mask=np.array([True, False]), end_mask=np.array([True, False]))
    case(15, "slice_by_index", x=T(4, 5), begin=T(2, dtype="int32"), end=T(2, dtype="int32"),
         squeeze_mask=np.array([True, False]))
    case(17, "slice_by_index", x=T(4, "s", dtype="int16"), begin=np.int16([1, 0]), end=np.int16([3, 0]),
         end_mask=np.array([False, True]))
    reject(15, "slice_by_index", x=T(4, 5), begin=i32(0), end=i32(1))
    for size in ((2, 3), (-1, 2), (-1, -1)):
        case(15, "slice_by_size", x=T(4, 5), begin=i32(1, 2), size=i32(*size))
        case(15, "slice_by_size", x=T(4, 5), begin=T(2, dtype="int32"), size=i32(*size))
    case(15, "slice_by_size", x=T(4, 5), begin=i32(1, 2), size=T(2, dtype="int32"))
    case(15, "slice_by_size", x=T("s", 5), begin=i32(0, 2), size=i32(-1, 2))
    reject(15, "slice_by_size", x=T(4, 5), begin=i32(1), size=i32(2))
    m = np.array([False, True])
    case(18, "slice_update", x=T(4, 5), update=T(2, 5), begin=i32(1, 0), end=i32(3, 0), begin_mask=m, end_mask=m)
    case(18, "slice_update", x=T(4, 5), update=T(5), begin=i32(1, 0), end=i32(3, 0), begin_mask=m, end_mask=m,
         squeeze_mask=np.array([True, False]))
    case(18, "slice_update", x=T(1, 4, 5), update=T(1, "q", 5), begin=T(3, dtype="int32"), end=T(3, dtype="int32"),
         begin_mask=np.array([True, False, True]), end_mask=np.array([True, False, True]))
    reject(18, "slice_update", x=T(4, 5), update=T(3, 5), begin=i32(1, 0), end=i32(3, 0), begin_mask=m, end_mask=m)
    reject(18, "slice_update", x=T(4), update=T(), begin=i32(1), end=i32(2), squeeze_mask=np.array([True]))


def shapes():
    for opset, x, shape in ((15, (2, 3, 4), (6, 4)), (15, (2, 3, 4), (-1,)), (15, (2, 3, 4), (2, -1, 2)), (15, (2, 3, 4), (0, 12, 1)),
                            (15, (2, 3, 4), (0, -1, 2)), (17, (3, 4), (0, 4)), (17, (2, 3, 4), (1, 0, 0, 4)), (17, (3, 4), (0, 0, 0)),
                            (17, (2, 3, 4), (-1, 0)), (15, (1,), ()), (15, (), (1, 1)), (15, ("s", 4), (2, -1)), (15, ("s", 4), (-1, 4)),
                            (15, (1, "s", 6), (1, -1, 2, 3))):
        case(opset, "reshape", x=T(*x), shape=np.array(shape, np.int32))
    case(15, "reshape", x=T(2, 3), shape=T(3, dtype="int32"))
    case(17, "reshape", x=T(2, 3, dtype="uint16"), shape=np.int16([3, 2]))
    reject(15, "reshape", x=T(2, 3), shape=i32(4, 2))
    reject(15, "reshape", x=T(2, 3), shape=i32(4, -1))
    reject(15, "reshape", x=T(2, 3), shape=i32(-1, -1))
    reject(15, "reshape", x=T(2, 3), shape=i32(0, 1, 3))
    case(16, "reshape_like", x=T(6, 4), ref_tensors=[T(2, 3, 9), T(8, 4, dtype="int32")], begins=[0, 1], ends=[2, 2],
         end_masks=[False, False])
    case(16, "reshape_like", x=T(24), ref_tensors=[T(9, 2, 3), T(4, 8)], begins=[1, -2], ends=[0, -1],
         end_masks=[True, False])
    reject(16, "reshape_like", x=T(6, 4), ref_tensors=[T(2, 3)], begins=[0], ends=[2], end_masks=[False])
    for axes in ((0,), (-1,), (1, 2), (0, -1), (-2, 1), (3, 0)):
        case(15, "expand_dims", x=T(2, "s"), axes=i32(*axes))
    case(15, "expand_dims", x=T(), axes=i32(0))
    case(17, "expand_dims", x=T(2, dtype="uint8"), axes=i32(1))
    reject(15, "expand_dims", x=T(2), axes=i32(2))
    for x, axes in (((1, 2, 1), (0,)), ((1, 2, 1), (0, -1)), ((1, 2, 1), (1,)), ((1, 1), (0, 1)), ((1, "s", 1), (2,)), ((1, 2, 1), None)):
        case(15, "squeeze", x=T(*x), **({} if axes is None else {"axes": i32(*axes)}))
    reject(15, "squeeze", x=T(1, 2), axes=i32(2))
    for perm in ((0, 1, 2), (2, 0, 1), (-1, 0, -2), (1, 0, 2)):
        case(15, "transpose", x=T(2, "s", 4), perm=i32(*perm))
    reject(15, "transpose", x=T(2, 3), perm=i32(0, 1, 2))
    for axis in (0, 1, 2, -1):
        case(15, "flatten2d", x=T(2, 3, 4), axis=axis)
    case(15, "depth_to_space", x=T(1, 8, 3, "s"), block_size=2)
    case(15, "space_to_depth", x=T(1, 2, 4, 6), block_size=2)
    case(15, "pixel_shuffle", x=T(1, 18, 2, 3, dtype="fp16"), upscale_factor=3)
    case(16, "pixel_unshuffle", x=T(1, 2, 6, 9), downscale_factor=np.uint32(3))
    case(15, "space_to_batch", x=T(1, 2, 4, 6), block_shape=i32(2, 2), paddings=np.int32([[1, 1], [2, 0]]))
    case(15, "batch_to_space", x=T(8, 2, 4, 6), block_shape=i32(2, 2), crops=np.int32([[1, 1], [2, 0]]))
    reject(15, "batch_to_space", x=T(7, 2, 4, 6), block_shape=i32(2, 2), crops=np.int32([[0, 0], [0, 0]]))
    reject(15, "space_to_batch", x=T(2, 4, 6), block_shape=i32(2, 2), paddings=np.int32([[0, 0], [0, 0]]))
    reject(15, "space_to_batch", x=T(1, 2, 4, 6), block_shape=i32(2), paddings=np.int32([[0, 0]]))
    for axis, stride in itertools.product((0, 1, -1), (1, 2)):
        case(15, "sliding_windows", x=T(7, 9), axis=axis, size=3, stride=stride)
    case(15, "reverse", x=T(2, "s"))
    case(17, "reverse", x=T(2, 3, dtype="int8"), axes=i32(-1))
    case(15, "reverse_sequence", x=T(4, 3), lengths=T(3, dtype="int32"), seq_axis=0, batch_axis=1)
    for shape in SHAPES:
        if shape:
            case(15, "shape", x=T(*shape))
        case(15, "identity", x=T(*shape))


def tensors():
    for shapes_, axis in ((((2, 3), (4, 3)), 0), (((2, 3), (2, 5)), -1), ((("s", 3), ("s", 4)), 1), (((2, "s"), (2, "t")), 1),
                          (((1, 2, 3),), 2), (((0, 3), (2, 3)), 0)):
        case(15, "concat", values=[T(*s) for s in shapes_], axis=axis)
    case(15, "concat", values=[T(dtype="int32"), np.int32(4), T(dtype="int32")], axis=0)
    case(15, "concat", values=[T(2, 3), T(2, 3)], axis=1, interleave=True)
    reject(15, "concat", values=[T(2, 3), T(3, 4)], axis=0)
    reject(15, "concat", values=[T(2, 3), T(2)], axis=0)
    reject(15, "concat", values=[T(2, 3), T(2, 3)], axis=2)
    reject(15, "concat", values=[T(2, 3), T(2, 4)], axis=1, interleave=True)
    for axis in (0, 1, 2, -1):
        case(15, "stack", values=[T(2, "s"), T(2, "s"), T(2, "s")], axis=axis)
    case(15, "stack", values=[T(), T()], axis=0)
    case(15, "stack", values=[T(2, "s"), T(2, 3)], axis=0)
    reject(15, "stack", values=[T(2, 3), T(2, 4)], axis=0)
    for axis in (1, -2):
        case(15, "split", x=T(2, 6, 3), num_splits=3, axis=axis)
        case(15, "split", x=T(2, 6, "s"), split_sizes=i32(1, 2, 3), axis=axis)
    case(15, "split", x=T(2, 6), num_splits=2, split_sizes=i32(2, 4), axis=1)
    reject(15, "split", x=T(2, 6), num_splits=4, axis=1)
    reject(15, "split", x=T(2, 6), axis=1)
    for reps in ((1, 1), (2, 3), (1, 4)):
        case(15, "tile", x=T("s", 3), reps=i32(*reps))
    case(15, "tile", x=T(2, 3), reps=T(2, dtype="int32"))
    reject(15, "tile", x=T(2, 3), reps=i32(2))
    for mode, pad in itertools.product(("constant", "reflect", "replicate"), ((1, 2), (0, 1, 1, 0), (0, 0, 0, 0, 1, 1))):
        case(15, "pad", x=T(2, 3, 4), pad=i32(*pad), mode=mode)
    case(15, "pad", x=T(2, "s"), pad=i32(0, 0, 1, 1))
    case(15, "pad", x=T(2, "s"), pad=i32(1, 1, 0, 0))
    case(15, "pad", x=T(2, 3), pad=T(4, dtype="int32"))
    reject(15, "pad", x=T(2, 3), pad=i32(1, 2, 3))
    reject(15, "pad", x=T(2, 3), pad=i32(1, -1))
    reject(15, "pad", x=T(2), pad=i32(0, 0, 1, 1))
    reject(15, "pad", x=T(2, 3), pad=i32(1, 1), mode="edge")
    reject(15, "pad", x=T(2, 3), pad=T(2, dtype="int32"))
    for shape, value in (((2, 3), np.float32(1)), ((4,), np.int32(2)), ((1, 1, 2), np.float16(0)), ((2,), True)):
        case(15, "fill", shape=np.array(shape, np.int32), value=value)
    case(15, "fill", shape=i32(2, 3))
    case(15, "fill", shape=T(3, dtype="int32"), value=np.float16(1))
    case(16, "fill_like", ref_tensor=T(2, "s", dtype="int32"), value=np.float16(1))
    case(16, "fill_like", ref_tensor=T(2, 3))
    for start, end, step in ((0, 10, 1), (0, 10, 3), (10, 0, -1), (10, 0, -4), (5, 5, 1), (-3, 4, 2)):
        case(15, "range_1d", start=np.int32(start), end=np.int32(end), step=np.int32(step))
        case(15, "range_1d", start=np.float32(start), end=np.float32(end), step=np.float32(step))
    for start, end, step in ((0, 1, 0.1), (0, 1, 0.3), (1, 0, -0.25), (0.5, 2.75, 0.75)):
        case(15, "range_1d", start=np.float32(start), end=np.float32(end), step=np.float32(step))
        case(15, "range_1d", start=np.float16(start), end=np.float16(end), step=np.float16(step))
    case(15, "range_1d", start=np.int32(0), end=T(dtype="int32"), step=np.int32(1))
    for axis in (-1, 0, 1, 2, -3):
        case(15, "one_hot", indices=T(2, "s", dtype="int32"), one_hot_vector_size=np.int32(5), axis=axis)
    case(15, "one_hot", indices=T(3, dtype="int32"), one_hot_vector_size=T(dtype="int32"), on_value=np.float32(1),
         off_value=np.float32(0))
    reject(15, "one_hot", indices=T(3, dtype="int32"), one_hot_vector_size=np.int32(-1))
    reject(15, "one_hot", indices=T(3, dtype="int32"), one_hot_vector_size=np.int32(4), axis=2)
    case(15, "non_zero", x=T(2, 3, 4))
    case(15, "band_part", x=T(2, "s", 4), lower=-1, upper=0)
    for axis in (0, 1, -1):
        case(15, "cumsum", x=T(2, "s", dtype="int32"), axis=axis, exclusive=True)
        case(15, "argsort", x=T(2, "s"), axis=axis)
    reject(15, "cumsum", x=T(2, 3), axis=2)
    for opset, k, axis in itertools.product((15, 16, 17), (1, 3), (0, 1, -1)):
        case(opset, "topk", x=T(4, 5), k=np.int32(k), axis=axis)
    case(15, "topk", x=T(4, "s"), k=np.int32(2))
    case(16, "topk", x=T(4, 5), k=np.int32(2), return_indices=False)
    case(17, "topk", x=T(4, 5, dtype="int16"), k=np.int8(2), output_indices_dtype="uint16")
    reject(15, "topk", x=T(4, 5), k=np.int32(6))
    reject(17, "topk", x=T(4, 5), output_indices_dtype="fp32")
    case(15, "non_maximum_suppression", boxes=T(2, 9, 4), scores=T(2, 9, 3), iou_threshold=np.float32(0.5),
         score_threshold=np.float32(0.1), max_boxes=5)
    case(17, "non_maximum_suppression", boxes=T(2, 4, 9), scores=T(2, 3, 9), iou_threshold=np.float32(0.5), max_boxes=5)
    for op in ("random_normal", "random_uniform"):
        case(15, op, shape=i32(2, 3))
        case(15, op, shape=T(2, dtype="int32"))
    case(15, "random_bernoulli", shape=i32(2, 3), prob=np.float16(0.5))
    case(15, "random_categorical", x=T(2, "s"), size=4)


def images():
    for op, scale in itertools.product(("upsample_nearest_neighbor", "upsample_bilinear"), (1, 2, 1.5, 0.5, 2.3)):
        scale = np.int32(scale) if isinstance(scale, int) else np.float32(scale)
        case(15, op, x=T(1, 2, 5, 7), scale_factor_height=scale, scale_factor_width=scale)
    case(15, "upsample_nearest_neighbor", x=T(2, 5, "s"), scale_factor_width=np.int32(2))
    case(16, "upsample_bilinear", x=T(1, 2, 5, 7), scale_factor_height=np.int32(2), half_pixel_centers=True, align_corners=False)
    reject(15, "upsample_bilinear", x=T(5, 7))
    case(15, "resize_nearest_neighbor", x=T(1, 2, "s", 7), target_size_height=3, target_size_width=4)
    for mode in ("DEFAULT", "STRICT_ALIGN_CORNERS", "ALIGN_CORNERS", "OFFSET_CORNERS", "UNALIGN_CORNERS"):
        case(15, "resize_bilinear", x=T(2, 5, 7), target_size_height=3, target_size_width=4, sampling_mode=mode)
    reject(15, "resize_bilinear", x=T(2, 5, 7), target_size_height=3, target_size_width=4, sampling_mode="NEAREST")
    for shape, n in (((4, 5), 2), ((4, 0), 2), ((1, 1, 8, 9), 1), ((3,), 1)):
        case(17, "resize", x=T(1, 2, 6, "s"), shape=np.array(shape, np.int32), resized_dims=np.uint32(n))
    case(17, "resize", x=T(1, 2, 6, 7), shape=T(2, dtype="int32"), resized_dims=np.uint32(2))
    reject(17, "resize", x=T(1, 2, 6, 7), shape=i32(4), resized_dims=np.uint32(2))
    reject(17, "resize", x=T(6, 7), shape=i32(1, 4, 5), resized_dims=np.uint32(2))
    reject(17, "resize", x=T(6, 7), shape=i32(4, 5), resized_dims=np.uint32(2), interpolation_mode="CUBIC")
    for opset in (15, 16):
        case(opset, "crop_resize", x=T(2, 3, 8, 8), roi=T(5, 1, 4, 1, 1), target_height=3, target_width=4)
    case(17, "crop_resize", x=T(2, 3, 8, 8), boxes=T(5, 4), box_indices=T(5, dtype="int32"), target_height=3, target_width=4)
    reject(15, "crop_resize", x=T(2, 3, 8, 8), roi=T(5, 4), target_height=3)
    reject(17, "crop_resize", x=T(2, 3, 8, 8), boxes=T(5, 5), box_indices=T(5, dtype="int32"))
    case(15, "crop", x=T(1, 2, 6, 7), crop_height=i32(1, 2), crop_width=i32(0, 3))
    reject(15, "crop", x=T(6, 7), crop_height=i32(1, 2), crop_width=i32(0, 3))
    affine = dict(sampling_mode="bilinear", padding_mode="constant", padding_value=np.float32(0),
                  coordinates_mode="normalized_minus_one_to_one", align_corners=True)
    case(15, "affine", x=T(1, 2, 6, 7), transform_matrix=T(1, 6), output_height=3, output_width=4, **affine)
    reject(15, "affine", x=T(1, 2, 6, 7), transform_matrix=T(1, 5), output_height=3, output_width=4, **affine)
    for opset, dtype in ((15, "fp32"), (16, "fp16"), (17, "int16")):
        case(opset, "resample", x=T(2, 3, 6, 7), coordinates=T(2, 4, 5, 2, dtype=dtype), **affine)
    reject(15, "resample", x=T(2, 3, 6, 7), coordinates=T(3, 4, 5, 2), **affine)


def recurrent():
    def w(*shape):
        return np.ones(shape, np.float32)

    for seq in (False, True):
        x = T("s", 2, 3)
        case(15, "rnn", x=x, initial_h=T(2, 4), weight_ih=w(4, 3), weight_hh=w(4, 4), bias=w(4), output_sequence=seq)
        case(15, "gru", x=x, initial_h=T(2, 4), weight_ih=w(12, 3), weight_hh=w(12, 4), bias=w(12), output_sequence=seq)
        case(15, "lstm", x=x, initial_h=T(2, 4), initial_c=T(2, 4), weight_ih=w(16, 3), weight_hh=w(16, 4), bias=w(16),
             output_sequence=seq)
        case(17, "lstm", x=x, initial_h=T(2, 8), initial_c=T(2, 8), weight_ih=w(16, 3), weight_hh=w(16, 4),
             weight_ih_back=w(16, 3), weight_hh_back=w(16, 4), direction="bidirectional", output_sequence=seq)
    x = T(5, 2, 3)
    reject(15, "rnn", x=T(2, 3), initial_h=T(2, 4), weight_ih=w(4, 3), weight_hh=w(4, 4))
    reject(15, "gru", x=x, initial_h=T(2, 4), weight_ih=w(12, 3), weight_hh=w(8, 4))
    reject(15, "rnn", x=x, initial_h=T(2, 4), weight_ih=w(4, 3), weight_hh=w(4, 4), direction="bidirectional")
    reject(15, "lstm", x=x, initial_h=T(2, 8), initial_c=T(2, 8), weight_ih=w(16, 3), weight_hh=w(16, 4), direction="bidirectional")
    reject(15, "lstm", x=x, initial_h=T(2, 4), initial_c=T(2, 4), weight_ih=w(16, 3), weight_hh=w(16, 4), activation="swish")


def compressed():
    def sub(dtype, *shape):
        return np.ones(shape, types.nptype_from_builtin(types.string_to_builtin(dtype)))

    f16, f32 = np.float16, np.float32
    case(16, "constexpr_affine_dequantize", quantized_data=np.ones((2, 3), np.uint8), zero_point=np.uint8(1), scale=f16(2), axis=0)
    case(16, "constexpr_affine_dequantize", quantized_data=np.ones((2, 3), np.int8), zero_point=np.int8([1, 1, 1]), scale=f32([1, 2, 3]), axis=-1)
    reject(16, "constexpr_affine_dequantize", quantized_data=np.ones((2, 3), np.int8), zero_point=np.int8(1), scale=f32([1, 2, 3]), axis=0)
    for opset in (16, 18):
        case(opset, "constexpr_cast", source_val=f16([1, 2]), output_dtype="fp32")
    for bits, n in ((1, 3), (2, 5), (4, 8), (6, 12), (8, 15)):
        case(16, "constexpr_lut_to_dense", indices=np.zeros(n, np.uint8), lut=np.ones(2**bits, f16), shape=np.uint32(
            {1: (4, 6), 2: (5, 4), 4: (4, 4), 6: (4, 4), 8: (3, 5)}[bits]))
    reject(16, "constexpr_lut_to_dense", indices=np.zeros(3, np.uint8), lut=np.ones(8, f16), shape=np.uint32([8]))
    reject(16, "constexpr_lut_to_dense", indices=np.zeros(3, np.uint8), lut=np.ones(16, f16), shape=np.uint32([8]))
    case(16, "constexpr_sparse_to_dense", nonzero_data=f16([1, 2]), mask=np.uint8([3, 0]), shape=np.uint32([3, 4]))
    reject(16, "constexpr_sparse_to_dense", nonzero_data=f16([1, 2]), mask=np.uint8([3]), shape=np.uint32([3, 4]))
    for dtype, scale in itertools.product(("int4", "uint4", "int8", "uint8"), ((1, 1), (4, 1), (4, 2))):
        data = sub(dtype, 4, 8)
        case(18, "constexpr_blockwise_shift_scale", data=data, scale=np.ones(scale, f16))
        case(18, "constexpr_blockwise_shift_scale", data=data, scale=np.ones(scale, f32), offset=sub(dtype, *scale))
    case(18, "constexpr_blockwise_shift_scale", data=sub("uint4", 4, 8), scale=np.ones((4, 1), f16), offset=np.ones((4, 1), f16))
    reject(18, "constexpr_blockwise_shift_scale", data=np.ones((4, 8), np.int8), scale=np.ones((3, 1), f16))
    reject(18, "constexpr_blockwise_shift_scale", data=np.ones((4, 8), np.int8), scale=np.ones((4,), f16))
    reject(18, "constexpr_blockwise_shift_scale", data=np.ones((4, 8), np.int8), scale=np.ones((4, 1), f16), offset=np.ones((4, 2), np.int8))
    reject(18, "constexpr_blockwise_shift_scale", data=np.ones((4, 8), np.int8), scale=np.ones((4, 1), f16), offset=np.ones((4, 1), np.uint8))
    for bits, groups in itertools.product((1, 2, 3, 4, 6), ((1, 1), (2, 1), (1, 4))):
        case(18, "constexpr_lut_to_dense", indices=sub(f"uint{bits}", 4, 8), lut=np.ones((*groups, 2**bits, 1), f16))
    for axis in (0, 1, -1):
        case(18, "constexpr_lut_to_dense", indices=sub("uint2", 4, 8), lut=np.ones((1, 1, 4, 3), f16), vector_axis=axis)
    case(18, "constexpr_lut_to_dense", indices=sub("uint4", 4, 8), lut=np.ones((1, 1, 16, 1), np.int8))
    reject(18, "constexpr_lut_to_dense", indices=np.ones((4, 8), np.uint8), lut=np.ones((1, 1, 256, 2), f16))
    reject(18, "constexpr_lut_to_dense", indices=np.ones((4, 8), np.uint8), lut=np.ones((1, 1, 16, 1), f16))
    reject(18, "constexpr_lut_to_dense", indices=np.ones((4, 8), np.uint8), lut=np.ones((3, 1, 256, 1), f16))
    reject(18, "constexpr_lut_to_dense", indices=np.ones((4, 8), np.uint8), lut=np.ones((1, 256, 1), f16))
    case(18, "constexpr_sparse_to_dense", nonzero_data=np.ones(8, f16), mask=sub("uint1", 2, 4))
    case(18, "constexpr_lut_to_sparse", indices_mask=sub("uint1", 2, 4), indices_nonzero_data=sub("uint2", 8), lut=np.ones((1, 1, 4, 1), f16))
    case(18, "constexpr_lut_to_sparse", indices_mask=sub("uint1", 2, 4), indices_nonzero_data=sub("uint2", 8), lut=np.ones((1, 1, 4, 3), f16), vector_axis=0)
    case(18, "constexpr_sparse_blockwise_shift_scale", data_mask=sub("uint1", 2, 4), nonzero_data=sub("int4", 8), scale=np.ones((2, 1), f16))
    for dtype in ("int8", "uint8"):
        zp = {"int8": np.int8, "uint8": np.uint8}[dtype]
        case(17, "quantize", input=T(2, "s", dtype="fp16"), scale=f16(0.1), zero_point=zp(3), output_dtype=dtype)
        case(17, "dequantize", input=T(2, 3, dtype=dtype), scale=f32([1, 2]), zero_point=zp([1, 1]), axis=0)
    reject(17, "quantize", input=T(2, 3), scale=f32([1, 2]), output_dtype="int8")
    reject(17, "quantize", input=T(2, 3), scale=f32([1, 2]), axis=1, output_dtype="int8")
    reject(17, "quantize", input=T(2, 3), scale=f32(1), output_dtype="int32")
    reject(17, "dequantize", input=T(2, 3, dtype="int8"), scale=f32([1, 2]), zero_point=np.int8(1), axis=0)


for family in (elementwise, normalization, reductions, linear, convolution, gather, slicing, shapes, tensors, images,
               recurrent, compressed):
    family()
print("[")
print(",\n".join(json.dumps(c, separators=(",", ":")) for c in cases))
print("]")
print(f"{len(cases)} cases", file=sys.stderr)
