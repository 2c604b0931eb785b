"""A cursor continues one list, for the token that got it, for an hour. Any other cursor gets the
answer that a meaningless string gets.
"""

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import httpx2
import pytest

from recall_server.api.app import create_app
from recall_server.integrations.keys import CURSOR_LIFE
from recall_server.server import bound, listening
from tests.support.a2a_bindings import HOOK, Wire
from tests.support.application import Open
from tests.support.runtime import Clock
from tests.support.server import Running

GARBAGE = ("x", "A" * 200, "\u00e9", "A" * 5_000, "=", " ")


@dataclass(frozen=True)
class Listing:
    """A list of a protocol: its request, with a cursor or without, and its next cursor."""

    ask: Callable[..., Awaitable[httpx2.Response]]
    next: Callable[[Any], str]
    other: dict[str, str]


async def _audit(http: httpx2.AsyncClient, cursor: str, **query: str) -> httpx2.Response:
    return await http.get("/v1/audit", params={"limit": "1", "cursor": cursor, **query})


async def _tasks(http: httpx2.AsyncClient, cursor: str, **query: str) -> httpx2.Response:
    return await Wire(http, "HTTP+JSON").answer("ListTasks", pageSize=1, pageToken=cursor, **query)


def _pushes(task_id: str) -> Callable[..., Awaitable[httpx2.Response]]:
    async def ask(http: httpx2.AsyncClient, cursor: str, taskId: str = "") -> httpx2.Response:  # noqa: N803  # the protocol's name
        return await Wire(http, "HTTP+JSON").answer(
            "ListTaskPushNotificationConfigs",
            taskId=taskId or task_id,
            pageSize=1,
            pageToken=cursor,
        )

    return ask


@pytest.fixture
async def two(open_app: Open) -> AsyncIterator[tuple[Running, Running]]:
    """Run two servers on one database."""
    async with AsyncExitStack() as stack:
        found = []
        for _ in range(2):
            built = await stack.enter_async_context(open_app(port=0, header_s=60.0))
            address = await stack.enter_async_context(
                listening(create_app(built), built.settings, bound(built.settings))
            )
            found.append(Running(built, address))
        yield found[0], found[1]


async def _listings(http: httpx2.AsyncClient) -> dict[str, Listing]:
    """Return every list that gives a cursor, with at least two entries."""
    wire = Wire(http)
    first, second = await wire.task(), await wire.task()
    for task in (first, second):
        for name in ("a", "b"):
            await wire.result(
                "CreateTaskPushNotificationConfig", taskId=task["id"], url=HOOK, id=name
            )
    return {
        "audit": Listing(
            _audit, lambda body: str(body["next_cursor"]), {"operation": "read_audit"}
        ),
        "tasks": Listing(
            _tasks, lambda body: str(body["nextPageToken"]), {"contextId": first["contextId"]}
        ),
        "pushes": Listing(
            _pushes(first["id"]),
            lambda body: str(body["nextPageToken"]),
            {"taskId": second["id"]},
        ),
    }


def _altered(cursor: str) -> list[str]:
    middle = len(cursor) // 2
    other = "A" if cursor[middle] != "A" else "B"
    altered = [
        cursor[:middle] + other + cursor[middle + 1 :],
        other + cursor[1:],
        cursor[:-1],
        cursor.rstrip("="),
        cursor + "=",
        cursor + "A",
        cursor[:8] + "\n" + cursor[8:],
        cursor * 2,
        cursor.swapcase(),
    ]
    return [one for one in altered if one != cursor]


def _plain(answer: httpx2.Response) -> tuple[int, str]:
    # Each problem names its own request.
    return answer.status_code, re.sub(r'"instance":"req_[0-9a-z]+"', "", answer.text)


async def test_a_cursor_that_is_not_ones_own_is_like_garbage(
    two: tuple[Running, Running], clock: Clock
) -> None:
    """These cursors all get 400, in the same bytes: one of another tenant, of another token of the
    same tenant, of another query or another list, an altered one and an expired one. The owner of
    a cursor can continue on the other server, which has the same key.
    """
    one, other = two
    token, sibling = await one.token("alice"), await one.token("alice")
    async with (
        one.http(token) as http,
        other.http(token) as there,
        other.http(sibling) as beside,
        other.http(await one.token("bob")) as bob,
    ):
        listings, theirs = await _listings(http), await _listings(bob)
        cursors = {
            name: one.next((await one.ask(http, "")).json()) for name, one in listings.items()
        }
        for name, listing in listings.items():
            cursor = cursors[name]
            garbage = {_plain(await listing.ask(there, sent)) for sent in GARBAGE}
            assert len(garbage) == 1, name
            status, said = next(iter(garbage))
            assert status == 400, (name, said)
            assert "INVALID_CURSOR" in said, (name, said)
            strangers = [
                await theirs[name].ask(bob, cursor),
                await listing.ask(beside, cursor),
                await listing.ask(there, cursor, **listing.other),
                *[await listing.ask(there, sent) for sent in _altered(cursor)],
                *[await listing.ask(there, cursors[n]) for n in listings if n != name],
            ]
            for number, answer in enumerate(strangers):
                assert _plain(answer) == (status, said), (name, number)
            for asker in (http, there):
                assert (await listing.ask(asker, cursor)).status_code == 200, name
        clock.pass_(CURSOR_LIFE)
        for name, listing in listings.items():
            assert (await listing.ask(there, cursors[name])).status_code == 200, name
        clock.pass_(timedelta(seconds=1))
        for name, listing in listings.items():
            late = _plain(await listing.ask(there, cursors[name]))
            assert late == _plain(await listing.ask(there, "x")), name
