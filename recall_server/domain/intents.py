"""Intents: what a caller wants done with a statement, and which memory it is about. Pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from recall_server.domain.attributes import SubjectAliases
from recall_server.domain.extraction import Candidate
from recall_server.domain.memory import Memory
from recall_server.domain.similarity import Verdict, compare
from recall_server.domain.text.terms import terms


@dataclass(frozen=True)
class Thresholds:
    """All from 0 to 1.

    `match_min`, `correct_match_min`: the least score of a memory that a statement means, or that a
    correction means, which shares fewer words, as its value differs.
    `match_coverage`: how much of a score is the share of the statement's words that the memory has;
    the rest is the share of the memory's words that the statement has.
    `doubted_max`: the highest confidence of a candidate that needs a review.
    """

    match_min: float = 0.7
    correct_match_min: float = 0.6
    match_coverage: float = 0.8
    doubted_max: float = 0.5


# Opening words that say that the rest is to be forgotten, or is a correction: a table for each
# language that extraction reads.
# Possessive: blanks could be shared out in as many ways as there are of them, each tried in turn.
_PLEASE = r"(?:please|bitte|por\s+favor|s['’]il\s+(?:te|vous)\s+pla[iî]t)"
_POLITE = rf"{_PLEASE}(?:\s*+,)?+\s++"
_LAST = re.compile(rf"(?:,\s?|\s){_PLEASE}\s?[.!]?\Z", re.IGNORECASE)
# Verbs that ask to forget; links after which any text is to be forgotten; what is to be forgotten
# without a link, as it belongs to somebody; and words for all that is known of something.
_NAME = r"(?-i:[^\W\d_a-z][\w.-]*+)"
_NAMES = rf"(?:{_NAME}\s++){{0,2}}"
_FEW = r"(?:\s++[^\s,;:.!?]++){1,6}+"
_END = rf"(?:,\s?{_PLEASE})?+\s*+[.!]?\s*+\Z"


class _Forgetting(NamedTuple):
    verbs: str
    links: str
    own: str
    all: str


_FORGETTING = {
    "en": _Forgetting(
        r"(?:forget|unlearn|do(?:n['’]t|\s+not)\s+remember|stop\s+remembering)",
        r"(?:\s+(?:that|about)\b|\s*:)",
        rf"(?:my|our|his|her|their|(?:the\s++[\w-]++|{_NAMES}{_NAME})['’]s){_FEW}",
        r"(?:everything|all)(?:\s++(?:that\s++)?you\s++know)?(?:\s++(?:about|of|on))?",
    ),
    "de": _Forgetting(
        r"(?:vergiss|vergesst|vergessen\s+sie|merk(?:e|en\s+sie)?\s+dir\s+nicht(?:\s+mehr)?)"
        r"(?:\s+bitte)?",
        r"\s*(?:,\s*dass\b|:)",
        rf"(?:(?:mein|unser|sein|ihr)(?:e[mnrs]?)?{_FEW}|{_NAMES}{_NAME}(?<=s)['’]?\s++{_NAME}"
        rf"|(?:den|die|das)(?:\s++\w++){{1,4}}?\s++von\s++{_NAMES}{_NAME})",
        r"alles(?:\s++(?:über|zu|von))?",
    ),
    "es": _Forgetting(
        r"(?:olvida|olvide|olv[ií]date\s+de|olv[ií]dese\s+de|no\s+recuerdes|deja\s+de\s+recordar)",
        r"(?:\s+que\b|\s*:)",
        rf"(?:(?:mis?|sus?|nuestr[oa]s?){_FEW}"
        rf"|(?:el|las?|los)(?:\s++\w++){{1,5}}?\s++de\s++{_NAMES}{_NAME})",
        r"todo(?:\s++lo\s++que\s++sabes)?(?:\s++(?:sobre|de))?",
    ),
    "fr": _Forgetting(
        r"(?:oublie|oubliez|ne\s+retiens\s+pas|ne\s+retenez\s+pas)",
        r"(?:\s+qu(?:e\b|['’])|\s*:)",
        rf"(?:(?:mon|ma|mes|son|sa|ses|notre|nos|leurs?){_FEW}"
        rf"|(?:l['’]|l[ea]s?\s++)\w++(?:\s++\w++){{0,4}}?\s++(?:de\s++|d['’]){_NAMES}{_NAME})",
        r"tout(?:\s++ce\s++que\s++tu\s++sais)?(?:\s++(?:sur|de))?",
    ),
}
# The text after such an opening is to be forgotten.
_FORGET = {
    name: (
        f"{one.verbs}{one.links}",
        rf"{one.verbs}\s++(?={one.own}{_END})",
        rf"{one.verbs}\s++{one.all}(?=(?:{_FEW})?{_END})",
    )
    for name, one in _FORGETTING.items()
} | {
    # Without a "please" or a colon, 忘记 says what somebody forgot.
    "zh": (
        r"(?:请(?:忘记|忘掉)|(?:忘记|忘掉|忘了)[:：,，])",
        r"请?(?:别|不要|不要再)记住[:：,，]?",
    ),
    "ja": (r"(?:忘れて(?:ください)?|覚えないで(?:ください)?)[:：、]",),
}
# The text after such an opening may be to be forgotten, or goes on otherwise: "Forget the importer,
# we ship without it."
_MAY_FORGET = {name: (rf"{one.verbs}\s",) for name, one in _FORGETTING.items()} | {
    "de": (rf"{_FORGETTING['de'].verbs}\s", r"merk(?:e|en\s+sie)?\s+dir\s(?=[^,;:.!?]*\bnicht\b)")
}
_ALL = {name: (rf"{one.verbs}\s++{one.all}\b",) for name, one in _FORGETTING.items()}
# The text after such an opening is the correct statement.
_CORRECT = {
    "en": (
        r"(?:correction|i\s+was\s+wrong|that(?:['’]s|\s+(?:is|was))\s+wrong)\s*[:,.;–—-]+",
        r"(?:no|actually)\s*,",
    ),
    "de": (
        (
            r"(?:korrektur|berichtigung|richtigstellung|ich\s+habe\s+mich\s+geirrt"
            r"|das\s+(?:stimmt\s+nicht|ist\s+falsch|war\s+falsch))\s*[:,.;–—-]+"
        ),
        r"nein\s*,",
    ),
    "es": (
        (
            r"(?:correcci[oó]n|rectificaci[oó]n|me\s+equivoqu[eé]|me\s+he\s+equivocado"
            r"|eso\s+(?:no\s+es\s+correcto|es\s+falso|estaba\s+mal))\s*[:,.;–—-]+"
        ),
        r"(?:no|en\s+realidad)\s*,",
    ),
    "fr": (
        (
            r"(?:correction|rectification|je\s+me\s+suis\s+tromp[eé]e?|c['’](?:est|était)\s+faux)"
            r"\s*[:,.;–—-]+"
        ),
        r"(?:non|en\s+fait|en\s+réalité)\s*,",
    ),
    "zh": (r"(?:更正|纠正|我(?:说|弄|搞)错了)[:：,，。]", r"(?:不|不对|其实|实际上)[,，]"),
    "ja": (
        r"(?:訂正|修正|間違えました|間違いでした)[:：、。]",
        r"(?:いいえ|いや|実は|違います)[、,]",
    ),
}


def _compiled(table: Mapping[str, tuple[str, ...]]) -> re.Pattern[str]:
    known = "|".join(one for cues in table.values() for one in cues)
    return re.compile(rf"(?:{_POLITE})?(?:{known})\s*", re.IGNORECASE)


FORGET = _compiled(_FORGET)
MAY_FORGET = _compiled(_MAY_FORGET)
ALL = _compiled(_ALL)
CORRECT = _compiled(_CORRECT)
LANGUAGES = frozenset(_FORGET) & frozenset(_CORRECT)


class Intent(StrEnum):
    """The wish for a statement; `auto`: its words decide."""

    AUTO = "auto"
    REMEMBER = "remember"
    CORRECT = "correct"
    FORGET = "forget"


def intended(intent: Intent, text: str, memory_id: str) -> Intent:
    """Return what `auto` means: forget or correct if the first words say so, or correct if a memory
    is named. Any other text is remembered; a correction inside it still counts as one.
    """
    if intent is not Intent.AUTO:
        return intent
    if FORGET.match(text.strip()):
        return Intent.FORGET
    return Intent.CORRECT if memory_id or CORRECT.match(text.strip()) else Intent.REMEMBER


def may_forget(text: str) -> bool:
    """Return whether a text begins as if it asked to forget something."""
    return MAY_FORGET.match(text.strip()) is not None


def forgets_all(text: str) -> bool:
    """Return whether a text asks to forget all that is known of something."""
    return ALL.match(text.strip()) is not None


def statement(intent: Intent, text: str) -> str:
    """Return a text without the opening words that only say what to do with it."""
    said = text.strip()
    openings = {Intent.FORGET: (FORGET, MAY_FORGET), Intent.CORRECT: (CORRECT,)}.get(intent, ())
    opening = next((found for one in openings if (found := one.match(said))), None)
    return (_LAST.sub("", said[opening.end() :]) if opening else said) or said


# Two memories match equally well if their scores are at most this far apart.
MARGIN = 0.05
# Memories say "the user" when somebody said "I".
_NOBODY = frozenset({"user", "user's"})
# A statement that begins with "my" means no memory of somebody else.
_MINE = re.compile(r"(?:my|mein(?:e[mnrs]?)?|mis?|mon|ma|mes)\s", re.IGNORECASE)
_OWNER = re.compile(r"\b[\w-]++(?=['’]s\b)")
_OF_USER = re.compile(rf"\b(?:user|nutzer|usuario|utilisateur)\b|\b{_MINE.pattern}", re.IGNORECASE)


@dataclass(frozen=True)
class Match:
    """How well a memory matches a statement, from 0 to 1."""

    memory: Memory
    score: float


def matches(
    intent: Intent,
    said: str,
    candidates: Sequence[Candidate],
    memories: Sequence[Memory],
    coverage: float,
    *,
    aliases: SubjectAliases,
) -> list[Match]:
    """Score memories against a statement, the best and newest first: 1 for the same fact, or for
    the fact that a correction contradicts; else by the share of common words, of which that of the
    statement counts `coverage`: 0 for a memory of somebody else where "my ..." is meant.
    """
    sought = Verdict.CLASHES if intent is Intent.CORRECT else Verdict.SAME
    words, mine = frozenset(terms(said)) - _NOBODY, _MINE.match(said)
    found = [
        Match(
            memory,
            1.0
            if any(
                compare(one, memory) is sought and _of_one(one, memory, aliases)
                for one in candidates
            )
            else 0.0
            if mine and not _of_user(memory, words)
            else _share(words, frozenset(terms(memory.text)) - _NOBODY, coverage),
        )
        for memory in memories
    ]
    newest = sorted(found, key=lambda one: (one.memory.recorded_at, one.memory.id), reverse=True)
    return sorted(newest, key=lambda one: -one.score)


def _of_one(candidate: Candidate, memory: Memory, aliases: SubjectAliases) -> bool:
    """True if both are about the same subject."""
    if candidate.fact is None or memory.fact is None:
        return False
    return aliases.subject(candidate.fact.entity) == aliases.subject(memory.fact.entity)


def _of_user(memory: Memory, words: frozenset[str]) -> bool:
    """True if a memory is about what is the user's, and of nobody else than the words name."""
    owners = frozenset(terms(" ".join(_OWNER.findall(memory.text)))) - _NOBODY
    return owners <= words and _OF_USER.search(memory.text) is not None


def _share(said: frozenset[str], known: frozenset[str], coverage: float) -> float:
    both = len(said & known)
    if not both:
        return 0.0
    return round(coverage * both / len(said) + (1 - coverage) * both / len(known), 4)


def meant(intent: Intent, found: Sequence[Match], thresholds: Thresholds) -> list[Match]:
    """Return the memories that may be meant: none, the best one, or all that match equally well."""
    corrects = intent is Intent.CORRECT
    least = thresholds.correct_match_min if corrects else thresholds.match_min
    best = [one for one in found if one.score >= least]
    return [one for one in best if one.score >= best[0].score - MARGIN]
