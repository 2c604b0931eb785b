"""Requests and the meaning of answers: no I/O, shared by both clients."""

import json
import os
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import httpx2
from pydantic import BaseModel, TypeAdapter, ValidationError

from recall_client.errors import (
    AnswerUnknown,
    NoAnswer,
    RecallError,
    SettingMissing,
    Unreachable,
    refusal,
)
from recall_client.models import TaskEvent

T = TypeVar("T", bound=BaseModel)

DEFAULT_URL = "http://127.0.0.1:8000"
TIMEOUT_S = 30.0
# Retries of one call, after waits of about .2, .4 and .8 seconds, or as the server asks.
RETRIES = 3
FIRST_WAIT_S = 0.2
# If the server asks for a longer wait, the client does not wait: the error says how long it would
# be.
WAIT_S_MAX = 30.0
SECRET_HEADER = "Recall-Receipt-Secret"  # noqa: S105
A2A_PATH = "/a2a/v1"
A2A_VERSION = {"A2A-Version": "1.0"}


@dataclass(frozen=True)
class Route:
    """The route of an operation. A `repeatable` one changes nothing when it is sent again."""

    method: str
    path: str
    repeatable: bool = False


def _get(path: str) -> Route:
    return Route("GET", path, repeatable=True)


ROUTES: Mapping[str, Route] = {
    # These send an idempotency key with each text.
    "store_memory": Route("POST", "/v1/memories", repeatable=True),
    "search_memories": Route("POST", "/v1/search", repeatable=True),
    "inspect_memories": _get("/v1/memories"),
    "get_memory": _get("/v1/memories/{memory_id}"),
    "get_memory_history": _get("/v1/memories/{memory_id}/history"),
    "get_timeline": _get("/v1/timeline"),
    "get_context": Route("POST", "/v1/context", repeatable=True),
    "answer_question": Route("POST", "/v1/deep-memory", repeatable=True),
    "get_snapshot": _get("/v1/snapshot/{user_id}"),
    "submit_memory": Route("POST", "/v1/memories:submit"),
    "update_memory": Route("PATCH", "/v1/memories/{memory_id}"),
    "propose_change": Route("POST", "/v1/proposals"),
    "relate_memories": Route("POST", "/v1/relations"),
    "delete_memory": Route("DELETE", "/v1/memories/{memory_id}"),
    "restore_memory": Route("POST", "/v1/memories/{memory_id}/restore"),
    "list_changes": _get("/v1/changes"),
    "undo_change": Route("POST", "/v1/changes/{change_id}/undo"),
    "erase": Route("POST", "/v1/erasure"),
    "collect_receipt": Route("GET", "/v1/receipts/{receipt_id}"),
    "consolidate_memories": Route("POST", "/v1/consolidations"),
    "get_memory_stats": _get("/v1/stats"),
    "get_status": _get("/api/v1/status"),
    "whoami": _get("/v1/whoami"),
    "list_tokens": _get("/v1/tokens"),
    "issue_token": Route("POST", "/v1/tokens"),
    "delegate_token": Route("POST", "/v1/tokens/children"),
    "revoke_own_child": Route("DELETE", "/v1/tokens/children/{jti}", repeatable=True),
    "show_token": _get("/v1/tokens/{accessor}"),
    "rotate_token": Route("POST", "/v1/tokens/{accessor}/rotate"),
    "revoke_token": Route("DELETE", "/v1/tokens/{accessor}", repeatable=True),
    "revoke_child": Route("DELETE", "/v1/tokens/{accessor}/children/{jti}", repeatable=True),
    "get_job": _get("/v1/jobs/{job_id}"),
    "list_texts": _get("/v1/texts"),
    "update_text": Route("PATCH", "/v1/texts/{text_id}", repeatable=True),
    "forget_text": Route("DELETE", "/v1/texts/{text_id}"),
    "list_conflicts": _get("/v1/conflicts"),
    "resolve_conflict": Route("POST", "/v1/conflicts"),
    "recheck_memories": Route("POST", "/v1/recheck"),
    "list_reviews": _get("/v1/reviews"),
    "answer_review": Route("POST", "/v1/reviews/{id}"),
    "create_task": Route("POST", "/a2a"),
    "get_task": _get("/v1/consolidations/{task_id}"),
    "resume_task": Route("POST", "/a2a/{task_id}/resume"),
    "list_push_configs": _get("/v1/consolidations/{task_id}/push_configs"),
    "list_aliases": _get("/v1/aliases"),
    "set_aliases": Route("POST", "/v1/aliases", repeatable=True),
    "remove_alias": Route("DELETE", "/v1/aliases"),
    "add_webhook": Route("POST", "/v1/webhooks"),
    "list_webhooks": _get("/v1/webhooks"),
    "remove_webhook": Route("DELETE", "/v1/webhooks/{webhook_id}"),
    "test_webhook": Route("POST", "/v1/webhooks/{webhook_id}/test"),
    "read_audit": _get("/v1/audit"),
    "list_quarantine": _get("/v1/quarantine"),
    "release_quarantined": Route("POST", "/v1/quarantine/{id}/release", repeatable=True),
    "reject_quarantined": Route("POST", "/v1/quarantine/{id}/reject", repeatable=True),
    "export_namespace": _get("/v1/export"),
    # Only A2A has these two.
    "subscribe_to_task": _get(f"{A2A_PATH}/tasks/{{task_id}}:subscribe"),
    "cancel_task": Route("POST", f"{A2A_PATH}/tasks/{{task_id}}:cancel"),
}


@dataclass(frozen=True)
class Call:
    """A request of one operation, ready to be sent."""

    method: str
    path: str
    repeatable: bool
    body: Mapping[str, Any] | None
    query: Mapping[str, Any]
    headers: Mapping[str, str]


def call(operation: str, given: Mapping[str, Any]) -> Call:
    """Return the request of an operation. Arguments that are None are not given."""
    route, path = ROUTES[operation], ROUTES[operation].path
    rest: dict[str, Any] = {}
    headers = dict(A2A_VERSION) if path.startswith(A2A_PATH) else {}
    for name, value in given.items():
        if f"{{{name}}}" in path:
            path = path.replace(f"{{{name}}}", quote(str(value), safe=""))
        elif name == "secret":
            headers[SECRET_HEADER] = str(value)
        elif value is not None:
            rest[name] = _plain(value)
    if route.method in {"POST", "PATCH"}:
        return Call(route.method, path, route.repeatable, rest, {}, headers)
    query = {name: json.dumps(one) if isinstance(one, dict) else one for name, one in rest.items()}
    return Call(route.method, path, route.repeatable, None, query, headers)


def _plain(value: Any) -> Any:
    """Return `value` in the form of JSON. Raises `ValueError` on a time without a zone."""
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ValueError(f"{value.isoformat()} has no time zone. Give one, such as UTC.")
        return value.isoformat()
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(one) for one in value]
    return value


def wait_before_next(error: RecallError, attempt: int, retries: int, *, repeatable: bool) -> float:
    """Return the seconds until the call is sent again. Raises `error` if it may not be."""
    passing = error.untouched or (repeatable and error.status in {None, 502, 503, 504})
    waited = error.retry_after_s or FIRST_WAIT_S * 2**attempt * random.uniform(0.75, 1.25)  # noqa: S311
    if not passing or attempt >= retries or waited > WAIT_S_MAX:
        raise error
    return waited


def not_sent(error: httpx2.TransportError, url: str) -> RecallError:
    """Return the error of the client for a transport error."""
    why = str(error) or type(error).__name__
    if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.PoolTimeout):
        return Unreachable(
            f"There is no connection to {url}: {why}. See whether the "
            "server runs (`recall serve`) and the address is right."
        )
    return NoAnswer(
        f"{url} gave no whole answer: {why}. Send the call again, or give it a longer timeout."
    )


def refused(response: httpx2.Response) -> RecallError:
    """Return the error in an answer whose body was read."""
    try:
        problem = response.json()
    except ValueError:
        problem = None
    headers = response.headers
    return refusal(
        response.status_code, problem, headers.get("Retry-After"), headers.get("X-Request-Id")
    )


def parsed(model: type[T], content: bytes) -> T:
    """Return the parsed answer. Raises `AnswerUnknown` if it is not one of this operation."""
    try:
        return TypeAdapter(model).validate_json(content)
    except ValidationError as error:
        places = ", ".join(".".join(map(str, one["loc"])) or "it" for one in error.errors()[:3])
        raise AnswerUnknown(
            f"The answer cannot be read as {model.__name__}: see {places}. The server may be of "
            "another release than this client."
        ) from None


def connection(url: str, token: str | None, timeout_s: float) -> dict[str, Any]:
    """Return the arguments of a client of httpx2. A redirect is not followed, since it would get
    the token.
    """
    headers = {"Accept": "application/json", "User-Agent": "recall-client"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    return {"base_url": url.rstrip("/"), "headers": headers, "timeout": timeout_s}


def from_environment(environ: Mapping[str, str] | None = None) -> tuple[str, str]:
    """Return the address and the token. Raises `SettingMissing`."""
    given = os.environ if environ is None else environ
    token = given.get("RECALL_TOKEN", "")
    if not token and (file := given.get("RECALL_TOKEN_FILE")):
        try:
            token = Path(file).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise SettingMissing(
                f"RECALL_TOKEN_FILE cannot be read ({error.strerror}). Name a file with a token."
            ) from None
    if not token:
        raise SettingMissing(
            "There is no token. Set RECALL_TOKEN or RECALL_TOKEN_FILE to what `recall create-token "
            "NAMESPACE` printed."
        )
    return given.get("RECALL_URL") or DEFAULT_URL, token


def job_waits() -> Iterator[float]:
    """Yield the seconds between two reads of a job: short at first."""
    wait_s = 0.02
    while True:
        yield wait_s
        wait_s = min(1.0, wait_s * 1.5)


def task_event(data: str) -> TaskEvent:
    """Return an event of A2A. Raises `AnswerUnknown`."""
    try:
        [(kind, event)] = json.loads(data).items()
        status = event.get("status") or {}
        parts = (status.get("message") or {}).get("parts") or []
        return TaskEvent(
            task_id=event["id" if kind == "task" else "taskId"],
            state=_state(status.get("state")),
            message="\n".join(part["text"] for part in parts if "text" in part) or None,
            artifact=event.get("artifact"),
        )
    except (ValueError, KeyError, AttributeError):
        raise AnswerUnknown("An event of this task cannot be read.") from None


def _state(named: str | None) -> str | None:
    """Return a state of A2A in the words of the other routes."""
    return named and named.removeprefix("TASK_STATE_").lower().replace("_", "-")
