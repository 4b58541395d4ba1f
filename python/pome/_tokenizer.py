"""Text to token ids and back."""
from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import _pome
from ._model import Model


def as_ids(ids: Iterable[int]) -> NDArray[np.int32]:
    """Token ids as the extension takes them. Raises ValueError for anything but one dimension of integers."""
    array = np.asarray(ids if isinstance(ids, np.ndarray) else list(ids))
    if array.size and array.dtype.kind not in "iu":
        raise ValueError(f"token ids are integers, not {array.dtype}")
    if array.ndim != 1:
        raise ValueError(f"token ids have one dimension, not {array.ndim}")
    if array.size and (array.min() < -(2**31) or array.max() >= 2**31):
        raise ValueError("a token id does not fit 32 bits")
    return np.ascontiguousarray(array, np.int32)


class Tokenizer:
    """The tokenizer of a model: a folder with ``tokenizer.json``, such a file, or a GGUF file with a vocabulary.

    >>> tokenizer = pome.Tokenizer("tokenizer")
    >>> ids = tokenizer.encode("hello world")
    >>> tokenizer.decode(ids)
    'hello world'

    Immutable; may be used by several threads at once.

    Raises:
        FileError: there is no such file.
        FormatError: the file is damaged.
        UnsupportedError: a kind of tokenizer that is not known.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._open(_pome.Tokenizer(path, None))

    def _open(self, native: _pome.Tokenizer) -> None:
        self._native = native
        self._info = native.describe()

    @classmethod
    def locate(cls, model: Model, path: str | os.PathLike[str] | None = None) -> Tokenizer:
        """Opens the tokenizer of a model: in the package, beside it, or in the local Hub cache under the repository that the
        package names. Where ``path`` is given, only there. Raises FileError with the places that were tried."""
        made = cls.__new__(cls)
        made._open(_pome.Tokenizer(path, model._native))
        return made

    def __repr__(self) -> str:
        return f"pome.Tokenizer({self.source!r})"

    def __reduce__(self) -> str:
        raise TypeError("a Tokenizer cannot be pickled: it is bound to this process; open the file again instead")

    def __len__(self) -> int:
        return self.n_vocab

    @property
    def n_vocab(self) -> int:
        """Entries of the vocabulary."""
        return self._info["n_vocab"]

    @property
    def source(self) -> str:
        """The file it came from."""
        return self._info["source"]

    @property
    def eos_ids(self) -> list[int]:
        """The ids that end a generation."""
        return list(self._info["eos"])

    @property
    def bos_id(self) -> int | None:
        """The id that begins a text, or ``None``."""
        return self._info["bos"]

    @property
    def has_chat_template(self) -> bool:
        """Whether :meth:`apply_chat_template` has something to apply."""
        return self._info["has_chat_template"]

    def encode(self, text: str | bytes, *, add_special: bool = True, parse_special: bool = False) -> list[int]:
        """Ids of a text.

        Args:
            text: bytes need not be valid UTF-8.
            add_special: also what the tokenizer adds around a text (BOS, ...).
            parse_special: names of special tokens in the text become their ids, as the text of a chat template wants it.
        """
        return self._native.encode(text, add_special, parse_special)

    def decode(self, ids: Iterable[int], *, skip_special: bool = True) -> str:
        """The text of ids; ids without an entry give nothing, and bytes that are not UTF-8 become U+FFFD."""
        return self._native.decode(as_ids(ids), skip_special)

    def piece(self, id: int) -> str | None:
        """The vocabulary's own spelling of an id, or ``None``."""
        return self._native.piece(id)

    def find(self, piece: str) -> int | None:
        """The id of a spelling, or ``None``."""
        return self._native.find(piece)

    def is_special(self, id: int) -> bool:
        """Whether an id stands for a special token."""
        return self._native.is_special(id)

    def apply_chat_template(self, messages: Iterable[Mapping[str, Any]], *, add_generation_prompt: bool = True) -> str:
        """The text of a conversation, as the model's template writes it.

        Args:
            messages: mappings with ``"role"`` and ``"content"``, both text.
            add_generation_prompt: end with what begins the assistant's answer.

        Raises:
            UnsupportedError: no template, or a construct that is not known.
            ArgumentError: the template itself refused the messages.

        >>> text = pome.Tokenizer("tokenizer").apply_chat_template([{"role": "user", "content": "hello"}])
        >>> "hello" in text
        True
        """
        pairs = [(str(message["role"]), str(message["content"])) for message in messages]
        return self._native.apply_chat_template(pairs, add_generation_prompt)
