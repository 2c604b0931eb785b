"""Words a statement so that a stranger understands it: third person, absolute dates."""

from __future__ import annotations

import re

from recall_server.integrations.extraction.rules.dates import When
from recall_server.integrations.extraction.rules.parsing import Clause
from recall_server.integrations.extraction.rules.verbs import FORMS, third_person, word_set

_PRONOUNS = tuple(
    (re.compile(rf"(?<![\w'-]){said}(?![\w'-])"), written)
    for said, written in (
        ("I am", "they are"), ("[Ii] was", "they were"), ("[Ii]", "they"), ("[Mm]e", "them"),
        ("[Mm]y", "their"), ("[Mm]ine", "theirs"), ("[Mm]yself", "themselves"), ("[Ww]e", "they"),
        ("us", "them"), ("[Oo]ur", "their"), ("[Oo]urs", "theirs"), ("[Oo]urselves", "themselves"),
    )
)  # fmt: skip
# A comma ends a value, unless what follows is the rest of an enumeration ("a, b and c").
_CLAUSE_AGAIN = r"(?!(?:i|we|it|my|she|he|they|then|am|is|was|have|had|now|the)\b)[\w'-]"
_ITEM = r"(?:[\w'-]+ ){0,2}[\w'-]+"
_LISTED = rf"(?:{_ITEM}, ){{0,4}}{_ITEM},? (?:and|or)\s{_CLAUSE_AGAIN}"
_COMMA = rf",\s(?!(?:and|or) {_CLAUSE_AGAIN})(?!{_LISTED})"
_DURATION = (
    r"for (?:the (?:past|last)|a (?:while|long|few|couple|year|month|week|day)|about|over|almost"
    r"|nearly|quite|some time|ages|\d|(?:\w+ )?(?:years|months|weeks|days|hours)\b)"
)
_STOPS = re.compile(
    rf"\s*(?:{_COMMA}|[;!?]\s|[,;!?:]$|\.$|\s[-–—]\s|[—(]|\s(?:because|'cause|since|so|when"
    r"|cause (?=i |we |it |she |he |they |the |my )|while|but|although|though|which|who|where|if"
    r"|whenever|(?<!look )(?<!looking )(?<!looked )after|before|until|unless|except|now"
    r"|right now|for now|any ?more|any longer|too"
    r"|and (?:things|everything|life|i|we|it|she|he|they|my|our|that|this|am|is|was|have|had|so"
    r"|then)"
    r"|as well|these days|lately|recently|again|already|by the way|right away|at the moment"
    r"|currently|nowadays|instead|actually|a lot|very much|so much|the most|most of all"
    rf"|more than anything|either|at all|{_DURATION}|as (?:a|of)|every time|a while (?:ago|back)"
    r"|not (?:too |so )?long ago|the other day|some time ago|however|thanks to|to be honest|tbh|lol"
    r"|in order to|as soon as)\b)",
    re.IGNORECASE,
)
_PLACE_STOPS = re.compile(
    r"\s(?:with|for|on|as|near|from|and|to|or|at|by|in the|full|part|permanently|together|alone"
    r"|this"
    r"|last|next|during|because)\b(?!-)",
    re.IGNORECASE,
)


_YEAR = re.compile(r"\s(?:back )?(?:in|on|since|by|until) (?:[A-Z][a-z]+ )?(?:19|20)\d\d$")


_WHOLE_CHARS_MAX = 90
_ADJECTIVE = (
    r"(?:safe|big|small|nice|good|warm|long|old|new|quiet|calm|short|simple|cosy|cozy|happy|sad"
    r"|kind"
    r"|bright|dark|clean|open|strong|soft|hard|cool|fresh|slow|fast|deep|free|young|large|tiny|huge"
    r"|fun|great|low|high|[a-z]{2,}(?:ful|ous|ive|able|ible|less|ish|al|ic|ing|ed|ly|ant|ent))"
)
# In "a safe, inviting place" the comma parts two adjectives.
_ADJECTIVES = re.compile(
    rf"\b(?:an?|the|my|our|their|very|so|more) {_ADJECTIVE}(?P<comma>), (?={_ADJECTIVE} [a-z]+)"
)


def value_of(rest: str, *, whole: bool = False) -> str:
    """The noun or verb phrase at the beginning of the rest of a clause; `whole` where it may be
    a longer one, which is cut only if it runs on.
    """
    if whole and len(rest) <= _WHOLE_CHARS_MAX:
        return rest.strip(" .!")
    within = {match.start("comma") for match in _ADJECTIVES.finditer(rest)}
    stops = (match for match in _STOPS.finditer(rest) if match.start() not in within)
    match = next(stops, None)
    value = _YEAR.sub("", rest[: match.start()] if match else rest)
    value = re.sub(r"^(?:any\b|on (?=[A-Z\d])) ?", "", value.strip(" \t\n.,;:!?*_~\"'`)"))
    return (value if value.count('"') % 2 == 0 else value.replace('"', "")).strip()


def place_of(rest: str) -> str:
    """A place or organisation: the value cut at the next preposition."""
    value = value_of(rest)
    match = _PLACE_STOPS.search(value)
    return (value[: match.start()] if match else value).strip(" ,.")


def outside(text: str) -> str:
    """The first person turned into the third: "my dog" becomes "their dog"."""
    for pattern, written in _PRONOUNS:
        text = pattern.sub(written, text)
    return text


_ALSO_NOUNS = word_set(
    "work play design travel research study test plan change dance plant draw film record book"
    " visit"
    " drink cook coach practice exercise start finish show share support love need help sleep walk"
    " run swim climb garden perform share release store cache log track report schedule post camp"
)


def sentence_of(clause: Clause, rest: str, when: When | None) -> str:
    """The whole statement as a sentence."""
    owned = clause.subject.kind == "owned"
    shown = f"{clause.subject.shown} {clause.subject.noun}" if owned else clause.subject.shown
    body = outside(_agreeing(clause, rest))
    return finished(f"{shown} {clause.verb} {body}", when)


_SECOND_VERB = re.compile(
    r"^and (?P<first>[a-z]+)(?![\w'-])"
    r"|(?<![\w'-])and (?P<verb>[a-z]+)(?=$|[.!,]| (?:the|an?|my|our|to|in|on|at|with|for|every)\b)"
)
_TAKES_VERBS = word_set("like love enjoy hate want need prefer let make help do have can")


def _agreeing(clause: Clause, rest: str) -> str:
    """ "I watch movies and hike" is "watches movies and hikes" of a third person."""  # noqa: D210
    subject = clause.subject
    if clause.tense != "present" or (subject.plural and subject.kind != "we"):
        return rest

    def third(match: re.Match[str]) -> str:
        verb = match["first"] or match["verb"]
        form = FORMS.get(verb)
        unsure = match["verb"] and (clause.lemma in _TAKES_VERBS or verb in _ALSO_NOUNS)
        infinitive = re.search(r"\bto\b", rest[: match.start()])
        if form is None or "base" not in form.forms or unsure or infinitive:
            return match[0]
        return f"and {third_person(form.lemma)}"

    return _SECOND_VERB.sub(third, rest)


def finished(text: str, when: When | None) -> str:
    """A sentence with its resolved date, one full stop and a capital letter."""
    clean = re.sub(r"\*\*|__|`", "", text)
    clean = re.sub(r"\s+", " ", clean).strip(" ,;:-–—")
    clean = re.sub(r"\s+([,.;:!?])", r"\1", clean).rstrip(" .!,;:")
    if clean.count('"') % 2:
        clean = (
            clean.rstrip('"') + '"' if clean.rfind('"') < len(clean) - 1 else clean.replace('"', "")
        )
    if when is not None and when.relative and when.shown not in clean:
        clean = f"{clean} ({when.shown})"
    return clean[:1].upper() + clean[1:] + "."
