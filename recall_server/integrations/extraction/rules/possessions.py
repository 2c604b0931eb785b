"""What somebody has: pets, family, allergies, belongings, appointments."""

from __future__ import annotations

import re

from recall_server.integrations.extraction.rules import nouns
from recall_server.integrations.extraction.rules.dates import When
from recall_server.integrations.extraction.rules.drafts import Draft, drafted, is_person
from recall_server.integrations.extraction.rules.parsing import Clause
from recall_server.integrations.extraction.rules.subjects import Voice
from recall_server.integrations.extraction.rules.wording import value_of

_HAS = re.compile(
    r"(?:also |just |got |still |only )?(?P<count>an?|the|one|two|three|four|five|six|seven|\d+"
    r"|some|my"
    r"|our|twin|no)? ?(?P<value>(?:[\w'-]+ ){0,4}?(?P<noun>[\w'-]+))"
    r"(?P<tail>(?:,? (?:named|called) .+|,? [A-Z][\w-]+(?: and [A-Z][\w-]+)?|,? who .+|,? aged .+"
    r"| (?:and|with|at|in|of|from|to|for|that) .+)?)$"
)
_ALLERGY = re.compile(
    r"(?:an? )?(?:\w+ )?(?:(?P<what>[\w-]+) allergy|allergy to (?P<to>.+)"
    r"|allergies to (?P<too>.+))",
    re.IGNORECASE,
)


def possession(clause: Clause, voice: Voice, when: When | None) -> Draft | None:
    if (
        clause.lemma != "have"
        or clause.tense not in ("present", "perfect")
        or not is_person(clause)
    ):
        return None
    allergy = _ALLERGY.match(clause.rest)
    if allergy:
        value = value_of(allergy["what"] or allergy["to"] or allergy["too"])
        return drafted(clause, voice, when, "allergic_to", value, negated=clause.negated)
    match = _HAS.match(value_of(clause.rest))
    if match is None:
        return None
    value = match[0].strip()
    noun = match["noun"].lower()
    attribute = _kind_of_possession(noun, match["value"].lower())
    if attribute and (match["count"] or noun.endswith("s") or attribute == "condition"):
        return drafted(clause, voice, when, attribute, value, negated=clause.negated)
    return None


def _kind_of_possession(noun: str, phrase: str) -> str | None:
    if noun in nouns.PETS:
        return "has_pet"
    if noun in nouns.CHILDREN:
        return "has_child"
    if noun in nouns.SIBLINGS:
        return "has_sibling"
    if noun in nouns.RELATIVES:
        return "has_relative"
    if noun in nouns.CONDITIONS:
        return "condition"
    if noun in nouns.POSSESSIONS:
        return "owns"
    if noun in ("meeting", "appointment", "interview", "exam", "deadline", "surgery", "flight"):
        return "plans"
    return "experience" if phrase.endswith("experience") and len(phrase.split()) > 2 else None
