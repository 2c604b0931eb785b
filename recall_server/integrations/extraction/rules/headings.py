"""The headings above a piece of text, including those without a mark, and the sender of a mail."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from recall_server.domain.text.passages import ASIDE, NUMBERED, is_heading, may_name
from recall_server.domain.text.transcript import read_moment
from recall_server.integrations.extraction.rules.cutting import (
    DAY,
    LEAD_IN,
    Kind,
    Piece,
    key_and_value,
)
from recall_server.integrations.extraction.rules.language import Table, titles
from recall_server.integrations.extraction.rules.wording import cleaned

_ADDRESS = re.compile(r"\s*<[^>\n]*>?|\s*\[[^\]\n]*\]?")
_DAY_WORDS_MAX = 4
_CAPTION_WORDS_MAX = 4
# The first line of a paragraph of several lines, of at most four words.
_PARTS = re.compile(
    r"(?:^|\n[ \t]*\n)(?=[ \t]*[^\W\d_a-z][^\s:：.!?]*(?: [^\s:：.!?]+){0,3}(?: \([^()\n]*\))?"
    r"\n[^\n]+\n[^\n])"
)
_DATE_CHARS_MAX = 24
# A longer heading is shown without what stands in parentheses.
_ASIDE_FROM = 45
# Of so many sentences, the name that begins the first one is what the others are about.
_NAMED_MIN = 3
_NAME_FIRST = re.compile(
    r"(?P<name>(?:(?:The|Mr|Mrs|Ms|Dr|Herr|Frau|Señora?|Mme|M)\.? )?[A-ZÀ-Þ][\w’'-]+"
    r"(?: (?:(?:&|and|und|y|et) )?[A-ZÀ-Þ][\w’'-]+){0,3}), "
)
_NO_NAMES = ("drop.greeting", "words.pronoun", "words.first", "words.definite")
# Where a text says its day: at the beginning of one of the first lines.
_DAY_BY, _DAY_LINES = 300, 3
_BREAK = re.compile(r"(?:^|\n[ \t]*\n)[ \t]{0,3}([-*_=~])(?:[ \t]?\1){2,}[ \t]*(?=\n|$)")


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
        level = DAY if has_date(title, language) else piece.level
        self.by_level = {k: v for k, v in self.by_level.items() if k < min(level, piece.level)}
        if title:
            self.by_level[piece.level] = titles("forwarded").sub("", title)

    @property
    def nearest(self) -> str:
        nearest = self.by_level[max(self.by_level)]
        return ASIDE.sub("", nearest).strip() or nearest

    @property
    def text(self) -> str:
        """The title of the text and the nearest heading, without generic ones."""
        named = self._named()
        shown = [one if len(one) <= _ASIDE_FROM else ASIDE.sub("", one).strip() for one in named]
        return ", ".join(dict.fromkeys([*shown[:1], *shown[-1:]]))

    def title(self, language: Table) -> str:
        """Return the title of the text; "" without one, or if it names a day: such a text is one of
        many about the same things.
        """
        title = "".join(self._named()[:1])
        return "" if has_date(title, language) else title

    def day(self, language: Table) -> str:
        """Return the nearest heading that names a day; "" without one."""
        ranked = [title for _, title in sorted(self.by_level.items(), reverse=True)]
        return next((one for one in ranked if has_date(one, language)), "")

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


def day_of(text: str, now: datetime, language: Table) -> datetime | None:
    """Return the day that begins one of the first lines of a text: "this week" counts from it."""
    lines = (line[:_DATE_CHARS_MAX] for line in text[:_DAY_BY].split("\n")[:_DAY_LINES])
    dated = next((line for line in lines if has_date(line, language)), "")
    at = read_moment(dated, now) if dated else None
    return at if at and at <= now else None


def name_first(text: str, part: Sequence[Piece], language: Table) -> str:
    """Return the name that begins a paragraph in one line: "Kofi, 9th grade. Weak at sums. …"; ""
    without one.
    """
    first, last = part[0], part[-1]
    match = _NAME_FIRST.match(text, first.start, first.end)
    if match is None or len(part) < _NAMED_MIN or "\n" in text[first.start : last.end]:
        return ""
    name = match["name"]
    common = language.is_common(name) or any(language.starts(one, name) for one in _NO_NAMES)
    return "" if common else name


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
        titled = self._is_title(found[0])
        for at, piece in enumerate(found):
            begun = self.text.rfind("\n", 0, piece.start)
            line = self.text[begun + 1 : piece.end]
            above = self.text[self.text.rfind("\n", 0, max(begun, 0)) + 1 : max(begun, 0)]
            below = self.text[piece.end : found[-1].end]
            may_be = named[at].kind is not Kind.HEADING and self._ends_line(piece)
            if may_be and is_heading(line, below, first=at == 0 and not titled, above=above):
                named[at] = replace(piece, kind=Kind.HEADING, level=LEAD_IN)
        # The first of several parts is not the title of all.
        captioned = self._is_caption(found)
        if captioned and (not titled or len(_PARTS.findall(self.text)) > 1):
            named[0] = replace(named[0], kind=Kind.HEADING, level=LEAD_IN)
        elif named[0] == found[0] and titled:
            named[0] = replace(named[0], kind=Kind.HEADING, level=1)
        elif len(named) > 1 and self._is_day(named[0]):
            named[0] = replace(named[0], kind=Kind.HEADING, level=LEAD_IN)
        return named

    def _part(self, piece: Piece) -> Piece:
        """Return "TOP 1: Kasse" as the heading "Kasse", and any other piece as it is."""
        line = self.text[piece.start : piece.end]
        if not NUMBERED.fullmatch(piece.key) or line[-1:] in ".!?。！？":
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

    def _is_caption(self, found: list[Piece]) -> bool:
        """Return whether the first line of a paragraph of several only names them."""
        line = self._line(found[0])
        name = ASIDE.sub("", line).strip()
        says = any(self.language.has(f"keep.{cue}", name) for cue in ("event", "state", "plan"))
        below = self.text[found[0].end : found[-1].end].strip().count("\n")
        few = 0 < len(name.split()) <= _CAPTION_WORDS_MAX and not any(map(str.isdigit, name))
        return few and below > 0 and not (says or name[0].islower())

    def _is_day(self, piece: Piece) -> bool:
        """Return whether the first line of a paragraph is the day of the others, as in a log."""
        line = self._line(piece)
        opens = line[:1].isdigit() or len(line.split()) <= _DAY_WORDS_MAX
        return opens and has_date(line[:_DATE_CHARS_MAX], self.language)

    def _ends_line(self, piece: Piece) -> bool:
        """Return whether a piece ends its line, and is no greeting."""
        greets = self.language.starts("drop.greeting", self.text[piece.start : piece.end])
        return self.text[piece.end : piece.end + 1] in ("\n", "") and not greets

    def _line(self, piece: Piece) -> str:
        """Return a line that may be a heading; "" if the piece cannot be one."""
        line = self.text[piece.start : piece.end]
        may_be = piece.kind is Kind.SENTENCE and self._ends_line(piece) and may_name(line)
        return line if may_be else ""
