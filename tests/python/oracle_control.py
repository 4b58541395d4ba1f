"""Operators that need a program around them: branches, loops, lists, states; and random ones, of which statistics are known."""
import numpy as np

from oracle_draw import operator
from oracle_elementwise import double
from oracle_program import MIL, Case, Out, immediate, value_type


class Nested:
    """with Nested(program, block): what the program gets goes into the block."""

    def __init__(self, program, block):
        self.program, self.block = program, block

    def __enter__(self):
        self.outer, self.program.block = self.program.block, self.block

    def __exit__(self, *_):
        self.program.block = self.outer


# ---- branches and loops ----


@operator("cond")
def cond(d):
    dtype, shape = d.choice(["float32", "float16", "int32"]), d.shape(0, 4)
    x, y, pred = d.array(shape, dtype, -4, 4), d.array(shape, dtype, -4, 4), d.array((), d.dtype("pred"))
    inner = d.array((), "bool")  # of a branch in the branch

    def build(program, names):
        kind = value_type(dtype, shape)

        def arithmetic(op):
            return program.step(op, {"x": names["x"], "y": names["y"]}, dtype, shape)

        def branch(pred, first, second):
            operation, out = program.block.operations.add(type="cond"), program.name("cond")
            operation.inputs["pred"].arguments.add(name=pred)
            for body in (first, second):
                block = operation.blocks.add()
                with Nested(program, block):
                    block.outputs.append(body())
            operation.outputs.add(name=out, type=kind)
            operation.attributes["name"].CopyFrom(immediate(out))
            return out

        return [branch(names["pred"], lambda: branch(names["inner"], lambda: arithmetic("add"), lambda: arithmetic("sub")),
                       lambda: arithmetic("mul"))]

    values = (double(x) + double(y) if inner else double(x) - double(y)) if pred else double(x) * double(y)
    return Case(d.op, {"x": x, "y": y, "pred": pred, "inner": inner}, {}, [Out(values, dtype)], exact_half=True, build=build)


@operator("while_loop")
def while_loop(d):
    shape, times = d.shape(0, 3), np.array((0, 1, 2, 300)[d.number] if d.number < 4 else d.integer(0, 9), np.int32)
    x, start = d.array(shape, "float32", -4, 4), d.array(shape, "float32", -4, 4)

    def build(program, names):
        types = [value_type("int32", ()), value_type("float32", shape)]
        zero = program.const(np.int32(0))
        operation = program.block.operations.add(type="while_loop")
        for name in (zero, names["start"]):
            operation.inputs["loop_vars"].arguments.add(name=name)
        for make in (False, True):
            block = operation.blocks.add()
            i, total = program.name("i"), program.name("total")
            for name, kind in zip((i, total), types):
                block.inputs.add(name=name, type=kind)
            with Nested(program, block):
                if make:
                    half = program.step("mul", {"x": total, "y": immediate(np.float32(.5))}, "float32", shape)
                    block.outputs.extend([program.step("add", {"x": i, "y": immediate(np.int32(1))}, "int32", ()),
                                          program.step("add", {"x": half, "y": names["x"]}, "float32", shape)])
                else:
                    block.outputs.append(program.step("less", {"x": i, "y": names["times"]}, "bool", ()))
        outs = [program.name("last"), program.name("last")]
        for name, kind in zip(outs, types):
            operation.outputs.add(name=name, type=kind)
        operation.attributes["name"].CopyFrom(immediate(outs[0]))
        return outs

    total = double(start)
    for _ in range(times):
        total = total * .5 + double(x)
    return Case(d.op, {"x": x, "start": start, "times": times}, {}, [Out(times, "int32"), Out(total, "float32")], build=build)


# ---- lists ----


@operator("make_list", "list_length", "list_write", "list_read", "list_gather", "list_scatter")
def lists(d):
    """A list is filled, one element is replaced, and the old list is still what it was."""
    value_of = d.row["params"].get("value", {}).get("dtypes") and d.dtype("value")
    dtype = value_of or d.choice(["float32", "float16", "int32", "bool"])
    shape, n, room = d.shape(1, 3, empty=False), d.integer(1, 5), d.integer(0, 2)
    first, other = d.values((n, *shape), dtype), d.values(shape, dtype)
    order = d.rng.permutation(n).astype(np.int32)
    grows = d.flag()
    place = np.array(n + room if grows else d.integer(0, n - 1), np.int32)
    chosen, one = d.array((d.integer(1, 4),), "int32", 0, n - 1), np.array(d.integer(0, n - 1), np.int32)
    for name in ("index", "indices", "init_length"):
        if name in d.row["params"]:
            d.note(name, "int32")

    def build(program, names):
        kind = MIL.ValueType()
        kind.listType.type.CopyFrom(value_type(dtype, shape))
        kind.listType.length.unknown.variadic = False

        def step(op, inputs):
            name = program.name("list")
            program.operation(op, inputs, [(name, kind)])
            return name

        empty = step("make_list", {"init_length": immediate(np.int32(n + room)), "dynamic_length": immediate(True),
                                   "elem_shape": [immediate(np.int32(k)) for k in shape],
                                   "dtype": immediate({"float32": "fp32", "float16": "fp16"}.get(dtype, dtype))})
        old = step("list_scatter", {"ls": empty, "indices": names["order"], "value": names["first"]})
        new = step("list_write", {"ls": old, "index": names["place"], "value": names["other"]})
        return [program.step("list_length", {"ls": new}, "int32", ()),
                program.step("list_read", {"ls": new, "index": names["place"]}, dtype, shape),
                program.step("list_read", {"ls": old, "index": names["one"]}, dtype, shape),
                program.step("list_gather", {"ls": new, "indices": names["chosen"]}, dtype, (len(chosen), *shape))]

    old = [None] * n
    for i, k in enumerate(order):
        old[k] = first[i]
    new = list(old)
    if not grows:
        new[place] = other
    outs = [Out(np.array(n + room + (1 if grows else 0)), "int32"), Out(other, dtype), Out(old[one], dtype),
            Out(np.stack([new[k] for k in chosen]), dtype)]
    inputs = {"first": first, "other": other, "order": order, "place": place, "chosen": chosen, "one": one}
    return Case(d.op, inputs, {}, outs, exact_half=True, build=build)


# ---- states ----


@operator("read_state")
def read_state(d):
    """Zeros at first, then what was written, also behind the next writing."""
    shape = d.shape(1, 4, empty=False)
    x = d.array(shape, "float16")

    def build(program, names):
        name = program.name("state")
        state = program.model.description.state.add(name=name)
        state.type.stateType.arrayType.dataType = 65552
        state.type.stateType.arrayType.shape.extend(shape)
        kind = MIL.ValueType()
        kind.stateType.wrappedType.CopyFrom(value_type("float16", shape))
        program.function.inputs.add(name=name, type=kind)
        seen = [program.step("read_state", {"input": name}, "float16", shape)]
        for op in ("add", "mul"):
            data = program.step(op, {"x": seen[-1], "y": names["x"]}, "float16", shape)
            program.operation("write_state", {"input": name, "data": data}, [])
            seen.append(program.step("read_state", {"input": name}, "float16", shape))
        return seen

    v = double(x)
    return Case(d.op, {"x": x}, {}, [Out(w, "float16") for w in (0 * v, v, v * v)], exact_half=True, build=build)


# ---- random ----


def random_case(d, inputs, consts, wanted, dtype, judge, *, varies=True):
    """Twice from one seed, once from another."""
    seed = d.integer(0, 10 ** 6)

    def build(program, names):
        given = {**names, **{k: immediate(v) for k, v in consts.items()}}
        shape = (None,) * wanted.ndim if "shape" in names else wanted.shape
        return [program.step(d.op, {**given, "seed": immediate(np.int32(s))}, dtype, shape) for s in (seed, seed, seed + 1)]

    def compare(got):
        got = [value.reshape(wanted.shape) if value.size == wanted.size else value for value in got]
        if any(value.shape != wanted.shape for value in got):
            return f"shapes {[value.shape for value in got]}, wanted {wanted.shape}"
        if not np.array_equal(got[0], got[1]):
            return "equal seeds give different values"
        if wanted.size > 200 and varies and np.array_equal(got[0], got[2]):
            return "different seeds give equal values"
        return next((text for text in map(judge, (double(got[0]), double(got[2]))) if text), None)

    outs = [Out(wanted, dtype, tuple(range(wanted.ndim)) if "shape" in inputs else ())] * 3
    return Case(d.op, inputs, consts, outs, build=build, compare=compare)


def random_shape(d):
    """(shape, inputs, constants)"""
    shape = (0, 3) if d.number == 1 else (1, 1) if d.number == 2 else (300, 40) if d.number % 4 == 3 else d.shape(1, 4, empty=False)
    vector = np.array(shape, np.int32)
    d.note("shape", "int32")
    return np.zeros(shape), *(({"shape": vector}, {}) if d.flag() else ({"x": np.zeros(1, np.float32)}, {"shape": vector}))


def moments(values, mean, deviation, low=-np.inf, high=np.inf):
    """A complaint if values are outside, or mean or spread further off than chance allows."""
    if values.size and (values.min() < low or values.max() > high or not np.isfinite(values).all()):
        return f"values from {values.min()} to {values.max()}, wanted {low} to {high}"
    if values.size > 1000:
        off = abs(values.mean() - mean) / (deviation / np.sqrt(values.size) + 1e-3 * abs(mean) + 1e-9)
        if off > 6:
            return f"mean {values.mean()}, wanted {mean}"
        if abs(values.std() - deviation) > .08 * deviation + 1e-9:
            return f"deviation {values.std()}, wanted {deviation}"
    return None


def draws(d, *ranges):
    """Type and constants of a distribution, and their values; some are left to their defaults."""
    names = [name for name, *_ in ranges]
    dtype = d.dtype(names[0])
    for name in names[1:]:
        d.note(name, dtype)
    if d.rng.random() < .2:
        return "float32", {}, [default for _, _, _, default in ranges]
    consts = {name: d.array((), dtype, low, high) for name, low, high, _ in ranges}
    return dtype, consts, [float(v) for v in consts.values()]


def only_shape(inputs):
    return {k: v for k, v in inputs.items() if k == "shape"}


@operator("random_uniform")
def random_uniform(d):
    wanted, inputs, consts = random_shape(d)
    dtype, given, (low, high) = draws(d, ("low", -3, 0, 0.), ("high", 1, 4, 1.))
    return without_x(random_case(d, inputs, {**consts, **given}, wanted, dtype,
                                 lambda v: moments(v, (low + high) / 2, (high - low) / 12 ** .5, low, high)))


@operator("random_normal")
def random_normal(d):
    wanted, inputs, consts = random_shape(d)
    dtype, given, (mean, deviation) = draws(d, ("mean", -3, 3, 0.), ("stddev", .5, 2, 1.))
    return without_x(random_case(d, inputs, {**consts, **given}, wanted, dtype, lambda v: moments(v, mean, deviation)))


@operator("random_bernoulli")
def random_bernoulli(d):
    wanted, inputs, consts = random_shape(d)
    dtype, given, (p,) = draws(d, ("prob", .1, .9, .5))

    def judge(v):
        return "values beside 0 and 1" if not np.isin(v, (0, 1)).all() else moments(v, p, (p * (1 - p)) ** .5)

    return without_x(random_case(d, inputs, {**consts, **given}, wanted, dtype, judge))


@operator("random_categorical")
def random_categorical(d):
    """How often each class comes, per row."""
    dtype, rows, n = d.dtype("x"), d.integer(1, 3), d.integer(1, 5)
    size = 4000 if d.number % 4 == 3 else d.integer(1, 20)
    mode = d.choice([None, "logits", "probs"])
    x = d.array((rows, n), dtype, .1, 2)
    v = double(x)
    chances = v / v.sum(1, keepdims=True) if mode == "probs" else np.exp(v) / np.exp(v).sum(1, keepdims=True)
    if mode == "probs":
        x = chances.astype(dtype)
    consts = {"size": np.int32(size), **({"mode": mode} if mode else {})}

    def judge(got):
        if got.ndim != 2:
            return None
        if not np.isin(got, np.arange(n)).all():
            return f"classes {np.unique(got)}, there are {n}"
        share = np.stack([(got == k).mean(1) for k in range(n)], 1)
        limit = 6 * np.sqrt(chances * (1 - chances) / size) + 2e-3
        return f"shares {share}, wanted {chances}" if size > 1000 and (np.abs(share - chances) > limit).any() else None

    return random_case(d, {"x": x}, consts, np.zeros((rows, size)), dtype, judge, varies=n > 1)


def without_x(case):
    """A program must have an input, the operator has none of this name."""
    build = case.build
    case.build = lambda program, names: build(program, only_shape(names))
    return case
