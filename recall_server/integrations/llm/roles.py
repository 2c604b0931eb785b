"""Extraction, merging and judging by a language model: builds the requests, and reads the answers
as untrusted input. A merged text may neither lose nor make up a number, a name, a date or a denial.
"""

from __future__ import annotations

import json
import re
import secrets
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
)

from recall_server.domain.context import Compute, in_thread
from recall_server.domain.episode import Span
from recall_server.domain.errors import ModelAnswerInvalid
from recall_server.domain.extraction import (
    MERGED_CHARS_MAX,
    REASON_CHARS_MAX,
    Candidate,
    Extraction,
    Extractor,
    Judge,
    Judgement,
    Merged,
    Merger,
    Passage,
)
from recall_server.domain.memory import EXTRACTED_TYPES, Fact, Memory, MemoryType
from recall_server.domain.plan import Choice, Question
from recall_server.domain.screening import orders
from recall_server.domain.similarity import negations
from recall_server.domain.text.terms import terms
from recall_server.integrations.llm import (
    Line,
    ModelApi,
    ModelRole,
    Prompt,
    Storable,
    json_object,
)
from recall_server.integrations.rules.merger import NAME as RULES
from recall_server.integrations.rules.merger import all_said

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
            passage=_passage_as_data(passage),
        )
        answer = await self._api.ask(system, user, EXTRACTION_OUTPUT)
        candidates, rejected = read_entries(entries_of(answer.content), passage)
        return Extraction(candidates, self.name, rejected, answer.usage)


def _passage_as_data(passage: Passage) -> str:
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


EXTRACTION_OUTPUT = json_object({"memories": {"type": "array", "items": json_object(_PROPERTIES)}})


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


MERGE_OUTPUT = json_object({"text": {"type": "string"}})


class ModelMerger(ModelRole, Merger):
    """The port `Merger` over a language model.

    If one memory says what all others do, or the texts are too long, the rules decide without a
    call. An unusable answer is no error here.
    """

    role = "merge"

    def __init__(self, api: ModelApi, *, prompt: Prompt, compute: Compute = in_thread) -> None:
        super().__init__(api, prompt=prompt)
        self._compute = compute

    async def merge(self, memories: Sequence[Memory]) -> Merged | None:
        said = await all_said(memories, self._compute)
        if len(said.sources) < 2:
            return None if said.text is None else Merged(said.text, RULES)
        documents = _memories_as_data(said.sources)
        answer, usage = await self._ask(Proposal, MERGE_OUTPUT, memories=documents)
        if isinstance(answer, ModelAnswerInvalid):
            refused = ["is not there"]
        else:
            refused = objections(answer.text, said.sources)
            if not refused:
                return Merged(answer.text, self.name, usage)
        return None if said.text is None else Merged(said.text, RULES, usage, tuple(refused))

    async def preview(self, memories: Sequence[Memory]) -> Merged | None:
        said = await all_said(memories, self._compute)
        if len(said.sources) < 2:
            return None if said.text is None else Merged(said.text, RULES)
        texts = " ".join(memory.text for memory in said.sources)
        draft = f"To be written by {self.name} from: {texts}"
        return Merged(draft[:MERGED_CHARS_MAX], self.name, draft=True)


def _memories_as_data(memories: Sequence[Memory]) -> str:
    documents = [
        {
            "text": memory.text,
            "said_at": f"{memory.said_at:%Y-%m-%d}",
            "fact": memory.fact and asdict(memory.fact),
        }
        for memory in memories
    ]
    return json.dumps({"memories": documents}, ensure_ascii=False)


class Proposal(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    text: Annotated[Line, Field(min_length=1, max_length=MERGED_CHARS_MAX)]


def objections(text: str, memories: Sequence[Memory]) -> list[str]:
    """Return why `text` may not replace `memories`, each reason as the end of a sentence.

    Numbers (with sign, currency, per cent, am or pm), and all words of names, dates and
    identifiers, are in both or in neither; values of facts are not lost; it denies something if and
    only if they do. This is a signal, not a proof: other words may still have changed.
    """
    said = " ".join(memory.text for memory in memories)
    words, said_terms = frozenset(terms(text)), frozenset(terms(said))
    figures, said_figures = frozenset(_figures(text)), frozenset(_figures(said))
    denials = [negations(memory.text) > 0 for memory in memories]
    checks = (
        ("loses a number", said_figures <= figures),
        ("makes up a number", figures <= said_figures),
        ("loses a name or a date", _names(said) <= words),
        ("makes up a name or a date", _names(_OPENING.sub(" ", text)) <= said_terms),
        ("loses the value of a fact", all(_values(memory) <= words for memory in memories)),
        ("denies what was not denied, or the reverse", (negations(text) > 0) == any(denials)),
    )
    return [*orders(text), *(reason for reason, kept in checks if not kept)]


# Bounded: a run of signs without a number would be read again from each of them.
_SIGN = r"(?:[-−±~≈=<>≤≥+#$€£¥₹]|(?<=[~≈=<>≤≥$€£¥₹])\s){0,8}"
_FIGURE = re.compile(
    rf"(?:(?<!\w){_SIGN})?\d+(?:[.,:/-]\d+)*(?:\s?[%‰°€£¥₹$]|\s?[ap]\.?m\b)?", re.IGNORECASE
)
_GROUPING = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")


def _figures(text: str) -> Iterator[str]:
    """Yield the numbers of a text in one form: "1,200" is "1200", "9:30 p.m." is "9:30pm"."""
    plain = _GROUPING.sub("", unicodedata.normalize("NFKC", text))
    for found in _FIGURE.finditer(plain):
        yield re.sub(r"\s|(?<=[ap])\.", "", found[0].casefold())


_OPENING = re.compile(r"(?:^|(?<=[.!?…;:]\s))\W*\w+")
_TIME = re.compile(
    r"\b(?:(?:mon|tues|wednes|thurs|fri|satur|sun)days?|january|february|april|june|july|august"
    r"|september|october|november|december)\b",
    re.IGNORECASE,
)
_IDENTIFIER = re.compile(r"[^\W\d]\d|\d[^\W\d]|\w[._@/\\=+&:]\w")


def _names(text: str) -> frozenset[str]:
    """Return the terms of all words that have a capital, name a day or a month ("may" and "march"
    need the capital), or are identifiers: "v2", "snake_case", "node.js".
    """
    chunks = (
        chunk
        for chunk in text.split()
        if chunk != chunk.lower() or _TIME.search(chunk) or _IDENTIFIER.search(chunk)
    )
    # Capitalized function words give terms only if they stand alone.
    return frozenset(terms(" ".join(chunks))).intersection(terms(text))


def _values(memory: Memory) -> frozenset[str]:
    """Return the terms of a fact's value that are also in the memory's text."""
    value = memory.fact.value if memory.fact else ""
    return frozenset(terms(value)).intersection(terms(memory.text))


# As much as a merge sends at most.
SIDES_CHARS_MAX = 20_000


class Side(StrEnum):
    NEWER = "newer"
    OLDER = "older"
    KEEP_BOTH = "keep_both"
    UNSURE = "unsure"


JUDGE_OUTPUT = json_object(
    {
        "reason": {"type": "string"},
        "choice": {"type": "string", "enum": [side.value for side in Side]},
        "confidence": {"type": "number"},
    }
)


class ModelJudge(ModelRole, Judge):
    role = "judge"

    async def judge(self, question: Question) -> Judgement:
        sides = _sides_as_data(question)
        if len(sides) > SIDES_CHARS_MAX:
            return Judgement(None, self.name, refused="The statements are too long to be sent.")
        said, usage = await self._ask(Said, JUDGE_OUTPUT, sides=sides)
        if isinstance(said, ModelAnswerInvalid):
            return Judgement(None, self.name, usage=usage, refused=said.message)
        if found := orders(said.reason):
            return Judgement(None, self.name, usage=usage, refused=f"Its reason {found[0]}.")
        choice = _choice(said.choice, question)
        return Judgement(choice, self.name, said.reason, said.confidence, usage)


class Said(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    reason: Annotated[Line, Field(min_length=1, max_length=REASON_CHARS_MAX)]
    choice: Annotated[Side, Field(strict=False)]
    confidence: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


def _new_is_newer(question: Question) -> bool:
    """True if nothing that the new statement contradicts was said later."""
    return question.new.said_at >= max(one.said_at for one in question.existing)


def _choice(side: Side, question: Question) -> Choice | None:
    match side:
        case Side.KEEP_BOTH:
            return Choice.KEEP_BOTH
        case Side.UNSURE:
            return None
        case _:
            new = (side is Side.NEWER) is _new_is_newer(question)
            return Choice.KEEP_NEW if new else Choice.KEEP_EXISTING


def _sides_as_data(question: Question) -> str:
    existing = sorted(question.existing, key=lambda one: (one.said_at, one.id))
    sides: list[Sequence[Memory]] = [existing, [question.new]]
    if not _new_is_newer(question):
        sides.reverse()
    older, newer = ([_statement_as_data(one) for one in side] for side in sides)
    document = {"older": older, "newer": newer, "doubt": question.reason}
    return json.dumps(document, ensure_ascii=False)


def _statement_as_data(memory: Memory) -> dict[str, object]:
    return {
        "text": memory.text,
        "words": memory.citation.quote,
        "speaker": memory.citation.speaker,
        "said_at": memory.said_at.isoformat(timespec="minutes"),
        "true_from": f"{memory.valid_from:%Y-%m-%d}",
        "fact": memory.fact and asdict(memory.fact),
    }
