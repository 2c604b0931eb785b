"""Checks of a request before the SDK reads it: the SDK's own refusals repeat what was sent, to
the client and to the log, and it takes a state that does not exist for none.
"""

import re
from collections.abc import Callable
from typing import Any

from a2a.compat.v0_3 import conversions
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
from a2a.utils.errors import (
    InvalidRequestError,
    MethodNotFoundError,
    VersionNotSupportedError,
)
from a2a.utils.proto_utils import parse_params
from google.protobuf.json_format import Error as JsonFormatError
from google.protobuf.json_format import ParseDict
from google.protobuf.message import Message
from starlette.requests import Request

from recall_server.api.a2a.errors import invalid, is_id

# After the routes: it and they import each other.
from a2a.compat.v0_3.jsonrpc_adapter import JSONRPC03Adapter  # isort: skip

OLD = "0.3"
# Of a request, and enough for the longest answer that is taken. The SDK reads each value several
# times over, a tenth of a millisecond in all, while no other request is served.
VALUES_MAX = 4_000
_VERSION = re.compile(r"(0\.3|1\.0)(?:\.[0-9]{1,3})?", re.ASCII)
_FIELD = re.compile(r"Failed to parse (\w+) field: ")
_PLACE = re.compile(rf"(?:{_FIELD.pattern})+")
_PACKAGE = SendMessageRequest.DESCRIPTOR.file.package
_ENVELOPE = {"jsonrpc", "id", "method", "params"}
# What reading raises where a value is of another type, too large, or nested too deeply.
_MISREAD = (JsonFormatError, ValueError, TypeError, ArithmeticError, LookupError, AttributeError)

# By the SDK's names of its REST endpoints: what they read of a body, or of a query.
_REST: dict[str, type[Message]] = {
    "on_message_send": SendMessageRequest,
    "on_message_send_stream": SendMessageRequest,
    "set_push_notification": TaskPushNotificationConfig,
    "on_get_task": GetTaskRequest,
    "list_tasks": ListTasksRequest,
    "list_push_notifications": ListTaskPushNotificationConfigsRequest,
}
# Where reading a request of 0.3 can fail after its shape was found good.
_FROM_OLD: dict[str, Callable[[Any], Any]] = {
    "message/send": conversions.to_core_send_message_request,
    "message/stream": conversions.to_core_send_message_request,
    "tasks/get": conversions.to_core_get_task_request,
}


def version_of(request: Request) -> str:
    """The version that a request speaks, Major.Minor; none is 0.3. Raises where it is not ours."""
    given = request.headers.get(VERSION_HEADER) or request.query_params.get(VERSION_HEADER) or OLD
    match = _VERSION.fullmatch(given)
    if match is None:
        raise VersionNotSupportedError("This agent speaks A2A 1.0 and 0.3.")
    return match[1]


def check_new_enough(version: str) -> None:
    """Raise on a request of 1.0 that does not say so. The SDK says the same, but not what to do."""
    if version == OLD:
        raise VersionNotSupportedError(
            f"Send the header '{VERSION_HEADER}: 1.0': without it a request speaks {OLD}, which "
            "has this under another name, over JSON-RPC only."
        )


def check_call(body: Any, version: str) -> None:
    """Raise on what is no JSON-RPC request, or has no parameters of its method."""
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
    count, waiting = 0, [body]
    while waiting:
        one = waiting.pop()
        inner = one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
        count += len(inner)
        if count > VALUES_MAX:
            raise invalid("params", f"it may have {VALUES_MAX} values. Send texts as one text.")
        waiting.extend(inner)


def _check_new(value: Any, model: type[Message]) -> None:
    if not isinstance(value, dict):
        raise invalid("body", "it must be a JSON object.")
    if model is ListTasksRequest:
        _check_state(value.get("status"))
    for field in model.DESCRIPTOR.fields:
        # The SDK reads the letters of a text as names of fields that it does not know.
        inner = field.message_type is not None and field.message_type.file.package == _PACKAGE
        if inner and not isinstance(value.get(field.json_name), dict | None):
            raise invalid(field.json_name, "it must be an object.")
    _read(lambda: ParseDict(value, model(), ignore_unknown_fields=True))


def _check_old(method: str, body: Any) -> None:
    def read() -> None:
        model: Any = JSONRPC03Adapter.METHOD_TO_MODEL[method]
        request = model.model_validate(body)
        _FROM_OLD.get(method, bool)(request)

    _read(read)


def _read(read: Callable[[], Any]) -> None:
    try:
        read()
    except _MISREAD as error:
        # It begins with names of fields, which are the protocol's; the rest, a client has sent.
        place = _PLACE.match(str(error))
        field = ".".join(_FIELD.findall(place[0])) if place else ""
        raise invalid(field or "params", "it is not of its type, or too large.") from None


def _check_state(value: Any) -> None:
    known = value in TaskState.values() if type(value) is int else value in TaskState.keys()  # noqa: SIM118
    if value is not None and not known:
        raise invalid("status", "it must be a state of a task, as TASK_STATE_WORKING is.")
