"""OpenAI-compatible servers with the real SDK and a real socket: how they differ, and what their
models may answer. `test_claude` tests what all models have in common.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Callable
from typing import cast

import pytest

from recall_server.domain.errors import ModelAnswerInvalid, ModelKeyRejected, ModelUnavailable
from recall_server.domain.extraction import Extraction, Merged, Usage
from recall_server.integrations import llm
from recall_server.integrations.llm import (
    CHARS_PER_TOKEN,
    KEY_PAUSE_S,
    KEY_TRIES_MAX,
    OUTPUT_TOKENS_MAX,
)
from recall_server.integrations.llm.openai_api import OpenAIApi
from recall_server.integrations.llm.roles import (
    EXTRACTION_OUTPUT,
    ModelExtractor,
    ModelMerger,
)
from recall_server.integrations.rules.merger import NAME as RULES
from tests.support.models import (
    COMPLETIONS,
    Manner,
    Pauses,
    Reply,
    ScriptedModel,
    choice,
    completes,
    completion,
    entry,
    error,
    json_reply,
    passage_of,
)
from tests.support.rows import a_memory

MakeApi = Callable[..., OpenAIApi]
PASSAGE = passage_of(
    ("Ana", "Morning! I live in Lisbon now, not in Porto any more."),
    ("assistant", "Noted. Shall I use metric units?"),
)
LISBON = entry(text="Ana lives in Lisbon.", quote="I live in Lisbon now")
TEXT = json.dumps({"memories": [LISBON]})
GOOD = completes(TEXT)


def scripted(*script: Reply) -> ScriptedModel:
    return ScriptedModel(script, path=COMPLETIONS)


@pytest.fixture
async def api_at(pauses: Pauses) -> AsyncIterator[MakeApi]:
    """Make adapters for a server with a clock that stands still, and close them afterwards."""
    made: list[OpenAIApi] = []

    def make(server: ScriptedModel, *, key: str | None = "sk-secret", **given: object) -> OpenAIApi:
        api = OpenAIApi(
            api_key=key,
            base_url=f"{server.url}/v1",
            model="qwen3",
            deadline_s=cast("float", given.get("deadline_s", 60.0)),
            sleep=pauses.sleep,
            clock=pauses.now,
            jitter=lambda: 0.5,
        )
        made.append(api)
        return api

    yield make
    for api in made:
        await api.close()


def extractor(api: OpenAIApi) -> ModelExtractor:
    return ModelExtractor(api, prompt=llm.load_prompt("extract"), attributes="- lives_in: where")


async def extracted(api_at: MakeApi, *script: Reply) -> Extraction:
    async with scripted(*script) as server:
        return await extractor(api_at(server)).extract(PASSAGE)


# --- what is sent -----------------------------------------------------------------------------


async def test_a_request_has_the_key_the_prompt_and_the_schema(api_at: MakeApi) -> None:
    async with scripted(GOOD) as server:
        found = await extractor(api_at(server)).extract(PASSAGE)

    (sent,), (headers,) = server.requests, server.headers
    system, user = cast("list[dict[str, str]]", sent["messages"])
    assert headers["authorization"] == "Bearer sk-secret"
    assert (system["role"], user["role"]) == ("system", "user")
    assert "Lisbon" not in system["content"]
    assert "Lisbon" in user["content"]
    assert sent["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "answer", "schema": EXTRACTION_OUTPUT, "strict": True},
    }
    assert (sent["model"], sent["max_tokens"]) == ("qwen3", OUTPUT_TOKENS_MAX)
    assert [one.text for one in found.candidates] == ["Ana lives in Lisbon."]
    assert found.extractor == "openai/qwen3/1"
    assert found.usage == Usage("qwen3", 100, 20)


async def test_a_server_that_asks_for_no_key_is_shown_none(
    api_at: MakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-environment")
    async with scripted(GOOD) as server:
        await extractor(api_at(server, key=None)).extract(PASSAGE)

    assert "sk-" not in server.headers[0]["authorization"]


async def test_neither_text_nor_prompt_nor_key_is_logged_even_at_debug(
    api_at: MakeApi, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.raises(ModelAnswerInvalid) as caught:
        await extracted(api_at, *[error(400)] * 3)

    assert COMPLETIONS in caplog.text  # The control: something was logged.
    for secret in ("Lisbon", "long-term memory", "sk-secret", "echo: the text"):
        assert secret not in caplog.text
        assert secret not in str(caught.value)
    assert caught.value.__cause__ is None


# --- what a server does not know --------------------------------------------------------------


def parameters(sent: dict[str, object]) -> set[str]:
    return sent.keys() & {"response_format", "max_tokens", "max_completion_tokens"}


@pytest.mark.parametrize("status", [400, 422])
async def test_a_model_that_knows_the_newer_limit_only_gets_that_one(
    api_at: MakeApi, status: int
) -> None:
    async with scripted(error(status), GOOD, GOOD) as server:
        asked = extractor(api_at(server))
        first, second = await asked.extract(PASSAGE), await asked.extract(PASSAGE)

    assert len(first.candidates) == len(second.candidates) == 1
    newer = {"response_format", "max_completion_tokens"}
    assert [parameters(sent) for sent in server.requests][1:] == [newer, newer]


async def test_a_server_without_schemas_is_asked_without_one_from_then_on(
    api_at: MakeApi,
) -> None:
    async with scripted(error(400), error(400), GOOD, GOOD) as server:
        asked = extractor(api_at(server))
        first, second = await asked.extract(PASSAGE), await asked.extract(PASSAGE)

    assert len(first.candidates) == len(second.candidates) == 1
    assert [parameters(sent) for sent in server.requests][2:] == [{"max_tokens"}] * 2


async def test_a_text_that_is_refused_changes_nothing_for_the_next(api_at: MakeApi) -> None:
    """A refused text does not turn off the schema for other texts."""
    async with scripted(*[error(400)] * 3, GOOD, error(400), GOOD) as server:
        asked = extractor(api_at(server))
        for _ in range(2):
            with pytest.raises(ModelAnswerInvalid) as caught:
                await asked.extract(PASSAGE)
            assert caught.value.permanent
            await asked.extract(PASSAGE)

    assert all("response_format" in sent for sent in (server.requests[3], server.requests[5]))


@pytest.mark.parametrize(
    "said",
    [
        f"```json\n{TEXT}\n```",
        f"Here you are:\n\n```\n{TEXT}\n```\nThat is all.",
        f"Sure! {TEXT} Anything else?",
        f'<think>Maybe {{"memories": [1]}}?</think>\n{TEXT}',
        f"<think>{{</think>{TEXT}",
    ],
)
async def test_json_with_something_around_it_is_read_all_the_same(
    api_at: MakeApi, said: str
) -> None:
    found = await extracted(api_at, completes(said))

    assert [one.text for one in found.candidates] == ["Ana lives in Lisbon."]


async def test_what_is_found_in_prose_is_trusted_no_more_than_an_answer(api_at: MakeApi) -> None:
    forged = entry(text="Eve is the admin.", quote="Eve is the admin")

    found = await extracted(api_at, completes(f"Yes: {json.dumps({'memories': [forged, LISBON]})}"))

    assert ([one.text for one in found.candidates], found.rejected) == (["Ana lives in Lisbon."], 1)


# --- a useless answer -------------------------------------------------------------------------

BAD_ANSWERS = {
    "nothing": Reply(b""),
    "HTML": Reply(b"<html>Welcome to the hotel</html>", headers={"content-type": "text/html"}),
    "JSON, but no completion": json_reply({"hello": "there"}),
    "an error as a success": json_reply({"error": {"message": "Unsupported parameter"}}),
    "no choice": completion([]),
    "two choices": completion([choice(TEXT), choice(TEXT)]),
    "choices null": completion(None),
    "a choice that is none": completion(["text"]),
    "content null": completes(None),
    "content a number": completes(7),
    "a tool call": completes(None, "tool_calls", tool_calls=[{"id": "1", "type": "function"}]),
    "no reason to stop": completes(TEXT, None),
    "half an answer": completes('{"memories": [{"text": "Ana li', "length"),
    "a whole one at the limit": completes(TEXT, "length"),
    "prose": completes("Sure! There is nothing worth keeping."),
    "prose with a brace": completes("Sure! {memories: none}"),
    "half of it in a fence": completes('```json\n{"memories": [\n```'),
    "only thoughts": completes(f"<think>{TEXT}</think>"),
    "memories no list": completes('{"memories": {"0": 1}}'),
    "deep nesting": completes('x{"memories": ' + "[" * 100_000),
    "a huge number": completes('{"memories": [' + "9" * 5_000 + "]}"),
    "negative tokens": completion([choice(TEXT)], usage={"prompt_tokens": -1}),
    "more tokens than there are": completion([choice(TEXT)], usage={"prompt_tokens": 10**30}),
    "ten megabytes": completes(json.dumps({"memories": [], "rest": "x" * 10_000_000})),
}


@pytest.mark.parametrize("answer", BAD_ANSWERS.values(), ids=BAD_ANSWERS.keys())
async def test_an_answer_of_no_use_is_said_to_be_so_and_is_not_asked_for_again(
    api_at: MakeApi, pauses: Pauses, answer: Reply
) -> None:
    async with scripted(answer, GOOD) as server:
        asked = extractor(api_at(server))
        with pytest.raises(ModelAnswerInvalid) as caught:
            await asked.extract(PASSAGE)
        after = await asked.extract(PASSAGE)

    assert not caught.value.permanent
    assert caught.value.__cause__ is None
    assert pauses.slept == []
    assert len(after.candidates) == 1


@pytest.mark.parametrize(
    "answer",
    [completes(None, refusal="I cannot help with that."), completes(None, "content_filter")],
)
async def test_a_refusal_is_for_good(api_at: MakeApi, answer: Reply) -> None:
    with pytest.raises(ModelAnswerInvalid) as caught:
        await extracted(api_at, answer)

    assert caught.value.permanent


@pytest.mark.parametrize("usage", [None, {}, {"prompt_tokens": 0}])
async def test_a_server_that_counts_no_tokens_does_not_make_the_budget_endless(
    api_at: MakeApi, usage: object
) -> None:
    async with scripted(completion([choice(TEXT)], usage=usage)) as server:
        found = await extractor(api_at(server)).extract(PASSAGE)

    system, user = cast("list[dict[str, str]]", server.requests[0]["messages"])
    sent = len(system["content"]) + len(user["content"])
    assert found.usage.input_tokens == sent // CHARS_PER_TOKEN
    assert found.usage.output_tokens > len(TEXT) // CHARS_PER_TOKEN


# --- the service does not answer --------------------------------------------------------------


@pytest.mark.parametrize("status", [429, 500, 503, 408])
async def test_what_passes_is_tried_again_and_then_left_to_the_queue(
    api_at: MakeApi, pauses: Pauses, status: int
) -> None:
    found = await extracted(api_at, error(status), GOOD)
    with pytest.raises(ModelUnavailable) as caught:
        await extracted(api_at, *[error(status)] * 3)

    assert len(found.candidates) == 1
    assert pauses.slept == [0.5, 0.5, 1.0]
    assert not caught.value.permanent


@pytest.mark.parametrize("body", [b"", b"<html>", b"[" * 100_000, b'{"error": "\xff"}'])
async def test_whatever_is_in_an_error_it_is_one(api_at: MakeApi, body: bytes) -> None:
    with pytest.raises(ModelUnavailable) as caught:
        await extracted(api_at, Reply(body, 404, {"content-type": "application/json"}))

    assert caught.value.__cause__ is None


async def test_a_wait_that_is_asked_for_is_handed_to_the_queue(api_at: MakeApi) -> None:
    with pytest.raises(ModelUnavailable) as caught:
        await extracted(api_at, error(429, retry_after="3600"))

    assert caught.value.retry_after_s == 3_600.0


@pytest.mark.parametrize("manner", [Manner.HANG, Manner.TRICKLE])
async def test_a_hanging_or_trickling_answer_ends_at_the_deadline(
    api_at: MakeApi, manner: Manner
) -> None:
    async with scripted(Reply(GOOD.body, manner=manner)) as server:
        asked = extractor(api_at(server, deadline_s=0.5))
        with pytest.raises(ModelUnavailable, match=r"0\.5 seconds") as caught:
            await asked.extract(PASSAGE)

    assert not caught.value.permanent


async def test_a_redirect_is_not_followed(api_at: MakeApi) -> None:
    async with scripted() as elsewhere:
        away = Reply(status=307, headers={"location": f"{elsewhere.url}{COMPLETIONS}"})
        with pytest.raises(ModelUnavailable) as caught:
            await extracted(api_at, away)

    assert caught.value.permanent
    assert elsewhere.requests == []


# --- the key ----------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [401, 403])
async def test_a_rejected_key_is_said_to_be_so_at_once(
    api_at: MakeApi, pauses: Pauses, status: int
) -> None:
    with pytest.raises(ModelKeyRejected) as caught:
        await extracted(api_at, error(status))

    assert caught.value.status == status
    assert str(status) in caught.value.message
    assert "sk-secret" not in caught.value.message
    assert pauses.slept == []


async def test_a_rejected_key_is_sent_less_and_less_often_and_in_the_end_no_more(
    api_at: MakeApi, pauses: Pauses
) -> None:
    async with scripted(*[error(401)] * KEY_TRIES_MAX) as server:
        asked = extractor(api_at(server))
        sent = []
        for number in range(KEY_TRIES_MAX + 3):
            for _ in range(3):
                with pytest.raises(ModelKeyRejected):
                    await asked.extract(PASSAGE)
            sent.append(len(server.requests))
            await pauses.sleep(KEY_PAUSE_S * 2**number)

    assert sent == [*range(1, KEY_TRIES_MAX + 1), *[KEY_TRIES_MAX] * 3]


async def test_a_key_that_is_taken_again_is_used_as_before(api_at: MakeApi, pauses: Pauses) -> None:
    async with scripted(error(401), GOOD, error(401), GOOD) as server:
        asked = extractor(api_at(server))
        for _ in range(2):
            with pytest.raises(ModelKeyRejected):
                await asked.extract(PASSAGE)
            await pauses.sleep(KEY_PAUSE_S)
            assert (await asked.extract(PASSAGE)).candidates


async def test_a_text_that_is_forbidden_keeps_the_model_from_no_other(api_at: MakeApi) -> None:
    async with scripted(error(403), GOOD) as server:
        asked = extractor(api_at(server))
        with pytest.raises(ModelKeyRejected):
            await asked.extract(PASSAGE)

        assert (await asked.extract(PASSAGE)).candidates


# --- merging ----------------------------------------------------------------------------------

TEA = a_memory("mem_1", "Ana drinks tea at 9:30.")
MILK = a_memory("mem_2", "Ana takes tea with milk.")


async def merged(api_at: MakeApi, reply: Reply) -> Merged | None:
    async with scripted(reply) as server:
        return await ModelMerger(api_at(server), prompt=llm.load_prompt("merge")).merge([TEA, MILK])


async def test_a_merged_text_names_its_model(api_at: MakeApi) -> None:
    text = "Ana drinks tea with milk at 9:30."

    found = await merged(api_at, completes(f"```json\n{json.dumps({'text': text})}\n```"))

    assert found == Merged(text, "openai/qwen3/merge/1", Usage("qwen3", 100, 20))


@pytest.mark.parametrize(
    ("said", "refused"),
    [
        ('{"text": "Ana drinks tea with milk."}', "loses a number"),
        ("Ana drinks tea with milk at 9:30.", "is not there"),
    ],
)
async def test_a_merged_text_that_loses_something_is_refused_and_the_rules_write_it(
    api_at: MakeApi, said: str, refused: str
) -> None:
    found = await merged(api_at, completes(said))

    assert found is not None
    assert found.by == RULES
    assert refused in found.refused
