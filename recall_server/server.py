"""Runs a server until it is stopped: lock the database, listen, drain. The listening socket, and
HTTP/1.1 with timeouts for clients that may be hostile.
"""

import asyncio
import errno
import gc
import resource
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing, nullcontext, suppress
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import h11
import structlog
import uvicorn
from starlette.types import ASGIApp
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

from recall_server import telemetry
from recall_server.api.app import create_app
from recall_server.api.probes import probing, with_metrics
from recall_server.api.problems import problem
from recall_server.api.request_validation import HEADER_BYTES_MAX
from recall_server.application import Application
from recall_server.bootstrap import working
from recall_server.config import Settings
from recall_server.domain.errors import Busy, Invalid, LimitReached, RecallError
from recall_server.lifecycle import (
    SLOW_S,
    checked_and_loaded,
    only_server,
    opened,
    showing_health,
    stop_signal,
)
from recall_server.local import clients_of, published
from recall_server.services.limits import network_of
from recall_server.services.supervision import beside

# The bytes read from one connection before others get their turn. A client that sends one byte in
# each chunk costs the parser the most work, 6 us a byte.
READ_BYTES_MAX = 16_384


class RequestTooSlow(LimitReached):
    """The request did not arrive in time. Send it again, faster, or in parts."""


class Connections:
    """The open connections, by address. If there is no capacity left, an address with at least two
    fewer connections takes one from another address: one without a whole request.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._total = 0
        self._of: dict[str, dict[TimedProtocol, None]] = {}

    def add(self, one: "TimedProtocol", address: str) -> bool:
        """Add a connection. Return False if there is no capacity for it."""
        if self._total >= self._most and not self._made_place(address):
            return False
        self._of.setdefault(address, {})[one] = None
        self._total += 1
        return True

    def remove(self, one: "TimedProtocol", address: str) -> None:
        """Remove a connection, unless it was removed before."""
        theirs = self._of.get(address, {})
        if one in theirs:
            del theirs[one]
            self._total -= 1
            if not theirs:
                del self._of[address]

    def _made_place(self, address: str) -> bool:
        most = max(self._of, key=lambda one: len(self._of[one]))
        if len(self._of[most]) < len(self._of.get(address, ())) + 2:
            return False
        theirs = self._of[most]
        owing = (one for one in theirs if one.owes_request)
        resting = (one for one in theirs if one.rests)
        waiting = next(chain(owing, resting), None)
        if waiting is None:
            return False
        self.remove(waiting, most)
        waiting.give_up(Busy("The connections are shared by address, and others need this one."))
        return True


class TimedProtocol(H11Protocol):
    """One connection. It is refused if there are too many, so that the open ones go on."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        settings: Settings,
        places: Connections,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._settings = settings
        self._places = places
        self._client: str | None = None
        self._address = ""
        self._awaited: object = None
        self._slow: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        peer = transport.get_extra_info("peername")
        self._client = peer[0] if peer else None
        self._address = network_of(self._client or "")
        if not self._places.add(self, self._address):
            self.transport = transport
            self._refuse(Busy("There are too many connections. Try again in a few seconds."))
            return
        transport.max_size = READ_BYTES_MAX  # type: ignore[attr-defined]
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._wait()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._places.remove(self, self._address)
        self._stop_waiting()
        self._read_again()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self.loop.call_later(self._settings.unread_s, self.transport.abort)

    def resume_writing(self) -> None:
        self._read_again()
        super().resume_writing()

    def _wait(self) -> None:
        """Start the timeout when the client has begun a request, and again for each part of it."""
        awaited = self._part()
        if awaited == self._awaited:
            return
        self._stop_waiting()
        self._awaited = awaited
        if awaited is not None:
            seconds = self._settings.body_s if awaited[0] == "body" else self._settings.header_s
            self._slow = self.loop.call_later(seconds, self.give_up, RequestTooSlow())

    @property
    def owes_request(self) -> bool:
        """True if the client has begun a request and not sent all of it."""
        return self._part() is not None

    @property
    def rests(self) -> bool:
        """True if every request of the client is answered."""
        return self._cycle is None or self._cycle.response_complete

    @property
    def _cycle(self) -> RequestResponseCycle | None:
        """The newest request, or None, which the type of uvicorn leaves out."""
        return self.cycle

    def _part(self) -> tuple[str, int] | None:
        """Return the part of a request that the client still owes, and the id of the request."""
        state = self.conn.their_state
        if state is h11.SEND_BODY:
            return "body", id(self.cycle)
        # Between two requests uvicorn counts the time.
        if state is h11.IDLE and (self._cycle is None or self.conn.trailing_data[0]):
            return "head", id(self.cycle)
        return None

    def give_up(self, error: RecallError) -> None:
        """Close the connection of a client without a whole request, and say why if possible."""
        if self.transport.is_closing():
            return
        if not self.owes_request:
            self.transport.close()  # it has asked for nothing
            return
        if self.conn.their_state is h11.SEND_BODY:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            if self.cycle.response_started:
                self.transport.abort()
                return
        self._refuse(error)

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP, which is never a request."""
        self._log_refusal(Invalid.code)
        super().send_400_response(msg)

    def _log_refusal(self, code: str) -> None:
        log.info("refused", code=code, client=self._client)

    def _refuse(self, error: RecallError) -> None:
        self._log_refusal(error.code)
        answer = problem(error)
        self.transport.write(
            f"HTTP/1.1 {answer.status_code} \r\nContent-Type: {answer.media_type}\r\n"
            f"Content-Length: {len(answer.body)}\r\nConnection: close\r\n\r\n".encode()
            + bytes(answer.body)
        )
        self.transport.close()

    def _stop_waiting(self) -> None:
        self._awaited = None
        if self._slow is not None:
            self._slow.cancel()
            self._slow = None

    def _read_again(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None


# The errors after which asyncio tries again a second later.
_SHORT = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


class Listener(socket.socket):
    """A socket that reports once that it cannot accept, and then that no connection waits.

    After the first such error asyncio would try 2,048 times and log each error, while connected
    clients wait for seconds (https://github.com/python/cpython/issues/151615).
    """

    _short = False

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection. Raises `OSError`, `BlockingIOError` among them."""
        if self._short:
            self._short = False
            raise BlockingIOError
        try:
            return super().accept()
        except OSError as error:
            self._short = error.errno in _SHORT
            raise


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
    places = Connections(_connections_max(settings))
    config = uvicorn.Config(
        app,
        http=partial(TimedProtocol, settings=settings, places=places),  # type: ignore[arg-type]
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
                telemetry.tell(
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
