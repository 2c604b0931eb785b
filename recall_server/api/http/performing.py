"""The plain routes: is the process alive, and can it serve?"""

from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus
from typing import TypeVar

import structlog
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Match, Route

from recall_server import __version__
from recall_server.api import answers, presenters
from recall_server.api.a2a.card import CARD_PATH, JWKS_PATH
from recall_server.api.arguments import Arguments
from recall_server.api.caller import caller_of
from recall_server.api.middleware.challenges import METADATA_PATHS
from recall_server.api.perform import Calls
from recall_server.domain.audit import AuditEntry
from recall_server.domain.errors import Invalid, NotFound, RecallError
from recall_server.domain.findings import Finding

log = structlog.get_logger()

PROTOCOL = "http"
T = TypeVar("T")
A = TypeVar("A", bound=Arguments)

OPEN_PATHS = frozenset({"/health", "/ready", CARD_PATH, JWKS_PATH, *METADATA_PATHS})
# Needs a secret of its own instead of a token, which an erasure has revoked.
RECEIPTS = "/v1/receipts/"
OPEN_UNDER = (RECEIPTS,)


def routes(
    check: Callable[[], Awaitable[None]],
    stopping: Callable[[], bool],
    space_warnings: Callable[[], Sequence[Finding]],
) -> list[Route]:
    """`/health` answers while the process lives, `/ready` while it can serve (FEATURES J05), and
    names what will stop it from that: the log has the sentence, once.
    """
    told: set[str] = set()

    async def health(_: Request) -> JSONResponse:
        return JSONResponse({"status": "ok", "version": __version__})

    async def ready(_: Request) -> JSONResponse:
        if stopping():
            return JSONResponse({"status": "stopping"}, 503)
        try:
            await check()
        except RecallError as error:
            return answers.http_error(error)
        warnings = {one.check: one for one in space_warnings()}
        for name in warnings.keys() - told:
            log.warning("unsafe", check=name, text=warnings[name].text)
        told.intersection_update(warnings)
        told.update(warnings)
        return JSONResponse({"status": "ready", **({"warnings": [*warnings]} if warnings else {})})

    return [Route("/health", health), Route("/ready", ready)]


async def performed(
    calls: Calls,
    request: Request,
    operation: str,
    work: Callable[[AuditEntry], Awaitable[T]],
    shown: Callable[[T], Response] = answers.answer,  # type: ignore[assignment]
    *,
    reads_query: bool = False,
) -> Response:
    """The answer to a plain request: what `work` returns as `shown`, or its error as one. Unless
    `work` reads the query of the request, there must be none: a dry_run that stands in the wrong
    place must not be passed over.
    """
    caller = caller_of(request.scope)

    async def checked(entry: AuditEntry) -> T:
        if not reads_query:
            queried(request, Arguments)
        # The edge reads those of POST alone.
        if request.method != "POST" and _has_body(request):
            raise Invalid("This takes no body. Say it in the query, or leave it out.")
        return await work(entry)

    try:
        found = await calls.perform(caller, PROTOCOL, operation, checked)
    except RecallError as error:
        return answers.http_error(error)
    return shown(found)


def _has_body(request: Request) -> bool:
    given = request.headers
    return given.get("content-length", "0") != "0" or "transfer-encoding" in given


def queried(request: Request, model: type[A]) -> A:
    """What the query of a request says. Raises `Invalid` where it says something that `model` does
    not know, or twice.
    """
    given = request.query_params.multi_items()
    if len(dict(given)) < len(given):
        raise Invalid("The query names something twice. Say each thing once.")
    return model.parse(dict(given), "the query")


def created(data: presenters.Json) -> Response:
    """`shown`, of what is new."""
    return answers.answer(data, HTTPStatus.CREATED)


async def not_found(_: Request, __: Exception) -> JSONResponse:
    return answers.http_error(NotFound("There is nothing at this path. MCP is at /mcp."))


async def method_not_allowed(request: Request, error: Exception) -> JSONResponse:
    """Names all methods of the path: each of our routes has one, and knows of no other."""
    known = (error.headers or {}).get("Allow", "") if isinstance(error, HTTPException) else ""
    allowed = {one for one in known.split(", ") if one}
    for route in request.app.routes:
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE:
            allowed |= route.methods or set()
    named = ", ".join(sorted(allowed))
    return answers.http_error(
        answers.MethodNotAllowed(f"This path takes {named}."), {"Allow": named}
    )
