"""Counts the files and functions of the product that one store and one search execute, on a warm
server.

The calls go through the whole ASGI application, and threads of the product count too.
"""

import asyncio
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import httpx2
from starlette.types import ASGIApp, Message

import recall_server
from benchmarks.clients import MCP_VERSION
from benchmarks.databases import settings
from benchmarks.fill import Say, tenant
from benchmarks.report import Check, Report, Row
from benchmarks.texts import Texts
from recall_server.api.app import create_app
from recall_server.bootstrap import open_application

SEED = 20261123
MEMORIES = 200
WARM_UP = 20
ADDRESS = "http://127.0.0.1"
HEADERS = {
    "MCP-Protocol-Version": MCP_VERSION,
    "Accept": "application/json, text/event-stream",
}
# The bounds: files, functions.
BOUNDS = {"store_memory": (40, 150), "search_memories": (45, 200)}
# Parts of a function, not functions.
INLINE = frozenset({"<lambda>", "<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"})
NOTES = (
    "Distinct files of recall_server, and distinct functions in them, that run between the request "
    "and its answer; a nested function counts, a lambda or a comprehension does not."
)
_ROOT = Path(recall_server.__file__).parent


class Recorder:
    """Records the code objects that run while it is on, in every thread started after it was
    installed.
    """

    def __init__(self) -> None:
        self._seen: set[CodeType] = set()
        self._on = False

    @contextmanager
    def installed(self) -> Iterator[None]:
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    @contextmanager
    def on(self) -> Iterator[set[CodeType]]:
        """Record the code that runs while the block lasts."""
        self._seen, self._on = set(), True
        try:
            yield self._seen
        finally:
            self._on = False

    def _profile(self, frame: FrameType, event: str, _: Any) -> None:
        if self._on and event == "call":
            self._seen.add(frame.f_code)


async def request_path(say: Say, *, every: bool = False) -> Report:
    """Count on a SQLite file of its own; with `every`, a row for each function."""
    recorder, texts = Recorder(), Texts(SEED)
    # The writer threads of the database start within this block, so that they are recorded.
    with tempfile.TemporaryDirectory() as folder, recorder.installed():
        async with open_application(settings(Path(folder) / "recall.db")) as built:
            token = await tenant(built, "path", texts.statements(MEMORIES), say)
            async with _client(create_app(built), token) as client:
                found = {}
                for tool in BOUNDS:
                    for _ in range(WARM_UP):
                        await _call(client, tool, texts)
                    # The records of these calls are written after them: not in the next measured
                    # call.
                    await built.services.audit.reads.flush()
                    with recorder.on() as seen:
                        await _call(client, tool, texts)
                    found[tool] = functions(seen)
    rows, checks = [], []
    for tool, by_file in found.items():
        counts = len(by_file), sum(map(len, by_file.values()))
        rows.append(Row("", tool, dict(zip(("files", "functions"), counts, strict=True))))
        for name, count, bound in zip(("files", "functions"), counts, BOUNDS[tool], strict=True):
            checks.append(Check(f"{tool}: {name}", count, bound))
    if every:
        rows += [
            Row(f"{tool}, file by file", f"{file}: {function}", {})
            for tool, by_file in found.items()
            for file, functions in sorted(by_file.items())
            for function in sorted(functions)
        ]
    return Report("path", "sqlite", rows, checks, notes=NOTES)


def functions(seen: set[CodeType]) -> dict[str, set[str]]:
    """Return the qualified names of functions by file of the product."""
    by_file: dict[str, set[str]] = {}
    for code in seen:
        path = Path(code.co_filename)
        if path.is_relative_to(_ROOT) and code.co_name not in INLINE:
            by_file.setdefault(str(path.relative_to(_ROOT)), set()).add(code.co_qualname)
    return by_file


async def _call(client: httpx2.AsyncClient, tool: str, texts: Texts) -> None:
    arguments = (
        {"text": texts.conversation()} if tool == "store_memory" else {"query": texts.question()}
    )
    params = {"name": tool, "arguments": arguments}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    answer = await client.post("/mcp", json=message)
    if b'"isError":false' not in answer.content:
        raise RuntimeError(f"{tool} failed: {answer.status_code} {answer.text[:500]}")


@asynccontextmanager
async def _client(app: ASGIApp, token: str) -> AsyncIterator[httpx2.AsyncClient]:
    """Yield a client of the application without a socket, for as long as its lifespan lasts."""
    sent: asyncio.Queue[Message] = asyncio.Queue()
    received: asyncio.Queue[Message] = asyncio.Queue()
    scope = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}

    async def live() -> None:
        await app(scope, sent.get, received.put)

    lifespan = asyncio.create_task(live())
    sent.put_nowait({"type": "lifespan.startup"})
    started = await received.get()
    if started["type"] != "lifespan.startup.complete":
        raise RuntimeError(f"The application did not start: {started.get('message')}")
    headers = {**HEADERS, "Authorization": f"Bearer {token}"}
    try:
        async with httpx2.AsyncClient(
            transport=httpx2.ASGITransport(app), base_url=ADDRESS, headers=headers
        ) as client:
            yield client
    finally:
        sent.put_nowait({"type": "lifespan.shutdown"})
        await lifespan
