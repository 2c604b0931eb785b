"""One request to Claude over the Messages API, under one deadline; its answer is parsed as
untrusted JSON. Callers define prompt and form.

This module imports `anthropic`, which takes a second or two: import it only if a key is set.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import random
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, Required, TypedDict, cast

import anthropic
import httpx2
from anthropic.types import OutputConfigParam
from pydantic import BaseModel, BeforeValidator, Field, NonNegativeInt, ValidationError

from recall_server.domain.errors import ModelAnswerInvalid, ModelUnavailable
from recall_server.domain.extraction import Usage

ANSWER_BYTES_MAX = 1_000_000
# Five entries take under 2,000; the rest is for models that always think first.
OUTPUT_TOKENS_MAX = 8_192
# Tokens of one call, in and out: a merge sends 20,000 characters at most, and a prompt.
CALL_TOKENS_MAX = OUTPUT_TOKENS_MAX + 24_000
RETRIES_MAX = 2
BACKOFF_S = 0.5
RETRY_AFTER_S_MAX = 86_400.0

# US dollars per million tokens, in and out, from platform.claude.com/docs on 2026-11-21. Other
# models are booked at 0.0 rather than at a guess.
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
_UNSTORABLE = re.compile(r"[\x00\ud800-\udfff]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+")


def _storable(value: object) -> object:
    return _UNSTORABLE.sub("", value) if isinstance(value, str) else value


def _one_line(value: object) -> object:
    return " ".join(_CONTROL.sub(" ", value).split()) if isinstance(value, str) else value


Storable = Annotated[str, BeforeValidator(_storable)]
"""Text without characters that no database can store."""

Line = Annotated[str, BeforeValidator(_one_line)]
"""Text on one line, without control characters, each run of blanks a single one."""


def json_object(properties: Mapping[str, object]) -> dict[str, object]:
    """Return the JSON schema of an object with exactly these properties; the API requires it
    closed.
    """
    closed = {"type": "object", "additionalProperties": False}
    return {**closed, "properties": dict(properties), "required": list(properties)}


def form_of(properties: Mapping[str, object]) -> OutputConfigParam:
    """Return the output form of such an object."""
    return {"format": {"type": "json_schema", "schema": json_object(properties)}}


@dataclass(frozen=True)
class Answer:
    """Claude's answer as JSON, and its cost."""

    content: object
    usage: Usage


class Connection(TypedDict, total=False):
    """How to reach the model; `ClaudeApi` has the defaults."""

    api_key: Required[str]
    model: str
    base_url: str
    deadline_s: float
    sleep: Callable[[float], Awaitable[None]]
    clock: Callable[[], float]
    jitter: Callable[[], float]


class ClaudeApi:
    """Sends requests, with retries.

    One `deadline_s` covers sending, waits between retries and a slow body. Rate limits, 5xx and
    lost connections are retried `RETRIES_MAX` times if the requested wait still fits; then
    `ModelUnavailable` carries that wait to the queue. A `permanent` one (bad key, bad request) and
    `ModelAnswerInvalid` are never retried here.
    """

    def __init__(
        self,
        *,
        api_key: str,
        model: str = "claude-haiku-4-5",
        base_url: str = "https://api.anthropic.com",
        deadline_s: float = 60.0,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.model = model
        self._deadline_s = deadline_s
        self._sleep = sleep
        self._clock = clock
        self._jitter = jitter
        self._client = anthropic.AsyncAnthropic(
            api_key=api_key,
            # Never None: the SDK would then read the environment, which only the settings may.
            base_url=base_url,
            max_retries=0,
            timeout=deadline_s,
            # An environment variable can make spans carry the texts.
            open_telemetry=False,
            # A redirected POST would send text and key to an address that nobody configured.
            http_client=anthropic.DefaultAsyncHttpxClient(follow_redirects=False),
        )
        # At DEBUG the SDK logs whole requests, with callers' text.
        log = logging.getLogger("anthropic")
        log.setLevel(max(log.level, logging.INFO))

    async def ask(self, system: str, user: str, form: OutputConfigParam) -> Answer:
        """Request JSON of this form.

        Only checks that the answer is complete and is JSON, not that it has the form.
        """
        try:
            async with asyncio.timeout(self._deadline_s):
                body = await self._ask(system, user, form)
        except TimeoutError:
            why = f"The language model gave no answer within {self._deadline_s:g} seconds."
            raise ModelUnavailable(f"{why} The text is kept, and is tried again.") from None
        message = _message(body)
        said = "".join(block.text for block in message.content if block.type == "text")
        return Answer(_json(said), self._usage(message.usage))

    async def close(self) -> None:
        await self._client.close()

    async def _ask(self, system: str, user: str, form: OutputConfigParam) -> bytes:
        started = self._clock()
        for attempt in range(RETRIES_MAX + 1):
            try:
                return await self._send(system, user, form)
            except ModelUnavailable as error:
                backoff = BACKOFF_S * 2**attempt * (0.5 + self._jitter())
                pause = max(backoff, error.retry_after_s or 0.0)
                left = self._deadline_s - (self._clock() - started)
                if error.permanent or attempt == RETRIES_MAX or pause >= left:
                    raise
            await self._sleep(pause)
        raise AssertionError("the last attempt returns or raises")

    async def _send(self, system: str, user: str, form: OutputConfigParam) -> bytes:
        """Send one request. Causes are dropped: an error of the SDK holds the answer, maybe the
        text.
        """
        try:
            # Streaming only so that the size is known before the body is in memory. A forced tool
            # call would work on older models; the newest refuse it (SDK 2.12, Opus 5.5).
            async with self._client.messages.with_streaming_response.create(
                model=self.model,
                max_tokens=OUTPUT_TOKENS_MAX,
                system=system,
                messages=[{"role": "user", "content": user}],
                output_config=form,
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

    def _usage(self, tokens: _Tokens) -> Usage:
        price_in, price_out = _PRICES.get(_DATED.sub("", self.model), (0.0, 0.0))
        cost = (tokens.all_input * price_in + tokens.output_tokens * price_out) / 1_000_000
        return Usage(self.model, tokens.all_input, tokens.output_tokens, cost)


def _refused(error: anthropic.APIStatusError) -> ModelUnavailable | ModelAnswerInvalid:
    status = error.status_code
    if status in {400, 413, 422}:
        why = f"The language model's service will not take this text (HTTP {status})."
        return ModelAnswerInvalid(f"{why} It is kept and searchable.", permanent=True)
    # Below 500 the request or configuration is wrong, except for these three.
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
    text: Storable = ""


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
    # An answer that stopped early (max_tokens above all) may be incomplete: never apply half.
    if message.stop_reason not in {"end_turn", "stop_sequence"}:
        raise ModelAnswerInvalid
    return message


def _json(text: str | bytes) -> object:
    try:
        return cast("object", json.loads(text))
    except (ValueError, RecursionError):
        raise ModelAnswerInvalid from None
