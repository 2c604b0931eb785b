"""Claude over the Messages API.

This module imports `anthropic`, which takes a second or two: import it only if a key is set.
"""

from __future__ import annotations

import re
from typing import Literal, Unpack

import anthropic
import httpx2
from pydantic import BaseModel, Field, ValidationError

from recall_server.domain.errors import ModelAnswerInvalid, ModelUnavailable
from recall_server.domain.extraction import Usage
from recall_server.integrations.llm import (
    OUTPUT_TOKENS_MAX,
    Answer,
    Connection,
    ModelApi,
    Schema,
    Storable,
    TokenCount,
    body_of,
    declined,
    parsed,
    refused,
)

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


class ClaudeApi(ModelApi):
    vendor = "anthropic"

    def __init__(self, *, api_key: str, base_url: str, **connection: Unpack[Connection]) -> None:
        super().__init__(**connection)
        self._client = anthropic.AsyncAnthropic(
            api_key=api_key,
            # Never None: the SDK would then read the environment, which only the settings may.
            base_url=base_url,
            max_retries=0,
            timeout=self._deadline_s,
            # An environment variable can make spans carry the texts.
            open_telemetry=False,
            # A redirected POST would send text and key to an address that nobody configured.
            http_client=anthropic.DefaultAsyncHttpxClient(follow_redirects=False),
        )

    async def close(self) -> None:
        await self._client.close()

    async def _send(self, system: str, user: str, schema: Schema) -> bytes:
        try:
            # Streaming only so that the size is known before the body is in memory. A forced tool
            # call would work on older models; the newest refuse it (SDK 2.12, Opus 5.5).
            async with self._client.messages.with_streaming_response.create(
                model=self.model,
                max_tokens=OUTPUT_TOKENS_MAX,
                system=system,
                messages=[{"role": "user", "content": user}],
                output_config={"format": {"type": "json_schema", "schema": schema}},
            ) as response:
                return await body_of(response)
        except anthropic.APIStatusError as error:
            raise refused(error.status_code, error.response.headers) from None
        except (anthropic.APIConnectionError, httpx2.HTTPError):
            raise ModelUnavailable from None

    def _read(self, body: bytes) -> Answer:
        message = _message(body)
        said = "".join(block.text for block in message.content if block.type == "text")
        return Answer(parsed(said), self._usage(message.usage))

    def _usage(self, tokens: _Tokens) -> Usage:
        price_in, price_out = _PRICES.get(_DATED.sub("", self.model), (0.0, 0.0))
        cost = (tokens.all_input * price_in + tokens.output_tokens * price_out) / 1_000_000
        return Usage(self.model, tokens.all_input, tokens.output_tokens, cost)


class _Tokens(BaseModel):
    input_tokens: TokenCount = 0
    output_tokens: TokenCount = 0
    cache_creation_input_tokens: TokenCount | None = None
    cache_read_input_tokens: TokenCount | None = None

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
        message = _Message.model_validate(parsed(body))
    except ValidationError:
        raise ModelAnswerInvalid from None
    if message.stop_reason == "refusal":
        raise declined()
    # An answer that stopped early (max_tokens above all) may be incomplete: never apply half.
    if message.stop_reason not in {"end_turn", "stop_sequence"}:
        raise ModelAnswerInvalid
    return message
