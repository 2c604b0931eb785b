"""Finds the headings above a piece of text, and who speaks: a person, the user or an assistant."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from recall_server.domain.text.passages import ASIDE, is_named, may_name
from recall_server.domain.text.stamps import begins_with_day
from recall_server.integrations.extraction.rules.cutting import DAY, UNMARKED, Kind, Piece
from recall_server.integrations.extraction.rules.facts import Speaker
from recall_server.integrations.extraction.rules.language import Table, roles_of, shape
from recall_server.integrations.extraction.rules.wording import cleaned

_CAPTION_WORDS_MAX = 4
# A longer heading is shown without what stands in parentheses.
_ASIDE_FROM = 45
_LABELLED_CHARS = 20_000
# The level of a line in capitals below the title.
_SECTION = 2
# "WLAN" is a caption like "Kitchen".
_INITIALS_MAX = 5
# So many labels that each occur once are keys, even before whole sentences.
_KEYS_MIN = 3
NOBODY = Speaker("", "")


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
        return ASIDE.sub("", self.by_level[max(self.by_level)]).strip()

    @property
    def text(self) -> str:
        """The title of the text and the nearest heading, without generic ones."""
        ranked = [title for _, title in sorted(self.by_level.items())]
        named = [one for one in ranked if not shape("generic").fullmatch(one)]
        shown = [one if len(one) <= _ASIDE_FROM else ASIDE.sub("", one).strip() for one in named]
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
    if not named or goes_on or not may_name(line) or (logged and not listed):
        return found
    level = first.level or UNMARKED
    short = len(line.split()) <= _CAPTION_WORDS_MAX or is_named(line, below)
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
    if named := shape("parentheses").search(line):
        return Speaker(named[1], named[1])
    words = re.findall(r"\w+", label.lower()) or [""]
    if not roles_of("silent").isdisjoint([words[0], words[-1]]):
        return None
    if words[0] in ("customer", "client") and language.name == "en":
        return Speaker("user", f"The {words[0]}")
    return user if words[0] in roles_of("users") else Speaker(label, label)


def labels(text: str, speakers: set[str]) -> frozenset[str]:
    """Return the speakers whose labels `parse_turns` does not know, such as "用户：" said once."""
    lines = [line for line in text[:_LABELLED_CHARS].split("\n") if line.strip()]
    found = Counter(match[1] for match in map(shape("label").match, lines) if match)
    roles = {one for one in found if one.lower() in roles_of("users") | roles_of("silent")}
    small = {one for one in found if found[one] > 1 and one[0].islower()}
    named = frozenset(small | roles) - speakers
    spoken = sum(found[one] for one in {*named, *(speakers & found.keys())})
    return named if len(named) + len(speakers) > 1 and spoken * 2 > len(lines) else frozenset()


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
