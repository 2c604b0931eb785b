"""Takes a sentence apart: clauses, and in each the subject, the verb with its tense, and the rest."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from recall_server.providers.rules.subjects import Subject, Voice, subject_of
from recall_server.providers.rules.verbs import ADVERBS, AUXILIARIES, FORMS, third_person, word_set

CLAUSE_WORDS_MAX = 80


@dataclass(frozen=True)
class Clause:
    """A parsed clause: "I have not been working at Acme" is (I, work, perfect_ing, negated, ...)."""

    subject: Subject
    lemma: str
    tense: str
    negated: bool
    verb: str  # the verb group in the third person, adverbs included
    rest: str
    lead: tuple[str, ...] = field(default=())  # the words before the main verb, as they stand
    weak: bool = False  # the subject was left out, or stood in an earlier sentence


def parse(clause: str, voice: Voice, last: Subject | None = None) -> Iterator[Clause]:
    """What a clause states: one reading for each of its coordinated verbs ("lives ... and works")."""
    words = clause.split()[:CLAUSE_WORDS_MAX]
    for _ in range(3):
        found = subject_of(words, voice, last)
        parsed = _predicate(words[found[1] :], found[0], weak=found[2]) if found else None
        if found is None or parsed is None:
            return
        second = _coordinated(parsed)
        yield replace(parsed, rest=second[0]) if second else parsed
        if second is None:
            return
        words = words[: found[1]] + second[1]


def _coordinated(parsed: Clause) -> tuple[str, list[str]] | None:
    """Cuts "works at X and lives in Y" in two; the second half keeps the first one's auxiliaries."""
    wanted = {"past": "past", "perfect": "part", "present": ""}.get(parsed.tense, "ing")
    for match in re.finditer(r",? and (?:then |also |just |now |recently |finally )?", parsed.rest):
        word = parsed.rest[match.end() :].split(" ", 1)[0].lower().strip(".,!")
        form = FORMS.get(word)
        if form is None or ("ing" in form.forms and wanted != "ing"):
            continue
        if not wanted:
            person = "s" if "s" in FORMS.get(parsed.verb.split()[-1], form).forms else "base"
            first = parsed.subject.kind in ("i", "we")
            if word not in _SAFE_BASE or (person == "base" and not first):
                continue
        elif wanted not in form.forms:
            continue
        if parsed.tense in ("will", "going", "used", "can", "would"):
            continue
        lead = list(parsed.lead) if wanted in ("part", "ing") else []
        return parsed.rest[: match.start()], lead + parsed.rest[match.end() :].split()
    return None


_SAFE_BASE = word_set(
    "live lives work works have has own owns prefer prefers love loves like likes hate hates "
    "speak speaks play plays am is use uses teach teaches enjoy enjoys"
)


def _predicate(words: list[str], subject: Subject, *, weak: bool) -> Clause | None:
    """Reads auxiliaries, adverbs and the main verb."""
    group: list[str] = []
    negated = False
    aux: list[str] = []
    for at, raw in enumerate(words[:9]):
        word = raw.lower().strip(",")
        following = words[at + 1].lower() if at + 1 < len(words) else ""
        if word in ("not", "never") or (word == "no" and following == "longer"):
            negated = negated or word != "never" or not group or bool(aux)
        elif word == "longer" and group:
            pass
        elif word == "been" and aux:
            aux.append(word)
        elif word in ADVERBS:
            pass
        elif _is_auxiliary(word, words[at + 1 : at + 4]):
            aux.append(word)
        elif word in FORMS or word in ("rather", "supposed"):
            return _clause(words, at, subject, aux, group, negated=negated, weak=weak)
        elif aux and aux[-1] in ("am", "is", "are", "was", "were"):
            return _copula(words, at, subject, aux, group, negated=negated, weak=weak)
        else:
            return None
        group.append(raw)
    return None


def _is_auxiliary(word: str, following: list[str]) -> bool:
    if word not in AUXILIARIES:
        return False
    if word in ("will", "can", "would", "been", "be"):
        return True
    rest = [w.lower().strip(",.") for w in following]
    while rest and (rest[0] in ADVERBS or rest[0] in ("not", "never", "no", "longer")):
        rest = rest[1:]
    if word in ("do", "does", "did"):
        return bool(rest) and "base" in getattr(FORMS.get(rest[0]), "forms", ())
    if word in ("have", "has", "had"):
        return bool(rest) and (
            rest[0] == "been" or "part" in getattr(FORMS.get(rest[0]), "forms", ())
        )
    return True


def _copula(
    words: list[str], at: int, subject: Subject, aux: list[str], group: list[str], *,
    negated: bool, weak: bool,
) -> Clause:  # fmt: skip
    tense = (
        "perfect"
        if aux[0] in ("have", "has")
        else "past"
        if aux[-1] in ("was", "were")
        else "present"
    )
    verb = _said_of_third(group, subject)
    return Clause(subject, "be", tense, negated, verb, " ".join(words[at:]), tuple(group), weak)


def _clause(
    words: list[str], at: int, subject: Subject, aux: list[str], group: list[str], *,
    negated: bool, weak: bool,
) -> Clause | None:  # fmt: skip
    word = words[at].lower().strip(",")
    if word == "rather":
        verb, rest = _said_of_third([*group, word], subject), " ".join(words[at + 1 :])
        return Clause(subject, word, "would", negated, verb, rest) if "would" in aux else None
    form = FORMS.get(word)
    being = bool(aux) and aux[-1] in ("am", "is", "are", "was", "were", "been")
    if form is None or (being and not form.forms & {"ing", "part"}):
        return (
            _copula(words, at, subject, aux, group, negated=negated, weak=weak) if being else None
        )
    if being and "ing" not in form.forms and form.lemma not in ("base", "call", "name", "locate"):
        return _copula(words, at, subject, aux, group, negated=negated, weak=weak)
    tense = _tense(aux, form.forms, words[at : at + 2], group)
    rest = " ".join(words[at + 1 :])
    if tense in ("going", "used"):
        return _infinitive(words, at, subject, group, tense=tense, negated=negated, weak=weak)
    if (
        tense == "present"
        and subject.kind in ("name", "owned")
        and "base" in form.forms
        and not aux
    ):
        if not subject.plural:
            return None
    verb = _said_of_third([*group, word], subject)
    return Clause(subject, form.lemma, tense, negated, verb, rest, tuple(group), weak)


def _infinitive(
    words: list[str], at: int, subject: Subject, group: list[str], *, tense: str, negated: bool,
    weak: bool,
) -> Clause | None:  # fmt: skip
    """ "going to run" and "used to live": the verb that counts is the one after "to"."""
    deed = at + 2
    while deed < len(words) and words[deed].lower() in ADVERBS:
        deed += 1
    form = FORMS.get(words[deed].lower().strip(",.")) if deed < len(words) else None
    if form is None or "base" not in form.forms:
        return None
    verb = _said_of_third([*group, *words[at : deed + 1]], subject)
    rest = " ".join(words[deed + 1 :])
    return Clause(subject, form.lemma, tense, negated, verb, rest, tuple(group), weak)


def _tense(aux: list[str], forms: frozenset[str], pair: list[str], group: list[str]) -> str:
    to = len(pair) > 1 and pair[1].lower() == "to"
    if aux and aux[-1] in ("am", "is", "are") and pair[0].lower() == "going" and to:
        return "going"
    if not aux and pair[0].lower() == "used" and to:
        return "used"
    if not aux:  # "I quit", "I cut" are taken as past; "I read" says nothing without a time
        return "past" if "past" in forms else "present" if forms & {"base", "s"} else "none"
    if aux[0] in ("will", "can", "would"):
        return aux[0]
    if "been" in aux:
        return "perfect_ing" if "ing" in forms else "perfect"
    if aux[0] in ("have", "has"):
        return "perfect"
    if aux[0] == "had":
        return "past"
    if aux[0] in ("do", "does"):
        return "present"
    if aux[0] == "did":
        return "past"
    if aux[-1] in ("was", "were"):
        return "past_ing"
    return "progressive"


def _said_of_third(group: list[str], subject: Subject) -> str:
    """The verb group with its finite verb in the third person singular ("am" is "is")."""
    said = [word.lower() if word.isalpha() else word for word in group]
    if subject.plural and subject.kind in ("owned", "name", "thing"):
        return " ".join(said)
    for at, word in enumerate(said):
        form = FORMS.get(word.strip(","))
        if word in ("will", "can", "would") or form is None:
            if word in ("will", "can", "would"):
                break
            continue
        if word in ("am", "are", "have", "do", "were"):
            said[at] = {"am": "is", "are": "is", "have": "has", "do": "does", "were": "was"}[word]
        elif "base" in form.forms and "past" not in form.forms:
            said[at] = third_person(form.lemma)
        break
    return " ".join(said)
