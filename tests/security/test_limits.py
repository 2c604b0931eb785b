"""A caller with too many calls is refused, and nobody else notices."""

import asyncio
from datetime import timedelta

import pytest

from recall_server.domain.errors import RateLimited
from recall_server.domain.ids import Namespace
from recall_server.services.limits import Rates
from recall_server.storage.store import Store
from tests.support.a2a_bindings import Wire
from tests.support.limits import ROUTES, called
from tests.support.models import Gate
from tests.support.rows import ALICE, BOB, enter
from tests.support.runtime import Clock
from tests.support.server import WITHIN_S, Serve


@pytest.mark.parametrize("protocol", ROUTES)
async def test_a_token_may_make_so_many_calls_a_minute(
    serve: Serve, clock: Clock, protocol: str
) -> None:
    async with serve(token_calls_per_minute=3) as running:
        alice, second, bob = [await running.token(name) for name in ("alice", "alice", "bob")]
        taken = [(await called(running, alice, protocol))[0] for _ in range(3)]
        status, headers, body = await called(running, alice, protocol)
        others = [(await called(running, token, protocol))[0] for token in (second, bob)]
        clock.pass_(timedelta(seconds=int(headers["retry-after"])))
        after = (await called(running, alice, protocol))[0]

    assert taken == [200, 200, 200]
    assert (status, body["code"]) == (429, "RATE_LIMITED")
    assert headers["ratelimit-limit"] == "3"
    assert headers["ratelimit-remaining"] == "0"
    assert headers["ratelimit-reset"] == headers["retry-after"]
    assert others == [200, 200]
    assert after == 200


async def test_the_rest_binding_spells_it_its_own_way(serve: Serve) -> None:
    async with serve(token_calls_per_minute=1) as running:
        token = await running.token()
        async with running.http(token) as http:
            first = await http.get("/a2a/v1/tasks", headers={"A2A-Version": "1.0"})
            second = await http.get("/a2a/v1/tasks", headers={"A2A-Version": "1.0"})

    assert first.status_code == 200
    assert second.status_code == 429
    error = second.json()["error"]
    assert (error["code"], error["status"]) == (429, "RESOURCE_EXHAUSTED")
    assert int(second.headers["Retry-After"]) > 0


async def test_many_tokens_of_a_namespace_are_one_namespace(serve: Serve) -> None:
    async with serve(namespace_calls_per_minute=4) as running:
        tokens = [await running.token() for _ in range(4)]
        taken = [(await called(running, token))[0] for token in tokens]
        refused = (await called(running, await running.token()))[0]
        bob = (await called(running, await running.token("bob")))[0]

    assert (taken, refused, bob) == ([200] * 4, 429, 200)


async def test_no_limit_is_none(serve: Serve) -> None:
    """The control."""
    off = dict.fromkeys(
        ("token_calls_per_minute", "namespace_calls_per_minute", "bad_tokens_per_minute"), 0
    )
    async with serve(**off) as running:
        token = await running.token()
        good = {(await called(running, token))[0] for _ in range(40)}
        bad = {(await called(running, f"{token[:-4]}nope"))[0] for _ in range(40)}

    assert (good, bad) == ({200}, {401})


async def test_nobody_can_lock_out_another_with_bad_tokens(serve: Serve) -> None:
    """A header that names an address changes nothing."""
    async with serve(bad_tokens_per_minute=5) as running:
        token = await running.token()
        bad = []
        for number in range(10):
            async with running.http(f"rcl_{number}") as http:
                answer = await http.get("/v1/conflicts", headers={"X-Forwarded-For": f"::{number}"})
                bad.append((answer.status_code, answer.headers.get("Retry-After") is not None))
        good = await called(running, token)
        async with running.http() as http:
            without = (await http.get("/v1/conflicts")).status_code
            healthy = (await http.get("/health")).status_code

    assert bad == [(401, False)] * 5 + [(429, True)] * 5
    assert (good[0], without, healthy) == (200, 429, 200)


async def test_a_million_strangers_fill_no_memory(store: Store, clock: Clock) -> None:
    rates = Rates(store, clock, token_calls=1, namespace_calls=1, bad_tokens=1, keys_max=100)
    for number in range(1_000):
        await rates.bad_token(f"10.0.{number // 250}.{number % 250}")
    known = len(rates._bad._calls)
    for number in range(5):
        # The owner of an IPv6 address owns a whole network.
        if number:
            with pytest.raises(RateLimited):
                await rates.bad_token(f"2001:db8::{number}")
        else:
            await rates.bad_token("2001:db8::ffff")

    assert known == 100


async def test_replicas_count_together(store: Store, clock: Clock) -> None:
    """The count covers all replicas, except for the calls between two updates."""
    await enter(store, ALICE, BOB)
    first, second = [_shared(store, clock, limit=10) for _ in range(2)]
    for _ in range(6):
        await first.call(ALICE, "acc_alice")
    await second.call(ALICE, "acc_alice")
    for one in (first, second):
        await one.share()
    taken = [await _taken(one, ALICE) for one in (first, second)]
    others = await _taken(second, BOB)

    # Each replica uses the counts of its last update.
    assert (taken, others) == ([4, 3], 10)
    for one in (first, second):
        await one.share()
    assert [await _taken(one, ALICE) for one in (first, second)] == [0, 0]


async def test_a_new_replica_learns_of_the_minute_before(store: Store, clock: Clock) -> None:
    await enter(store, ALICE)
    first = _shared(store, clock, limit=10)
    for _ in range(10):
        await first.call(ALICE, "acc_alice")
    await first.share()
    clock.pass_(timedelta(seconds=60))
    second = _shared(store, clock, limit=10)
    await second.call(ALICE, "acc_alice")
    await second.share()

    assert await _taken(second, ALICE) == 0
    clock.pass_(timedelta(seconds=30))
    assert await _taken(second, ALICE) == 4
    clock.pass_(timedelta(minutes=5))
    await second.call(ALICE, "acc_alice")
    await second.share()
    assert {minute for _, _, minute in await _rows(store)} == {
        int(clock().timestamp()) // 60,
        int(clock().timestamp()) // 60 - 1,
    }


async def test_nothing_is_written_about_a_namespace_that_is_not_there(
    store: Store, clock: Clock
) -> None:
    await enter(store, ALICE)
    rates = _shared(store, clock, limit=10)
    for name in (ALICE, BOB):
        await rates.call(name, f"acc_{name}")
    await rates.share()

    assert {namespace for namespace, _, _ in await _rows(store)} == {ALICE}


async def test_a_call_too_many_at_once_waits_its_turn_and_no_longer(serve: Serve) -> None:
    """A namespace over its share waits, and then gets an error. The others are served."""
    gate = Gate()
    async with serve(embedder=gate, namespace_calls_at_once=2, turn_wait_s=0.2) as running:
        alice, bob = await running.token("alice"), await running.token("bob")
        held = [asyncio.create_task(called(running, alice, "search")) for _ in range(2)]
        await gate.reached(2)
        status, headers, body = await called(running, alice)
        free = asyncio.create_task(called(running, bob, "search"))
        await gate.reached(3)
        gate.opened.set()
        async with asyncio.timeout(WITHIN_S):
            served = [(await one)[0] for one in (*held, free)]
        again = (await called(running, alice))[0]

    assert (status, body["code"], headers["retry-after"]) == (503, "BUSY", "1")
    assert served == [200, 200, 200]
    assert again == 200


async def test_who_only_waits_for_a_task_takes_nobodys_turn(serve: Serve) -> None:
    async with serve(namespace_calls_at_once=1, turn_wait_s=5) as running:
        token = await running.token()
        async with running.http(token) as http:
            waiting = asyncio.create_task(Wire(http).task(now=False))
            events = running.application.services.tasks.transitions.events
            async with asyncio.timeout(WITHIN_S):
                while not events._subscriptions:
                    await http.get("/health")
            status = (await called(running, token))[0]
            await running.extract()
            task = await waiting

    assert status == 200
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"


def _shared(store: Store, clock: Clock, *, limit: int) -> Rates:
    rates = Rates(store, clock, token_calls=0, namespace_calls=limit, bad_tokens=0)
    rates._windows._shared = True
    return rates


async def _taken(rates: Rates, namespace: Namespace) -> int:
    """Return the number of calls that were accepted."""
    count = 0
    while True:
        try:
            await rates.call(namespace, f"acc_{namespace}")
        except RateLimited:
            return count
        count += 1


async def _rows(store: Store) -> list[tuple[str, str, int]]:
    async with store.transaction(None) as tx:
        found = await tx.bound.connection.fetch("SELECT * FROM call_counts", {})
    return [(row["namespace"], row["accessor"], row["minute"]) for row in found]
