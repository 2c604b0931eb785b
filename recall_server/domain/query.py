"""The arguments and results of a search."""

import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple, Self

from recall_server.domain.episode import Citation
from recall_server.domain.memory import MemoryType, searchable
from recall_server.domain.moments import PRESENT, Past
from recall_server.domain.trust import trust_of


class ItemKind(StrEnum):
    """The kinds of items that a search finds: memories, and passages of texts."""

    MEMORY = "memory"
    PASSAGE = "passage"


class Item(NamedTuple):
    """A memory or passage that a search found.

    `citation`: the words that it rests on; `quote`: these with the passages around them.
    `superseded_by`: the memory that superseded it, or that superseded a memory citing it.
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
    expired: bool = False

    @property
    def searchable(self) -> str:
        return searchable(self.text, self.attribute)

    @property
    def trust(self) -> int:
        return trust_of(self.citation.speaker, self.agent_id)

    def as_of(self, at: datetime) -> Self | None:
        """Return the item as it was at a moment: without a successor that came later. None if it
        was a memory that was not true then, or a passage that was not said yet.
        """
        ended = self.valid_until is not None and self.valid_until <= at
        if self.valid_from > at or (ended and self.kind is ItemKind.MEMORY):
            return None
        return self if ended else self._replace(superseded_by=None)


class SearchMode(StrEnum):
    """The ranking of a search. `hybrid`: all signals of the default order. `keyword`: those without
    vectors. `vector`: vectors alone. `recall`: the four-part score of relevance, recency,
    importance and strength.
    """

    HYBRID = "hybrid"
    RECALL = "recall"
    KEYWORD = "keyword"
    VECTOR = "vector"


# The other modes have a formula of their own, which alone decides and is the score.
DEFAULT_ORDER = frozenset({SearchMode.HYBRID, SearchMode.KEYWORD})


class Step(StrEnum):
    """A step of a search besides the signals. Each can be left out, to measure its effect."""

    NEIGHBOURS = "neighbours"
    FIRST_PERSON = "first-person"
    RERANK = "rerank"
    DIVERSITY = "diversity"
    CURRENCY = "currency"


@dataclass(frozen=True)
class Query:
    """A question and how to answer it.

    `neighbours`: how many turns before and after each hit to add, as far as the budget goes.
    `score_threshold`: the least score; without it, hits that are noise beside the first are left
    out.
    `without`: the signals and steps to leave out (`signals.PARTS`).
    `past`: the moment that the question is about.
    `reinforce`: the hits count as accessed, if the question is about the present.
    `include_expired`: add memories and passages that have expired, as far as `limit` goes.
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
    reinforce: bool = True
    include_expired: bool = False

    @property
    def counts(self) -> bool:
        """True if what is found counts as accessed."""
        return self.reinforce and self.past == PRESENT


class Scores(NamedTuple):
    """The scores of a hit.

    `score`: how likely it is to answer the question. `final`: the number that ranks it.
    `coverage`: how much of the question it contains.
    `cosine`: the greatest one of its items; None without vectors.
    `signals`: the value of each of `signals.SIGNALS`, and the rank if it is ranked; None if it had
    no say. Empty unless the search was asked to explain.
    `rerank`: the re-ranker's score.
    """

    score: float
    final: float
    coverage: float | None = None
    signals: Mapping[str, float | None] = MappingProxyType({})
    rerank: float | None = None
    cosine: float | None = None


# How much of the next turn is shown; whoever writes no more than that may go on in it.
NEXT_CHARS_MAX = 120


class Said(NamedTuple):
    """A turn as it was said, or what an item says."""

    id: str
    text: str


class Repeat(NamedTuple):
    """A further item that says the same as a hit, and since when it holds."""

    id: str
    said_at: datetime


# A short question. In chats it often ends without a mark.
_ASKING_CHARS = 100
_ASKING = re.compile(
    r"(?:^|(?<=[.!?…,] )|(?<=\n))(?:(?:and|so|ok|okay|but|um|hey|well|guys|right|und|y|et),? ){0,3}"
    r"(?:how (?:much|many|long|old|far|often|about|do|does|did|is|are)"
    r"|(?:what|when|where|who|why)(?:['’]s"
    r"| (?:is|are|was|were|do|does|did|has|can|will|about|time))"
    r"|which|wie (?:viele?|lange|oft|ist|war)"
    r"|(?:wann|wo|warum) (?:ist|war|sind|hat|habt|hast|kommt)"
    r"|(?:cu[aá]nt[oa]s?|d[oó]nde|combien|o[uù] est|quand)) [^.!\n]{0,60}$"
    r"|(?:^|(?<=[.!?…,] ))(?:when|where|who|how|why|what)(?: (?:tho|though|exactly|then|now))?$",
    re.IGNORECASE,
)


def asks(said: str) -> bool:
    """Return whether words end with a question, or with a short one without a mark."""
    said = said.rstrip()
    if said.endswith((".", "!", "。")):
        return False
    begins = max(0, len(said) - _ASKING_CHARS)
    return said.endswith(("?", "？")) or _ASKING.search(said, begins) is not None


# How many of the items that say the same as a hit are named.
REPEATS_MAX = 5


def said_again(items: Sequence[Item]) -> tuple[Repeat, ...]:
    latest = sorted(items, key=lambda one: (one.valid_from, one.id), reverse=True)
    return tuple(Repeat(one.id, one.valid_from) for one in latest[:REPEATS_MAX])


class Hit(NamedTuple):
    """One answer of a search.

    `text`: the memory, or the best passage with further passages of the same message.
    `quote`: the words that a memory came from.
    `gave_way_to`: the later item about the same thing that is ranked above it instead.
    `around`: the turns around it, if they were asked for, or what its text says beside it.
    `disputed_with`: the memories that contradict it while the dispute is open.
    `said_again`: what says the same in the same words, the latest first.
    """

    item: Item
    scores: Scores
    text: str
    quote: str = ""
    gave_way_to: str | None = None
    around: tuple[Said, ...] = ()
    disputed_with: tuple[str, ...] = ()
    said_again: tuple[Repeat, ...] = ()

    @property
    def texts(self) -> tuple[str, ...]:
        """All texts that a caller reads."""
        return (self.text, self.quote, *(said.text for said in self.around))

    @property
    def asks(self) -> bool:
        """True if the words that are shown of a text end with a question."""
        return asks(self.quote or self.text.removeprefix(f"{self.item.citation.speaker}: "))

    @property
    def is_short(self) -> bool:
        """True if it is from a short message of somebody."""
        said = self.item.citation
        return bool(said.speaker) and len(said.quote) <= NEXT_CHARS_MAX

    def goes_on_in(self, turn: Said) -> bool:
        """True if the next turn may answer it, or its speaker goes on."""
        return self.asks or turn.text.startswith(f"{self.item.citation.speaker}: ")

    def with_cited_words(self) -> Self:
        """Return the hit, a memory with a quote of no more than the words that it cites."""
        cited = self.item.citation.quote
        return self._replace(quote=cited) if cited in self.quote else self

    @property
    def in_prompt(self) -> str:
        """All of it as one text for a prompt: the quote is left out if it says no more than the
        words that the memory cites.
        """
        beyond = self.quote.replace(self.item.citation.quote, "", 1)
        more = [self.quote] if any(map(str.isalnum, beyond)) else []
        more += [said.text for said in self.around]
        return " ".join([self.text, *(f'("{one}")' for one in more)])


# Separates passages of one message that are not adjacent.
GAP = " … "


def hit_of(items: Sequence[Item], scores: Scores, repeated: tuple[Repeat, ...] = ()) -> Hit:
    """Return one hit: a memory, or else a message, with the passages that belong to it."""
    memory = next((item for item in items if item.kind is ItemKind.MEMORY), None)
    if memory is None:
        first, *more = items
        text, quote = GAP.join([first.text, *(one.citation.quote for one in more)]), ""
    else:
        first, text, cited = memory, memory.text, memory.citation.span
        passages = [item for item in items if item.kind is ItemKind.PASSAGE]
        more = [one for one in passages if not one.citation.span.overlaps(cited)]
        quotes = [memory.quote, *(one.citation.quote for one in more)]
        quote = GAP.join(filter(None, quotes))
    return Hit(first, scores, text, quote, said_again=repeated)


def said_once(hits: Sequence[Hit]) -> list[Hit]:
    """Return the hits with each passage quoted in full only once: further memories from the same
    passage quote just the words that they cite. Headings that the hit's text or an earlier passage
    of it has are left out.
    """
    seen: set[tuple[str, str]] = set()
    found = []
    for hit in hits:
        cited, quote = hit.item.citation, hit.quote
        passage = (cited.episode_id, hit.item.quote)
        if quote and passage in seen:
            quote = quote.replace(hit.item.quote, cited.quote, 1)
        seen.add(passage)
        text = hit.text
        if hit.item.kind is ItemKind.MEMORY:
            quote = _with_new_headings(quote, text)
        else:
            text = _with_new_headings(text, "")
        same = text == hit.text and quote == hit.quote
        found.append(hit if same else hit._replace(text=text, quote=quote))
    return found


def repeats(hits: Sequence[Sequence[Item]]) -> dict[int, int]:
    """Return, by the place of each hit that says only what one above it says, the place of that
    one. A hit is given by its items, the best first. Both must be in one container, by speakers of
    one name and trust, and both hold, or neither. A memory repeats no other memory; a question
    repeats nothing, as it may have been answered differently.
    """
    found: dict[int, int] = {}
    begins = [{item.quote.lstrip(_MARKS)[:BEGINNING].casefold() for item in of} for of in hits]
    if len(set().union(*begins)) == sum(map(len, begins)):
        return found
    above: dict[Hashable, list[int]] = {}
    # Texts with different first words are not compared as a whole: it takes ten times as long.
    firsts = [
        {word[0] if (word := _WORD.search(item.quote.casefold())) else "" for item in of}
        for of in hits
    ]

    @cache
    def said(place: int) -> frozenset[str]:
        return frozenset(" ".join(_WORD.findall(one.quote.casefold())) for one in hits[place])

    of_memory = {place for place, of in enumerate(hits) if has_memory(of)}
    for place, of in enumerate(hits):
        if "" in firsts[place] or any(asks(one.quote) for one in of):
            continue
        first = of[0]
        who = first.container, first.citation.speaker, first.trust, first.superseded_by is None
        for other in above.setdefault(who, []):
            same = firsts[place] <= firsts[other] and said(place) <= said(other)
            if same and not {place, other} <= of_memory:
                found[place] = other
                of_memory |= {other} if place in of_memory else set()
                break
        else:
            above[who].append(place)
    return found


def has_memory(items: Iterable[Item]) -> bool:
    return any(one.kind is ItemKind.MEMORY for one in items)


# The first characters tell most texts apart, in a tenth of the time that all words take.
BEGINNING = 8
# The marks at the beginning of list items and quoted lines.
_MARKS = "-*•> \t\"'"
_WORD = re.compile(r"[^\W_]+")


# How the headings before the words of a memory end.
_HEADING_END = re.compile(r"[:,] | – ")


def without_headings(item: Item, hit: Hit) -> str:
    """Return the text of an item without the headings that a hit of the same text shows."""
    if item.kind is ItemKind.PASSAGE:
        return _with_new_headings(item.text, "\n".join(hit.texts))
    end = 0
    # Before the words of a speaker stands a name.
    for heading in () if item.citation.speaker else _HEADING_END.finditer(item.text):
        named = item.text[end : heading.start()]
        if named not in hit.text or named in item.citation.quote:
            break
        end = heading.end()
    return item.text[end:]


def _with_new_headings(said: str, shown: str) -> str:
    """Return passages without those first lines that were shown above them."""
    if "\n" not in said:
        return said
    passages = []
    for one in said.split(GAP):
        while True:
            first, line_break, rest = one.partition("\n")
            if not line_break or first.strip("#*_: \t") not in shown:
                break
            one = rest.lstrip("\n")  # noqa: PLW2901
        passages.append(one)
        shown += f"\n{one}"
    return GAP.join(passages)


def exchanged(hits: Sequence[Hit]) -> list[Hit]:
    """Return the hits in the same order, with their scores sorted so that the first is the best."""
    ranked = sorted((hit.scores for hit in hits), key=lambda one: -one.final)
    return [
        hit._replace(scores=hit.scores._replace(score=best.score, final=best.final))
        for hit, best in zip(hits, ranked, strict=True)
    ]


def falling(hits: Sequence[Hit], mode: SearchMode) -> list[Hit]:
    """Return the hits with no score above that of an earlier hit, as the order takes more into
    account than the score. Modes with a score formula of their own stay as they are.
    """
    if mode not in DEFAULT_ORDER:
        return list(hits)
    found: list[Hit] = []
    for hit in hits:
        if found and found[-1].scores.score < hit.scores.score:
            scores = hit.scores._replace(score=found[-1].scores.score)
            hit = hit._replace(scores=scores)  # noqa: PLW2901
        found.append(hit)
    return found
