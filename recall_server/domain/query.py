"""The arguments and results of a search."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple, Self

from recall_server.domain.episode import Citation
from recall_server.domain.memory import MemoryType, searchable
from recall_server.domain.moments import PRESENT, Past


class ItemKind(StrEnum):
    """A search finds memories, and passages of what was said."""

    MEMORY = "memory"
    PASSAGE = "passage"


class Item(NamedTuple):
    """A memory or passage that a search found. `citation` has the words that it rests on, `quote`
    those with what belongs to them;
    `superseded_by` is the memory that took its place, or that of a memory which cites it.
    """

    id: str
    kind: ItemKind
    text: str
    topic: str
    recorded_at: datetime
    valid_from: datetime
    citation: Citation
    quote: str
    importance: float
    access_count: int = 0
    type: MemoryType | None = None
    attribute: str | None = None
    container: str = ""
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = MappingProxyType({})
    superseded_by: str | None = None
    valid_until: datetime | None = None
    expires_at: datetime | None = None
    agent_id: str | None = None
    disputed: bool = False
    unreconciled: bool = False

    @property
    def searchable(self) -> str:
        return searchable(self.text, self.attribute)

    def as_of(self, at: datetime) -> Self | None:
        """The item as it was true at a moment: what gave way later holds still. None of a memory
        that was not true then, and of a passage that was not said yet.
        """
        ended = self.valid_until is not None and self.valid_until <= at
        if self.valid_from > at or (ended and self.kind is ItemKind.MEMORY):
            return None
        return self if ended else self._replace(superseded_by=None)


class SearchMode(StrEnum):
    """The ranking of a search: by all signals of the default order, by those without
    vectors, by vectors alone; `recall` is the four-part score of relevance, recency, importance
    and strength.
    """

    HYBRID = "hybrid"
    RECALL = "recall"
    KEYWORD = "keyword"
    VECTOR = "vector"


# The others have a formula of their own: it alone decides, and is the score.
DEFAULT_ORDER = frozenset({SearchMode.HYBRID, SearchMode.KEYWORD})


class Step(StrEnum):
    """A step of a search beside the signals; each can be left out, to measure what it brings."""

    NEIGHBOURS = "neighbours"
    FIRST_PERSON = "first-person"
    RERANK = "rerank"
    DIVERSITY = "diversity"
    CURRENCY = "currency"


@dataclass(frozen=True)
class Query:
    """A question and how to answer it. With `neighbours`, each hit comes with as many turns before
    and after it, as far as the budget goes. Without `score_threshold` what is noise beside the
    first hit is left out. `without` names signals and steps to leave out (`signals.PARTS`).
    `past` is the moment that it asks for.
    """

    text: str
    limit: int = 20
    mode: SearchMode = SearchMode.HYBRID
    recency_weight: float = 0.3
    mmr_lambda: float = 0.5
    score_threshold: float | None = None
    max_tokens: int | None = None
    neighbours: int = 0
    without: frozenset[str] = frozenset()
    past: Past = PRESENT


class Scores(NamedTuple):
    """How likely it is that a hit answers the question (`score`), and why it ranks where it does
    (`final`). `coverage` is how much of the question it says; `signals` has each of
    `signals.SIGNALS` by its name, and the rank of those that are ranked; None where it had no say.
    It is empty where a search was not asked to explain. `rerank` is the re-ranker's score.
    """

    score: float
    final: float
    coverage: float | None = None
    signals: Mapping[str, float | None] = MappingProxyType({})
    rerank: float | None = None


class Said(NamedTuple):
    """A turn as it was said."""

    turn_id: str
    text: str


class Hit(NamedTuple):
    """One answer of a search: `text` is that of the memory or of the best passage, with further
    passages of the same message; `quote` the words that a memory came from. `gave_way_to` is the
    later item about the same thing that took the better place; `disputed_with` the memories that
    contradict it, as long as nobody has said which holds. With what was said around it where that
    was asked for.
    """

    item: Item
    scores: Scores
    text: str
    quote: str = ""
    gave_way_to: str | None = None
    around: tuple[Said, ...] = ()
    disputed_with: tuple[str, ...] = ()
