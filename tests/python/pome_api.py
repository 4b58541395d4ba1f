"""The public C interface through ctypes, as far as the tests need it. Mirrors include/pome/*.h."""
import contextlib
import ctypes as c
import os

import numpy as np

MAX_RANK = 8
DTYPES = ["none", "bool", "float16", "float32", "float64", "bf16", "f8e4m3fn", "f8e5m2", "int4", "int8", "int16", "int32", "int64",
          "uint1", "uint2", "uint3", "uint4", "uint6", "uint8", "uint16", "uint32", "uint64", "string"]
CODES = ["OK", "NOMEM", "IO", "FORMAT", "UNSUPPORTED", "ARG", "LIMIT", "STATE", "CANCELLED"]
NUMERICS = {"exact": 0, "fast": 1, "fp16": 2}


class Error(c.Structure):
    _fields_ = [("code", c.c_int), ("offset", c.c_uint64), ("message", c.c_char * 1024)]


class CTensor(c.Structure):
    _fields_ = [("dtype", c.c_int), ("rank", c.c_int32), ("shape", c.c_int64 * MAX_RANK), ("stride", c.c_int64 * MAX_RANK),
                ("data", c.c_void_p), ("owner", c.c_void_p)]


class AxisRange(c.Structure):
    _fields_ = [("min", c.c_int64), ("max", c.c_int64)]


class Feature(c.Structure):
    _fields_ = [("name", c.c_char_p), ("description", c.c_char_p), ("kind", c.c_int), ("dtype", c.c_int), ("rank", c.c_int32),
                ("shape", c.c_int64 * MAX_RANK), ("is_ranged", c.c_bool), ("range", AxisRange * MAX_RANK),
                ("n_enumerated", c.c_uint32), ("enumerated", c.POINTER(c.c_int64)), ("is_optional", c.c_bool),
                ("has_default", c.c_bool), ("default_value", c.c_double), ("color", c.c_int)]


class FunctionInfo(c.Structure):
    _fields_ = [("name", c.c_char_p), ("n_inputs", c.c_uint32), ("n_outputs", c.c_uint32), ("n_states", c.c_uint32),
                ("inputs", c.POINTER(Feature)), ("outputs", c.POINTER(Feature)), ("states", c.POINTER(Feature))]


class ModelInfo(c.Structure):
    _fields_ = [("path", c.c_char_p), ("specification_version", c.c_int32), ("short_description", c.c_char_p),
                ("version", c.c_char_p), ("author", c.c_char_p), ("license", c.c_char_p), ("n_metadata", c.c_uint32),
                ("metadata", c.c_void_p), ("n_functions", c.c_uint32), ("functions", c.POINTER(FunctionInfo)),
                ("default_function", c.c_uint32), ("weights_bytes", c.c_uint64)]


class ModelOpts(c.Structure):
    _fields_ = [("size", c.c_size_t), ("numerics", c.c_int), ("n_threads", c.c_int), ("no_fuse", c.c_char_p)]


class PomeError(Exception):
    def __init__(self, code, message):
        super().__init__(f"{CODES[code]}: {message}")
        self.code = CODES[code]
        self.message = message


def load_library():
    lib = c.CDLL(os.environ["POME_LIBRARY"])
    handle, error = c.c_void_p, c.POINTER(Error)
    for name, result, arguments in (
            ("pome_model_open", c.c_int, [c.POINTER(handle), c.c_char_p, c.POINTER(ModelOpts), error]),
            ("pome_model_close", None, [c.POINTER(handle)]),
            ("pome_model_describe", c.POINTER(ModelInfo), [handle]),
            ("pome_model_find_function", c.c_int, [handle, c.c_char_p]),
            ("pome_model_opts_default", None, [c.POINTER(ModelOpts)]),
            ("pome_state_create", c.c_int, [c.POINTER(handle), handle, c.c_char_p, error]),
            ("pome_state_destroy", None, [c.POINTER(handle)]),
            ("pome_state_find", c.POINTER(CTensor), [handle, c.c_char_p]),
            ("pome_predictor_create", c.c_int, [c.POINTER(handle), handle, c.c_char_p, c.c_void_p, error]),
            ("pome_predictor_destroy", None, [c.POINTER(handle)]),
            ("pome_predictor_set_input", c.c_int, [handle, c.c_uint32, c.POINTER(CTensor), error]),
            ("pome_predictor_run", c.c_int, [handle, handle, error]),
            ("pome_predictor_output", c.POINTER(CTensor), [handle, c.c_uint32]),
            ("pome_llm_open", c.c_int, [c.POINTER(handle), handle, c.c_void_p, error]),
            ("pome_llm_close", None, [c.POINTER(handle)]),
            ("pome_llm_n_vocab", c.c_int64, [handle]),
            ("pome_llm_session_create", c.c_int, [c.POINTER(handle), handle, error]),
            ("pome_llm_session_destroy", None, [c.POINTER(handle)]),
            ("pome_llm_session_clear", None, [handle]),
            ("pome_llm_session_append", c.c_int, [handle, c.POINTER(c.c_int32), c.c_int64, c.POINTER(c.POINTER(c.c_float)), error]),
            ("pome_llm_session_feed_all", c.c_int, [handle, c.POINTER(c.c_int32), c.c_int64, c.POINTER(c.POINTER(c.c_float)),
                                                    c.POINTER(c.c_int64), error])):
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    return lib


_library = None


def library():
    global _library
    if _library is None:
        _library = load_library()
    return _library


def check(status, error):
    if status:
        raise PomeError(status, error.message.decode(errors="replace"))


def to_tensor(array):
    """A CTensor over the memory of an array, which must stay alive."""
    t = CTensor(dtype=DTYPES.index(array.dtype.name), rank=array.ndim, data=array.ctypes.data)
    for i, (size, stride) in enumerate(zip(array.shape, array.strides)):
        t.shape[i], t.stride[i] = size, stride // array.itemsize
    return t


def from_tensor(t):
    """A copy of a tensor as an array; a string as itself."""
    if DTYPES[t.dtype] == "string":
        return c.cast(t.data, c.POINTER(c.c_char_p))[0].decode()
    dtype = np.dtype(DTYPES[t.dtype])
    shape = tuple(t.shape[: t.rank])
    if 0 in shape:
        return np.zeros(shape, dtype)
    strides = tuple(s * dtype.itemsize for s in t.stride[: t.rank])
    reach = 1 + sum((n - 1) * s for n, s in zip(shape, t.stride[: t.rank]))
    memory = np.ctypeslib.as_array(c.cast(t.data, c.POINTER(c.c_uint8)), (reach * dtype.itemsize,)).view(dtype)
    return np.lib.stride_tricks.as_strided(memory, shape, strides).copy()


class Model(contextlib.AbstractContextManager):
    """An opened package. predict() runs a function with a state of its own unless one is given."""

    def __init__(self, path, numerics="exact", threads=0, no_fuse=None):
        self.lib, self.handle, error = library(), c.c_void_p(), Error()
        opts = ModelOpts()
        self.lib.pome_model_opts_default(opts)
        opts.numerics, opts.n_threads = NUMERICS[numerics], threads
        opts.no_fuse = no_fuse.encode() if no_fuse else None
        check(self.lib.pome_model_open(self.handle, os.fsencode(path), opts, error), error)
        self.info = self.lib.pome_model_describe(self.handle).contents

    def __exit__(self, *exception):
        self.lib.pome_model_close(self.handle)

    def function(self, name=None):
        index = self.lib.pome_model_find_function(self.handle, name.encode() if name else None)
        if index < 0:
            raise KeyError(name)
        return self.info.functions[index]

    def input_names(self, function=None):
        f = self.function(function)
        return [f.inputs[i].name.decode() for i in range(f.n_inputs)]

    @contextlib.contextmanager
    def state(self, function=None):
        handle, error = c.c_void_p(), Error()
        check(self.lib.pome_state_create(handle, self.handle, function and function.encode(), error), error)
        try:
            yield handle
        finally:
            self.lib.pome_state_destroy(handle)

    @contextlib.contextmanager
    def predictor(self, function=None):
        """A function of (inputs by name, state handle or None) that gives the outputs by name."""
        handle, error = c.c_void_p(), Error()
        check(self.lib.pome_predictor_create(handle, self.handle, function and function.encode(), None, error), error)
        info = self.function(function)

        def run(inputs, state=None):
            keep = []
            for i in range(info.n_inputs):
                name = info.inputs[i].name.decode()
                if name not in inputs:
                    continue
                array = np.asarray(inputs[name])
                keep.append((array, to_tensor(array)))
                check(self.lib.pome_predictor_set_input(handle, i, keep[-1][1], error), error)
            check(self.lib.pome_predictor_run(handle, state, error), error)
            return {info.outputs[i].name.decode(): from_tensor(self.lib.pome_predictor_output(handle, i).contents)
                    for i in range(info.n_outputs)}

        try:
            yield run
        finally:
            self.lib.pome_predictor_destroy(handle)

    def predict(self, inputs, function=None):
        with contextlib.ExitStack() as stack:
            run = stack.enter_context(self.predictor(function))
            state = stack.enter_context(self.state(function)) if self.function(function).n_states else None
            return run(inputs, state)


class Session(contextlib.AbstractContextManager):
    """A language-model session with an engine of its own over a model."""

    def __init__(self, model):
        self.lib, self.llm, self.handle, error = library(), c.c_void_p(), c.c_void_p(), Error()
        check(self.lib.pome_llm_open(self.llm, model.handle, None, error), error)
        check(self.lib.pome_llm_session_create(self.handle, self.llm, error), error)
        self.n_vocab = self.lib.pome_llm_n_vocab(self.llm)

    def __exit__(self, *exception):
        self.lib.pome_llm_session_destroy(self.handle)
        self.lib.pome_llm_close(self.llm)

    def clear(self):
        self.lib.pome_llm_session_clear(self.handle)

    def feed_all(self, ids):
        """Logits [fed, n_vocab] of the positions that were not cached."""
        ids = np.ascontiguousarray(ids, np.int32)
        logits, reused, error = c.POINTER(c.c_float)(), c.c_int64(), Error()
        check(self.lib.pome_llm_session_feed_all(self.handle, ids.ctypes.data_as(c.POINTER(c.c_int32)), len(ids), logits, reused,
                                                 error), error)
        return np.ctypeslib.as_array(logits, (len(ids) - reused.value, self.n_vocab)).copy()

    def append(self, ids):
        """Logits [n_vocab] after the last of these ids."""
        ids = np.ascontiguousarray(ids, np.int32)
        logits, error = c.POINTER(c.c_float)(), Error()
        check(self.lib.pome_llm_session_append(self.handle, ids.ctypes.data_as(c.POINTER(c.c_int32)), len(ids), logits, error), error)
        return np.ctypeslib.as_array(logits, (self.n_vocab,)).copy()
