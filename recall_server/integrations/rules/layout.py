"""How a text is laid out. Cuts it into pieces that may state something: sentences, list items,
`Key: value` lines. Finds the headings above a piece, and who speaks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import pairwise

from recall_server.domain.episode import Span
from recall_server.domain.text import passages
from recall_server.domain.text.attribution import begins_with_day
from recall_server.domain.text.labels import ROLES
from recall_server.integrations.rules.facts import Found, Speaker, find_fact, is_owned
from recall_server.integrations.rules.judging import has_verb, size
from recall_server.integrations.rules.language import Table, roles_of, shape
from recall_server.integrations.rules.wording import cleaned

PIECE_CHARS_MAX = 600
# The levels of a line in capitals below the title, of a day, and of a heading without a mark.
_SECTION, DAY, UNMARKED = 2, 3, 7
_PART_WORDS_MAX, _CAPTION_WORDS_MAX = 6, 4
# A longer heading is shown without what stands in parentheses.
_ASIDE_FROM = 45
# "WLAN" is a caption like "Kitchen".
_INITIALS_MAX = 5
# So many labels that each occur once are keys, even before whole sentences.
_KEYS_MIN = 3
NOBODY = Speaker("", "")


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
    """A part of the text; `text` are its words, also with an elided subject added. `key` is that of
    a pair, `number` that of an item, `level` that of a heading.
    """

    start: int
    end: int
    text: str
    kind: Kind
    found: Found | None = None
    key: str = ""
    number: int = 0
    level: int = 0


def pieces(text: str, start: int, end: int, table: Table) -> Iterator[Piece]:
    """Yield the pieces of `text[start:end]`, including headings, without code and quotes."""
    if start >= end:
        return
    found = list(passages.blocks(text, Span(start, end)))
    prose = (text[one.start : one.end] for one in found if not (one.whole or one.level))
    wrapped = passages.is_wrapped("\n".join(prose).split("\n"))
    for block in found:
        line = text[block.start : block.end]
        if line.startswith(("```", "~~~")) and not block.whole:
            return  # code without an end
        columns = block.level == passages.TABLE_LEVEL or shape("columns").match(text, block.start)
        if not (columns or shape("skipped").match(line)):
            # Each line is a note of its own, with the indented ones below it, unless it is wrapped.
            ends = () if wrapped else shape("next_line").finditer(text, block.start, block.end)
            cuts = [block.start, *(match.end() for match in ends), block.end]
            for first, last in pairwise(cuts):
                yield from _of_block(text, block._replace(start=first, end=last), table)


def _of_block(text: str, block: passages.Block, table: Table) -> Iterator[Piece]:
    line = text[block.start : block.end]
    if header := shape("header").match(line):
        at = block.start + header.start("value")
        kind = Kind.SENDER if header["sender"] else Kind.HEADING
        if header["sender"] or header["subject"]:
            yield Piece(at, block.end, text[at : block.end], kind, level=1)
        return
    mark = shape("mark").match(line)
    assert mark
    number = int(mark["number"] or mark["han"] or 0)
    start = block.start + (mark.end() or len(line) - len(line.lstrip()))
    words = text[start : block.end]
    whole = Piece(start, block.end, words, Kind.ITEM, number=number)
    pair = shape("pair").match(words)
    level = DAY if table.patterns["day"].fullmatch(line) else block.level
    if 0 < level < passages.LEAD_LEVEL:
        at = pair.start("value") if pair and passages.NUMBERED.fullmatch(pair["key"]) else 0
        yield Piece(start + at, block.end, words[at:], Kind.HEADING, level=level)
    elif pair:
        whole = replace(whole, kind=Kind.PAIR, key=pair["key"].strip("* "))
        yield from _with_prose(text, whole, start + pair.start("value"), table)
    elif mark.end() or "|" in line:
        yield whole
    elif not block.level:
        yield from _sentences(text, start, block.end, table)


def _with_prose(text: str, pair: Piece, value: int, table: Table) -> Iterator[Piece]:
    """Yield a pair with its further values ("Latex."), then the sentences after it."""
    found = list(_sentences(text, value, pair.end, table))
    for at, one in enumerate(found):
        elided = any(table.starts(f"{cue}.elided", one.text) for cue in ("words", "keep"))
        if at and has_verb(one.text, table) and not (elided or shape("pair").match(one.text)):
            yield replace(pair, end=found[at - 1].end, text=text[pair.start : found[at - 1].end])
            yield from found[at:]
            return
    if found:  # else it is one sentence, too long to be a statement
        yield replace(pair, end=found[-1].end, text=text[pair.start : found[-1].end])


def key_and_value(text: str) -> tuple[str, str]:
    """Return the key and the value of a `Key: value` line."""
    key, value = re.split(r"[ ]?[:：=]\*{0,2}\s*", text, maxsplit=1)
    return key, value


def _sentences(text: str, start: int, end: int, table: Table) -> Iterator[Piece]:
    """Yield the sentences of a part of a text. Full stops of short forms and of code end none."""
    short = {match.end() for match in table.patterns["short"].finditer(text, start, end)}
    code = [match.span() for match in shape("code_span").finditer(text, start, end)]
    for match in shape("ends").finditer(text, start, end):
        in_code = any(first < match.start() < last for first, last in code)
        if match.end() not in short and not in_code:
            yield from _trimmed(text, start, match.end())
            start = match.end()
    yield from _trimmed(text, start, end)


def _trimmed(text: str, start: int, end: int) -> Iterator[Piece]:
    said = text[start:end].rstrip(" \t\n*_")
    start, end = start + len(said) - len(said.lstrip(" \t\n*_—–-")), start + len(said)
    if 2 <= end - start <= PIECE_CHARS_MAX:
        yield Piece(start, end, text[start:end], Kind.SENTENCE)


def parts(cut: re.Pattern[str], text: str) -> list[tuple[int, int]]:
    """Return the parts of a text that is cut where the pattern matches, not in "Otto and Ida"."""
    two = shape("one_of_two")
    cuts = [
        one
        for one in cut.finditer(text)
        if not (text[one.end() :][:1].isupper() and two.search(text[: one.start()]))
    ]
    starts, ends = [0, *(one.end() for one in cuts)], [*(one.start() for one in cuts), len(text)]
    return list(zip(starts, ends, strict=True))


def listed(clause: Piece, speaker: Speaker, language: Table) -> Iterator[Piece]:
    """Yield the parts of "I'm 34, married, …" and "live in Ghent and work …", else a clause."""
    text, i, be = clause.text, language.data["i"], language.data["be"]
    own = bool(not language.spaced or language.starts("words.first", text))
    head = text[: parts(shape("comma"), text)[0][1]]
    people = any(language.has(f"words.{one}", head) for one in ("relation", "person"))
    if is_owned(text, language) or (not language.spaced and people):
        # The words after "My wife is vegan and" are about her, those after "My name is Ana," about
        # the speaker.
        begun = find_fact(head, speaker, language)
        own = begun is not None and begun.fact.attribute == "name"
    own = own and not shape("reports").match(text)
    ands = language.patterns["and"]
    for cut, least, others, words in ((shape("comma"), 3, 1, _PART_WORDS_MAX), (ands, 2, 0, 99)):
        places, found = parts(cut, text), list[Piece]()
        for first, last in places if own and len(places) >= least else ():
            part = text[first:last].rstrip(".!。")
            leads = first and size(part, language) <= words and not is_owned(part, language)
            for said in (f"{i}{part}", f"{be}{part}", part) if leads else (part,):
                fact = find_fact(said, speaker, language)
                named = fact and (fact.fact.entity, fact.fact.attribute)
                # "I speak Dutch and English" does not say "I am English".
                if said == part or (named and named[0] == speaker.entity and named[1] != "name"):
                    break
            place = clause.start + first, clause.start + last
            found.append(Piece(*place, said, clause.kind, fact))
        attributes = {one.found.fact.attribute for one in found if one.found}
        if len(attributes) >= max(2, len(places) - others):
            yield from found
            return
    yield clause


def with_steps(text: str, found: Sequence[Piece], heading: str, language: Table) -> Iterator[Piece]:
    """Join numbered items if most are orders, or the heading says how something is done."""
    at = 0
    while at < len(found):
        piece, end = found[at], at + 1
        if piece.kind is Kind.HEADING:
            heading = piece.text
        while end < len(found) and found[end].number >= piece.number == 1:
            end += 1
        numbered = found[at:end]
        orders = [one for one in numbered if language.starts("keep.step", one.text)]
        joins = len(orders) * 2 >= len(numbered) and not language.has("keep.rules", heading)
        if len(numbered) > 1 and (joins or language.has("keep.howto", heading)):
            start = text.rfind("\n", 0, piece.start) + 1
            stop = numbered[-1].end
            yield Piece(start, stop, text[start:stop], Kind.STEPS)
        else:
            yield from numbered
        at = end


@dataclass
class Headings:
    """The headings in force, by their level, who sent the text, and whom it is said to be about."""

    by_level: dict[int, str] = field(default_factory=dict)
    sender: str | None = None
    headed: bool = False
    subject: Speaker = NOBODY
    named_at: int = 0

    def begin(self, found: Sequence[Piece]) -> None:
        """Begin a paragraph: a heading without a mark applies to one only."""
        if not self.headed:
            self.by_level.pop(UNMARKED, None)
        self.headed = found[-1].kind is Kind.HEADING

    def add(self, piece: Piece, language: Table) -> bool:
        """Add a heading or a sender; return False for any other piece."""
        if piece.kind not in (Kind.HEADING, Kind.SENDER):
            return False
        title = cleaned(piece.text).rstrip(":： ")
        # "I have read them. Three things:"
        title = shape("sentences_before").sub("", title)
        if piece.kind is Kind.SENDER:
            self.sender = shape("address").sub("", title).strip("\"' ") or None
            return True
        greets = any(language.starts(f"drop.{cue}", title) for cue in ("greeting", "chatter"))
        if greets and piece.text.rstrip()[-1] in ":：,":
            return True  # "Hello everybody:" names nothing.
        if shape("myself").fullmatch(title):
            title = language.data["user"]
        level, dated = piece.level, language.patterns["date"].search
        for above in [k for k, v in self.by_level.items() if dated(v) and dated(title)]:
            if self.by_level[above].startswith(title.partition(" ")[0]):
                level = above  # "Notes, Nov 4" is a title like "Notes, Oct 21".
        self.by_level = {k: v for k, v in self.by_level.items() if k < level}
        self.subject = self.subject if level > self.named_at else NOBODY
        if title:
            self.by_level[level] = shape("forwarded").sub("", title)
        return True

    def whose(self, piece: Piece, speaker: Speaker, language: Table) -> Speaker:
        """Return whom a piece is about if it does not say: the speaker, or whom a line names."""
        level = max(self.by_level, default=0)
        named = piece.kind is Kind.PAIR and shape("whom").match(piece.text)
        if named and self.by_level.get(level) != language.data["user"]:
            who = named["who"].rstrip(". ")
            self.subject, self.named_at = Speaker(who, who), min(level, UNMARKED - 1)
        below = self.subject != NOBODY and level <= self.named_at
        return self.subject if below and not language.has("words.first", piece.text) else speaker

    @property
    def sections(self) -> bool:
        """Whether a section of minutes is above, and not only the title of a chat."""
        return len(self.by_level) > 1

    @property
    def nearest(self) -> str:
        return passages.ASIDE.sub("", self.by_level[max(self.by_level)]).strip()

    @property
    def text(self) -> str:
        """The title of the text and the nearest heading, without generic ones."""
        ranked = [title for _, title in sorted(self.by_level.items())]
        named = [one for one in ranked if not shape("generic").fullmatch(one)]
        shown = [x if len(x) <= _ASIDE_FROM else passages.ASIDE.sub("", x).strip() for x in named]
        return ", ".join(dict.fromkeys([*shown[:1], *shown[-1:]]))


def with_heading(
    found: list[Piece], text: str, language: Table, *, opens: bool, dated: bool
) -> list[Piece]:
    """Return a paragraph with its first line as title (`opens`), day or caption, if it is one. An
    entry of a log, which another follows or which was said on its day (`dated`), heads its items.
    """
    first = found[0]
    line, below = first.text, text[first.end : found[-1].end]
    goes_on = text[first.end : first.end + 1] not in ("\n", "") or len(text) == first.end
    titled = shape("titled").search(first.key or line)
    following = text[first.end : first.end + 200].lstrip()
    number = shape("number")  # "Invoice 1: …" above "Invoice 2: …", and "1 = …", are rows.
    series = number.sub("0", following).startswith(number.sub("0", first.key).partition(" ")[0])
    keyed = opens and not series and (titled or number.search(first.key))
    named = (keyed and first.kind is Kind.PAIR) or first.kind in (Kind.SENTENCE, Kind.HEADING)
    rows = (line, line if dated else following)
    logged = all(begins_with_day(row) or shape("entry").match(row) for row in rows)
    listed = found[1:2] and found[1].kind is Kind.ITEM
    if not named or goes_on or not passages.may_name(line) or (logged and not listed):
        return found
    level = first.level or UNMARKED
    short = len(line.split()) <= _CAPTION_WORDS_MAX or passages.is_named(line, below)
    caption = short and below.strip().count("\n") > 0 and not titled
    opens = opens and not (logged or caption or line[0].islower() or level == DAY)
    if opens or (line.isupper() and len(line) > _INITIALS_MAX):
        level = 1 if opens else _SECTION
    elif len(found) == 1 or not (caption or logged or language.patterns["date"].search(line)):
        return found
    return [replace(first, kind=Kind.HEADING, level=level), *found[1:]]


def speaker_of(label: str | None, line: str, language: Table) -> Speaker | None:
    """Return who "I" is, None for an assistant; `line` is the text before the words."""
    user = Speaker("user", language.data["user"])
    if label is None:
        return user
    stands = label.lower() in ROLES or not label[:1].isupper()  # and not "Ana Kim (host)"
    if stands and (named := shape("parentheses").search(line)):
        return Speaker(named[1], named[1])
    words = re.findall(r"\w+", label.lower()) or [""]
    if not roles_of("silent").isdisjoint([words[0], words[-1]]):
        return None
    if words[0] in ("customer", "client") and language.name == "en":
        return Speaker("user", f"The {words[0]}")
    return user if words[0] in roles_of("users") else Speaker(label, label)


def keyed(said: Sequence[str], language: Table) -> bool:
    """Return whether labels that occur once are keys: "Passport: renewed in March", no speech."""
    values = len(said) >= _KEYS_MIN or all(one[:1].islower() for one in said)
    return values and not any(
        "?" in one
        or language.starts("words.pronoun", one)
        or language.patterns["openers"].match(one)
        or any(language.has(f"words.{name}", one) for name in ("first", "we", "you"))
        for one in said
    )
