"""The optional embedder: any model of sentence-transformers (`recall-server[embeddings]`)."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Protocol, cast

import numpy as np

from recall_server.domain.errors import EmbedderUnavailable
from recall_server.providers.embedding import Vectors


class _Encoder(Protocol):
    def encode(
        self, inputs: list[str], *, normalize_embeddings: bool, show_progress_bar: bool
    ) -> Vectors: ...


class SentenceEmbedder:
    """The port `Embedder` over one model, from its cache, a folder or the hub.

    Loads on first use, which may take many seconds. Works in one thread of its own.
    `EmbedderUnavailable` says when the package is missing, or when the model can be had neither
    from the disk nor from the hub.
    """

    def __init__(self, model_name: str) -> None:
        self._model_name = model_name
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="embedder")
        self._loading = Lock()
        self._encoder: _Encoder | None = None
        self._dimensions = 0

    @property
    def model(self) -> str:
        return f"sentence-transformers/{self._model_name}"

    @property
    def dimensions(self) -> int:
        if not self._dimensions:
            raise EmbedderUnavailable
        return self._dimensions

    async def load(self) -> None:
        await self.embed([])

    async def embed(self, texts: Sequence[str]) -> Vectors:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._embed, list(texts))

    async def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _embed(self, texts: list[str]) -> Vectors:
        encoder = self._open()
        if not texts:
            return np.zeros((0, self._dimensions), dtype=np.float32)
        try:
            rows = encoder.encode(texts, normalize_embeddings=True, show_progress_bar=False)
            vectors = np.asarray(rows, dtype=np.float32)
        except Exception:  # noqa: BLE001 - torch may fail in any way; search does without
            raise EmbedderUnavailable from None
        finite = np.isfinite(vectors).all(axis=1, keepdims=True)
        return np.where(finite, vectors, np.float32(0.0))

    def _open(self) -> _Encoder:
        with self._loading:
            if self._encoder is None:
                self._encoder, self._dimensions = _load(self._model_name)
            return self._encoder


def _load(model_name: str) -> tuple[_Encoder, int]:
    try:
        package = importlib.import_module("sentence_transformers")
    except ImportError:
        raise EmbedderUnavailable(
            "The sentence-transformers embedder is not installed. "
            'Install it with: pip install "recall-server[embeddings]"'
        ) from None
    try:
        encoder = cast("_Encoder", package.SentenceTransformer(model_name))
        # Measured on a vector, because the getter's name differs between versions.
        probe = encoder.encode(["a"], normalize_embeddings=True, show_progress_bar=False)
        return encoder, int(probe.shape[1])
    except Exception:  # noqa: BLE001 - the hub's client fails in a dozen unrelated ways
        raise EmbedderUnavailable(
            f"The embedding model {model_name} is neither on this machine nor to be had from the "
            "hub. Search goes on by keywords and says so."
        ) from None
