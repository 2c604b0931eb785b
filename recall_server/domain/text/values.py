"""Kinds of values that a question may ask for by their form: an amount of money, a phone number, an
e-mail address, a time of day.

"What is the doctor's phone number?" shares no word with "Dr. Falk, 01632 960 418". Each kind is a
term of the index, like a speaker, so it is found and counted like a word.
"""

from __future__ import annotations

import re
from typing import NamedTuple

VALUE = "="
"""The prefix of a term that names a kind of value. It differs from every term of a text."""


class _Kind(NamedTuple):
    """How one asks for a kind of value, and how it is written."""

    asked: re.Pattern[str]
    written: re.Pattern[str]


def _kind(asked: str, written: str) -> _Kind:
    return _Kind(re.compile(asked, re.IGNORECASE), re.compile(written, re.IGNORECASE))


_KINDS = {
    "phone": _kind(
        r"\b(?:tele)?phone\b|\b(?:mobile|cell) number\b|\btelefon|handynummer|rufnummer"
        r"|\bnummer v[oe][mn]\b|\btel[ée]fono\b|\bm[óo]vil\b|t[ée]l[ée]phone|電話|电话|手机号",
        r"(?<![\w.,:/-])(?!\d{4}-\d\d-\d\d|\d{4}-\d{4}(?!\d)|\d{1,3}(?:[ ]\d{3})+(?![ ]?\d))"
        r"\+?\(?\d(?:[ ()/-]{0,2}\d){6,14}(?![\w.,]*\d)",
    ),
    "mail": _kind(
        r"\be-?mails?\b|mailadresse|\bcorreo\b|\bcourriel\b|\badresse mail\b|メール|邮箱|邮件",
        r"[\w.+-]@[\w-]+\.\w",
    ),
    "money": _kind(
        r"\bhow much (?:is|are|was|were|did|does|do|will|would|may|can|should)\b|\bpay\b|\bpaid\b"
        r"|\b(?:costs?|prices?|fees?|rent|budgets?|salary|expensive|deposit)\b"
        r"|kostet\b|\bkosten\b|\bpreis|\bwie teuer\b|bezahl|\bmiete\b|\bgehalt\b"
        r"|\bcu[áa]nto (?:cuesta|vale|pag)|\bcuestan?\b|\bprecio|\balquiler\b"
        r"|\bpresupuesto\b|\bco[ûu]t(?:e|ent|er|s)?\b|\bprix\b|\bloyer\b"
        r"|いくら|価格|値段|料金|予算|多少钱|价格|房租|预算",
        r"[€$£¥]\s?\d|\d\s?(?:[€$£¥円元块]|(?:euros?|eur|usd|dollars?|pounds?|gbp|chf|francs?|franken"
        r"|pesos?|yen)\b)",
    ),
    "clock": _kind(
        r"\bwhat time\b|\bwie viel uhr\b|\bwieviel uhr\b|\b[àa] quelle heure\b|\ba qu[ée] hora\b"
        r"|何時|几点",
        r"(?<![\d:.])[0-2]?\d[:.][0-5]\d(?![\d:.]|\s?[€$£%])|\b\d\d?\s?(?:[ap]\.?m\b|uhr\b|h\b)|[時时点]",
    ),
}


def asked_values(question: str) -> frozenset[str]:
    """Return the terms of the kinds of value that a question asks for."""
    return frozenset(
        f"{VALUE}{name}" for name, kind in _KINDS.items() if kind.asked.search(question)
    )


def value_terms(text: str) -> list[str]:
    """Return the terms of the kinds of value that a text has."""
    return [f"{VALUE}{name}" for name, kind in _KINDS.items() if kind.written.search(text)]
