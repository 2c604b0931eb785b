"""The server survives input that is no request, is too large, or never ends."""

import asyncio
import gzip
import json
import resource

import pytest

from recall_server.api.request_validation import (
    HEADER_BYTES_MAX,
    HEADERS_MAX,
    URL_BYTES_MAX,
)
from tests.support.engines import on_sqlite
from tests.support.mcp_clients import request
from tests.support.server import WITHIN_S, Serve
from tests.support.sockets import answered, connected, head, rest, statuses

SHORT_S = 0.2
ANSWER_BYTES = 50_000
PATHS = ("/mcp", "/a2a", "/a2a/v1/message:send", "/v1/conflicts")
CLOSE = "Connection: close"


def stats(token: str) -> tuple[list[str], bytes]:
    """Return headers and body of a call that succeeds."""
    headers, body = request("tools/call", {"name": "get_memory_stats"}, modern=False)
    sent = json.dumps(body).encode()
    lines = [f"{name}: {value}" for name, value in headers.items()]
    accept = "Accept: application/json, text/event-stream"
    return [
        *lines,
        accept,
        "Content-Type: application/json",
        f"Authorization: Bearer {token}",
    ], sent


@on_sqlite
async def test_one_of_two_lengths_is_a_lie(serve: Serve) -> None:
    """Every protocol gives one answer, and the connection is closed."""
    async with serve() as running:
        token = await running.token()
        lines, body = stats(token)
        hidden = head("X: smuggled", target="/smuggled")
        for path in PATHS:
            chunked = f"{len(body):x}\r\n".encode() + body + b"\r\n0\r\n\r\n" + hidden
            both = (f"Content-Length: {len(chunked)}", "Transfer-Encoding: chunked")
            said = await answered(
                running, head(*lines, *both, target=path, method="POST") + chunked
            )
            assert statuses(said) == [400], path
        once = head(*lines, f"Content-Length: {len(body)}", CLOSE, target="/mcp", method="POST")
        control = await answered(running, once + body)

    assert statuses(control) == [200]


@on_sqlite
async def test_a_head_that_is_too_large_is_refused(serve: Serve) -> None:
    sent = {
        431: [
            head(*(f"X-{n}: a" for n in range(HEADERS_MAX))),
            head(*(f"X-{n}: {'a' * 8_000}" for n in range(5))),
        ],
        414: [head(target="/health?" + "a" * URL_BYTES_MAX)],
        200: [
            head(*(f"X-{n}: a" for n in range(HEADERS_MAX - 2)), CLOSE),
            head(f"X-Long: {'a' * (HEADER_BYTES_MAX - 500)}", CLOSE),
            head(CLOSE, target="/health?" + "a" * (URL_BYTES_MAX - 10)),
        ],
    }
    async with serve() as running:
        for status, requests in sent.items():
            for one in requests:
                assert statuses(await answered(running, one)) == [status], (status, one[:80])
        for endless in (b"GET /" + b"a" * 300_000, head(f"X: {'a' * 20_000_000}")):
            assert statuses(await answered(running, endless)) in ([], [400], [414], [431])
        assert statuses(await answered(running, head(CLOSE))) == [200]


# Without a known token, the server does not wait for the end of a body.
UNREAD = {"a body that never comes", "a chunk that never ends"}
UNFINISHED = {
    "nothing": b"",
    "a line without an end": b"POST /mcp HT",
    "headers without an end": head(method="POST")[:-2],
    "a body that never comes": head("Content-Length: 1000000", method="POST", target="/mcp"),
    "a chunk that never ends": head("Transfer-Encoding: chunked", method="POST", target="/mcp")
    + b"fff\r\n{",
    "a body that nobody asked for": head("Content-Length: 1000000"),
}


@on_sqlite
@pytest.mark.parametrize("name", UNFINISHED)
async def test_what_is_never_finished_is_given_up(serve: Serve, name: str) -> None:
    """The server gives up such requests with a token and without one."""
    async with serve(header_s=SHORT_S, body_s=SHORT_S) as running:
        authorization = f"Authorization: Bearer {await running.token()}\r\n".encode()
        for more in (b"", authorization):
            sent = UNFINISHED[name].replace(b"Host:", more + b"Host:")
            said = await answered(running, sent)
            asked = 200 if "nobody" in name else 401 if name in UNREAD and not more else 408
            assert statuses(said) == [asked], said
        assert statuses(await answered(running, head(CLOSE))) == [200]


@on_sqlite
@pytest.mark.parametrize("part", ["head", "body"])
async def test_a_byte_now_and_then_does_not_help(serve: Serve, part: str) -> None:
    """The timeout is for the whole request, not for the pause between two bytes."""
    async with (
        serve(header_s=SHORT_S, body_s=SHORT_S) as running,
        connected(running) as (reader, writer),
    ):
        known = f"Authorization: Bearer {await running.token()}"
        begun = head(known, "Content-Length: 1000000", method="POST", target="/mcp")
        writer.write(begun if part == "body" else begun[:-2] + b"X-Slow: ")
        said = asyncio.create_task(rest(reader))
        while not said.done():
            writer.write(b"a")
            await asyncio.wait({said}, timeout=SHORT_S / 10)

    assert statuses(said.result()) == [408]
    assert b"REQUEST_TOO_SLOW" in said.result()


@on_sqlite
async def test_a_connection_that_is_kept_may_rest_but_not_dawdle(serve: Serve) -> None:
    """The control: a pause between two requests is allowed."""
    async with (
        serve(header_s=SHORT_S, body_s=SHORT_S) as running,
        connected(running) as (reader, writer),
    ):
        for _ in range(2):
            writer.write(head())
            first = await _one(reader)
            quiet = asyncio.create_task(reader.read(1))
            await asyncio.wait({quiet}, timeout=2 * SHORT_S)
            assert not quiet.done()
            quiet.cancel()
            await asyncio.wait({quiet})
            assert statuses(first) == [200]
        writer.write(b"GET /hea")
        assert statuses(await rest(reader)) == [408]


@on_sqlite
async def test_half_a_request_does_nothing(serve: Serve) -> None:
    """If a client disconnects in the middle of a body, its request has no effect."""
    async with serve() as running:
        token = await running.token()
        lines, _ = stats(token)
        text = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call"}).encode()
        for path in ("/mcp", "/a2a", "/a2a/v1/tasks/x:cancel"):
            for part in (b"", text):
                async with connected(running) as (_, writer):
                    writer.write(
                        head(*lines, "Content-Length: 5000", target=path, method="POST") + part
                    )
                    await writer.drain()
        lines_written = await running.application.services.audit.newest(None, 10)
        assert statuses(await answered(running, head(CLOSE))) == [200]

    assert [line.operation for line in lines_written] == ["create_token"]


@on_sqlite
async def test_an_answer_that_nobody_reads_is_not_kept(serve: Serve) -> None:
    """The server disconnects a stalled reader, however much is left to send. Its answers are long:
    the systems of both sides take megabytes before the server has to keep any.
    """
    async with serve(unread_s=SHORT_S) as running:
        control = await answered(running, head(CLOSE, target="/openapi.json"))
        one = head(target="/openapi.json")
        async with connected(running) as (reader, writer):
            reader._transport.pause_reading()  # type: ignore[attr-defined]
            with pytest.raises(ConnectionError):
                await _asked_again_and_again(writer, one)
        assert statuses(await answered(running, head(CLOSE))) == [200]

    assert statuses(control) == [200]
    assert len(control) > ANSWER_BYTES


@on_sqlite
async def test_one_connection_too_many_is_refused_and_the_others_live(serve: Serve) -> None:
    async with serve(connections_max=3, header_s=30) as running:
        async with connected(running) as (reader, writer), connected(running), connected(running):
            writer.write(head())
            assert statuses(await _one(reader)) == [200]
            refused = await answered(running, b"")
            writer.write(head())
            assert statuses(await _one(reader)) == [200]
        async with asyncio.timeout(WITHIN_S):
            while statuses(await answered(running, head(CLOSE))) != [200]:
                pass

    assert statuses(refused) == [503]
    assert b"BUSY" in refused


@on_sqlite
async def test_there_are_files_for_all_connections(serve: Serve) -> None:
    async with serve(connections_max=600):
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= 600 + 256


@on_sqlite
@pytest.mark.parametrize("path", PATHS)
async def test_no_protocol_takes_what_another_reader_would_read_otherwise(
    serve: Serve, path: str
) -> None:
    body = b'{"ns": "a"}'
    broken = {
        "a name twice": (b'{"ns":"a","ns":"b"}', {}, 400),
        "a byte order mark": (b"\xef\xbb\xbf" + body, {}, 400),
        "utf-16": (body.decode().encode("utf-16"), {}, 400),
        "utf-32": (body.decode().encode("utf-32"), {}, 400),
        "no utf-8": (b'{"ns":"\xff"}', {}, 400),
        "65 levels": (b"[" * 65 + b"]" * 65, {}, 400),
        "100,000 levels": (b"[" * 100_000, {}, 400),
        "5,000 digits": (b'{"n":1' + b"0" * 5_000 + b"}", {}, 400),
        "gzip": (gzip.compress(body), {"Content-Encoding": "gzip"}, 415),
        "br": (body, {"Content-Encoding": "br"}, 415),
        "text": (body, {"Content-Type": "text/plain"}, 415),
        "jsonp": (body, {"Content-Type": "application/jsonp"}, 415),
    }
    async with serve() as running, running.http(await running.token()) as http:
        for name, (sent, headers, status) in broken.items():
            answer = await http.post(
                path, content=sent, headers={"Content-Type": "application/json", **headers}
            )
            # JSON-RPC answers a body that is not JSON with an error of its own, and 200.
            rpc = path == "/a2a" and answer.json().get("error", {}).get("code") == -32700
            assert rpc or answer.status_code == status, (name, answer.status_code, answer.text)
            assert "recursion" not in answer.text


@on_sqlite
@pytest.mark.parametrize("method", ["TRACE", "BREW", "PATCH", "PUT"])
async def test_an_unknown_verb_is_not_taken_for_another(serve: Serve, method: str) -> None:
    override = {"X-HTTP-Method-Override": "POST", "X-Original-URL": "/health"}
    async with serve() as running, running.http(await running.token()) as http:
        for path in ("/mcp", "/a2a", "/v1/conflicts", "/health"):
            answer = await http.request(method, path, headers=override)
            assert answer.status_code == 405, path
        lines, _ = stats(await running.token())
        tunnel = head(*lines, CLOSE, method="CONNECT", target="localhost:80")
        assert statuses(await answered(running, tunnel))[0] in {400, 404, 405}


@on_sqlite
async def test_a_page_of_another_origin_gets_nowhere(serve: Serve) -> None:
    """Every protocol refuses it."""
    async with (
        serve(allowed_origins="https://app.example") as running,
        running.http(await running.token()) as http,
    ):
        for path in PATHS:
            for origin in ("http://evil", "null", "http://127.0.0.1:9999", "https://127.0.0.1"):
                answer = await http.post(path, json={}, headers={"Origin": origin})
                assert answer.status_code == 403, (path, origin)
            for host in ("evil", "localhost.", "localhost.evil"):
                answer = await http.post(path, json={}, headers={"Host": host})
                assert answer.status_code == 421, (path, host)
            preflight = await http.options(path, headers={"Origin": "http://evil"})
            assert "Access-Control-Allow-Origin" not in preflight.headers
            good = await http.post(path, json={}, headers={"Origin": "https://app.example"})
            assert good.status_code not in {403, 421}


async def _asked_again_and_again(writer: asyncio.StreamWriter, one: bytes) -> None:
    async with asyncio.timeout(WITHIN_S):
        while True:
            writer.write(one)
            await writer.drain()
            await asyncio.sleep(0)


async def _one(reader: asyncio.StreamReader) -> bytes:
    """Return one answer on a connection that is kept."""
    async with asyncio.timeout(WITHIN_S):
        top = await reader.readuntil(b"\r\n\r\n")
        length = next(
            int(line.split(b":")[1])
            for line in top.lower().split(b"\r\n")
            if line.startswith(b"content-length")
        )
        return top + await reader.readexactly(length)
