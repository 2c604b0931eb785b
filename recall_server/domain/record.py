"""The record of a memory: its words, type, fact and citations, which no update changes. An event
keeps a digest of what its transaction recorded, so that a later change of the rows is noticed.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from recall_server.domain.episode import Citation

FACT = ("entity", "attribute", "value")
STATED = ("text", *FACT, "negated")
FIELDS = (*STATED, "type", "topic", "container", "layer", "said_at", "valid_from")
_MOMENTS = frozenset({"said_at", "valid_from"})
# The rules make these memories of their texts again, word for word.
_MADE_AGAIN = re.compile(r"rules/\d")
_HEX_DIGITS = 32

Cited = tuple[str, int, int]
"""A citation: the id of the text, the start and the end."""


@dataclass
class Recorded:
    """The fields of a new memory, and the citations, that a transaction has recorded. `answers`:
    a model or a person worded them, so they are kept a second time.
    """

    words: tuple[object, ...] = ()
    citations: list[Cited] = field(default_factory=list)
    answers: bool = False

    def add(self, values: Mapping[str, Any]) -> None:
        """Record the fields of a new memory."""
        self.words = words(values)
        self.answers = _MADE_AGAIN.match(values["extractor"]) is None

    @property
    def answer(self) -> str:
        """The fields and citations, as they are kept a second time."""
        return json.dumps([self.words, self.citations], ensure_ascii=False, separators=(",", ":"))

    def digest(self) -> str:
        """Return the number of citations and a digest of everything."""
        said = json.dumps([self.words, self.citations]).encode()
        return f"{len(self.citations)}.{hashlib.sha256(said).hexdigest()[:_HEX_DIGITS]}"


@dataclass(frozen=True)
class Written:
    """An event of a memory that added it, recorded citations or dropped them.

    `citations`: the position of the next citation after it. `dropped`: by position. `answer`: the
    recorded fields and citations of a memory that it added, if they are kept.
    """

    seq: int
    adds: bool
    digest: str | None
    citations: int
    dropped: Mapping[int, Cited]
    answer: Sequence[Any] | None = None

    def answered(self) -> tuple[dict[str, Any], dict[int, Cited]] | None:
        """Return the fields that are kept, and the citations by position."""
        if self.answer is None:
            return None
        said, citations = self.answer
        fields = {
            name: datetime.fromisoformat(value) if name in _MOMENTS else value
            for name, value in zip(FIELDS, said, strict=True)
        }
        first = self.citations - len(citations)
        return fields, {first + place: _cited(one) for place, one in enumerate(citations)}


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
        count = int(event.digest.partition(".")[0]) if event.digest else event.citations
        places = range(event.citations - count, event.citations)
        if not all(place in citations for place in places):
            return Checked(intact=False)
        made = Recorded(
            words(values) if event.adds else (), [citations.pop(place) for place in places]
        ).digest()
        if event.digest is None:
            return Checked(None, event.seq, made)
        if event.digest != made:
            return Checked(intact=False)
    return Checked(intact=bool(events))


def _plain(name: str, value: Any) -> object:
    if name == "negated":
        return bool(value)
    if name not in _MOMENTS:
        return value
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
