"""Which of several statements about the same thing is the current one: the later stands first.
Pure.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from itertools import product
from typing import NamedTuple

from recall_server.domain.query import Item
from recall_server.domain.text.terms import (
    STOP,
    asked_terms,
    content_words,
    language_of,
    terms,
)

# How many of the best hits are compared. On FactConsolidation, two statements about one thing are
# together among them.
LOOKED_AT = 10
# Longer texts say more than one thing.
STATEMENT_TERMS_MAX = 25
# The least share of common terms (Jaccard) of two statements about the same thing.
ALIKE_MIN = 0.35
# Of a later statement about the same number, how many terms the earlier one may not have.
MORE_TERMS_MAX = 1

# All patterns of statements are for small letters: ignoring the case takes three times as long.
# Words of a statement that something is no longer as it was.
_CHANGED = re.compile(
    r"\b(?:now|no longer|not any ?more|from now on|instead|change[ds]?|change of plans?|moved"
    r"|rescheduled|postponed|brought forward|put (?:off|back)|actually|correction|switched"
    r"|replace[ds]?|raised|lowered|increased|reduced|went (?:up|down)|renamed|new|since|as of"
    r"|jetzt|nun|ab|nicht mehr|verschoben|vorverlegt|verlegt|geändert|gewechselt|umgezogen"
    r"|stattdessen|korrektur|neu(?:e[nrms]?)?|seit|erhöht|gesenkt|ersetzt|künftig"
    r"|ahora|ya no|a partir de|desde|aplazad[oa]|adelantad[oa]|cambi(?:ó|ado|ada|amos)|en vez de"
    r"|en lugar de|corrección|nuev[oa]|subi(?:ó|do)|baj(?:ó|ado)|mejor dicho"
    r"|maintenant|désormais|dorénavant|ne \w+ plus|à partir de|depuis|reportée?|avancée?|changée?"
    r"|au lieu de|plutôt|nouve(?:au|l|lle)|remplacée?)\b"
    r"|现在|改[为到成]|变更|推迟|提前|不再|换[成到]|更正|新的|搬到|今|現在|変更|変わ|延期|前倒し"
    r"|もう|ではなく|代わり|訂正|新しい|になりました|移転",
)
_CHANGED_TO = re.compile(
    r"^\W*(?:actually|correction|in fact|korrektur|eigentlich|tatsächlich|corrección|en realidad"
    r"|en fait|更正|其实|訂正|実は)"
    r"|\b(?:changed|switched|renamed|reset|moved|set)\b[^.!?\n]{1,60} to\b|\b(?:is|are) now\b"
    r"|\b(?:ist|sind|lautet) jetzt\b|\bgeändert (?:auf|zu|in)\b|\bes ahora\b|\best maintenant\b"
    r"|现在是|改[为成]|に変[わえ]|今は",
)
# Three kinds of answer: how a question asks for them, and how they are written.
_ASKS_NUMBER = re.compile(
    r"\bhow (?:much|many|long|old|often|far|big|tall|high)\b|\bwie (?:viel|lange|alt|oft|hoch|weit)"
    r"|\bkostet\b|\bcu[áa]nt[oa]s?\b|\bcombien\b|多少|多长|多久|几|いくら|何[番人個回歳度年]",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"\d|[一二三四五六七八九十百千]")
_ASKS_MOMENT = re.compile(
    r"\bwhen\b|\b(?:what|which) (?:time|day|date)\b|\bwann\b|\bwelche[mnr]? tag\b|\bcu[áa]ndo\b"
    r"|\bqu[ée] (?:d[íi]a|hora)\b|\bquand\b|\bquel(?:le)? (?:jour|heure)\b"
    r"|什么时候|何时|几点|哪天|いつ|何[時日曜]",
    re.IGNORECASE,
)
# One group between two boundaries: a boundary for each part takes three times as long.
_MOMENT = re.compile(
    r"\d(?![\d.,]*\s?(?:[€$£%]|euros?\b|eur\b|minut|people\b|kg\b))"
    r"|\b(?:(?:mon|tues|wednes|thurs|fri|satur|sun)days?|today|tomorrow|noon|midnight"
    r"|(?:mon|diens|donners|frei|sams|sonn)tags?|mittwochs?|heute|morgen|mittags"
    r"|lunes|martes|miércoles|jueves|viernes|sábados?|domingos?|hoy|mañana"
    r"|(?:lun|mar|mercre|jeu|vendre|same)dis?|dimanches?|demain|midi"
    r"|january|february|march|april|may|june|july|august|september|october|november|december"
    r"|januar|februar|märz|mai|juni|juli|oktober|dezember|enero|febrero|marzo|abril|mayo|junio"
    r"|julio|agosto|septiembre|octubre|noviembre|diciembre|janvier|février|mars|avril|juin"
    r"|juillet|août|septembre|octobre|novembre|décembre)\b"
    r"|[周週]|星期|礼拜|曜|明天|今天|明日|今日|[一二三四五六七八九十][月日号時点]",
)
_ASKS_NAME = re.compile(
    r"\b(?:who|whom|whose|where|wer|wem|wen|wo|qui[ée]n(?:es)?|d[óo]nde|qui|o[ùu])\b"
    r"|谁|哪里|哪儿|誰|どこ",
    re.IGNORECASE,
)
# A number with what it counts, or what it is of: "10 mg", "$5", "Ubuntu 24.04"; or a time of day.
_VALUE = re.compile(
    r"(?P<time>\d{1,2}:\d\d)"
    r"|(?P<sign>[€$£¥]) ?(?P<amount>\d[\d.,]*)"
    r"|(?:(?P<of>[^\W\d_]+) )?(?P<number>\d(?:[\d.,]*\d)?)(?![:\d])(?:st|nd|rd|th)?"
    r"(?: ?(?P<unit>%|[^\W\d_]+))?"
)
_DIGIT = re.compile(r"\d")
_MORE = re.compile(
    r"\b(?:(?:up|down|cut|back) to|put (?:me |us |it )?(?:up|down)|upgraded|downgraded|slipped)\b",
)
_WORD = re.compile(r"[^\W\d_][\w.'’-]*")
_NO_NAMES = STOP | frozenset({"euro", "euros", "eur", "usd", "gbp", "chf", "uhr", "prozent"})


class _Question(NamedTuple):
    """The terms of a question, and the kind of answer that it asks for, if it asks for one."""

    terms: frozenset[str]
    number: bool
    moment: bool
    name: bool

    @classmethod
    def read(cls, question: str) -> "_Question":
        number = _ASKS_NUMBER.search(question) is not None
        moment = _ASKS_MOMENT.search(question) is not None
        name = _ASKS_NAME.search(question) is not None
        return cls(frozenset(asked_terms(question, language_of(question))), number, moment, name)


class _Statement:
    """An item and the properties of its words. Each is computed once, when it is first used."""

    def __init__(self, item: Item) -> None:
        self.item = item

    @cached_property
    def own(self) -> str:
        """The words of the item without the headings above them."""
        span = self.item.citation.span
        return self.item.citation.quote[-(span.end - span.start) :]

    @cached_property
    def small(self) -> str:
        """The same in small letters."""
        return self.own.lower()

    @cached_property
    def language(self) -> str:
        return language_of(self.own)

    @cached_property
    def terms(self) -> frozenset[str]:
        return frozenset(terms(self.own))

    @cached_property
    def all_terms(self) -> frozenset[str]:
        """The terms of its words with the headings, which all items of a list have in common."""
        return frozenset(terms(content_words(self.item.citation.quote)))

    @cached_property
    def changed(self) -> bool:
        """Whether it says that something is no longer as it was."""
        return _CHANGED.search(self.small) is not None

    @cached_property
    def besides_change(self) -> frozenset[str]:
        """The terms of its words without those that say that something has changed."""
        rest = _MORE.sub(" ", _CHANGED.sub(" ", self.small))
        return frozenset(terms(content_words(rest)))

    @cached_property
    def names(self) -> list[frozenset[str]]:
        """The terms of each word that may be a name; in German every noun looks like one."""
        if self.language == "de":
            return []
        return [frozenset(terms(name)) for name in _names(self.words)]

    @cached_property
    def words(self) -> list[str]:
        return _words(self.own)

    @cached_property
    def begins_with_name(self) -> bool:
        first = _WORD.match(self.own)
        return bool(first and self.names and self.names[0].issuperset(terms(first[0])))

    @cached_property
    def values(self) -> dict[str, set[str]]:
        """The numbers in its words by what they count or are of: "10 mg" by "mg"."""
        found: dict[str, set[str]] = {}
        for match in _VALUE.finditer(self.own):
            words = ((match[name] or "").casefold() for name in ("unit", "of"))
            name = next((one for one in words if one and one not in STOP), "")
            of = "time" if match["time"] else match["sign"] or name.removesuffix("s")
            if of:
                found.setdefault(of, set()).add(match["time"] or match["amount"] or match["number"])
        return found

    def answers(self, asked: _Question) -> bool | None:
        """Return whether it has a term of the question, and an answer of the kind that is asked
        for; None if it has a term, and no kind is asked for.
        """
        if asked.terms.isdisjoint(self.terms):
            return False
        if asked.number:
            return _NUMBER.search(self.own) is not None
        if asked.moment:
            return _MOMENT.search(self.small) is not None
        return self.has_name(asked) if asked.name else None

    def has_name(self, asked: _Question) -> bool:
        """Return whether it may have a name that the question has not; one without small letters
        may always.
        """
        words = _words(content_words(self.own, self.language)) if self.language else self.words
        if not any(map(str.islower, words)):
            return True
        return any(asked.terms.isdisjoint(terms(name)) for name in _names(words))

    def has_other_value(self, earlier: "_Statement") -> bool:
        """Return whether it has other numbers of the same as an earlier one, and no equal."""
        same = self.values.keys() & earlier.values.keys()
        return bool(same) and all(self.values[of].isdisjoint(earlier.values[of]) for of in same)

    def names_another(self, earlier: "_Statement", asked: _Question) -> bool:
        """Return whether it names somebody whom neither the question nor an earlier statement
        names: a number in it may be theirs.
        """
        return any(
            named and earlier.terms.isdisjoint(named) and asked.terms.isdisjoint(named)
            for named in self.names
        )

    def is_of_another(self, earlier: "_Statement", asked: _Question) -> bool:
        """Return whether it and an earlier statement begin with two names, neither of them asked
        for, and differ in a further name: they say the same of two people or things.
        """
        if not (self.begins_with_name and earlier.begins_with_name):
            return False
        (first, *further), (before, *_) = self.names, earlier.names
        differ = first.isdisjoint(earlier.terms) and before.isdisjoint(self.terms)
        asked_for = not asked.terms.isdisjoint(first | before)
        return differ and not asked_for and not all(map(earlier.terms.intersection, further))


def _words(text: str) -> list[str]:
    """Return the words of a text that tell no moment, and not that something has changed."""
    small = text.lower()
    # Some capitals have two small characters, such as that of "i" in Turkish.
    small = small if len(small) == len(text) else text
    rest = _CHANGED.sub(_blank, _MOMENT.sub(_blank, small))
    return [text[one.start() : one.end()] for one in _WORD.finditer(rest)]


def _blank(match: re.Match[str]) -> str:
    return " " * len(match[0])


def _names(words: Iterable[str]) -> Iterator[str]:
    """Yield those of the words that may be names."""
    return (one for one in words if one[0].isupper() and one.casefold() not in _NO_NAMES)


def began_after(item: Item, until: datetime | None) -> bool:
    """True if an item says what became true at `until` or later."""
    return until is not None and item.valid_from >= until


def later_first(
    question: str, items: Sequence[Item], until: datetime | None = None
) -> tuple[list[int], dict[int, int]]:
    """Return the places of `items` in their new order, and for each that gave way the place of the
    latest item above it about the same thing: in the same container, by the same speaker, with the
    same terms of the question, and either most of its other terms or another answer, as something
    changed; or with some of them, and another number of the same kind. The later item swaps places
    with the earlier one.

    Superseded items are not compared, as their order is decided, nor those that began at `until` or
    later. A less trusted item never goes above a more trusted one.
    """
    asked = _Question.read(question)
    order = list(range(len(items)))
    said = list(map(_Statement, items))
    alike = _alike(said, asked.terms, until)
    when = [(one.valid_from, one.recorded_at, one.citation.span.start) for one in items]
    above: dict[int, list[int]] = {}
    for places in alike.values():
        if len(places) > 1:
            above |= _above({at: said[at] for at in places}, when, asked)
    for one, other in _near(alike, said):
        if when[other] > when[one] and _renews(said[other], said[one], asked):
            above.setdefault(one, []).append(other)
    if not any(above.values()):
        return order, {}

    def later(one: int, others: Sequence[int]) -> int | None:
        """Return the latest of the others that may rank above this one."""
        may = above.get(one, ())
        return max((i for i in others if i in may), key=when.__getitem__, default=None)

    for place, here in enumerate(order):
        if (last := later(here, order[place + 1 :])) is not None:
            at = order.index(last)
            order[place], order[at] = last, here
    gave_way = {here: later(here, order[:place]) for place, here in enumerate(order)}
    return order, {here: other for here, other in gave_way.items() if other is not None}


class _About(NamedTuple):
    """The terms of the question that a statement has, its container, and its speaker."""

    shared: frozenset[str]
    container: str
    speaker: str | None


def _alike(
    said: Sequence[_Statement], asked: frozenset[str], until: datetime | None
) -> dict[_About, list[int]]:
    """Return the places of short statements that hold, by what they are about."""
    found: dict[_About, list[int]] = {}
    for place, item in enumerate(one.item for one in said):
        has = frozenset(terms(item.searchable))
        if began_after(item, until) or len(has) > STATEMENT_TERMS_MAX or item.superseded_by:
            continue
        if shared := has & asked:
            about = _About(shared, item.container, item.citation.speaker)
            found.setdefault(about, []).append(place)
    return found


def _near(
    alike: Mapping[_About, Sequence[int]], said: Sequence[_Statement]
) -> Iterator[tuple[int, int]]:
    """Yield the pairs of places of statements by one speaker that have some terms in common, but
    not the same ones, and a number.
    """
    if len(alike) < 2:
        return
    numbered = {at for places in alike.values() for at in places if _DIGIT.search(said[at].own)}
    for about, places in alike.items() if len(numbered) > 1 else ():
        for of, others in alike.items():
            if about[1:] == of[1:] and about != of and not about.shared.isdisjoint(of.shared):
                yield from product(numbered.intersection(places), numbered.intersection(others))


def _renews(later: _Statement, earlier: _Statement, asked: _Question) -> bool:
    """Return whether a later statement that something has changed has another number of the same
    kind.
    """
    typed = later.item.attribute is not None and earlier.item.attribute is not None
    if typed or later.item.trust < earlier.item.trust or not later.has_other_value(earlier):
        return False
    if not (later.changed or _MORE.search(later.small)):
        return False
    # Other terms may name another matter.
    more = sum(not any(map(str.isdigit, term)) for term in later.besides_change - earlier.terms)
    return more <= MORE_TERMS_MAX and not later.names_another(earlier, asked)


def _above(
    said: Mapping[int, _Statement],
    when: Sequence[tuple[datetime, datetime, int]],
    asked: _Question,
) -> dict[int, list[int]]:
    """Return for the place of each of these statements about the same thing those of the later ones
    that may rank above it.
    """
    answers = {at: one.answers(asked) for at, one in said.items()}
    changed = {}
    for at, one in said.items():
        # Without a kind of answer, only "changed … to" tells a change of what is asked for.
        cue = _CHANGED_TO if answers[at] is None else _CHANGED
        changed[at] = answers[at] is not False and cue.search(one.small) is not None

    def may_rank_above(other: int, one: int) -> bool:
        later, earlier = said[other], said[one]
        if when[other] <= when[one] or later.item.trust < earlier.item.trust:
            return False
        both = len(earlier.all_terms & later.all_terms)
        alike = both >= ALIKE_MIN * (len(earlier.all_terms) + len(later.all_terms) - both)
        # Two facts are of different subjects or attributes, as one has not superseded the other.
        typed = later.item.attribute is not None and earlier.item.attribute is not None
        if not (alike or (changed[other] and answers[one] is not False and not typed)):
            return False
        if (asked.number or asked.moment) and later.names_another(earlier, asked):
            return False
        return not later.is_of_another(earlier, asked)

    return {one: [other for other in said if may_rank_above(other, one)] for one in said}
