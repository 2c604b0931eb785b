"""Messages of attackers and faulty agents over A2A: each is refused, and no answer repeats it."""

import base64
from typing import Any

from tests.support.a2a_bindings import Json, message


def nested(depth: int) -> Any:
    value: Any = "canary"
    for _ in range(depth):
        value = {"a": value}
    return value


def _data(**given: Any) -> Json:
    return message({"data": {"text": "User: I ski.", **given}})


MESSAGES: dict[str, Any] = {
    "a text": "canary",
    "a list": ["canary"],
    "nothing": None,
    "an unheard-of role": message(role="canary"),
    "a role by a number that is none": message(role=99),
    "the role of an agent": message(role="ROLE_AGENT"),
    "a list of roles": message(role=["canary"]),
    "no parts": {**message(), "parts": []},
    "parts that are none": {**message(), "parts": "canary"},
    "a part without content": message({}),
    "a part without content, but a type": message({"mediaType": "text/plain"}),
    "a part that is a text": {**message(), "parts": ["canary"]},
    "a part that is nothing": {**message(), "parts": [None]},
    "a part of two contents": message({"text": "canary", "data": {}}),
    "a text that is a number": message({"text": 5}),
    "a blank text": message({"text": " \n"}),
    "too long a text": message({"text": "canary " * 40_000}),
    "nul in a text": message({"text": "canary\x00"}),
    "nul in an id": {**message(), "messageId": "canary\x00"},
    "nul in a context": message(contextId="canary\x00"),
    "nul in a task id": message(taskId="canary\x00"),
    "nul in metadata": message(metadata={"canary": ["\x00"]}),
    "nul in a name in metadata": message(metadata={"canary\x00": 1}),
    "nul in metadata of a part": message({"text": "canary", "metadata": {"a": "\x00"}}),
    "nul in a file name": message({"text": "canary", "filename": "\x00"}),
    "nul in an extension": message(extensions=["canary\x00"]),
    "nul in a reference": message(referenceTaskIds=["canary\x00"]),
    "no id": {key: value for key, value in message().items() if key != "messageId"},
    "too long an id": {**message(), "messageId": "canary" * 22},
    "too long a context": message(contextId="canary" * 22),
    "a line break in a context": message(contextId="canary\nforged"),
    "an override in a context": message(contextId="canary\u202e"),
    "far too deep data": message({"data": nested(55)}),
    "too deep data": message({"data": nested(40)}),
    "too deep metadata": message(metadata=nested(20)),
    "too large a number": message({"data": {"canary": 10**400}}),
    "metadata with too large a number": message(metadata={"canary": 10**400}),
    "metadata that is a list": message(metadata=["canary"]),
    "data that is a text": message({"data": "canary"}),
    "data that is a list": message({"data": ["canary"]}),
    "an unheard-of field": _data(canary=1),
    "another's namespace": _data(namespace="canary"),
    "an unheard-of skill": message(metadata={"skill": "canary"}),
    "an unheard-of mode": _data(mode="canary"),
    "a mode that does not fit": _data(mode="merge"),
    "an unheard-of policy": _data(policy="canary"),
    "a threshold beyond one": _data(similarity_threshold=1.5),
    "a threshold in words": _data(similarity_threshold="canary"),
    "a dry run that is a text": _data(dry_run="canary"),
    "a time that is over": _data(expires_in_s=0),
    "a time in the past": _data(expires_in_s=-5),
    "a time without end": _data(expires_in_s=1e300),
    "a topic of two lines": _data(topic="canary\nforged"),
    "too long a topic": _data(topic="canary" * 22),
    "a blank topic": _data(topic=" "),
    "a session of two lines": _data(session_id="canary\nforged"),
    "too long a session": _data(session_id="canary" * 43),
    "an agent of two lines": _data(agent_id="canary\x1b[2J"),
    "nul in a plan": message({"data": {"plan_id": "canary\x00"}}),
    "too long a plan": message({"data": {"plan_id": "canary" * 22}}),
    "a plan that is not there": message({"data": {"plan_id": "canary"}}),
}

CONFIGURATIONS: dict[str, Any] = {
    "a text": "canary",
    "a negative history": {"historyLength": -1},
    "a history in words": {"historyLength": "canary"},
    "a history without end": {"historyLength": 2**40},
    "modes that are none": {"acceptedOutputModes": "canary"},
    "a push without an address": {"taskPushNotificationConfig": {"id": "canary"}},
    "a push to a file": {"taskPushNotificationConfig": {"url": "file:///canary"}},
    "a push to this machine": {"taskPushNotificationConfig": {"url": "https://127.0.0.1/canary"}},
    "a push with an odd id": {
        "taskPushNotificationConfig": {"url": "https://93.184.215.14/", "id": "canary/../x"}
    },
    "a push with a secret that nobody can keep": {
        "taskPushNotificationConfig": {"url": "https://93.184.215.14/", "token": "canary"}
    },
}

# Ids that no task can have.
IDS = ["canary\x00", "canary" * 22, "canary\nforged", "canary\x1b[2J", "canary\u202e", "\x00"]
# Ids that a task could have, and none has.
UNKNOWN_IDS = ["canary", "task_canary' OR '1'='1", "..", "%", "task_*", " ", "\U0001f980"]


def token(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode()


LISTS: dict[str, Json] = {
    "an unheard-of state": {"status": "canary"},
    "a state by a number that is none": {"status": 99},
    "a state by its short name": {"status": "working"},
    "no page": {"pageSize": 0},
    "a negative page": {"pageSize": -1},
    "too large a page": {"pageSize": 101},
    "a page beyond numbers": {"pageSize": 2**40},
    "half a page": {"pageSize": 1.5},
    "a page in words": {"pageSize": "canary"},
    "a negative history": {"historyLength": -1},
    "a token of nobody's": {"pageToken": "canary"},
    "a token that is no base64": {"pageToken": "canary!!\U0001f980"},
    "a token of another's make": {"pageToken": token('{"ts": 1, "id": "canary"}')},
    "a token without a time": {"pageToken": token("canary|task")},
    "a token before all time": {"pageToken": token("0001-01-01T00:00:00+23:59|canary")},
    "a token that anybody could write": {"pageToken": token("2026-01-01T00:00:00+00:00|canary")},
    "a token with nul": {"pageToken": token("2026-01-01T00:00:00+00:00|canary\x00")},
    "a token with a long id": {"pageToken": token("2026-01-01T00:00:00+00:00|" + "canary" * 22)},
    "a context with nul": {"contextId": "canary\x00"},
    "too long a context": {"contextId": "canary" * 22},
    "a time in words": {"statusTimestampAfter": "canary"},
    "a time without a zone": {"statusTimestampAfter": "2026-01-01T00:00:00"},
    "a day that is none": {"statusTimestampAfter": "2026-02-30T00:00:00Z"},
}
TAKEN_LISTS: list[Json] = [
    {"pageSize": 1},
    {"pageSize": 100},
    {"historyLength": 0},
    {"pageToken": ""},
    {"contextId": "a context of mine"},
    {"statusTimestampAfter": "0001-01-01T00:00:00Z"},
    {"statusTimestampAfter": "9999-12-31T23:59:59.999999999Z"},
    {"status": "TASK_STATE_AUTH_REQUIRED"},
]
