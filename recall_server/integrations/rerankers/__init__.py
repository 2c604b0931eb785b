"""The port of re-ranking: scores how well each of a few texts answers a question."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from recall_server.domain.namespace import Namespace


class RerankQuery(NamedTuple):
    """The question as it was asked, and as the person whom it names would ask it. `weights` has the
    idf in the namespace of each of its terms (as `terms` makes them) that the namespace has.

    A re-ranker may cache what it computes for a namespace, apart from all others, until `epoch`
    changes: an erasure changes it.
    """

    text: str
    in_first_person: str
    weights: Mapping[str, float]
    namespace: Namespace
    epoch: int


class Passage(NamedTuple):
    """The text of a hit, the turn that it comes from, and the turns around that."""

    text: str
    said: str | None = None
    around: tuple[str, ...] = ()


class Reranker(Protocol):
    """Scores the best hits of a search anew: from 0 to 1, the higher the better.

    Raises `RerankerUnavailable` if it cannot; the order then stays as it was, and the answer says
    so.
    """

    @property
    def name(self) -> str:
        """The name in the provenance: "maxsim/<model>", "cross-encoder/<model>"."""

    @property
    def judges(self) -> bool:
        """Whether a score says by itself how relevant a text is, so that it can be compared with a
        threshold. False if it only compares the texts of one question.
        """

    async def load(self) -> None:
        """Load the model from this machine. Raises `RerankerUnavailable`, which at the start means
        a wrong setting.
        """

    async def scores(self, query: RerankQuery, passages: Sequence[Passage]) -> list[float]:
        """Return one score for each of `passages`."""

    def forget(self, namespace: Namespace) -> None:
        """Drop what is cached for a namespace."""

    async def close(self) -> None: ...
