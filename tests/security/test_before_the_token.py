"""A caller without a token causes little work, and nobody else notices it."""

import asyncio
import json
import time
from collections import Counter
from contextlib import AsyncExitStack, suppress

import pytest

from recall_server.api.app import OPEN_PATHS
from recall_server.api.operations import OPERATIONS
from recall_server.api.probes import PROBES
from recall_server.api.problems import MalformedBody
from recall_server.api.request_validation import check_json
from tests.support.engines import on_sqlite
from tests.support.models import Gate
from tests.support.server import WITHIN_S, Running, Serve
from tests.support.sockets import answered, connected, head, rest, statuses

# Lists that end more often than they begin. A parser that counts each end of a list needs more
# than a second for them.
BOMB = b"[" + b"[]," * 70 + b"]" * 2_000_000
STRINGS = b"[" + b"[]," * 70 + b'""' * 1_000_000
CLOSE = "Connection: close"
BODY_BYTES = 1_900_000
LIMIT = 20
FLOOD = 20
PLACES = 40
PROTOCOLS = ("/mcp", "/a2a", "/a2a/v1/message:send", "/v1/memories")


def posted(path: str, *lines: str) -> bytes:
    return head(*lines, "Content-Type: application/json", method="POST", target=path)


@on_sqlite
@pytest.mark.parametrize("path", PROTOCOLS)
async def test_a_body_is_not_waited_for_before_the_token_is_known(serve: Serve, path: str) -> None:
    """The server refuses a call before its body has ended, whether the body has a length or comes
    in chunks. The control: with a token the server waits for the rest.
    """
    part = b"[" * 100_000
    async with serve() as running:
        token = f"Authorization: Bearer {await running.token()}"
        framed = {
            "Transfer-Encoding: chunked": f"{len(part):x}\r\n".encode() + part + b"\r\n",
            f"Content-Length: {BODY_BYTES}": part,
        }
        for line, begun in framed.items():
            async with connected(running) as (reader, writer):
                writer.write(posted(path, line) + begun)
                async with asyncio.timeout(WITHIN_S):
                    said = await reader.readuntil(b"\r\n\r\n")
            assert statuses(said) == [401]
        async with connected(running) as (reader, writer):
            writer.write(posted(path, token, CLOSE, f"Content-Length: {BODY_BYTES}") + part)
            answer = asyncio.create_task(rest(reader))
            assert statuses(await answered(running, head(CLOSE))) == [200]
            assert not answer.done()
            writer.write(b"[" * (BODY_BYTES - len(part)))
            assert statuses(await answer) in ([400], [200])


@on_sqlite
async def test_a_body_of_unknown_length_that_nobody_reads_ends_its_connection(serve: Serve) -> None:
    """Such a body may never end. The control: the connection stays open after a body that was
    read.
    """
    async with serve() as running:
        token = f"Authorization: Bearer {await running.token()}"
        chunk = b"2\r\n{}\r\n0\r\n\r\n"
        chunked = "Transfer-Encoding: chunked"
        async with connected(running) as (reader, writer):
            writer.write(posted("/v1/search", chunked) + b"2\r\n{}\r\n")
            refused = await rest(reader)
        async with connected(running) as (reader, writer):
            writer.write((posted("/v1/search", token, chunked) + chunk) * 2 + head(CLOSE))
            read = await rest(reader)

    assert statuses(refused) == [401]
    assert statuses(read) == [400, 400, 200]


@pytest.mark.perf
@pytest.mark.parametrize("body", [BOMB, STRINGS], ids=["ends of lists", "texts"])
def test_what_is_no_json_takes_no_longer_to_refuse_than_json_to_take(body: bytes) -> None:
    largest = json.dumps([{"a": "b"}] * 25_000).encode()

    def seconds(one: bytes) -> float:
        before = time.thread_time()
        with suppress(MalformedBody):
            check_json(one, 64)
        return time.thread_time() - before

    assert seconds(body) < 3 * min(seconds(largest) for _ in range(3))


@on_sqlite
async def test_a_body_that_is_refused_counts_as_a_call(serve: Serve) -> None:
    """It counts for its token. A call without a token counts as a bad token of its address."""
    async with serve(token_calls_per_minute=LIMIT, bad_tokens_per_minute=LIMIT) as running:
        found = {}
        for token in (None, await running.token()):
            async with running.http(token) as http:
                found[token is None] = Counter(
                    [
                        (await http.post("/v1/search", content=b"]")).status_code
                        for _ in range(LIMIT + 5)
                    ]
                )

    assert found[True] == {401: LIMIT, 429: 5}
    assert found[False] == {415: LIMIT, 429: 5}


ANONYMOUS = [
    *sorted(OPEN_PATHS - PROBES),
    *(
        route.path.replace("{receipt_id}", "receipt_0")
        for one in OPERATIONS
        for route in one.http
        if route.holder is not None
    ),
]


@pytest.mark.parametrize("path", ANONYMOUS)
async def test_every_path_that_needs_no_token_has_a_limit_by_address(
    serve: Serve, path: str
) -> None:
    async with serve(anonymous_calls_per_minute=LIMIT) as running, running.http() as http:
        answers = [await http.get(path) for _ in range(LIMIT + 5)]
        probe = await http.get("/ready")
        async with running.http(await running.token()) as known:
            own = await known.get("/v1/whoami")

    assert [one.status_code == 429 for one in answers] == [False] * LIMIT + [True] * 5
    assert int(answers[-1].headers["Retry-After"]) > 0
    assert (probe.status_code, own.status_code) == (200, 200)


async def test_probes_are_never_refused_and_look_at_the_database_one_at_a_time(
    serve: Serve,
) -> None:
    async with serve(anonymous_calls_per_minute=1) as running, running.http() as http:
        assert {(await http.get(path)).status_code for path in PROBES for _ in range(5)} == {200}

        application, looks, begun = running.application, 0, asyncio.Event()
        look = application.check

        async def check() -> None:
            nonlocal looks
            looks += 1
            await begun.wait()
            await look()

        application.check = check  # type: ignore[method-assign]
        asked = [asyncio.create_task(application.ready()) for _ in range(FLOOD)]
        await asyncio.sleep(0)
        begun.set()
        answers = [await one for one in asked]
        again = await http.get("/ready")

    assert answers == [[]] * FLOOD
    assert again.status_code == 200
    assert looks == 2


@on_sqlite
async def test_silent_connections_of_one_address_leave_the_others_their_places(
    serve: Serve,
) -> None:
    """The rest holds whatever part of a request the connections have sent. The control: one more
    connection of the same address is refused, and the client that was served before is still
    served.
    """
    begun = (b"", b"POST /mcp HT", head("Content-Length: 1000", method="POST", target="/mcp"))
    async with serve(connections_max=PLACES, header_s=60, body_s=60) as running:
        for sent in begun:
            async with AsyncExitStack() as stack, running.http(await running.token()) as known:
                assert (await known.get("/v1/whoami")).status_code == 200
                for _ in range(PLACES - 1):
                    _, writer = await stack.enter_async_context(connected(running))
                    writer.write(sent)
                late = statuses(await answered(running, head(CLOSE)))
                other = await stack.enter_async_context(
                    running.http(await running.token(), address="127.0.0.2")
                )
                answers = [await other.get("/v1/whoami") for _ in range(3)]
                kept = await known.get("/v1/whoami")
            assert late == [503], sent
            assert [one.status_code for one in answers] == [200] * 3, sent
            assert kept.status_code == 200
            await gone(running)


@on_sqlite
async def test_an_address_gets_no_more_than_a_share_of_the_places(serve: Serve) -> None:
    """Two addresses end up with equal shares. After that, no connection of one is closed for the
    other.
    """
    async with serve(connections_max=PLACES, header_s=60) as running, AsyncExitStack() as stack:
        for _ in range(PLACES):
            await stack.enter_async_context(connected(running))
        shared = [
            await stack.enter_async_context(connected(running, "127.0.0.2")) for _ in range(PLACES)
        ]
        async with asyncio.timeout(WITHIN_S):
            said = [await reader.read(12) for reader, _ in shared[PLACES // 2 :]]
        for _, writer in shared[: PLACES // 2]:
            writer.write(head(CLOSE))
        async with asyncio.timeout(WITHIN_S):
            served = [statuses(await rest(reader)) for reader, _ in shared[: PLACES // 2]]

    assert said == [b"HTTP/1.1 503"] * (PLACES // 2)
    assert served == [[200]] * (PLACES // 2)


@on_sqlite
async def test_a_request_that_is_served_is_not_closed_for_another_address(serve: Serve) -> None:
    """The server closes only connections that have not sent a whole request."""
    gate = Gate()
    async with serve(connections_max=1, embedder=gate) as running:
        token = await running.token()
        async with running.http(token) as http:
            held = asyncio.create_task(http.post("/v1/search", json={"query": "tea"}))
            await gate.reached(1)
            async with connected(running, "127.0.0.2") as (reader, _):
                refused = await rest(reader)
            gate.opened.set()
            answer = await held

    assert statuses(refused) == [503]
    assert answer.status_code == 200


async def gone(running: Running) -> None:
    """Wait until the server has noticed that all connections are closed."""
    async with asyncio.timeout(WITHIN_S):
        while statuses(await answered(running, head(CLOSE))) != [200]:
            pass
