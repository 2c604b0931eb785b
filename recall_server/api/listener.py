"""The listening socket, and HTTP/1.1 with timeouts for clients that may be hostile."""

import asyncio
import errno
import socket
from dataclasses import dataclass
from itertools import chain
from typing import Any

import h11
import structlog
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

from recall_server.api.problems import problem
from recall_server.domain.errors import Busy, Invalid, LimitReached, RecallError
from recall_server.services.limits import network_of

log = structlog.get_logger()

# The bytes read from one connection before others get their turn. A client that sends one byte in
# each chunk costs the parser the most work, 6 us a byte.
READ_BYTES_MAX = 16_384


class RequestTooSlow(LimitReached):
    """The request did not arrive in time. Send it again, faster, or in parts."""


@dataclass(frozen=True)
class ConnectionTimeouts:
    """The seconds that a client has to send its headers, to send its body, and to read on."""

    header_s: float
    body_s: float
    unread_s: float


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
        timeouts: ConnectionTimeouts,
        places: Connections,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._timeouts = timeouts
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
        self._unread = self.loop.call_later(self._timeouts.unread_s, self.transport.abort)

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
            seconds = self._timeouts.body_s if awaited[0] == "body" else self._timeouts.header_s
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
