"""Conversations that are written as JSON, as the APIs of models and coding agents write them."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

TOOL = "tool"
# Of the records of a conversation at least so many are messages: the sessions of coding agents have
# several calls and results of tools for each.
MESSAGES_SHARE = 0.2
_TEXTS = frozenset({"text", "input_text", "output_text"})
_SPEAKERS = ("role", "sender", "speaker", "user")
_WORDS = ("content", "text")
_TIMES = ("at", "timestamp", "created_at", "date", "ts")
# These describe the record itself, not the conversation.
_OWN = frozenset(
    {*_SPEAKERS, *_WORDS, *_TIMES, "name", "id", "uuid", "type", "index", "tool_calls"}
)
_OWN |= {"tool_call_id", "stop_reason", "stop_sequence", "usage", "model", "status"}


class Message(NamedTuple):
    """A message of a conversation. `more` is what else it has, such as calls of tools and their
    results; `at` is a time as it was written.
    """

    role: str
    words: str
    name: str | None = None
    at: str | None = None
    more: Sequence[Any] = ()


def message_of(record: Any) -> Message | None:
    """Return the message that a record is, by itself or in the envelopes of Claude Code and Codex;
    None if it is none.
    """
    if not isinstance(record, Mapping):
        return None
    within = (record.get(one) for one in ("message", "payload"))
    said = next((one for one in within if isinstance(one, Mapping)), record)
    role = next((said[one] for one in _SPEAKERS if said.get(one)), record.get("role"))
    key = next((one for one in _WORDS if one in said), "")
    content = said.get(key)
    if not isinstance(role, str) or not role.strip() or not key:
        return None
    if content is not None and not isinstance(content, str | list):
        return None
    parts = content if isinstance(content, list) else []
    name, calls = said.get("name"), said.get("tool_calls") or []
    rest = {one: value for one, value in said.items() if one not in _OWN and value}
    times = (record.get(one, said.get(one)) for one in _TIMES)
    return Message(
        role.strip(),
        content if isinstance(content, str) else "\n".join(filter(None, map(_text, parts))),
        name if isinstance(name, str) and name.strip() else None,
        next((one for one in times if isinstance(one, str)), None),
        (
            *(one for one in parts if _text(one) is None),
            *(calls if isinstance(calls, list) else [calls]),
            *([rest] if rest else ()),
        ),
    )


def messages_in(text: str) -> list[Message]:
    """Return the messages of a text that is a conversation in JSON: an array of messages, an object
    with `messages`, or one of these a line; none for any other text.

    What is not text becomes a message of a tool, as it is written. Only `_OWN` names, empty values
    and the envelope of a message are left out.
    """
    try:
        records = list(_records(text))
    except (ValueError, RecursionError):
        return []
    found = [message_of(one) for one in records]
    if not found or sum(one is not None for one in found) < MESSAGES_SHARE * len(found):
        return []
    said: list[Message] = []
    for record, one in zip(records, found, strict=True):
        if one is None:
            said.append(Message(TOOL, _written(record)))
            continue
        said += [one] if one.words.strip() else []
        said += (Message(TOOL, _result(more), at=one.at) for more in one.more)
    return said


def _records(text: str) -> Iterator[Any]:
    """Yield the values of a document, or of its lines. Raises `ValueError` if it is no JSON."""
    try:
        values = [json.loads(text)]
    except ValueError:
        values = [json.loads(line) for line in text.split("\n") if line.strip()]
    for value in values:
        records, rest = value, {}
        if isinstance(value, dict) and isinstance(value.get("messages"), list):
            records = value["messages"]
            rest = {name: one for name, one in value.items() if name != "messages"}
        yield from records if isinstance(records, list) else [records]
        yield from [rest] if rest else []


def _text(part: Any) -> str | None:
    """Return the text of a part of a content; None if it is not one of text."""
    if isinstance(part, str):
        return part
    if not isinstance(part, Mapping) or part.get("type") not in _TEXTS:
        return None
    text = part.get("text")
    return text if isinstance(text, str) else None


def _result(part: Any) -> str:
    """Return the text that a tool gave; any other part as JSON."""
    content = part.get("content") if isinstance(part, Mapping) else None
    texts = [_text(one) for one in (content if isinstance(content, list) else [content])]
    return "\n".join(one for one in texts if one) or _written(part)


def _written(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
