"""What takes long to read or to work on, from one caller: the event loop goes on, and with it every
other call.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.support.server import WITHIN_S, Json, Running, Serve

# Of the loop's own processor time, so that a machine that does other things hardly counts: three
# times the 250 ms that the row allows, as what they do takes from the caches.
HELD_UP_S = 0.75
TEXT_CHARS = 250_000


class Pulse:
    """How long the loop was busy with one thing, at most."""

    def __init__(self) -> None:
        self.longest_s = 0.0

    async def beat(self) -> None:
        before = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            self.longest_s, before = max(self.longest_s, now - before), now


@asynccontextmanager
async def pulse() -> AsyncIterator[Pulse]:
    own = Pulse()
    beating = asyncio.create_task(own.beat())
    await asyncio.sleep(0)
    try:
        yield own
        await asyncio.sleep(0)
    finally:
        beating.cancel()
        await asyncio.wait({beating})


def tool(name: str, **arguments: object) -> bytes:
    params = {"name": name, "arguments": arguments}
    return json.dumps(
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    ).encode()


def odd(mode: bytes) -> bytes:
    """A search with a mode that is none, and takes long to read."""
    return tool("search_memories", query="tea", mode=None).replace(b"null", mode)


def said(parts: bytes) -> bytes:
    message = b'{"messageId":"m","role":"ROLE_USER","parts":[' + parts + b"]}"
    return b'{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":' + message + b"}}"


LINES = "\n".join(f"User: I own bike {n} and I live in town {n}." for n in range(5_000))
WORDS = " ".join(f"word{n}" for n in range(1_000))
KEYS = b"{" + b",".join(b'"k%d":%d' % (n, n) for n in range(130_000)) + b"}"

BODIES = {
    "many lists": ("/mcp", odd(b"[" + b"[]," * 600_000 + b"0]"), 400),
    "many objects": ("/mcp", odd(b"[" + b"{}," * 45_000 + b"0]"), 200),
    "many numbers": ("/mcp", odd(b"[" + b"1," * 900_000 + b"0]"), 400),
    "many names": ("/mcp", odd(KEYS), 400),
    "many values in a data part": (
        "/a2a",
        said(b'{"data":{"x":[' + b"{}," * 45_000 + b"0]}}"),
        200,
    ),
    "many parts": ("/a2a", said(b'{"text":"a"},' * 30_000 + b'{"text":"a"}'), 200),
    "a long string": ("/mcp", odd(b'"' + b"a" * 1_900_000 + b'"'), 200),
    "a long text": ("/mcp", tool("store_memory", text=LINES[:TEXT_CHARS]), 200),
    "a text of one word": ("/mcp", tool("store_memory", text="a" * TEXT_CHARS), 200),
    "a query of many words": ("/mcp", tool("search_memories", query=WORDS[:8_000]), 200),
}


async def posted(running: Running, path: str, body: bytes) -> tuple[int, Json]:
    headers = {
        "Content-Type": "application/json",
        "MCP-Protocol-Version": "2025-11-25",
        "A2A-Version": "1.0",
    }
    async with running.http(await running.token()) as http:
        answer = await http.post(path, content=body, headers=headers)
        return answer.status_code, answer.json()


@pytest.mark.parametrize("name", BODIES)
async def test_what_takes_long_does_not_hold_up_the_others(serve: Serve, name: str) -> None:
    path, body, status = BODIES[name]
    async with serve() as running, asyncio.timeout(WITHIN_S):
        await posted(running, "/mcp", tool("search_memories", query="tea"))  # what is loaded once
        async with pulse() as own:
            answer = await posted(running, path, body)
        healthy = await posted(running, "/mcp", tool("get_memory_stats"))

    assert answer[0] == status, answer
    assert healthy[0] == 200
    assert own.longest_s < HELD_UP_S


async def test_the_pulse_notices_who_holds_up_the_loop() -> None:
    """The control."""
    async with pulse() as own:
        ends = time.thread_time() + HELD_UP_S
        while time.thread_time() < ends:
            pass

    assert own.longest_s >= HELD_UP_S
