"""Which of several statements about the same thing is the current one: the later stands first.
Pure.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
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
    re.IGNORECASE,
)
_CHANGED_TO = re.compile(
    r"\b(?:changed|switched|renamed|reset|moved|set)\b[^.!?\n]{1,60} to\b|\b(?:is|are) now\b"
    r"|\b(?:ist|sind|lautet) jetzt\b|\bgeändert (?:auf|zu|in)\b|\bes ahora\b|\best maintenant\b"
    r"|现在是|改[为成]|に変[わえ]|今は",
    re.IGNORECASE,
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
_MOMENT = re.compile(
    r"\d(?![\d.,]*\s?(?:[€$£%]|euros?\b|eur\b|minut|people\b|kg\b))|\b(?:mon|tues|wednes|thurs|fri|satur|sun)days?\b|\b(?:today|tomorrow|noon|midnight)\b"
    r"|\b(?:mon|diens|donners|frei|sams|sonn)tags?\b|\bmittwochs?\b|\b(?:heute|morgen|mittags)\b"
    r"|\b(?:lunes|martes|miércoles|jueves|viernes|sábados?|domingos?|hoy|mañana)\b"
    r"|\b(?:lun|mar|mercre|jeu|vendre|same)dis?\b|\bdimanches?\b|\b(?:demain|midi)\b"
    r"|\b(?:january|february|march|april|may|june|july|august|september|october|november|december"
    r"|januar|februar|märz|mai|juni|juli|oktober|dezember|enero|febrero|marzo|abril|mayo|junio"
    r"|julio|agosto|septiembre|octubre|noviembre|diciembre|janvier|février|mars|avril|juin"
    r"|juillet|août|septembre|octobre|novembre|décembre)\b"
    r"|[周週]|星期|礼拜|曜|明天|今天|明日|今日|[一二三四五六七八九十][月日号時点]",
    re.IGNORECASE,
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
    re.IGNORECASE,
)
_WORD = re.compile(r"[^\W\d_][\w.'’-]*")
_NO_NAMES = STOP | frozenset({"euro", "euros", "eur", "usd", "gbp", "chf", "uhr", "prozent"})


def _has_answer(question: str, asked: Collection[str], text: str) -> bool | None:
    """Return whether a text has an answer of the kind that is asked for; None if no kind is.
    `asked`: the terms of the question.
    """
    if _ASKS_NUMBER.search(question):
        return _NUMBER.search(text) is not None
    if _ASKS_MOMENT.search(question):
        return _MOMENT.search(text) is not None
    return _has_name(text, asked) if _ASKS_NAME.search(question) else None


def _has_name(text: str, asked: Collection[str]) -> bool:
    """Return whether a text may have a name that the question has not; one without small letters
    may always.
    """
    words = _WORD.findall(_CHANGED.sub(" ", _MOMENT.sub(" ", content_words(text))))
    if not any(word.islower() for word in words):
        return True
    names = (word for word in words if word[0].isupper())
    return any(
        word.casefold() not in _NO_NAMES and not set(terms(word)).intersection(asked)
        for word in names
    )


def _values(text: str) -> dict[str, set[str]]:
    """Return the numbers in a text by what they count or are of: "10 mg" by "mg"."""
    found: dict[str, set[str]] = {}
    for match in _VALUE.finditer(text):
        words = ((match[name] or "").casefold() for name in ("unit", "of"))
        name = next((one for one in words if one and one not in STOP), "")
        of = "time" if match["time"] else match["sign"] or name.removesuffix("s")
        if of:
            found.setdefault(of, set()).add(match["time"] or match["amount"] or match["number"])
    return found


def _has_other_value(one: str, other: str) -> bool:
    """Return whether another text has other numbers of the same as the first one, and no equal."""
    before, after = _values(one), _values(other)
    same = before.keys() & after.keys()
    return bool(same) and all(before[of].isdisjoint(after[of]) for of in same)


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
    asked = frozenset(asked_terms(question, language_of(question)))
    order = list(range(len(items)))
    alike = _alike(items, asked, until)
    when = [(one.valid_from, one.recorded_at, one.citation.span.start) for one in items]
    above: dict[int, list[int]] = {}
    for places in alike.values():
        if len(places) > 1:
            above |= _above(places, items, when, question, asked)
    for one, other in _near(alike, items):
        if when[other] > when[one] and _renews(items[other], items[one], asked):
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
    items: Sequence[Item], asked: frozenset[str], until: datetime | None
) -> dict[_About, list[int]]:
    """Return the places of short statements that hold, by what they are about."""
    found: dict[_About, list[int]] = {}
    for place, item in enumerate(items):
        said = frozenset(terms(item.searchable))
        if began_after(item, until) or len(said) > STATEMENT_TERMS_MAX or item.superseded_by:
            continue
        if shared := said & asked:
            about = _About(shared, item.container, item.citation.speaker)
            found.setdefault(about, []).append(place)
    return found


def _near(
    alike: Mapping[_About, Sequence[int]], items: Sequence[Item]
) -> Iterator[tuple[int, int]]:
    """Yield the pairs of places of statements by one speaker that have some terms in common, but
    not the same ones, and a number.
    """
    if len(alike) < 2:
        return
    own = {at: _own_words(items[at]) for places in alike.values() for at in places}
    numbered = {at for at, words in own.items() if _DIGIT.search(words)}
    for about, places in alike.items() if len(numbered) > 1 else ():
        for of, others in alike.items():
            if about[1:] == of[1:] and about != of and not about.shared.isdisjoint(of.shared):
                yield from product(numbered.intersection(places), numbered.intersection(others))


def _renews(later: Item, item: Item, asked: frozenset[str]) -> bool:
    """Return whether a later statement that something has changed has another number of the same
    kind.
    """
    typed = later.attribute is not None and item.attribute is not None
    if typed or later.trust < item.trust:
        return False
    earlier, own = _own_words(item), _own_words(later)
    if not _has_other_value(earlier, own):
        return False
    if not (_CHANGED.search(own) or _MORE.search(own)):
        return False
    # Other terms may name another matter.
    rest = {*terms(content_words(_MORE.sub(" ", _CHANGED.sub(" ", own))))} - {*terms(earlier)}
    more = sum(not any(map(str.isdigit, term)) for term in rest)
    return more <= MORE_TERMS_MAX and not _names_another(own, earlier, asked)


def _names_another(own: str, earlier: str, asked: Collection[str]) -> bool:
    """Return whether a statement names somebody whom neither the question nor an earlier statement
    names: a number in it may be theirs. In German every noun looks like a name.
    """
    if language_of(own) == "de":
        return False
    known = {*terms(earlier), *asked}
    words = _WORD.findall(_CHANGED.sub(" ", _MOMENT.sub(" ", own)))
    names = (word for word in words if word[0].isupper() and word.casefold() not in _NO_NAMES)
    return any(named and known.isdisjoint(named) for named in map(terms, names))


def _own_words(item: Item) -> str:
    """Return the words of an item without the headings above them."""
    span = item.citation.span
    return item.citation.quote[-(span.end - span.start) :]


def _above(
    places: Sequence[int],
    items: Sequence[Item],
    when: Sequence[tuple[datetime, datetime, int]],
    question: str,
    asked: frozenset[str],
) -> dict[int, list[int]]:
    """Return for each of these places of items about the same thing those of the later ones that
    may rank above it.
    """
    counts = _ASKS_NUMBER.search(question) or _ASKS_MOMENT.search(question)
    own = {at: _own_words(items[at]) for at in places}
    # Whether the words of an item have a term of the question and an answer.
    answers = {
        at: not asked.isdisjoint(terms(words)) and _has_answer(question, asked, words)
        for at, words in own.items()
    }
    said, trust, changed, typed = {}, {}, {}, {}
    for at in places:
        item, trust[at] = items[at], items[at].trust
        # A heading is the same above all items of a list.
        said[at] = frozenset(terms(content_words(item.citation.quote)))
        # Two facts are of different subjects or attributes, as one has not superseded the other.
        typed[at] = item.attribute is not None
        # Without a kind of answer, only "changed … to" tells a change of what is asked for.
        cue = _CHANGED_TO if answers[at] is None else _CHANGED
        changed[at] = answers[at] is not False and cue.search(own[at]) is not None

    def may_rank_above(other: int, one: int) -> bool:
        if when[other] <= when[one] or trust[other] < trust[one]:
            return False
        both = len(said[one] & said[other])
        alike = both >= ALIKE_MIN * (len(said[one]) + len(said[other]) - both)
        changes = changed[other] and not (answers[one] is False or (typed[one] and typed[other]))
        if not (alike or changes):
            return False
        return not (counts and _names_another(own[other], own[one], asked))

    return {one: [other for other in places if may_rank_above(other, one)] for one in places}
