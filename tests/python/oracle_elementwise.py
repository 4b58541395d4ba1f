"""Elementwise operators, in double precision by NumPy and SciPy."""
import numpy as np
from scipy import special

from oracle_draw import operator
from oracle_program import Case, Out

SPECIAL = [0., -0., np.inf, -np.inf, np.nan, 1., -1., .5, -.5, 1.5, 2.5, 6e-8, 6e4, -6e4]


def double(array):
    return np.asarray(array, np.float64)


def elementwise(op, inputs, consts, values, dtype):
    return Case(op, inputs, consts, [Out(np.asarray(values), dtype)], exact_half=True)


def floats(d, low, high, parameter="x", shape=None, specials=True):
    dtype = d.dtype(parameter)
    x = d.array(d.shape() if shape is None else shape, dtype, low, high)
    if d.is_special and specials and np.dtype(dtype).kind == "f":
        x = np.array(SPECIAL, dtype)
    return x, dtype


# operator: (function, lowest, highest); of what is outside the domain NumPy gives NaN, as is wanted
UNARY = {
    "abs": (np.abs, -9, 9), "acos": (np.arccos, -1, 1), "asin": (np.arcsin, -1, 1), "atan": (np.arctan, -20, 20),
    "atanh": (np.arctanh, -.999, .999), "ceil": (np.ceil, -9, 9), "cos": (np.cos, -20, 20), "cosh": (np.cosh, -9, 9),
    "erf": (special.erf, -4, 4), "exp": (np.exp, -15, 15), "exp2": (np.exp2, -15, 15), "floor": (np.floor, -9, 9),
    "relu": (lambda x: np.maximum(x, 0), -9, 9), "relu6": (lambda x: np.clip(x, 0, 6), -9, 9), "round": (np.rint, -9, 9),
    "sigmoid": (special.expit, -20, 20), "sign": (np.sign, -3, 3), "silu": (lambda x: x * special.expit(x), -20, 20),
    "sin": (np.sin, -20, 20), "sinh": (np.sinh, -9, 9), "softplus": (lambda x: np.logaddexp(x, 0), -20, 20),
    "softsign": (lambda x: x / (1 + np.abs(x)), -20, 20), "sqrt": (np.sqrt, 0, 30), "square": (np.square, -20, 20),
    "tan": (np.tan, -1.5, 1.5), "tanh": (np.tanh, -9, 9),
}
LIMITS = {"silu": (-np.inf, 0.), "softsign": None}  # where the formula has no limit


@operator(*UNARY)
def unary(d):
    function, low, high = UNARY[d.op]
    specials = d.op not in ("silu", "softsign", "sign", "relu", "relu6")  # NaN, and limits that the formula hides
    x, dtype = floats(d, low, high, specials=specials)
    with np.errstate(all="ignore"):
        if x.dtype.kind == "i":
            x = np.abs(x) % 31 if d.op == "exp2" else x
            values = function(x.astype(np.int64)).astype(np.int64).astype(np.int32)
        else:
            values = function(double(x))
    return elementwise(d.op, {"x": x}, {}, values, dtype)


@operator("identity")
def identity(d):
    dtype = d.choice(["float32", "float16", "int32", "bool"] + (["int8", "uint8", "int16", "uint16"] if d.opset >= 17 else []))
    x = d.values(d.shape(), dtype)
    return elementwise(d.op, {"x": x}, {}, x, dtype)


@operator("logical_not")
def logical_not(d):
    x = d.array(d.shape(), d.dtype("x"))
    return elementwise(d.op, {"x": x}, {}, ~x, "bool")


EPSILON = {"inverse": (lambda x, e: 1 / (x + e), 1e-4), "log": (lambda x, e: np.log(x + e), 1e-45),
           "rsqrt": (lambda x, e: 1 / np.sqrt(x + e), 1e-12)}


@operator(*EPSILON)
def with_epsilon(d):
    function, default = EPSILON[d.op]
    x, dtype = floats(d, .1, 20, specials=False)
    if d.op == "inverse" and d.flag():
        x = -x
    consts = {}
    if d.flag():
        kind = d.other("epsilon", dtype)
        consts["epsilon"] = d.array((), kind, .01, .05)
    epsilon = double(consts.get("epsilon", np.array(default).astype(dtype)))
    return elementwise(d.op, {"x": x}, consts, function(double(x), epsilon), dtype)


def hard(x, a, b):
    return np.clip(a * x + b, 0, 1)


ALPHA = {  # operator: (function of x and the constants, ranges of the constants)
    "elu": (lambda x, a: np.where(x > 0, x, a * np.expm1(np.minimum(x, 0))), {"alpha": (.1, 2)}),
    "leaky_relu": (lambda x, a: np.where(x < 0, a * x, x), {"alpha": (-1, 1)}),
    "thresholded_relu": (lambda x, a: np.where(x >= a, x, 0), {"alpha": (-1, 2)}),
    "threshold": (np.maximum, {"alpha": (-2, 2)}),
    "clamped_relu": (lambda x, a, b: np.where(x >= 0, np.minimum(x, b), np.minimum(a * x, b)), {"alpha": (.1, 1), "beta": (1, 4)}),
    "linear_activation": (lambda x, a, b: a * x + b, {"alpha": (-2, 2), "beta": (-2, 2)}),
    "scaled_tanh": (lambda x, a, b: a * np.tanh(b * x), {"alpha": (-2, 2), "beta": (.1, 2)}),
    "sigmoid_hard": (hard, {"alpha": (.1, .5), "beta": (0, 1)}),
    "clip": (lambda x, a, b: np.minimum(np.maximum(x, a), b), {"alpha": (-5, -1), "beta": (1, 5)}),
}


@operator(*ALPHA)
def with_constants(d):
    function, ranges = ALPHA[d.op]
    x, dtype = floats(d, -6, 6, specials=False)
    consts = {name: d.array((), d.other(name, dtype), *limits) for name, limits in ranges.items()}
    values = function(double(x), *map(double, consts.values()))
    return elementwise(d.op, {"x": x}, consts, values, dtype)


@operator("gelu")
def gelu(d):
    x, dtype = floats(d, -6, 6, specials=False)
    mode = d.choice([None, "EXACT", "TANH_APPROXIMATION", "SIGMOID_APPROXIMATION"])
    v = double(x)
    values = {"TANH_APPROXIMATION": lambda: .5 * v * (1 + np.tanh(np.sqrt(2 / np.pi) * (v + .044715 * v ** 3))),
              "SIGMOID_APPROXIMATION": lambda: v * special.expit(1.702 * v)}.get(mode, lambda: v * special.ndtr(v))()
    return elementwise(d.op, {"x": x}, {"mode": mode} if mode else {}, values, dtype)


def channels(d, low=3):
    shape = list(d.shape(low, 5, size=5))
    if d.number == 3:
        shape = [2, 3, 37, 41]
    return tuple(shape)


def along(vector, rank):
    return double(vector).reshape((1, -1) + (1,) * (rank - 2))


@operator("prelu")
def prelu(d):
    shape, dtype = channels(d), d.dtype("x")
    x = d.array(shape, dtype, -5, 5)
    alpha = d.array((shape[1],), d.other("alpha", dtype), .1, .9)
    if len(shape) != 4:
        alpha[:] = alpha[:1]
    v = double(x)
    return elementwise(d.op, {"x": x}, {"alpha": alpha}, np.where(v < 0, along(alpha, v.ndim) * v, v), dtype)


@operator("softplus_parametric")
def softplus_parametric(d):
    shape, dtype = channels(d), d.dtype("x")
    x = d.array(shape, dtype, -5, 5)
    consts = {name: d.array((shape[1],), d.other(name, dtype), .5, 2) for name in ("alpha", "beta")}
    a, b = (along(consts[name], len(shape)) for name in ("alpha", "beta"))
    return elementwise(d.op, {"x": x}, consts, a * np.logaddexp(b * double(x), 0), dtype)


def wrapped(values):
    """int32 as the machine does it."""
    return np.asarray(values).astype(np.int64).astype(np.int32)


BINARY = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "real_div": np.divide, "floor_div": np.floor_divide, "mod": np.mod,
          "pow": np.power, "maximum": np.maximum, "minimum": np.minimum}
COMPARE = {"equal": np.equal, "not_equal": np.not_equal, "less": np.less, "less_equal": np.less_equal, "greater": np.greater,
           "greater_equal": np.greater_equal}
LOGICAL = {"logical_and": np.logical_and, "logical_or": np.logical_or, "logical_xor": np.logical_xor}


def given(d, x, y):
    """One side may be a constant."""
    side = d.integer(0, 3)
    if side == 0 and x.ndim == 0:
        return {"y": y}, {"x": x}
    return ({"x": x}, {"y": y}) if side == 1 else ({"x": x, "y": y}, {})


@operator(*BINARY)
def binary(d):
    dtype = d.note("y", d.dtype("x"))
    a, b = d.broadcast()
    x, y = d.array(a, dtype, -20, 20), d.array(b, dtype, -20, 20)
    if d.is_special and dtype != "int32" and d.op not in ("mod", "floor_div", "pow", "maximum", "minimum"):
        x, y = (np.array(v, dtype).ravel() for v in np.meshgrid(SPECIAL, SPECIAL))
    elif d.op in ("mod", "floor_div"):
        x, y = (np.asarray(np.round(v * 8) / 8, dtype) for v in (x, y))
        y = np.where(y == 0, np.ones((), dtype), y).astype(dtype)
    elif d.op == "pow":
        low = 0 if dtype == "int32" else .1
        x, y = d.array(a, dtype, low, 6), d.array(b, dtype, 0 if dtype == "int32" else -3, 5)
        if d.is_special and dtype != "int32":
            x, y = np.array([-2, -3, -1.5, -2, 0, 0], dtype), np.array([2, 3, -1, .5, 2, 0], dtype)
    elif d.op == "real_div" and dtype == "int32":  # quotients that are no integers have no agreed result
        y = np.where(y == 0, 7, y).astype(np.int32)
        x, y = np.broadcast_arrays(x, y)
        x, y = np.asarray(x * y), np.asarray(y)
    elif d.op == "mul" and dtype == "int32" and d.flag():
        x, y = x * 100000007, y * 3001
        x, y = wrapped(x), wrapped(y)
    with np.errstate(all="ignore"):
        if dtype == "int32":
            values = wrapped(BINARY[d.op](x.astype(np.int64), y.astype(np.int64)))
        else:
            values = BINARY[d.op](double(x), double(y))
    return elementwise(d.op, *given(d, x, y), values, dtype)


@operator(*COMPARE)
def compare(d):
    dtype = d.note("y", d.dtype("x"))
    a, b = d.broadcast()
    x, y = (np.asarray(np.round(d.array(s, dtype, -2, 2)), dtype) for s in (a, b))
    if d.is_special and dtype != "int32":
        x, y = (np.array(v, dtype).ravel() for v in np.meshgrid(SPECIAL, SPECIAL))
    return elementwise(d.op, *given(d, x, y), COMPARE[d.op](x, y), "bool")


@operator(*LOGICAL)
def logical(d):
    a, b = d.broadcast()
    x, y = d.array(a, d.dtype("x")), d.array(b, d.dtype("y"))
    return elementwise(d.op, *given(d, x, y), LOGICAL[d.op](x, y), "bool")


@operator("select")
def select(d):
    c, a, b = d.broadcast(3)
    dtype = d.note("b", d.dtype("a"))
    cond, x, y = d.array(c, d.dtype("cond")), d.values(a, dtype), d.values(b, dtype)
    if d.is_special and dtype in ("float32", "float16"):
        cond, x, y = np.array([True, False, True]), np.array([1, np.nan, np.inf], dtype), np.array([np.inf, 2, np.nan], dtype)
    return elementwise(d.op, {"cond": cond, "a": x, "b": y}, {}, np.where(cond, x, y), dtype)


@operator("cast")
def cast(d):
    source = d.dtype("x")
    small = ["int8", "uint8", "int16", "uint16"] if d.version >= 17 else []
    target = d.choice(["float32", "float16", "int32", "bool"] + small)
    x = d.values(d.shape(), source)
    if target not in ("float32", "float16", "bool"):
        limit = np.iinfo(target)
        low, high = max(limit.min, -999), min(limit.max, 999)
        x = d.array(x.shape, source, low, high)  # what is outside has no agreed result but for floats, which saturate
        if d.is_special and source in ("float32", "float16"):
            x = np.array([limit.max * 1.5, limit.min * 1.5 - 9, -.9, .9], np.float64).clip(-6e4, 6e4).astype(source)
        values = np.trunc(double(x)).clip(limit.min, limit.max)
    elif d.is_special and source == "float32":
        x = np.array(SPECIAL + [1e6, 65519.9, 65520.1, 1e-8], np.float32)
        values = double(x)
    else:
        values = double(x)
    with np.errstate(all="ignore"):
        values = values != 0 if target == "bool" else np.asarray(values).astype(target)
    names = {"float32": "fp32", "float16": "fp16"}
    return elementwise(d.op, {"x": x}, {"dtype": names.get(target, target)}, values, target)
