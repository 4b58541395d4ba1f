"""Language models: engine, sessions, generating, chat."""
from __future__ import annotations

import atexit
import collections
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypedDict, Unpack, cast

import numpy as np
from numpy.typing import NDArray

from . import _pome
from ._errors import FileError, StateError
from ._model import Model
from ._model_set import ModelSet
from ._tokenizer import Tokenizer, as_ids

Prompt = str | Sequence[int] | NDArray[np.integer] | Sequence[Mapping[str, Any]]


class GenerateOptions(TypedDict, total=False):
    """The keywords of :meth:`Session.generate`, for annotating what passes them on.

    >>> options: pome.GenerateOptions = {"temperature": 0, "max_new_tokens": 3}
    >>> len(pome.LLM("llm.mlpackage").generate([1, 2, 3], **options).read())
    0
    """

    max_new_tokens: int
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repeat_penalty: float
    repeat_last_n: int
    seed: int
    stop: str | Sequence[str]
    eos: Sequence[int]
    ignore_eos: bool
    keep_special: bool
    speculate: int


class Token(NamedTuple):
    """What a generation yields.

    ``text`` holds the characters that became certain with this id; it may be empty. ``id`` is ``None`` for text that was held
    back and is let go at the end.

    >>> next(pome.LLM("llm.mlpackage").generate([1, 2, 3], temperature=0))
    Token(id=12, text='')
    """

    id: int | None
    text: str


class _Channel:
    """Hands tokens from the thread that generates to the one that reads, a few ahead at most."""

    LIMIT = 4

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.tokens: collections.deque[Token] = collections.deque()
        self.is_closed = False  # nobody reads any more
        self.is_done = False
        self.result: dict[str, Any] | None = None
        self.error: BaseException | None = None

    def put(self, id: int, text: str) -> bool:
        with self.changed:
            self.changed.wait_for(lambda: self.is_closed or len(self.tokens) < self.LIMIT)
            if not self.is_closed:
                self.tokens.append(Token(None if id < 0 else id, text))
                self.changed.notify_all()
            return not self.is_closed

    def get(self) -> Token | None:
        with self.changed:
            self.changed.wait_for(lambda: self.tokens or self.is_done)
            token = self.tokens.popleft() if self.tokens else None
            self.changed.notify_all()
            return token

    def run(self, generate: Callable[[Callable[[int, str], bool]], dict[str, Any]]) -> None:
        try:
            self.result = generate(self.put)
        except BaseException as error:  # noqa: BLE001 - raised where the tokens are read
            self.error = error
        with self.changed:
            self.is_done = True
            self.changed.notify_all()

    def close(self) -> None:
        with self.changed:
            self.is_closed = True
            self.changed.notify_all()


class Generation(Iterator[Token]):
    """A running generation: an iterator over :class:`Token`.

    Nothing is computed before the first token is asked for; then the engine runs a few tokens ahead of the reader at most.
    Leaving it early (``close``, or dropping it) stops it; the session keeps what it has fed.

    Attributes:
        ids: the ids so far.
        text: the text so far.
        finish: once it has ended: ``"length"``, ``"context"``, ``"eos"``, ``"stop"`` or ``"cancelled"``.
        stats: once it has ended: ``n_prompt``, ``n_reused``, ``n_new``, ``prompt_s``, ``decode_s``, ``n_passes``, ``n_drafted``,
            ``n_accepted``, ``not_speculated``.

    >>> generation = pome.LLM("llm.mlpackage").generate([1, 2, 3], temperature=0, max_new_tokens=50)
    >>> next(generation).id
    12
    >>> generation.close()
    >>> generation.finish, generation.ids
    ('cancelled', [12])
    """

    def __init__(self, generate: Callable[[Callable[[int, str], bool]], dict[str, Any]], cancel: Callable[[], None]) -> None:
        self._channel = _Channel()
        self._cancel = cancel
        self._thread: threading.Thread | None = threading.Thread(
            target=self._channel.run, args=(generate,), name="pome-generate", daemon=True
        )
        self._is_started = False
        self.ids: list[int] = []
        self.text = ""
        self.finish: str | None = None
        self.stats: dict[str, Any] = {}

    def __reduce__(self) -> str:
        raise TypeError("a Generation cannot be pickled or copied: a thread of this process runs it")

    def __iter__(self) -> Generation:
        return self

    def __next__(self) -> Token:
        if self._thread is None:
            raise StopIteration
        if not self._is_started:
            self._is_started = True
            _running.add(self)
            self._thread.start()
        token = self._channel.get()
        if token is None:
            self._end()
            if self._channel.error is not None:
                raise self._channel.error
            raise StopIteration
        if token.id is not None:
            self.ids.append(token.id)
        self.text += token.text
        return token

    def _end(self) -> None:
        if self._thread is not None and self._is_started:
            self._thread.join()
        self._thread = None
        self.stats = dict(self._channel.result or {})
        self.finish = self.stats.pop("finish", "cancelled")

    def close(self) -> None:
        """Stops it after the pass that is running."""
        if self._thread is not None:
            self._channel.close()
            if self._is_started and not self.ids and not self._channel.is_done:
                self._cancel()  # a long prompt may be on its way in
            self._end()

    def __del__(self) -> None:
        if getattr(self, "_channel", None) is not None:
            self._channel.close()

    def _orphan(self) -> None:
        """In a process that was forked: the thread is not there, and the channel's lock may be held by it."""
        if self._thread is not None:
            self._channel = _Channel()
            self._channel.is_done = True
            self._channel.error = StateError("the generation runs in the process that this one was forked from", "STATE", 7)

    def read(self) -> str:
        """Runs to the end and gives the whole text."""
        for _ in self:
            pass
        return self.text


_running: weakref.WeakSet[Generation] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for generation in list(_running):
        generation.close()


def _orphan_all() -> None:
    for generation in list(_running):
        generation._orphan()


os.register_at_fork(after_in_child=_orphan_all)


class Session:
    """One timeline of tokens over a language model, with its cache. Made by :meth:`LLM.session`; one thread at a time.

    >>> session = pome.LLM("llm.mlpackage").session()
    >>> session.feed([1, 2, 3]).shape
    (512,)
    >>> session.feed([1, 2, 3, 4]).shape, session.n_reused
    ((512,), 3)
    """

    def __init__(self, llm: LLM) -> None:
        self.llm = llm
        self._native = llm._native.session()

    def __reduce__(self) -> str:
        raise TypeError("a Session cannot be pickled: it is bound to this process")

    def __len__(self) -> int:
        return self.n_tokens

    @property
    def n_tokens(self) -> int:
        """Length of the timeline."""
        return self._native.n_tokens

    @property
    def n_reused(self) -> int:
        """Tokens that the last feed found cached."""
        return self._native.n_reused

    def feed(self, ids: Iterable[int]) -> NDArray[np.float32]:
        """Makes the timeline equal to ``ids``: keeps the longest common prefix, feeds the rest. Ctrl-C ends it (KeyboardInterrupt),
        and :meth:`cancel` from another thread, after the operator that is being computed; the session then has what was finished.

        Returns:
            The logits after the last token, float32 [n_vocab]. Where the model gives probabilities, their logarithms.

        Raises:
            LimitError: more tokens than the context holds.
            ArgumentError: an id outside the vocabulary.
            CancelledError: :meth:`cancel` was called.
        """
        return np.asarray(self._native.feed(as_ids(ids)))

    def append(self, ids: Iterable[int], *, rows: int | None = None) -> NDArray[np.float32]:
        """Adds ``ids`` to the timeline. Gives the logits after the last one, [n_vocab]; with ``rows`` those after each of the
        last so many, [rows, n_vocab]. Raises as :meth:`feed`."""
        if rows is None:
            return np.asarray(self._native.append(as_ids(ids)))
        return np.asarray(self._native.append_rows(as_ids(ids), rows))

    def logits(self, ids: Iterable[int]) -> NDArray[np.float32]:
        """As :meth:`feed`, with the logits after every token that was not cached: float32 [n - n_reused, n_vocab]."""
        return np.asarray(self._native.feed_all(as_ids(ids)))

    def rewind(self, n: int) -> None:
        """Cuts the timeline to its first ``n`` tokens. Raises UnsupportedError if the cache cannot go back."""
        self._native.rewind(n)

    def clear(self) -> None:
        """Empties the timeline."""
        self._native.clear()

    def cancel(self) -> None:
        """Ends the running or next feed with CancelledError; may be called from any thread."""
        self._native.cancel()

    def generate(
        self,
        prompt: Prompt,
        *,
        max_new_tokens: int = 128,
        temperature: float = 0.7,
        top_k: int = 40,
        top_p: float = 0.95,
        min_p: float = 0.0,
        repeat_penalty: float = 1.0,
        repeat_last_n: int = 64,
        seed: int = 0,
        stop: str | Sequence[str] = (),
        eos: Sequence[int] = (),
        ignore_eos: bool = False,
        keep_special: bool = False,
        speculate: int = 0,
    ) -> Generation:
        """Feeds a prompt and yields what the model says next, token by token.

        The prompt is the whole timeline: what the session has cached of it is reused.

        Args:
            prompt: a text, token ids, or messages (mappings with ``"role"`` and ``"content"``) for the chat template.
            max_new_tokens: -1: until something else ends it.
            temperature: 0: always the likeliest token.
            top_k: 0: off. top_p: 1: off. min_p: 0: off. repeat_penalty: 1: off.
            seed: equal seeds give equal answers on every machine.
            stop: texts that end the answer; they are not part of it.
            eos: more ids that end the answer, besides the tokenizer's.
            ignore_eos: go on after ids that end an answer.
            keep_special: special tokens appear in the text.
            speculate: guess so many tokens ahead and verify them in one pass; the answer stays the same.

        Raises:
            FileError: a text or messages were given and the model has no tokenizer.
            LimitError, UnsupportedError: from the iterator, as :meth:`feed`.
        """
        ids = self.llm._prompt_ids(prompt)
        tokenizer = self.llm._find_tokenizer()
        native, stops = self._native, [stop] if isinstance(stop, str) else [str(s) for s in stop]
        ends = as_ids(eos)
        if not 0 <= seed < 2**64:
            raise ValueError(f"seed {seed}: from 0 to 2**64 - 1")

        def generate(sink: Callable[[int, str], bool]) -> dict[str, Any]:
            return native.generate(
                ids,
                sink,
                tokenizer._native if tokenizer else None,
                stops,
                ends,
                max_new_tokens,
                ignore_eos,
                keep_special,
                speculate,
                temperature,
                top_k,
                top_p,
                min_p,
                repeat_penalty,
                repeat_last_n,
                seed,
            )

        return Generation(generate, native.cancel)


def _roles(map: Mapping[str, str | Sequence[str]]) -> list[tuple[str, str]]:
    return [(role, name) for role, names in map.items() for name in ([names] if isinstance(names, str) else names)]


class LLM:
    """A language model, in one piece or in several: its ids, mask, cache and logits were found.

    >>> llm = pome.LLM("llm.mlpackage")
    >>> llm.n_context, llm.n_vocab
    (128, 512)
    >>> [token.id for token in llm.generate([1, 2, 3], temperature=0, max_new_tokens=4, ignore_eos=True)]
    [12, 334, 124, 5]

    A folder is a set of chunks:

    >>> llm = pome.LLM("chunks", threads=2)
    >>> print(llm.contract)
    llm-cli, 4 chunks of 'tiny-llama', window 64 of context 512, ids=input_ids, logits=logits_0 and more

    Functions of one package, adapters for instance, share the weights of a model that is open:

    >>> model = pome.Model("adapters.mlpackage")
    >>> base, adapted = (pome.LLM(model, function=name) for name in ("base", "adapter"))
    >>> adapted.function, adapted.functions
    ('adapter', ('base', 'adapter'))

    Args:
        model: a package or compiled model, a folder of them, or a :class:`Model` or :class:`ModelSet` that is open already.
        tokenizer: a path or :class:`Tokenizer`; ``None``: looked for in and beside the package when a text is given.
        function: ``None``: the model's default.
        contract: a name from docs/contracts.md for how the model is fed, instead of finding out.
        map: what an input or output is for, by role: ``{"ids": "tokens", "cache_in": ["k", "v"], "cache_out": ["k2", "v2"]}``.
        context: tokens a session can hold; 0: the model's own, which it can only lower.
        block: tokens fed in one pass at most; 0: chosen.
        whole_windows: sets with windows of fixed length: compute all columns in every pass, not only the new ones; slow, for
            comparing.
        prefix: of several sets of chunks in a folder take ``PREFIX_chunk1``, ``PREFIX_chunk2``, ...
        cache_processor, logit_processor: file names of a set's processors, which otherwise are told by their inputs.
        numerics, threads, no_fuse: as for :class:`Model`; with these and the three before, ``model`` is a path.

    Raises:
        UnsupportedError: no language model; the inputs, states and outputs that were seen are listed.
        ArgumentError: there is no such function, contract or part.
        FileError, FormatError: as :class:`Model` and :class:`ModelSet`.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | Model | ModelSet,
        *,
        tokenizer: str | os.PathLike[str] | Tokenizer | None = None,
        function: str | None = None,
        contract: str | None = None,
        map: Mapping[str, str | Sequence[str]] | None = None,
        context: int = 0,
        block: int = 0,
        whole_windows: bool = False,
        prefix: str | None = None,
        cache_processor: str | None = None,
        logit_processor: str | None = None,
        numerics: str = "exact",
        threads: int = 0,
        no_fuse: str | None = None,
    ) -> None:
        source: Model | ModelSet
        if isinstance(model, (Model, ModelSet)):
            if prefix or cache_processor or logit_processor or threads or no_fuse or numerics != "exact":
                raise ValueError(f"{model!r} is open: prefix, processors, numerics, threads and no_fuse are settled")
            source = model
        else:
            others = None
            if cache_processor or logit_processor:
                others = [cache_processor or "cache-processor", logit_processor or "logit-processor"]
            source = ModelSet(model, prefix=prefix, others=others, numerics=numerics, threads=threads, no_fuse=no_fuse)
        self.models: tuple[Model, ...] = (source,) if isinstance(source, Model) else tuple(source.values())
        self.path = source.path
        self._native = _pome.Llm(
            source._native, function, context, block, contract, _roles(map or {}), whole_windows
        )
        self._info = self._native.describe()
        self._function = function
        self._tokenizer: Tokenizer | None = None
        self._was_sought = False
        if isinstance(tokenizer, Tokenizer):
            self._tokenizer = tokenizer
        elif tokenizer is not None:
            self._tokenizer = Tokenizer.locate(self.model, tokenizer)

    def __repr__(self) -> str:
        return f"pome.LLM({self.path!r})"

    def __reduce__(self) -> str:
        raise TypeError("an LLM cannot be pickled: it is bound to this process; open the package again instead")

    @property
    def model(self) -> Model:
        """The model, or the first one of a set."""
        return self.models[0]

    @property
    def function(self) -> str:
        """The function that is run."""
        return self._function or self.model.default_function

    @property
    def functions(self) -> tuple[str, ...]:
        """The functions that the model has; each makes an LLM of its own."""
        return tuple(self.model.functions)

    @property
    def reason(self) -> str:
        """``contract``, with what decided for it."""
        return self._info["reason"]

    @property
    def has_logits(self) -> bool:
        """False if the model picks tokens itself: logits then are 0 for its choice and -inf for all others, and temperature
        and the like have nothing to work on."""
        return self._info["has_logits"]

    @property
    def has_cache(self) -> bool:
        """False if every pass takes the whole timeline."""
        return self._info["has_cache"]

    @property
    def n_context(self) -> int:
        """Tokens that a session can hold."""
        return self._info["n_context"]

    @property
    def n_vocab(self) -> int:
        """Entries of the vocabulary: the length of a row of logits."""
        return self._info["n_vocab"]

    @property
    def contract(self) -> str:
        """What was found, as one line."""
        return self._info["contract"]

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer; looked for at the first use. Raises FileError with the places that were tried."""
        if self._tokenizer is None:
            self._tokenizer = Tokenizer.locate(self.model)
        return self._tokenizer

    def _find_tokenizer(self) -> Tokenizer | None:
        if self._tokenizer is None and not self._was_sought:
            self._was_sought = True
            try:
                self._tokenizer = Tokenizer.locate(self.model)
            except FileError:
                pass  # ids in, ids out
        return self._tokenizer

    def _prompt_ids(self, prompt: Prompt) -> NDArray[np.int32]:
        if isinstance(prompt, str):
            return as_ids(self.tokenizer.encode(prompt))
        if isinstance(prompt, np.ndarray):
            return as_ids(prompt)
        if len(prompt) > 0 and isinstance(prompt[0], Mapping):
            text = self.tokenizer.apply_chat_template(cast("Sequence[Mapping[str, Any]]", prompt))
            return as_ids(self.tokenizer.encode(text, add_special=False, parse_special=True))
        return as_ids(cast("Sequence[int]", prompt))

    def session(self) -> Session:
        """A new session with an empty timeline. Sessions share the weights and run independently of each other."""
        return Session(self)

    def generate(self, prompt: Prompt, **options: Unpack[GenerateOptions]) -> Generation:
        """As :meth:`Session.generate`, in a session of its own."""
        return self.session().generate(prompt, **options)

    def logits(self, ids: Iterable[int]) -> NDArray[np.float32]:
        """The logits after each token: float32 [n, n_vocab].

        >>> pome.LLM("llm.mlpackage").logits([1, 2, 3]).shape
        (3, 512)
        """
        return self.session().logits(ids)

    def chat(self, system: str | None = None, **options: Unpack[GenerateOptions]) -> Chat:
        """A conversation; ``options`` as for :meth:`Session.generate`."""
        return Chat(self, system, options)


class Chat:
    """A conversation. Each turn is rendered with the model's chat template; what is cached of it is not computed again.

    >>> chat = pome.LLM("llm.mlpackage", tokenizer="tokenizer").chat("Be brief.", temperature=0, max_new_tokens=3)
    >>> answer = chat.send("hello").read()
    >>> [message["role"] for message in chat.messages]
    ['system', 'user', 'assistant']
    """

    def __init__(self, llm: LLM, system: str | None = None, options: GenerateOptions | None = None) -> None:
        self.session = llm.session()
        self.options: GenerateOptions = {**options} if options else {}
        self.messages: list[dict[str, str]] = [{"role": "system", "content": system}] if system is not None else []

    def send(self, content: str, **options: Unpack[GenerateOptions]) -> ChatAnswer:
        """Adds the user's message and yields the answer, which joins ``messages`` once it has been read to its end or closed.

        Raises ArgumentError if the template refuses the conversation; then the message is not added."""
        messages = [*self.messages, {"role": "user", "content": content}]
        merged: GenerateOptions = {**self.options, **options}
        generation = self.session.generate(messages, **merged)
        self.messages = messages
        return ChatAnswer(self, generation)


class ChatAnswer(Iterator[Token]):
    """The :class:`Generation` of an answer; attributes and methods are the same.

    >>> chat = pome.LLM("llm.mlpackage", tokenizer="tokenizer").chat(temperature=0, max_new_tokens=3)
    >>> answer = chat.send("hello")
    >>> text = "".join(token.text for token in answer)
    >>> text == answer.text == chat.messages[-1]["content"]
    True
    """

    def __init__(self, chat: Chat, generation: Generation) -> None:
        self._chat: Chat | None = chat
        self._generation = generation

    def __next__(self) -> Token:
        try:
            return next(self._generation)
        except StopIteration:
            self._keep()
            raise

    def _keep(self) -> None:
        if self._chat is not None:
            self._chat.messages.append({"role": "assistant", "content": self._generation.text})
            self._chat = None

    def close(self) -> None:
        """Stops it; what has been read becomes the answer."""
        self._generation.close()
        self._keep()

    def read(self) -> str:
        """Runs to the end and gives the whole text."""
        for _ in self:
            pass
        return self._generation.text

    def __getattr__(self, name: str) -> Any:
        return getattr(self._generation, name)
