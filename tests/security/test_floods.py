"""A caller that asks for too much is refused beyond its share, and its neighbour is served."""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack

import pytest

from tests.support.a2a_bindings import Wire
from tests.support.engines import on_sqlite
from tests.support.limits import called
from tests.support.server import WITHIN_S, Serve
from tests.support.sockets import answered, connected, head, statuses

STREAMS = 1_100
FLOOD = 200
LIMIT = 60
QUIET = 20
IDLE = 80
ROOM = 50


@on_sqlite
@pytest.mark.slow
async def test_eleven_hundred_streams_of_one_leave_the_first_of_another(serve: Serve) -> None:
    """One namespace may have 20 streams, and no more."""
    async with serve() as running, AsyncExitStack() as stack:
        alice, bob = [
            Wire(
                await stack.enter_async_context(running.http(await running.token(name))), "JSONRPC"
            )
            for name in ("alice", "bob")
        ]
        share = running.application.settings.streams_per_namespace
        kept = []  # A stream without a reference is closed.

        async def subscribed(wire: Wire, task_id: str) -> None:
            stream = await stack.enter_async_context(wire.stream("SubscribeToTask", id=task_id))
            kept.append(stream)
            assert await stream.next() is not None

        task = (await alice.task())["id"]
        for _ in range(share):
            await subscribed(alice, task)
        refused = Counter[tuple[int, bool]]()
        for _ in range(STREAMS - share):
            answer = await alice.answer("SubscribeToTask", id=task)
            refused[answer.status_code, "Retry-After" in answer.headers] += 1
        async with asyncio.timeout(WITHIN_S):
            await subscribed(bob, (await bob.task())["id"])
        running.application.stop()

    assert refused == {(429, True): STREAMS - share}


async def test_a_flood_is_refused_and_its_neighbour_gets_all_its_answers(serve: Serve) -> None:
    """The limit is on the number of calls: the clock stands still, so a minute does not end.
    (`python -m benchmarks fairness` measures how much later the neighbour's answers come.)
    """
    async with serve(namespace_calls_per_minute=LIMIT) as running:
        flooding, quiet = await running.token("alice"), await running.token("bob")
        one_after_the_other = asyncio.Semaphore(16)

        async def flood() -> tuple[int, dict[str, str]]:
            async with one_after_the_other:
                status, headers, _ = await called(running, flooding)
                return status, headers

        floods = [asyncio.create_task(flood()) for _ in range(FLOOD)]
        own = [(await called(running, quiet))[0] for _ in range(QUIET)]
        answers = await asyncio.gather(*floods)

    assert own == [200] * QUIET
    assert Counter(status for status, _ in answers) == {200: LIMIT, 429: FLOOD - LIMIT}
    for status, headers in answers:
        limits = {name: headers.get(name) for name in ("ratelimit-limit", "ratelimit-remaining")}
        if status == 429:
            assert limits == {"ratelimit-limit": str(LIMIT), "ratelimit-remaining": "0"}
            assert int(headers["retry-after"]) == int(headers["ratelimit-reset"]) > 0


@on_sqlite
async def test_idle_connections_take_no_more_than_the_room_there_is_and_are_closed(
    serve: Serve,
) -> None:
    """Connections over the limit are refused, and the open one is still served. New ones are
    accepted once the idle ones have timed out.
    """
    async with serve(connections_max=ROOM, header_s=2.0) as running, AsyncExitStack() as stack:
        token = await running.token()
        known = await stack.enter_async_context(running.http(token))
        assert (await known.get("/v1/whoami")).status_code == 200
        idle = [await stack.enter_async_context(connected(running)) for _ in range(IDLE)]
        during = await known.get("/v1/whoami")
        late = statuses(await answered(running, head("Connection: close")))
        said = [statuses(await reader.read()) for reader, _ in idle]
        async with asyncio.timeout(WITHIN_S):
            after = statuses(await answered(running, head("Connection: close")))
            again = await known.get("/v1/whoami")

    assert during.status_code == again.status_code == 200
    assert late == [503]
    assert Counter(map(tuple, said)) == {(408,): ROOM - 1, (503,): IDLE - ROOM + 1}
    assert after == [200]
