"""Requests for a task by its id, over each binding."""

from collections.abc import Callable
from typing import Any

from recall_server.api.a2a.card import JSONRPC_PATH
from tests.support.a2a_bindings import (
    HOOK,
    Json,
    Request,
    call,
    message,
    of_rest,
    of_rpc,
)

UNCLEAR: Json = {"text": "hm"}
CONFIG = "mine"


def _old(method: str, **params: Any) -> Request:
    return call(method, params)


def _old_message(task_id: str) -> Json:
    return {
        "kind": "message",
        "messageId": "m",
        "role": "user",
        "taskId": task_id,
        "parts": [{"kind": "text", "text": "hm"}],
    }


def _plain(path: str, body: Json | None = None) -> Request:
    return Request("GET" if body is None else "POST", f"{JSONRPC_PATH}/{path}", body)


Make = Callable[[str], Request]
_NEW: dict[str, Callable[[Any], Make]] = {
    "get": lambda of: lambda id_: of("GetTask", id=id_),
    "subscribe": lambda of: lambda id_: of("SubscribeToTask", id=id_),
    "send": lambda of: lambda id_: of("SendMessage", message=message(UNCLEAR, taskId=id_)),
    "stream": lambda of: (
        lambda id_: of("SendStreamingMessage", message=message(UNCLEAR, taskId=id_))
    ),
    "set push": lambda of: (
        lambda id_: of("CreateTaskPushNotificationConfig", taskId=id_, url=HOOK, id=CONFIG)
    ),
    "get push": lambda of: lambda id_: of("GetTaskPushNotificationConfig", taskId=id_, id=CONFIG),
    "list push": lambda of: lambda id_: of("ListTaskPushNotificationConfigs", taskId=id_),
    "delete push": lambda of: (
        lambda id_: of("DeleteTaskPushNotificationConfig", taskId=id_, id=CONFIG)
    ),
    "cancel": lambda of: lambda id_: of("CancelTask", id=id_),
}


_PUSH = "tasks/pushNotificationConfig/"


# Every operation that takes the id of a task; in each binding, the one that ends the task is last.
REQUESTS: dict[str, Make] = {
    **{f"JSON-RPC {name}": make(of_rpc) for name, make in _NEW.items() if name != "cancel"},
    **{f"REST {name}": make(of_rest) for name, make in _NEW.items() if name != "cancel"},
    "0.3 get": lambda id_: _old("tasks/get", id=id_),
    "0.3 subscribe": lambda id_: _old("tasks/resubscribe", id=id_),
    "0.3 send": lambda id_: _old("message/send", message=_old_message(id_)),
    "0.3 stream": lambda id_: _old("message/stream", message=_old_message(id_)),
    "0.3 set push": lambda id_: _old(
        f"{_PUSH}set", taskId=id_, pushNotificationConfig={"url": HOOK, "id": CONFIG}
    ),
    "0.3 get push": lambda id_: _old(f"{_PUSH}get", id=id_, pushNotificationConfigId=CONFIG),
    "0.3 list push": lambda id_: _old(f"{_PUSH}list", id=id_),
    "0.3 delete push": lambda id_: _old(f"{_PUSH}delete", id=id_, pushNotificationConfigId=CONFIG),
    "plain get": _plain,
    "plain resume": lambda id_: _plain(f"{id_}/resume", {"resolution": "hm"}),
    "plain resume one by one": lambda id_: _plain(f"{id_}/resume", {"resolutions": [{}]}),
    "JSON-RPC cancel": _NEW["cancel"](of_rpc),
    "REST cancel": _NEW["cancel"](of_rest),
    "0.3 cancel": lambda id_: _old("tasks/cancel", id=id_),
}
