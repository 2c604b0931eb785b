"""The port of embedding: from texts to unit vectors."""

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]

# Only this much of a longer text is embedded: no model reads more.
TEXT_CHARS_MAX = 8_000


def non_blank(texts: Sequence[str]) -> tuple[list[str], list[int]]:
    """Return the beginnings of texts, and the places of those that are not blank: models get only
    these.
    """
    begun = [text[:TEXT_CHARS_MAX] for text in texts]
    return begun, [place for place, text in enumerate(begun) if text.strip()]


def fill_rows(
    parts: Sequence[Vectors], places: Sequence[int], count: int, dimensions: int
) -> Vectors:
    """Return `count` rows: the rows of `parts`, in order, at these places, and zeros elsewhere."""
    vectors = np.zeros((count, dimensions), dtype=np.float32)
    if parts:
        vectors[places] = np.concatenate(parts)
    return vectors


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


WordVectors = Callable[[Sequence[str]], Vectors | None]


@runtime_checkable
class WordEmbedder(Protocol):
    """An embedder whose vectors of single words take no time, so that a search may compare the
    words of a question with those of its best hits.
    """

    def word_vectors(self, words: Sequence[str]) -> Vectors | None:
        """Return a unit vector for each word, or zeros; None if that takes a model."""


def word_vectors(embedder: object) -> WordVectors | None:
    """Return what computes vectors of single words, if the embedder can."""
    return embedder.word_vectors if isinstance(embedder, WordEmbedder) else None
