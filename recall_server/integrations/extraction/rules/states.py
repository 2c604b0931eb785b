"""The table of states: what may follow "is", and which attribute it states; where and when."""

from __future__ import annotations

import re
from dataclasses import dataclass

from recall_server.domain.memory import MemoryType
from recall_server.integrations.extraction.rules import nouns
from recall_server.integrations.extraction.rules.drafts import says_something
from recall_server.integrations.extraction.rules.wording import place_of, value_of


@dataclass(frozen=True)
class State:
    """A row: the pattern, the attribute, and how far its value reaches."""

    pattern: re.Pattern[str]
    attribute: str
    type: MemoryType = MemoryType.FACT
    confidence: float = 0.9
    place: bool = False


def _is(
    pattern: str, attribute: str, *, taste: bool = False, sure: bool = True, place: bool = False
) -> State:
    kind = MemoryType.PREFERENCE if taste else MemoryType.FACT
    return State(re.compile(pattern, re.IGNORECASE), attribute, kind, 0.9 if sure else 0.7, place)


STATES = (
    _is(r"(?P<value>\d{1,3}|one|two|three|four|five|six|seven|eight|nine|ten|eleven"
        r"|twelve) (?:years? old|yo|y/o)\b", "age"),
    _is(r"(?:turning )?(?P<value>\d{2})(?= now|$)", "age"),
    _is(r"(?:originally |actually )?from (?P<value>[A-Z].+)", "from", place=True),
    _is(r"(?:born|raised|born and raised) in (?P<value>[A-Z].+)", "from", place=True),
    _is(r"(?:currently |now )?(?:based|living) (?:in|out of|near) (?P<value>.+)", "lives_in",
        place=True),
    _is(r"(?:severely |very |mildly |also )?allergic to (?P<value>.+)", "allergic_to"),
    _is(r"(?P<value>\w+)[- ]intolerant", "allergic_to"),
    _is(nouns.DIETS.pattern, "diet"),
    _is(r"(?:happily |recently |newly |now )?(?:married|engaged) to (?P<value>[A-Z].+)", "partner"),
    _is(nouns.STATUSES.pattern, "relationship_status"),
    _is(r"(?:an? )?(?:big|huge|massive|avid|lifelong)?\s?fan of (?P<value>.+)", "likes",
        taste=True),
    _is(r"(?:really |very |super |so |big |totally |quite |pretty |also |always been "
    r"|heavily )*(?:into"
        r"|keen on|fond of|crazy about|obsessed with|passionate about|addicted to|partial to) "
        r"(?P<value>.+)", "likes", taste=True),
    _is(r"(?:really |very |also |super |particularly |especially )*interested in (?P<value>.+)",
        "interested_in", taste=True),
    _is(r"(?:really |terribly |a bit |so )?(?:afraid|scared|terrified|sick|tired) of (?P<value>.+)",
        "not likes", taste=True),
    _is(r"(?:primarily |currently )?(?:in charge of|responsible for) (?P<value>.+)",
        "responsible_for"),
    _is(r"(?:fluent|proficient) in (?P<value>.+)", "speaks"),
    _is(r"(?:also )?(?:called|named|nicknamed) (?P<value>[A-Z].+)", "name"),
    _is(r"(?:diagnosed with) (?P<value>.+)", "condition"),
    _is(r"(?P<value>pregnant|diabetic|dyslexic|autistic|colou?r[- ]?blind|left[- ]handed|deaf"
    r"|asthmatic"
        r"|celiac|coeliac|transgender|gay|lesbian|bisexual|non-binary|queer|jewish|muslim|christian"
        r"|buddhist|hindu|catholic|atheist)\b", "condition"),
    _is(r"due (?:on |by )?(?P<value>.+)", "deadline"),
    _is(r"(?:hosted|deployed|running) (?:on|in|at) (?P<value>.+)", "hosted_on"),
    _is(r"written in (?P<value>.+)", "written_in"),
    _is(r"(?:an? )?(?:proud )?(?P<value>(?:single )?(?:mom|mum|mother|dad|father|parent) of .+)",
        "has_child"),
    _is(r"(?:currently )?(?P<value>(?:out of office|ooo|on (?:parental|maternity|paternity"
    r"|sick)? ?leave"
        r"|on vacation|on holiday|on call|on-call)\b.*)", "status"),
    _is(r"(?:a |an )?(?:proud |active )?(?:member|part) of (?!.*\b(?:life|lives|world|journey"
        r"|story|routine)\b)(?P<value>(?:an?|the|our|my|[A-Z]).+)",
        "member_of"),
    _is(r"(?:training|studying) to be(?:come)? (?P<value>.+)", "goal"),
)  # fmt: skip
_TIMED = re.compile(
    r"(?:every|each) \w+|(?:the )?\d{1,2}(?:st|nd|rd|th)\b|\d{1,2}(?::\d\d| ?[ap]\.?m\b)|noon\b"
    r"|midnight\b|(?:mon|tues|wednes|thurs"
    r"|fri|satur|sun)days?\b|\d{1,2} [A-Z][a-z]+(?: \d{4})?$",
    re.IGNORECASE,
)
SPEAKER = "<speaker>"


@dataclass(frozen=True)
class Reading:
    """What "is" was found to say."""

    attribute: str
    value: str
    type: MemoryType = MemoryType.FACT
    confidence: float = 0.9
    negated: bool = False
    entity: str | None = None  # another one than the subject: the owner of the attribute


def first_state(rest: str) -> Reading | None:
    for state in STATES:
        match = state.pattern.match(rest)
        if match is None:
            continue
        value = (place_of if state.place else value_of)(match["value"])
        if says_something(value) or state.attribute == "diet":
            denies = state.attribute.startswith("not ")
            return Reading(state.attribute.removeprefix("not "), value, state.type,
                           state.confidence, negated=denies)  # fmt: skip
    return None


def placed(rest: str) -> Reading | None:
    """Where or when a thing is: "in Ghent", "at 9:30", "every second Thursday"."""
    match = re.match(r"(?P<how>(?:in|at|on|every|each)\b )(?P<value>.+)", rest)
    if match is None:
        return None
    how = match["how"] if match["how"].startswith(("every", "each")) else ""
    value = value_of(how + match["value"])
    if _TIMED.match(value):
        return Reading("schedule", value, confidence=0.8)
    known = re.match(r"(?:the )?[A-Z]", value) and says_something(value)
    return Reading("located_in", place_of(value), confidence=0.8) if known else None
