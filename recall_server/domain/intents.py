"""Intents: what a caller wants done with a statement, and which memory it is about. Pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

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
_POLITE = r"(?:please|bitte|por\s+favor|s['’]il\s+(?:te|vous)\s+pla[iî]t)(?:\s*+,)?+\s++"
# The text after such an opening is to be forgotten.
_FORGET = {
    "en": (
        (
            r"(?:forget|unlearn|do(?:n['’]t|\s+not)\s+remember|stop\s+remembering)"
            r"(?:\s+(?:that|about)\b|\s*:)"
        ),
    ),
    "de": (
        r"(?:vergiss|vergesst|vergessen\s+sie)(?:\s+bitte)?\s*(?:,\s*dass\b|:)",
        r"merk(?:e|en\s+sie)?\s+dir\s+nicht(?:\s+mehr)?\s*(?:,\s*dass\b|:)",
    ),
    "es": (
        r"(?:olvida|olvide|olv[ií]date\s+de|olv[ií]dese\s+de|no\s+recuerdes)(?:\s+que\b|\s*:)",
        r"deja\s+de\s+recordar(?:\s+que\b|\s*:)",
    ),
    "fr": (r"(?:oublie|oubliez|ne\s+retiens\s+pas|ne\s+retenez\s+pas)(?:\s+qu(?:e\b|['’])|\s*:)",),
    # Without a "please" or a colon, 忘记 says what somebody forgot.
    "zh": (
        r"(?:请(?:忘记|忘掉)|(?:忘记|忘掉|忘了)[:：,，])",
        r"请?(?:别|不要|不要再)记住[:：,，]?",
    ),
    "ja": (r"(?:忘れて(?:ください)?|覚えないで(?:ください)?)[:：、]",),
}
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


def statement(intent: Intent, text: str) -> str:
    """Return a text without the opening words that only say what to do with it."""
    said = text.strip()
    first = {Intent.FORGET: FORGET, Intent.CORRECT: CORRECT}.get(intent)
    rest = first.sub("", said, count=1) if first and first.match(said) else said
    return rest or said


# Two memories match equally well if their scores are at most this far apart.
MARGIN = 0.05
# Memories say "the user" when somebody said "I".
_NOBODY = frozenset({"user", "user's"})


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
    statement counts `coverage`.
    """
    sought = Verdict.CLASHES if intent is Intent.CORRECT else Verdict.SAME
    words = frozenset(terms(said)) - _NOBODY
    found = [
        Match(
            memory,
            1.0
            if any(
                compare(one, memory) is sought and _of_one(one, memory, aliases)
                for one in candidates
            )
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
