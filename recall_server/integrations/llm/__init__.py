"""Language models: one request of any vendor, under one deadline; its answer is parsed as untrusted
JSON. Callers define prompt and schema; an adapter sends the request and reads the answer. Prompts
are `.md` files in the folder `prompts`, filled in here.
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
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import resources
from typing import Annotated, ClassVar, Protocol, Required, TypedDict, TypeVar, cast

from pydantic import BaseModel, BeforeValidator, Field, ValidationError

from recall_server.domain.errors import ModelAnswerInvalid, ModelKeyRejected, ModelUnavailable
from recall_server.domain.extraction import Usage

ANSWER_BYTES_MAX = 1_000_000
# Five entries take under 2,000; the rest is for models that always think first.
OUTPUT_TOKENS_MAX = 8_192
# Tokens of one call, in and out: a merge sends at most 20,000 characters and a prompt.
CALL_TOKENS_MAX = OUTPUT_TOKENS_MAX + 24_000
RETRIES_MAX = 2
BACKOFF_S = 0.5
RETRY_AFTER_S_MAX = 86_400.0
# English has about four; other languages have fewer.
CHARS_PER_TOKEN = 2
# After an answer 401 the key is sent again after this pause, then after twice as long, and so on;
# after `KEY_TRIES_MAX` such answers (about a day) not until the next start.
KEY_PAUSE_S = 300.0
KEY_TRIES_MAX = 9

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

TokenCount = Annotated[int, Field(ge=0, le=10**9)]
"""The number of tokens that a service reports for a call; impossible numbers are rejected."""

Schema = dict[str, object]

F = TypeVar("F", bound=BaseModel)


def json_object(properties: Mapping[str, object]) -> Schema:
    """Return the JSON schema of an object with exactly these properties: services require a closed
    schema.
    """
    closed = {"type": "object", "additionalProperties": False}
    return {**closed, "properties": dict(properties), "required": list(properties)}


@dataclass(frozen=True)
class Answer:
    content: object
    usage: Usage


class Connection(TypedDict, total=False):
    """The connection to the model; `ModelApi` has the defaults."""

    model: Required[str]
    deadline_s: float
    sleep: Callable[[float], Awaitable[None]]
    clock: Callable[[], float]
    jitter: Callable[[], float]


class ModelApi(ABC):
    """Sends requests, with retries; a vendor's adapter sends a single one and reads its answer.

    One `deadline_s` covers sending, waits between retries and a slow body. Rate limits, 5xx and
    lost connections are retried `RETRIES_MAX` times if the requested wait still fits; then
    `ModelUnavailable` carries that wait to the queue. A `permanent` one (bad key, bad request) and
    `ModelAnswerInvalid` are never retried here. After an answer 401 `ModelKeyRejected` is raised
    without a call, for longer each time.
    """

    vendor: ClassVar[str]

    def __init__(
        self,
        *,
        model: str,
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
        self._rejections = 0
        self._silent_until = -math.inf
        # At DEBUG the SDK logs whole requests, with callers' text.
        log = logging.getLogger(self.vendor)
        log.setLevel(max(log.level, logging.INFO))

    async def ask(self, system: str, user: str, schema: Schema) -> Answer:
        """Request JSON of this schema.

        Only checks that the answer is complete and is JSON, not that it has the schema.
        """
        if self._clock() < self._silent_until:
            raise ModelKeyRejected(401)
        try:
            async with asyncio.timeout(self._deadline_s):
                body = await self._ask(system, user, schema)
        except TimeoutError:
            why = f"The language model gave no answer within {self._deadline_s:g} seconds."
            raise ModelUnavailable(f"{why} The text is kept, and is tried again.") from None
        except ModelKeyRejected as error:
            # Not after 403: a filter before the service may forbid a single text, and no tenant's
            # text may block the model for the others.
            if error.status == 401:
                self._pause()
            raise
        self._rejections = 0
        answer = self._read(body)
        if answer.usage.input_tokens:
            return answer
        # Estimate the tokens if a server does not count them, or the budget would never end.
        sent, received = len(system) + len(user), len(body)
        counted = Usage(self.model, sent // CHARS_PER_TOKEN, received // CHARS_PER_TOKEN)
        return replace(answer, usage=counted)

    @abstractmethod
    async def close(self) -> None: ...

    @abstractmethod
    async def _send(self, system: str, user: str, schema: Schema) -> bytes:
        """Send one request and return the body of its answer. Raises `ModelUnavailable` or
        `ModelAnswerInvalid` without a cause: an SDK's error may hold the answer or the text.
        """

    @abstractmethod
    def _read(self, body: bytes) -> Answer:
        """Read the body of an answer. Raises `ModelAnswerInvalid`."""

    def _pause(self) -> None:
        self._rejections += 1
        last = self._rejections >= KEY_TRIES_MAX
        pause = math.inf if last else KEY_PAUSE_S * 2 ** (self._rejections - 1)
        self._silent_until = self._clock() + pause

    async def _ask(self, system: str, user: str, schema: Schema) -> bytes:
        started = self._clock()
        for attempt in range(RETRIES_MAX + 1):
            try:
                return await self._send(system, user, schema)
            except ModelUnavailable as error:
                backoff = BACKOFF_S * 2**attempt * (0.5 + self._jitter())
                pause = max(backoff, error.retry_after_s or 0.0)
                left = self._deadline_s - (self._clock() - started)
                if error.permanent or attempt == RETRIES_MAX or pause >= left:
                    raise
            await self._sleep(pause)
        raise AssertionError("the last attempt returns or raises")


class ModelRole:
    """A language model with the prompt of one role: what its extractor, its merger and its judge
    have in common.
    """

    role: ClassVar[str] = ""
    """The part of the name that tells the role; extraction has none."""

    def __init__(self, api: ModelApi, *, prompt: Prompt) -> None:
        self._api = api
        self._prompt = prompt

    @property
    def name(self) -> str:
        parts = (self._api.vendor, self._api.model, self.role, str(self._prompt.version))
        return "/".join(filter(None, parts))

    @property
    def call_tokens_max(self) -> int:
        return CALL_TOKENS_MAX

    async def _ask(
        self, form: type[F], schema: Schema, **given: str
    ) -> tuple[F | ModelAnswerInvalid, Usage]:
        """Return the answer to the filled prompt, or why it is of no use; and its cost."""
        system, user = self._prompt.fill(nonce=secrets.token_hex(8), **given)
        usage = Usage()
        try:
            answer = await self._api.ask(system, user, schema)
            usage = answer.usage
            return form.model_validate(answer.content), usage
        except ValidationError:
            return ModelAnswerInvalid(), usage
        except ModelAnswerInvalid as error:
            return error, usage

    async def close(self) -> None:
        await self._api.close()


class _Streamed(Protocol):
    """A response of an SDK whose body is still to be read."""

    def iter_bytes(self) -> AsyncIterator[bytes]: ...


async def body_of(response: _Streamed) -> bytes:
    """Read the body of a response. Raises `ModelAnswerInvalid` if it is longer than
    `ANSWER_BYTES_MAX`, without reading all of it.
    """
    body = bytearray()
    async for piece in response.iter_bytes():
        body += piece
        if len(body) > ANSWER_BYTES_MAX:
            raise ModelAnswerInvalid
    return bytes(body)


def declined() -> ModelAnswerInvalid:
    why = "The language model declined to read this text. It is kept and searchable."
    return ModelAnswerInvalid(why, permanent=True)


def refused(status: int, headers: Mapping[str, str]) -> ModelUnavailable | ModelAnswerInvalid:
    """Return the error for an answer without a success status."""
    if status in {400, 413, 422}:
        why = f"The language model's service will not take this text (HTTP {status})."
        return ModelAnswerInvalid(f"{why} It is kept and searchable.", permanent=True)
    if status in {401, 403}:
        return ModelKeyRejected(status)
    # Below 500 the request or configuration is wrong, except for these three.
    permanent = status < 500 and status not in {408, 409, 429}
    message = f"The language model's service answered with HTTP {status}. The text is kept."
    return ModelUnavailable(message, retry_after_s=_retry_after(headers), permanent=permanent)


def _retry_after(headers: Mapping[str, str]) -> float | None:
    try:
        seconds = float(headers["retry-after"])
    except (KeyError, ValueError):
        return None
    return min(max(seconds, 0.0), RETRY_AFTER_S_MAX) if math.isfinite(seconds) else None


def parsed(text: str | bytes) -> object:
    """Parse JSON. Raises `ModelAnswerInvalid`."""
    try:
        return cast("object", json.loads(text))
    except (ValueError, RecursionError):
        raise ModelAnswerInvalid from None


_PLACEHOLDER = re.compile(r"\{\{([a-z_]+)\}\}")
_FILE = re.compile(
    r"version: (?P<version>\d+)\n\n# System\n(?P<system>.+?)\n# User\n(?P<user>.+)", re.DOTALL
)


@dataclass(frozen=True)
class Prompt:
    """One prompt; `version` goes into the provenance of its results."""

    name: str
    version: str
    system: str
    user: str

    @cached_property
    def placeholders(self) -> frozenset[str]:
        return frozenset(_PLACEHOLDER.findall(self.system + self.user))

    def fill(self, **values: str) -> tuple[str, str]:
        """Fill in every placeholder. Return the system text, and the user message with the text of
        others. Raises `ValueError` if a placeholder is missing or unknown.
        """
        if values.keys() != self.placeholders:
            missing = ", ".join(sorted(self.placeholders - values.keys())) or "none"
            unknown = ", ".join(sorted(values.keys() - self.placeholders)) or "none"
            raise ValueError(f"prompt {self.name}: missing {missing}; unknown {unknown}")

        # In one pass, so that a value that looks like a placeholder is not replaced in turn.
        def value(found: re.Match[str]) -> str:
            return values[found[1]]

        return _PLACEHOLDER.sub(value, self.system), _PLACEHOLDER.sub(value, self.user)


def load_prompt(name: str) -> Prompt:
    """Read the prompt of this name. Raises `ValueError` with the fault of its file."""
    file = resources.files(__name__).joinpath("prompts", f"{name}.md")
    return parse_prompt(name, file.read_text(encoding="utf-8"))


def parse_prompt(name: str, text: str) -> Prompt:
    """Parse a prompt: `version: NUMBER`, then `# System` and `# User`. Raises `ValueError`."""
    if (found := _FILE.fullmatch(text)) is None:
        raise ValueError(f"prompt {name}: wants a version, then `# System`, then `# User`")
    return Prompt(name, found["version"], found["system"].strip(), found["user"].strip())
