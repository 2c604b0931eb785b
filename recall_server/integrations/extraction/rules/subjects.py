"""Who or what a clause is about: the speaker, the team, a name, or somebody's something."""

from __future__ import annotations

import re
from dataclasses import dataclass

from recall_server.integrations.extraction.rules import nouns
from recall_server.integrations.extraction.rules.verbs import ADVERBS, AUXILIARIES, FORMS, word_set

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

    kind: str  # "i", "we", "both" (my wife and I), "name", "owned" (my sister), "thing"
    entity: str
    shown: str
    noun: str = ""
    plural: bool = False

    @property
    def inanimate(self) -> bool:
        """Whether it can have no tastes, home or job."""
        if self.kind not in ("owned", "thing"):
            return False
        # "My sister Ana": the name stands after the noun.
        words = [word for word in self.noun.split() if not word[0].isupper()]
        people = nouns.PEOPLE | nouns.PETS if self.kind == "owned" else nouns.PEOPLE
        return not words or words[-1].lower() not in people

    @property
    def is_pet(self) -> bool:
        return self.kind == "owned" and self.noun.lower().split()[-1] in nouns.PETS


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
_SOMEBODY = r"(?:(?:[Mm]y|[Oo]ur) (?:[\w-]+ ){0,2}?[\w-]+|[A-Z][\w-]+(?: [A-Z][\w-]+)?)"
_BOTH = re.compile(
    rf"(?:(?P<one>{_SOMEBODY}) and (?:I|i|me|myself)|[Mm]e and (?P<two>{_SOMEBODY}))(?= )"
)
_NOTES = word_set(
    "lives prefers likes loves hates speaks owns wants enjoys dislikes teaches studies drinks eats"
)
_COUNTS = word_set("one two three four five six seven eight nine ten several few other")
_PLACED = re.compile(r"(?P<name>[A-Z][a-z]+(?<!s)(?: [A-Z][a-z]+)?) (?:from|in|at|of) [\w ]{2,30}")
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
    if first in ("she", "he", "they", "it"):
        return (last, 1, True) if last and _stands_for(first, last) else None
    both = _BOTH.match(" ".join(words[:8]))
    if both:
        return _together(both, voice)
    elliptical = _left_out(words, voice)
    return elliptical or _noun_subject(words, voice)


def _stands_for(pronoun: str, last: Subject) -> bool:
    if pronoun == "they":
        return last.plural
    named = bool(_CALLED.match(last.shown))
    return (last.inanimate or named) and not last.plural if pronoun == "it" else not last.inanimate


def _together(both: re.Match[str], voice: Voice) -> tuple[Subject, int, bool]:
    """ "My wife and I": the speaker with somebody else."""  # noqa: D210
    other = re.sub(r"^(?:my|our) ", "their ", both["one"] or both["two"], flags=re.IGNORECASE)
    shown = f"{voice.shown} and {other}"
    return Subject("both", voice.entity, shown, plural=True), len(both[0].split()), False


def _left_out(words: list[str], voice: Voice) -> tuple[Subject, int, bool] | None:
    """Chat drops "I": "Moved to Lisbon last week." A note drops "the user": "Lives in Rome"."""
    at = 0
    while at < len(words) and words[at].lower() in ADVERBS:
        at += 1
    if at + 1 >= len(words):
        return None
    word = words[at].lower()
    speaker = Subject("i", voice.entity, voice.shown)
    if word in ("had", "did") and words[at + 1] in ("a", "an", "my", "our", "some"):
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
    return _named(words[:end], phrase, _is_base(words[end]))


def _named(words: list[str], phrase: str, base: bool) -> tuple[Subject, int, bool] | None:
    """A proper name, "project Atlas", or a plural of things ("Feature flags")."""
    if base and len(words) == 1 and _PLURAL.search(phrase) and phrase.lower() not in _NOT_NAMES:
        return Subject("thing", phrase, phrase, phrase, plural=True), 1, False
    name = all(w[0].isupper() or w[0].isdigit() or w.lower() in _JOINING for w in words)
    common = words[0].lower().split("'")[0] in _NOT_NAMES or (
        len(words) == 1 and phrase.endswith("ing")
    )
    if name and not common:
        return Subject("name", phrase, phrase, plural=" and " in phrase), len(words), False
    if _CALLED.match(phrase):
        return Subject("name", phrase, phrase[0].upper() + phrase[1:]), len(words), False
    placed = _PLACED.fullmatch(phrase)
    if placed and not common:
        return Subject("name", placed["name"], phrase), len(words), False
    counted = words[0].isdigit() or words[0].lower() in _COUNTS
    plural = 2 <= len(words) <= 4 and _PLURAL.search(words[-1]) and not common and not counted
    if plural and phrase[1:].islower() and words[0].lower() not in FORMS:
        return Subject("thing", phrase, phrase, phrase, plural=True), len(words), False
    return None


def _is_base(word: str) -> bool:
    form = FORMS.get(word.lower().strip(","))
    return word.lower() in ("are", "have", "do") or (form is not None and "base" in form.forms)


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
    private = (nouns.PEOPLE - nouns.AT_WORK) | nouns.PETS | nouns.PRIVATE
    return noun.rsplit(maxsplit=1)[-1].lower() in private


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
        if _is_noun_here(word, following):
            continue
        if at > 1 and word not in FORMS and _REGULAR_PAST.fullmatch(word) and following in _AFTER:
            return at
        if word in FORMS and _agrees(FORMS[word].forms, before, together="and" in words[:at]):
            return at
    return None


_REGULAR_PAST = re.compile(r"[a-z]{3,}ed")
_AFTER = word_set("a an the my our their his her to from into in with for on at")


def _is_noun_here(word: str, following: str) -> bool:
    """ "Bug reports go to Ines": before another finite verb, what looks like one is a noun."""  # noqa: D210
    forms = FORMS[following].forms if following in FORMS else frozenset[str]()
    helps = word in FORMS and FORMS[word].lemma in ("help", "let", "make", "go", "come")
    return word in FORMS and "base" in forms and not helps and "s" in FORMS[word].forms


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
