"""Errors as A2A spells them, on each binding. They hold sentences of ours: neither what was sent
nor what broke inside.
"""

import functools
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextlib import aclosing, contextmanager
from http import HTTPStatus
from typing import Any, ParamSpec, TypeVar
from uuid import uuid4

import structlog
from a2a.server.jsonrpc_models import JSONParseError, JSONRPCError
from a2a.server.request_handlers.request_handler import validate_request_params
from a2a.server.request_handlers.response_helpers import EXCEPTION_MAP, build_error_response
from a2a.utils.error_handlers import build_rest_error_payload
from a2a.utils.errors import (
    A2A_ERROR_MAPPING,
    A2A_ERROR_REASONS,
    JSON_RPC_ERROR_CODE_MAP,
    A2AError,
    ContentTypeNotSupportedError,
    ErrorMapping,
    InternalError,
    InvalidParamsError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from starlette.responses import JSONResponse
from starlette.types import Scope

from recall_server.api.a2a.card import JSONRPC_PATH, REST_PATH
from recall_server.api.middleware.request_validation import MalformedBody, UnsupportedMedia
from recall_server.api.problems import problem
from recall_server.domain.errors import (
    Denied,
    Invalid,
    InvalidText,
    LimitReached,
    NotFound,
    RecallError,
    Stale,
    TaskNotFound,
)
from recall_server.domain.external_errors import PushConfigNotFound

log = structlog.get_logger()

P = ParamSpec("P")
T = TypeVar("T")


class PermissionDeniedError(A2AError):
    """The caller's token may not do that. A2A leaves its spelling to the server (specification
    3.3.2); the SDK has none.
    """

    message = "Permission denied"


EXCEPTION_MAP[PermissionDeniedError] = JSONRPCError
JSON_RPC_ERROR_CODE_MAP[PermissionDeniedError] = -32043
A2A_ERROR_MAPPING[PermissionDeniedError] = ErrorMapping(
    HTTPStatus.FORBIDDEN.value, "PERMISSION_DENIED", "PERMISSION_DENIED"
)
A2A_ERROR_REASONS[PermissionDeniedError] = "PERMISSION_DENIED"


def translated(error: RecallError) -> A2AError:
    """The error as A2A spells it; our code stands in its details."""
    data = {"code": error.code}
    if isinstance(error, TaskNotFound | PushConfigNotFound):
        return TaskNotFoundError(error.message, data)
    if isinstance(error, Stale):
        return UnsupportedOperationError(error.message, data)
    if isinstance(error, UnsupportedMedia):
        return ContentTypeNotSupportedError(error.message, data)
    if isinstance(error, Denied):
        return PermissionDeniedError(error.message, data)
    if isinstance(error, Invalid | LimitReached | NotFound):
        return InvalidParamsError(error.message, data)
    return InternalError(error.message, data)


def invalid(field: str, why: str) -> InvalidParamsError:
    """An error about one field, in a sentence and for programs."""
    return InvalidParamsError(f"{field}: {why}", {"errors": [{"field": field, "message": why}]})


@contextmanager
def _as_a2a_errors() -> Iterator[None]:
    """The SDK shows a client the text of an exception, so it gets none but those of A2A."""
    try:
        yield
    except A2AError:
        raise
    except RecallError as error:
        raise translated(error) from None
    except Exception:
        reference = uuid4().hex
        log.exception("a2a_failed", request_id=reference)
        raise InternalError(f"internal error (ref {reference})") from None


def answered(
    method: Callable[P, Coroutine[Any, Any, T]],
) -> Callable[P, Coroutine[Any, Any, T]]:
    """A method of A2A: required fields are there, and what it raises is an error of A2A."""
    checked = validate_request_params(method)

    @functools.wraps(method)
    async def guarded(*args: P.args, **kwargs: P.kwargs) -> T:
        with _as_a2a_errors():
            result: T = await checked(*args, **kwargs)
            return result

    return guarded


def streamed(method: Callable[P, AsyncGenerator[T]]) -> Callable[P, AsyncGenerator[T]]:
    """As `answered`, for a method that yields."""
    checked = validate_request_params(method)

    @functools.wraps(method)
    async def guarded(*args: P.args, **kwargs: P.kwargs) -> AsyncGenerator[T]:
        with _as_a2a_errors():
            async with aclosing(checked(*args, **kwargs)) as events:
                async for event in events:
                    yield event

    return guarded


def rpc_error(body: Any, error: A2AError) -> JSONResponse:
    """The answer of JSON-RPC to a request that is not taken."""
    request_id = body.get("id") if isinstance(body, dict) else None
    return JSONResponse(build_error_response(request_id if is_id(request_id) else None, error))


def is_id(value: Any) -> bool:
    """Whether JSON-RPC allows it as the id of a request."""
    return isinstance(value, str | int) and not isinstance(value, bool)


def unreadable(message: str) -> JSONResponse:
    """The answer of JSON-RPC to what is no JSON."""
    return JSONResponse(build_error_response(None, JSONParseError(message=message)))


def refusal(scope: Scope, error: RecallError) -> JSONResponse:
    """The answer to a request that the edge refuses, as the binding at its path spells errors."""
    plain = problem(error)
    path = scope["path"]
    if path in (JSONRPC_PATH, f"{JSONRPC_PATH}/") and isinstance(
        error, MalformedBody | InvalidText
    ):
        return unreadable(error.message)
    if path.startswith(f"{REST_PATH}/") and isinstance(error, Invalid | LimitReached):
        shown = build_rest_error_payload(translated(error))
        shown["error"]["code"] = plain.status_code
        if plain.status_code == HTTPStatus.TOO_MANY_REQUESTS:
            shown["error"]["status"] = "RESOURCE_EXHAUSTED"
        return JSONResponse(shown, plain.status_code, headers={"Cache-Control": "no-store"})
    return plain
