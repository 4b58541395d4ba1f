"""States read, updated and written in every order that graphs use, against NumPy copies: in-place work must not show.

Each program is told twice: once with coremltools' builder (state operators as the file holds them) and once with arrays
that are copied at every read."""
import numpy as np
import pytest
from coremltools.converters.mil.mil import Builder as mb
from coremltools.converters.mil.mil import types
import coremltools as ct

import pome_api
from mlpackage_writer import write_package

SHAPE = (2, 1, 6, 3)


def state_spec(shape=SHAPE):
    return mb.StateTensorSpec(shape, dtype=types.fp16)


def tensor(shape, dtype=types.fp16):
    return mb.TensorSpec(shape, dtype=dtype)


def write(state, value):
    mb.coreml_update_state(state=state, value=value)


def rows(x, layer, begin, end):
    return mb.slice_by_index(x=x, begin=[layer, 0, begin, 0], end=[layer + 1, 1, end, 3])


def put(x, u, layer, begin, end):
    return mb.slice_update(x=x, update=u, begin=[layer, 0, begin, 0], end=[layer + 1, 1, end, 3])


# Every case: specs of inputs after the states, the program, and the same in NumPy, which returns (outputs, states).

def layers_in_turn():
    """Two layers of one state, each written back before the next reads: disjoint, all views."""
    def program(s, u):
        a = put(mb.read_state(input=s), u, 0, 2, 4)
        write(s, a)
        b = mb.read_state(input=s)
        first = rows(b, 0, 0, 4)
        c = put(b, mb.add(x=u, y=u), 1, 2, 4)
        write(s, c)
        d = mb.read_state(input=s)
        return mb.add(x=first, y=np.float16(0.5)), mb.mul(x=rows(d, 1, 0, 4), y=np.float16(2))

    def numpy(s, u):
        s = s.copy()
        s[0:1, :, 2:4] = u
        first = s[0:1, :, 0:4].copy()
        s[1:2, :, 2:4] = u + u
        return [first + np.float16(0.5), s[1:2, :, 0:4] * np.float16(2)], s
    return [(1, 1, 2, 3)], program, numpy


def overlapping_view():
    """A view taken before an update of the same rows must keep the old values."""
    def program(s, u):
        a = mb.read_state(input=s)
        old = rows(a, 0, 1, 5)
        b = put(a, u, 0, 2, 4)
        write(s, b)
        return mb.identity(x=mb.add(x=old, y=rows(mb.read_state(input=s), 0, 1, 5))),

    def numpy(s, u):
        old = s[0:1, :, 1:5].copy()
        s = s.copy()
        s[0:1, :, 2:4] = u
        return [old + s[0:1, :, 1:5]], s
    return [(1, 1, 2, 3)], program, numpy


def whole_before_and_after():
    """The state as it was is an output."""
    def program(s, u):
        a = mb.read_state(input=s)
        write(s, put(a, u, 1, 0, 2))
        return mb.identity(x=a), mb.add(x=mb.read_state(input=s), y=np.float16(1))

    def numpy(s, u):
        old = s.copy()
        s = s.copy()
        s[1:2, :, 0:2] = u
        return [old, s + np.float16(1)], s
    return [(1, 1, 2, 3)], program, numpy


def chain_of_updates():
    """Several updates before one write; a result in the middle is used after the next update."""
    def program(s, u):
        a = put(mb.read_state(input=s), u, 0, 0, 2)
        b = put(a, mb.mul(x=u, y=np.float16(3)), 0, 1, 3)
        middle = mb.reduce_sum(x=rows(a, 0, 0, 3), axes=[2], keep_dims=True)
        other = rows(a, 1, 0, 3)
        write(s, b)
        return middle, mb.add(x=other, y=np.float16(0))

    def numpy(s, u):
        a = s.copy()
        a[0:1, :, 0:2] = u
        b = a.copy()
        b[0:1, :, 1:3] = u * np.float16(3)
        return [a[0:1, :, 0:3].astype(np.float32).sum(2, keepdims=True), a[1:2, :, 0:3]], b
    return [(1, 1, 2, 3)], program, numpy


def not_written_back():
    """An update that is only an output leaves the state alone."""
    def program(s, u):
        a = put(mb.read_state(input=s), u, 0, 0, 2)
        return mb.identity(x=a), mb.add(x=mb.read_state(input=s), y=np.float16(0))

    def numpy(s, u):
        a = s.copy()
        a[0:1, :, 0:2] = u
        return [a, s], s
    return [(1, 1, 2, 3)], program, numpy


def shifted():
    """Old rows move up and the new one goes to the end: the update's source is the state itself."""
    def program(s, u):
        a = mb.read_state(input=s)
        moved = put(a, rows(a, 0, 1, 6), 0, 0, 5)
        b = put(moved, u, 0, 5, 6)
        write(s, b)
        return mb.reduce_sum(x=rows(mb.read_state(input=s), 0, 0, 6), axes=[2], keep_dims=True),

    def numpy(s, u):
        s = s.copy()
        s[0:1, :, 0:5] = s[0:1, :, 1:6].copy()
        s[0:1, :, 5:6] = u
        return [s[0:1].astype(np.float32).sum(2, keepdims=True)], s
    return [(1, 1, 1, 3)], program, numpy


def shifted_down():
    def program(s, u):
        a = mb.read_state(input=s)
        moved = put(a, rows(a, 1, 0, 5), 1, 1, 6)
        write(s, put(moved, u, 1, 0, 1))
        return mb.identity(x=rows(mb.read_state(input=s), 1, 0, 6)),

    def numpy(s, u):
        s = s.copy()
        s[1:2, :, 1:6] = s[1:2, :, 0:5].copy()
        s[1:2, :, 0:1] = u
        return [s[1:2]], s
    return [(1, 1, 1, 3)], program, numpy


def read_between_update_and_write():
    """Someone reads the state between the update and its write: they must see the old one."""
    def program(s, u):
        a = put(mb.read_state(input=s), u, 0, 0, 2)
        before = mb.add(x=mb.read_state(input=s), y=np.float16(0))
        write(s, a)
        return mb.identity(x=before), mb.add(x=mb.read_state(input=s), y=np.float16(0))

    def numpy(s, u):
        a = s.copy()
        a[0:1, :, 0:2] = u
        return [s, a], a
    return [(1, 1, 2, 3)], program, numpy


def replaced():
    """Written with something that is no update at all, twice."""
    def program(s, u):
        a = mb.read_state(input=s)
        write(s, mb.add(x=a, y=np.float16(1)))
        b = mb.read_state(input=s)
        write(s, mb.mul(x=b, y=np.float16(2)))
        return mb.add(x=a, y=b), mb.concat(values=[u, u], axis=2)

    def numpy(s, u):
        b = s + np.float16(1)
        return [s + b, np.concatenate([u, u], 2)], b * np.float16(2)
    return [(1, 1, 2, 3)], program, numpy


def reversed_rows():
    """Written with a view of itself."""
    def program(s, u):
        a = mb.read_state(input=s)
        write(s, mb.reverse(x=a, axes=[2]))
        return mb.add(x=a, y=np.float16(0)), mb.identity(x=u)

    def numpy(s, u):
        return [s, u], s[:, :, ::-1]
    return [(1, 1, 2, 3)], program, numpy


def strided_update():
    def program(s, u):
        a = mb.read_state(input=s)
        b = mb.slice_update(x=a, update=u, begin=[0, 0, 0, 0], end=[2, 1, 6, 3], stride=[1, 1, 3, 1])
        write(s, b)
        return mb.transpose(x=mb.read_state(input=s), perm=[2, 0, 3, 1]),

    def numpy(s, u):
        s = s.copy()
        s[:, :, ::3] = u
        return [s.transpose(2, 0, 3, 1)], s
    return [(2, 1, 2, 3)], program, numpy


def heads_of_two_updates():
    """Keys and values fused in one state; keys are read after the values were written (constant layers)."""
    def program(s, u):
        a = put(mb.read_state(input=s), u, 0, 3, 5)
        write(s, a)
        b = mb.read_state(input=s)
        c = put(b, mb.mul(x=u, y=np.float16(-1)), 1, 3, 5)
        write(s, c)
        keys, values = rows(b, 0, 0, 5), rows(mb.read_state(input=s), 1, 0, 5)
        return mb.matmul(x=keys, y=values, transpose_y=True),

    def numpy(s, u):
        s = s.copy()
        s[0:1, :, 3:5] = u
        s[1:2, :, 3:5] = -u
        k, v = s[0:1, :, 0:5].astype(np.float32), s[1:2, :, 0:5].astype(np.float32)
        return [k @ v.swapaxes(-1, -2)], s
    return [(1, 1, 2, 3)], program, numpy


def position_at_run_time():
    """Bounds that nobody knows before the run: old rows must survive the write."""
    def program(s, u, position):
        begin = mb.concat(values=[np.int32([0, 0]), position, np.int32([0])], axis=0)
        end = mb.concat(values=[np.int32([1, 1]), mb.add(x=position, y=np.int32(2)), np.int32([3])], axis=0)
        a = mb.read_state(input=s)
        old = rows(a, 0, 0, 6)
        b = mb.slice_update(x=a, update=u, begin=begin, end=end)
        write(s, b)
        return mb.sub(x=mb.slice_by_index(x=mb.read_state(input=s), begin=[0, 0, 0, 0], end=[1, 1, 6, 3]), y=old),

    def numpy(s, u, position):
        old = s[0:1].copy()
        s = s.copy()
        p = int(position[0])
        s[0:1, :, p:p + 2] = u
        return [s[0:1] - old], s
    return [(1, 1, 2, 3), "position"], program, numpy


CASES = [layers_in_turn, overlapping_view, whole_before_and_after, chain_of_updates, not_written_back, shifted, shifted_down,
         read_between_update_and_write, replaced, reversed_rows, strided_update, heads_of_two_updates, position_at_run_time]


def build(specs, program):
    """A function of exactly the wanted parameters, as the builder wants them."""
    inputs = [tensor((1,), types.int32) if s == "position" else tensor(s) for s in specs]
    if len(inputs) == 2:
        @mb.program(input_specs=[state_spec(), *inputs], opset_version=ct.target.iOS18)
        def prog(s, u, position):
            return program(s, u, position)
    else:
        @mb.program(input_specs=[state_spec(), *inputs], opset_version=ct.target.iOS18)
        def prog(s, u):
            return program(s, u)
    return prog


@pytest.mark.parametrize("numerics", ["exact", "fp16"])
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.__name__)
def test_updates_do_not_show(case, numerics, tmp_path):
    specs, program, numpy = case()
    write_package(build(specs, program), tmp_path / "m.mlpackage", 18)
    rng = np.random.default_rng(7)
    expected_state = np.zeros(SHAPE, np.float16)
    with pome_api.Model(tmp_path / "m.mlpackage", numerics=numerics) as model, model.predictor() as run, model.state() as state:
        names = model.input_names()
        shown = pome_api.library().pome_state_find(state, model.function().states[0].name)
        for step in range(4):
            feeds = [np.int32([step]) if s == "position" else rng.integers(-8, 9, s).astype(np.float16) for s in specs]
            outputs, expected_state = numpy(expected_state.copy(), *feeds)
            got = run(dict(zip(names, feeds)), state)
            for want, value in zip(outputs, got.values()):
                np.testing.assert_array_equal(value, want.astype(np.float16))
            np.testing.assert_array_equal(pome_api.from_tensor(shown.contents), expected_state)
