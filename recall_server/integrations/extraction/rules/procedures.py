"""How something is done: steps in order, named processes, and what must always hold."""

from __future__ import annotations

import re

from recall_server.domain.memory import MemoryType
from recall_server.integrations.extraction.rules.drafts import Draft, says_something, slug
from recall_server.integrations.extraction.rules.subjects import Voice
from recall_server.integrations.extraction.rules.verbs import FORMS, third_person, word_set
from recall_server.integrations.extraction.rules.wording import finished, outside, value_of

_TO_DO = re.compile(
    r"(?:in order to|to|when|whenever|before|after) (?:we |you |i )?(?P<task>[a-z][\w /-]{2,50}?),"
    r" (?:you |we |i )?(?:first,? |always |must |need to |have to |should |just |just need to )*"
    r"(?P<steps>(?:first,? )?[a-z][\w-]+ .{6,})",
    re.IGNORECASE,
)
_STEPWORDS = re.compile(
    r"\b(?:first|then|finally|afterwards|next,|after that|followed by|and run|before)\b|->|→|=>"
)
_ORDERS = word_set(
    "push pull tag bump click select press enter type copy paste fill wait ask preheat mix stir"
    " pour"
    " turn insert attach confirm verify ping restart reboot commit squash rebase export import"
    " drain"
    " unplug plug scan"
)
_EVERY = re.compile(
    r"(?P<when>(?:before|after|when|on|for|with|in) (?:every|each"
    r"|any) [\w -]{3,40}?),? we (?:always )?(?P<steps>.{6,})",
    re.IGNORECASE,
)
_MUST = re.compile(
    r"(?P<who>(?!(?:i|we|you|your|they|he|she|it|this|that|there|people|kids|everyone|life|one)\b)"
    r"[a-z][\w ]{2,40}?) (?P<what>(?:must(?: not)? (?!have\b|feel\b"
    r"|be (?!\w+ed\b|\w+en\b|at\b|in\b|on\b)|look\b|seem\b|mean\b|know\b|love\b|really\b)"
    r"|requires? |needs? (?=approval|at least|two|three|\d|sign-?off|a review|review)).{4,})",
    re.IGNORECASE,
)
_PROCESS = re.compile(
    r"(?:(?P<owner>my|our|the user's|user's|the team's|the"
    r"|[A-Z][\w-]+'s) )?(?P<name>(?:[\w-]+ ){0,3}?"
    r"(?:process|workflow|procedure|routine|pipeline|checklist|steps|runbook|flow|policy"
    r"|convention|setup"
    r"|rule)(?: (?:for|to|of) [\w -]{3,40}?)?)"
    r"(?: is(?: as follows)?(?: that)?:?| goes(?: like this)?:?| are:?|:) (?P<value>.{8,})",
    re.IGNORECASE,
)


def required(text: str, _voice: Voice) -> Draft | None:
    """What must be: "All services must expose a health endpoint"."""
    match = _MUST.match(text)
    if (
        match is None
        or len(match["who"].split()) > 5
        or not says_something(value_of(match["what"]))
    ):
        return None
    words = match["who"].lower().split()
    if words[0].endswith("ing") or FORMS.keys() & set(words[1:]):
        return None
    return Draft(
        finished(text, None), MemoryType.PROCEDURE, match["who"], "rule", match["what"], 0.7
    )


def process(text: str, voice: Voice) -> Draft | None:
    match = _PROCESS.match(text)
    if match is None:
        return None
    owner = (match["owner"] or "").lower()
    steps = bool(_STEPWORDS.search(match["value"]) or match["value"].count(",") >= 2)
    if not steps and not re.match(r"(?:to|that|always|every|never|we|you)\b", match["value"]):
        return None
    entity, shown = _owner(owner, match["owner"] or "", voice)
    value = match["value"].strip(" .")
    said = f"{shown} {match['name']}: {outside(value)}"
    return Draft(
        finished(said, None), MemoryType.PROCEDURE, entity, slug(match["name"]), outside(value), 0.9
    )


def _owner(low: str, as_said: str, voice: Voice) -> tuple[str, str]:
    if low in ("", "my", "the user's", "user's"):
        if low == "my" or low:
            return (voice.entity, f"{voice.shown}'s") if low == "my" else ("user", "The user's")
        return "team", "The"
    if low in ("our", "the team's"):
        return "team", "The team's"
    if low == "the":
        return "team", "The"
    return as_said[:-2], as_said


def _is_steps(text: str, steps: str) -> bool:
    """Whether two or more of the parts are orders: "run the tests, tag the release and ..."."""
    if _STEPWORDS.search(steps):
        return True
    if not text.lower().startswith(("to ", "in order to ")):
        return False
    parts = re.split(r",(?: and| then)? | and ", steps)
    orders = [part for part in parts if _is_order(part.split(maxsplit=1)[0].lower())]
    return len(parts) >= 2 and len(orders) >= 2 and parts[0] in orders


def _is_order(word: str) -> bool:
    return word in _ORDERS or (word in FORMS and "base" in FORMS[word].forms)


def procedure(text: str, _voice: Voice) -> Draft | None:
    match = _TO_DO.match(text)
    if match and _is_steps(text, match["steps"]):
        steps = match["steps"].strip(" .")
        said = re.sub(r"\b(?:we|you|i)\b ", "", text[: match.start("steps")], flags=re.IGNORECASE)
        return Draft(finished(said + outside(steps), None), MemoryType.PROCEDURE, "team",
                     slug(match["task"]), outside(steps), 0.9)  # fmt: skip
    every = _EVERY.match(text)
    if every is None or not says_something(every["steps"]):
        return None
    first, _, others = outside(every["steps"]).partition(" ")
    steps = f"{third_person(first)} {others}"
    return Draft(finished(f"{every['when']}, the team {steps}", None), MemoryType.PROCEDURE, "team",
                 slug(every["when"]), outside(every["steps"]), 0.9)  # fmt: skip
