"""Which of several statements about the same thing is the current one: the later stands first.
Pure.
"""

import re
from collections.abc import Collection, Hashable, Mapping, Sequence
from datetime import datetime

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


def began_after(item: Item, until: datetime | None) -> bool:
    """True if an item says what became true at `until` or later."""
    return until is not None and item.valid_from >= until


def later_first(
    question: str, items: Sequence[Item], until: datetime | None = None
) -> tuple[list[int], dict[int, int]]:
    """Return the places of `items` in their new order, and for each that gave way the place of the
    latest item above it about the same thing: in the same container, by the same speaker, with the
    same terms of the question, and either most of its other terms or another answer, as something
    changed. The later item swaps places with the earlier one.

    Superseded items are not compared, as their order is decided, nor those that began at `until` or
    later. A less trusted item never goes above a more trusted one.
    """
    asked = frozenset(asked_terms(question, language_of(question)))
    words = [frozenset(terms(item.searchable)) for item in items]
    order = list(range(len(items)))
    alike: dict[Hashable, list[int]] = {}
    for place, (item, said) in enumerate(zip(items, words, strict=True)):
        shared = said & asked
        if began_after(item, until):
            continue
        if shared and len(said) <= STATEMENT_TERMS_MAX and not item.superseded_by:
            about = shared, item.container, item.citation.speaker
            alike.setdefault(about, []).append(place)
    when = [(one.valid_from, one.recorded_at, one.citation.span.start) for one in items]
    above: dict[int, list[int]] = {}
    for places in alike.values():
        if len(places) > 1:
            above |= _above(places, items, when, _answering(question, asked, items, places))
    if not any(above.values()):
        return order, {}

    def later(one: int, others: Sequence[int]) -> int | None:
        """Return the latest of the others that may rank above this one."""
        may = above.get(one, ())
        return max((i for i in others if i in may), key=when.__getitem__, default=None)

    for place, here in enumerate(order):
        if (other := later(here, order[place + 1 :])) is not None:
            at = order.index(other)
            order[place], order[at] = other, here
    gave_way = {here: later(here, order[:place]) for place, here in enumerate(order)}
    return order, {here: other for here, other in gave_way.items() if other is not None}


def _answering(
    question: str, asked: frozenset[str], items: Sequence[Item], places: Sequence[int]
) -> dict[int, bool | None]:
    """Return for each place whether the words of its item, without the headings above them, have
    a term of the question and an answer.
    """
    words = {at: _own_words(items[at]) for at in places}
    return {
        at: not asked.isdisjoint(terms(own)) and _has_answer(question, asked, own)
        for at, own in words.items()
    }


def _own_words(item: Item) -> str:
    """Return the words of an item without the headings above them."""
    span = item.citation.span
    return item.citation.quote[-(span.end - span.start) :]


def _above(
    places: Sequence[int],
    items: Sequence[Item],
    when: Sequence[tuple[datetime, datetime, int]],
    answers: Mapping[int, bool | None],
) -> dict[int, list[int]]:
    """Return for each of these places of items about the same thing those of the later ones that
    may rank above it. `answers`: whether the item at a place answers by its own words.
    """
    said, trust, changed, typed = {}, {}, {}, {}
    for at in places:
        item, trust[at] = items[at], items[at].trust
        # A heading is the same above all items of a list.
        said[at] = frozenset(terms(content_words(item.citation.quote)))
        # Two facts are of different subjects or attributes, as one has not superseded the other.
        typed[at] = item.attribute is not None
        changed[at] = answers[at] and _CHANGED.search(_own_words(item)) is not None
    return {
        one: [
            other
            for other in places
            if when[other] > when[one]
            and trust[other] >= trust[one]
            and (
                (both := len(said[one] & said[other]))
                >= ALIKE_MIN * (len(said[one]) + len(said[other]) - both)
                or (answers[one] and changed[other] and not (typed[one] and typed[other]))
            )
        ]
        for one in places
    }
