"""Answers that only the question before them makes sense of: "Where do you work?" - "At Acme."."""

from __future__ import annotations

import re
from dataclasses import dataclass

from recall_server.integrations.extraction.rules import gates
from recall_server.integrations.extraction.rules.sentences import masked, sentences

_ANSWER_WORDS_MAX = 12
_LEAD = re.compile(
    r"(?:(?:oh|well|hm+|um|so|just|still|currently|mostly|mainly|actually|now|it's|it is|that's"
    r"|that is|they're|he's|she's|i'm|i am|we're|in|at|for|on|near|from|with|to|by|called)\b,? )+",
    re.IGNORECASE,
)
_NO_ANSWER = re.compile(
    r"(?:yes|no|or|and|but|yeah|nope|maybe|nothing|nowhere|not|none|same|good|great|fine|i|we"
    r"|it|you|that|this"
    r"|there|here|why|sorry|thanks|ok|okay|sure|never|a lot|so|too)\b",
    re.IGNORECASE,
)
_CLAUSE = re.compile(r"\b(?:is|are|was|were|am|has|have|had|my|me|i|we|you)\b", re.IGNORECASE)
_OPENING = r"(?:(?:so|and|oh|hey|by the way|btw|ok|but|also|remind me|right),? )*"
_MINE = r"(?P<whose>your|our|the)"


@dataclass(frozen=True)
class Question:
    """A question that names an attribute; `frame` is the statement that an answer completes."""

    frame: str
    names: bool = False  # the answer is a name: it has a capital letter


def _asks(pattern: str, frame: str, *, names: bool = False) -> tuple[re.Pattern[str], str, bool]:
    return re.compile(_OPENING + pattern, re.IGNORECASE), frame, names


_NOW = r"(?: (?:now|these days|nowadays|at the moment|currently|again|exactly|then))?"
_QUESTIONS = (
    _asks(rf"where (?:do you live|are you (?:based|living)){_NOW}", "I live in {}", names=True),
    _asks(rf"(?:where|who) do you work(?: (?:for|at))?{_NOW}", "I work at {}", names=True),
    _asks(r"where (?:are you|do you come) from(?: originally)?", "I am from {}", names=True),
    _asks(rf"what do you do(?: (?:for (?:work|a living)|as a job))?{_NOW}", "I am {}"),
    _asks(r"how old are you", "I am {} years old"),
    _asks(r"how old is your (?P<noun>[\w ]{2,30})", "My {noun} is {} years old"),
    _asks(r"what(?: is|'s) your (?P<noun>[\w ]{2,30})'s name", "My {noun} is called {}",
          names=True),
    _asks(r"what(?: is|'s) (?:your|the) (?P<noun>[\w ]{2,30}) called", "My {noun} is called {}",
          names=True),
    _asks(r"(?:what|which) languages do you speak", "I speak {}", names=True),
    _asks(r"what (?:instrument|sport)s? do you play", "I play {}"),
    _asks(r"(?:what|which) [\w ]{2,30} (?:do you|are you) us(?:e"
        r"|ing)(?: for (?P<noun>[\w ]{2,30}))?",
          "I use {} for {noun}"),
    _asks(r"what do you use for (?P<noun>[\w ]{2,30})", "I use {} for {noun}"),
    _asks(r"what are you allergic to", "I am allergic to {}"),
    _asks(r"who do you report to", "I report to {}", names=True),
    _asks(rf"(?:when|where|what|who|how (?:big|much|long|high))(?: is|'s|'re| are) {_MINE}"
          r" (?P<noun>(?:[\w-]+ ){0,3}[\w-]+)", "{whose} {noun} is {}"),
)  # fmt: skip


def asked(said: str) -> Question | None:
    """What the last sentence of a turn asks, if it is a question about an attribute."""
    last = None
    for sentence in sentences(masked(said), 0):
        last = sentence
    if last is None or not last.text.endswith("?"):
        return None
    text = re.sub(r",? (?:if i may ask|[A-Z][\w-]+)$", "", last.text.rstrip("?! "))
    for pattern, frame, names in _QUESTIONS:
        match = pattern.fullmatch(text)
        if match is None:
            continue
        named = match.groupdict()
        whose = "My" if (named.get("whose") or "").lower() == "your" else named.get("whose") or ""
        if "{noun}" in frame and not named.get("noun"):
            frame = frame.split(" for {noun}")[0]  # noqa: PLW2901
        filled = frame.replace("{noun}", named.get("noun") or "")
        return Question(filled.replace("{whose}", whose.capitalize()), names)
    return None


def spelt_out(question: Question, answer: str) -> str | None:
    """The statement that a question and the fragment after it make together, if they make one."""
    text = answer.strip(" .!")
    lead = _LEAD.match(text)
    text = text[lead.end() :] if lead else text
    if not text or len(text.split()) > _ANSWER_WORDS_MAX or _NO_ANSWER.match(text):
        return None
    if _CLAUSE.search(text) or gates.is_question(answer) or gates.is_doubtful(answer):
        return None
    if question.names and not any(word[:1].isupper() for word in text.split()):
        return None
    if question.frame.endswith("years old"):
        text = re.sub(r" (?:years old|years|now)\b", "", text)
    return question.frame.replace("{}", text) + "."
