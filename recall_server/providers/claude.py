"""Extraction by Claude: one call under one deadline, its answer read as a stranger's text.

Importing this module imports `anthropic`, which takes a second or two: do so when a key is set.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import random
import re
import secrets
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Annotated, Literal, Protocol, cast

import anthropic
import httpx2
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

from recall_server.domain.errors import ModelAnswerInvalid, ModelUnavailable
from recall_server.domain.model import Candidate, Extraction, Fact, MemoryType, Span, Usage
from recall_server.providers.extraction import Passage

MEMORIES_MAX = 5
# About a thousand tokens: seldom holds more than five memories, and the prompt is twice as long.
PASSAGE_CHARS = 4_000
ENTRIES_READ_MAX = 20
ANSWER_BYTES_MAX = 1_000_000
# Five entries take under 2,000; the rest is for models that cannot be told not to think first.
OUTPUT_TOKENS_MAX = 8_192
RETRIES_MAX = 2
BACKOFF_S = 0.5
RETRY_AFTER_S_MAX = 86_400.0

# US dollars per million tokens, in and out. From platform.claude.com/docs, read on 2026-11-21.
# A model that is not here is booked at 0.0: no price is better than a made-up one.
_PRICES = {
    "claude-haiku-4-5": (1.0, 5.0),
    "claude-sonnet-4-5": (3.0, 15.0),
    "claude-sonnet-4-6": (3.0, 15.0),
    "claude-sonnet-5": (2.0, 10.0),
    "claude-sonnet-5-5": (2.0, 10.0),
    "claude-opus-4-5": (5.0, 25.0),
    "claude-opus-4-6": (5.0, 25.0),
    "claude-opus-4-8": (5.0, 25.0),
    "claude-opus-5": (5.0, 25.0),
    "claude-opus-5-5": (4.0, 20.0),
    "claude-fable-5-1": (10.0, 50.0),
}
_DATED = re.compile(r"-[0-9]{8}$")


class Prompt(Protocol):
    """What is needed of `prompts.Prompt`; said here because the shelves do not see each other."""

    @property
    def version(self) -> str: ...

    def fill(self, **values: str) -> tuple[str, str]: ...


class ClaudeExtractor:
    """The port `Extractor` over the Messages API.

    One `deadline_s` covers everything: sending, waiting between retries and a body that trickles.
    Rate limits, 5xx and lost connections are tried `RETRIES_MAX` times more, if the wait asked for
    still fits; then `ModelUnavailable` carries that wait to the queue. A `permanent` one (bad key,
    bad request) and `ModelAnswerInvalid` are never tried again here.
    """

    def __init__(
        self,
        *,
        api_key: str,
        prompt: Prompt,
        attributes: str,
        model: str = "claude-haiku-4-5",
        base_url: str = "https://api.anthropic.com",
        deadline_s: float = 60.0,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._prompt = prompt
        self._attributes = attributes
        self._model = model
        self._deadline_s = deadline_s
        self._sleep = sleep
        self._clock = clock
        self._jitter = jitter
        self._client = anthropic.AsyncAnthropic(
            api_key=api_key,
            # Never None: the SDK would then read the environment, which is the root's to read.
            base_url=base_url,
            max_retries=0,
            timeout=deadline_s,
            # Spans may be told, by an environment variable, to carry the texts.
            open_telemetry=False,
            # A redirected POST would hand text and key to an address nobody configured.
            http_client=anthropic.DefaultAsyncHttpxClient(follow_redirects=False),
        )
        # At DEBUG the SDK logs whole requests, and with them what people said.
        log = logging.getLogger("anthropic")
        log.setLevel(max(log.level, logging.INFO))

    @property
    def name(self) -> str:
        return f"anthropic/{self._model}/{self._prompt.version}"

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
        try:
            async with asyncio.timeout(self._deadline_s):
                body = await self._ask(system, user)
        except TimeoutError:
            why = f"The language model gave no answer within {self._deadline_s:g} seconds."
            raise ModelUnavailable(f"{why} The text is kept, and is tried again.") from None
        message = _message(body)
        candidates, rejected = read_entries(_entries(message), passage)
        return Extraction(candidates, self.name, rejected, self._usage(message))

    async def close(self) -> None:
        await self._client.close()

    async def _ask(self, system: str, user: str) -> bytes:
        started = self._clock()
        for attempt in range(RETRIES_MAX + 1):
            try:
                return await self._send(system, user)
            except ModelUnavailable as error:
                backoff = BACKOFF_S * 2**attempt * (0.5 + self._jitter())
                pause = max(backoff, error.retry_after_s or 0.0)
                left = self._deadline_s - (self._clock() - started)
                if error.permanent or attempt == RETRIES_MAX or pause >= left:
                    raise
            await self._sleep(pause)
        raise AssertionError("the last attempt returns or raises")

    async def _send(self, system: str, user: str) -> bytes:
        """Call once. Causes are dropped: an error of the SDK holds the answer, maybe the text."""
        try:
            # Streaming only so that the size is known before the body is in memory. A forced tool
            # call would do as well on older models; the newest refuse it (SDK 2.12, Opus 5.5).
            async with self._client.messages.with_streaming_response.create(
                model=self._model,
                max_tokens=OUTPUT_TOKENS_MAX,
                system=system,
                messages=[{"role": "user", "content": user}],
                output_config=OUTPUT,
            ) as response:
                body = bytearray()
                async for piece in response.iter_bytes():
                    body += piece
                    if len(body) > ANSWER_BYTES_MAX:
                        raise ModelAnswerInvalid
                return bytes(body)
        except anthropic.APIStatusError as error:
            raise _refused(error) from None
        except (anthropic.APIConnectionError, httpx2.HTTPError):
            raise ModelUnavailable from None

    def _usage(self, message: _Message) -> Usage:
        tokens = message.usage
        price_in, price_out = _PRICES.get(_DATED.sub("", self._model), (0.0, 0.0))
        cost = (tokens.all_input * price_in + tokens.output_tokens * price_out) / 1_000_000
        return Usage(self._model, tokens.all_input, tokens.output_tokens, cost)


def _as_data(passage: Passage) -> str:
    """Everything that others wrote, topic and speakers too, as one JSON document."""
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


def _refused(error: anthropic.APIStatusError) -> ModelUnavailable:
    status = error.status_code
    # A status below 500 says that this very request is wrong, but for the three that pass.
    permanent = status < 500 and status not in {408, 409, 429}
    message = f"The language model's service answered with HTTP {status}. The text is kept."
    if status in {401, 403}:
        message += " Check the API key."
    return ModelUnavailable(message, retry_after_s=_retry_after(error), permanent=permanent)


def _retry_after(error: anthropic.APIStatusError) -> float | None:
    try:
        seconds = float(error.response.headers["retry-after"])
    except (KeyError, ValueError):
        return None
    return min(max(seconds, 0.0), RETRY_AFTER_S_MAX) if math.isfinite(seconds) else None


# The answer: an envelope that must be right as a whole, and entries that stand each for itself.

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


class _Message(BaseModel):
    type: Literal["message"]
    content: list[_Block]
    stop_reason: str | None
    usage: _Tokens = Field(default_factory=_Tokens)


def _message(body: bytes) -> _Message:
    try:
        message = _Message.model_validate(_json(body))
    except ValidationError:
        raise ModelAnswerInvalid from None
    if message.stop_reason == "refusal":
        why = "The language model declined to read this text. It is kept and searchable."
        raise ModelAnswerInvalid(why, permanent=True)
    # Whatever stopped early (max_tokens above all) may be half an answer: never apply half.
    if message.stop_reason not in {"end_turn", "stop_sequence"}:
        raise ModelAnswerInvalid
    return message


def _entries(message: _Message) -> list[object]:
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
