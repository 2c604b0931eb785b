"""Values that break parsers, engines or readers: a code and the next step, on both engines alike."""

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

from recall_server.app import house
from recall_server.serve import bound, listening
from tests.conftest import Chance, Clock, settings_for
from tests.engines import Postgres
from tests.fakes import HashEmbedder
from tests.surface.conftest import Json, Running

HEADERS = {"Content-Type": "application/json", "MCP-Protocol-Version": "2025-11-25"}
TELLTALE = re.compile(
    r"traceback|\bfile \"|\bline \d|pydantic|https?://|\bselect\b|\binsert\b|sqlite|psycopg"
    r"|postgres|canary",
    re.IGNORECASE,
)
TOOLS = ("store_memory", "search_memories", "inspect_memories", "delete_memory", "get_memory_stats")

# Every place where a caller's text goes in, with what else the call needs.
TEXTS = {
    "store_memory": [
        '{"text": %s}',
        *('{"text": "x", "%s": %%s}' % n for n in ("topic", "session_id", "agent_id")),
        '{"text": "x", "idempotency_key": %s}',
    ],
    "search_memories": ['{"query": %s}'],
    "inspect_memories": ['{"topic": %s}', '{"memory_id": %s}'],
    "delete_memory": ['{"memory_id": %s}'],
}

INVALID, MISSING = "INVALID_ARGUMENT", "MEMORY_NOT_FOUND"
REFUSED_TEXTS = [
    ("store_memory", {"text": ""}, "EMPTY_TEXT"),
    ("store_memory", {"text": " \n\t\u3000"}, "EMPTY_TEXT"),
    ("store_memory", {"text": "canary " * 40_000}, "TEXT_TOO_LONG"),
    ("store_memory", {"text": "x", "topic": ""}, INVALID),
    ("store_memory", {"text": "x", "topic": "canary" * 22}, INVALID),
    ("store_memory", {"text": "x", "topic": "canary\nforged"}, INVALID),
    ("store_memory", {"text": "x", "topic": "canary\x1b[2J"}, INVALID),
    ("store_memory", {"text": "x", "topic": "canary\u202e"}, INVALID),
    ("store_memory", {"text": "x", "idempotency_key": " "}, INVALID),
    ("store_memory", {"text": "x", "idempotency_key": "canary" * 43}, INVALID),
    ("store_memory", {"text": "x", "session_id": "canary" * 43}, INVALID),
    ("store_memory", {"text": "x", "agent_id": "canary\r"}, INVALID),
    ("search_memories", {"query": ""}, "EMPTY_TEXT"),
    ("search_memories", {"query": " \n"}, "EMPTY_TEXT"),
    ("search_memories", {"query": "canary " * 1_200}, "TEXT_TOO_LONG"),
    ("delete_memory", {"memory_id": ""}, MISSING),
    ("delete_memory", {"memory_id": "canary" * 10_000}, MISSING),
    ("delete_memory", {"memory_id": "mem_canary' OR '1'='1"}, MISSING),
    ("inspect_memories", {"memory_id": "mem_canary"}, MISSING),
    ("inspect_memories", {"type": "canary"}, INVALID),
    ("search_memories", {"query": "x", "mode": "canary; DROP TABLE memories"}, INVALID),
]
REFUSED_SHAPES = [
    ("store_memory", "{}"),
    ("store_memory", '{"text": null}'),
    ("store_memory", '{"text": 5}'),
    ("store_memory", '{"text": ["canary"]}'),
    ("store_memory", '{"text": "x", "canary": 1}'),
    ("store_memory", '{"text": "x", "namespace": "canary"}'),
    ("search_memories", '{"query": "x", "order by canary": 1}'),
    ("search_memories", '{"query": {"canary": 1}}'),
    ("search_memories", '{"query": "x", "explain": 1}'),
    ("search_memories", '{"query": "x", "explain": "true"}'),
    ("delete_memory", '{"memory_id": {"$ne": "canary"}}'),
    ("get_memory_stats", '{"canary": 1}'),
]
NOT_INTEGERS = ('"5"', "5.0", "true", "null", "[5]", "1e400", "-1e400", "1e2")
TOO_LOW, TOO_HIGH = ("-1", str(-(2**63)), "-1" + "0" * 400), (str(2**63), "1" + "0" * 400)
REFUSED_NUMBERS = [
    *(("search_memories", "limit", n) for n in (*NOT_INTEGERS, *TOO_LOW, *TOO_HIGH, "0", "51")),
    *(("inspect_memories", "limit", n) for n in (*NOT_INTEGERS, *TOO_LOW, *TOO_HIGH, "0", "51")),
    *(("inspect_memories", "offset", n) for n in (*NOT_INTEGERS, *TOO_LOW, *TOO_HIGH)),
    *(("search_memories", "max_tokens", n) for n in (*NOT_INTEGERS, *TOO_LOW, *TOO_HIGH)),
    *(("search_memories", w, n) for w in ("recency_weight", "mmr_lambda", "score_threshold")
      for n in ("-0.1", "1.1", '"0.5"', "true", "1e400", "-1e400", str(2**53 + 1))),
]  # fmt: skip
TAKEN_NUMBERS = [
    *(("search_memories", "limit", n) for n in ("1", "50")),
    *(("inspect_memories", "offset", str(n)) for n in (0, 2**53 + 1, 2**63 - 1)),
    *(("search_memories", "max_tokens", str(n)) for n in (0, 1, 2**53 + 1, 2**63 - 1)),
    *(("search_memories", "score_threshold", n) for n in ("0", "-0.0", "1", "1e-400", "0.5")),
]


@dataclass(frozen=True)
class Pair:
    """The same house twice, over each engine, with the same clock and chance: what it answers must
    be the same to the last byte.
    """

    houses: tuple[Running, ...]
    callers: tuple[httpx2.AsyncClient, ...]

    async def send(self, content: bytes) -> httpx2.Response:
        sent = [await http.post("/mcp", content=content, headers=HEADERS) for http in self.callers]
        of_sqlite, of_postgres = ((answer.status_code, answer.text) for answer in sent)
        assert of_sqlite == of_postgres
        return sent[0]

    async def call(self, tool: str, arguments: Json | str) -> Json:
        """The envelope that the tool answers with, or the body where there is none."""
        answer = await self.send(_call(tool, arguments))
        assert answer.status_code < 500
        body: Json = answer.json()
        return body.get("result", {}).get("structuredContent") or body

    async def assert_unharmed(self) -> None:
        """The positive control: what is stored next is found, and bad calls stored nothing."""
        text = "The heron stood by the pond."
        stored = await self.call("store_memory", {"text": text, "topic": "birds"})
        found = await self.call("search_memories", {"query": "heron"})
        counts = await self.call("get_memory_stats", {})
        assert "ok" == stored["status"]
        assert [text] == [hit["text"] for hit in found["data"]["results"]]
        assert 1 == counts["data"]["pending_extractions"]


@pytest.fixture
async def pair(tmp_path: Path, postgres: Postgres, migrated: str) -> AsyncIterator[Pair]:
    with postgres.database(migrated) as url:
        async with AsyncExitStack() as stack:
            houses = []
            for database in (tmp_path / "recall.db", url):
                built = await stack.enter_async_context(
                    house(
                        settings_for(database, port=0),
                        embedder=HashEmbedder(),
                        now=Clock(),
                        chance=Chance(),
                    )
                )
                address = await stack.enter_async_context(
                    listening(built.asgi(), built.settings, bound(built.settings))
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
    codes = {}
    for form in TEXTS[tool]:
        answer = await pair.call(tool, form % r'"canary\u0000tail"')
        _assert_told(answer, answer.get("code", ""), form)
        codes[form] = answer["code"]
    assert set(codes.values()) <= {"INVALID_TEXT", MISSING}, codes
    await pair.assert_unharmed()


@pytest.mark.parametrize("lone", [r"canary\ud800", r"\udc00canary", r"\udc00\ud800", r"\uD83D!"])
async def test_lone_surrogates_are_refused_wherever_text_goes_in(pair: Pair, lone: str) -> None:
    for tool, forms in TEXTS.items():
        for form in forms:
            answer = await pair.call(tool, form % f'"{lone}"')
            assert answer.get("code") in {"INVALID_TEXT", "MALFORMED_BODY"}, (form, answer)
            _assert_told(answer, answer["code"], form)
    await pair.assert_unharmed()


async def test_wrong_shapes_are_refused_and_never_repeated(pair: Pair) -> None:
    for tool, arguments in REFUSED_SHAPES:
        _assert_told(await pair.call(tool, arguments), INVALID, arguments)
    await pair.assert_unharmed()


@pytest.mark.parametrize("arguments", ['["canary"]', '"canary"', "5", "true"])
async def test_arguments_that_are_no_object_are_a_protocol_error(
    pair: Pair, arguments: str
) -> None:
    answer = await pair.call("search_memories", arguments)

    assert -32602 == answer["error"]["code"]
    assert not TELLTALE.search(json.dumps(answer))
    await pair.assert_unharmed()


async def test_numbers_are_exact_and_within_their_limits(pair: Pair) -> None:
    for tool, name, number in REFUSED_NUMBERS:
        answer = await pair.call(tool, _with_number(tool, name, number))
        _assert_told(answer, INVALID, (tool, name, number[:30]))
        assert name in answer["message"]
    for tool, name, number in TAKEN_NUMBERS:
        answer = await pair.call(tool, _with_number(tool, name, number))
        assert "ok" == answer["status"], (tool, name, number)
    await pair.assert_unharmed()


_OPEN = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"get_memory_stats",'
BODIES = {
    "nothing": b"",
    "blanks": b" \n",
    "no json": b"canary",
    "cut off": _OPEN + b'"arguments":{',
    "two documents": b"{} {}",
    "a comma too many": b'{"jsonrpc":"2.0",}',
    "single quotes": b"{'canary':1}",
    "invalid utf-8": b'{"canary":"\xff\xfe"}',
    "an overlong slash": b'{"canary":"\xc0\xaf"}',
    "a surrogate in utf-8": b'{"canary":"\xed\xa0\x80"}',
    "a raw nul": b'{"canary":"\x00"}',
    "a byte order mark": b"\xef\xbb\xbf" + _OPEN + b'"arguments":{}}}',
    "utf-16": (_OPEN + b'"arguments":{}}}').decode().encode("utf-16"),
    "utf-16 without a mark": (_OPEN + b'"arguments":{}}}').decode().encode("utf-16-le"),
    "utf-32": (_OPEN + b'"arguments":{}}}').decode().encode("utf-32-be"),
    "65 levels": _OPEN + b'"arguments":' + b'{"a":' * 63 + b"1" + b"}" * 65,
    "1,000 levels": _OPEN + b'"arguments":' + b'{"a":' * 1_000 + b"1" + b"}" * 1_002,
    "100,000 levels": b"[" * 100_000 + b"]" * 100_000,
    "100,000 levels, never closed": b'{"a":' * 100_000,
    "a name twice": b'{"jsonrpc":"2.0","jsonrpc":"2.0"}',
    "a name twice, further down": _OPEN + b'"arguments":{"canary":1,"canary":2}}}',
    "a name twice, once escaped": _OPEN + rb'"arguments":{"a":1,"\u0061":2}}}',
    "NaN": _OPEN + b'"arguments":{"limit":NaN}}}',
    "Infinity": _OPEN + b'"arguments":{"limit":Infinity}}}',
    "-Infinity": _OPEN + b'"arguments":{"limit":-Infinity}}}',
    "5,000 digits": _OPEN + b'"arguments":{"limit":1' + b"0" * 5_000 + b"}}}",
}


@pytest.mark.parametrize("body", BODIES.values(), ids=list(BODIES))
async def test_a_body_that_parsers_disagree_on_is_refused(pair: Pair, body: bytes) -> None:
    answer = await pair.send(body)

    assert 400 == answer.status_code
    _assert_told(answer.json(), "MALFORMED_BODY", body[:60])
    await pair.assert_unharmed()


async def test_deep_and_strange_but_good_bodies_are_read(pair: Pair) -> None:
    at_the_limit = _OPEN + b'"arguments":' + b'{"a":' * 62 + b"1" + b"}" * 64
    in_a_string = json.dumps({"text": '[{"' * 1_000 + "\\" * 7 + '"}]' * 1_000})

    deepest = (await pair.send(at_the_limit)).json()["result"]["structuredContent"]
    stored = await pair.call("store_memory", in_a_string)

    assert INVALID == deepest["code"]  # it was read, and the tool takes no "a"
    assert "ok" == stored["status"]


@pytest.mark.parametrize(
    "body",
    ["null", "5", '"canary"', "[]", "{}", "[{}]", '{"jsonrpc":"1.0","id":1,"method":"canary"}',
     '{"jsonrpc":"2.0","id":{"canary":1},"method":"ping"}', '{"jsonrpc":"2.0","id":1,"method":7}',
     '{"jsonrpc":"2.0","id":1,"method":"canary"}',
     '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":["canary"]}',
     '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}',
     '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":7}}',
     '{"jsonrpc":"2.0","id":9007199254740993,"method":"tools/call","params":{"name":"canary"}}'],
)  # fmt: skip
async def test_json_that_is_no_call_is_a_protocol_error(pair: Pair, body: str) -> None:
    answer = await pair.send(body.encode())

    assert answer.status_code in {200, 400, 404}
    assert answer.json()["error"]["code"] in {-32700, -32600, -32601, -32602}
    assert not re.search("traceback|pydantic", answer.text, re.IGNORECASE)
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


SYNTAX = [
    '"', '""', '"heron', "'", "''; DROP TABLE memories; --", "NEAR(", "NEAR(heron pond, 2)", "*",
    "heron*", "body:heron", "namespace:bob", "secret_note:heron", "-heron", "-body:", "NOT",
    "heron NOT pond", "AND OR NOT", "heron AND", "(heron", ")", "(" * 300 + "heron" + ")" * 300,
    "^heron", "{heron pond}:", "heron + pond", "c++", "user@example.com", "50%", "%", "_", "\\",
    "heron \\", "[heron]", "\N{SMILING FACE WITH SUNGLASSES}", "a & (", "heron <-> pond", "<->",
    "heron:*", ":*", "!heron", "heron | ", "heron & !pond", "'heron' && 'pond'", "$1", "%s",
    "%(namespace)s", ":namespace", "?", "{0}", "/* heron */", "1=1", "OR 1=1", "heron\\x00",
    " OR ".join(["heron"] * 1_000), "NOT " * 300, "[[heron]]", "heron~2", "heron^4", "\u2029",
]  # fmt: skip


async def test_search_syntax_is_only_characters(pair: Pair) -> None:
    await pair.assert_unharmed()
    for query in SYNTAX:
        if not query.strip():
            continue
        for mode in ("keyword", "recall"):
            answer = await pair.call("search_memories", {"query": query, "mode": mode})
            assert "ok" == answer["status"], query
            if "heron" in query and mode == "keyword":
                assert 1 == len(answer["data"]["results"]), query
        listed = await pair.call("inspect_memories", {"topic": query[:100]})
        assert 0 == listed["data"]["total"], query


STRANGE = {
    "noncharacters": "Plan \ufffe\uffff\U0001ffff stays",
    "overrides": "abc \u202egnissorc\u202c \u2066isolate\u2069",
    "line separators": "one\u2028two\u2029three\x85four",
    "emoji": "family \U0001f468\u200d\U0001f469\u200d\U0001f467 flag \U0001f1f5\U0001f1f9",
    "tags": "tagged \U000e0068\U000e0069",
    "combining marks": "zalgo" + "\u0301" * 10_000,
    "both forms": "cafe\u0301 caf\u00e9",
    "control characters": "bell\x07 escape\x1b[31m delete\x7f",
    "outer blanks": "\n  kept as it is \t\r\n",
    "a word of 6,000 letters": "x" * 6_000,
}


@pytest.mark.parametrize("text", STRANGE.values(), ids=list(STRANGE))
async def test_strange_text_is_kept_to_the_character(pair: Pair, text: str) -> None:
    stored = await pair.call("store_memory", {"text": text})
    found = await pair.call("search_memories", {"query": text[:2_000], "mode": "keyword"})

    assert "ok" == stored["status"]
    assert [text.strip()] == [hit["text"].strip() for hit in found["data"]["results"]]
    for one in pair.houses:
        async with one.house.store.driver.transaction(namespace="alice", write=False) as raw:
            assert [text] == [row["text"] for row in await raw.fetch("SELECT text FROM episodes", {})]


async def test_a_text_of_40_000_distinct_words_is_kept_and_found(pair: Pair) -> None:
    words = [f"w{number:x}" for number in range(40_000)]
    stored = await pair.call("store_memory", {"text": " ".join(words)})
    found = await pair.call("search_memories", {"query": words[7], "mode": "keyword"})

    assert "ok" == stored["status"]
    assert 1 == len(found["data"]["results"])


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
    """An envelope with this code and a sentence, and with nothing of what was sent or is inside."""
    assert {"status", "code", "message"} == set(answer), (about, answer)
    assert ("error", code) == (answer["status"], answer["code"]), (about, answer)
    assert answer["code"] != "INTERNAL_ERROR", about
    assert answer["message"].endswith("."), about
    assert not TELLTALE.search(answer["message"]), (about, answer)
