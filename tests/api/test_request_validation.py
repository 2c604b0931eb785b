"""The server refuses input that is no request, is too large, or never ends, and hides internal
faults from callers.
"""

import asyncio
import gzip
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pytest

from recall_server.api.app import create_app
from recall_server.server import bound, listening
from tests.support.application import Open
from tests.support.engines import on_sqlite
from tests.support.mcp_clients import request
from tests.support.server import WITHIN_S, Json, Running

BODY_BYTES_MAX = 2_048
# Less than the time after which an idle connection is closed.
CLOSES_WITHIN_S = 20.0


@asynccontextmanager
async def _running(open_app: Open, **given: object) -> AsyncIterator[Running]:
    async with (
        open_app(port=0, **given) as built,
        listening(create_app(built), built.settings, bound(built.settings)) as address,
    ):
        yield Running(built, address)


@pytest.fixture
async def small(open_app: Open) -> AsyncIterator[Running]:
    async with _running(open_app, body_bytes_max=BODY_BYTES_MAX) as running:
        yield running


@asynccontextmanager
async def _connected(
    running: Running,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    parts = urlsplit(running.address)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        yield reader, writer
    finally:
        writer.close()
        await asyncio.gather(writer.wait_closed(), return_exceptions=True)


async def _raw(running: Running, sent: bytes) -> bytes:
    """Return all that the server answers until it closes the connection, which it must do."""
    received = b""
    async with _connected(running) as (reader, writer):
        writer.write(sent)
        try:
            async with asyncio.timeout(CLOSES_WITHIN_S):
                while part := await reader.read(65_536):
                    received += part
        except TimeoutError:
            raise AssertionError(f"still open after {received!r}") from None
        except ConnectionResetError:
            pass  # The server closed the connection while we were sending.
    return received


def _head(token: str, *lines: str, target: str = "/mcp", method: str = "POST") -> bytes:
    told = [
        f"{method} {target} HTTP/1.1",
        f"Authorization: Bearer {token}",
        "Content-Type: application/json",
        "Accept: application/json, text/event-stream",
        "MCP-Protocol-Version: 2025-11-25",
        *lines,
    ]
    return "\r\n".join(told).encode() + b"\r\n\r\n"


def _call(tool: str = "get_memory_stats", **arguments: object) -> bytes:
    _, body = request("tools/call", {"name": tool, "arguments": arguments}, modern=False)
    return json.dumps(body).encode()


def _statuses(answered: bytes) -> list[int]:
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", answered)]


def _chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


@on_sqlite
async def test_a_body_that_is_said_to_be_too_large_is_refused_before_it_is_sent(
    small: Running,
) -> None:
    token = await small.token()

    refused = await _raw(small, _head(token, "Host: localhost", "Content-Length: 100000000"))
    fitting = _call() + b" " * (BODY_BYTES_MAX - len(_call()))
    close = ("Host: localhost", f"Content-Length: {BODY_BYTES_MAX}", "Connection: close")
    taken = await _raw(small, _head(token, *close) + fitting)

    assert _statuses(refused) == [413]
    assert b"BODY_TOO_LARGE" in refused
    assert _statuses(taken) == [200]


@on_sqlite
async def test_a_chunked_body_is_refused_as_soon_as_it_is_too_large(small: Running) -> None:
    head = _head(await small.token(), "Host: localhost", "Transfer-Encoding: chunked")
    ending = head.replace(b"Host", b"Connection: close\r\nHost")

    # The body never ends, so the answer comes while the client still sends.
    refused = await _raw(small, head + _chunk(b" " * BODY_BYTES_MAX) + _chunk(b" "))
    taken = await _raw(small, ending + _chunk(_call()[:20]) + _chunk(_call()[20:]) + b"0\r\n\r\n")

    assert _statuses(refused) == [413]
    assert b"BODY_TOO_LARGE" in refused
    assert _statuses(taken) == [200]


@on_sqlite
async def test_no_second_request_is_smuggled_in_behind_two_lengths(small: Running) -> None:
    token, hidden = await small.token(), b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    chunked = _chunk(_call()) + b"0\r\n\r\n"
    lengths = [
        ("Transfer-Encoding: chunked", f"Content-Length: {len(chunked + hidden)}"),
        (f"Content-Length: {len(chunked + hidden)}", "Transfer-Encoding: chunked"),
    ]
    for both in lengths:
        answered = await _raw(small, _head(token, "Host: localhost", *both) + chunked + hidden)
        assert _statuses(answered) == [400], both
        assert b"connection: close" in answered.lower(), both


BROKEN = {
    "an unheard-of encoding": ("Host: localhost", "Transfer-Encoding: xchunked"),
    "two encodings": ("Host: localhost", "Transfer-Encoding: gzip, chunked"),
    "two lengths": ("Host: localhost", "Content-Length: 5", "Content-Length: 6"),
    "a signed length": ("Host: localhost", "Content-Length: +5"),
    "a negative length": ("Host: localhost", "Content-Length: -1"),
    "a length in words": ("Host: localhost", "Content-Length: five"),
    "a blank before the colon": ("Host: localhost", "X-Name : canary"),
    "a nul": ("Host: localhost", "X-Name: a\x00canary"),
    "a line without a colon": ("Host: localhost", "canary"),
    "no host": (),
    "two hosts": ("Host: localhost", "Host: evil.example"),
    "the same host twice": ("Host: localhost", "Host: localhost"),
}
ENDLESS = {
    "a long header": b"X-Name: " + b"a" * 200_000,
    "many headers": b"\r\n".join(b"X-Name-%d: a" % n for n in range(20_000)),
}


@on_sqlite
async def test_a_broken_head_is_refused_and_the_connection_closed(small: Running) -> None:
    token = await small.token()
    for name, lines in BROKEN.items():
        answered = await _raw(small, _head(token, *lines))
        assert len(_statuses(answered)) == 1, (name, answered)
        assert _statuses(answered)[0] in {400, 421, 431, 501}, (name, answered)
        assert b"canary" not in answered, name
    tls = b"\x16\x03\x01canary\r\nHost: localhost\r\n\r\n"
    assert _statuses(await _raw(small, tls)) == [400]
    # A probe by the address of a machine names no host.
    assert _statuses(await _raw(small, b"GET /health HTTP/1.0\r\n\r\n")) == [200]
    good = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    assert _statuses(await _raw(small, good)) == [200]


@on_sqlite
@pytest.mark.parametrize("lines", ENDLESS.values(), ids=list(ENDLESS))
async def test_a_head_without_end_is_cut_off(small: Running, lines: bytes) -> None:
    answered = await _raw(small, b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + lines)

    # The answer may be lost on the way, since it comes while we still send.
    assert _statuses(answered) in ([], [400], [431])
    async with small.http() as http:
        assert (await http.get("/health")).status_code == 200


@on_sqlite
async def test_a_target_that_names_another_host_leads_nowhere(small: Running) -> None:
    lines = ("Host: localhost", f"Content-Length: {len(_call())}", "Connection: close")
    head = _head(await small.token(), *lines, target="http://evil.example/mcp")

    assert _statuses(await _raw(small, head + _call()))[0] in {400, 404, 421}


@on_sqlite
@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE", "TRACE", "OPTIONS", "BREW"])
async def test_only_post_reaches_the_tools(small: Running, method: str) -> None:
    override = {
        "X-HTTP-Method-Override": "POST",
        "X-Original-URL": "/health",
        "Content-Type": "application/json",
    }
    async with small.http() as nobody, small.http(await small.token()) as alice:
        refused = await nobody.request(method, "/mcp", headers=override, content=_call())
        wrong = await alice.request(method, "/mcp", headers=override, content=_call())

    assert refused.status_code == 401
    assert (wrong.status_code, wrong.headers["Allow"]) == (405, "POST")
    assert wrong.json()["code"] == "METHOD_NOT_ALLOWED"
    assert "canary" not in wrong.text


@on_sqlite
async def test_an_unknown_path_tells_a_stranger_nothing_and_a_caller_where_to_go(
    small: Running,
) -> None:
    told = {"content": _call(), "headers": {"Content-Type": "application/json"}}
    async with small.http() as nobody, small.http(await small.token()) as alice:
        for path in ("/", "/nope", "/mcp/x", "//mcp", "/docs/", "/a%00b", "/health/x"):
            for method in ("GET", "POST"):
                refused = await nobody.request(method, path, **told)  # type: ignore[arg-type]
                unknown = await alice.request(method, path, **told)  # type: ignore[arg-type]
                assert refused.status_code == 401, path
                assert unknown.status_code == 404, path
                assert unknown.headers["Content-Type"] == "application/problem+json", path
                assert unknown.json()["code"] == "NOT_FOUND", path
                assert unknown.json()["detail"].endswith("."), path


@on_sqlite
async def test_a_body_of_another_kind_is_refused(small: Running) -> None:
    plain, packed = _call(), gzip.compress(_call())
    kinds: list[tuple[str, Json, bytes]] = [
        ("gzip", {"Content-Encoding": "gzip"}, packed),
        ("gzip that is none", {"Content-Encoding": "gzip"}, plain),
        ("two encodings", {"Content-Encoding": "br, gzip"}, plain),
        ("text", {"Content-Type": "text/plain"}, plain),
        ("a form", {"Content-Type": "application/x-www-form-urlencoded"}, plain),
        ("a script", {"Content-Type": "application/jsonp"}, plain),
        ("no type", {"Content-Type": ""}, plain),
    ]
    version = {"MCP-Protocol-Version": "2025-11-25", "Content-Type": "application/json"}
    async with small.http(await small.token()) as alice:
        for name, headers, body in kinds:
            answer = await alice.post("/mcp", headers={**version, **headers}, content=body)
            assert answer.status_code == 415, (name, answer.status_code, answer.text)
            assert answer.json()["code"], name
        for kind in ("application/json", "application/json; charset=utf-8"):
            headers = {**version, "Content-Type": kind, "Content-Encoding": "identity"}
            assert (await alice.post("/mcp", headers=headers, content=plain)).status_code == 200


@on_sqlite
async def test_clients_that_never_finish_do_not_keep_the_server_from_stopping(
    open_app: Open,
) -> None:
    loop = asyncio.get_running_loop()
    async with open_app(port=0, drain_s=1) as built:
        async with listening(create_app(built), built.settings, bound(built.settings)) as address:
            running = Running(built, address)
            token = await running.token()
            lines = ("Host: localhost", "Content-Length: 1000")
            parts = (b"", b"POST /mcp HT", _head(token, *lines), _head("", *lines) + b"{")
            held = [await _hold(running, part) for part in parts]
            async with running.http(token) as http:  # What was sent before this call has arrived.
                assert (await http.get("/ready")).status_code == 200
            started = loop.time()
        seconds = loop.time() - started

    assert seconds < WITHIN_S
    for reader, writer in held:
        async with asyncio.timeout(WITHIN_S):
            await reader.read()
        writer.close()
        await asyncio.gather(writer.wait_closed(), return_exceptions=True)


async def _hold(running: Running, sent: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    parts = urlsplit(running.address)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    writer.write(sent)
    return reader, writer
