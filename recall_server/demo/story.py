"""What the demo tells the server: the conversation that ships, or a text of the user's own."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import resources
from itertools import pairwise
from pathlib import Path

from recall_server.domain.episode import Turn
from recall_server.domain.errors import EmptyText, Invalid, TextTooLong
from recall_server.domain.text.cleaning import storable
from recall_server.domain.text.transcript import parse_turns
from recall_server.services.memory.ingest import TOPIC_CHARS_MAX

FILE_BYTES_MAX = 8_388_608


@dataclass(frozen=True)
class Part:
    """What one `store_memory` takes."""

    text: str
    topic: str
    turns: int
    said_at: datetime | None

    @property
    def key(self) -> str:
        """An idempotency key that the same text always gets."""
        return f"demo-{hashlib.sha256(self.text.encode()).hexdigest()[:24]}"


@dataclass(frozen=True)
class Story:
    """What is told, and whether it is our own: of that we know what to ask."""

    name: str
    parts: tuple[Part, ...]
    own: bool = False


def bundled(text_chars_max: int) -> Story:
    """The conversation that ships."""
    text = resources.files(__package__).joinpath("conversation.txt").read_text("utf-8")
    name = "the conversation that ships with recall"
    return Story(name, tuple(_parts(text, "conversation", text_chars_max)), own=True)


def of_file(path: Path, text_chars_max: int) -> Story:
    """The user's text. Raises an `Invalid` or `TextTooLong` on one that is of no use."""
    try:
        size = path.stat().st_size
        if size > FILE_BYTES_MAX:
            raise TextTooLong(
                f"{path} has {size:,} bytes; the demo takes {FILE_BYTES_MAX:,}. Give it a part."
            )
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Invalid(f"{path} is not UTF-8 text. Save it as UTF-8 and try again.") from None
    except OSError as error:
        raise Invalid(f"{path} cannot be read ({error.strerror}). Name another file.") from None
    storable(text)
    if not text.strip():
        raise EmptyText(f"{path} is empty. Name a file with a conversation or a text in it.")
    stem = "".join(c for c in path.stem if c.isprintable()).strip()
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return Story(path.name, tuple(_parts(text, stem or "file", text_chars_max)))


def _parts(text: str, topic: str, chars_max: int) -> Iterator[Part]:
    """A part a session, or several where one is too long for a single store."""
    now = datetime.now(UTC)
    turns = parse_turns(text, now)
    starts = [0, *_borders(text, turns), len(text)]
    for start, end in pairwise(starts):
        said = [turn for turn in turns if start <= turn.span.start < end]
        if not said:
            continue
        # Each piece of a long session needs the heading that dates it.
        first_line = text.rfind("\n", start, said[0].span.start) + 1 or start
        heading = text[start : max(first_line, start)]
        if len(heading) > chars_max // 2:
            heading = ""
        label = (said[0].session or topic)[:TOPIC_CHARS_MAX]
        for piece in _pieces(text[start + len(heading) : end], chars_max - len(heading)):
            number = len(said) if len(piece) >= end - start - len(heading) else 0
            whole = heading + piece
            yield Part(whole, label, number or len(parse_turns(whole, now)), said[0].said_at)


def _borders(text: str, turns: Sequence[Turn]) -> Iterator[int]:
    """Where a new session begins: the line behind the last turn of the day or session before."""
    for before, turn in pairwise(turns):
        if _session(before) != _session(turn):
            yield text.find("\n", before.span.end) + 1 or turn.span.start


def _session(turn: Turn) -> tuple[object, ...]:
    return turn.session, turn.said_at.date() if turn.said_at else None


def _pieces(text: str, chars_max: int) -> Iterator[str]:
    """Cuts at blank lines, else at line ends, else at blanks, else where the limit falls."""
    start = 0
    while start < len(text):
        stop = min(len(text), start + chars_max)
        if stop < len(text):
            ends = (text.rfind(mark, start, stop) + len(mark) for mark in ("\n\n", "\n", " "))
            stop = next((end for end in ends if end > start + len("\n\n")), stop)
        if text[start:stop].strip():
            yield text[start:stop]
        start = stop
