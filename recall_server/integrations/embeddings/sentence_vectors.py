"""The optional embedder: any model of sentence-transformers (`recall-server[embeddings]`)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from types import ModuleType
from typing import Protocol, cast

import numpy as np

from recall_server.domain.external_errors import EmbedderUnavailable
from recall_server.integrations.embeddings.embedder import Vectors, fill_rows, non_blank
from recall_server.integrations.embeddings.torch_models import ModelThread

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

    A text has the same vector in every batch but for the last places of its numbers.
    """

    def __init__(
        self,
        model_name: str,
        *,
        threads: int,
        timeout_s: float,
        batch: int,
        download: bool = False,
    ) -> None:
        self._model_name = model_name
        self._batch = batch
        self._thread = ModelThread(
            model_name,
            _made,
            EmbedderUnavailable,
            threads=threads,
            timeout_s=timeout_s,
            download=download,
        )
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
        await self._thread.load()

    async def close(self) -> None:
        await self._thread.close()

    async def embed(self, texts: Sequence[str]) -> Vectors:
        sent, places = non_blank(texts)
        # All of a batch are padded to its longest.
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
    """Unit rows; one that is not finite is the zero vector."""
    rows = encoder.encode(
        texts, batch_size=len(texts), normalize_embeddings=True, show_progress_bar=False
    )
    vectors = np.asarray(rows, dtype=np.float32)
    finite = np.isfinite(vectors).all(axis=1, keepdims=True)
    return np.where(finite, vectors, np.float32(0.0))
