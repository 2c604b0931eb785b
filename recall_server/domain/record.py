"""The record of a memory: its words, type, fact and citations, which no update changes. An event
keeps a digest of what its transaction recorded, so that a later change of the rows is noticed.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import combinations, islice
from typing import Any, Self

from recall_server.domain.episode import Citation
from recall_server.domain.memory import Memory, MemoryType, importance, layer_of

FACT = ("entity", "attribute", "value")
STATED = ("text", *FACT, "negated")
FIELDS = (*STATED, "type", "topic", "container", "layer", "said_at", "valid_from")
_MOMENTS = frozenset({"said_at", "valid_from"})
# The rules make these memories of their texts again, word for word.
_MADE_AGAIN = re.compile(r"rules/\d")
_HEX_DIGITS = 32
# How many choices of citations of one text are tried.
TRIED_MAX = 10_000

Cited = tuple[str, int, int]
"""A citation: the id of the text, the start and the end."""


@dataclass
class Recorded:
    """The fields of a new memory, and the citations and relations, that a transaction has recorded.

    `rest`: what else is kept of a memory that no text makes again. `stored_bytes`: what its labels
    count.
    """

    words: tuple[object, ...] = ()
    citations: list[Cited] = field(default_factory=list)
    relations: list[Sequence[Any]] = field(default_factory=list)
    rest: dict[str, Any] = field(default_factory=dict)
    made_again: bool = False
    stored_bytes: int = 0

    def copy(self) -> Self:
        """Return a copy that a transaction can add to."""
        return replace(
            self,
            citations=[*self.citations],
            relations=[*self.relations],
            rest={**self.rest},
        )

    def add(self, values: Mapping[str, Any], *, imported: bool = False) -> None:
        self.words = words(values)
        self.stored_bytes = values["stored_bytes"]
        self.made_again = _MADE_AGAIN.match(values["extractor"]) is not None
        if not self.made_again:
            self.rest["extractor"] = values["extractor"]
            if values["importance"] != importance(values["text"]):
                self.rest["importance"] = values["importance"]
        if imported:
            self.rest["recorded_at"] = _moment(values["recorded_at"])

    @property
    def answer(self) -> str | None:
        """The copy that the event keeps: of the fields and citations if a model or a person worded
        them, of citations behind the first, and of relations. A text makes all else again.
        """
        said = () if self.made_again else self.words
        cited = [] if self.made_again and len(self.citations) == 1 else self.citations
        rest = {**self.rest, "relations": self.relations} if self.relations else self.rest
        if not (said or cited or rest):
            return None
        return json.dumps([said, cited, rest], ensure_ascii=False, separators=(",", ":"))

    def digest(self) -> str | None:
        """Return the number of citations and a digest of everything but the relations."""
        if not self.words and not self.citations:
            return None
        said = json.dumps([self.words, self.citations]).encode()
        return f"{len(self.citations)}.{hashlib.sha256(said).hexdigest()[:_HEX_DIGITS]}"


@dataclass(frozen=True)
class Written:
    """An event of a memory that added it, recorded citations or relations, dropped citations, or
    took a change back.

    `citations`: the position of the next citation after it. `dropped`: by position. `undoes`: the
    change that it took back. `answer`: what is kept of it, as `Recorded.answer`.
    """

    seq: int
    at: datetime
    adds: bool
    digest: str | None
    citations: int
    dropped: Mapping[int, Cited]
    answer: Sequence[Any] | None = None
    change_id: str = ""
    undoes: str = ""

    @property
    def places(self) -> range:
        """The positions of the citations that it recorded."""
        count = int(self.digest.partition(".")[0]) if self.digest else self.citations
        return range(self.citations - count, self.citations)

    @property
    def lacks_places(self) -> bool:
        """True if it recorded citations that are not kept, behind the first of a memory."""
        return self.digest is not None and not self.cited and len(self.places) > self.adds

    @property
    def rest(self) -> Mapping[str, Any]:
        return self.answer[2] if self.answer and len(self.answer) > 2 else {}

    @property
    def said(self) -> dict[str, Any] | None:
        """The fields that are kept."""
        if not self.answer or not self.answer[0]:
            return None
        return {
            name: datetime.fromisoformat(value) if name in _MOMENTS else value
            for name, value in zip(FIELDS, self.answer[0], strict=True)
        }

    @property
    def cited(self) -> list[Cited]:
        """The citations that are kept."""
        return [_cited(one) for one in self.answer[1]] if self.answer else []


@dataclass
class Made:
    """A memory as the rules make it of some texts, and the places that it may cite, by text."""

    memory: Memory | None = None
    places: list[list[Cited]] = field(default_factory=list)


@dataclass(frozen=True)
class Remade:
    """The recorded fields of a memory, and its citations by position; `whole`: all of them."""

    fields: Mapping[str, Any]
    citations: Mapping[int, Cited]
    whole: bool


@dataclass(frozen=True)
class Checked:
    """Whether the rows of a memory are as recorded. None: an older release recorded no digest;
    `first` is the event that lacks it, and `digest` the digest of the rows as they are.
    """

    intact: bool | None
    first: int = 0
    digest: str = ""


def words(values: Mapping[str, Any]) -> tuple[object, ...]:
    """Return the recorded fields of a memory, equal for a new memory and for its row."""
    return tuple(_plain(name, values[name]) for name in FIELDS)


def check(
    values: Mapping[str, Any], live: Mapping[int, Cited], events: Sequence[Written]
) -> Checked:
    """Compare a memory and its citations, by position, with its events, the oldest first. Goes back
    from the last event: what an event dropped was there before it, and what it recorded was not.
    """
    citations = dict(live)
    for event in reversed(events):
        for position, one in event.dropped.items():
            if citations.setdefault(position, one) != one:
                return Checked(intact=False)
        if event.digest is None and not event.adds:
            continue
        if not all(place in citations for place in event.places):
            return Checked(intact=False)
        made = _digest(
            words(values) if event.adds else (), [citations.pop(place) for place in event.places]
        )
        if event.digest is None:
            return Checked(None, event.seq, made)
        if event.digest != made:
            return Checked(intact=False)
    return Checked(intact=bool(events))


def remade(
    live: Mapping[str, Any] | None,
    citations: Mapping[int, Cited],
    events: Sequence[Written],
    made: Made,
) -> Remade | None:
    """Return a memory as its events, the oldest first, recorded it; None if its fields follow
    neither from its row, if it has one, nor from what is kept, nor from what a text makes.
    """
    fields: dict[str, Any] = {}
    found: dict[int, Cited] = {}
    whole = True
    for number, event in enumerate(events):
        if event.digest is not None or event.adds:
            known = dict(citations)
            for later in reversed(events[number + 1 :]):
                known |= later.dropped
            fits = _fitting(event, [*_wordings(live, event, made)], _citings(event, known, made))
            if fits is not None:
                fields = fits[0] or fields
                found |= zip(event.places, fits[1], strict=True)
            elif event.adds:
                return None
            else:
                whole = False
        for place in event.dropped:
            found.pop(place, None)
        if event.undoes:
            # It gives back what the change had dropped.
            for one in events[:number]:
                found |= one.dropped if one.change_id == event.undoes else {}
    return Remade(fields, found, whole) if fields else None


def _fitting(
    event: Written, wordings: Sequence[dict[str, Any]], citings: Iterable[Sequence[Cited]]
) -> tuple[dict[str, Any], Sequence[Cited]] | None:
    """Return the fields and citations that have the digest of an event; the first ones, if an older
    release recorded none.
    """
    for citing in citings:
        for one in wordings if event.adds else [{}]:
            if event.digest in (None, _digest(words(one) if one else (), citing)):
                return one, citing
    return None


def _wordings(
    live: Mapping[str, Any] | None, event: Written, made: Made
) -> Iterator[dict[str, Any]]:
    row = {name: live[name] for name in FIELDS} if live else None
    if row:
        yield row
    if said := event.said:
        yield said
    if made.memory is not None:
        fact = made.memory.fact
        of_text = {**vars(made.memory), **(vars(fact) if fact else _NO_FACT)}
        new = {name: of_text[name] for name in FIELDS}
        yield new
        if row:
            # As it was added, some fields may have been others.
            yield {**row, **{name: new[name] for name in STATED}}
            yield {**row, **{name: new[name] for name in (*STATED, "type")}}
        for type_ in MemoryType:  # that the caller chose
            yield {**new, "type": type_, "layer": layer_of(type_)}


def _citings(event: Written, known: Mapping[int, Cited], made: Made) -> Iterator[Sequence[Cited]]:
    """Return what an event may have cited, given what is known of the citations by position."""
    count = len(event.places)
    if len(event.cited) == count:
        yield event.cited
    if all(place in known for place in event.places):
        yield [known[place] for place in event.places]
    first = [cited(made.memory.citation)] if event.adds and made.memory else []
    if len(first) == count:
        yield first
    elif len(first) < count:
        for places in made.places:
            for some in islice(combinations(places, count - len(first)), TRIED_MAX):
                yield [*first, *some]


def _digest(said: tuple[object, ...], citations: Sequence[Cited]) -> str:
    return Recorded(said, list(citations)).digest() or ""


_NO_FACT = {**dict.fromkeys(FACT), "negated": False}


def _plain(name: str, value: Any) -> object:
    if name == "negated":
        return bool(value)
    return _moment(value) if name in _MOMENTS else value


def _moment(value: Any) -> str:
    at = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    return at.astimezone(UTC).isoformat()


def cited(one: Citation) -> Cited:
    return one.episode_id, one.span.start, one.span.end


def _cited(one: Sequence[Any]) -> Cited:
    episode_id, start, end = one
    return episode_id, start, end


def dropped(rows: Iterable[Sequence[Any]]) -> dict[int, Cited]:
    """Return the citations of rows of position, text, start and end."""
    return {position: (episode_id, start, end) for position, episode_id, start, end in rows}
