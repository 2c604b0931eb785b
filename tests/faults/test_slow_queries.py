"""An endless query is stopped in time, its connection works on, and nobody else waits for it."""

import asyncio
from dataclasses import replace

import pytest

from recall_server.application import Application
from recall_server.domain.errors import QueryTimeout
from recall_server.storage.sqlite.connection import _BatchedConnection
from tests.support.application import Open
from tests.support.conversation import ALICE, enter, remember
from tests.support.engines import on_sqlite
from tests.support.faults import TEXT
from tests.support.mcp_clients import request
from tests.support.server import Serve

ENDLESS = (
    "WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n FROM numbers)"
    " SELECT count(*) AS total FROM numbers"
)
WITHIN_S = 60.0
# More than the readers of SQLite, or the connections of one namespace.
MANY = 8


async def endless(application: Application, *, by_itself: bool) -> None:
    driver = application.store.driver
    if by_itself:
        await driver.autocommit([(ENDLESS, {})], namespace=ALICE)
        return
    async with driver.transaction(namespace=ALICE, write=False) as connection:
        await connection.fetch(ENDLESS, {})


@pytest.mark.parametrize("by_itself", [False, True], ids=["in a transaction", "by itself"])
async def test_a_query_that_would_not_end_is_stopped_and_leaves_a_sound_connection(
    open_app: Open, by_itself: bool
) -> None:
    async with open_app(query_s=0.1) as application, asyncio.timeout(WITHIN_S):
        await enter(application)
        found = await asyncio.gather(
            *(endless(application, by_itself=by_itself) for _ in range(MANY)),
            return_exceptions=True,
        )
        await remember(application, TEXT)
        await application.check()

    assert [type(error) for error in found] == [QueryTimeout] * MANY


@pytest.mark.parametrize("by_itself", [False, True], ids=["in a transaction", "by itself"])
async def test_a_query_whose_caller_has_gone_is_not_gone_on_with(
    open_app: Open, by_itself: bool
) -> None:
    """The readers are free for others, as after the deadline of a call."""
    async with open_app(query_s=WITHIN_S) as application, asyncio.timeout(WITHIN_S / 2):
        await enter(application)
        for _ in range(MANY):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await endless(application, by_itself=by_itself)
        await application.check()
        await remember(application, TEXT)


async def test_a_call_that_asks_too_much_of_the_database_is_told_so(serve: Serve) -> None:
    """Each protocol answers 503 with a code, and the next call is served."""
    headers, body = request("tools/call", {"name": "inspect_memories"}, modern=False)
    async with serve(query_s=0.1) as running, running.http(await running.token()) as http:
        store = running.application.store
        slow = {
            name: replace(store._queries[name], sql=ENDLESS, unlimited=ENDLESS)
            for name in ("record_page", "page_of_memories", "count_of_memories")
        }

        async def both() -> tuple[int, dict[str, object], dict[str, object]]:
            plain = await http.get("/v1/audit")
            tool = await http.post("/mcp", json=body, headers=headers)
            result = tool.json()["result"]["structuredContent"]
            return plain.status_code, plain.json(), result

        with pytest.MonkeyPatch.context() as changed:
            changed.setattr(store, "_queries", {**store._queries, **slow})
            status, plain, tool = await both()
        after, _, again = await both()

    assert status == 503
    assert plain["code"] == tool["code"] == "QUERY_TIMEOUT"
    assert after == 200
    assert again["status"] == "ok"


@on_sqlite
async def test_what_writes_does_not_wait_for_what_runs_in_python(
    open_app: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction that writes has no time limit, yet SQLite asked again and again whether it was
    over: each time it waited for the event loop, and all writers with it. A read is asked.
    """
    asked: list[bool] = []

    def over(self: object) -> bool:
        asked.append(write)
        return False

    monkeypatch.setattr(_BatchedConnection, "_over", over)
    async with open_app() as application:
        await enter(application)
        for write in (True, False):
            async with application.store.driver.transaction(namespace=ALICE, write=write) as raw:
                await raw.fetch(ENDLESS.replace("FROM numbers)", "FROM numbers LIMIT 100000)"), {})
    assert asked
    assert not any(asked)
