"""The port of re-ranking: how well each of a few texts answers a question, looked at closely."""

from collections.abc import Mapping, Sequence
from typing import Protocol


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

    async def scores(
        self, query: str, texts: Sequence[str], weights: Mapping[str, float]
    ) -> list[float]:
        """One score for each of `texts`. `weights` says how much each term of the question (as
        `words.terms` makes them) tells where it is searched, such as its idf; one that stands
        nowhere there is left out.
        """
        ...

    async def close(self) -> None: ...
