"""A file as the answer to a plain request."""

import asyncio
from contextlib import aclosing

import structlog
from starlette.responses import StreamingResponse
from starlette.types import Send

from recall_server.api.operations.operation import Download
from recall_server.domain.errors import RecallError

log = structlog.get_logger()

# The snapshot is kept open meanwhile; Postgres gives up on one that is idle for a minute.
STALL_S = 30.0


class DownloadResponse(StreamingResponse):
    """Pieces as a file. A reader that takes nothing for `STALL_S` seconds loses the connection; a
    file without its last line is not whole.
    """

    def __init__(self, download: Download) -> None:
        super().__init__(
            download.pieces,
            media_type=download.media_type,
            headers={
                "Content-Disposition": f'attachment; filename="{download.name}"',
                "Cache-Control": "no-store",
            },
        )
        self._first = download.first
        self._pieces = download.pieces

    async def stream_response(self, send: Send) -> None:
        async with aclosing(self._pieces):
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            try:
                await _send_piece(send, self._first)
                async for piece in self._pieces:
                    await _send_piece(send, piece)
            except (RecallError, TimeoutError) as error:
                # The status is sent; the missing end of the body is what tells the reader.
                log.warning("export_broken_off", reason=type(error).__name__)
                return
            await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _send_piece(send: Send, piece: bytes) -> None:
    async with asyncio.timeout(STALL_S):
        await send({"type": "http.response.body", "body": piece, "more_body": True})
