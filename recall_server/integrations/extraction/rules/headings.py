"""The headings above a piece of text, including those without a mark, and the sender of a mail."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from itertools import pairwise

from recall_server.integrations.extraction.rules.cutting import (
    HEADING_CHARS_MAX,
    LEAD_IN,
    Kind,
    Piece,
    key_and_value,
)
from recall_server.integrations.extraction.rules.judging import size
from recall_server.integrations.extraction.rules.language import Table, titles
from recall_server.integrations.extraction.rules.wording import cleaned

_ADDRESS = re.compile(r"\s*<[^>\n]*>?|\s*\[[^\]\n]*\]?")
_ASIDE = re.compile(r"\([^()]*\)")
# "e.V." at the end of a title is no end of a sentence.
_SHORT_FORM = re.compile(r"(?<!\w)(?:\w{1,2}\.){2,}$")
_NAME_WORDS_MAX, _CAPTION_WORDS_MAX = 7, 4
_DATE_CHARS_MAX = 24
# A longer heading is shown without what stands in parentheses.
_ASIDE_FROM = 45
_BREAK = re.compile(r"(?:^|\n[ \t]*\n)[ \t]{0,3}([-*_=~])(?:[ \t]?\1){2,}[ \t]*(?=\n|$)")
_TO_BULLET = re.compile(r"[ \t]*\n[ \t]*(?:[-*•+–·▪●・→]|->|\[[ xX]\]|\d{1,2}[.)])[ \t]+")


@dataclass
class Headings:
    """The headings in force, by their level, and who sent the text."""

    by_level: dict[int, str] = field(default_factory=dict)
    sender: str | None = None

    def add(self, piece: Piece, text: str, language: Table) -> None:
        """Add a heading or a sender. A heading ends those of its level and below."""
        title = cleaned(text[piece.start : piece.end])
        if piece.kind is Kind.SENDER:
            self.sender = _ADDRESS.sub("", title).strip("\"' ") or None
            return
        if titles("myself").fullmatch(title):
            title = language.data["user"]
        self.by_level = {k: v for k, v in self.by_level.items() if k < piece.level}
        if title:
            self.by_level[piece.level] = titles("forwarded").sub("", title)

    @property
    def nearest(self) -> str:
        nearest = self.by_level[max(self.by_level)]
        return _ASIDE.sub("", nearest).strip() or nearest

    @property
    def text(self) -> str:
        """The title of the text and the nearest heading, without generic ones."""
        named = self._named()
        shown = [one if len(one) <= _ASIDE_FROM else _ASIDE.sub("", one).strip() for one in named]
        return ", ".join(dict.fromkeys([*shown[:1], *shown[-1:]]))

    def title(self, language: Table) -> str:
        """Return the title of the text; "" without one, or if it names a day: such a text is one of
        many about the same things.
        """
        title = "".join(self._named()[:1])
        return "" if has_date(title, language) else title

    def _named(self) -> list[str]:
        ranked = [title for _, title in sorted(self.by_level.items())]
        return [one for one in ranked if not titles("generic").fullmatch(one)]


def has_date(heading: str, language: Table) -> bool:
    """Return whether a heading names a day: "today" below it may not be the day of the text."""
    written = language.data["months"].split()
    short = [rf"\b{month[:3]}\b" for month in written if language.spaced]
    months = "|".join([*written, *short])
    day = rf"\d.*(?:{months}|月)|(?:{months}).*\d|\d-\d\d-\d|\d[./]\d{{1,2}}[./]\d"
    return re.search(day, heading, re.IGNORECASE) is not None


def breaks(text: str, start: int, end: int) -> bool:
    """Return whether there is a ruled line: headings above it do not apply below."""
    return _BREAK.search(text, start, end) is not None


@dataclass(frozen=True)
class Paragraph:
    """A paragraph of a document. `opens`: it is the first one, or the first after a ruled line."""

    text: str
    language: Table
    opens: bool

    def named(self, found: list[Piece]) -> list[Piece]:
        """Return the pieces, with unmarked lines that are headings turned into headings."""
        named = list(map(self._part, found))
        for at, (piece, after) in enumerate(pairwise(found)):
            if self._is_number(piece, after) or (
                _TO_BULLET.fullmatch(self.text, piece.end, after.start) and self._is_name(piece)
            ):
                named[at] = replace(piece, kind=Kind.HEADING, level=LEAD_IN)
        first = named[0]
        if self._is_title(first):
            named[0] = replace(first, kind=Kind.HEADING, level=1)
        elif len(named) > 1 and (self._is_day(first) or self._is_caption(first, named[1])):
            named[0] = replace(first, kind=Kind.HEADING, level=LEAD_IN)
        return named

    def _part(self, piece: Piece) -> Piece:
        """Return "TOP 1: Kasse" as the heading "Kasse", "Voice memo 2" as a heading, and any other
        piece as it is.
        """
        line = self.text[piece.start : piece.end]
        if titles("numbered").match(self._line(piece)) and len(line.split()) <= _NAME_WORDS_MAX:
            return replace(piece, kind=Kind.HEADING, level=LEAD_IN)
        if not titles("numbered").fullmatch(piece.key) or line[-1:] in ".!?。！？":
            return piece
        start = piece.end - len(key_and_value(line)[1])
        return replace(piece, start=start, kind=Kind.HEADING, level=LEAD_IN)

    def _is_title(self, piece: Piece) -> bool:
        """Return whether the first line of a text, or a line in capitals, is a title."""
        line = self._line(piece)
        return bool(line) and (
            line.isupper()
            or (self.opens and not line[0].islower() and len(self.text) > piece.end + 1)
        )

    def _is_day(self, piece: Piece) -> bool:
        """Return whether the first line of a paragraph is the day of the others, as in a log."""
        line = self._line(piece)
        opens = line[:1].isdigit() or len(line.split()) <= _CAPTION_WORDS_MAX
        return opens and has_date(line[:_DATE_CHARS_MAX], self.language)

    def _is_name(self, piece: Piece) -> bool:
        """Return whether a line only names what the list below is about, such as "Priya"."""
        line = self._line(piece)
        return line[:1].isupper() and len(_ASIDE.sub("", line).split()) <= _NAME_WORDS_MAX

    def _is_number(self, piece: Piece, after: Piece) -> bool:
        """Whether a numbered line only names what follows it, as "2. Money" does in minutes."""
        line = self.text[piece.start : piece.end]
        return (
            piece.number > 0 == after.number
            and len(line.split()) <= _CAPTION_WORDS_MAX
            and line[:1].isupper()
            and line[-1:] not in ".!?。！？"
        )

    def _is_caption(self, piece: Piece, after: Piece) -> bool:
        """Return whether the first line of a paragraph names what its sentences are about."""
        line, said = self._line(piece), self.text[after.start : after.end]
        names = line[:1].isupper() and len(line.split()) <= _CAPTION_WORDS_MAX
        says = said.endswith(".") and size(said, self.language) > _CAPTION_WORDS_MAX
        return names and (after.kind is Kind.PAIR or says)

    def _line(self, piece: Piece) -> str:
        """Return a line that may be a heading; "" if the piece cannot be one."""
        text = self.text
        line = text[piece.start : piece.end]
        alone = text[piece.end : piece.end + 1] in ("\n", "")
        may_be = (
            piece.kind is Kind.SENTENCE
            and alone
            and len(line) <= HEADING_CHARS_MAX
            and (line[-1:] not in ".!?。！？" or _SHORT_FORM.search(line))
            and not self.language.starts("drop.greeting", line)
        )
        return line if may_be else ""
