"""Core ML programs and language models on Linux.

:class:`Model` runs any ML Program, :class:`LLM` generates text, :class:`Tokenizer` turns text into ids. Everything that fails
raises a subclass of :class:`Error`. ``pome.coremltools`` puts the engine behind coremltools' own ``MLModel``.
"""
from ._errors import (
    ArgumentError,
    CancelledError,
    Error,
    FileError,
    FormatError,
    LimitError,
    OutOfMemoryError,
    StateError,
    UnsupportedError,
)
from ._llm import LLM, Chat, Generation, Session, Token
from ._model import Feature, Function, Model, State, compile
from ._pome import version as __version__
from ._tokenizer import Tokenizer

__all__ = [
    "ArgumentError",
    "CancelledError",
    "Chat",
    "Error",
    "Feature",
    "FileError",
    "FormatError",
    "Function",
    "Generation",
    "LLM",
    "LimitError",
    "Model",
    "OutOfMemoryError",
    "Session",
    "State",
    "StateError",
    "Token",
    "Tokenizer",
    "UnsupportedError",
    "__version__",
    "compile",
]
