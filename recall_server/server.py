"""Runs a server until it is stopped: lock the database, listen, drain."""

import asyncio
import gc
import resource
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing, nullcontext, suppress
from functools import partial
from pathlib import Path

import structlog
import uvicorn
from starlette.types import ASGIApp

from recall_server import logs
from recall_server.api.app import create_app
from recall_server.api.listener import Connections, ConnectionTimeouts, Listener, TimedProtocol
from recall_server.api.middleware.request_validation import HEADER_BYTES_MAX
from recall_server.api.probes import probing, with_metrics
from recall_server.application import Application
from recall_server.bootstrap import working
from recall_server.config import Settings
from recall_server.domain.errors import Invalid
from recall_server.lifecycle import (
    SLOW_S,
    checked_and_loaded,
    only_server,
    opened,
    showing_health,
    stop_signal,
)
from recall_server.local.files import clients_of, published
from recall_server.services.supervision import beside

log = structlog.get_logger()

# How long a computing thread may keep the event loop waiting for the interpreter. Python's default
# is 5 ms, and a call waits several times, whenever it returns from the database.
THREAD_SWITCH_S = 0.0005
# Seconds between updates of the Date header, and between checks whether uvicorn is done.
DATE_S = 1.0
POLL_S = 0.005
# Open files besides the clients' connections: databases, models, logs.
OTHER_FILES = 256


def check_address(settings: Settings) -> None:
    """Raise `Invalid` on a public address, unless the operator allowed it."""
    if settings.public and not settings.allow_public:
        raise Invalid(
            f"{settings.host} can be reached by others and this server speaks plain HTTP: tokens "
            "could be read on the way. Put a TLS proxy before it and listen on 127.0.0.1, or say "
            "--allow-public if the network between is yours."
        )


def bound(settings: Settings) -> socket.socket:
    """Return a socket that listens as configured. Raises `Invalid` if it cannot."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # With an explicit protocol asyncio turns off Nagle's delay; else each answer would wait 40 ms.
    listener = Listener(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
    except OSError as error:
        listener.close()
        raise Invalid(
            f"Cannot listen on {settings.host}:{settings.port} ({error.strerror}). Choose another "
            "with --port."
        ) from None
    return listener


class _Server(uvicorn.Server):
    """A uvicorn server with an event for stopping; uvicorn itself polls every 0.1 s and waits as
    long again.
    """

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        self.should_exit = True
        self._stopping.set()

    async def main_loop(self) -> None:
        while not await self.on_tick(0):  # this sets the Date header
            with suppress(TimeoutError):
                async with asyncio.timeout(DATE_S):
                    await self._stopping.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more connections, and let the open ones finish; then cancel what is left."""
        state = self.server_state
        for listener in (*self.servers, *(sockets or ())):
            listener.close()
        for connection in list(state.connections):
            connection.shutdown()
        try:
            async with asyncio.timeout(self.config.timeout_graceful_shutdown):
                while state.connections or state.tasks:  # noqa: ASYNC110  # they have no event
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            log.warning("calls_cut_off", count=len(state.tasks))
            for task in state.tasks:
                task.cancel()
        await self.lifespan.shutdown()


@asynccontextmanager
async def listening(
    app: ASGIApp, settings: Settings, listener: socket.socket
) -> AsyncIterator[str]:
    """Serve the app on a socket for the duration of the block; yields its address."""
    timeouts = ConnectionTimeouts(settings.header_s, settings.body_s, settings.unread_s)
    places = Connections(_connections_max(settings))
    config = uvicorn.Config(
        app,
        http=partial(TimedProtocol, timeouts=timeouts, places=places),  # type: ignore[arg-type]
        ws="none",
        h11_max_incomplete_event_size=HEADER_BYTES_MAX,
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=max(1, round(settings.drain_s)),
    )
    server = _Server(config)
    # We handle signals ourselves: uvicorn would raise them again at the end.
    server.capture_signals = nullcontext  # type: ignore[method-assign, assignment]
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        while not server.started and not task.done():  # noqa: ASYNC110  # it has no event
            await asyncio.sleep(POLL_S)
        if task.done():
            await task
        host, port = listener.getsockname()[:2]
        yield f"http://{f'[{host}]' if ':' in host else host}:{port}"
    finally:
        server.stop()
        await task


def _connections_max(settings: Settings) -> int:
    """Return the configured number of connections, or fewer if the process may not open that many
    files. Raises the limit of open files if it can.
    """
    files, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = settings.connections_max + OTHER_FILES
    if files < needed:
        files = min(needed, most)
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, most))
    return max(1, min(settings.connections_max, files - OTHER_FILES))


async def serve(
    settings: Settings,
    announce: Callable[[str, Application], None],
    *,
    app: Callable[[Application], ASGIApp] = create_app,
    until_unused: bool = False,
) -> None:
    """Serve until SIGTERM or SIGINT, or with `until_unused` until no client on this machine uses
    the server. Then refuse new calls, let open ones finish within `drain_s`, and release the jobs.
    """
    check_address(settings)
    stop = stop_signal()
    sys.setswitchinterval(THREAD_SWITCH_S)
    async with _stopped_unused(settings, stop) if until_unused else nullcontext():
        with only_server(settings), closing(bound(settings)) as listener:
            async with (
                opened(settings) as built,
                # A client on this machine gives up on a server that has not answered within 10 s.
                checked_and_loaded(built, redactor_s=0 if until_unused else SLOW_S),
                working(built),
                showing_health(built),
                listening(app(built), settings, listener) as address,
                probing(settings, with_metrics(built)),
            ):
                # Objects made so far live as long as the server, so exclude them from collection.
                gc.freeze()
                with published(settings.database, address):
                    announce(address, built)
                    await stop.wait()
                built.stopping = True
                logs.tell(
                    "stopping",
                    "recall is stopping, once calls under way have ended.",
                    delay_s=settings.stop_delay_s,
                    drain_s=settings.drain_s,
                )
                # A second signal ends the delay.
                stop.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(settings.stop_delay_s):
                        await stop.wait()
                built.stop()


@asynccontextmanager
async def _stopped_unused(settings: Settings, stop: asyncio.Event) -> AsyncIterator[None]:
    """Set `stop` when no client has used the SQLite file for `unused_s`."""
    if not isinstance(settings.database, Path):
        raise Invalid("--until-unused is for a server on an SQLite file. Leave it out.")
    with clients_of(settings.database) as clients:

        async def wait() -> None:
            await clients.gone(settings.unused_s)
            log.info("unused", seconds=settings.unused_s)
            stop.set()

        async with beside(wait()):
            yield
