"""Extraction by a language model: builds the request from a passage, and reads memories from the
answer as untrusted input.
"""

from __future__ import annotations

import json
import re
import secrets
from datetime import UTC, datetime
from typing import Annotated

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
)

from recall_server.domain.episode import Span
from recall_server.domain.errors import ModelAnswerInvalid
from recall_server.domain.extraction import Candidate, Extraction
from recall_server.domain.memory import EXTRACTED_TYPES, Fact, MemoryType
from recall_server.integrations.extraction.extractor import Extractor, Passage
from recall_server.integrations.llm import (
    Line,
    ModelApi,
    ModelRole,
    Prompt,
    Storable,
    json_object,
)

# About a thousand tokens, which seldom state more than five memories; the prompt is twice as long.
PASSAGE_CHARS = 4_000
MEMORIES_MAX = 5
ENTRIES_READ_MAX = 20

_DATE = re.compile(r"([12][0-9]{3}(?:-[0-9]{2}){0,2})(?:T.*)?")
_APOSTROPHE = re.compile("['\u2018\u2019]")
_MARKS = " \t\r\n\"'.\u2018\u2019\u201c\u201d\u2026"


class ModelExtractor(ModelRole, Extractor):
    """The port `Extractor` over a language model; `ModelApi` describes failures and retries."""

    def __init__(self, api: ModelApi, *, prompt: Prompt, attributes: str) -> None:
        super().__init__(api, prompt=prompt)
        self._attributes = attributes

    @property
    def passage_chars(self) -> int:
        return PASSAGE_CHARS

    async def extract(self, passage: Passage) -> Extraction:
        """Propose memories; a passage without turns costs no call."""
        if not passage.turns:
            return Extraction(candidates=(), extractor=self.name)
        system, user = self._prompt.fill(
            attributes=self._attributes,
            date=f"{passage.occurred_at:%A, %Y-%m-%d}",
            nonce=secrets.token_hex(8),
            passage=_as_data(passage),
        )
        answer = await self._api.ask(system, user, OUTPUT)
        candidates, rejected = read_entries(entries_of(answer.content), passage)
        return Extraction(candidates, self.name, rejected, answer.usage)


def _as_data(passage: Passage) -> str:
    """Return all text of others, with topic and speakers, as one JSON document."""
    turns = [
        {
            "turn": turn.index,
            "speaker": turn.speaker,
            "said_at": turn.said_at and turn.said_at.isoformat(timespec="minutes"),
            "text": passage.text[turn.span.start : turn.span.end],
        }
        for turn in passage.turns
    ]
    return json.dumps({"topic": passage.topic, "turns": turns}, ensure_ascii=False)


def _day(value: object) -> object:
    """Widen a year or month to its first day, midnight UTC. Raises `ValueError` on other text."""
    if not isinstance(value, str):
        return value
    if not (date := _DATE.fullmatch(value.strip())):
        raise ValueError("not a date")
    return datetime.fromisoformat((date[1] + "-01-01")[:10]).replace(tzinfo=UTC)


def _extracted(value: MemoryType) -> MemoryType:
    if value not in EXTRACTED_TYPES:
        raise ValueError("not a type that extraction tells apart")
    return value


_Sentence = Annotated[Line, Field(min_length=1, max_length=2_000)]
_Words = Annotated[Line, Field(max_length=500)] | None
_Share = Annotated[
    float, Field(allow_inf_nan=False), AfterValidator(lambda n: min(1.0, max(0.0, n)))
]


class Entry(BaseModel):
    """One memory of an answer, without characters that cannot be stored."""

    model_config = ConfigDict(strict=True, extra="forbid")

    text: _Sentence
    type: Annotated[MemoryType, Field(strict=False), AfterValidator(_extracted)]
    entity: _Words = None
    attribute: _Words = None
    value: _Words = None
    negated: bool = False
    correction: bool = False
    replaces: _Words = None
    valid_from: Annotated[datetime | None, BeforeValidator(_day)] = None
    confidence: _Share = 0.8
    importance: _Share = 0.5
    # Not requested, but accepted from a model that adds it.
    needs_review: bool = False
    turn: int | None = None
    quote: Annotated[Storable, Field(max_length=1_200)]


_STRING = {"type": "string"}
_MAYBE = {"anyOf": [{"type": "string"}, {"type": "null"}]}
_BOOLEAN, _NUMBER = {"type": "boolean"}, {"type": "number"}
# Written out, not derived from `Entry`, so that every field is required and no docstring is sent.
# In this order the model copies the words first and interprets them afterwards.
_PROPERTIES: dict[str, object] = {
    "turn": {"type": "integer"},
    "quote": _STRING,
    "text": _STRING,
    "type": {"type": "string", "enum": [kind.value for kind in EXTRACTED_TYPES]},
    **dict.fromkeys(("entity", "attribute", "value"), _MAYBE),
    **dict.fromkeys(("negated", "correction"), _BOOLEAN),
    **dict.fromkeys(("replaces", "valid_from"), _MAYBE),
    **dict.fromkeys(("confidence", "importance"), _NUMBER),
}


OUTPUT = json_object({"memories": {"type": "array", "items": json_object(_PROPERTIES)}})


def entries_of(content: object) -> list[object]:
    entries = content.get("memories") if isinstance(content, dict) else None
    if not isinstance(entries, list):
        raise ModelAnswerInvalid
    return entries


def read_entries(entries: list[object], passage: Passage) -> tuple[tuple[Candidate, ...], int]:
    """Return the first five valid entries that cite the passage, and the number of the others."""
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
        needs_review=entry.needs_review,
    )


def _locate(entry: Entry, passage: Passage) -> Span | None:
    """Find the quoted words, first in the named turn: "yes, please" may be in several.

    If there is no exact match, blanks, case and the shape of apostrophes are ignored.
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
