"""Write whole numbers without a fraction. Protobuf knows only floats in data, and writes 6.0, which
typed clients do not accept as an integer.
"""

import re

from starlette.types import ASGIApp, Message, Receive, Scope, Send

# A text is matched as a whole, so that nothing in it is taken for a number.
_TEXT_OR_WHOLE = re.compile(rb'"(?:[^"\\]|\\.)*"|(-?[0-9]{1,15})\.0(?=[,}\]\s])')


def with_whole_numbers(body: bytes) -> bytes:
    """Return JSON, or an event of a stream of JSON, with 6 for 6.0."""
    if b".0" not in body:
        return body
    return _TEXT_OR_WHOLE.sub(lambda found: found[1] or found[0], body)


class WholeNumbers:
    """Pure ASGI. The length of an answer in one piece is set again; each event of a stream comes as
    a whole.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start: Message | None = None

        async def rewritten(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start":
                start = message
                return
            if message["type"] == "http.response.body":
                body = with_whole_numbers(message.get("body", b""))
                if start is not None:
                    await send(_measured(start, len(body)))
                    start = None
                message = {**message, "body": body}
            await send(message)

        await self._app(scope, receive, rewritten)


def _measured(start: Message, length: int) -> Message:
    headers = [
        (name, str(length).encode() if name == b"content-length" else value)
        for name, value in start["headers"]
    ]
    return {**start, "headers": headers}
