"""Every JSON answer is safe to print: control characters, bidi marks and the like stand in it as
JSON's own escapes, so that the data is exact and a terminal that shows it obeys nothing.

What is shown as text, as the text parts of A2A and the tables of the command line, goes through
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
    """Pure ASGI, around all protocols."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, _Answer(send) if scope["type"] == "http" else send)


class _Answer:
    """One answer on its way out. Of a stream each event comes whole, in one chunk, and goes at
    once; an answer that states its length waits until the length is known.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self._json = False
        self._start: Message | None = None
        self._body = b""

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            measured = False
            for name, value in message["headers"]:
                lower = name.lower()
                if lower == b"content-type":
                    self._json = value.lower().startswith(_JSON)
                measured = measured or lower == b"content-length"
            if self._json and measured:
                self._start = message
                return
        elif message["type"] == "http.response.body" and self._json:
            self._body += message.get("body", b"")
            if self._start is not None and message.get("more_body", False):
                return
            body = self._body
            if not body.isascii() or b"\x7f" in body:
                body = _escaped(body)
            if self._start is not None:
                if len(body) != len(self._body):
                    _set_length(self._start, len(body))
                await self._send(self._start)
            message = {**message, "body": body}
            self._body = b""
        await self._send(message)


def _escaped(body: bytes) -> bytes:
    try:
        return plain_json(body.decode()).encode()
    except UnicodeDecodeError:
        return body


def _set_length(start: Message, length: int) -> None:
    start["headers"] = [
        (name, str(length).encode() if name.lower() == b"content-length" else value)
        for name, value in start["headers"]
    ]
