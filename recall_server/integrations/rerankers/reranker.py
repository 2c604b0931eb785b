"""The port of re-ranking: how well each of a few texts answers a question, looked at closely."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from recall_server.domain.namespace import Namespace


class Look(NamedTuple):
    """What is looked for: the question as it was asked, and as the one whom it names would ask it
    of themselves. `weights` says how much each term of it (as `words.terms` makes them) tells where
    it is searched, such as its idf; one that stands nowhere there is left out.

    What is kept of the texts of a namespace is kept apart from all others', and until `epoch`
    changes, which it does when something is erased there.
    """

    query: str
    in_first_person: str
    weights: Mapping[str, float]
    namespace: Namespace
    epoch: int


class Passage(NamedTuple):
    """What a hit shows, what was said where it comes from, and in the turns around that."""

    text: str
    said: str | None = None
    around: tuple[str, ...] = ()


class Reranker(Protocol):
    """Scores the best hits of a search anew: from 0 to 1, the higher the better.

    Raises `RerankerUnavailable` when it cannot; the order then stays as it was, and the answer says
    so.
    """

    @property
    def name(self) -> str:
        """What stands in the provenance: "maxsim/<model>", "cross-encoder/<model>"."""
        ...

    @property
    def judges(self) -> bool:
        """Whether a score says by itself how relevant a text is, so that a threshold means
        something: not where it only compares the texts of one question.
        """
        ...

    async def load(self) -> None:
        """Make ready what is on this machine, or raise `RerankerUnavailable`: at the start that
        means a wrong setting.
        """
        ...

    async def scores(self, look: Look, passages: Sequence[Passage]) -> list[float]:
        """One score for each of `passages`."""
        ...

    def forget(self, namespace: Namespace) -> None:
        """Drop what is held in memory of a namespace."""
        ...

    async def close(self) -> None: ...
