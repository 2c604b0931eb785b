"""What leaves by any door as JSON is safe to print: control characters, bidi marks and the like
stand in it as JSON's own escapes, so that the data is exact and `curl` in a terminal obeys nothing
(SECURITY LLM-12, LOG-05).

Data stays data: what a program reads from the JSON is what was stored, to the character. What is
shown as text - the text parts of A2A, the tables of the command line - goes through
`domain.text.visible` instead, where it is made.
"""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from recall_server.domain.text.cleaning import plain_json

_JSON = (
    b"application/json",
    b"application/problem+json",
    b"application/a2a+json",
    b"text/event-stream",
)


class EscapeControlCharacters:
    """Pure ASGI, around all doors."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, _Answer(send) if scope["type"] == "http" else send)


class _Answer:
    """One answer on its way out. Of a stream each event comes whole, in one chunk, and goes at
    once; what states its length waits until the length is known.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self._json = False
        self._start: Message | None = None
        self._body = b""

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = {name.lower(): value for name, value in message["headers"]}
            self._json = headers.get(b"content-type", b"").lower().startswith(_JSON)
            if self._json and b"content-length" in headers:
                self._start = message
                return
        elif message["type"] == "http.response.body" and self._start is not None:
            self._body += message.get("body", b"")
            if message.get("more_body", False):
                return
            body = _plain(self._body)
            await self._send(_measured(self._start, len(body)))
            message = {**message, "body": body}
        elif message["type"] == "http.response.body" and self._json:
            message = {**message, "body": _plain(message.get("body", b""))}
        await self._send(message)


def _plain(body: bytes) -> bytes:
    if body.isascii() and b"\x7f" not in body:
        return body
    try:
        return plain_json(body.decode()).encode()
    except UnicodeDecodeError:
        return body


def _measured(start: Message, length: int) -> Message:
    headers = [
        (name, str(length).encode() if name.lower() == b"content-length" else value)
        for name, value in start["headers"]
    ]
    return {**start, "headers": headers}
