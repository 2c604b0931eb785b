"""Takes a clause apart: its subject, its verb with tense and denial, and the rest."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from recall_server.integrations.extraction.rules.subjects import Subject, Voice, subject_of
from recall_server.integrations.extraction.rules.verbs import (
    ADVERBS,
    AUXILIARIES,
    FORMS,
    third_person,
    word_set,
)

CLAUSE_WORDS_MAX = 80
_VERB_GROUP_WORDS_MAX = 9
_GAPPING = word_set("use prefer choose pick take need buy")
_GAPPED = re.compile(
    r"(?P<one>[^,]{1,60}? for [^,]{2,60}?)(?:, and|,| and) (?P<two>[^,]{1,60}? for [^,]{2,60}.*)"
)
_BEING = ("be", "am", "is", "are", "was", "were", "been")
_MODALS = ("will", "can", "would")
# Participles that are verbs after "is", where others describe ("is based in", but "is married").
# "Ana broke her arm": hers, where "I met her brother" leaves open whose.
_OWN = re.compile(
    r"\b(?:his|her) (?!(?:an?|the|some|to|in|on|at|with|and|for|so|up|out|off|that|this|my|all"
    r"|about"
    r"|as|by|from|when|because|if|last|next)\b)(?=[a-z])"
)
_PASSIVES = ("base", "call", "name", "locate")
# In the present tense, words that cannot be taken for nouns after "and".
_PLAINLY_VERBS = word_set(
    "live lives work works have has own owns prefer prefers speak speaks am is"
)


@dataclass(frozen=True)
class Clause:
    """A parsed clause: "I have not worked at Acme" is (I, work, perfect, negated, "at Acme")."""

    subject: Subject
    lemma: str
    tense: str
    negated: bool
    verb: str  # the verb group in the third person, adverbs included
    rest: str
    word: str = ""  # the main verb as it stands
    lead: tuple[str, ...] = field(default=())  # the words before the main verb, as they stand
    weak: bool = False  # the subject was left out, or stood in an earlier sentence


@dataclass
class _Group:
    """What has been read of the verb group so far."""

    words: list[str]
    subject: Subject
    weak: bool
    at: int = 0
    negated: bool = False
    auxiliaries: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    @property
    def being(self) -> bool:
        return bool(self.auxiliaries) and self.auxiliaries[-1] in _BEING

    def clause(self, lemma: str, tense: str, said: list[str], rest_from: int) -> Clause:
        verb = _said_of_third(said, self.subject)
        rest = " ".join(self.words[rest_from:])
        if self.subject.kind in ("name", "owned") and not self.subject.inanimate:
            rest = _OWN.sub("their ", rest)
        lead = tuple(self.said)
        word = said[-1] if said else ""
        return Clause(self.subject, lemma, tense, self.negated, verb, rest, word, lead, self.weak)


def parse(clause: str, voice: Voice, last: Subject | None = None) -> Iterator[Clause]:
    """What a clause states: a reading for each of its coordinated verbs ("lives ... and works")."""
    words = clause.split()[:CLAUSE_WORDS_MAX]
    for _ in range(3):
        found = subject_of(words, voice, last)
        parsed = _predicate(_Group(words[found[1] :], found[0], found[2])) if found else None
        if found is None or parsed is None:
            return
        second = _coordinated(parsed)
        yield replace(parsed, rest=second[0]) if second else parsed
        if second is None:
            return
        words = words[: found[1]] + second[1]


def _coordinated(parsed: Clause) -> tuple[str, list[str]] | None:
    """Cuts "works at X and lives in Y" in two; the second half keeps the auxiliaries."""
    if parsed.tense in ("going", "used", *_MODALS):
        return None
    gap = _GAPPED.match(parsed.rest) if parsed.lemma in _GAPPING else None
    if (
        gap and gap["two"].split()[0] not in FORMS
    ):  # "use Notion for documentation and Linear for tickets"
        return gap["one"], [*parsed.lead, parsed.word, *gap["two"].split()]
    wanted = {"past": "past", "perfect": "part", "present": ""}.get(parsed.tense, "ing")
    for match in re.finditer(r",? and (?:then |also |just |now |recently |finally )?", parsed.rest):
        word = parsed.rest[match.end() :].split(" ", 1)[0].lower().strip(".,!")
        form = FORMS.get(word)
        if form is None or not (wanted in form.forms if wanted else _continues(word, parsed)):
            continue
        lead = list(parsed.lead) if wanted in ("part", "ing") else []
        return parsed.rest[: match.start()], lead + parsed.rest[match.end() :].split()
    return None


def _continues(word: str, parsed: Clause) -> bool:
    first_person = parsed.subject.kind in ("i", "we", "both")
    return word in _PLAINLY_VERBS and ("s" in FORMS[word].forms or first_person)


def _predicate(group: _Group) -> Clause | None:
    """Reads auxiliaries, adverbs and the main verb."""
    for at, raw in enumerate(group.words[:_VERB_GROUP_WORDS_MAX]):
        group.at = at
        word = raw.lower().strip(",")
        following = [w.lower().strip(",.") for w in group.words[at + 1 : at + 4]]
        if word in ("not", "never", "no"):
            if word == "no" and following[:1] != ["longer"]:
                return _copula(group) if group.being else None
            # "Never" before a verb is a habit ("never eats meat"), not a denial of something known.
            group.negated = True
        elif (word == "been" and group.auxiliaries) or _is_auxiliary(word, following):
            group.auxiliaries.append(word)
        elif word not in ADVERBS and not (word == "longer" and group.said):
            return (
                _main(group, word) if word in FORMS or word == "rather" else _unknown(group, word)
            )
        group.said.append(raw)
    return None


def _is_auxiliary(word: str, following: list[str]) -> bool:
    if word not in AUXILIARIES:
        return False
    rest = list(following)
    while rest and (rest[0] in ADVERBS or rest[0] in ("not", "never", "no", "longer")):
        rest = rest[1:]
    next_forms = FORMS[rest[0]].forms if rest and rest[0] in FORMS else frozenset[str]()
    if word in ("do", "does", "did"):
        return "base" in next_forms
    if word in ("have", "has", "had"):
        return rest[:1] == ["been"] or "part" in next_forms
    return True


def _main(group: _Group, word: str) -> Clause | None:
    """The clause whose main verb has been reached."""
    if group.words[group.at].endswith(","):
        return None  # "hiked, swam and ...": a list of verbs, of which none has its object
    said = [*group.said, word]
    if word == "rather":
        wish = group.auxiliaries[:1] == ["would"]
        return group.clause(word, "would", said, group.at + 1) if wish else None
    form = FORMS[word]
    if group.being and not (
        "ing" in form.forms or ("part" in form.forms and form.lemma in _PASSIVES)
    ):
        return _copula(group)
    tense = _tense(group, form.forms)
    if tense in ("going", "used"):
        infinitive = _infinitive(group, tense)
        if infinitive or tense == "used":
            return infinitive
        tense = "progressive"  # "I'm going to a concert"
    third = group.subject.kind in ("name", "owned") and not group.subject.plural
    if tense == "present" and third and "base" in form.forms and not group.auxiliaries:
        return None
    return group.clause(form.lemma, tense, said, group.at + 1)


def _unknown(group: _Group, word: str) -> Clause | None:
    """A word that is no known verb describes after "is", and is a deed if it ends in -ed."""
    if group.being:
        return _copula(group)
    regular = len(word) > 4 and word.endswith("ed") and word.isalpha()
    free = not group.auxiliaries or group.auxiliaries[0] in ("have", "has")
    if not (regular and free and not group.subject.inanimate):
        return None
    tense = "perfect" if group.auxiliaries else "past"
    return group.clause("-ed", tense, [*group.said, word], group.at + 1)


def _copula(group: _Group) -> Clause:
    first, last = group.auxiliaries[0], group.auxiliaries[-1]
    tense = "past" if last in ("was", "were") or first == "had" else "present"
    if first in ("have", "has"):
        tense = "perfect"
    if first in _MODALS:
        tense = first
    return group.clause("be", tense, group.said, group.at)


def _infinitive(group: _Group, tense: str) -> Clause | None:
    """ "Going to run" and "used to live": the verb that counts is the one after "to"."""  # noqa: D210
    deed = group.at + 2
    while deed < len(group.words) and group.words[deed].lower() in ADVERBS:
        deed += 1
    form = FORMS.get(group.words[deed].lower().strip(",.")) if deed < len(group.words) else None
    if form is None or "base" not in form.forms:
        return None
    said = [*group.said, *group.words[group.at : deed + 1]]
    return group.clause(form.lemma, tense, said, deed + 1)


def _tense(group: _Group, forms: frozenset[str]) -> str:
    pair = [word.lower() for word in group.words[group.at : group.at + 2]]
    aux = group.auxiliaries
    if not aux:
        if pair == ["used", "to"]:
            return "used"
        # "I quit" and "I cut" are taken as past: as a habit they are rarely said.
        return "past" if "past" in forms else "present" if forms & {"base", "s"} else "none"
    if pair == ["going", "to"] and aux[-1] in ("am", "is", "are"):
        return "going"
    if aux[0] == "had" or aux[-1] in ("was", "were"):
        return "past_ing" if "ing" in forms else "past"
    if "been" in aux:
        return "perfect_ing" if "ing" in forms else "perfect"
    simple = {
        "have": "perfect",
        "has": "perfect",
        "do": "present",
        "does": "present",
        "did": "past",
    }
    return aux[0] if aux[0] in _MODALS else simple.get(aux[0], "progressive")


def _said_of_third(group: list[str], subject: Subject) -> str:
    """The verb group with its finite verb in the third person singular ("am" is "is")."""
    said = [
        word.lower() if word.isalpha() else word
        for word in group
        if word.lower() not in ("all", "both")
    ]
    if subject.plural and subject.kind != "we":
        return " ".join(said)
    for at, word in enumerate(said):
        if word in _MODALS:
            break
        form = FORMS.get(word)
        if form is None:
            continue
        if word in ("am", "are", "have", "do", "were"):
            said[at] = {"are": "is", "am": "is", "have": "has", "do": "does", "were": "was"}[word]
        elif "base" in form.forms and "past" not in form.forms:
            said[at] = third_person(form.lemma)
        break
    return " ".join(said)
