"""Who or what a clause is about: the speaker, the team, a name, or somebody's something."""

from __future__ import annotations

import re
from dataclasses import dataclass

from recall_server.providers.rules import nouns
from recall_server.providers.rules.verbs import ADVERBS, AUXILIARIES, FORMS, word_set

_SUBJECT_WORDS_MAX = 7


@dataclass(frozen=True)
class Voice:
    """Who is speaking: the entity of "I", and how a sentence names it."""

    entity: str = "user"
    shown: str = "The user"
    named: bool = False


@dataclass(frozen=True)
class Subject:
    """What a clause is about. `noun` is what is possessed ("sister", "favorite color")."""

    kind: str  # "i", "we", "name", "owned" (my sister), "thing" (the staging server)
    entity: str
    shown: str
    noun: str = ""
    plural: bool = False


_NP_BREAK = word_set(
    "that which who when where if because to and but or as than i we you he she they it this "
    "there these those what how not into about like"
)
_DETERMINED = re.compile(r"(?:the|our)\s", re.IGNORECASE)
_NOT_NAMES = word_set(
    "those these life music art work dance dancing painting running nature family love everyone"
    " everything someone something anyone nobody people kids things time money food today"
    " yesterday tomorrow that this it there here what when where why how who which being having"
    " doing looking hope can't sounds looks seems glad happy sorry thanks your their its his her"
    " someone's always never just been got one each every some any many most all both none nothing"
    " had has have was were is are am do does did can could will would should may might must let"
    " let's please if as such no yes in on at by for from with of to up not only even still yet"
    " also but and or so books reading pottery camping volunteering yoga hiking cooking exercise"
    " support self-care teamwork winning losing change success failure winter summer spring autumn"
    " fall"
)
_NOTES = word_set(
    "lives prefers likes loves hates speaks owns wants enjoys dislikes teaches studies drinks eats"
)
_JOINING = word_set("and of the &")
_CALLED = re.compile(r"(?:[Pp]roject|[Tt]eam|[Cc]lient|[Ss]ervice) [A-Z]")
_PLURAL = re.compile(
    r"(?:[^s]s|kids|children|parents|people|men|women|folks|guys|mice)$", re.IGNORECASE
)


def subject_of(
    words: list[str], voice: Voice, last: Subject | None
) -> tuple[Subject, int, bool] | None:
    if not words:
        return None
    first = words[0].lower()
    if first == "i":
        return Subject("i", voice.entity, voice.shown), 1, False
    if first == "we":
        return Subject("we", voice.entity, voice.shown), 1, False
    if first in ("she", "he", "they"):
        return (last, 1, True) if last and (first != "they" or last.plural) else None
    elliptical = _left_out(words, voice)
    return elliptical or _noun_subject(words, voice)


def _left_out(words: list[str], voice: Voice) -> tuple[Subject, int, bool] | None:
    """Chat drops "I": "Moved to Lisbon last week." A note drops "the user": "Lives in Rome"."""
    at = 0
    while at < len(words) and words[at].lower() in ADVERBS:
        at += 1
    if at + 1 >= len(words):
        return None
    word = words[at].lower()
    speaker = Subject("i", voice.entity, voice.shown)
    if word == "had" and words[at + 1] in ("a", "an", "my", "our"):
        return speaker, 0, True
    form = FORMS.get(word)
    if form is None or "base" in form.forms or word in AUXILIARIES:
        return None
    if "past" in form.forms:  # but "applied in order, built by hand" describes something
        described = word.endswith("ed") and words[at + 1].lower() in ("by", "under", "in", "as")
        return None if described else (speaker, 0, True)
    note = word in _NOTES and at == 0 and not voice.named
    return (speaker, 0, True) if note else None


def _noun_subject(words: list[str], voice: Voice) -> tuple[Subject, int, bool] | None:
    end = _noun_phrase_end(words)
    if end is None:
        return None
    phrase = " ".join(words[:end])
    plural = bool(_PLURAL.search(phrase))
    low = phrase.lower()
    if low in ("the user", "user"):
        return Subject("i", "user", "The user"), end, False
    if low in ("the team", "team", "our team", "my team"):
        return Subject("we", "team", "The team"), end, False
    owned = _owned(phrase, voice)
    if owned:
        owner, shown, noun = owned
        return Subject("owned", owner, shown, noun, plural), end, False
    if _DETERMINED.match(phrase):
        bare = phrase.split(" ", 1)[1]
        return Subject("thing", bare, phrase[0].upper() + phrase[1:], bare, plural), end, False
    return _named(words[:end], phrase)


def _named(words: list[str], phrase: str) -> tuple[Subject, int, bool] | None:
    """A proper name, "project Atlas", or a plural of things ("Feature flags")."""
    name = all(w[0].isupper() or w[0].isdigit() or w.lower() in _JOINING for w in words)
    common = words[0].lower().split("'")[0] in _NOT_NAMES or (
        len(words) == 1 and phrase.endswith("ing")
    )
    if name and not common:
        return Subject("name", phrase, phrase, plural=" and " in phrase), len(words), False
    if _CALLED.match(phrase):
        return Subject("name", phrase, phrase[0].upper() + phrase[1:]), len(words), False
    plural = 2 <= len(words) <= 4 and _PLURAL.search(words[-1]) and not common
    if plural and phrase[1:].islower() and words[0].lower() not in FORMS:
        return Subject("thing", phrase, phrase, phrase, plural=True), len(words), False
    return None


def _owned(phrase: str, voice: Voice) -> tuple[str, str, str] | None:
    match = re.match(
        r"(?:(?P<mine>my|our)|(?P<user>(?:the )?user's)"
        r"|(?P<name>[A-Z][\w-]*(?: [A-Z][\w-]*){0,2})'s)"
        r" (?P<noun>.+)",
        phrase,
        re.IGNORECASE if phrase.lower().startswith(("my ", "our ", "user", "the ")) else 0,
    )
    if match is None:
        return None
    if match["name"]:
        return match["name"], f"{match['name']}'s", match["noun"]
    if match["user"]:
        return "user", "The user's", match["noun"]
    ours = match["mine"].lower() == "our"
    shared = nouns.SHARED.search(match["noun"]) if voice.named else not _is_private(match["noun"])
    if ours and shared:
        return "team", "The team's", match["noun"]
    return voice.entity, f"{voice.shown}'s", match["noun"]


def _is_private(noun: str) -> bool:
    return noun.rsplit(maxsplit=1)[-1].lower() in nouns.PEOPLE | nouns.PETS


def _noun_phrase_end(words: list[str]) -> int | None:
    """Where the subject ends: before the first word that can be a finite verb there."""
    for at in range(1, min(len(words), _SUBJECT_WORDS_MAX + 1)):
        word, before = words[at].lower().strip(","), words[at - 1]
        named = words[0][0].isupper() and (word == "and" or words[at - 1].lower() == "and")
        if word in _NP_BREAK and not (named and at <= 2):
            return None
        if before[-1] in ".,:;!?":
            return None
        following = words[at + 1].lower().strip(",") if at + 1 < len(words) else ""
        if word in AUXILIARIES or (word in ADVERBS and following in FORMS):
            return at
        if word in FORMS and _agrees(FORMS[word].forms, before, together="and" in words[:at]):
            return at
    return None


def _agrees(forms: frozenset[str], before: str, *, together: bool) -> bool:
    """Whether a word in these forms can be the verb of a subject that ends on `before`."""
    if before.lower() in ("my", "our", "the", "a", "an", "user's") or before.lower().endswith("'s"):
        return False
    if "past" in forms:
        return True
    plural = bool(_PLURAL.search(before))
    # A name may end in s and yet be one: "Project Atlas uses", but "the dogs bark".
    return ("s" in forms and (before[0].isupper() or not plural)) or (
        "base" in forms and (plural or together)
    )
