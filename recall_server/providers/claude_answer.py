"""What Claude answers, read as a stranger's text: an envelope that must be right as a whole, and
entries that stand each for itself.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Annotated, Literal, cast

from anthropic.types import OutputConfigParam
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    NonNegativeInt,
    ValidationError,
)

from recall_server.domain.errors import ModelAnswerInvalid
from recall_server.domain.model import Candidate, Fact, MemoryType, Span
from recall_server.providers.extraction import Passage

MEMORIES_MAX = 5
ENTRIES_READ_MAX = 20

_UNSTORABLE = re.compile(r"[\x00\ud800-\udfff]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+")
_DATE = re.compile(r"([12][0-9]{3}(?:-[0-9]{2}){0,2})(?:T.*)?")
_APOSTROPHE = re.compile("['\u2018\u2019]")
_MARKS = " \t\r\n\"'.\u2018\u2019\u201c\u201d\u2026"


def _storable(value: object) -> object:
    return _UNSTORABLE.sub("", value) if isinstance(value, str) else value


def _one_line(value: object) -> object:
    return " ".join(_CONTROL.sub(" ", value).split()) if isinstance(value, str) else value


def _day(value: object) -> object:
    """Widen a year or month to its first day, midnight UTC; ValueError when it is no date."""
    if not isinstance(value, str):
        return value
    if not (date := _DATE.fullmatch(value.strip())):
        raise ValueError("not a date")
    return datetime.fromisoformat((date[1] + "-01-01")[:10]).replace(tzinfo=UTC)


_Sentence = Annotated[str, Field(min_length=1, max_length=2_000), BeforeValidator(_one_line)]
_Words = Annotated[str, Field(max_length=500), BeforeValidator(_one_line)] | None
_Share = Annotated[
    float, Field(allow_inf_nan=False), AfterValidator(lambda n: min(1.0, max(0.0, n)))
]


class Entry(BaseModel):
    """One memory as a model writes it down, cleaned of what cannot be stored."""

    model_config = ConfigDict(strict=True, extra="forbid")

    text: _Sentence
    type: Annotated[MemoryType, Field(strict=False)]
    entity: _Words = None
    attribute: _Words = None
    value: _Words = None
    negated: bool = False
    correction: bool = False
    replaces: _Words = None
    valid_from: Annotated[datetime | None, BeforeValidator(_day)] = None
    confidence: _Share = 0.8
    importance: _Share = 0.5
    turn: int | None = None
    quote: Annotated[str, Field(max_length=1_200), BeforeValidator(_storable)]


_STRING = {"type": "string"}
_MAYBE = {"anyOf": [{"type": "string"}, {"type": "null"}]}
_BOOLEAN, _NUMBER = {"type": "boolean"}, {"type": "number"}
# Written out, not made from `Entry`, so that every field is required and no docstring is sent.
# In this order the model copies the words first and says what they mean afterwards.
_PROPERTIES: dict[str, object] = {
    "turn": {"type": "integer"},
    "quote": _STRING,
    "text": _STRING,
    "type": {"type": "string", "enum": [kind.value for kind in MemoryType]},
    **dict.fromkeys(("entity", "attribute", "value"), _MAYBE),
    **dict.fromkeys(("negated", "correction"), _BOOLEAN),
    **dict.fromkeys(("replaces", "valid_from"), _MAYBE),
    **dict.fromkeys(("confidence", "importance"), _NUMBER),
}


def _object(properties: dict[str, object]) -> dict[str, object]:
    closed = {"type": "object", "additionalProperties": False}
    return {**closed, "properties": properties, "required": list(properties)}


_SCHEMA = _object({"memories": {"type": "array", "items": _object(_PROPERTIES)}})
OUTPUT: OutputConfigParam = {"format": {"type": "json_schema", "schema": _SCHEMA}}


class _Tokens(BaseModel):
    input_tokens: NonNegativeInt = 0
    output_tokens: NonNegativeInt = 0
    cache_creation_input_tokens: NonNegativeInt | None = None
    cache_read_input_tokens: NonNegativeInt | None = None

    @property
    def all_input(self) -> int:
        cached = (self.cache_creation_input_tokens or 0) + (self.cache_read_input_tokens or 0)
        return self.input_tokens + cached


class _Block(BaseModel):
    type: str
    text: Annotated[str, BeforeValidator(_storable)] = ""


class Message(BaseModel):
    type: Literal["message"]
    content: list[_Block]
    stop_reason: str | None
    usage: _Tokens = Field(default_factory=_Tokens)


def read_message(body: bytes) -> Message:
    try:
        message = Message.model_validate(_json(body))
    except ValidationError:
        raise ModelAnswerInvalid from None
    if message.stop_reason == "refusal":
        why = "The language model declined to read this text. It is kept and searchable."
        raise ModelAnswerInvalid(why, permanent=True)
    # Whatever stopped early (max_tokens above all) may be half an answer: never apply half.
    if message.stop_reason not in {"end_turn", "stop_sequence"}:
        raise ModelAnswerInvalid
    return message


def entries_of(message: Message) -> list[object]:
    answer = _json("".join(block.text for block in message.content if block.type == "text"))
    entries = answer.get("memories") if isinstance(answer, dict) else None
    if not isinstance(entries, list):
        raise ModelAnswerInvalid
    return entries


def _json(text: str | bytes) -> object:
    try:
        return cast("object", json.loads(text))
    except (ValueError, RecursionError):
        raise ModelAnswerInvalid from None


def read_entries(entries: list[object], passage: Passage) -> tuple[tuple[Candidate, ...], int]:
    """Keep the first five that are sound and cite the passage; the rest is only counted."""
    kept: list[Candidate] = []
    for raw in entries[:ENTRIES_READ_MAX]:
        if len(kept) < MEMORIES_MAX and (candidate := _candidate(raw, passage)):
            kept.append(candidate)
    return tuple(kept), len(entries) - len(kept)


def _candidate(raw: object, passage: Passage) -> Candidate | None:
    try:
        entry = Entry.model_validate(raw)
    except ValidationError:
        return None
    if (span := _locate(entry, passage)) is None:
        return None
    fact = None
    if entry.entity and entry.attribute and entry.value:
        fact = Fact(entry.entity, entry.attribute, entry.value, entry.negated)
    return Candidate(
        text=entry.text,
        type=entry.type,
        span=span,
        fact=fact,
        confidence=entry.confidence,
        importance=entry.importance,
        valid_from=entry.valid_from,
        correction=entry.correction,
        replaces=entry.replaces or None,
    )


def _locate(entry: Entry, passage: Passage) -> Span | None:
    """Find the quoted words, first in the turn that is named: "yes, please" may be in several.

    Where they are not found exactly, blanks, case and the shape of apostrophes do not count.
    """
    quote = entry.quote.strip(_MARKS)
    if not re.search(r"\w", quote):
        return None
    words = (_APOSTROPHE.sub(_APOSTROPHE.pattern, re.escape(word)) for word in quote.split())
    exact, loose = re.compile(re.escape(quote)), re.compile(r"\s+".join(words), re.IGNORECASE)
    named = [turn for turn in passage.turns if turn.index == entry.turn]
    others = [turn for turn in passage.turns if turn.index != entry.turn]
    for turns, pattern in ((named, exact), (named, loose), (others, exact), (others, loose)):
        for turn in turns:
            if found := pattern.search(passage.text, turn.span.start, turn.span.end):
                return Span(*found.span())
    return None
