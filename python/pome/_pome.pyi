"""The extension module: thin types over the C interface. Programs use the classes of the package."""
from collections.abc import Callable
from os import PathLike
from typing import Any, TypedDict, final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

# NumPy says only for CPython 3.12 and later that its arrays are buffers.
Array = Buffer | NDArray[Any]
Ids = Buffer | NDArray[np.int32]

version: str

def compile(source: str | bytes | PathLike[str], out: str | bytes | PathLike[str], weights: int, force: bool, /) -> None: ...

def hub_find(repository: str, /) -> str: ...

@final
class Tensor(Buffer):
    @property
    def dtype(self) -> str: ...

class ModelInfo(TypedDict):
    path: str
    specification_version: int
    short_description: str
    version: str
    author: str
    license: str
    metadata: dict[str, str]
    functions: list[dict[str, Any]]
    default_function: int
    weights_bytes: int

class TokenizerInfo(TypedDict):
    n_vocab: int
    source: str
    eos: list[int]
    bos: int | None
    has_chat_template: bool

class LlmInfo(TypedDict):
    n_context: int
    n_vocab: int
    contract: str
    reason: str
    has_logits: bool
    has_cache: bool

class Model:
    def __init__(self, path: str | bytes | PathLike[str], numerics: int = 0, threads: int = 0, no_fuse: str | None = None) -> None: ...
    def describe(self) -> ModelInfo: ...
    def mil(self, function: int, /) -> str: ...
    def predictor(self, function: str | None, /) -> Predictor: ...
    def state(self, function: str | None, /) -> State: ...

class ModelSet:
    def __init__(
        self,
        path: str | bytes | PathLike[str],
        numerics: int,
        threads: int,
        no_fuse: str | None,
        prefix: str | None,
        others: list[str],
        /,
    ) -> None: ...
    def models(self) -> list[tuple[str, Model, float]]: ...

@final
class State:
    def tensor(self, name: str, /) -> Tensor: ...
    def clear(self) -> None: ...

@final
class Predictor:
    def run(self, inputs: tuple[Array | None, ...], state: State | None, /) -> tuple[Tensor | str, ...]: ...

class Tokenizer:
    def __init__(self, path: str | bytes | PathLike[str] | None, model: Model | None, /) -> None: ...
    def encode(self, text: str | bytes, add_special: bool, parse_special: bool, /) -> list[int]: ...
    def decode(self, ids: Ids, skip_special: bool, /) -> str: ...
    def piece(self, id: int, /) -> str | None: ...
    def find(self, piece: str, /) -> int | None: ...
    def is_special(self, id: int, /) -> bool: ...
    def apply_chat_template(self, messages: list[tuple[str, str]], add_generation_prompt: bool, /) -> str: ...
    def describe(self) -> TokenizerInfo: ...

class Llm:
    def __init__(
        self,
        source: Model | ModelSet,
        function: str | None,
        context: int,
        block: int,
        contract: str | None,
        roles: list[tuple[str, str]],
        whole_windows: bool,
        /,
    ) -> None: ...
    def describe(self) -> LlmInfo: ...
    def session(self) -> Session: ...

@final
class Session:
    @property
    def n_tokens(self) -> int: ...
    @property
    def n_reused(self) -> int: ...
    def feed(self, ids: Ids, /) -> Tensor: ...
    def append(self, ids: Ids, /) -> Tensor: ...
    def append_rows(self, ids: Ids, n_rows: int, /) -> Tensor: ...
    def feed_all(self, ids: Ids, /) -> Tensor: ...
    def rewind(self, n: int, /) -> None: ...
    def clear(self) -> None: ...
    def cancel(self) -> None: ...
    def generate(
        self,
        ids: Ids,
        sink: Callable[[int, str], bool],
        tokenizer: Tokenizer | None,
        stop: list[str],
        eos: Ids,
        max_new_tokens: int,
        ignore_eos: bool,
        keep_special: bool,
        speculate: int,
        temperature: float,
        top_k: int,
        top_p: float,
        min_p: float,
        repeat_penalty: float,
        repeat_last_n: int,
        seed: int,
    ) -> dict[str, Any]: ...
