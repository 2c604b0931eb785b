"""The pace of each key, and that of long bodies."""

import asyncio
from types import SimpleNamespace

import pytest
from starlette.types import Message

from recall_server.api.operations.operation import CALLER
from recall_server.api.request_validation import (
    LONG_BODY_BYTES_PER_S,
    PACED_FROM_BYTES,
    RequestBody,
)
from recall_server.domain.fairness import KEYS_MAX, Pace


def test_what_comes_faster_waits_until_all_before_it_has_passed() -> None:
    pace = Pace(per_s=100, wait_max_s=1_000)

    assert [pace.wait_s("alice", 50, now=10.0) for _ in range(3)] == [0.0, 0.5, 1.0]
    assert pace.wait_s("alice", 50, now=11.0) == pytest.approx(0.5)


def test_what_comes_slower_and_what_others_send_waits_for_nothing() -> None:
    pace = Pace(per_s=100, wait_max_s=1_000)
    pace.wait_s("alice", 1_000, now=10.0)

    assert pace.wait_s("bob", 50, now=10.0) == 0.0
    assert pace.wait_s("alice", 50, now=20.0) == 0.0


def test_what_would_wait_too_long_is_refused_and_holds_up_nothing() -> None:
    pace = Pace(per_s=100, wait_max_s=1.0)

    assert [pace.wait_s("alice", 100, now=10.0) for _ in range(4)] == [0.0, 1.0, None, None]
    assert pace.wait_s("alice", 100, now=11.0) == 1.0
    assert pace.wait_s("bob", 100, now=10.0) == 0.0


def test_only_keys_that_wait_are_kept() -> None:
    pace = Pace(per_s=100, wait_max_s=1_000)
    pace.wait_s("alice", 10_000, now=10.0)
    for number in range(2 * KEYS_MAX):
        pace.wait_s(number, 1, now=10.0 + number / 100)

    assert len(pace._passed_at) <= KEYS_MAX + 1
    assert pace.wait_s("alice", 1, now=40.0) == pytest.approx(70.0)


async def test_a_long_body_waits_and_a_short_one_or_that_of_another_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits: list[float] = []
    statuses: list[int] = []

    async def wait(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", wait)
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "time", lambda: 10.0)
    body = RequestBody(body_bytes_max=32 * 2**20, json_depth_max=9)

    async def sent(namespace: str, *sizes: int) -> list[float]:
        waits.clear()
        parts = [b" " * size for size in sizes]

        async def receive() -> Message:
            part = parts.pop(0)
            return {"type": "http.request", "body": part, "more_body": bool(parts)}

        async def send(message: Message) -> None:
            # A body of blanks is no JSON, and refused too.
            if message.get("status", 400) != 400:
                statuses.append(message["status"])

        scope = {
            "type": "http",
            "method": "POST",
            "path": "/v1/search",
            "headers": [(b"content-type", b"application/json")],
            CALLER: SimpleNamespace(namespace=namespace),
        }
        await body.read(scope, receive, send)
        return list(waits)

    second = LONG_BODY_BYTES_PER_S // 8
    assert await sent("alice", PACED_FROM_BYTES, second, second) == [0.0, 0.125]
    assert await sent("alice", PACED_FROM_BYTES) == []
    assert await sent("bob", PACED_FROM_BYTES, second) == [0.0]
    assert await sent("alice", PACED_FROM_BYTES, second) == [0.25]
    assert statuses == []
    # More than four seconds of them wait.
    waited = await sent("alice", PACED_FROM_BYTES, *[second] * 32)
    assert waited == [0.375 + n / 8 for n in range(30)]
    assert await sent("alice", PACED_FROM_BYTES, second) == []
    assert statuses == [503, 503]
