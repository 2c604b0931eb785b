"""Re-ranking by late interaction: each word of the question against the word of a text that is
nearest to it (Khattab & Zaharia 2020, ColBERT), with the token vectors of a small embedding model.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from types import ModuleType
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from recall_server.domain.errors import RerankerUnavailable
from recall_server.domain.words import terms
from recall_server.providers.embedding import TEXT_CHARS_MAX
from recall_server.providers.torch_models import ModelThread

Floats = NDArray[np.float32]
_WORD = re.compile(r"\S+")


class _Encoder(Protocol):
    @property
    def tokenizer(self) -> Any: ...

    def get_max_seq_length(self) -> int | None: ...

    def encode(
        self, inputs: list[str], *, output_value: str, show_progress_bar: bool
    ) -> Iterable[Any]: ...


class MaxSimReranker:
    """The port `Reranker`: of each token of the question the greatest cosine to any token of the
    text, averaged by the weights of the words; stop words weigh nothing, and a word that stands
    nowhere as much as the rarest.

    Measured over the first 50 hits, with a share of .3 in the final score, it found 2.6 points more
    of the evidence in LoCoMo (R@10).
    """

    judges = False

    def __init__(self, model_name: str, *, threads: int, timeout_s: float) -> None:
        self._thread = ModelThread(
            model_name, _made, RerankerUnavailable, threads=threads, timeout_s=timeout_s
        )

    @property
    def name(self) -> str:
        return f"maxsim/{self._thread.name}"

    async def load(self) -> None:
        await self._thread.load()

    async def scores(
        self, query: str, texts: Sequence[str], weights: Mapping[str, float]
    ) -> list[float]:
        if not texts:
            return []
        sent = [text[:TEXT_CHARS_MAX] for text in texts]
        return await self._thread.run(
            partial(_scores, query=query[:TEXT_CHARS_MAX], texts=sent, weights=weights)
        )

    async def close(self) -> None:
        await self._thread.close()


def word_weights(query: str, weights: Mapping[str, float]) -> list[tuple[int, int, float]]:
    """Where each word of the question stands, and what it weighs: as much as its rarest term."""
    asked = set(terms(query))
    most = max(weights.values(), default=1.0)
    found = []
    for word in _WORD.finditer(query):
        known = [weights.get(term, most) for term in terms(word[0]) if term in asked]
        found.append((*word.span(), max(known, default=0.0)))
    return found


def _made(package: ModuleType, place: str) -> _Encoder:
    return cast("_Encoder", package.SentenceTransformer(place))


def _scores(
    encoder: _Encoder, query: str, texts: list[str], weights: Mapping[str, float]
) -> list[float]:
    asked, *read = encoder.encode(
        [query, *texts], output_value="token_embeddings", show_progress_bar=False
    )
    tokens = _token_weights(encoder, query, weights)
    if len(tokens) != len(asked):
        raise ValueError("the question has other tokens than it was read with")
    if not tokens.any():
        return [0.0] * len(texts)
    shares, mine = tokens / tokens.sum(), _unit(asked)
    scores = [float(shares @ (mine @ _unit(each).T).max(axis=1)) for each in read]
    if not np.isfinite(scores).all():
        raise ValueError("not a number")
    return [min(1.0, max(0.0, score)) for score in scores]


def _token_weights(encoder: _Encoder, query: str, weights: Mapping[str, float]) -> Floats:
    """What each token of the question weighs; marks such as the beginning weigh nothing."""
    words = word_weights(query, weights)
    read = encoder.tokenizer(
        query,
        truncation=True,
        max_length=encoder.get_max_seq_length(),
        return_offsets_mapping=True,
    )
    found = [
        max((weight for start, end, weight in words if a < end and b > start), default=0.0)
        for a, b in read["offset_mapping"]
    ]
    return np.array(found, dtype=np.float32)


def _unit(tensor: Any) -> Floats:
    rows: Floats = tensor.numpy(force=True)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    unit: Floats = rows / np.maximum(lengths, np.finfo(np.float32).tiny)
    return unit
