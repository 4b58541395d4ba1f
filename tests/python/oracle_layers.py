"""Convolutions, pooling, normalizations and recurrent layers, by PyTorch and NumPy in double precision."""
import numpy as np
import torch
from scipy import special

from oracle_draw import operator
from oracle_elementwise import channels, double
from oracle_program import Case, Out

F = torch.nn.functional


def tensor(array):
    return torch.from_numpy(np.ascontiguousarray(double(array)))


# ---- convolutions ----


class Window:
    """Sizes of a window over 1 to 3 axes, and how its input is padded."""

    def __init__(self, d, n_axes, *, most=3, dilate=True):
        large = d.number == 3
        self.kernel = [1 if d.number == 2 else d.integer(1, most) for _ in range(n_axes)]
        self.stride = [d.integer(1, 3) for _ in range(n_axes)]
        self.dilation = [d.integer(1, 2) if dilate else 1 for _ in range(n_axes)]
        self.reach = [(k - 1) * s + 1 for k, s in zip(self.kernel, self.dilation)]
        self.size = [r + d.integer(0, 20 if large else 5) for r in self.reach]
        self.kind = d.choice(["valid", "custom", "same"] + (["same_lower"] if d.opset >= 16 else []))
        self.pads = [self.pad(d, i) for i in range(n_axes)]

    def pad(self, d, i):
        if self.kind == "valid":
            return (0, 0)
        if self.kind == "custom":
            return (d.integer(0, self.reach[i] - 1), d.integer(0, self.reach[i] - 1))
        n, s = self.size[i], self.stride[i]
        total = max(0, (-(-n // s) - 1) * s + self.reach[i] - n)
        halves = total // 2, total - total // 2
        return halves if self.kind == "same" else halves[::-1]

    def consts(self, d, names=("strides", "dilations")):
        given = {}
        for name, values in (("strides", self.stride), ("dilations", self.dilation)):
            if name in names and (any(v != 1 for v in values) or d.flag()):
                given[name] = np.array(values, np.int32)
        if self.kind != "valid" or d.flag():
            given["pad_type"] = self.kind
        if self.kind == "custom" or d.flag():  # ignored otherwise
            given["pad"] = np.array(self.pads if self.kind == "custom" else [(1, 1)] * len(self.pads), np.int32).ravel()
        return given

    def padded(self, x, value=0.):
        return np.pad(double(x), [(0, 0), (0, 0), *self.pads], constant_values=value)


def conv_like(d, n_axes=None):
    groups = d.choice([1, 1, 2, 3])
    n_in, n_out = groups * d.integer(1, 3), groups * d.integer(1, 3)
    if d.number == 3:
        groups, n_in, n_out = 1, 16, 24
    if d.rng.random() < .2:  # depthwise
        groups = n_in
        n_out = n_in * d.integer(1, 2)
    return groups, n_in, n_out, d.integer(1, 2), n_axes or d.integer(1, 3)


@operator("conv")
def conv(d):
    groups, n_in, n_out, batch, n_axes = conv_like(d)
    dtype = d.dtype("x")
    late = d.rng.random() < .25
    w = Window(d, n_axes, dilate=not late)
    kind = dtype if late else d.other("weight", dtype)
    x = d.array((batch, n_in, *w.size), dtype, -2, 2)
    weight = d.array((n_out, n_in // groups, *w.kernel), d.note("weight", kind), -1, 1)
    consts, inputs = w.consts(d), {"x": x}
    (inputs if late else consts)["weight"] = weight
    if d.flag():
        consts["bias"] = d.array((n_out,), d.note("bias", kind))
    if groups != 1 or d.flag():
        consts["groups"] = groups
    values = [F.conv1d, F.conv2d, F.conv3d][n_axes - 1](
        tensor(w.padded(x)), tensor(weight), tensor(consts["bias"]) if "bias" in consts else None, w.stride, 0, w.dilation, groups)
    return Case(d.op, inputs, consts, [Out(values.numpy(), dtype)])


@operator("conv_quantized")
def conv_quantized(d):
    groups, n_in, n_out, batch, n_axes = conv_like(d)
    dtype, w = d.dtype("x"), Window(d, n_axes)
    x = d.array((batch, n_in, *w.size), dtype, -2, 2)
    linear = d.flag()
    codes = d.array((n_out, n_in // groups, *w.kernel), d.note("weight", "uint8"), 0, 255 if linear else 15)
    consts = {**w.consts(d), "weight": codes, "groups": groups, "quantization_type": "linear" if linear else "lut", "nbits": 8 if linear else 4}
    n = 1 if d.flag() else n_out
    if linear:
        scale, bias = d.array((n,), dtype, .005, .02), d.array((n,), dtype, -2, 0)
        shape = (n, *[1] * (codes.ndim - 1))
        weight = double(codes) * double(scale).reshape(shape) + double(bias).reshape(shape)
    else:
        scale, bias = d.array((16,), dtype, -1, 1), np.zeros(1, dtype)
        weight = double(scale)[codes]
    d.note("quant_scale", dtype), d.note("quant_bias", dtype)
    consts.update(quant_scale=scale, quant_bias=bias)
    values = [F.conv1d, F.conv2d, F.conv3d][n_axes - 1](tensor(w.padded(x)), tensor(weight), None, w.stride, 0, w.dilation, groups)
    return Case(d.op, {"x": x}, consts, [Out(values.numpy(), dtype)])


@operator("conv_transpose")
def conv_transpose(d):
    groups, n_in, n_out, batch, n_axes = conv_like(d)
    dtype, w = d.dtype("x"), Window(d, n_axes)
    kind = d.other("weight", dtype)
    x = d.array((batch, n_in, *[min(n, 6) for n in w.size]), dtype, -2, 2)
    weight = d.array((n_in, n_out // groups, *w.kernel), kind, -1, 1)
    bias = d.array((n_out,), d.note("bias", kind)) if d.flag() else None
    whole = [F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d][n_axes - 1](
        tensor(x), tensor(weight), None, w.stride, 0, 0, groups, w.dilation).numpy()
    w.kind = d.choice(["valid", "custom", "same"])
    cuts = []
    for i, (full, reach, stride) in enumerate(zip(whole.shape[2:], w.reach, w.stride)):
        n = x.shape[2 + i]
        before, after = (d.integer(0, 1), d.integer(0, 1)) if w.kind == "custom" and full > 2 else (0, 0)
        length = full - before - after
        if w.kind == "same":  # of the length times the stride; the odd one is cut at the end
            before, length = max(reach - stride, 0) // 2, n * stride
        cuts.append((before, after, length))
    w.pads = [(b, a) for b, a, _ in cuts]
    consts = {**w.consts(d), "weight": weight, "groups": groups}
    lengths = [n for _, _, n in cuts]
    if w.kind != "same" and d.rng.random() < .4:
        lengths = [d.integer(max(1, n - 1), n) for n in lengths]
        consts["output_shape"] = np.array([batch, n_out, *lengths], np.int32)
    wide = np.pad(whole, [(0, 0), (0, 0), *[(0, 4)] * n_axes])
    values = wide[(slice(None), slice(None), *[slice(b, b + n) for (b, _, _), n in zip(cuts, lengths)])]
    if bias is not None:
        consts["bias"] = bias
        values = values + double(bias).reshape(-1, *[1] * n_axes)
    return Case(d.op, {"x": x}, consts, [Out(values, dtype)])


# ---- pooling ----


@operator("max_pool", "avg_pool", "l2_pool")
def pool(d):
    dtype = d.dtype("x")
    n_axes = d.integer(1, 2 if d.op == "l2_pool" else 3)
    w = Window(d, n_axes, dilate=False)
    x = d.array((d.integer(1, 2), d.integer(1, 3), *w.size), dtype, -4, 4)
    ceil = n_axes < 3 and w.kind in ("valid", "custom") and d.rng.random() < .3
    if ceil:  # longer strides leave windows with nothing in them
        w.stride = [min(s, k) for s, k in zip(w.stride, w.kernel)]
    consts = {"kernel_sizes": np.array(w.kernel, np.int32), **w.consts(d, ("strides",)), "pad_type": w.kind}
    if ceil:
        w.pads = [(min(b, k // 2),) * 2 for (b, _), k in zip(w.pads, w.kernel)]
        if "pad" in consts and w.kind == "custom":
            consts["pad"] = np.array(w.pads, np.int32).ravel()
    if ceil or d.flag():
        consts["ceil_mode"] = ceil
    alone = d.op == "avg_pool" and d.flag()
    if d.op == "avg_pool" and (alone or d.flag()):
        consts["exclude_padding_from_average"] = alone
    lengths, more = [], []
    for n, k, s, (before, after) in zip(w.size, w.kernel, w.stride, w.pads):
        count = (n + before + after - k) // s + 1
        if ceil:
            count = -(-(n + before + after - k) // s) + 1
            if (count - 1) * s >= n + before:
                count -= 1
        lengths.append(count)
        more.append((0, max(0, (count - 1) * s + k - n - before - after)))

    def windows(array, value):
        wide = np.pad(array, [(0, 0), (0, 0), *more], constant_values=value)
        view = np.lib.stride_tricks.sliding_window_view(wide, w.kernel, tuple(range(2, 2 + n_axes)))
        index = tuple(slice(0, (c - 1) * s + 1, s) for c, s in zip(lengths, w.stride))
        return view[(slice(None), slice(None), *index)]

    axes = tuple(range(-n_axes, 0))
    if d.op == "max_pool":
        values = windows(w.padded(x, -np.inf), -np.inf).max(axes)
    elif d.op == "l2_pool":
        values = np.sqrt((windows(w.padded(x), 0) ** 2).sum(axes))
    else:  # what a window has beyond the padding never counts
        counted = w.padded(np.ones(x.shape), 0. if alone else 1.)
        values = windows(w.padded(x), 0).sum(axes) / windows(counted, 0).sum(axes)
    return Case(d.op, {"x": x}, consts, [Out(values, dtype)])


# ---- normalizations ----


def per_channel(vector, rank):
    return double(vector).reshape((1, -1) + (1,) * (rank - 2))


@operator("batch_norm")
def batch_norm(d):
    dtype, shape = d.dtype("x"), channels(d)
    x, n = d.array(shape, dtype), shape[1]
    kind = d.other("mean", dtype)
    consts = {"mean": d.array((n,), kind), "variance": d.array((n,), d.note("variance", kind), .5, 3)}
    gamma = beta = None
    if d.flag():
        gamma = consts["gamma"] = d.array((n,), d.note("gamma", kind), .5, 2)
        beta = consts["beta"] = d.array((n,), d.note("beta", kind))
    if d.flag():
        consts["epsilon"] = d.array((), d.note("epsilon", kind), .01, .1)
    rank, eps = x.ndim, double(consts.get("epsilon", 1e-5))
    values = (double(x) - per_channel(consts["mean"], rank)) / np.sqrt(per_channel(consts["variance"], rank) + eps)
    if gamma is not None:
        values = values * per_channel(gamma, rank) + per_channel(beta, rank)
    return Case(d.op, {"x": x}, consts, [Out(values, dtype)])


def normal(v, axes, eps):
    return (v - v.mean(axes, keepdims=True)) / np.sqrt(v.var(axes, keepdims=True) + eps)


@operator("instance_norm")
def instance_norm(d):
    dtype, shape = d.dtype("x"), channels(d)[:4]
    shape = tuple(max(n, 1) for n in shape)
    x, n = d.array(shape, dtype), shape[1]
    consts, kind = {}, d.other("gamma", dtype)
    if d.flag():
        consts = {"gamma": d.array((n,), kind, .5, 2), "beta": d.array((n,), d.note("beta", kind))}
    given = d.flag()
    if given:
        consts["epsilon"] = d.array((), d.note("epsilon", kind), .01, .1)
    values = normal(double(x), tuple(range(2, x.ndim)), double(consts.get("epsilon", 1e-5)))
    if "gamma" in consts:
        values = values * per_channel(consts["gamma"], x.ndim) + per_channel(consts["beta"], x.ndim)
    return Case(d.op, {"x": x}, consts, [Out(values, dtype)])


@operator("layer_norm")
def layer_norm(d):
    dtype = d.dtype("x")
    x = d.array(d.shape(1, 4, empty=False), dtype)
    axes = sorted(int(a) for a in d.rng.permutation(x.ndim)[: d.integer(1, min(3, x.ndim))])
    sizes = tuple(x.shape[a] for a in axes)
    consts = {"axes": np.array([a - x.ndim if d.flag() else a for a in axes], np.int32)}
    if len(axes) == x.ndim and d.flag():
        consts = {}
    kind, shape = d.other("gamma", dtype), [n if a in axes else 1 for a, n in enumerate(x.shape)]
    if d.flag():
        consts["gamma"] = d.array(sizes, kind, .5, 2)
    if d.flag():
        consts["beta"] = d.array(sizes, d.note("beta", kind))
    if d.flag():
        consts["epsilon"] = d.array((), d.note("epsilon", kind), .01, .1)
    values = normal(double(x), tuple(axes), double(consts.get("epsilon", np.array(1e-5).astype(dtype))))
    values = values * double(consts.get("gamma", np.ones(sizes))).reshape(shape) + double(consts.get("beta", np.zeros(sizes))).reshape(shape)
    return Case(d.op, {"x": x}, consts, [Out(values, dtype)])


@operator("l2_norm")
def l2_norm(d):
    dtype = d.dtype("x")
    x = d.array(d.shape(3, 5, 5, empty=False), dtype)
    consts = {"epsilon": d.array((), d.other("epsilon", dtype), .01, .1)} if d.flag() else {}
    v = double(x)
    values = v / np.sqrt((v * v).sum((-3, -2, -1), keepdims=True) + double(consts.get("epsilon", np.array(1e-6).astype(dtype))))
    return Case(d.op, {"x": x}, consts, [Out(values, dtype)])


@operator("local_response_norm")
def local_response_norm(d):
    dtype = d.dtype("x")
    shape = d.shape(3, 4, 6, empty=False)
    x = d.array((2, 70, 3) if d.number == 3 else shape, dtype)
    size = d.choice([1, 3, 5])
    consts, kind = {"size": size}, d.other("alpha", dtype)
    for name, low, high in (("alpha", .01, 2), ("beta", .3, 1.2), ("k", .5, 2)):
        if d.flag():
            consts[name] = d.array((), d.note(name, kind), low, high)
    values = F.local_response_norm(tensor(x), size, float(consts.get("alpha", 1e-4)), float(consts.get("beta", .75)), float(consts.get("k", 1.)))
    return Case(d.op, {"x": x}, consts, [Out(values.numpy(), dtype)])


# ---- recurrent layers ----

ACTIVATIONS = {"relu": lambda v: np.maximum(v, 0), "tanh": np.tanh, "sigmoid": special.expit,
               "hard_sigmoid": lambda v: np.clip(.2 * v + .5, 0, 1), "linear": lambda v: v}


class Cell:
    """Weights of one direction, and what is drawn for all layers."""

    def __init__(self, d, gates):
        self.gates = gates
        self.dtype = d.dtype("x")
        self.steps, self.batch, self.n_in, self.n = (1, 1, 1, 1) if d.number == 2 else (3, 2, 40, 33) if d.number == 3 else (
            d.integer(1, 6), d.integer(1, 3), d.integer(1, 6), d.integer(1, 5))
        self.x = d.array((self.steps, self.batch, self.n_in), self.dtype, -1, 1)
        self.sequence = d.flag()
        self.consts = {"output_sequence": self.sequence} if self.sequence or d.flag() else {}
        for name in ("initial_h", "weight_ih", "weight_hh"):
            d.note(name, self.dtype)

    def weights(self, d, tail=""):
        made = {"weight_ih": d.array((self.gates * self.n, self.n_in), self.dtype, -1, 1),
                "weight_hh": d.array((self.gates * self.n, self.n), self.dtype, -1, 1)}
        if d.flag() and "bias" not in self.consts or tail and "bias" in self.consts:
            made["bias"] = d.array((self.gates * self.n,), d.note("bias", self.dtype), -1, 1)
        self.consts.update({name + tail: value for name, value in made.items()})
        return {name: double(value) for name, value in made.items()}

    def state(self, d, sides=1):
        return d.array((self.batch, sides * self.n), self.dtype, -1, 1)

    def activation(self, d, name, default):
        chosen = d.choice([None, *ACTIVATIONS])
        if chosen:
            self.consts[name] = chosen
        return ACTIVATIONS[chosen or default]

    def order(self, d):
        way = d.choice([None, "forward", "reverse"])
        if way:
            self.consts["direction"] = way
        return double(self.x)[::-1] if way == "reverse" else double(self.x)

    def outs(self, rows, *last):
        y = np.stack(rows) if self.sequence else rows[-1][None]
        return [Out(y, self.dtype), *[Out(v, self.dtype) for v in last]]


def finish(d, cell, inputs, outs):
    case = Case(d.op, {"x": cell.x, **inputs}, cell.consts, outs)
    case.tolerance = (4e-3, 4e-3) if cell.dtype == "float16" else None  # states are rounded at every step
    return case


@operator("rnn")
def rnn(d):
    cell = Cell(d, 1)
    w, start, act = cell.weights(d), cell.state(d), cell.activation(d, "activation", "tanh")
    h, rows = double(start), []
    for x in cell.order(d):
        h = act(x @ w["weight_ih"].T + h @ w["weight_hh"].T + w.get("bias", 0))
        rows.append(h)
    return finish(d, cell, {"initial_h": start}, cell.outs(rows, h))


@operator("gru")
def gru(d):
    cell = Cell(d, 3)
    w, start = cell.weights(d), cell.state(d)
    outer, inner = cell.activation(d, "recurrent_activation", "sigmoid"), cell.activation(d, "activation", "tanh")
    after, extra = False, np.zeros(3 * cell.n)
    if d.version >= 18:
        after = d.flag()
        if after or d.flag():
            cell.consts["reset_after"] = after
        if d.flag():
            cell.consts["input_bias"] = d.array((3 * cell.n,), d.note("input_bias", cell.dtype), -1, 1)
            extra = double(cell.consts["input_bias"])
    bias, n = w.get("bias", np.zeros(3 * cell.n)), cell.n
    r_, o_, z_ = slice(0, n), slice(n, 2 * n), slice(2 * n, None)
    h, rows = double(start), []
    for x in cell.order(d):
        a = x @ w["weight_ih"].T + extra
        r = outer(a[:, r_] + h @ w["weight_hh"][r_].T + bias[r_])
        z = outer(a[:, z_] + h @ w["weight_hh"][z_].T + bias[z_])
        if after:
            o = inner(a[:, o_] + r * (h @ w["weight_hh"][o_].T + bias[o_]))
        else:
            o = inner(a[:, o_] + (r * h) @ w["weight_hh"][o_].T + bias[o_])
        h = (1 - z) * o + z * h
        rows.append(h)
    return finish(d, cell, {"initial_h": start}, cell.outs(rows, h))


@operator("lstm")
def lstm(d):
    cell, n_sides = Cell(d, 4), 2 if d.rng.random() < .4 else 1
    n = cell.n
    sides = [cell.weights(d)]
    peepholes = [np.zeros(3 * n)] * n_sides
    if n_sides == 2:
        sides.append(cell.weights(d, "_back"))
        cell.consts["direction"] = "bidirectional"
    if d.flag():
        for i, tail in enumerate(("", "_back")[:n_sides]):
            cell.consts["peephole" + tail] = d.array((3 * n,), d.note("peephole", cell.dtype), -1, 1)
            peepholes = peepholes[:i] + [double(cell.consts["peephole" + tail])] + peepholes[i + 1:]
    gate = cell.activation(d, "recurrent_activation", "sigmoid")
    inner, outer = cell.activation(d, "cell_activation", "tanh"), cell.activation(d, "activation", "tanh")
    limit = np.inf
    if d.rng.random() < .3:
        cell.consts["clip"] = d.array((), d.note("clip", cell.dtype), .2, 1)
        limit = double(cell.consts["clip"])
    start_h, start_c = cell.state(d, n_sides), cell.state(d, n_sides)
    d.note("initial_c", cell.dtype)
    orders = [cell.order(d)] if n_sides == 1 else [double(cell.x), double(cell.x)[::-1]]
    results = []
    for i, (w, p, order) in enumerate(zip(sides, peepholes, orders)):
        h, c, rows = double(start_h)[:, i * n: i * n + n], double(start_c)[:, i * n: i * n + n], []
        for x in order:
            a = x @ w["weight_ih"].T + h @ w["weight_hh"].T + w.get("bias", 0)
            g_i, g_f, g_o, g_z = np.split(a, 4, axis=1)
            g_i, g_f = gate(g_i + p[:n] * c), gate(g_f + p[n: 2 * n] * c)
            c = np.clip(g_f * c + g_i * inner(g_z), -limit, limit)
            h = gate(g_o + p[2 * n:] * c) * outer(c)
            rows.append(h)
        results.append((rows if i == 0 or not cell.sequence else rows[::-1], h, c))
    joined = [np.concatenate(parts, 1) for parts in zip(*(r[0] for r in results))]
    last = [np.concatenate([r[k] for r in results], 1) for k in (1, 2)]
    return finish(d, cell, {"initial_h": start_h, "initial_c": start_c}, cell.outs(joined, *last))
