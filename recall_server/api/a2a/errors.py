"""Errors in the form of A2A, on each binding. They contain only our own sentences: neither values
that were sent nor details of internal errors.
"""

import functools
import re
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextlib import aclosing, contextmanager
from http import HTTPStatus
from typing import Any, ParamSpec, TypeVar
from uuid import uuid4

import structlog
from a2a.compat.v0_3 import conversions
from a2a.server.jsonrpc_models import JSONParseError, JSONRPCError
from a2a.server.request_handlers.request_handler import validate_request_params
from a2a.server.request_handlers.response_helpers import EXCEPTION_MAP, build_error_response
from a2a.server.routes.jsonrpc_dispatcher import JsonRpcDispatcher
from a2a.types import (
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTasksRequest,
    SendMessageRequest,
    TaskPushNotificationConfig,
    TaskState,
)
from a2a.utils.constants import VERSION_HEADER
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
    InvalidRequestError,
    MethodNotFoundError,
    TaskNotFoundError,
    UnsupportedOperationError,
    VersionNotSupportedError,
)
from a2a.utils.proto_utils import parse_params
from google.protobuf.json_format import Error as JsonFormatError
from google.protobuf.json_format import ParseDict
from google.protobuf.message import Message
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import Scope

from recall_server.api.a2a.card import JSONRPC_PATH, REST_PATH
from recall_server.api.problems import MalformedBody, UnsupportedMedia, problem
from recall_server.domain.errors import (
    Denied,
    Invalid,
    InvalidText,
    LimitReached,
    NotFound,
    PushConfigNotFound,
    RecallError,
    Stale,
    TaskNotFound,
)
from recall_server.domain.text.cleaning import has_more_values

# This comes after the import of the routes, since the two modules import each other.
from a2a.compat.v0_3.jsonrpc_adapter import JSONRPC03Adapter  # isort: skip

log = structlog.get_logger()

P = ParamSpec("P")
T = TypeVar("T")


class PermissionDeniedError(A2AError):
    """The caller's token may not do that. A2A leaves the form of this error to the server
    (specification 3.3.2), and the SDK has none.
    """

    message = "Permission denied"


EXCEPTION_MAP[PermissionDeniedError] = JSONRPCError
JSON_RPC_ERROR_CODE_MAP[PermissionDeniedError] = -32043
A2A_ERROR_MAPPING[PermissionDeniedError] = ErrorMapping(
    HTTPStatus.FORBIDDEN.value, "PERMISSION_DENIED", "PERMISSION_DENIED"
)
A2A_ERROR_REASONS[PermissionDeniedError] = "PERMISSION_DENIED"


def translated(error: RecallError) -> A2AError:
    """Return the error in the form of A2A; our code is in its details."""
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
    """Return an error about one field, in a sentence and for programs."""
    return InvalidParamsError(f"{field}: {why}", {"errors": [{"field": field, "message": why}]})


@contextmanager
def _as_a2a_errors() -> Iterator[None]:
    """Raise only errors of A2A, since the SDK shows a client the text of any exception."""
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


def answered(method: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Wrap a method of A2A: check its required fields, and raise only errors of A2A."""
    checked = validate_request_params(method)

    @functools.wraps(method)
    async def guarded(*args: P.args, **kwargs: P.kwargs) -> T:
        with _as_a2a_errors():
            result: T = await checked(*args, **kwargs)
            return result

    return guarded


def streamed(method: Callable[P, AsyncGenerator[T]]) -> Callable[P, AsyncGenerator[T]]:
    """Wrap a method that yields, as `answered` does."""
    checked = validate_request_params(method)

    @functools.wraps(method)
    async def guarded(*args: P.args, **kwargs: P.kwargs) -> AsyncGenerator[T]:
        with _as_a2a_errors():
            async with aclosing(checked(*args, **kwargs)) as events:
                async for event in events:
                    yield event

    return guarded


def rpc_error(body: Any, error: A2AError) -> JSONResponse:
    request_id = body.get("id") if isinstance(body, dict) else None
    return JSONResponse(build_error_response(request_id if is_id(request_id) else None, error))


def is_id(value: Any) -> bool:
    """Return True if JSON-RPC allows the value as the id of a request."""
    return isinstance(value, str | int) and not isinstance(value, bool)


def unreadable(message: str) -> JSONResponse:
    """Return the answer of JSON-RPC to a body that is not JSON."""
    return JSONResponse(build_error_response(None, JSONParseError(message=message)))


def refusal(scope: Scope, error: RecallError) -> JSONResponse:
    """Return the answer to a request that middleware refuses, in the form of the binding at its
    path.
    """
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


OLD = "0.3"
# The values that a request may have: enough for the longest answer that is taken. The SDK reads
# each value several times, a tenth of a millisecond in all, while no other request is served.
VALUES_MAX = 4_000
_VERSION = re.compile(r"(0\.3|1\.0)(?:\.[0-9]{1,3})?", re.ASCII)
_FIELD = re.compile(r"Failed to parse (\w+) field: ")
_PLACE = re.compile(rf"(?:{_FIELD.pattern})+")
_PACKAGE = SendMessageRequest.DESCRIPTOR.file.package
_ENVELOPE = {"jsonrpc", "id", "method", "params"}
# The errors of a parser if a value has another type, is too large, or is nested too deeply.
_MISREAD = (JsonFormatError, ValueError, TypeError, ArithmeticError, LookupError, AttributeError)

# The message that each REST endpoint, by its name in the SDK, reads from a body or a query.
_REST: dict[str, type[Message]] = {
    "on_message_send": SendMessageRequest,
    "on_message_send_stream": SendMessageRequest,
    "set_push_notification": TaskPushNotificationConfig,
    "on_get_task": GetTaskRequest,
    "list_tasks": ListTasksRequest,
    "list_push_notifications": ListTaskPushNotificationConfigsRequest,
}
# The methods of 0.3 whose requests can be unreadable although their shape was found valid.
_FROM_OLD: dict[str, Callable[[Any], Any]] = {
    "message/send": conversions.to_core_send_message_request,
    "message/stream": conversions.to_core_send_message_request,
    "tasks/get": conversions.to_core_get_task_request,
}


def version_of(request: Request) -> str:
    """Return the version of a request, Major.Minor, by default 0.3. Raises if it is unknown."""
    given = request.headers.get(VERSION_HEADER) or request.query_params.get(VERSION_HEADER) or OLD
    match = _VERSION.fullmatch(given)
    if match is None:
        raise VersionNotSupportedError("This agent speaks A2A 1.0 and 0.3.")
    return match[1]


def check_new_enough(version: str) -> None:
    """Raise on a request of 1.0 without its version, as the SDK does, but say what to do."""
    if version == OLD:
        raise VersionNotSupportedError(
            f"Send the header '{VERSION_HEADER}: 1.0': without it a request speaks {OLD}, which "
            "has this under another name, over JSON-RPC only."
        )


def check_call(body: Any, version: str) -> None:
    """Raise if the body is not a JSON-RPC request, or lacks parameters of its method."""
    if isinstance(body, list):
        raise InvalidRequestError("Batches are not taken. Send one request at a time.")
    _check_size(body)
    if not isinstance(body, dict) or body.get("jsonrpc") != "2.0" or not set(body) <= _ENVELOPE:
        raise InvalidRequestError("Send a JSON-RPC 2.0 request: jsonrpc, id, method and params.")
    if "id" not in body or not (body["id"] is None or is_id(body["id"])):
        raise InvalidRequestError("A request has an id, a text or a whole number, to be answered.")
    method, params = body.get("method"), body.get("params", {})
    if not isinstance(method, str) or not method:
        raise InvalidRequestError("A request has a method, by its name.")
    if not isinstance(params, dict):
        raise invalid("params", "it must be an object.")
    if method in JSONRPC03Adapter.METHOD_TO_MODEL:
        if version != OLD:
            raise MethodNotFoundError
        _check_old(method, body)
    elif method in JsonRpcDispatcher.METHOD_TO_MODEL:
        check_new_enough(version)
        _check_new(params, JsonRpcDispatcher.METHOD_TO_MODEL[method])


def check_rest(request: Request) -> None:
    """Raise on a body or a query that the endpoint cannot read."""
    model = _REST.get(request.scope["endpoint"].__name__)
    if model is None:
        return
    if request.method == "POST":
        _check_size(request.scope.get("recall.json"))
        _check_new(request.scope.get("recall.json"), model)
    else:
        if model is ListTasksRequest:
            _check_state(request.query_params.get("status"))
        _read(lambda: parse_params(request.query_params, model()))


def _check_size(body: Any) -> None:
    if has_more_values(body, VALUES_MAX):
        raise invalid("params", f"it may have {VALUES_MAX} values. Send texts as one text.")


def _check_new(value: Any, model: type[Message]) -> None:
    if not isinstance(value, dict):
        raise invalid("body", "it must be a JSON object.")
    if model is ListTasksRequest:
        _check_state(value.get("status"))
    for field in model.DESCRIPTOR.fields:
        # The SDK would read the letters of a text as names of unknown fields.
        inner = field.message_type is not None and field.message_type.file.package == _PACKAGE
        if inner and not isinstance(value.get(field.json_name), dict | None):
            raise invalid(field.json_name, "it must be an object.")
    _read(lambda: ParseDict(value, model(), ignore_unknown_fields=True))


def _check_old(method: str, body: Any) -> None:
    model: Any = JSONRPC03Adapter.METHOD_TO_MODEL[method]
    _read(lambda: _FROM_OLD.get(method, bool)(model.model_validate(body)))


def _read(read: Callable[[], Any]) -> None:
    try:
        read()
    except _MISREAD as error:
        # The message begins with names of fields of the protocol; the rest may repeat what was
        # sent.
        place = _PLACE.match(str(error))
        field = ".".join(_FIELD.findall(place[0])) if place else ""
        raise invalid(field or "params", "it is not of its type, or too large.") from None


def _check_state(value: Any) -> None:
    known = value in TaskState.values() if type(value) is int else value in TaskState.keys()  # noqa: SIM118
    if value is not None and not known:
        raise invalid("status", "it must be a state of a task, as TASK_STATE_WORKING is.")
