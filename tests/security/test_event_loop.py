"""While one caller sends requests that are slow to read or to process, the event loop serves every
other call.
"""

import asyncio
import json
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from threading import get_ident
from typing import Any, Self

import httpx2
import pytest

from recall_server.bootstrap import working
from recall_server.integrations.embeddings import StaticEmbedder
from recall_server.integrations.rules import RulesExtractor
from recall_server.services.search import read
from tests.support.engines import on_sqlite
from tests.support.hostile_inputs import INPUTS, LONG_TEXTS, Post, tool
from tests.support.length import has_full_length, on_both_at_full_length
from tests.support.server import WITHIN_S, Running, Serve
from tests.support.sockets import head, statuses
from tests.support.stalls import BUSY, STEP_MAX_S, watched

HEADERS = {
    "Content-Type": "application/json",
    "MCP-Protocol-Version": "2025-11-25",
    "A2A-Version": "1.0",
}


class Client:
    """A client in its own thread, so that its work does not count as work of the event loop."""

    def __init__(self, running: Running, token: str | None) -> None:
        known = {"Authorization": f"Bearer {token}"} if token else {}
        self._http = httpx2.Client(
            base_url=running.address,
            headers={**HEADERS, **known},
            timeout=WITHIN_S,
            verify=False,
            trust_env=False,
        )
        self._id = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    async def post(self, post: Post) -> tuple[int, str]:
        """Return the status and the text of the answer."""
        if post.in_chunks:
            return await asyncio.to_thread(self._sent_in_chunks, post)
        path = post.path.replace("{id}", self._id)
        content = post.body or None
        answer = await asyncio.to_thread(self._http.request, post.method, path, content=content)
        lines = (
            "jsonl" in answer.headers["Content-Type"] or "ndjson" in answer.headers["Content-Type"]
        )
        found = None if lines else answer.json()
        if isinstance(found, dict):
            first = next(iter(found.get("memories", ())), found)
            self._id = str(first.get("id", self._id))
        return answer.status_code, answer.text

    def _sent_in_chunks(self, post: Post) -> tuple[int, str]:
        """Send chunks of one byte each, all at once. No HTTP library does this."""
        url = self._http.base_url
        lines = [f"{name}: {value}" for name, value in self._http.headers.items()]
        begun = head(*lines, "Transfer-Encoding: chunked", method="POST", target=post.path)
        chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in post.body)
        with socket.create_connection((url.host, url.port), WITHIN_S) as raw:
            # The server closes the connection before it has read a refused request to the end.
            with suppress(ConnectionError):
                raw.sendall(begun + chunks + b"0\r\n\r\n")
            said = raw.recv(65_536)
        return statuses(said)[0], said.decode()


# The extraction of each passage: reading a text of 250,000 characters takes 6 s.
READ: dict[tuple[Any, ...], Any] = {}


class Reading:
    """Reads what is stored `before` once for all cases, and what is measured each time."""

    def __init__(self) -> None:
        self.is_measured = False

    async def compute(
        self, function: Callable[..., Any], /, *given: Any, owner: object = None
    ) -> Any:
        if self.is_measured:
            return await asyncio.to_thread(function, *given)
        if (function, *given) not in READ:
            READ[function, *given] = await asyncio.to_thread(function, *given)
        return READ[function, *given]


REFUSED = [name for name, one in INPUTS.items() if min(one.statuses) >= 400]
# One after the other, as storing the long texts takes longer than all that is measured.
BESIDE_LONG = [name for name, one in INPUTS.items() if one.is_beside_long_texts]


@pytest.mark.perf
@on_sqlite
@pytest.mark.parametrize("name", REFUSED)
async def test_what_is_refused_does_not_hold_up_the_others(serve: Serve, name: str) -> None:
    """These requests are refused before the database is used."""
    await _goes_on(serve, name)


@pytest.mark.perf
@pytest.mark.parametrize("name", [name for name in INPUTS if name not in (*REFUSED, *BESIDE_LONG)])
async def test_what_takes_long_does_not_hold_up_the_others(serve: Serve, name: str) -> None:
    await _goes_on(serve, name)


@on_both_at_full_length
@has_full_length
@pytest.mark.perf
async def test_what_takes_long_beside_long_texts_does_not_hold_up_the_others(serve: Serve) -> None:
    await _goes_on(serve, *BESIDE_LONG, stored=LONG_TEXTS)


async def _goes_on(serve: Serve, *names: str, stored: Sequence[Post] = ()) -> None:
    """The positive control of each case: the server answers an ordinary request after it."""
    reading = Reading()
    async with serve(extractor=RulesExtractor(reading.compute)) as running:
        token = await running.token()
        with Client(running, token) as known, Client(running, None) as unknown:
            # This loads what is loaded once.
            await known.post(Post("/v1/search", b'{"query": "tea"}'))
            await _take(running, known, stored)
            for name in names:
                asked, reading.is_measured = INPUTS[name], False
                client = known if asked.has_token else unknown
                await _take(running, known, asked.before)
                reading.is_measured = True
                worker = working(running.application) if asked.works else nullcontext()
                async with watched() as watch, worker:
                    for _ in range(asked.times):
                        status, answer = await client.post(asked.post)
                    if asked.works:
                        await running.extract()
                healthy, _ = await known.post(Post("/mcp", tool("get_memory_stats")))
                assert status in asked.statuses, f"{name}: {answer[:300]}"
                assert healthy == 200, name
                watch.check()


async def _take(running: Running, client: Client, posts: Sequence[Post]) -> None:
    for one in posts:
        await client.post(one)
        await running.extract()


async def test_the_watch_notices_who_holds_the_loop_and_names_it() -> None:
    """The control."""

    async def holds_the_loop() -> None:
        ends = time.thread_time() + 2 * BUSY * STEP_MAX_S
        while time.thread_time() < ends:
            pass

    async with watched() as watch:
        await asyncio.create_task(holds_the_loop())
    with pytest.raises(AssertionError, match="holds_the_loop"):
        watch.check()
    async with watched() as other:
        await asyncio.to_thread(lambda: asyncio.run(holds_the_loop()))
    other.check()


@pytest.mark.perf
@on_sqlite
async def test_words_that_nobody_has_looked_up_do_not_hold_up_the_others(serve: Serve) -> None:
    """Comparing the words of a question with those of 20 texts held the loop for 60 to 95 ms."""
    letters = "abcdefghij"
    words = [f"{a}{b}{c}{d}" for a in letters for b in letters for c in letters for d in letters]
    texts = "\n".join(f"User: {' '.join(words[n : n + 200])}" for n in range(0, 8_000, 200))
    asked = " ".join(words[-1_000:])
    async with serve(embedder=StaticEmbedder()) as running:
        with Client(running, await running.token()) as client:
            await client.post(Post("/v1/memories", json.dumps({"text": texts}).encode()))
            await running.extract()
            await client.post(Post("/v1/search", b'{"query": "tea"}'))
            async with watched() as watch:
                body = {"query": f"{words[7]} {asked}"}
                status, answer = await client.post(Post("/v1/search", json.dumps(body).encode()))

    assert status == 200, answer
    assert json.loads(answer)["results"]
    watch.check(2 * STEP_MAX_S)


async def test_a_long_question_is_read_in_a_thread() -> None:
    """Control: a short one is not, which would take longer."""
    threads = [await read(text, lambda _: get_ident()) for text in ("Dec " * 500, "What is new?")]

    assert (threads[0] == get_ident(), threads[1] == get_ident()) == (False, True)
