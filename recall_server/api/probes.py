"""Health checks for supervisors of a process, on the port of the protocols and on one of their own.
They need no token, and answer to any host name.

This module loads no protocol, since a worker has health checks too.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import JSONResponse, Response

from recall_server import __version__
from recall_server.api.problems import problem
from recall_server.application import Application
from recall_server.config import Settings
from recall_server.domain.errors import Invalid, NotFound, RecallError

HEALTH_PATH = "/health"
READY_PATH = "/ready"
METRICS_PATH = "/metrics"
# The paths that proxies and clients of other memory servers ask for.
OTHER_HEALTH_PATHS = ("/api/health", "/api/v1/health")
PROBES = frozenset({HEALTH_PATH, READY_PATH, *OTHER_HEALTH_PATHS})
"""Never refused: else anybody behind the same proxy could have a supervisor restart the server."""

Answer = Callable[..., Awaitable[Response]]

_HEAD_BYTES_MAX = 8_192
_CLIENT_S = 5.0
_CLIENTS_MAX = 32


def answers(application: Application) -> Mapping[str, Answer]:
    """Return the answer of each path: `/health` while the process lives, `/ready` while it can
    serve, with the names of warnings for the operator.
    """

    async def health(*_: object) -> Response:
        return JSONResponse({"status": "ok", "version": __version__})

    async def ready(*_: object) -> Response:
        if application.stopping:
            return JSONResponse({"status": "stopping"}, 503)
        if application.starting():
            return JSONResponse({"status": "starting"}, 503)
        try:
            warnings = [one.check for one in await application.ready()]
        except RecallError as error:
            return problem(error)
        return JSONResponse({"status": "ready", **({"warnings": warnings} if warnings else {})})

    return {**dict.fromkeys((HEALTH_PATH, *OTHER_HEALTH_PATHS), health), READY_PATH: ready}


def with_metrics(application: Application) -> Mapping[str, Answer]:
    """Return `answers` and the metrics, which are for the operator's network only."""

    async def metrics() -> Response:
        found = await application.services.metrics.exposed(
            application.store, application.runtime.now()
        )
        return Response(found, media_type=CONTENT_TYPE_LATEST)

    return {**answers(application), METRICS_PATH: metrics}


@asynccontextmanager
async def probing(settings: Settings, given: Mapping[str, Answer]) -> AsyncIterator[int | None]:
    """Answer on the port of the probes for the duration of the block, and yield the port. Raises
    `Invalid` if it cannot listen there.
    """
    if settings.probe_port is None:
        yield None
        return
    clients = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal clients
        clients += 1
        try:
            if clients <= _CLIENTS_MAX:
                async with asyncio.timeout(_CLIENT_S):
                    writer.write(_written(await _answer(reader, given)))
                    await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            clients -= 1
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    host, port = settings.probe_host, settings.probe_port
    try:
        server = await asyncio.start_server(serve, host, port, limit=_HEAD_BYTES_MAX)
    except OSError as error:
        why = error.strerror or socket.gaierror.__name__
        raise Invalid(
            f"Cannot listen on {host}:{port} for probes ({why}). Choose another RECALL_PROBE_PORT."
        ) from None
    async with server:
        yield int(server.sockets[0].getsockname()[1])


async def _answer(reader: asyncio.StreamReader, given: Mapping[str, Answer]) -> Response:
    head = await reader.readuntil(b"\r\n\r\n")
    method, _, rest = head.partition(b" ")
    path = rest.partition(b" ")[0].partition(b"?")[0].decode("latin-1")
    if method != b"GET" or path not in given:
        return problem(NotFound(f"There is nothing here but GET {', '.join(given)}."))
    return await given[path]()


def _written(response: Response) -> bytes:
    headers = {**response.headers, "connection": "close"}
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {response.status_code} \r\n{lines}\r\n".encode("latin-1") + bytes(
        response.body
    )
