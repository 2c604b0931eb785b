"""The bindings of A2A by hand: requests that the SDK's client would not send, and their answers."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import httpx2
from a2a.utils.errors import A2A_ERROR_MAPPING, JSON_RPC_ERROR_CODE_MAP

from recall_server.api.a2a.card import JSONRPC_PATH, REST_PATH
from tests.support.a2a_clients import LISBON, PORTO

Json = dict[str, Any]

REASONS = {JSON_RPC_ERROR_CODE_MAP[kind]: one.reason for kind, one in A2A_ERROR_MAPPING.items()}
STATUSES = {one.reason: one.http_code for one in A2A_ERROR_MAPPING.values()}
# The names of the protocol.
NOT_FOUND, UNSUPPORTED = "TASK_NOT_FOUND", "UNSUPPORTED_OPERATION"
INVALID, NOT_CANCELABLE = "INVALID_PARAMS", "TASK_NOT_CANCELABLE"
MEDIA, VERSION, INTERNAL = "CONTENT_TYPE_NOT_SUPPORTED", "VERSION_NOT_SUPPORTED", "INTERNAL_ERROR"

# A public address: it may be configured, and is never called if no worker runs.
HOOK = "https://93.184.215.14/hook"


@dataclass(frozen=True)
class Request:
    """A request of an operation, which `Wire` sends."""

    method: str
    path: str
    body: Json | None = None
    query: Json = field(default_factory=dict)


def message(*parts: Json, **given: Any) -> Json:
    return {
        "messageId": uuid4().hex,
        "role": "ROLE_USER",
        "parts": list(parts) or [{"text": LISBON}],
        **given,
    }


def call(method: str, params: Json) -> Request:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return Request("POST", JSONRPC_PATH, body)


def of_rpc(operation: str, **p: Any) -> Request:
    """Return the operation in JSON-RPC, with parameters named as the protocol names them."""
    return call(operation, p)


_TASK = "/tasks/{id}"
_CONFIGS = "/tasks/{taskId}/pushNotificationConfigs"
_REST = {
    "SendMessage": ("POST", "/message:send"),
    "SendStreamingMessage": ("POST", "/message:stream"),
    "GetTask": ("GET", _TASK),
    "ListTasks": ("GET", "/tasks"),
    "CancelTask": ("POST", _TASK + ":cancel"),
    "SubscribeToTask": ("POST", _TASK + ":subscribe"),
    "CreateTaskPushNotificationConfig": ("POST", _CONFIGS),
    "GetTaskPushNotificationConfig": ("GET", _CONFIGS + "/{id}"),
    "ListTaskPushNotificationConfigs": ("GET", _CONFIGS),
    "DeleteTaskPushNotificationConfig": ("DELETE", _CONFIGS + "/{id}"),
    "GetExtendedAgentCard": ("GET", "/extendedAgentCard"),
}


def of_rest(operation: str, **p: Any) -> Request:
    """Return the operation in REST."""
    method, path = _REST[operation]
    rest = {name: value for name, value in p.items() if f"{{{name}}}" not in path}
    path = path.format(**{name: quote(str(value), safe="") for name, value in p.items()})
    if method == "POST":
        return Request(method, REST_PATH + path, rest or None)
    return Request(method, REST_PATH + path, None, rest)


BY_HAND = {"JSONRPC": of_rpc, "HTTP+JSON": of_rest}


@dataclass(frozen=True)
class Wire:
    """One binding of a server, used with one token."""

    http: httpx2.AsyncClient
    binding: str = "JSONRPC"
    version: str = "1.0"

    async def send(self, request: Request, **headers: str) -> httpx2.Response:
        return await self.http.request(
            request.method,
            request.path,
            params=request.query,
            json=request.body,
            headers={"A2A-Version": self.version, **headers},
        )

    async def answer(self, operation: str, **params: Any) -> httpx2.Response:
        return await self.send(BY_HAND[self.binding](operation, **params))

    async def result(self, operation: str, **params: Any) -> Json:
        """Return the result of an operation that succeeds."""
        return told(await self.answer(operation, **params))

    async def fault(self, operation: str, **params: Any) -> str:
        """Return the reason why an operation fails."""
        return fault(await self.answer(operation, **params))

    async def task(self, *parts: Json, now: bool = True, **given: Any) -> Json:
        """Return the task of the answer to a message; with `now`, do not wait for its end."""
        found = await self.result(
            "SendMessage",
            message=message(*parts, **given),
            configuration={"returnImmediately": now},
        )
        task: Json = found["task"]
        return task

    async def paused(self) -> Json:
        """Return a task that asks; the worker must run."""
        await self.task(now=False)
        task = await self.task({"text": PORTO}, now=False)
        assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED", task
        return task

    @asynccontextmanager
    async def stream(self, operation: str, **params: Any) -> AsyncIterator["Stream"]:
        request = BY_HAND[self.binding](operation, **params)
        async with self.http.stream(
            request.method,
            request.path,
            params=request.query,
            json=request.body,
            headers={"A2A-Version": self.version},
        ) as answer:
            yield Stream(answer)


class Stream:
    """Events as they come, without their ids and envelopes."""

    def __init__(self, answer: httpx2.Response) -> None:
        self.answer = answer
        self._lines = answer.aiter_lines()

    async def next(self) -> Json | None:
        """Return the next event; None if the stream has ended."""
        async for line in self._lines:
            if line.startswith("data:"):
                event: Json = json.loads(line.removeprefix("data:"))
                result: Json = event.get("result", event)
                return result
        return None

    async def rest(self) -> list[Json]:
        found = []
        while (event := await self.next()) is not None:
            found.append(event)
        return found


def told(answer: httpx2.Response) -> Json:
    body: Json = answer.json()
    assert answer.status_code == 200, answer.text
    assert "error" not in body, answer.text
    found: Json = body["result"] if "jsonrpc" in body else body
    return found


def fault(answer: httpx2.Response) -> str:
    """Return the reason of an error in the form of the standard."""
    body = answer.json()
    if "jsonrpc" in body:
        assert answer.status_code == 200
        error = body["error"]
        assert "result" not in body
        reason = REASONS[error["code"]]
        details = error["data"]
    else:
        error = body["error"]
        assert (error["code"], "status" in error) == (answer.status_code, True)
        details = error["details"]
        reason = details[0]["reason"]
        assert STATUSES[reason] == answer.status_code
    assert error["message"]
    info = details[0]
    assert info["@type"] == "type.googleapis.com/google.rpc.ErrorInfo"
    assert (info["reason"], info["domain"]) == (reason, "a2a-protocol.org")
    return reason


def violations(answer: httpx2.Response) -> set[str]:
    """Return the fields that an error names."""
    error = answer.json()["error"]
    details = error.get("data") or error.get("details")
    return {one["field"] for detail in details for one in detail.get("fieldViolations", ())}
