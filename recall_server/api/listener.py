"""The listening socket, and HTTP/1.1 with timeouts for clients that may be hostile."""

import asyncio
import errno
import socket
from dataclasses import dataclass
from typing import Any

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

from recall_server.api.problems import problem
from recall_server.domain.errors import Busy, LimitReached, RecallError


class RequestTooSlow(LimitReached):
    """The request did not arrive in time. Send it again, faster, or in parts."""

    code = "REQUEST_TOO_SLOW"


@dataclass(frozen=True)
class ConnectionTimeouts:
    """Seconds for a client to send its headers, to send its body, and to read on; and how many
    connections there may be.
    """

    header_s: float
    body_s: float
    unread_s: float
    connections_max: int


class TimedProtocol(H11Protocol):
    """One connection. A new one too many is refused, so that those there are go on unharmed."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        timeouts: ConnectionTimeouts,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._timeouts = timeouts
        self._awaited: object = None
        self._slow: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        if len(self.connections) >= self._timeouts.connections_max:
            self.transport = transport
            self._refuse(Busy("There are too many connections. Try again in a few seconds."))
            return
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._wait()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self._read_again()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self.loop.call_later(self._timeouts.unread_s, self.transport.abort)

    def resume_writing(self) -> None:
        self._read_again()
        super().resume_writing()

    def _wait(self) -> None:
        """Begin to count when the client has begun, anew for each part of a request."""
        awaited = self._part()
        if awaited == self._awaited:
            return
        self._stop_waiting()
        self._awaited = awaited
        if awaited is not None:
            seconds = self._timeouts.body_s if awaited[0] == "body" else self._timeouts.header_s
            self._slow = self.loop.call_later(seconds, self._too_slow)

    @property
    def _cycle(self) -> RequestResponseCycle | None:
        """The newest request; uvicorn keeps silent about there being none yet."""
        return self.cycle

    def _part(self) -> tuple[str, int] | None:
        """The part of a request that the client still owes, and of which request."""
        state = self.conn.their_state
        if state is h11.SEND_BODY:
            return "body", id(self.cycle)
        # Between two requests it is uvicorn that counts.
        if state is h11.IDLE and (self._cycle is None or self.conn.trailing_data[0]):
            return "head", id(self.cycle)
        return None

    def _too_slow(self) -> None:
        if self.transport.is_closing():
            return
        if self.conn.their_state is h11.SEND_BODY:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            if self.cycle.response_started:
                self.transport.abort()
                return
        self._refuse(RequestTooSlow())

    def _refuse(self, error: RecallError) -> None:
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


# As asyncio has it: it tries again a second later.
_SHORT = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


class Listener(socket.socket):
    """Says once that it cannot accept, and then that no connection waits to be accepted.

    asyncio goes on asking after the first, 2,048 times, and logs each; those who are connected
    already would wait for seconds (https://github.com/python/cpython/issues/151615).
    """

    _short = False

    def accept(self) -> tuple[socket.socket, Any]:
        """Raises `OSError`, `BlockingIOError` among them."""
        if self._short:
            self._short = False
            raise BlockingIOError
        try:
            return super().accept()
        except OSError as error:
            self._short = error.errno in _SHORT
            raise
