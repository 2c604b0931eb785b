"""Values that break parsers, engines or readers get one code and one sentence, the same on both
engines.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recall_server.api.app import create_app
from recall_server.bootstrap import open_application
from recall_server.server import bound, listening
from tests.support.application import settings_for
from tests.support.engines import Postgres
from tests.support.hostile_values import (
    BODIES,
    INVALID,
    MISSING,
    NO_CALLS,
    OPEN,
    REFUSED_NUMBERS,
    REFUSED_SHAPES,
    REFUSED_TEXTS,
    STRANGE,
    SYNTAX,
    TAKEN_NUMBERS,
    TEXTS,
)
from tests.support.models import HashEmbedder
from tests.support.runtime import Clock, RandomBytes
from tests.support.server import Json, Running

HEADERS = {"Content-Type": "application/json", "MCP-Protocol-Version": "2025-11-25"}
TELLTALE = re.compile(
    r"traceback|\bfile \"|\bline \d|pydantic|https?://|\bselect\b|\binsert\b|sqlite|psycopg"
    r"|postgres|canary",
    re.IGNORECASE,
)
TOOLS = ("store_memory", "search_memories", "inspect_memories", "delete_memory", "get_memory_stats")


@dataclass(frozen=True)
class Pair:
    """Two servers with the same data, clock and randomness, one on each engine. Their answers must
    be the same to the last byte.
    """

    houses: tuple[Running, ...]
    callers: tuple[httpx2.AsyncClient, ...]

    async def send(self, content: bytes) -> httpx2.Response:
        sent = await asyncio.gather(
            *(http.post("/mcp", content=content, headers=HEADERS) for http in self.callers)
        )
        of_sqlite, of_postgres = ((answer.status_code, answer.text) for answer in sent)
        assert of_sqlite == of_postgres
        return sent[0]

    async def call(self, tool: str, arguments: Json | str) -> Json:
        """Return the envelope of the tool, or the body if there is none."""
        answer = await self.send(_call(tool, arguments))
        assert answer.status_code < 500
        body: Json = answer.json()
        return body.get("result", {}).get("structuredContent") or body

    async def assert_unharmed(self) -> None:
        """The positive control: a text stored after the bad calls is found, and they stored
        nothing.
        """
        text = "The heron stood by the pond."
        stored = await self.call("store_memory", {"text": text, "topic": "birds"})
        found = await self.call("search_memories", {"query": "heron"})
        counts = await self.call("get_memory_stats", {})
        assert stored["status"] == "ok"
        assert [text] == [hit["text"] for hit in found["data"]["results"]]
        assert counts["data"]["pending_extractions"] == 1


@pytest.fixture
async def pair(tmp_path: Path, postgres: Postgres, migrated: str) -> AsyncIterator[Pair]:
    with postgres.database(migrated) as url:
        async with AsyncExitStack() as stack:
            houses = []
            for database in (tmp_path / "recall.db", url):
                built = await stack.enter_async_context(
                    open_application(
                        settings_for(database, port=0),
                        embedder=HashEmbedder(),
                        now=Clock(),
                        random_bytes=RandomBytes(),
                    )
                )
                address = await stack.enter_async_context(
                    listening(create_app(built), built.settings, bound(built.settings))
                )
                houses.append(Running(built, address))
            callers = [
                await stack.enter_async_context(one.http(await one.token())) for one in houses
            ]
            yield Pair(tuple(houses), tuple(callers))


async def test_bad_texts_are_refused_with_their_reason_and_keep_nothing(pair: Pair) -> None:
    for tool, arguments, code in REFUSED_TEXTS:
        answer = await pair.call(tool, arguments)
        _assert_told(answer, code, (tool, str(arguments)[:60]))
    await pair.assert_unharmed()


@pytest.mark.parametrize("tool", TEXTS)
async def test_nul_is_refused_wherever_text_goes_in(pair: Pair, tool: str) -> None:
    for form in TEXTS[tool]:
        answer = await pair.call(tool, form % r'"canary\u0000tail"')
        assert answer.get("code") in {"INVALID_TEXT", MISSING}, (form, answer)
        _assert_told(answer, answer["code"], form)
    await pair.assert_unharmed()


async def test_lone_surrogates_are_refused_wherever_text_goes_in(pair: Pair) -> None:
    for tool, forms in TEXTS.items():
        for form in forms:
            for lone in (r"canary\ud800", r"\udc00canary", r"\udc00\ud800", r"\uD83D!"):
                answer = await pair.call(tool, form % f'"{lone}"')
                assert answer.get("code") in {"INVALID_TEXT", "MALFORMED_BODY"}, (form, answer)
                _assert_told(answer, answer["code"], form)
    await pair.assert_unharmed()


async def test_wrong_shapes_are_refused_and_never_repeated(pair: Pair) -> None:
    for tool, arguments in REFUSED_SHAPES:
        _assert_told(await pair.call(tool, arguments), INVALID, arguments)
    await pair.assert_unharmed()


async def test_arguments_that_are_no_object_are_a_protocol_error(pair: Pair) -> None:
    for arguments in ('["canary"]', '"canary"', "5", "true"):
        answer = await pair.call("search_memories", arguments)
        assert answer["error"]["code"] == -32602, arguments
        assert not TELLTALE.search(json.dumps(answer)), arguments
    await pair.assert_unharmed()


async def test_numbers_are_exact_and_within_their_limits(pair: Pair) -> None:
    for tool, name, number in REFUSED_NUMBERS:
        answer = await pair.call(tool, _with_number(tool, name, number))
        _assert_told(answer, INVALID, (tool, name, number[:30]))
        assert name in answer["message"]
    for tool, name, number in TAKEN_NUMBERS:
        answer = await pair.call(tool, _with_number(tool, name, number))
        assert answer["status"] == "ok", (tool, name, number)
    await pair.assert_unharmed()


async def test_a_body_that_parsers_disagree_on_is_refused(pair: Pair) -> None:
    for name, body in BODIES.items():
        answer = await pair.send(body)
        assert answer.status_code == 400, (name, answer.text)
        _assert_told(answer.json(), "MALFORMED_BODY", name)
    await pair.assert_unharmed()


async def test_deep_and_strange_but_good_bodies_are_read(pair: Pair) -> None:
    at_the_limit = OPEN + b'"arguments":' + b'{"a":' * 62 + b"1" + b"}" * 64
    in_a_string = json.dumps({"text": '[{"' * 1_000 + "\\" * 7 + '"}]' * 1_000})

    deepest = (await pair.send(at_the_limit)).json()["result"]["structuredContent"]
    stored = await pair.call("store_memory", in_a_string)

    assert deepest["code"] == INVALID  # The body was read; the tool has no argument "a".
    assert stored["status"] == "ok"


async def test_json_that_is_no_call_is_a_protocol_error(pair: Pair) -> None:
    for body in NO_CALLS:
        answer = await pair.send(body.encode())
        assert answer.status_code in {200, 400, 404}, body
        assert answer.json()["error"]["code"] in {-32700, -32600, -32601, -32602}, body
        assert not TELLTALE.search(answer.text), (body, answer.text)
    await pair.assert_unharmed()


async def test_a_foreign_id_is_answered_like_an_unknown_one(pair: Pair) -> None:
    stored = await pair.call("store_memory", {"text": "User: I like jasmine tea."})
    turn = (await pair.call("search_memories", {"query": "jasmine"}))["data"]["results"][0]["id"]
    for one in pair.houses:
        await one.extract()
    hers = (await pair.call("inspect_memories", {}))["data"]["memories"][0]
    foreign = [hers["id"], hers["source"]["episode_id"], turn, stored["data"]["job_id"]]

    for running, alice in zip(pair.houses, pair.callers, strict=True):
        async with running.http(await running.token("bob")) as bob:
            for tool in ("delete_memory", "inspect_memories"):
                for one in foreign:
                    unknown = one.partition("_")[0] + "_" + "0" * len(one.partition("_")[2])
                    his = [await _answered(bob, tool, i) for i in (one, unknown)]
                    assert his[0].replace(one, unknown) == his[1]
                    assert MISSING in his[0]
        assert MISSING not in await _answered(alice, "inspect_memories", hers["id"])
        assert MISSING not in await _answered(alice, "delete_memory", hers["id"])


async def test_search_syntax_is_only_characters(pair: Pair) -> None:
    await pair.assert_unharmed()
    for query in SYNTAX:
        answer = await pair.call("search_memories", {"query": query, "mode": "keyword"})
        assert answer["status"] == "ok", query
        # The positive control: the word is found, whatever is around it.
        assert ("heron" in query or "pond" in query) == bool(answer["data"]["results"]), query
    for topic in ("' OR '1'='1", '"; DROP TABLE memories; --', "%", "_", "* FROM memories"):
        listed = await pair.call("inspect_memories", {"topic": topic})
        assert listed["data"]["total"] == 0, topic


async def test_strange_text_is_kept_to_the_character(pair: Pair) -> None:
    for name, text in STRANGE.items():
        assert (await pair.call("store_memory", {"text": text}))["status"] == "ok", name
        found = await pair.call("search_memories", {"query": text[:2_000], "mode": "keyword"})
        # A text that hides something is stored too, but held back until a person has looked at it.
        hides = name in ("overrides", "tags")
        assert any(hit["text"] in text for hit in found["data"]["results"]) is not hides, name

    for one in pair.houses:
        async with one.application.store.driver.transaction(namespace="alice", write=False) as raw:
            kept = {row["text"] for row in await raw.fetch("SELECT text FROM episodes", {})}
        assert set(STRANGE.values()) == kept


async def test_a_text_of_40_000_distinct_words_is_kept_and_found(pair: Pair) -> None:
    words = [f"w{number:x}" for number in range(40_000)]
    stored = await pair.call("store_memory", {"text": " ".join(words)})
    found = await pair.call("search_memories", {"query": words[7], "mode": "keyword"})

    assert stored["status"] == "ok"
    assert len(found["data"]["results"]) == 1


_TEXT = st.text(st.characters(exclude_categories=()), max_size=20)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=6,
)
_NAMES = st.sampled_from(
    ["text", "topic", "idempotency_key", "query", "limit", "offset", "memory_id", "mode", "type"]
)
_bounded = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@given(tool=st.sampled_from(TOOLS), arguments=st.dictionaries(_NAMES | _TEXT, _JSON, max_size=4))
@_bounded
async def test_random_arguments_never_break_a_tool(pair: Pair, tool: str, arguments: Json) -> None:
    answer = await pair.send(_call(tool, arguments))

    assert answer.status_code < 500
    assert "INTERNAL_ERROR" not in answer.text


@given(body=_JSON.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=50))
@_bounded
async def test_random_bodies_never_break_the_server(pair: Pair, body: bytes) -> None:
    answer = await pair.send(body)

    assert 400 <= answer.status_code < 500 or "error" in answer.json()
    assert "INTERNAL_ERROR" not in answer.text


def _call(tool: str, arguments: Json | str) -> bytes:
    given = arguments if isinstance(arguments, str) else json.dumps(arguments)
    params = f'{{"name": "{tool}", "arguments": {given}}}'
    return f'{{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {params}}}'.encode()


def _with_number(tool: str, name: str, number: str) -> str:
    query = '"query": "x", ' if tool == "search_memories" else ""
    return f'{{{query}"{name}": {number}}}'


async def _answered(http: httpx2.AsyncClient, tool: str, memory_id: str) -> str:
    sent = await http.post("/mcp", content=_call(tool, {"memory_id": memory_id}), headers=HEADERS)
    return f"{sent.status_code} {sent.text}"


def _assert_told(answer: Json, code: str, about: object) -> None:
    """Check for an error with this code and a sentence, and without anything that was sent or is
    inside. It is an envelope of MCP, or a problem if the request was no call.
    """
    sentence = answer.get("message") or answer["detail"]
    assert answer["code"] == code, (about, answer)
    assert answer["code"] != "INTERNAL_ERROR", about
    assert sentence.endswith("."), about
    assert not TELLTALE.search(str(answer)), (about, answer)
