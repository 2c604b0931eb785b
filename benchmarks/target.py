"""The server that is measured: the real one, with one more tool, which does nothing.

Run as `python -m benchmarks.target`; its settings are those of `recall serve`, and its address is
the one line that it prints. With `--bare` it runs without authentication, audit and limits.
"""

import asyncio
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import typer
from starlette.types import ASGIApp

from benchmarks.attacks import UNANSWERED, UNANSWERED_S
from recall_server import telemetry
from recall_server.api.app import create_app
from recall_server.api.operations import OPERATIONS
from recall_server.api.operations.operation import Arguments, Call, Mcp, Operation
from recall_server.application import Application
from recall_server.config import Settings
from recall_server.domain.audit import AuditEntry
from recall_server.domain.ids import namespace
from recall_server.domain.permissions import TokenInfo
from recall_server.server import serve
from recall_server.services.audit import Audit
from recall_server.services.auth import Access
from recall_server.services.limits import Rates
from recall_server.storage.tables.audit import Audit as AuditTable

BARE = "--bare"
# Every call of a bare server is one of this namespace.
GUEST = namespace("guest")


BEAT_S = 0.005


class Nothing(Arguments):
    pass


class Loop:
    """The longest time that the event loop was occupied since the last call."""

    def __init__(self) -> None:
        self._held_s = 0.0
        self._late_s = 0.0
        self._beating: asyncio.Task[None] | None = None

    def longest(self) -> dict[str, float]:
        """Return how late the loop ran due work, and how much of that time it worked: for the rest,
        the machine ran other programs.
        """
        self._beating = self._beating or asyncio.create_task(self._beat())
        found = {"held_ms": 1000 * self._held_s, "late_ms": 1000 * self._late_s}
        self._held_s = self._late_s = 0.0
        return found

    async def _beat(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due, spent = loop.time() + BEAT_S, time.thread_time()
            await asyncio.sleep(BEAT_S)
            late_s = loop.time() - due
            self._late_s = max(self._late_s, late_s)
            self._held_s = max(self._held_s, min(late_s, time.thread_time() - spent))


LOOP = Loop()


async def do_nothing(call: Call, _: Nothing) -> dict[str, Any]:
    # Otherwise its audit record would be committed: the no-op must not hide what we add to it.
    call.context.entry.written = True
    return {}


async def tell_stalls(call: Call, _: Nothing) -> dict[str, Any]:
    call.context.entry.written = True
    return LOOP.longest()


NOOP = Operation(
    "whoami",
    None,
    "Do nothing.",
    Nothing,
    do_nothing,
    mcp=Mcp("Does nothing.", title="No operation"),
    read_only=True,
)
# It replaces another operation without arguments, which nobody measures.
STALLS = replace(NOOP, name="get_memory_stats", handler=tell_stalls)
REPLACED = {one.name: one for one in (NOOP, STALLS)}
MEASURED = tuple(REPLACED.get(one.name, one) for one in OPERATIONS)


def _app(application: Application) -> ASGIApp:
    return create_app(application, MEASURED)


def _bare_app(application: Application) -> ASGIApp:
    """Return the app without limits: every token is accepted, no call is counted, and no audit
    record is written.
    """
    now, begin = application.runtime.now, Audit.begin

    async def verify(*_: Any) -> TokenInfo:
        return TokenInfo("acc_guest", GUEST, now())

    def begin_written(*given: Any, **named: Any) -> AuditEntry:
        entry = begin(*given, **named)
        entry.written = True
        return entry

    async def nothing(*_: Any) -> None:
        return None

    for owner, name, replacement in (
        (Access, "verify", verify),
        (Audit, "begin", begin_written),
        (AuditTable, "record", nothing),
        (AuditTable, "record_all", nothing),
        (Rates, "call", nothing),
    ):
        assert callable(getattr(owner, name))
        setattr(owner, name, replacement)
    return _app(application)


def _slow_for_attacks(look_up: Callable[..., Any]) -> Callable[..., Any]:
    """Replace the name server by one that does not answer for the names of an attack."""

    def looked_up(host: Any, *given: Any, **named: Any) -> Any:
        if str(host).endswith(UNANSWERED):
            time.sleep(UNANSWERED_S)
            raise socket.gaierror(socket.EAI_AGAIN, "no name server answers")
        return look_up(host, *given, **named)

    return looked_up


def main() -> None:
    settings = Settings()
    telemetry.configure_logs(settings.log_level)
    socket.getaddrinfo = _slow_for_attacks(socket.getaddrinfo)
    app = _bare_app if BARE in sys.argv else _app
    asyncio.run(serve(settings, lambda address, _: typer.echo(address), app=app))


if __name__ == "__main__":
    main()
