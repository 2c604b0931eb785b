"""Re-ranking by a cross-encoder: a model that reads question and text together."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from functools import partial
from types import ModuleType
from typing import Protocol, Unpack, cast

import numpy as np
from numpy.typing import NDArray

from recall_server.domain.errors import RerankerUnavailable
from recall_server.domain.namespace import Namespace
from recall_server.integrations.embeddings import TEXT_CHARS_MAX
from recall_server.integrations.embeddings.torch_models import ModelThread, Running
from recall_server.integrations.rerankers import Passage, RerankQuery


class _Encoder(Protocol):
    def predict(
        self, inputs: list[tuple[str, str]], *, activation_fn: object, show_progress_bar: bool
    ) -> NDArray[np.float32]: ...


class CrossEncoderReranker:
    """The port `Reranker` over a model with one output, by name or path. Its output goes through
    the logistic function, which is what such a model is trained with: the score is how likely the
    text is relevant.
    """

    judges = True

    def __init__(self, model_name: str, **running: Unpack[Running]) -> None:
        self._thread = ModelThread(model_name, _made, RerankerUnavailable, **running)

    @property
    def name(self) -> str:
        return f"cross-encoder/{self._thread.name}"

    async def load(self) -> None:
        await self._thread.load()

    async def scores(self, query: RerankQuery, passages: Sequence[Passage]) -> list[float]:
        """Score the texts of the hits alone, without word weights and the turns around them."""
        pairs = [(query.text, one.text[:TEXT_CHARS_MAX]) for one in passages]
        return await self._thread.run(partial(_scores, pairs=pairs)) if pairs else []

    def forget(self, namespace: Namespace) -> None:
        """Nothing is cached."""

    async def close(self) -> None:
        await self._thread.close()


def _made(package: ModuleType, place: str, local: bool) -> _Encoder:
    return cast("_Encoder", package.CrossEncoder(place, local_files_only=local))


def _scores(encoder: _Encoder, pairs: list[tuple[str, str]]) -> list[float]:
    sigmoid = importlib.import_module("torch").sigmoid
    scores = np.asarray(encoder.predict(pairs, activation_fn=sigmoid, show_progress_bar=False))
    if scores.shape != (len(pairs),) or not np.isfinite(scores).all():
        raise ValueError("not one score for each pair")
    return [float(score) for score in scores]
