"""`GET /v1/audit` returns the audit log of a namespace, filtered and page by page."""

import re
from datetime import timedelta
from typing import Any

import httpx2
import pytest

from tests.support.mcp_clients import request
from tests.support.runtime import Clock
from tests.support.server import Json, Running


async def _call(http: httpx2.AsyncClient, tool: str, **arguments: object) -> Json:
    headers, body = request("tools/call", {"name": tool, "arguments": arguments}, modern=False)
    answer: Json = (await http.post("/mcp", headers=headers, json=body)).json()
    return answer


async def _read(http: httpx2.AsyncClient, **query: object) -> list[Json]:
    answer = await http.get("/v1/audit", params={k: str(v) for k, v in query.items()})
    assert answer.status_code == 200, answer.text
    assert answer.headers["cache-control"] == "no-store"
    records: list[Json] = answer.json()["records"]
    return records


def _operations(records: list[Json]) -> list[str]:
    return [record["operation"] for record in records]


async def test_a_token_reads_the_audit_log_of_its_own_namespace(running: Running) -> None:
    token, other = await running.token(), await running.token("mallory")
    async with running.http(token) as http, running.http(other) as foreign:
        await _call(http, "store_memory", text="A heron stood by the pond.", topic="birds")
        await _call(http, "delete_memory", memory_id="mem_nobody")
        first = await _read(http)
        second = await _read(http)
        theirs = await _read(foreign)

    assert _operations(first) == ["delete_memory", "store_memory", "create_token"]
    # Reading leaves its own record.
    assert _operations(second) == ["read_audit", *_operations(first)]
    assert second[0]["counts"] == {"records": 3}
    assert [record["seq"] for record in second] == [4, 3, 2, 1]
    assert [(r["outcome"], r["code"]) for r in first[:2]] == [
        ("error", "MEMORY_NOT_FOUND"),
        ("ok", None),
    ]
    assert first[1]["details"] == {"topic": "birds", "client": "mcp"}
    assert not {"mac", "namespace", "salt"} & set(first[0])
    assert _operations(theirs) == ["create_token"]
    assert [record["seq"] for record in theirs] == [1]


async def test_records_are_filtered(running: Running, clock: Clock) -> None:
    token, info = await running.issued("alice")
    started = clock().isoformat()
    async with running.http(token) as http:
        stored = await _call(http, "store_memory", text="A heron stood by the pond.")
        clock.pass_(timedelta(hours=1))
        later = clock().isoformat().replace("+00:00", "Z")
        await _call(http, "delete_memory", memory_id="mem_nobody")
        job = stored["result"]["structuredContent"]["data"]["job_id"]

        assert _operations(await _read(http, operation="store_memory")) == ["store_memory"]
        assert _operations(await _read(http, outcome="error")) == ["delete_memory"]
        assert _operations(await _read(http, id=job)) == ["store_memory"]
        assert _operations(await _read(http, id=info.accessor)) == ["create_token"]
        assert _operations(await _read(http, id=job[:-1])) == []
        assert "create_token" not in _operations(await _read(http, accessor=info.accessor))
        assert "store_memory" not in _operations(await _read(http, since=later))
        assert _operations(await _read(http, since=started, until=later)) == [
            "store_memory",
            "create_token",
        ]
        assert _operations(await _read(http, until="0001-01-01T00:00:00+14:00")) == []


async def test_pages_are_read_to_the_end_while_the_audit_log_grows(running: Running) -> None:
    async with running.http(await running.token()) as http:
        for _ in range(6):
            await _call(http, "get_memory_stats")
        seen: list[int] = []
        query: dict[str, Any] = {"limit": 3}
        while True:
            page = (await http.get("/v1/audit", params=query)).json()
            seen += [record["seq"] for record in page["records"]]
            if page["next_cursor"] is None:
                break
            query["cursor"] = page["next_cursor"]

    assert seen == [7, 6, 5, 4, 3, 2, 1]


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("cursor=x", "cursor"),
        ("limit=0", "limit"),
        ("limit=201", "limit"),
        ("limit=x", "limit"),
        ("since=yesterday", "since"),
        ("until=2026-03-01T12:00:00", "until"),
        ("outcome=fine", "outcome"),
        ("namespace=bob", "namespace"),
        ("operation=a&operation=b", "once"),
        ("id=%00", ""),
    ],
)
async def test_a_wrong_question_is_refused_by_name(
    running: Running, query: str, named: str
) -> None:
    async with running.http(await running.token()) as http:
        refused = await http.get(f"/v1/audit?{query}")
        control = await http.get("/v1/audit")

    assert refused.status_code == 400
    assert refused.headers["Content-Type"] == "application/problem+json"
    assert named in refused.json()["detail"]
    assert control.status_code == 200


async def test_without_a_token_there_is_no_audit_log(running: Running) -> None:
    async with running.http() as http:
        assert (await http.get("/v1/audit")).status_code == 401


async def test_a_record_has_a_keyed_digest_of_what_the_call_was_given(running: Running) -> None:
    async with running.http(await running.token()) as http:
        for query in ("tea", "tea", "coffee"):
            await http.post("/v1/search", json={"query": query})
        await http.post("/v1/memories:submit", json={"text": "Ana likes tea."})
        await http.get("/v1/audit")
        found = (await http.get("/v1/audit")).json()["records"]
    searches = [one["inputs_hash"] for one in found if one["operation"] == "search_memories"]

    called = [one["inputs_hash"] for one in found if one["protocol"] == "http"]
    assert len(called) == 5
    assert all(re.fullmatch("[0-9a-f]{64}", one) for one in called)
    # Equal arguments of two calls do not show in the records.
    assert len(set(searches)) == 3
