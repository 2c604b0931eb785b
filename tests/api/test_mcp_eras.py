"""MCP over real HTTP, in both protocol versions and on both engines, with the `mcp` client."""

import asyncio
import importlib.util
import json
from pathlib import Path

import jsonschema  # type: ignore[import-untyped]
import pytest
from mcp import Client, MCPError
from mcp.client.client import ConnectMode
from mcp.types import METHOD_NOT_FOUND
from tokenizers import Tokenizer

from recall_server.api import presenters
from recall_server.api.mcp import SESSION
from recall_server.domain.ids import Namespace
from tests.support.engines import on_sqlite
from tests.support.mcp_clients import ERAS, MODERN, data, request, told
from tests.support.server import WITHIN_S, Json, Running

TOOLS = (
    "store_memory",
    "search_memories",
    "inspect_memories",
    "delete_memory",
    "submit_memory",
    "delete_namespace_data",
    "consolidate_memories",
    "get_memory_stats",
    "whoami",
)
TOKENS_MAX = 1_900
INSTRUCTIONS_CHARS_MAX = 2_048
READ_AS_JSON_BY_OTHERS = ("null", "true", "12", "[1]", '{"x":1}', '"quoted"', "1e999")


async def test_every_tool_works_in_both_eras(running: Running, client: Client) -> None:
    stored = await data(client, "store_memory", text="User: I like jasmine tea.", topic="drinks")
    waiting = await data(client, "get_memory_stats")
    await running.extract()
    found = await data(client, "search_memories", query="jasmine tea", explain=True)
    listed = await data(client, "inspect_memories", topic="drinks")
    [memory] = listed["memories"]
    history = await data(client, "inspect_memories", memory_id=memory["id"])
    deleted = await data(client, "delete_memory", memory_id=memory["id"])
    counts = await data(client, "get_memory_stats")

    assert stored["queued"] is True
    assert waiting["pending_extractions"] == 1
    assert memory["id"] in [hit["id"] for hit in found["results"]]
    assert "jasmine" in memory["text"]
    assert [memory["id"]] == [one["id"] for one in history["memories"]]
    assert {"deleted": memory["id"]} == deleted
    assert (counts["total"], counts["pending_extractions"]) == (0, 0)


async def test_a_text_is_found_before_anything_is_extracted(client: Client) -> None:
    await data(client, "store_memory", text="The harbour ferry leaves at noon.")

    found = await data(client, "search_memories", query="harbour ferry")

    assert [hit["type"] for hit in found["results"]] == ["episode"]


async def test_answers_keep_to_the_output_schema_and_the_text_says_the_same(
    running: Running, client: Client
) -> None:
    schemas = {tool.name: tool.output_schema for tool in (await client.list_tools()).tools}
    await data(client, "store_memory", text="User: I live in Porto.")
    await running.extract()
    unknown = {"memory_id": "mem_unknown"}
    calls: list[tuple[str, Json]] = [
        ("store_memory", {"text": "User: I like chess.", "idempotency_key": "k"}),
        ("store_memory", {"text": "User: I like chess.", "idempotency_key": "k"}),
        ("search_memories", {"query": "Porto", "explain": True}),
        ("inspect_memories", {}),
        ("get_memory_stats", {}),
        *(
            (name, unknown if name == "delete_memory" else {"unheard_of": 1})
            for name in TOOLS
            if name != "whoami"
        ),
    ]

    for name, arguments in calls:
        result = await client.call_tool(name, arguments)
        envelope, schema = result.structured_content, schemas[name]
        assert isinstance(envelope, dict)
        assert isinstance(schema, dict)
        jsonschema.validate(envelope, schema)
        assert schema["properties"]["data"]["required"]
        assert envelope["status"] in schema["properties"]["status"]["enum"]
        told_of_errors = {"code", "message"} if result.is_error else {"data"}
        assert set(envelope) == {"status"} | told_of_errors
        assert [presenters.compact(envelope)] == [
            getattr(part, "text", "") for part in result.content
        ]


@on_sqlite
async def test_an_unknown_argument_is_refused_with_the_names_of_those_there_are(
    client: Client,
) -> None:
    for tool in (await client.list_tools()).tools:
        needed = dict.fromkeys(tool.input_schema.get("required", ()), "x")

        envelope = await told(client, tool.name, **needed, tenant="somebody-else")

        assert envelope["code"] == "INVALID_ARGUMENT"
        assert f"is not known to {tool.name}" in envelope["message"]
        assert all(name in envelope["message"] for name in tool.input_schema["properties"])
        assert "somebody-else" not in envelope["message"]


@on_sqlite
async def test_an_unknown_tool_is_a_protocol_error(client: Client) -> None:
    with pytest.raises(MCPError) as raised:
        await client.call_tool("drop_everything", {})

    assert raised.value.data == {"code": "UNKNOWN_TOOL"}


@on_sqlite
async def test_all_four_hints_are_stated(client: Client) -> None:
    tools = (await client.list_tools()).tools

    stated = {tool.name: tool.annotations for tool in tools}

    assert list(TOOLS) == list(stated)
    for name, hints in stated.items():
        assert hints is not None
        gives_up = {"delete_memory", "delete_namespace_data", "consolidate_memories"}
        stores = {"store_memory", "submit_memory"}
        # Without a key the same text is stored twice.
        assert (name not in stores | gives_up, name in gives_up, name not in stores, False) == (
            hints.read_only_hint,
            hints.destructive_hint,
            hints.idempotent_hint,
            hints.open_world_hint,
        )


async def test_a_tool_that_says_it_only_reads_writes_nothing_before_it_answers(
    client: Client, running: Running
) -> None:
    """Its audit record and the counts of accesses are written after the reply."""
    await told(client, "store_memory", text="Ann eats jam.")
    needed = {"search_memories": {"query": "jam"}}
    store = running.application.store
    async with store.transaction(Namespace("alice")) as tx:
        await tx.lock()
        await tx.audit.require(None)
        for tool in (await client.list_tools()).tools:
            if tool.annotations is not None and tool.annotations.read_only_hint:
                async with asyncio.timeout(WITHIN_S):
                    envelope = await told(client, tool.name, **needed.get(tool.name, {}))

                assert envelope["status"] == "ok", tool.name


@on_sqlite
async def test_the_list_of_tools_is_the_same_for_all_and_every_time(running: Running) -> None:
    seen: dict[ConnectMode, set[str]] = {era: set() for era in ERAS}
    for name in ("alice", "bob"):
        token = await running.token(name)
        for era in ERAS:
            async with running.client(token, era) as client:
                for _ in range(3):
                    tools = (await client.list_tools(cache_mode="bypass")).tools
                    faces = [tool.model_dump(by_alias=True, exclude_none=True) for tool in tools]
                    seen[era].add(json.dumps(faces))

    # Prompt caches need the same bytes within a version. Between versions the SDK changes the order
    # of fields.
    assert [len(texts) for texts in seen.values()] == [1, 1]
    legacy, modern = (json.loads(text) for texts in seen.values() for text in texts)
    assert legacy == modern


@on_sqlite
async def test_the_list_of_tools_costs_at_most_1900_tokens(
    running: Running, capsys: pytest.CaptureFixture[str]
) -> None:
    headers, body = request("tools/list", {}, modern=True)
    async with running.http(await running.token()) as http:
        answer = await http.post("/mcp", headers=headers, json=body)

    text = json.dumps(answer.json()["result"], ensure_ascii=False, separators=(",", ":"))
    by_tokenizer, by_length = len(_tokenizer().encode(text).ids), -(-len(text) // 4)
    with capsys.disabled():
        print(f"\ntools/list: {by_tokenizer} tokens, {len(text)} characters")

    assert max(by_tokenizer, by_length) <= TOKENS_MAX


@on_sqlite
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_instructions_are_told_in_both_eras_and_are_short(
    running: Running, mode: ConnectMode
) -> None:
    async with running.client(await running.token(), mode) as client:
        instructions, version = client.instructions, client.protocol_version

    # "auto" sends server/discover first, as clients of the newer version do.
    assert ("2025-11-25" if mode == "legacy" else MODERN) == version
    assert instructions
    assert len(instructions) <= INSTRUCTIONS_CHARS_MAX


@on_sqlite
@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT", "HEAD"])
async def test_the_endpoint_takes_post_only(running: Running, method: str) -> None:
    async with running.http(await running.token()) as http:
        answer = await http.request(method, "/mcp", headers={"Mcp-Session-Id": "some-session"})

    assert (answer.status_code, answer.headers["Allow"]) == (405, "POST")


@on_sqlite
@pytest.mark.parametrize("modern", [False, True])
@pytest.mark.parametrize(
    "method", ["resources/subscribe", "subscriptions/listen", "resources/list", "prompts/list"]
)
async def test_nothing_can_be_subscribed_to(running: Running, method: str, modern: bool) -> None:
    """The server offers no resources and no notifications."""
    params = {"uri": "memory://bob/list", "notifications": {"resourceSubscriptions": ["memory://"]}}
    headers, body = request(method, params, modern=modern)

    async with running.http(await running.token()) as http:
        answer = await http.post("/mcp", headers=headers, json=body)

    assert answer.json()["error"]["code"] == METHOD_NOT_FOUND


async def test_texts_that_look_like_json_stay_as_they_are(client: Client) -> None:
    for text in READ_AS_JSON_BY_OTHERS:
        await data(client, "store_memory", text=text, topic=text, idempotency_key=text)

    for text in READ_AS_JSON_BY_OTHERS:
        found = await data(client, "search_memories", query=text)
        assert (text, text) in [(hit["text"], hit["topic"]) for hit in found["results"]]


def _tokenizer() -> Tokenizer:
    """Return the tokenizer that comes with the embedder."""
    spec = importlib.util.find_spec("wordllama")
    assert spec is not None
    assert spec.origin is not None
    [file, *_] = sorted((Path(spec.origin).parent / "tokenizers").glob("*.json"))
    return Tokenizer.from_file(str(file))


@on_sqlite
async def test_a_slash_behind_mcp_is_no_other_path(running: Running) -> None:
    headers, body = request("tools/list", {}, modern=False)
    async with running.http(await running.token()) as http:
        answer = await http.post("/mcp/", json=body, headers=headers)

    assert answer.status_code == 200
    assert answer.json()["result"]["tools"]


OLDER_REQUESTS: tuple[tuple[str, Json], ...] = (
    ("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {}}),
    ("initialize", {"protocolVersion": "1999", "clientInfo": {"name": "x", "version": "1"}}),
    ("ping", {}),
    ("ping", {"_meta": 5}),
    ("tools/list", {}),
    ("tools/list", {"cursor": 5}),
    ("tools/call", {"name": "whoami", "arguments": {}, "_meta": {"progressToken": 3}}),
    (
        "tools/call",
        {"name": "search_memories", "arguments": {"query": "caf\u00e9 \u2014 \U0001f600"}},
    ),
    ("tools/call", {"name": "search_memories", "arguments": {"unheard_of": 1}}),
    ("tools/call", {"name": "search_memories", "arguments": []}),
    ("tools/call", {"name": "unheard_of"}),
    ("tools/call", {}),
    ("resources/list", {}),
    ("server/discover", {}),
    ("notifications/cancelled", {"requestId": 1}),
)


@on_sqlite
async def test_a_request_of_the_older_era_is_answered_as_by_the_transport_of_the_sdk(
    running: Running,
) -> None:
    async with running.http(await running.token()) as http:
        for number, (method, params) in enumerate(OLDER_REQUESTS):
            for id_ in (number, 2**70, "", 'a"\u00fc'):
                headers, body = request(method, params, modern=False)
                body["id"] = id_
                ours = await http.post("/mcp", json=body, headers=headers)
                # A message with another member is left to the SDK, which ignores that.
                theirs = await http.post("/mcp", json={**body, "member": 1}, headers=headers)

                assert (theirs.status_code, theirs.content) == (ours.status_code, ours.content)
                assert theirs.headers["Content-Type"] == ours.headers["Content-Type"]
                assert (SESSION in theirs.headers) == (SESSION in ours.headers)
