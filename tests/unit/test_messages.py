"""A conversation in JSON is read as its messages; nothing of it is left out."""

import json
from typing import Any

import pytest

from recall_server.domain.text.messages import Message, messages_in

USER: dict[str, Any] = {"role": "user", "content": "I live in Porto."}
ANSWER: dict[str, Any] = {"role": "assistant", "content": "Noted."}
CODEX = {
    "timestamp": "2026-03-01T09:00:00Z",
    "payload": {"role": "assistant", "content": [{"type": "output_text", "text": "Noted."}]},
}
CALL = {"id": "c1", "function": {"name": "weather", "arguments": '{"city": "Porto"}'}}


def lines(*values: object) -> str:
    return "\n".join(map(json.dumps, values))


def roles_and_words(text: str) -> list[tuple[str, str]]:
    return [one[:2] for one in messages_in(text)]


@pytest.mark.parametrize(
    "text",
    [
        json.dumps([USER, ANSWER]),
        json.dumps([USER, ANSWER], indent=2),
        json.dumps({"messages": [USER, ANSWER]}),
        lines(USER, ANSWER),
        f"\n{lines(USER)}\n\n{lines(ANSWER)}\n",
        lines({"messages": [USER]}, {"messages": [ANSWER]}),
        lines({"type": "user", "message": USER}, CODEX),
        lines({"sender": "user", "text": "I live in Porto."}, ANSWER),
        lines({**USER, "message": None}, {**ANSWER, "payload": ""}),
        lines({"speaker": "user", "text": "I live in Porto.", "ts": "1.5"}, ANSWER),
    ],
)
def test_messages_are_read_in_every_shape(text: str) -> None:
    assert roles_and_words(text) == [("user", "I live in Porto."), ("assistant", "Noted.")]


@pytest.mark.parametrize(
    "text",
    [
        "I live in Porto.",
        "[8 May 2023] Ana: hi",
        "{not json}",
        "[" * 100_000,
        json.dumps({"service": "api", "port": 80}),
        json.dumps([{"role": "admin", "name": "Ana"}, {"role": "guest", "name": "Ben"}]),
        json.dumps({"role": "user", "content": {"text": "hi"}}),
        lines(*[{"event": "start"}] * 5, USER),
        "[]",
        "[1, 2]",
        '"a"',
    ],
)
def test_any_other_text_is_no_conversation(text: str) -> None:
    assert messages_in(text) == []


def test_a_message_keeps_its_name_and_its_time() -> None:
    named = {**USER, "name": "Ana", "at": "2026-03-01"}
    assert messages_in(lines(named, CODEX)) == [
        Message("user", "I live in Porto.", "Ana", "2026-03-01"),
        Message("assistant", "Noted.", None, "2026-03-01T09:00:00Z"),
    ]


def test_what_is_no_text_is_that_of_a_tool() -> None:
    asked = {"role": "assistant", "content": None, "tool_calls": CALL}
    used = {"type": "tool_use", "name": "weather"}
    given = {"type": "tool_result", "content": [{"type": "text", "text": "It rains."}]}
    parts = [{"type": "text", "text": "And now?"}, used, given]
    other = {"role": "user", "content": parts, "city": "Oslo", "refusal": None}

    found = roles_and_words(json.dumps({"model": "m1", "messages": [USER, asked, other]}))

    assert found == [
        ("user", "I live in Porto."),
        ("tool", json.dumps(CALL)),
        ("user", "And now?"),
        ("tool", json.dumps(used)),
        ("tool", "It rains."),
        ("tool", '{"city": "Oslo"}'),
        ("tool", '{"model": "m1"}'),
    ]
