"""Cuts a text into pieces that may state something: sentences, list items, `Key: value` lines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise

from recall_server.domain.text.passages import HEADING_CHARS_MAX
from recall_server.integrations.extraction.rules.facts import Found, Speaker, find_fact
from recall_server.integrations.extraction.rules.judging import size
from recall_server.integrations.extraction.rules.language import Table, titles

PIECE_CHARS_MAX = 600
_WRAPPED_MIN = 50
# Of fewer lines it cannot be told that they are wrapped: a capital begins a new one.
_LINES_MIN = 3
_STOPS = (".", "!", "?", ")", "。", "！", "？")
# The heading levels of a line that names a day, of one in bold, of one that ends with a colon, and
# of the name at the start of a paragraph.
DAY, BOLD, LEAD_IN, NAME = 3, 4, 5, 6


class Kind(StrEnum):
    """The kind of a piece of text."""

    SENTENCE = "sentence"
    ITEM = "item"
    PAIR = "pair"
    STEPS = "steps"
    HEADING = "heading"
    SENDER = "sender"


@dataclass(frozen=True)
class Piece:
    """A part of the text; `key` is that of a pair, `number` that of a numbered item."""

    start: int
    end: int
    kind: Kind
    key: str = ""
    number: int = 0
    level: int = 0


_FENCE = re.compile(r"[ \t]{0,8}(?:```|~~~)")
_QUOTE = re.compile(r"[ \t]{0,3}>")
_BULLET = re.compile(
    r"[ \t]{0,12}(?:(?:[-*•+–·▪●→]|->|\(?(?P<number>\d{1,2})[.)])[ \t]{1,3}"
    r"|(?P<han>\d{1,2})[、．][ \t]{0,3})(?:\[[ xX]\][ \t]{1,3})?"
    r"|[ \t]{0,12}(?:[・●①-⑳]|\[[ xX]\][ \t]{1,3})"
)
_MARK = re.compile(r"[ \t]{0,3}(?P<hashes>#{1,6})[ \t]{1,3}")
_BOLD = re.compile(r"[ \t]{0,3}\*\*(?P<title>[^*\n]{2,80}?):?\*\*:?[ \t]*$")
# A ruled line, also with a time in it: "--- reply, 2026-11-03 08:30, Ana ---".
_RULE = re.compile(
    r"[ \t]*(?:[-=*_~#|+: ]{3,}|([-=*_~])\1{2,}[^\n\d]*\d[\d:.-]{3,}[^\n]*\1{3,}[ \t]*)$"
)
# Below the first row of a table.
_COLUMNS = re.compile(r"\n[ \t]*\|[-: |]*-[-: |]*(?=\n|$)")
# The cells or the time at the start of a line of a log, which all of its sentences are about.
_ENTRY = re.compile(
    r"[ \t]*(?:[-*•][ \t]{1,3})?(?P<lead>(?:[^|\n]{1,60} \| ){2,4}"
    r"|\d{1,2}:\d\d(?=[ \t]+[^\W\d])|\d{4}-\d\d-\d\d(?=[ \t]+[^\W\d]))"
)
_PAIR = re.compile(
    r"(?P<key>\*{0,2}[^\W_][^\n:：*?!.;,|\"“„]{0,38}?\*{0,2})[ ]?"
    r"(?::\*{0,2}[ \t]{1,4}|：[ \t]{0,4}|:(?=[぀-鿿])|[ ]=[ ])(?P<value>\S.*)"
)
# Shorter sentences after a pair are further values: "Allergies: penicillin. Latex."
_PROSE_WORDS_MIN = 4
_ADDED_WORDS_MAX = 2
_SUBJECTS = ("definite", "first", "we")
_HEADS = ("senders", "subjects", "ignored")
_HEADER = re.compile(r"(?P<name>[^\W\d]{1,12})[ ]?[:：][ \t]{0,4}(?P<value>\S.*)")
# "11月18日 周三", "9月4日（金）".
_HAN_DAY = re.compile(
    r"\s*\d{1,2}月\d{1,2}日?\s*[（(]?(?:(?:周|星期|礼拜)?[一二三四五六日天月火水木金土](?:曜日?)?(?:・祝)?)?[)）]?\s*"
)
_DAY_WORD = re.compile(r"\d{1,2}(?:st|nd|rd|th)?(?!\w)|[^\W\d]+|\w+")
_DAY_CHARS_MAX, _MONTH_CHARS_MIN = 24, 3
_CLOCK = re.compile(r"\d:\d\d")
_ENDS = re.compile(
    r"[.!?…]{1,8}[\"'”’»)\]*_]{0,3}(?=\s|$)|[。！？]{1,8}[」』）”]{0,2}|[\U0001f300-\U0001faff☀-➿]️?"
)
_LOWER = re.compile(r"\s{1,3}[a-zß-öø-ÿ\d]")


def pieces(text: str, start: int, end: int, table: Table) -> Iterator[Piece]:
    """Yield the pieces of `text[start:end]`, including headings, without code and quotes."""
    prose: list[tuple[int, int]] = []
    fenced = False
    for first, last in _lines(text, start, end):
        line = text[first:last]
        if _FENCE.match(line):
            fenced = not fenced
            continue
        names_columns = line.lstrip().startswith("|") and _COLUMNS.match(text, last)
        if fenced or _QUOTE.match(line) or _RULE.match(line) or names_columns:
            continue
        found = _day(line, first, last, table) or _of_line(line, first, last)
        if found is None and line.strip():
            prose.append((first, last))
            continue
        yield from _paragraph(text, prose, table)
        prose = []
        if found is None:
            continue
        if found.kind is Kind.ITEM:
            for one in _of_one_line(text, found, table):
                yield replace(one, kind=Kind.ITEM, number=found.number)
        elif found.kind is Kind.PAIR:
            yield from _with_prose(text, found, table)
        elif found.end > found.start:
            yield found
    yield from _paragraph(text, prose, table)


def _day(line: str, first: int, last: int, table: Table) -> Piece | None:
    """Return a line that is a day without a year ("Tue 6 Oct") and nothing else as a heading: what
    is below was said on that day. A day with a year is known to the turns.
    """
    if len(line) > _DAY_CHARS_MAX:
        return None
    words = [word.lower() for word in _DAY_WORD.findall(line)]
    days = tuple(day[:3] for day in table.data["weekdays"].split())
    names = [word for word in words if word[0].isalpha() and not word.startswith(days)]
    months = [
        month for month in table.data["months"].split() if month.startswith(*names[:1] or " ")
    ]
    written = len(names) == 1 and len(names[0]) >= _MONTH_CHARS_MIN and len(months) == 1
    numbered = sum(word[0].isdigit() for word in words) == 1
    if _HAN_DAY.fullmatch(line) or (written and numbered):
        return Piece(first, last, Kind.HEADING, level=DAY)
    return None


def _with_prose(text: str, pair: Piece, table: Table) -> Iterator[Piece]:
    """Yield a `Key: value` pair, and the sentences that follow it on its line."""
    found = _of_one_line(text, pair, table)
    if not found:  # one sentence, too long to be a statement
        return
    first, *others = found
    whole = _PAIR.match(text[pair.start : first.end])  # a key can end a sentence: "I 。: yes"
    long = (size(text[one.start : one.end], table) >= _PROSE_WORDS_MIN for one in others)
    if others and whole and all(long):
        yield replace(pair, end=first.end)
        yield from others
    else:
        yield pair


def _of_one_line(text: str, line: Piece, table: Table) -> list[Piece]:
    """Return the sentences of a line. One without a subject, or of two words, belongs to the one
    before: "Learn Rust. Not urgent.", "Laptop: ordered. Arrives on the 20th."
    """
    found: list[Piece] = []
    for one in _sentences(text, [(line.start, line.end)], table):
        said = text[one.start : one.end]
        if found and (table.starts("words.elided", said) or size(said, table) <= _ADDED_WORDS_MAX):
            found[-1] = replace(found[-1], end=one.end)
        else:
            found.append(one)
    return found


def _lines(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    while start < end:
        newline = text.find("\n", start, end)
        stop = end if newline < 0 else newline
        yield start, stop
        start = stop + 1


def _of_line(line: str, first: int, last: int) -> Piece | None:
    """Return the piece that a line is by its form; None for prose."""
    mark = _MARK.match(line)
    if mark:
        return Piece(first + mark.end(), last, Kind.HEADING, level=len(mark["hashes"]))
    bold = _BOLD.match(line)
    if bold:
        return Piece(
            first + bold.start("title"), first + bold.end("title"), Kind.HEADING, level=BOLD
        )
    header = _HEADER.match(line)
    role = next((one for one in _HEADS if header and titles(one).fullmatch(header["name"])), None)
    if header and titles("dates").fullmatch(header["name"]) and _CLOCK.search(header["value"]):
        role = "ignored"
    if header and role:
        at = first + header.start("value")
        kind = Kind.SENDER if role == "senders" else Kind.HEADING
        end = at if role == "ignored" else last
        return Piece(at, end, kind, level=int(role == "subjects"))
    bullet = _BULLET.match(line)
    at = bullet.end() if bullet else len(line) - len(line.lstrip())
    number = 0
    if bullet:
        number = int(bullet["number"] or bullet["han"] or 0)
    rest = line[at:].rstrip()
    if not rest:
        return Piece(first, first, Kind.HEADING)
    pair = _PAIR.match(rest)
    if pair and len(pair["key"].split()) <= 5 and not pair["value"].startswith("//"):
        key = pair["key"].strip("* ")
        return Piece(first + at, first + at + len(rest), Kind.PAIR, key=key, number=number)
    if rest.endswith((":", "：")) and len(rest) <= HEADING_CHARS_MAX:
        return Piece(first + at, first + at + len(rest) - 1, Kind.HEADING, level=LEAD_IN)
    if bullet or rest.startswith("|"):
        return Piece(first + at, first + at + len(rest), Kind.ITEM, number=number)
    return None


def entry(text: str, at: int) -> str:
    """Return the cells or the time before `at` in its line of a log; "" without any."""
    start = text.rfind("\n", 0, at) + 1
    lead = _ENTRY.match(text, start)
    if lead is None or at < lead.end("lead") + 3:
        return ""
    return ", ".join(cell.strip() for cell in lead["lead"].split("|") if cell.strip())


def with_columns(text: str, start: int, row: str) -> str:
    """Return the `row` at `start` with the names of its columns: "What: ask Ben, Owner: Ana"."""
    top = start
    while text[(above := text.rfind("\n", 0, max(0, top - 1)) + 1) : top].lstrip()[:1] == "|":
        top = above
    head = text.find("\n", top)
    if not _COLUMNS.match(text, head):
        return row
    names, cells = (
        [cell.strip() for cell in one.strip().strip("|").split("|")]
        for one in (text[top:head], row)
    )
    named = (
        f"{name}: {cell}" if any(map(str.isalpha, name)) else ""
        for name, cell in zip(names, cells, strict=False)
        if cell
    )
    return ", ".join(filter(None, named)) or row


def key_and_value(text: str) -> tuple[str, str]:
    """Return the key and the value of a `Key: value` line."""
    key, value = re.split(r"[ ]?[:：=]\*{0,2}\s*", text, maxsplit=1)
    return key, value


def _paragraph(text: str, lines: list[tuple[int, int]], table: Table) -> Iterator[Piece]:
    """Yield the sentences of lines. A sentence spans lines only in hard-wrapped prose or if the
    next line is indented.
    """
    wrapped, prose = _is_wrapped(text, lines), lines[:1]
    for line in lines[1:]:
        indented = text[line[0]] in " \t"
        capital = text[line[0]].isupper() and len(lines) < _LINES_MIN
        if not (indented or (wrapped and not capital and _is_open(text, prose[-1]))):
            yield from _sentences(text, prose, table)
            prose = []
        prose.append(line)
    yield from _sentences(text, prose, table)


def _is_wrapped(text: str, lines: list[tuple[int, int]]) -> bool:
    """Return whether the lines end because the next word did not fit, not because a note ends."""
    width = max((end - start for start, end in lines), default=0)
    return all(
        line[1] - line[0] + 1 + len(text[after[0] : after[1]].split(maxsplit=1)[0]) > width
        for line, after in pairwise(lines)
        if text[line[0] : line[1]].rstrip()[-1:] not in _STOPS
    )


def _is_open(text: str, line: tuple[int, int]) -> bool:
    """Return whether a sentence may continue on the next line: this one is long and unfinished."""
    start, end = line
    return end - start >= _WRAPPED_MIN and text[start:end].rstrip()[-1:] not in _STOPS


def _sentences(text: str, lines: list[tuple[int, int]], table: Table) -> Iterator[Piece]:
    if not lines:
        return
    start, end = lines[0][0], lines[-1][1]
    at = start
    for match in _ENDS.finditer(text, start, end):
        if match[0][0] == "." and _unfinished(text, at, match.start(), match.end(), table):
            continue
        yield from _trimmed(text, at, match.end())
        at = match.end()
    yield from _trimmed(text, at, end)


def _unfinished(text: str, start: int, dot: int, end: int, table: Table) -> bool:
    """Return whether a full stop belongs to an abbreviation or an ordinal number."""
    words = text[max(start, dot - 12) : dot].split()
    if not words or dot + 1 != end:
        return False
    last = words[-1].lower().lstrip("([\"'")
    counted = table.data["counted"].split()
    if last in counted or any(one[0] == "-" and last.endswith(one[1:]) for one in counted):
        return text[end : end + 2].strip().isdigit()
    unit = words[:-1] and words[-2].isdigit()
    # "5 m." and "500 ms." end with a unit, "J." and "Ms." do not.
    may_be_unit = (len(last) == 1 and last.isalpha()) or last == "ms"
    if (may_be_unit and not unit) or last in table.data["abbreviations"].split():
        return bool(text[end : end + 3].strip())
    clock = words[:-1] and words[-2] in ("um", "gegen")
    begins = any(table.starts(f"words.{cue}", text[end + 1 : end + 12]) for cue in _SUBJECTS)
    ordinal = table.name == "de" and last.isdigit() and len(last) <= 2 and not (clock or begins)
    return ordinal or bool(_LOWER.match(text, end) and last.replace(".", "").isdigit())


def _trimmed(text: str, start: int, end: int) -> Iterator[Piece]:
    said = text[start:end].rstrip(" \t\n*_")
    start, end = start + len(said) - len(said.lstrip(" \t\n*_—–-")), start + len(said)
    if 2 <= end - start <= PIECE_CHARS_MAX:
        yield Piece(start, end, Kind.SENTENCE)


_COMMA = re.compile(r", (?:and )?|[，、]")
# The place of a part of a text.
Part = tuple[int, int]


@dataclass(frozen=True)
class Clause:
    """A clause from `start` to `end`; `text` are its words, with an elided subject added."""

    start: int
    end: int
    text: str
    kind: Kind
    found: Found | None = None


def parts(cut: re.Pattern[str], text: str, joint: re.Pattern[str] | None = None) -> list[Part]:
    """Cut a text where the pattern matches, but neither within parentheses nor after a `joint`."""
    cuts = []
    for match in cut.finditer(text):
        before = text[: match.start()]
        joined = joint and text[match.end() : match.end() + 1].isupper() and joint.search(before)
        if before.count("(") <= before.count(")") and not joined:
            cuts.append(match)
    starts, ends = [0, *(one.end() for one in cuts)], [*(one.start() for one in cuts), len(text)]
    return list(zip(starts, ends, strict=True))


def listed(
    start: int, text: str, kind: Kind, speaker: Speaker, language: Table
) -> Iterator[Clause]:
    """Yield the parts of "I'm 34, married, two kids, live in Oslo", if most are facts."""
    if language.spaced and not language.starts("words.first", text) and kind is not Kind.ITEM:
        return
    found_parts = parts(_COMMA, text)
    if len(found_parts) < 3 or any(size(text[a:b], language) > 6 for a, b in found_parts):
        return
    clauses = []
    for first, last in found_parts:
        part = text[first:last].rstrip(".!。")
        added = ("", "") if not first else (language.data["i"], language.data["be"])
        for said in (f"{added[0]}{part}", f"{added[1]}{part}", part):
            found = find_fact(said, speaker, language)
            if found:
                clauses.append(Clause(start + first, start + last, said, kind, found))
                break
    if len(clauses) >= max(2, len(found_parts) - 1) and clauses[0].start == start:
        yield from clauses


def coordinated(clause: Clause, speaker: Speaker, language: Table) -> Iterator[Clause]:
    """Yield "I live in Ghent" and "work at Volvo" of "I live in Ghent and work at Volvo"."""
    text = clause.text
    for cut in re.finditer(language.data["and"], text):
        rest = text[cut.end() :]
        if size(rest, language) < 2 or not language.has("words.first", text[: cut.start()]):
            continue
        one = find_fact(text[: cut.start()], speaker, language)
        said = f"{language.data['i']}{rest}"
        two = one and find_fact(said, speaker, language)
        if one and two and one.fact.attribute != two.fact.attribute:
            middle = clause.start + cut.start()
            yield replace(clause, end=middle, text=text[: cut.start()])
            yield replace(clause, start=clause.start + cut.end(), text=said, found=two)
            return
    yield clause


def with_steps(text: str, found: Sequence[Piece], heading: str, language: Table) -> Iterator[Piece]:
    """Join numbered items that are steps: at least half begin with an order or a command, or the
    heading says how something is done.
    """
    at = 0
    while at < len(found):
        piece, end = found[at], at + 1
        if piece.kind is Kind.HEADING:
            heading = text[piece.start : piece.end]
        while end < len(found) and found[end].number >= piece.number == 1:
            end += 1
        numbered = found[at:end]
        steps = sum(_is_step(text[one.start : one.end], language) for one in numbered) * 2
        joins = steps >= len(numbered) and not language.has("keep.rules", heading)
        if len(numbered) > 1 and (joins or language.has("keep.howto", heading)):
            start = text.rfind("\n", 0, piece.start) + 1
            yield replace(piece, start=start, end=found[end - 1].end, kind=Kind.STEPS)
        else:
            yield from numbered
        at = end


def _is_step(item: str, language: Table) -> bool:
    orders = any(language.starts(cue, item) for cue in ("keep.order", "keep.step"))
    return orders or item.startswith(("`", "$ "))
