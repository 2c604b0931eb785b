"""Any model behind an OpenAI-compatible server, over its chat completions: OpenAI, Ollama, vLLM, LM
Studio, or a gateway.

This module imports `openai`, which takes a second or two: import it only if it is chosen.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Literal, NamedTuple, Unpack

import httpx2
import openai
import structlog
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

log = structlog.get_logger()


class Form(NamedTuple):
    """The form of a request: servers know different parameters, and refuse others with 400."""

    has_schema: bool
    limit: Literal["max_tokens", "max_completion_tokens"]


# Ollama knows the older limit only, and the newest models of OpenAI the newer one only.
FORMS: Sequence[Form] = (
    Form(has_schema=True, limit="max_tokens"),
    Form(has_schema=True, limit="max_completion_tokens"),
    Form(has_schema=False, limit="max_tokens"),
)


class OpenAIApi(ModelApi):
    """The adapter of OpenAI-compatible servers.

    The first form of `FORMS` that the server accepts is used from then on. If it does not know or
    ignores JSON schemas, the JSON is searched for in the model's text.
    """

    vendor = "openai"

    def __init__(
        self, *, api_key: str | None, base_url: str, **connection: Unpack[Connection]
    ) -> None:
        super().__init__(**connection)
        self._forms = FORMS
        self._client = openai.AsyncOpenAI(
            # Never None: the SDK would then read the environment, which only the settings may.
            api_key=api_key or "none",
            base_url=base_url,
            max_retries=0,
            timeout=self._deadline_s,
            # A redirected POST would send text and key to an address that nobody configured.
            http_client=openai.DefaultAsyncHttpxClient(follow_redirects=False),
        )

    async def close(self) -> None:
        await self._client.close()

    async def _send(self, system: str, user: str, schema: Schema) -> bytes:
        forms = self._forms
        for form in forms:
            try:
                body = await self._send_form(form, system, user, schema)
            except openai.APIStatusError as error:
                # If only one form is left, the server has accepted it before, and refuses the text.
                if error.status_code not in {400, 422} or form is forms[-1]:
                    raise refused(error.status_code, error.response.headers) from None
                continue
            except (openai.APIConnectionError, httpx2.HTTPError):
                raise ModelUnavailable from None
            if form is not FORMS[0] and len(forms) > 1:
                log.warning("model_request_adapted", model=self.model, **form._asdict())
            self._forms = (form,)
            return body
        raise AssertionError("the last form returns or raises")

    async def _send_form(self, form: Form, system: str, user: str, schema: Schema) -> bytes:
        # Streaming only so that the size is known before the body is in memory.
        async with self._client.chat.completions.with_streaming_response.create(
            model=self.model,
            messages=[{"role": "system", "content": system}, {"role": "user", "content": user}],
            response_format={
                "type": "json_schema",
                "json_schema": {"name": "answer", "schema": schema, "strict": True},
            }
            if form.has_schema
            else openai.omit,
            max_tokens=OUTPUT_TOKENS_MAX if form.limit == "max_tokens" else openai.omit,
            max_completion_tokens=OUTPUT_TOKENS_MAX
            if form.limit == "max_completion_tokens"
            else openai.omit,
        ) as response:
            return await body_of(response)

    def _read(self, body: bytes) -> Answer:
        completion = _completion(body)
        tokens = completion.usage or _Tokens()
        usage = Usage(self.model, tokens.prompt_tokens, tokens.completion_tokens)
        return Answer(_json_in(completion.choices[0].message.content or ""), usage)


class _Tokens(BaseModel):
    prompt_tokens: TokenCount = 0
    completion_tokens: TokenCount = 0


class _Message(BaseModel):
    content: Storable | None = None
    refusal: str | None = None


class _Choice(BaseModel):
    message: _Message
    finish_reason: str | None


class _Completion(BaseModel):
    choices: list[_Choice] = Field(min_length=1, max_length=1)
    usage: _Tokens | None = None


def _completion(body: bytes) -> _Completion:
    try:
        completion = _Completion.model_validate(parsed(body))
    except ValidationError:
        raise ModelAnswerInvalid from None
    (choice,) = completion.choices
    if choice.message.refusal or choice.finish_reason == "content_filter":
        raise declined()
    # An answer that stopped early (at its limit above all) may be incomplete: never apply half.
    if choice.finish_reason != "stop":
        raise ModelAnswerInvalid
    return completion


def _json_in(said: str) -> object:
    """Parse a model's text as JSON, or else the first object in it after any thoughts: in a fenced
    block, or with prose around it. Raises `ModelAnswerInvalid`.
    """
    try:
        return parsed(said)
    except ModelAnswerInvalid:
        start = said.find("{", said.rfind("</think>") + 1)
    try:
        found, _ = json.JSONDecoder().raw_decode(said, max(start, 0))
    except (ValueError, RecursionError):
        raise ModelAnswerInvalid from None
    return found
