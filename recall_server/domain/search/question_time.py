"""What a question says of time: the periods and events that it names, and whether it asks for one.

Pure: `now` is an argument. What is found only ever helps what fits it; nothing is left out for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from recall_server.domain.text.periods import TEXT_CHARS_MAX, Period, periods

EVENTS_MAX = 2
EVENT_WORDS_MAX = 12


class Order(StrEnum):
    """How what is asked for lies to an event."""

    BEFORE = "before"
    AFTER = "after"
    DURING = "during"


class Asks(StrEnum):
    """What of time a question wants to know."""

    MOMENT = "moment"
    DURATION = "duration"


@dataclass(frozen=True)
class Event:
    """Something that is remembered, in the words of the question: "the move", "I started at X"."""

    order: Order
    words: str


@dataclass(frozen=True)
class When:
    """The time in a question."""

    periods: tuple[Period, ...] = ()
    events: tuple[Event, ...] = ()
    asks: Asks | None = None


def when(question: str, now: datetime) -> When:
    """The time in a question, asked at `now`. English only."""
    question = question[:TEXT_CHARS_MAX]
    found = periods(question, now)
    return When(found, tuple(_events(question, found))[:EVENTS_MAX], asks(question))


def asks(question: str) -> Asks | None:
    """Whether a question asks when something was, or how long it took."""
    if _MOMENT.search(question):
        return Asks.MOMENT
    return Asks.DURATION if _DURATION.search(question) else None


_DOES = (
    r"(?:did|do|does|was|were|is|are|am|has|have|had|will|would|can|could|should|shall|exactly"
    r"|else|next|last)"
)
_MOMENT = re.compile(
    rf"^\W*(?:(?:and|so|but|ok|also|hey),? )?(?:when(?:'s| {_DOES}\b)"
    r"|(?:(?:in|on|at|by|since|until|from|during|around) )?(?:what|which) "
    r"(?:year|month|week|weekday|weekend|day|date|season|time)\b(?! (?:zone|limit|of)\b)"
    r"|since when|how (?:long|many (?:days|weeks|months|years)) ago|how recently"
    r"|what(?:'s| is| was) the (?:exact )?(?:date|day|month|year)\b)"
    r"|\b(?:remember|know|recall|tell me|sure|forgot|remind me|idea)(?: of| exactly)?"
    r" when\b"
    r"|\bhow (?:long|many (?:days|weeks|months|years)) ago\b",
    re.IGNORECASE,
)
_DURATION = re.compile(
    r"\bhow (?:long(?! ago)|many (?:hours|days|weeks|months|years)"
    r"(?! (?:a|an|per|each|every|old|ago)\b))",
    re.IGNORECASE,
)

_ORDERS = {
    "before": Order.BEFORE,
    "until": Order.BEFORE,
    "till": Order.BEFORE,
    "by the time": Order.BEFORE,
    "after": Order.AFTER,
    "since": Order.AFTER,
    "during": Order.DURING,
    "while": Order.DURING,
    "when": Order.DURING,
}
_ORDER = r"(?:before|until|till|by the time|after|since|during|while|when)"
_EVENT = re.compile(
    rf"\b(?P<order>{_ORDER}) (?P<words>(?:(?!\b{_ORDER} )[^,.;:?!()])+)", re.IGNORECASE
)
# "Looked after", "named after", "remember when": no event follows.
_OTHER_USE = re.compile(
    r"\b(?:(?:nam|call|look|ask|tak|chas|pin|inquir)(?:e|ed|es|s|ing)?|took|run|ran|running"
    r"|remember|know|recall|me|sure|forgot|idea|of|worth|a|the) $",
    re.IGNORECASE,
)
_NO_EVENT = re.compile(
    r"(?:all|that|this|it|him|her|them|me|us|you|which|what|whom|when|now|then|long|noon|midnight"
    r"|tomorrow|yesterday|today|tonight|day|week|month|year)(?:$|\s\W)"
    r"|(?:all|another|the other|with|in|at|on|to|for|and|or|but|by|as|not|if|how|what|which)\b|\d"
    r"|the (?:day|night|morning|afternoon|evening|week|weekend|year|summer|winter)s?(?:$|\s\W)"
    r"|(?:an?|one|two|three|four|five|six|seven|eight|nine|ten|twenty|thirty|a few|several|many"
    r"|some) (?:second|minute|hour|day|week|month|year|while)s?\b",
    re.IGNORECASE,
)
_INTERROGATIVE = re.compile(
    r"^\W*(?:and |so |but )?(?:what|who|whom|whose|where|which|how|why|did|do|does|was|were|is|are"
    r"|had|has|have|tell|show|list|name)\b",
    re.IGNORECASE,
)


def _events(question: str, dated: tuple[Period, ...]) -> Iterator[Event]:
    for match in _EVENT.finditer(question):
        word, words = match["order"].lower(), match["words"].strip()
        if word == "when" and not _INTERROGATIVE.match(question[: match.start()]):
            continue
        if _OTHER_USE.search(question, 0, match.start()) or _NO_EVENT.match(words):
            continue
        # "Before June 2023" is a period already.
        said = f"{word} {words}".lower()
        if any(said in one.words.lower() or said.startswith(one.words.lower()) for one in dated):
            continue
        yield Event(_ORDERS[word], " ".join(words.split()[:EVENT_WORDS_MAX]))
