"""Reads the new messages of the transcript that a coding agent writes; each is sent once.

A file for each session keeps the position up to which its transcript was sent. Each part is
noted there before it is sent, so that after a failure the same part is sent again under the same
key, and is stored once.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recall_server.domain.text.messages import message_of
from recall_server.local.server import write_private

PART_BYTES_MAX = 200_000
PART_MESSAGES_MAX = 200
MESSAGE_CHARS_MAX = 20_000
_ROLES = frozenset({"user", "assistant"})

Message = dict[str, str]


@dataclass(frozen=True)
class Part:
    """Messages between two positions of a transcript, and the key under which they are sent."""

    start: int
    end: int
    messages: list[Message]
    key: str


@dataclass(frozen=True)
class Transcript:
    """A transcript, and the file with the position in it."""

    path: Path
    session: str
    state: Path

    def parts(self) -> Iterator[Part]:
        """Yield the parts that were not sent yet, in order. A part counts as sent when
        the next one is requested.
        """
        start, until = self._kept()
        with self.path.open("rb") as file:
            while True:
                file.seek(start)
                end, messages = _read(file, until)
                if end == start:
                    return
                self._keep(start, end)
                yield Part(start, end, messages, self._key(start, end))
                self._keep(end, None)
                start, until = end, None

    def _key(self, start: int, end: int) -> str:
        session = hashlib.sha256(self.session.encode()).hexdigest()[:32]
        return f"hook:{session}:{start}-{end}"

    def _kept(self) -> tuple[int, int | None]:
        """Return the position, and the end of a part that may have been sent from there."""
        try:
            start, until = json.loads(self.state.read_text())
            within = start <= self.path.stat().st_size
        except (OSError, ValueError, TypeError):
            return 0, None
        # A transcript that has become shorter is a different one.
        return (start, until) if within else (0, None)

    def _keep(self, start: int, until: int | None) -> None:
        write_private(self.state, json.dumps([start, until]))


def _read(file: Any, until: int | None) -> tuple[int, list[Message]]:
    """Read messages from here to `until`, or as many as fit into one part. Return where they end,
    and the messages. An incomplete last line is left for later.
    """
    start = end = file.tell()
    messages: list[Message] = []
    for line in file:
        if not line.endswith(b"\n"):
            break
        end += len(line)
        message = _message(line)
        messages += [message] if message else []
        full = end - start >= PART_BYTES_MAX or len(messages) >= PART_MESSAGES_MAX
        if end == until or (until is None and full):
            break
    return end, messages


def _message(line: bytes) -> Message | None:
    """Return the message of a line, in the formats of Claude Code, Codex and Cursor; None if it is
    no message of the conversation, but a result of a tool, a thought, or an addition of the host.
    """
    try:
        record = json.loads(line)
    except ValueError:
        return None
    if not isinstance(record, dict) or record.get("isMeta") or record.get("isSidechain"):
        return None
    said = message_of(record)
    if said is None or said.role not in _ROLES:
        return None
    text = _asked(said.words)[:MESSAGE_CHARS_MAX].strip()
    if not text:
        return None
    message = {"role": said.role, "content": text}
    return {**message, "at": said.at} if said.at else message


def _asked(text: str) -> str:
    """Return what a person wrote, without the files that Cursor shows beside it."""
    _, begun, rest = text.partition("<user_query>")
    return rest.partition("</user_query>")[0] if begun else text
