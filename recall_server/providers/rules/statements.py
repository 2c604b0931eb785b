"""From a parsed clause to what it states: tries the tables of predicates, "is", plans and deeds."""

from __future__ import annotations

import re
from collections.abc import Iterator

from recall_server.domain.model import MemoryType
from recall_server.providers.rules import nouns
from recall_server.providers.rules.clauses import Clause
from recall_server.providers.rules.copula import read_copula
from recall_server.providers.rules.dates import When
from recall_server.providers.rules.deeds import deed
from recall_server.providers.rules.drafts import (
    Draft,
    drafted,
    is_person,
    says_something,
    slug,
)
from recall_server.providers.rules.possessions import possession
from recall_server.providers.rules.predicates import PREDICATES, Predicate
from recall_server.providers.rules.subjects import Voice
from recall_server.providers.rules.verbs import word_set
from recall_server.providers.rules.wording import outside, place_of, value_of

_CHATTER = re.compile(
    r"^(?:be|keep|make \w+ dreams?|continue|say|see|hear|let|try to|try my|keep (?:you|going|it"
    r"|up|my|pushing|trying|working)|make sure"
    r"|miss|take care|cherish|support|cheer|look|remember|check|give|help|tell|show|send|share"
    r"|ask|talk"
    r"|call|think|love|need|want|always|definitely|do (?:my|that|it)|feel|get through|get (?:it"
    r"|that|there)"
    r"|never|have (?:fun|a (?:great|good|blast))|thank|know|never)\b",
    re.IGNORECASE,
)


def statements(clause: Clause, voice: Voice, when: When | None) -> Iterator[Draft]:
    """What a clause states; the surest reading first, at most one."""
    for read in (
        _habit,
        _predicate,
        _copula,
        possession,
        _plan,
        deed,
        _activity,
        _ability,
        _ended,
    ):
        draft = read(clause, voice, when)
        if draft is not None:
            yield draft
            return


_OFTEN = re.compile(
    r"\b(?:every \d+ \w+|every (?:\w+ )?(?:morning|evening|night|day|week|weekend|month|year"
    r"|summer|winter|spring|fall"
    r"|\w+day)s?|(?:once|twice|three times|\w+ times) (?:a|per) (?:day|week|month|year)|on \w+days"
    r"|on weekends|daily|weekly|monthly|each (?:morning|week|day))\b",
    re.IGNORECASE,
)


def _habit(clause: Clause, voice: Voice, _when: When | None) -> Draft | None:
    """What somebody always, never or regularly does."""
    if clause.tense != "present" or clause.lemma in ("be", "have"):
        return None
    if not is_person(clause) and clause.subject.kind not in ("thing", "owned"):
        return None
    adverb = re.search(r"\b(?:always|never|usually)\b", clause.verb)
    often = _OFTEN.search(clause.rest)
    denied = clause.negated and not (adverb and adverb[0] == "never")
    if not (adverb or often) or denied or clause.lemma in _FEELINGS:
        return None
    value = value_of(clause.rest) if len(clause.rest) > 90 else clause.rest.strip(" .!")
    bare = _OFTEN.sub("", value).strip()
    if (bare and not says_something(bare)) or not (bare or often):
        return None
    kind = (
        MemoryType.PROCEDURE
        if re.search(r"\b(?:before|after|then)\b", value)
        else MemoryType.PREFERENCE
    )
    name = adverb[0] if adverb and adverb[0] in ("always", "never") else "habit"
    return drafted(clause, voice, None, name, f"{clause.lemma} {value}",
                  type_=MemoryType.FACT if name == "habit" else kind)  # fmt: skip


_FEELINGS = word_set("prefer like love hate enjoy want need feel live work use know think")


def _predicate(clause: Clause, voice: Voice, when: When | None) -> Draft | None:
    if clause.tense == "would":
        return _wish(clause, voice, when)
    for rule in PREDICATES.get(clause.lemma, ()):
        if clause.tense not in rule.tenses or (rule.people and not is_person(clause)):
            continue
        if rule.things and is_person(clause) and clause.subject.kind in ("i", "owned"):
            continue
        match = rule.pattern.match(clause.rest)
        draft = _filled(rule, match, clause, voice, when) if match else None
        if draft is not None:
            return draft
    return None


_CAN = word_set("attend eat drink work join drive swim use access deploy read speak ride host")


def _ability(clause: Clause, voice: Voice, when: When | None) -> Draft | None:
    """What somebody can or cannot do: "I can't attend meetings on Wednesdays"."""
    if clause.tense != "can" or clause.lemma not in _CAN or clause.subject.kind == "thing":
        return None
    value = value_of(clause.rest)
    if not says_something(re.sub(r"^(?:in|at|on|with|to) ", "", value)):
        return None
    return drafted(clause, voice, when, "can", f"{clause.lemma} {value}", negated=clause.negated)


def _ended(clause: Clause, voice: Voice, when: When | None) -> Draft | None:
    """What is no longer so, whatever it is: "We no longer support Python 3.8"."""
    value = value_of(clause.rest)
    if not _NO_LONGER.search(clause.verb) or not says_something(value):
        return None
    return drafted(clause, voice, when, f"{clause.lemma}s", value, negated=True, correction=True,
                   confidence=0.8)  # fmt: skip


def _filled(
    rule: Predicate, match: re.Match[str], clause: Clause, voice: Voice, when: When | None
) -> Draft | None:
    groups = match.groupdict()
    value = (place_of if rule.place else str if rule.listed else value_of)(groups["value"])
    if not says_something(value):
        return None
    old = groups.get("old") or groups.get("over")
    old = value_of(old) if old else None
    attribute = _attribute(rule.attribute, value, old, groups.get("key"), rule.type)
    if attribute == "lives_in":
        if clause.subject.kind == "owned" and not is_person(clause):
            attribute = "located_in"
        kind = nouns.category(value) or (old and nouns.category(old))
        attribute = f"uses_for_{kind}" if kind else attribute
        if attribute == "lives_in" and not (is_person(clause) and _is_place(value, clause)):
            return None
    # A verb of denial and a "not" cancel each other: "I don't hate tea".
    negated = (clause.negated is not rule.negated) or clause.tense == "used"
    if clause.lemma == "stand" and not clause.negated:
        return None
    replaces = outside(old) if old and (rule.correction or groups.get("old")) else None
    return drafted(
        clause, voice, when, attribute, value, type_=rule.type, confidence=rule.confidence,
        negated=negated,
        correction=rule.correction or bool(replaces) or bool(_NO_LONGER.search(clause.verb)),
        replaces=replaces,
    )  # fmt: skip


_NO_LONGER = re.compile(r"\bno longer\b")


def _attribute(
    template: str, value: str, old: str | None, key: str | None, type_: MemoryType
) -> str:
    kind = nouns.category(value) or (nouns.category(old) if old else None)
    if "{category}" in template:
        if kind:
            return template.format(category=kind)
        return "prefers" if template.startswith("preferred") else "uses"
    if "{key}" in template:
        name = slug(value_of(key)) if key else ""
        if name and len(name.split("_")) <= 4:
            return template.format(key=name)
        return f"uses_for_{kind}" if kind else "decided" if type_ is MemoryType.DECISION else "uses"
    return template


def _is_place(value: str, clause: Clause) -> bool:
    """Places are capitalised, unless the whole chat is written small."""
    if clause.lemma in ("live", "base"):
        return True
    return value[:1].isupper() or (clause.rest.islower() and len(value.split()) <= 3)


def _wish(clause: Clause, voice: Voice, when: When | None) -> Draft | None:
    likes = re.match(r"to (?P<value>.+)", clause.rest)
    if clause.lemma in ("like", "love") and likes:
        value = value_of(likes["value"])
        if says_something(value) and not _CHATTER.match(value):
            return drafted(clause, voice, when, "wants", value, type_=MemoryType.PREFERENCE,
                          confidence=0.7, negated=clause.negated)  # fmt: skip
    if clause.lemma in ("prefer", "rather"):
        match = re.match(
            r"(?:to )?(?:(?P<value>.+?) (?:than|over|to|instead of) .+|(?P<all>.+))", clause.rest
        )
        value = value_of((match["value"] or match["all"]) if match else "")
        if says_something(value) and not re.match(r"(?:be|die|say|see|not)\b", value):
            kind = nouns.category(value)
            name = f"preferred_{kind}" if kind else "prefers"
            return drafted(clause, voice, when, name, value, type_=MemoryType.PREFERENCE,
                          confidence=0.9, negated=clause.negated)  # fmt: skip
    return None


_NOT_OLD = re.compile(r", (?:and )?not (?:on |in |at )?(?P<old>[^,.]{2,40})$")


def _copula(clause: Clause, voice: Voice, when: When | None) -> Draft | None:
    if clause.lemma not in ("be", "call", "name", "base"):
        return None
    reading = read_copula(clause)
    if reading is None:
        return None
    entity = reading.entity
    if entity == "":
        entity = voice.entity
    negated = clause.negated is not reading.negated
    old = _NOT_OLD.search(clause.rest)
    return drafted(clause, voice, when, reading.attribute, reading.value, type_=reading.type,
                  confidence=reading.confidence, entity=entity, negated=negated,
                  correction=bool(old),
                  replaces=old["old"].strip() if old else None)  # fmt: skip


def _plan(clause: Clause, voice: Voice, when: When | None) -> Draft | None:
    ahead = clause.tense in ("going", "will")
    if (
        clause.tense == "progressive"
        and when
        and re.match(r"(?:by |around |week of |weekend of )?", when.shown)
    ):
        ahead = clause.lemma in _ARRANGED
    if not ahead or clause.subject.kind == "thing" or clause.lemma == "be":
        return None
    if clause.tense == "will" and (when is None or clause.negated):
        return None
    value = value_of(f"{_base(clause)} {clause.rest}")
    if not says_something(value_of(clause.rest)) or _CHATTER.match(value):
        return None
    return drafted(clause, voice, when, "plans", value, confidence=0.9 if when else 0.7,
                  negated=clause.negated, ahead=True)  # fmt: skip


_ARRANGED = word_set(
    "go fly travel move meet visit start leave get have take host run attend launch open join "
    "return present release ship begin marry"
)


def _base(clause: Clause) -> str:
    return {"progressive": clause.verb.split()[-1]}.get(clause.tense, clause.lemma)


_ACTIVITIES = word_set(
    "write teach paint cook bake make build run volunteer coach mentor design sing dance knit sew"
    " garden camp hike swim surf jog climb collect manage lead host organize organise play study"
    " maintain review deploy practice practise train sell rent help"
)


def _activity(clause: Clause, voice: Voice, when: When | None) -> Draft | None:
    """What somebody does as a rule: "I write articles on fantasy novels"."""
    if clause.tense != "present" or clause.lemma not in _ACTIVITIES or not is_person(clause):
        return None
    value = value_of(clause.rest)
    if clause.subject.kind not in ("i", "we", "name", "owned") or not says_something(
        re.sub(r"^(?:in|at|on|with|for|about|to) ", "", value)
    ):
        return None
    if clause.lemma in ("make", "run", "help", "lead") and not re.match(
        r"(?:an?|my|our|[a-z]+s)\b", value
    ):
        return None
    return drafted(clause, voice, when, "habit", f"{clause.lemma} {value}", confidence=0.7,
                   negated=clause.negated)  # fmt: skip
