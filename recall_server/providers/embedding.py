"""The port of embedding: from texts to unit vectors."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]


class Embedder(Protocol):
    """Turns texts into L2-normalised float32 rows, the same text always into the same row.

    Raises `EmbedderUnavailable` when it cannot.
    """

    @property
    def model(self) -> str:
        """Keys the stored vectors: another model's vectors are never compared with these."""
        ...

    @property
    def dimensions(self) -> int: ...

    async def embed(self, texts: Sequence[str]) -> Vectors: ...
