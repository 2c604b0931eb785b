"""Health checks, and the answers for paths and methods that do not exist."""

from collections.abc import Awaitable, Callable, Sequence

import structlog
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Match, Route

from recall_server import __version__
from recall_server.api.problems import MethodNotAllowed, Problem, problem
from recall_server.domain.errors import NotFound, RecallError
from recall_server.domain.findings import Finding

log = structlog.get_logger()

HEALTH_PATH = "/health"
READY_PATH = "/ready"


def routes(
    check: Callable[[], Awaitable[None]],
    stopping: Callable[[], bool],
    space_warnings: Callable[[], Sequence[Finding]],
) -> list[Route]:
    """`/health` answers while the process lives, `/ready` while it can serve, and names what will
    stop it from that; each such warning is logged once.
    """
    logged: set[str] = set()

    async def health(_: Request) -> JSONResponse:
        return JSONResponse({"status": "ok", "version": __version__})

    async def ready(_: Request) -> JSONResponse:
        if stopping():
            return JSONResponse({"status": "stopping"}, 503)
        try:
            await check()
        except RecallError as error:
            return problem(error)
        warnings = {one.check: one for one in space_warnings()}
        for name in warnings.keys() - logged:
            log.warning("unsafe", check=name, text=warnings[name].text)
        logged.intersection_update(warnings)
        logged.update(warnings)
        return JSONResponse({"status": "ready", **({"warnings": [*warnings]} if warnings else {})})

    return [Route(HEALTH_PATH, health), Route(READY_PATH, ready)]


async def not_found(_: Request, __: Exception) -> Problem:
    return problem(NotFound("There is nothing at this path. MCP is at /mcp, a list at /docs."))


async def method_not_allowed(request: Request, error: Exception) -> Problem:
    """Names all methods of the path: each route has one, and knows of no other."""
    known = (error.headers or {}).get("Allow", "") if isinstance(error, HTTPException) else ""
    allowed = {one for one in known.split(", ") if one}
    for route in request.app.routes:
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE:
            allowed |= route.methods or set()
    named = ", ".join(sorted(allowed))
    return problem(MethodNotAllowed(f"This path takes {named}."), {"Allow": named})
