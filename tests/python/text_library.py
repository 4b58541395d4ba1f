"""The text part of the public C API through ctypes, for tests that compare it with other implementations."""

import ctypes
import os


class Error(ctypes.Structure):
    _fields_ = [("code", ctypes.c_int), ("offset", ctypes.c_uint64), ("message", ctypes.c_char * 1024)]


class Message(ctypes.Structure):
    _fields_ = [("role", ctypes.c_char_p), ("content", ctypes.c_char_p)]


class PomeError(Exception):
    def __init__(self, err):
        self.code = err.code
        super().__init__(err.message.decode("utf-8", "replace"))


_lib = ctypes.CDLL(os.environ["POME_LIBRARY"])
_lib.pome_tokenizer_piece.restype = ctypes.c_char_p
_lib.pome_tokenizer_eos.restype = ctypes.POINTER(ctypes.c_int32)
_lib.pome_tokenizer_has_chat_template.restype = ctypes.c_bool
_lib.pome_tokenizer_is_special.restype = ctypes.c_bool
_libc = ctypes.CDLL(None)
_libc.free.argtypes = [ctypes.c_void_p]


def _check(status, err):
    if status != 0:
        raise PomeError(err)


class Tokenizer:
    def __init__(self, path):
        self._handle, err = ctypes.c_void_p(), Error()
        _check(_lib.pome_tokenizer_open(ctypes.byref(self._handle), os.fsencode(path), ctypes.byref(err)), err)

    def close(self):
        _lib.pome_tokenizer_close(ctypes.byref(self._handle))

    def __len__(self):
        return _lib.pome_tokenizer_n_vocab(self._handle)

    def encode(self, text, add_special=False, parse_special=True):
        data = text if isinstance(text, bytes) else text.encode("utf-8")
        ids, n, err = ctypes.POINTER(ctypes.c_int32)(), ctypes.c_size_t(), Error()
        _check(_lib.pome_tokenizer_encode(self._handle, data, ctypes.c_size_t(len(data)), ctypes.c_bool(add_special),
                                          ctypes.c_bool(parse_special), ctypes.byref(ids), ctypes.byref(n),
                                          ctypes.byref(err)), err)
        result = ids[: n.value]
        _libc.free(ids)
        return result

    def _take(self, text, n):
        result = ctypes.string_at(text, n.value)
        _libc.free(text)
        return result.decode("utf-8")

    def decode(self, ids, skip_special=False):
        array = (ctypes.c_int32 * len(ids))(*ids)
        text, n, err = ctypes.c_void_p(), ctypes.c_size_t(), Error()
        _check(_lib.pome_tokenizer_decode(self._handle, array, ctypes.c_size_t(len(ids)), ctypes.c_bool(skip_special),
                                          ctypes.byref(text), ctypes.byref(n), ctypes.byref(err)), err)
        return self._take(text, n)

    def stream(self, ids, skip_special=False):
        """The parts that the streaming decoder gives, the last one from finishing."""
        handle, err = ctypes.c_void_p(), Error()
        _check(_lib.pome_text_stream_create(ctypes.byref(handle), self._handle, ctypes.c_bool(skip_special),
                                            ctypes.byref(err)), err)
        parts, text, n = [], ctypes.c_void_p(), ctypes.c_size_t()
        for i in ids:
            _check(_lib.pome_text_stream_push(handle, i, ctypes.byref(text), ctypes.byref(n), ctypes.byref(err)), err)
            parts.append(ctypes.string_at(text, n.value).decode("utf-8"))
        _check(_lib.pome_text_stream_finish(handle, ctypes.byref(text), ctypes.byref(n), ctypes.byref(err)), err)
        parts.append(ctypes.string_at(text, n.value).decode("utf-8"))
        _lib.pome_text_stream_destroy(ctypes.byref(handle))
        return parts

    def piece(self, i):
        return _lib.pome_tokenizer_piece(self._handle, i)

    def find(self, piece):
        return _lib.pome_tokenizer_find(self._handle, piece.encode("utf-8"))

    def is_special(self, i):
        return _lib.pome_tokenizer_is_special(self._handle, i)

    def bos(self):
        return _lib.pome_tokenizer_bos(self._handle)

    def eos(self):
        n = ctypes.c_size_t()
        ids = _lib.pome_tokenizer_eos(self._handle, ctypes.byref(n))
        return ids[: n.value] if n.value else []

    def has_chat_template(self):
        return _lib.pome_tokenizer_has_chat_template(self._handle)

    def apply_chat_template(self, messages, add_generation_prompt=False):
        array = (Message * len(messages))(*[Message(m["role"].encode(), m["content"].encode()) for m in messages])
        text, n, err = ctypes.c_void_p(), ctypes.c_size_t(), Error()
        _check(_lib.pome_tokenizer_apply_chat_template(self._handle, array, ctypes.c_size_t(len(messages)),
                                                       ctypes.c_bool(add_generation_prompt), ctypes.byref(text),
                                                       ctypes.byref(n), ctypes.byref(err)), err)
        return self._take(text, n)
