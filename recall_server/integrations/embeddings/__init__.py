"""The port of embedding: from texts to unit vectors."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]

# The beginning of a longer text stands for the whole: no model reads more.
TEXT_CHARS_MAX = 8_000


def non_blank(texts: Sequence[str]) -> tuple[list[str], list[int]]:
    """The beginnings of texts, and the places of those not blank, which alone a model sees."""
    begun = [text[:TEXT_CHARS_MAX] for text in texts]
    return begun, [place for place, text in enumerate(begun) if text.strip()]


def fill_rows(
    parts: Sequence[Vectors], places: Sequence[int], count: int, dimensions: int
) -> Vectors:
    """The rows of `parts`, one after the other, in these places of `count`; zeros elsewhere."""
    vectors = np.zeros((count, dimensions), dtype=np.float32)
    if parts:
        vectors[places] = np.concatenate(parts)
    return vectors


class Embedder(Protocol):
    """Turns texts into L2-normalised float32 rows, the same text always into the same row.

    Raises `EmbedderUnavailable` when it cannot.
    """

    @property
    def model(self) -> str:
        """The key of the stored vectors: those of different models are never compared."""

    @property
    def dimensions(self) -> int:
        """The length of a row. Raises `EmbedderUnavailable` before something was embedded."""

    async def load(self) -> None:
        """Load the model from this machine, so that no caller waits for it; no other machine is
        asked. Raises `EmbedderUnavailable`, which at the start means a wrong setting.
        """

    async def embed(self, texts: Sequence[str]) -> Vectors: ...

    async def close(self) -> None: ...
