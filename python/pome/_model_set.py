"""Models that are run together: the parts of a language model that was cut into pieces."""
from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping

from . import _pome
from ._model import Model, numerics_code


class ModelSet(Mapping[str, Model]):
    """The models of a folder, opened for running together; a mapping from name to :class:`Model`, "part10" after "part9".

    >>> parts = pome.ModelSet("chunks")
    >>> list(parts)
    ['cache-processor', 'logit-processor', 'tiny-llama_chunk1', 'tiny-llama_chunk2', 'tiny-llama_chunk3', 'tiny-llama_chunk4']
    >>> print(parts["tiny-llama_chunk1"].outputs[0])
    x  fp16 [1, 64, 8, 8]

    They are opened several at a time and share their threads. The path of a single model makes a set of one.

    Args:
        path: a folder of packages and compiled models (of ``NAME.mlpackage`` and ``NAME.mlmodelc`` the second is taken), or
            one model.
        prefix: of several sets of chunks in the folder take ``PREFIX_chunk1``, ``PREFIX_chunk2``, ...
        others: file names: of the models that are no chunks, these alone are opened; ``None``: all.
        numerics, threads, no_fuse: as for :class:`Model`.

    Raises:
        FileError: there is no such folder, or no model of the name of one of ``others``.
        FormatError, UnsupportedError: as :class:`Model`, with the model's name.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        prefix: str | None = None,
        others: Iterable[str] | None = None,
        numerics: str = "exact",
        threads: int = 0,
        no_fuse: str | None = None,
    ) -> None:
        code, names = numerics_code(numerics), [str(name) for name in others or ()]
        self._native = _pome.ModelSet(path, code, threads, no_fuse, prefix, names)
        self.path = os.fspath(path)
        opened = self._native.models()
        self._models = {name: Model._wrap(native, numerics) for name, native, _ in opened}
        self._seconds = {name: seconds for name, _, seconds in opened}

    def __repr__(self) -> str:
        return f"pome.ModelSet({self.path!r})"

    def __reduce__(self) -> str:
        raise TypeError("a ModelSet cannot be pickled: it is bound to this process; open the folder again instead")

    def __getitem__(self, name: str) -> Model:
        return self._models[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._models)

    def __len__(self) -> int:
        return len(self._models)

    @property
    def open_seconds(self) -> dict[str, float]:
        """How long opening each model took."""
        return dict(self._seconds)


def hub_folder(repository: str) -> str:
    """The folder of a repository ("owner/name") in the local Hub cache: the snapshot that its ``refs/main`` names.

    Nothing is downloaded. For :class:`LLM` and :class:`Tokenizer`.

    Raises:
        FileError: it is not there; the text names the folder that was looked at.
        ArgumentError: this is no repository id.

    >>> try:
    ...     pome.hub_folder("owner/none")
    ... except pome.FileError as error:
    ...     print(str(error).split(" (")[0])
    owner/none is not in the local Hub cache
    """
    return _pome.hub_find(repository)
