"""The headings that a piece of a text stands under, and the sender of a mail."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from recall_server.integrations.extraction.rules.cutting import Kind, Piece
from recall_server.integrations.extraction.rules.language import Table, titles
from recall_server.integrations.extraction.rules.wording import cleaned

# The level of the key of a long `Key: value` line, below all headings.
_KEY = 6
# Not behind "St." and "Dr.".
_SENTENCE = re.compile(r"(?<=\w{3})[.!?] ")
_ADDRESS = re.compile(r"\s*<[^>\n]*>?|\s*\[[^\]\n]*\]?")


@dataclass
class Headings:
    """The headings in force, by their level, and who sent the text."""

    by_level: dict[int, str] = field(default_factory=dict)
    sender: str | None = None

    def add(self, piece: Piece, text: str, language: Table) -> None:
        """Take a heading or a sender; a heading ends those of its level and below."""
        title = cleaned(text[piece.start : piece.end])
        if piece.kind is Kind.SENDER:
            self.sender = _ADDRESS.sub("", title).strip("\"' ") or None
            return
        if titles("myself").fullmatch(title):
            title = language.data["user"]
        self.by_level = {k: v for k, v in self.by_level.items() if k < piece.level}
        if title:
            subject = _SENTENCE.split(title)[-1]
            self.by_level[piece.level] = titles("forwarded").sub("", subject)

    def under(self, key: str) -> Headings:
        return replace(self, by_level={**self.by_level, _KEY: key})

    @property
    def nearest(self) -> str:
        return self.by_level[max(self.by_level)]

    @property
    def text(self) -> str:
        """The title of the text and the heading above, without those that say nothing."""
        ranked = [title for _, title in sorted(self.by_level.items())]
        named = [one for one in ranked if not titles("generic").fullmatch(one)]
        return ", ".join(dict.fromkeys([*named[:1], *named[-1:]]))


def has_date(heading: str, language: Table) -> bool:
    """Whether a heading names a day: a "today" below it may be another day than the text's."""
    written = language.data["months"].split()
    short = [rf"\b{month[:3]}\b" for month in written if language.spaced]
    months = "|".join([*written, *short])
    day = rf"\d.*(?:{months}|月)|(?:{months}).*\d|\d-\d\d-\d|\d[./]\d{{1,2}}[./]\d"
    return re.search(day, heading, re.IGNORECASE) is not None
