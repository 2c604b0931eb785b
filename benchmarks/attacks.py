"""A tenant that sends the most expensive requests, in a process of its own, until SIGTERM.

Run as `python -m benchmarks.attacks ADDRESS TOKEN NAME`; it prints one line once it has begun.
"""

import asyncio
import itertools
import json
import random
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import httpx2
import typer

from recall_server.lifecycle import stop_signal

CALLERS = 2
DEADLINE_S = 30.0
HEADERS = {"Content-Type": "application/json", "A2A-Version": "1.0"}
# A text that does not compress.
TOO_MUCH = random.Random(7).randbytes(950_000).hex()  # noqa: S311
# The domain of names that are looked up for as long as a name server that does not answer takes.
UNANSWERED = "unanswered.example"
UNANSWERED_S = 20.0
BOMB = b"[" + b"[]," * 70 + b"]" * 2_000_000
TOWNS = "User: " + " ".join(f"I live in Town{number}." for number in range(600))
PARAGRAPHS = "\n\n".join("abcdefghij" * 2_000)

Attack = Callable[[httpx2.AsyncClient, int], Awaitable[object]]


@dataclass(frozen=True)
class Named:
    """The call that one attack repeats, and the rule that it attacks: of bytes, of the loop, or of
    background work.
    """

    tries: str
    attack: Attack


def _posts(path: str, body: Any) -> Attack:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return lambda http, _: http.post(path, content=content)


def _sends(message: Mapping[str, Any], **given: Any) -> Attack:
    """Send a message of A2A that makes a task."""

    async def send(http: httpx2.AsyncClient, number: int) -> None:
        said = {"messageId": f"m{number}", "role": "ROLE_USER", **message}
        params = {"message": said, "configuration": {"returnImmediately": True, **given}}
        body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params}
        await http.post("/a2a", content=json.dumps(body))

    return send


async def _erases_nobody(http: httpx2.AsyncClient, number: int) -> None:
    await http.post("/v1/erasure", content=json.dumps({"subject": f"Nobody{number}"}))


async def _exports_slowly(http: httpx2.AsyncClient, _: int) -> None:
    async with http.stream("GET", "/v1/export") as answer:
        async for _piece in answer.aiter_bytes(1_000):
            await asyncio.sleep(1.0)


async def _pushes_into_silence(http: httpx2.AsyncClient, number: int) -> None:
    """Push to a receiver that takes the connection and never answers."""

    async def silent(_: asyncio.StreamReader, __: asyncio.StreamWriter) -> None:
        await asyncio.sleep(DEADLINE_S)

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        url = f"http://127.0.0.1:{port}/hook"
        parts = [{"text": f"User: I own bike {number}."}]
        send = _sends({"parts": parts}, taskPushNotificationConfig={"id": "p", "url": url})
        for one in range(12):
            await send(http, 100 * number + one)
        await asyncio.sleep(DEADLINE_S)


async def _names_that_nobody_knows(http: httpx2.AsyncClient, number: int) -> None:
    """Register push addresses for which the name servers do not answer."""
    for one in range(12):
        name = f"{number}-{one}.{UNANSWERED}"
        parts = [{"text": f"User: I own car {number} {one}."}]
        push = {"id": "p", "url": f"https://{name}/hook"}
        await _sends({"parts": parts}, taskPushNotificationConfig=push)(http, 100 * number + one)


async def _answers_nothing(http: httpx2.AsyncClient, _: int) -> None:
    """Send an answer that answers nothing, to a task that asks hundreds of questions."""
    await http.post("/v1/memories", content=json.dumps(_text("User: I live in Lisbon.")))
    asked = {"skill": "consolidate_memories", "input": {"text": TOWNS}}
    task = (await http.post("/a2a", content=json.dumps(asked))).json().get("id")
    for _again in range(20):
        await http.post(f"/a2a/{task}/resume", content=json.dumps({"resolution": "hm"}))


async def _likes_more(http: httpx2.AsyncClient, number: int) -> None:
    """State another dozen values of one attribute."""
    figs = " ".join(f"I like fig{12 * number + one}." for one in range(12))
    await http.post("/v1/memories", content=json.dumps(_text(f"User: {figs}")))


def _text(text: str) -> dict[str, str]:
    return {"text": text, "topic": "attack"}


BYTES, LOOP, BACKGROUND = "bytes", "loop", "background"
ATTACKS = {
    "metadata": Named(BYTES, _sends({"parts": [{"text": "hi"}], "metadata": {"a": TOO_MUCH}})),
    "ends of lists": Named(LOOP, _posts("/v1/search", BOMB)),
    "secrets": Named(LOOP, _posts("/v1/memories", _text('"password="' * 6_000))),
    "months": Named(LOOP, _posts("/v1/search", {"query": "Dec " * 500})),
    "erasures of nobody": Named(LOOP, _erases_nobody),
    "slow exports": Named(BACKGROUND, _exports_slowly),
    "silent receivers": Named(BACKGROUND, _pushes_into_silence),
    "names that nobody knows": Named(BACKGROUND, _names_that_nobody_knows),
    # These come last, since their jobs go on after them.
    "answers that say nothing": Named(BYTES, _answers_nothing),
    "values of one attribute": Named(LOOP, _likes_more),
    "merges": Named(LOOP, _posts("/v1/consolidations", {"topic": "attack", "dry_run": True})),
    "paragraphs": Named(BYTES, _posts("/v1/memories", _text(PARAGRAPHS))),
}


async def _attack(address: str, token: str, name: str) -> None:
    numbers, stop = itertools.count(), stop_signal()
    headers = {**HEADERS, "Authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient(
        base_url=address, headers=headers, timeout=DEADLINE_S, trust_env=False
    ) as http:

        async def again() -> None:
            while True:
                # Refusals are answers; a closed or late call is tried again too.
                with suppress(httpx2.HTTPError):
                    await ATTACKS[name].attack(http, next(numbers))

        callers = [asyncio.create_task(again()) for _ in range(CALLERS)]
        typer.echo(address)
        await stop.wait()
        for one in callers:
            one.cancel()
        await asyncio.wait(callers)


if __name__ == "__main__":
    asyncio.run(_attack(*sys.argv[1:]))
