"""`GET /v1/export`: all that the namespace of the token holds, as JSON Lines."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import structlog
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Send

from recall_server.api.arguments import Arguments
from recall_server.api.caller import caller_of
from recall_server.api.http.performing import performed, queried
from recall_server.api.perform import Calls
from recall_server.domain.audit import AuditEntry
from recall_server.domain.errors import RecallError
from recall_server.services import Services
from recall_server.services.transfer.export import OPERATION

log = structlog.get_logger()

# The snapshot is kept open meanwhile; Postgres gives up on one that rests for a minute.
STALL_S = 30.0


class Export(Arguments):
    """The query of a request."""

    subject: str | None = None


class ExportRoutes:
    """`GET /v1/export`, `GET /v1/export?subject=NAME`."""

    def __init__(self, services: Services, calls: Calls) -> None:
        self._services = services
        self._calls = calls

    def routes(self) -> list[Route]:
        return [Route("/v1/export", self._export, methods=["GET"])]

    async def _export(self, request: Request) -> Response:
        namespace = caller_of(request.scope).namespace

        async def work(entry: AuditEntry) -> tuple[bytes, AsyncGenerator[bytes, None]]:
            # A name that is misspelt must not turn into everybody.
            subject = queried(request, Export).subject
            pieces = self._services.export.stream(namespace, subject=subject, entry=entry)
            # What may fail does so before the answer has begun.
            return await anext(pieces), pieces

        return await performed(
            self._calls,
            request,
            OPERATION,
            work,
            lambda begun: Download(namespace, *begun),
            reads_query=True,
        )


class Download(StreamingResponse):
    """Pieces as a file. A reader that takes nothing for `STALL_S` seconds loses it, and one who
    gets no `end` line has not got all.
    """

    def __init__(self, name: str, first: bytes, pieces: AsyncGenerator[bytes, None]) -> None:
        super().__init__(
            pieces,
            media_type="application/x-ndjson",
            headers={
                "Content-Disposition": f'attachment; filename="{name}.jsonl"',
                "Cache-Control": "no-store",
            },
        )
        self._first = first
        self._pieces = pieces

    async def stream_response(self, send: Send) -> None:
        async with aclosing(self._pieces):
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            try:
                await _sent(send, self._first)
                async for piece in self._pieces:
                    await _sent(send, piece)
            except (RecallError, TimeoutError) as error:
                # The status is out; the missing end of the body is what tells the reader.
                log.warning("export_broken_off", reason=type(error).__name__)
                return
            await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _sent(send: Send, piece: bytes) -> None:
    async with asyncio.timeout(STALL_S):
        await send({"type": "http.response.body", "body": piece, "more_body": True})
