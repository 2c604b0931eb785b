"""Cuts turns into passages, the unit of search: one or a few sentences that belong together, a list
item, a `Key: value` line, a code block. Each knows the headings above it.

Every non-blank character of a turn is in exactly one passage, and nothing depends on the engine.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from recall_server.domain.episode import Episode, Span, Turn, passage_id
from recall_server.domain.erasure import BLOCK
from recall_server.domain.text.attribution import MAIL_LEAD, MAIL_SUBJECT

HEADING_CHARS_MAX = 80
_NAME_WORDS_MAX, _CAPTION_WORDS_MAX = 7, 4
ASIDE = re.compile(r"\([^()]*\)")
# "TOP 1", "Voice memo 2", but not "Part 2 is here".
NUMBERED = re.compile(
    r"(?:top|punkt|(?:voice )?memo|recording|session|entry|item|section|part|teil|abschnitt|chapter"
    r"|kapitel|point|partie|chapitre|punto|sección|capítulo|parte)[ ]?\d{1,3}(?!\w)"
    r"(?![ ](?:is|was|has|ist|war|hat|est)\b)",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"[ \t]*(?:\(?\d{1,2}[.)][ \t]+|[\d一二三四五六七八九十]{1,3}[、．])")
# How a heading begins: with a capital, or in Chinese and Japanese, where it has few characters.
_BEGINS = re.compile(r"[^\W\d_a-zß-öø-ÿ㐀-鿿ぁ-ヿ]|(?=[㐀-鿿ぁ-ヺ])[^\n]{2,12}$")
_LIST = re.compile(r"[ \t]*(?:(?:[-*•+–·▪●→]|->|\[[ xX]\]|1[.)])[ \t]+|・[ \t]*)\S")
_PAIR = re.compile(r"[ \t]*[^\W_][^\n:：*?!.;,|\"“„]{0,38}(?::[ \t]+|：)\S")
# A sentence of more words than a caption, or a long line.
_SAID = re.compile(r"(?:\S+[ ]+){4}[^\n]*?\.(?=\s|$)|[^\n]{60}")
# A name of up to five words and a short remark.
_NAMED = re.compile(r"(?=[^\W_])[^a-z]\S*(?: [^\s–—-]\S*){0,4} [-–—] (?:\S+ ?){1,6}$")
# A line with a comma between a name and the list that it names.
_REMARK = re.compile(r"[^\n,]{1,60}, [^\n]{1,60}\n" + _LIST.pattern)
_PROSE = re.compile(r"[.!?。！？,;，、]$|(?:[^\W\d_]{5}\.|[!?])[ \t]+[^\W\d]|[。！？\n]")
# "e.V." at the end of a title is no end of a sentence.
_SHORT_FORM = re.compile(r"(?<!\w)(?:\w{1,2}\.){2,}$")
# How messages, answers and sentences begin, and how letters end.
_TALK = re.compile(
    r"(?:Hi|Hey|Hello|Dear|Thanks|Thank|Cheers|Sorry|Hallo|Moin|Liebe[rs]?|Danke|Viele|Hola|Gracias"
    r"|Saludos|Bonjour|Bonsoir|Salut|Merci|I|We|You|He|She|It|They|Ich|Wir|Du|Er|Sie|Es|Je|Nous|Il"
    r"|Elle|Yo|(?:Ok|OK|Okay|Yes|No|Best|Regards|Love|Ja|Nein|Sí|Oui|Non|LG|VG|MfG"
    r"|(?i:lol|haha|hm+|omg|ok|yeah|yep|yes|no|hi|hey|hello|brb|thx|thanks|ja|nein))$)(?!\w)"
)


def may_name(line: str) -> bool:
    """Return whether a line is short, and is no sentence, greeting or answer."""
    ended = _PROSE.search(line) and not _SHORT_FORM.search(line)
    named = 0 < len(line) <= HEADING_CHARS_MAX and not line.startswith("[")
    return named and not ended and not _TALK.match(line)


def is_named(line: str, below: str) -> bool:
    """Return whether the first line of notes has a name and a remark, and the others are notes of
    what is named: "27 Quarry Road - seen on Saturday".
    """
    notes = below.strip().split("\n")
    return bool(len(notes) > 1 and _NAMED.match(line) and not any(map(_NAMED.match, notes)))


def is_heading(line: str, below: str, *, first: bool, above: str = "") -> bool:
    """Return whether a line, the `first` of its paragraph or not, is the heading of a numbered
    part, or of the list or the paragraph `below`. `above`: the line above it in its paragraph.
    """
    number = _NUMBER.match(line)
    line, below = line[number.end() if number else 0 :].strip(), below.lstrip("\n")
    words = len(ASIDE.sub("", line).split())
    if first and not number and may_name(line) and is_named(line, below):
        return True
    if words > _NAME_WORDS_MAX or not may_name(line) or (number and _NUMBER.match(above)):
        return False
    if NUMBERED.match(line):
        return True
    if _PAIR.match(line):
        return False
    if not _BEGINS.match(line) or not below.strip():
        return False
    if number:
        listed = words <= _CAPTION_WORDS_MAX or _LIST.match(below) is not None
        return listed and not _NUMBER.match(below)
    if _LIST.match(below):
        # Below the name of a recipe: "Serves 6, takes two hours".
        return first or not ("," in line and may_name(above.strip()))
    names = first and words <= _CAPTION_WORDS_MAX
    return names and bool(_PAIR.match(below) or _SAID.match(below) or _REMARK.match(below))


# Sentences of a paragraph are joined up to this many characters; a shorter turn stays whole. With
# 280, 0.6 points less of the evidence of LoCoMo are found (R@10).
PASSAGE_CHARS = 420
# Lines of which each is a sentence are joined up to this many: in notes, each line is of another
# matter. With 420, answers are 15 % longer and show no more.
LINES_CHARS = 100
_LABEL_CHARS_MAX = 160
# A line of prose of such a length continues in the next one, unless a sentence ends there.
_WRAPPED_CHARS_MIN, _WRAPPED_CHARS_MAX = 60, 140
# Of the longest line, so long is a full one; of the lines, so many are full in wrapped prose.
_FULL, _MOST = 0.85, 0.8
# Lines without punctuation are notes, if of so many a third are shorter than this part of the
# longest.
_RAGGED, _RAGGED_MIN = 0.75, 5
# The level of a heading without a mark, such as a line that ends with a colon: below Markdown's.
_COLON_LEVEL = 7
# The level of the first row of a table, which names its columns; above the rows only.
TABLE_LEVEL = 8
# The level of lines that are part of the next passage, and not above the ones after it: a ruled
# line, the head of a mail, "Dear Ana,".
LEAD_LEVEL = 9
# The subject of a mail is above all of it.
_SUBJECT_LEVEL = 0

_LINE = re.compile(r"[^\n]+")
_FENCE = re.compile(r"[ \t]{0,3}(?:```|~~~)")
_HEADING = re.compile(r"[ \t]{0,3}(#{1,6})[ \t]+\S")
_BOLD = re.compile(r"[ \t]{0,3}(?:\*\*|__)[^*_]{1,80}(?:\*\*|__):?[ \t]*$")
_ITEM = re.compile(r"[ \t]*(?:[-*+•·–→]|->|\[[ xX]\]|\d{1,3}[.)]|\(?[a-z]\))[ \t]+\S")
_KEY = re.compile(r"[ \t]*(?:\*\*)?[^\W_][^:\n.!?。！？]{0,40}(?:\*\*)?:(?:\*\*)?[ \t]+\S")
_ROW = re.compile(r"[ \t]*\|.*\|[ \t]*$")
_ROW_RULE = re.compile(r"[ \t]*\|[ \t:|-]*-[ \t:|-]*\|[ \t]*$")
# A line of a log or of an export: it begins with a day, a time, or short cells.
_ENTRY = re.compile(
    r"[ \t]*[\[(]?(?:\d{4}[-/]\d\d?[-/]\d\d?|\d\d?[./]\d\d?[./]\d{2,4}|\d\d?:\d\d)"
    r"(?:[ T,]{1,2}\d\d?:\d\d(?::\d\d)?)?[^\w-]*[^\W\d_]"
    r"|[ \t]*[^|\n]{1,60} \| [^|\n]{1,60} \| "
)
_SENTENCE = re.compile(r"[.!?…]['\"”’)\]*_]*\s+(?=[^\s.,;:])|[。！？]['\"”’）」』]*(?=\S)")
_ENDED = re.compile(r"[.!?…:;。！？]['\"”’)\]*_]*\s*$")
# A full stop after one of these ends no sentence.
_SHORT = re.compile(
    r"(?:\b(?:[A-Za-z]|e\.g|i\.e|z\.B|d\.h|Mrs?|Ms|Dr|Prof|St|Mt|Ft|No|Nr|vs|ca|approx)|[\w-][Ss]tr|\d)"
    r"\.\s+$"
)


class Passage(NamedTuple):
    """A part of a turn, numbered from 0, with the `headings` above it, the outermost first."""

    turn: Turn
    number: int
    span: Span
    headings: tuple[Span, ...] = ()


class Block(NamedTuple):
    """Lines that belong together. `whole`: neither cut nor joined. `level`: the level of a heading,
    else 0.
    """

    start: int
    end: int
    whole: bool = False
    level: int = 0


def chunk(turns: Sequence[Turn], chars_max: int) -> list[tuple[Turn, ...]]:
    """Group whole turns up to `chars_max` characters; a longer turn is a group of its own."""
    chunks: list[tuple[Turn, ...]] = []
    group: list[Turn] = []
    size = 0
    for turn in turns:
        chars = turn.span.end - turn.span.start
        if group and size + chars > chars_max:
            chunks.append(tuple(group))
            group, size = [], 0
        group.append(turn)
        size += chars
    if group:
        chunks.append(tuple(group))
    return chunks


def passages(text: str, turns: Sequence[Turn]) -> list[Passage]:
    """Return the passages of all turns, in order."""
    found: list[Passage] = []
    headings: list[tuple[int, Span]] = []
    before = 0
    for turn in turns:
        if text[before : turn.span.start].strip():
            # Somebody else speaks, or another day begins.
            headings = []
        before = turn.span.end
        spans = _with_headings(text, turn.span, headings)
        found += [Passage(turn, number, *one) for number, one in enumerate(spans)]
        if headings and headings[-1][0] == _COLON_LEVEL and headings[-1][1].end < turn.span.end:
            # A line that ends with a colon applies to its own turn, or, at its end, to the next.
            headings.pop()
    return found


def _with_headings(
    text: str, turn: Span, headings: list[tuple[int, Span]]
) -> Iterator[tuple[Span, tuple[Span, ...]]]:
    """Yield the spans of the passages of a turn, with the headings above each: a heading is part of
    the passage that follows it, and is above the next ones. Updates `headings` to those at the end
    of the turn.
    """
    start, end, above = -1, -1, tuple[Span, ...]()
    for block in _joined(text, list(blocks(text, turn))):
        least = block.level or (LEAD_LEVEL if _ROW.match(text[block.start : block.end]) else 0)
        while headings and headings[-1][0] >= (least or TABLE_LEVEL):
            headings.pop()
        if start < 0:
            start, above = block.start, tuple(span for _, span in headings)
        end = block.end
        if not block.level:
            yield Span(start, end), above
            start = -1
        elif block.level < LEAD_LEVEL:
            headings.append((block.level, Span(block.start, block.end)))
        elif MAIL_SUBJECT.match(text, block.start):
            headings[:] = [(_SUBJECT_LEVEL, Span(block.start, block.end))]
    if start >= 0:
        yield Span(start, end), above


def blocks(text: str, turn: Span) -> Iterator[Block]:
    """Yield headings, list items, keys with values, code, and lines of prose."""
    # Those that are not blank, without trailing white space.
    lines = [
        (line.start(), line.start() + len(line[0].rstrip()))
        for line in _LINE.finditer(text, turn.start, turn.end)
        if line[0].strip()
    ]
    # A line by itself, with no label before it, may be the heading of the next turn.
    labelled = text[max(0, turn.start - _LABEL_CHARS_MAX) : turn.start].rpartition("\n")[2].strip()
    last = turn.end if len(lines) > 1 or labelled else len(text)
    named = [
        is_heading(
            text[start:end],
            text[end : min(last, end + PASSAGE_CHARS)],
            first=not at,
            above=text[slice(*lines[at - 1])] if at else "",
        )
        for at, (start, end) in enumerate(lines)
    ]
    ragged = _is_ragged([text[start:end] for start, end in lines])
    at = 0
    while at < len(lines):
        start, end = lines[at]
        line = text[start:end]
        at += 1
        if _FENCE.match(line):
            closing = next(
                (n for n in range(at, len(lines)) if _FENCE.match(text[slice(*lines[n])])), None
            )
            if closing is not None:
                at = closing + 1
                yield Block(start, lines[closing][1], whole=True)
                continue
        if _ROW.match(line) and at < len(lines) and _ROW_RULE.match(text[slice(*lines[at])]):
            yield Block(start, lines[at][1], level=TABLE_LEVEL)
            at += 1
            continue
        level = _level(line, alone=len(lines) == 1) or _COLON_LEVEL * named[at - 1]
        if level:
            yield Block(start, end, level=level)
            continue
        item = bool(_ITEM.match(line))
        whole = item or bool(_ROW.match(line))
        if len(lines) > 1:
            # So is a long line that ends without a full stop: a note that was spoken.
            spoken = len(line) > _WRAPPED_CHARS_MAX and not _ENDED.search(line)
            whole = whole or spoken or bool(_KEY.match(line) or _ENTRY.match(line))
        while (
            not ragged
            and at < len(lines)
            and not named[at]
            and _goes_on(text, (start, end), lines[at], item=item)
        ):
            end = lines[at][1]
            at += 1
        yield Block(start, end, whole=whole)


def _level(line: str, *, alone: bool) -> int:
    """Return the level of a heading, from 1; 0 if the line is none. `alone`: its turn has no
    other.
    """
    if marked := _HEADING.match(line):
        return len(marked[1])
    if MAIL_LEAD.fullmatch(line) and not alone:
        return LEAD_LEVEL
    if _BOLD.match(line) or (line.endswith(":") and len(line) <= HEADING_CHARS_MAX):
        return _COLON_LEVEL
    return 0


def _goes_on(text: str, block: tuple[int, int], line: tuple[int, int], *, item: bool) -> bool:
    """True if a line continues the block above it: it is wrapped, or indented below an item."""
    next_ = text[slice(*line)]
    if any(one.match(next_) for one in (_FENCE, _ITEM, _HEADING, _ROW, _ENTRY)):
        return False
    last = text[text.rfind("\n", block[0], block[1]) + 1 or block[0] : block[1]]
    long = _WRAPPED_CHARS_MIN <= len(last) <= _WRAPPED_CHARS_MAX
    wrapped = long and not _ENDED.search(last)
    if wrapped and next_.lstrip()[:1].islower():
        return True
    if _level(next_, alone=False):
        return False
    return (item and next_[:1].isspace()) or (wrapped and not _KEY.match(next_))


def _is_ragged(lines: Sequence[str]) -> bool:
    """Return whether lines of different lengths have no punctuation at their ends, as speech that
    was written down: each is a note of its own.
    """
    width = max(map(len, lines), default=0) * _RAGGED
    short = sum(len(line) < width for line in lines[:-1])
    ended = sum(_ENDED.search(line) is not None for line in lines)
    plain = not any(line[0].isspace() or _ITEM.match(line) for line in lines if line)
    loose = short * 3 >= len(lines) and ended * 5 <= len(lines)
    return plain and loose and len(lines) >= _RAGGED_MIN


def is_wrapped(lines: Sequence[str]) -> bool:
    """Return whether most lines end as the next word did not fit, not because a note ends."""
    if _is_ragged(lines):
        return False
    width = _FULL * max(map(len, lines))
    fits = [
        len(line) + 1 + len(after.split(maxsplit=1)[0]) > width or after.lstrip()[0].islower()
        for line, after in pairwise(filter(str.strip, lines))
        if not line.endswith((".", "!", "?", ")", "。", "！", "？"))
    ]
    return sum(fits) >= _MOST * len(fits)


def _joined(text: str, cut: Iterable[Block]) -> Iterator[Block]:
    """Yield sentences of prose, joined up to `PASSAGE_CHARS` in a line and up to `LINES_CHARS` in
    several, and all other blocks unchanged.
    """
    pieces: list[tuple[int, int]] = []
    for block in cut:
        apart = block.whole or block.level
        if pieces and (apart or block.end - pieces[0][0] > LINES_CHARS):
            yield from _even(pieces)
            pieces = []
        if apart:
            yield block
        else:
            pieces += _sentences(text, block)
    yield from _even(pieces)


def _sentences(text: str, block: Block) -> Iterator[tuple[int, int]]:
    start = block.start
    for match in _SENTENCE.finditer(text, block.start, block.end):
        if not _SHORT.search(text, max(start, match.end() - 12), match.end()):
            yield start, start + len(text[start : match.end()].rstrip())
            start = match.end()
    yield start, block.end


def _even(pieces: Sequence[tuple[int, int]]) -> Iterator[Block]:
    """Yield neighbouring pieces, joined to as few blocks as `PASSAGE_CHARS` allows, of about equal
    length.
    """
    if not pieces:
        return
    chars = pieces[-1][1] - pieces[0][0]
    aim = chars / -(-chars // PASSAGE_CHARS)
    start, end = pieces[0]
    for first, last in pieces[1:]:
        # The next piece joins if that brings the passage nearer to the length aimed at.
        if last - start <= PASSAGE_CHARS and (last - start) - aim <= aim - (end - start):
            end = last
            continue
        yield Block(start, end)
        start, end = first, last
    yield Block(start, end)


class VisiblePassage(NamedTuple):
    """A passage with its readable `words`, those neither hidden, forgotten nor erased, and the
    readable words of the headings above it.
    """

    passage: Passage
    words: str
    heading: str


def visible_passages(
    episode: Episode, changed: Sequence[Span] | None = None
) -> dict[str, VisiblePassage]:
    """Return the passages of an episode that search finds, by id: all of them, or those of which
    the words, or a heading, are in one of the spans that have `changed`.
    """
    found: dict[str, VisiblePassage] = {}
    forgotten, within = _Spans(episode.forgotten), None if changed is None else _Spans(changed)
    cut = passages if within is None else cut_again
    for one in cut(episode.text, episode.turns):
        spans = (one.span, *one.headings)
        if one.turn.hidden or (within and not any(map(within.overlapping, spans))):
            continue
        words, *headings = (
            visible(episode.text[span.start : span.end], span.start, forgotten.overlapping(span))
            for span in spans
        )
        if any(map(str.isalnum, words)):
            item_id = passage_id(episode.id, one.turn.index, one.number)
            found[item_id] = VisiblePassage(one, words, " ".join(headings))
    return found


@lru_cache(4)
def cut_again(text: str, turns: tuple[Turn, ...]) -> list[Passage]:
    """`passages` of a text of which a part is about to change: cutting a long one takes longer than
    others may wait, so it is cut before their turn.
    """
    return passages(text, turns)


class _Spans:
    """Spans, of which those that touch another one are found without a look at all of them."""

    def __init__(self, spans: Iterable[Span]) -> None:
        self._apart: list[Span] = []
        for one in sorted(spans, key=lambda span: span.start):
            if self._apart and one.start <= self._apart[-1].end:
                last = self._apart.pop()
                one = Span(last.start, max(last.end, one.end))  # noqa: PLW2901
            self._apart.append(one)

    def overlapping(self, span: Span) -> list[Span]:
        """Return the spans that overlap this one, those that overlap each other as one."""
        first = bisect_right(self._apart, span.start, key=lambda one: one.end)
        last = bisect_left(self._apart, span.end, first, key=lambda one: one.start)
        return self._apart[first:last]


def started(said: str, chars_max: int) -> str:
    """Return the first sentences of what was said, as many as fit; of a longer one, the words."""
    if len(said) <= chars_max:
        return said
    ends = [match.end() for match in _SENTENCE.finditer(said[: chars_max + 1])]
    return f"{said[: ends[-1] if ends else said.rfind(' ', 0, chars_max)].rstrip()} …"


def visible(said: str, start: int, forgotten: Iterable[Span]) -> str:
    """Return `said`, which begins at `start`, without forgotten and erased words."""
    here = [one for one in forgotten if one.start < start + len(said) and one.end > start]
    if not here and BLOCK not in said:
        return said
    pieces, at = list[str](), 0
    for one in sorted(here, key=lambda span: span.start):
        pieces.append(said[at : max(at, one.start - start)])
        at = max(at, one.end - start)
    pieces.append(said[at:])
    parts = [part.strip() for piece in pieces for part in piece.split(BLOCK)]
    return " … ".join(part for part in parts if any(map(str.isalnum, part)))
