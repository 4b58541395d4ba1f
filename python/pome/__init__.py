"""Core ML programs and language models on Linux.

:class:`Model` runs any ML Program, :class:`LLM` generates text, :class:`Tokenizer` turns text into ids. Everything that fails
raises a subclass of :class:`Error`. ``pome.coremltools`` puts the engine behind coremltools' own ``MLModel``.

>>> llm = pome.LLM("llm.mlpackage", tokenizer="tokenizer")
>>> generation = llm.generate("hello world", temperature=0, max_new_tokens=5)
>>> for token in generation:
...     text = token.text  # as it comes
>>> generation.finish, len(generation.ids)
('length', 5)
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
from ._llm import LLM, Chat, ChatAnswer, GenerateOptions, Generation, Session, Token
from ._model import Feature, Function, Model, State, compile
from ._model_set import ModelSet, hub_folder
from ._pome import version as __version__
from ._tokenizer import Tokenizer

__all__ = [
    "ArgumentError",
    "CancelledError",
    "Chat",
    "ChatAnswer",
    "Error",
    "Feature",
    "FileError",
    "FormatError",
    "Function",
    "GenerateOptions",
    "Generation",
    "LLM",
    "LimitError",
    "Model",
    "ModelSet",
    "OutOfMemoryError",
    "Session",
    "State",
    "StateError",
    "Token",
    "Tokenizer",
    "UnsupportedError",
    "__version__",
    "compile",
    "hub_folder",
]
