"""Exceptions: one class per code of the C interface (include/pome/status.h)."""
from __future__ import annotations


class Error(Exception):
    """What the engine refused or could not do. ``str(error)`` is one sentence: the thing, what was found, what was wanted.

    Attributes:
        code: the code's name without its prefix: ``"FORMAT"``.
        status: the code as a number of the C interface.
        offset: the byte position in the file concerned, 0 where none applies.
        message: the sentence.

    >>> try:
    ...     pome.Model("none.mlpackage")
    ... except pome.Error as error:
    ...     print(type(error).__name__, error.code, error.status, error.offset)
    FileError IO 2 0
    """

    code: str
    status: int
    offset: int
    message: str

    def __init__(self, message: str, code: str = "", status: int = 0, offset: int = 0) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.status = status
        self.offset = offset

    def __reduce__(self) -> tuple[type[Error], tuple[str, str, int, int]]:
        return type(self), (self.message, self.code, self.status, self.offset)


class OutOfMemoryError(Error, MemoryError):
    """Memory could not be had: use less or try again."""


class FileError(Error, OSError):
    """The system refused a file: look at the path, rights, disk."""


class FormatError(Error, ValueError):
    """The bytes of a file are not what they claim to be; ``offset`` tells where."""


class UnsupportedError(Error, NotImplementedError):
    """A valid request that this version cannot fulfil: the text names it."""


class ArgumentError(Error, ValueError):
    """An argument does not fit the model: a shape, a name, a value."""


class LimitError(Error, ValueError):
    """A limit (context, size, count) was met."""


class StateError(Error, RuntimeError):
    """The object is not in a state for this call: used by two threads at once, for instance."""


class CancelledError(Error):
    """Stopped on request."""


_CLASSES = {
    "NOMEM": OutOfMemoryError,
    "IO": FileError,
    "FORMAT": FormatError,
    "UNSUPPORTED": UnsupportedError,
    "ARG": ArgumentError,
    "LIMIT": LimitError,
    "STATE": StateError,
    "CANCELLED": CancelledError,
}


def make(status: int, name: str, offset: int, message: str) -> Error:
    """The exception for a pome_error; called by the extension."""
    code = name.removeprefix("POME_ERR_")
    return _CLASSES.get(code, Error)(message, code, status, offset)
