"""What a search takes and returns."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from recall_server.domain.episode import Citation
from recall_server.domain.memory import MemoryType, searchable


class ItemKind(StrEnum):
    """What a search can find: a memory, or a turn that no memory has been made of yet."""

    MEMORY = "memory"
    TURN = "turn"


class Place(NamedTuple):
    """Where an item comes from: the session, and the turn of an episode. `source` is the session
    or the text as whoever handed it in named it, whatever headings it has.
    """

    session: str
    episode_id: str
    position: int
    source: str = ""


class Item(NamedTuple):
    """One thing that a search can find; text, topic and citation are of those that are shown."""

    id: str
    kind: ItemKind
    text: str
    topic: str
    recorded_at: datetime
    valid_from: datetime
    citation: Citation | None
    importance: float
    access_count: int = 0
    type: MemoryType | None = None
    attribute: str | None = None
    place: Place | None = None
    container: str = ""

    @property
    def searchable(self) -> str:
        return searchable(self.text, self.attribute)


class SearchMode(StrEnum):
    """How a search ranks (FEATURES D22): by words and vectors and all that speaks for an item, by
    all but vectors, by vectors alone; `recall` is the backbone's four-part score (D06).
    """

    HYBRID = "hybrid"
    RECALL = "recall"
    KEYWORD = "keyword"
    VECTOR = "vector"


class Part(StrEnum):
    """What speaks for an item in a search; each can be left out, to measure what it brings."""

    KEYWORD = "keyword"
    COSINE = "cosine"
    NEIGHBOURS = "neighbours"
    FIRST_PERSON = "first-person"
    SPEAKER = "speaker"
    SESSION = "session"
    TIME = "time"
    RECENCY = "recency"
    RERANK = "rerank"
    DIVERSITY = "diversity"


@dataclass(frozen=True)
class Query:
    """What is asked of a search; limits and the other defaults are the backbone's (FEATURES D01).
    With `neighbours`, each hit comes with as many turns before and after it, as far as the budget
    goes. `without` names parts that have no say; `containers`, if given, where to look.
    """

    text: str
    limit: int = 20
    mode: SearchMode = SearchMode.HYBRID
    recency_weight: float = 0.3
    mmr_lambda: float = 0.5
    score_threshold: float = 0.0
    max_tokens: int | None = None
    neighbours: int = 0
    without: frozenset[Part] = frozenset()
    containers: frozenset[str] | None = None


class Scores(NamedTuple):
    """Why a hit ranks where it does (FEATURES D21): every part, and the rank in each list; None
    where a part had no say.
    """

    final: float
    rrf: float
    recency: float
    importance: float
    strength: float
    keyword: float | None = None
    keyword_rank: int | None = None
    cosine: float | None = None
    cosine_rank: int | None = None
    speaker: float | None = None
    session: float | None = None
    time: float | None = None
    rerank: float | None = None


class Said(NamedTuple):
    """A turn as it was said."""

    turn_id: str
    text: str


class Hit(NamedTuple):
    """One answer of a search, with what was said around it where that was asked for."""

    item: Item
    scores: Scores
    around: tuple[Said, ...] = ()
