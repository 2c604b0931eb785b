"""Origin, limits and form of a request: the head is checked before any other part of the server
reads it, the body once the token is known.
"""

import asyncio
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import structlog
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from recall_server.api.a2a.errors import refusal
from recall_server.api.callers import BUSY_AGAIN_S
from recall_server.api.operations.erasure import RECEIPT_HEADER
from recall_server.api.operations.operation import BODY_METHODS, CALLER
from recall_server.api.problems import (
    BodyTooLarge,
    HeadersTooLarge,
    HostNotAllowed,
    MalformedBody,
    OriginNotAllowed,
    OutOfMemory,
    UnsupportedMedia,
    UrlTooLong,
)
from recall_server.domain.errors import Busy, Invalid, InvalidText, RecallError
from recall_server.domain.fairness import Pace
from recall_server.domain.text.cleaning import no_number, plain_json, unique_names

log = structlog.get_logger()

JSON_KINDS = (b"application/json", b"application/a2a+json")
HEADER_BYTES_MAX = 32_768
HEADERS_MAX = 100
URL_BYTES_MAX = 8_192
# A limit on the values of a body: a parser in C blocks the event loop until it has finished.
JSON_VALUES_MAX = 100_000
# A longer body is checked in a thread, outside of the event loop.
INLINE_UP_TO_BYTES = 32_768
# The server reads bytes beyond the first limit at this rate: for a megabyte of a message of A2A,
# the event loop takes 13 ms. It stores texts at less than half of the rate.
PACED_FROM_BYTES = 262_144
LONG_BODY_BYTES_PER_S = 4_194_304
# A body that waits takes up to half a megabyte, even if its client has gone meanwhile: of one
# namespace not more than a few hundred wait.
PACE_WAIT_MAX_S = 4.0
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::[0-9]{1,5})?", re.ASCII)
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_STRUCTURE = re.compile(rb'"(?:[^"\\]|\\.)*+"?+|[\[{,]|[\]}]')


@dataclass(frozen=True)
class RequestValidation:
    """Checks Host and Origin (DNS rebinding), and the size of the head. Pure ASGI. `any_host`: the
    paths that answer to any host name. `refused` counts refusals.
    """

    app: ASGIApp
    hosts: frozenset[str]
    any_host: frozenset[str]
    origins: frozenset[str]
    body_bytes_max: int
    refused: Callable[[str], None]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        try:
            self._check_head(scope)
        except RecallError as error:
            log.info("refused", code=error.code)
            self.refused(error.code)
            await _refused(refusal(scope, error), scope, receive, send)
            return
        if b"transfer-encoding" in dict(scope["headers"]):
            receive, send = _closed_unless_read(receive, send)
        await self.app(scope, receive, send)

    def _check_head(self, scope: Scope) -> None:
        if len(scope["raw_path"]) + len(scope["query_string"]) > URL_BYTES_MAX:
            raise UrlTooLong(f"A URL may have {URL_BYTES_MAX} bytes. Send long texts in the body.")
        size = 0
        headers: dict[bytes, list[str]] = {}
        for name, value in scope["headers"]:
            size += len(name) + len(value)
            headers.setdefault(name, []).append(value.decode("latin-1"))
        if len(scope["headers"]) > HEADERS_MAX or size > HEADER_BYTES_MAX:
            raise HeadersTooLarge(
                f"A request may have {HEADERS_MAX} headers and {HEADER_BYTES_MAX} bytes of them. "
                "Send fewer."
            )
        hosts = headers.get(b"host", [])
        match = _HOST.fullmatch(hosts[0].lower()) if len(hosts) == 1 else None
        if scope["path"] not in self.any_host and (
            match is None or match[1].strip("[]") not in self.hosts
        ):
            raise HostNotAllowed
        own = {f"{scheme}://{host}" for scheme in ("http", "https") for host in hosts}
        for origin in headers.get(b"origin", []):
            if origin not in self.origins and origin not in own:
                raise OriginNotAllowed
        lengths = headers.get(b"content-length", [])
        if lengths and b"transfer-encoding" in headers:
            # With two lengths, a proxy may take the rest for the next request.
            raise Invalid("The request has Content-Length and Transfer-Encoding. Send one.")
        for length in lengths:
            if int(length) > self.body_bytes_max:
                raise BodyTooLarge(
                    f"A request body may have {self.body_bytes_max} bytes. Send it in parts."
                )


@dataclass(frozen=True)
class RequestBody:
    """Checks size, encoding and depth of the body of a POST or a PATCH, which it reads at once."""

    body_bytes_max: int
    json_depth_max: int
    _pace: Pace = field(default_factory=lambda: Pace(LONG_BODY_BYTES_PER_S, PACE_WAIT_MAX_S))

    async def read(self, scope: Scope, receive: Receive, send: Send) -> Receive | None:
        """Return what replays the body as if it had not been read; None if the client has gone, or
        was answered with a refusal.
        """
        if scope["method"] not in BODY_METHODS:
            return receive
        try:
            body = await self._body(scope, receive)
        except (RecallError, MemoryError) as raised:
            error = raised if isinstance(raised, RecallError) else OutOfMemory()
            log.info("refused", code=error.code)
            response = refusal(scope, error)
            if isinstance(error, Busy):
                response.headers["Retry-After"] = str(BUSY_AGAIN_S)
            await _refused(response, scope, receive, send)
            return None
        if body is None:
            return None
        unread = True

        async def replayed() -> Message:
            nonlocal unread
            if unread:
                unread = False
                return {"type": "http.request", "body": body, "more_body": False}
            return await receive()

        return replayed

    async def _body(self, scope: Scope, receive: Receive) -> bytes | None:
        """Return the checked body; None if the client has gone before its end, since half a request
        is no request.
        """
        parts: list[bytes] = []
        size = 0
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > self.body_bytes_max:
                raise BodyTooLarge(
                    f"A request body may have {self.body_bytes_max} bytes. Send it in parts."
                )
            if size > PACED_FROM_BYTES:
                key, now = scope[CALLER].namespace, asyncio.get_running_loop().time()
                wait_s = self._pace.wait_s(key, len(parts[-1]), now)
                if wait_s is None:
                    raise Busy("Too many long bodies come at once. Wait, then send it again.")
                await asyncio.sleep(wait_s)
            more = message.get("more_body", False)
        body = b"".join(parts)
        if not body:
            return body  # the path is enough, as for cancelling a task
        headers = dict(scope["headers"])
        kind = headers.get(b"content-type", b"").lower().partition(b";")[0].strip()
        encoding = headers.get(b"content-encoding", b"").lower()
        if kind not in JSON_KINDS or encoding not in (b"", b"identity"):
            raise UnsupportedMedia
        if len(body) > INLINE_UP_TO_BYTES:
            check = asyncio.to_thread(check_json, body, self.json_depth_max)
            scope["recall.json"] = await check
        else:
            scope["recall.json"] = check_json(body, self.json_depth_max)
        return body


def _closed_unless_read(receive: Receive, send: Send) -> tuple[Receive, Send]:
    """Send the answer to a request whose body may have any length; an answer before the end of the
    body closes the connection.
    """
    more = True

    async def reading() -> Message:
        nonlocal more
        message = await receive()
        more = message.get("more_body", False)
        return message

    async def ending(message: Message) -> None:
        if more and message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], (b"connection", b"close")]
        await send(message)

    return reading, ending


async def _refused(response: Response, scope: Scope, receive: Receive, send: Send) -> None:
    # Otherwise the unread rest of the body would be taken for the next request.
    response.headers["Connection"] = "close"
    await response(scope, receive, send)


def check_json(body: bytes, depth_max: int) -> Any:
    """Raise `MalformedBody` on JSON that parsers read differently or fail on: other encodings than
    UTF-8, a byte order mark, a name that occurs twice in an object, invalid numbers, nesting deeper
    than `depth_max`, or more values than a call has.
    """
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        raise MalformedBody("The body is not UTF-8. Send it in UTF-8.") from None
    opened = body.count(b"[") + body.count(b"{")
    # So few brackets can be neither too deep nor too many, even if all count.
    if opened > depth_max or opened + body.count(b",") > JSON_VALUES_MAX:
        _check_structure(body, depth_max)
    try:
        value = json.loads(text, object_pairs_hook=unique_names, parse_constant=no_number)
    except (ValueError, RecursionError):
        raise MalformedBody from None
    if _SURROGATE.search(body):
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise InvalidText from None
    return value


def _check_structure(body: bytes, depth_max: int) -> None:
    depth = values = strings = 0
    for match in _STRUCTURE.finditer(body):
        token = match[0]
        if token in b"]}":
            depth -= 1
        elif token in b"[{,":
            depth += token != b","
            values += 1
        else:
            strings += 1
        if depth > depth_max:
            raise MalformedBody(f"The body is nested deeper than {depth_max}. Send it flatter.")
        # Each value has at most two tokens, its name and itself: no more is read of a body that is
        # not JSON than of the largest JSON.
        if depth < 0 or strings > 2 * JSON_VALUES_MAX:
            raise MalformedBody
        if values > JSON_VALUES_MAX:
            raise MalformedBody(
                f"The body has more than {JSON_VALUES_MAX} values. Send it in parts."
            )


_JSON = (
    b"application/json",
    b"application/problem+json",
    b"application/a2a+json",
    b"text/event-stream",
)


@dataclass(frozen=True)
class RewrittenJson:
    """Rewrites answers in JSON, and the events of streams of JSON. Pure ASGI."""

    app: ASGIApp
    rewrite: Callable[[bytes], bytes]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answering = _Answer(send, self.rewrite) if scope["type"] == "http" else send
        await self.app(scope, receive, answering)


@dataclass
class _Answer:
    """One answer that is being sent. Each event of a stream comes in one chunk and is sent at once;
    an answer with a stated length waits until the new length is known.
    """

    send: Send
    rewrite: Callable[[bytes], bytes]
    json: bool = False
    start: Message | None = None
    body: bytes = b""

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            measured = False
            for name, value in message["headers"]:
                lower = name.lower()
                if lower == b"content-type":
                    self.json = value.lower().startswith(_JSON)
                measured = measured or lower == b"content-length"
            if self.json and measured:
                self.start = message
                return
        elif message["type"] == "http.response.body" and self.json:
            self.body += message.get("body", b"")
            if self.start is not None and message.get("more_body", False):
                return
            body = self.rewrite(self.body)
            if self.start is not None:
                if len(body) != len(self.body):
                    _set_length(self.start, len(body))
                await self.send(self.start)
            message = {**message, "body": body}
            self.body = b""
        await self.send(message)


def escaped(body: bytes) -> bytes:
    """Return JSON with characters that act on a terminal, or hide, escaped."""
    try:
        return plain_json(body.decode()).encode()
    except UnicodeDecodeError:
        return body


def _set_length(start: Message, length: int) -> None:
    start["headers"] = [
        (name, str(length).encode() if name.lower() == b"content-length" else value)
        for name, value in start["headers"]
    ]


PREFLIGHT_MAX_AGE_S = 600
_SENT = (
    *("Authorization", "Content-Type", "Accept", "A2A-Version", "A2A-Extensions"),
    *("Mcp-Protocol-Version", "Mcp-Session-Id", "Mcp-Method", "Mcp-Name", "Last-Event-ID"),
    RECEIPT_HEADER,
)
_READ = (
    *("WWW-Authenticate", "Retry-After", "RateLimit-Limit", "RateLimit-Remaining"),
    *("RateLimit-Reset", "Content-Disposition", "Allow", "Mcp-Session-Id", "A2A-Extensions"),
)


class CrossOrigin:
    """Lets the web pages of allowed origins read answers (CORS). It is outermost, so that they can
    read refusals too; requests of other origins go on unchanged, and `RequestValidation` refuses
    them.
    """

    def __init__(self, app: ASGIApp, origins: Iterable[str]) -> None:
        self.app = app
        self._origins = frozenset(origin.encode("latin-1") for origin in origins)
        self._allowing = CORSMiddleware(
            app,
            allow_origins=[*origins],
            allow_methods=["GET", "POST", "PATCH", "DELETE"],
            allow_headers=_SENT,
            expose_headers=_READ,
            max_age=PREFLIGHT_MAX_AGE_S,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        allowed = scope["type"] == "http" and any(
            name == b"origin" and value in self._origins for name, value in scope["headers"]
        )
        await (self._allowing if allowed else self.app)(scope, receive, send)
