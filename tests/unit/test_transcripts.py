"""New parts of a transcript are sent once, whatever fails meanwhile."""

import json
from pathlib import Path

import pytest

from recall_server.cli import light
from recall_server.cli.light import Message, Transcript

CLAUDE = {"type": "user", "message": {"role": "user", "content": "I live in Porto."}}
CODEX = {
    "type": "response_item",
    "timestamp": "2026-03-01T09:00:00Z",
    "payload": {"role": "assistant", "content": [{"type": "output_text", "text": "Noted."}]},
}
OTHERS = [
    {"type": "summary", "summary": "Where Ana lives"},
    {"type": "user", "isMeta": True, "message": {"role": "user", "content": "Caveat"}},
    {"message": {"role": "user", "content": [{"type": "tool_result", "content": "secret"}]}},
    {"message": {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}]}},
    ["no", "record"],
]


def write(path: Path, *records: object) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(record) + "\n" for record in records)


@pytest.fixture
def transcript(tmp_path: Path) -> Transcript:
    return Transcript(tmp_path / "session.jsonl", "s1", tmp_path / "state" / "s1.json")


def said(transcript: Transcript) -> list[Message]:
    return [message for part in transcript.parts() for message in part.messages]


def test_only_what_persons_and_the_assistant_say_is_handed_in(transcript: Transcript) -> None:
    write(transcript.path, *OTHERS, CLAUDE, CODEX)
    with transcript.path.open("a") as file:
        file.write("no json\n")

    assert said(transcript) == [
        {"role": "user", "content": "I live in Porto."},
        {"role": "assistant", "content": "Noted.", "at": "2026-03-01T09:00:00Z"},
    ]


def test_what_was_handed_in_is_not_handed_in_again(transcript: Transcript) -> None:
    write(transcript.path, CLAUDE)
    assert len(said(transcript)) == 1
    write(transcript.path, CODEX)

    assert [one["content"] for one in said(transcript)] == ["Noted."]
    assert said(transcript) == []


def test_a_line_that_is_not_whole_yet_waits(transcript: Transcript) -> None:
    line = json.dumps(CLAUDE)
    transcript.path.write_text(line[:20])
    assert said(transcript) == []
    transcript.path.write_text(f"{line}\n")

    assert len(said(transcript)) == 1


def test_a_part_that_may_have_been_sent_is_sent_again_as_it_was(transcript: Transcript) -> None:
    write(transcript.path, CLAUDE)
    sent = next(transcript.parts())  # Then the process is killed.
    write(transcript.path, CODEX)

    again, rest = transcript.parts()

    assert (again.key, again.messages) == (sent.key, sent.messages)
    assert [one["content"] for one in rest.messages] == ["Noted."]


def test_a_long_transcript_goes_in_parts(
    transcript: Transcript, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(light, "PART_MESSAGES_MAX", 2)
    write(transcript.path, *[CLAUDE] * 5)

    assert [len(part.messages) for part in transcript.parts()] == [2, 2, 1]
    assert said(transcript) == []


def test_a_transcript_that_has_become_shorter_is_another_one(transcript: Transcript) -> None:
    write(transcript.path, CLAUDE, CLAUDE)
    said(transcript)
    transcript.path.unlink()
    write(transcript.path, CODEX)

    assert [one["content"] for one in said(transcript)] == ["Noted."]
