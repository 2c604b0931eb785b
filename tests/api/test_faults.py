"""What callers, the audit log and the log get when something fails inside, and no more."""

import asyncio
import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from recall_server.api.app import create_app
from recall_server.application import Application
from recall_server.domain.audit import Outcome
from recall_server.domain.errors import AuditUnavailable, DatabaseUnavailable
from recall_server.domain.ids import Namespace
from recall_server.server import bound, listening
from recall_server.storage.tables.audit import Audit, AuditRecord
from recall_server.storage.tables.jobs import Jobs
from recall_server.storage.tables.memories import Memories
from tests.support.application import Open
from tests.support.engines import on_sqlite
from tests.support.logs import real_logs
from tests.support.mcp_clients import MODERN, request
from tests.support.server import Json, Running

ALICE = Namespace("alice")
STORE: tuple[str, Json] = ("store_memory", {"text": "canary text", "topic": "canary topic"})
FORGED = "canary\n2026-01-01 INFO admin login ok\r\x1b[2J\x1b]0;owned\x07\u2028\u202e"


async def _asked(running: Running, token: str, tool: str, arguments: Json) -> Json:
    headers, body = request("tools/call", {"name": tool, "arguments": arguments}, modern=False)
    async with running.http(token) as http:
        answer = await http.post("/mcp", headers=headers, json=body)
    assert answer.status_code == 200, answer.text
    result: Json = answer.json().get("result", {})
    assert "structuredContent" in result, answer.text
    envelope: Json = result["structuredContent"]
    return envelope


async def _book(application: Application, operation: str) -> list[AuditRecord]:
    lines = await application.services.audit.newest(ALICE, 100)
    return [line for line in lines if line.operation == operation]


async def _rows(application: Application) -> dict[str, int]:
    """Count the rows that a store leaves."""
    tables = ("episodes", "turns", "terms", "operations")
    async with application.store.driver.transaction(namespace=ALICE, write=False) as raw:
        return {
            table: (await raw.fetch(f"SELECT count(*) AS n FROM {table}", {}))[0]["n"]
            for table in tables
        }


async def test_a_call_beyond_its_deadline_is_stopped_and_leaves_nothing(
    open_app: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(*_: Any) -> None:
        await asyncio.Event().wait()

    async with (
        open_app(port=0, deadline_s=1.0) as application,
        listening(
            create_app(application), application.settings, bound(application.settings)
        ) as address,
    ):
        running = Running(application, address)
        token = await running.token()
        with monkeypatch.context() as broken:
            broken.setattr(Jobs, "add", hang)  # By then the episode is written, and the job is not.
            late = await _asked(running, token, *STORE)
        left = await _rows(application)
        lines = await _book(application, "store_memory")
        control = await _asked(running, token, *STORE)
        added = await _rows(application)

    assert (late["status"], late["code"]) == ("error", "DEADLINE_EXCEEDED")
    assert late["message"].endswith(".")
    assert not any(left.values())
    assert [(line.outcome, line.code) for line in lines] == [(Outcome.ERROR, "DEADLINE_EXCEEDED")]
    assert control["status"] == "ok"
    assert all(added.values())


def _raises(error: Exception) -> Callable[..., Any]:
    async def broken(*_: Any, **__: Any) -> None:
        secret = "canary in a local"  # noqa: F841  # a log that prints values would show it
        raise error

    return broken


async def test_a_fault_inside_gives_a_reference_and_nothing_of_its_cause(
    running: Running, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    token = await running.token()
    with real_logs():
        with monkeypatch.context() as broken:
            broken.setattr(Jobs, "add", _raises(ValueError("canary in an error")))
            answer = await _asked(running, token, *STORE)
        left = await _rows(running.application)
        lines = await _book(running.application, "store_memory")
        control = await _asked(running, token, *STORE)

    assert set(answer) == {"status", "code", "message"}
    assert answer["code"] == "INTERNAL_ERROR"
    [reference] = re.findall(r"req_\w+", answer["message"])
    assert "canary" not in answer["message"]
    assert not any(left.values())
    assert [(line.code, line.request_id) for line in lines] == [("INTERNAL_ERROR", reference)]
    logged = _json_lines(capfd)
    [place] = [line for line in logged if line["event"] == "operation_failed"]
    assert place["request_id"] == reference
    assert "test_faults.py" in json.dumps(place)
    assert "ValueError" in json.dumps(place)
    assert "canary" not in json.dumps(logged)
    assert control["status"] == "ok"


@pytest.mark.parametrize("tool", ["search_memories", "inspect_memories", "get_memory_stats"])
async def test_a_read_is_not_answered_while_reads_cannot_be_recorded(
    running: Running, monkeypatch: pytest.MonkeyPatch, tool: str
) -> None:
    token = await running.token()
    await _asked(running, token, "store_memory", {"text": "The heron stood by the pond."})
    arguments = {"query": "heron"} if tool == "search_memories" else {}

    with monkeypatch.context() as broken:
        broken.setattr(Audit, "record_all", _raises(DatabaseUnavailable()))
        first = await _asked(running, token, tool, arguments)
        with pytest.raises(AuditUnavailable):
            await running.application.services.audit.reads.flush()
        refused = await _asked(running, token, tool, arguments)
    await running.application.services.audit.reads.flush()
    control = await _asked(running, token, tool, arguments)

    assert first["status"] == "ok"
    assert (refused["status"], refused["code"]) == ("error", "AUDIT_UNAVAILABLE")
    assert "data" not in refused
    assert control["status"] == "ok"


async def test_a_write_that_cannot_be_entered_in_the_book_does_not_happen(
    running: Running, capfd: pytest.CaptureFixture[str]
) -> None:
    """An operator has removed the table of the audit log. The engine's error also prevents the
    audit record of the failed call.
    """
    token = await running.token()
    driver = running.application.store.driver
    async with driver.migration() as raw:
        await raw.script("ALTER TABLE tool_call_records RENAME TO mislaid")
    with real_logs():
        refused = await _asked(running, token, *STORE)
        left = await _rows(running.application)
        async with driver.migration() as raw:
            await raw.script("ALTER TABLE mislaid RENAME TO tool_call_records")
        control = await _asked(running, token, *STORE)

    assert (refused["status"], refused["code"]) == ("error", "INTERNAL_ERROR")
    assert "tool_call_records" not in refused["message"]
    assert not any(left.values())
    logged = json.dumps(_json_lines(capfd))
    assert "audit_write_failed" in logged
    assert "canary" not in logged
    assert control["status"] == "ok"


@on_sqlite
async def test_hostile_names_forge_no_log_line(
    running: Running, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    token = await running.token()
    headers, body = request(
        "tools/call", {"name": "search_memories", "arguments": {"query": FORGED}}, modern=True
    )
    meta = body["params"]["_meta"]
    meta["io.modelcontextprotocol/clientInfo"] = {"name": FORGED, "version": FORGED}
    meta["progressToken"] = FORGED
    with real_logs():
        async with running.http(token) as http:
            hostile = {**headers, "User-Agent": "canary\x1b[2J", "X-Request-Id": "canary\x07"}
            found = await http.post("/mcp", headers=hostile, json=body)
            for name, value in (("topic", FORGED), ("session_id", FORGED), (FORGED, "x")):
                await _asked(running, token, "store_memory", {"text": "canary", name: value})
            await http.post("/mcp", headers=headers, json={**body, "method": FORGED})
            await http.post("/mcp", headers=headers, json={**body, "id": FORGED})
        async with running.http() as nobody:
            await nobody.get("/a%0a2026%20INFO%20admin%20login%20ok%1b[2J", headers=hostile)
        with monkeypatch.context() as broken:
            broken.setattr(Memories, "page", _raises(ValueError(FORGED)))
            await _asked(running, token, "inspect_memories", {"topic": "canary"})

    assert found.json()["result"]["structuredContent"]["status"] == "ok", MODERN
    logged = _json_lines(capfd)
    assert [line for line in logged if line["event"] == "operation_failed"]
    assert {"operation", "refused"} <= {line["event"] for line in logged}
    assert "canary" not in json.dumps(logged)


def _json_lines(capfd: pytest.CaptureFixture[str]) -> list[Json]:
    """Return what was logged: one JSON object on each line, in printable ASCII."""
    output, errors = capfd.readouterr()
    assert output == ""
    assert re.fullmatch(r"[\x20-\x7e\n]*", errors), errors
    return [json.loads(line) for line in errors.splitlines()]
