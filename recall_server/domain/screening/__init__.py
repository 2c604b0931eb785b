"""Detects texts that give orders to a model, and turns to quarantine. Pure."""

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from itertools import accumulate
from typing import NamedTuple

from recall_server.domain.episode import Citation
from recall_server.domain.screening.phrasings import OTHER_LANGUAGES, STARTS
from recall_server.domain.text.cleaning import decoded, fold

_ORDERS = tuple(
    (reason, re.compile(pattern, re.IGNORECASE | re.DOTALL))
    for reason, pattern in {
        "overrides instructions": (
            r"\b(?:ignore|disregard|forget|override)\b.{0,40}"
            r"\b(?:instruction|prompt|rule|message)s?\b"
        ),
        "gives a conditional order": (
            r"\b(?:if|when|whenever|before|after)\b.{0,60}"
            r"\b(?:you must|always call|must call|must use)\b"
        ),
        "asks for secrecy": (
            r"\b(?:do not|don['’]t|never)\b.{0,20}\b(?:tell|mention|reveal|show)\b.{0,30}"
            r"\b(?:user|human|anyone)\b"
        ),
        "asks to send something elsewhere": (
            r"\b(?:send|post|upload|forward|exfiltrate|leak)\b.{0,40}\b(?:to|via)\b.{0,40}"
            r"\b(?:server|endpoint|url|webhook|e-?mail|address)\b"
        ),
        "asks for a secret": (
            r"\b(?:include|pass|append|provide)\b.{0,40}"
            r"\b(?:api[ _-]?keys?|passwords?|credentials?|private keys?|system prompt)\b"
        ),
        "plays another role": r"<\s*/?\s*(?:system|important|instructions?|assistant)\b",
    }.items()
)
_OUT_OF_PLACE = (
    ("names an address", re.compile(r"(?:https?|ftp|file|data|javascript):", re.IGNORECASE)),
    ("hides a comment", re.compile(r"<!--")),
    ("carries encoded text", re.compile(r"[A-Za-z0-9+/]{80,}={0,2}")),
)


def orders(text: str) -> list[str]:
    """Return the ways in which `text` gives orders to a model, each as the end of a sentence."""
    return [reason for reason, pattern in _ORDERS if pattern.search(text)]


def screen(text: str) -> list[str]:
    """Return what is suspicious about a description of this server's own: orders, addresses and
    hidden parts.
    """
    found = orders(text) + [reason for reason, pattern in _OUT_OF_PLACE if pattern.search(text)]
    if any(
        unicodedata.category(char) in ("Cf", "Co", "Cc") and char not in "\n\t"
        for char in set(text)
    ):
        found.append("hides characters")
    return found


_EARLIER = r"(?:previous|prior|above|earlier|preceding|former|foregoing|initial|original|existing)"
_WORDS = r"(?:instruction|prompt|directive|guideline|command|order|system message)s?"
_READER = r"(?:ai|llm|language model|large language model|ai assistant|ai agent|ai model|chatbot)s?"
# A tag that is only mentioned is quoted, or followed by a word such as "tag".
_UNQUOTED, _NOT_NAMED = r"(?<![`'\"“])", r"(?![`'\"”])(?! ?(?:tags?|elements?|blocks?|tokens?)\b)"

_COMMANDS: tuple[tuple[str, str, str], ...] = (
    (
        "overrides earlier instructions",
        "ignor|disregard|forget|overrid|bypass|discard|neglect",
        (
            r"\b(?:ignore|disregard|forget|override|bypass|discard|neglect)\b[^.!?]{0,20}"
            rf"\b(?:all|any|every)\b[^.!?]{{0,20}}\b{_EARLIER}\b[^.!?]{{0,20}}\b{_WORDS}\b"
        ),
    ),
    (
        "overrides earlier instructions",
        "ignor|disregard|forget|overrid|bypass|discard|neglect|follow|obey",
        (
            rf"{STARTS}(?:ignore|disregard|forget|override|bypass|discard|neglect|"
            r"(?:do not|don't|stop) (?:follow(?:ing)?|obey(?:ing)?)) "
            r"(?:(?:all|any|every|each|of|the|your|these|those|you were given|"
            rf"{_EARLIER}|system|safety|own) )*"
            r"(?:instructions?|prompts?|directives?|programming|training|guardrails"
            r"|system messages?)\b"
            # "Ignore the prompt on the screen" is about a thing in a place.
            r"(?! (?:in|on|at|from|for|with|about|of)\b)"
        ),
    ),
    (
        "overrides earlier instructions",
        "everything|anything|ignore all|forget all|disregard all",
        (
            rf"{STARTS}(?:ignore|disregard|forget) (?:everything|anything|all(?: of)?(?: that)?) "
            r"(?:(?:that |which )?(?:(?:was|is|has been) )?"
            r"(?:(?:said|written|stated|told(?: to)? you)(?: before| above| so far)|above"
            r"|before this)|"
            r"you (?:were|have been) (?:told|taught|given|instructed))\b"
        ),
    ),
    *OTHER_LANGUAGES,
    (
        "plays another role",
        "<",
        (
            rf"{_UNQUOTED}< ?/? ?(?:system|assistant|episode|passage(?:-[0-9a-f]{{4,64}})?|"
            r"important|user_?memory|recalled_?memor(?:y|ies)|tool_?calls?|tool_?results?"
            r"|tool_?use|"
            r"function_?calls?|function_?results?|antml:[a-z_]{1,40}|invoke)"
            rf"(?: [^<>]{{0,80}})?>{_NOT_NAMED}"
        ),
    ),
    (
        "plays another role",
        "<",
        (
            rf"{_UNQUOTED}<\|(?:im_start|im_end|system|user|assistant|developer|start_header_id|"
            rf"end_header_id|eot_id|endoftext|end_of_turn|begin_of_text)\|>{_NOT_NAMED}"
        ),
    ),
    ("plays another role", "inst]|sys>>", rf"{_UNQUOTED}(?:\[/?inst\]|<</?sys>>){_NOT_NAMED}"),
    (
        "plays another role",
        "[user_memory|[system|[/system",
        r"\[user_memory ?=|\[/?(?:system|system prompt|system message)\]",
    ),
    (
        "plays another role",
        "system|developer",
        (
            r"^ ?(?:#{1,6} ?|\*\* ?)?(?:system|developer)"
            r"(?: (?:message|prompt|note|override|notice|instructions?"
            r"|update))?(?: ?\*\*)? ?:[ *\n]{0,4}"
            r"(?:(?!\n\n)[^.!?]){0,60}?\b(?:you are|you must|you will|you have to|ignore|disregard|"
            r"override|from now on|new instructions?|assistant|the model)\b"
        ),
    ),
    (
        "plays another role",
        "role",
        (
            r"\\{0,3}\"role\\{0,3}\" ?: ?\\{0,3}\"(?:system|developer|tool)\\{0,3}\" ?, ?"
            r"\\{0,3}\"(?:content|parts|tool_call_id)\\{0,3}\""
        ),
    ),
    (
        "forges an answer",
        "memories",
        (
            r"\\{0,3}\"memories\\{0,3}\" ?: ?\[\s?\{\s?\\{0,3}\"(?:turn|quote|text|type"
            r"|entity)\\{0,3}\""
        ),
    ),
    (
        "gives the reader another character",
        "you are now|you are no longer",
        (
            r"\byou are (?:now|no longer)\b[^.!?]{0,20}"
            r"(?:\b(?:dan|jailbroken|unrestricted|unfiltered|uncensored)\b|"
            r"\b(?:developer|god|admin|root|debug|maintenance|unrestricted) mode\b|"
            r"\b(?:ai|assistant|language model|chatbot)\b[^.!?]{0,20}\b(?:without|with no"
            r"|that|who|bound)\b|"
            r"\bbound by\b)"
        ),
    ),
    (
        "gives the reader another character",
        "jailbroken|unrestricted|unfiltered|uncensored| dan",
        (
            r"\b(?:act|behave|respond|answer|pretend)(?: as| like| to be)[^.!?]{0,20}"
            r"\b(?:dan|jailbroken|unrestricted|unfiltered|uncensored)\b"
        ),
    ),
    (
        "gives the reader another character",
        "from now on",
        (
            r"\bfrom now on,? (?:you|always|only|the assistant)\b[^.!?]{0,20}"
            r"\b(?:obey|no longer follow|ignore your|answer only with|respond only with"
            r"|comply with)\b"
        ),
    ),
    (
        "speaks to the reader",
        " ai| llm|language model|chatbot",
        (
            rf"\b(?:note|message|instructions?|reminder|attention|notice|memo)[ ,:]{{1,2}}"
            rf"(?:to|for) (?:the |any |all |every |future |whichever )*{_READER}\b"
        ),
    ),
    (
        "speaks to the reader",
        "if you are|if you're",
        rf"\bif you(?: are|'re) (?:an? |the )?{_READER}\b",
    ),
    (
        "speaks to the reader",
        "any |every |the ai|the ass|the model|the agent",
        (
            rf"\b(?:any|every|the) (?:{_READER}|assistant|model|agent)"
            r"(?: that| which| who)?(?: is)? (?:read|retriev|recall|process|see)(?:s|es|ing)? "
            r"(?:this|these) (?:memor|message|note|text|entr|record|conversation)"
        ),
    ),
    (
        "speaks to the reader",
        "when you |when the |whenever ",
        (
            r"\bwhen(?:ever)? (?:you|the (?:assistant|ai|model|agent)) "
            r"(?:read|retrieve|recall|load|process|see)s? (?:this|these) "
            r"(?:memor|message|note|text|entr|record)"
        ),
    ),
    (
        "asks for what is private",
        "prompt|instructions|system message",
        (
            rf"{STARTS}(?:reveal|print|output|repeat|show|dump|disclose|leak|reproduce|tell)"
            r"(?: me| us)?(?: back)? (?:all |the |full |entire |exact |of |hidden |verbatim )*"
            r"(?:your |the )?(?:(?:hidden|initial|original|full|secret) )*"
            r"(?:system prompt|system message|initial prompt|hidden instructions"
            r"|secret instructions)\b"
        ),
    ),
    (
        "asks for what is private",
        "prompt|memor|credential|password|api key|token|secret|conversation|chat ",
        (
            r"\b(?:send|post|upload|forward|exfiltrate|leak|transmit|e-?mail|append|submit)\b"
            r"[^.!?]{0,30}\b(?:system prompt|(?:all|every|stored|the user's|users'|your) "
            r"(?:[a-z]+ ){0,2}?(?:memor(?:y|ies)|credentials|passwords?|api keys?|tokens?"
            r"|secrets?)|"
            r"(?:conversation|chat) (?:history|log)|(?:entire|whole|full) conversation)\b"
            r"[^!?\n]{0,40}\b(?:https?:|webhook|endpoint|[\w.-]{1,40}@[\w-]{1,40}\.[a-z]{2}|"
            r"[\w-]{1,40}\.(?:com|net|org|io|example|xyz|ru)\b)"
        ),
    ),
    (
        "asks for what is private",
        "](",
        r"!\[[^\]]{0,80}\]\(https?://[^)\s]{1,120}[?&/][^)\s]{0,80}(?:\{|<|%7b|\$\{?[a-z])",
    ),
    (
        "asks for secrecy",
        "user|human|operator",
        (
            r"\b(?:do not|don't|never|without) "
            r"(?:tell(?:ing)?|inform(?:ing)?|mention(?:ing)?|reveal(?:ing)?|alert(?:ing)?|"
            r"notify(?:ing)?|warn(?:ing)?)\b"
            r"(?: (?:this|it|that|these))?(?: to)? (?:the|your) (?:user|human|operator)\b"
            r"[^.!?\n]{0,20}?(?:\babout (?:this|these|it|the (?:instruction|message|rule))"
            r"|\bthat you|$|[.!])"
        ),
    ),
    (
        "works the memory's tools",
        "_memor|_namespace_data",
        (
            r"\b(?:call|use|invoke|run|execute|trigger)\b[^.!?]{0,30}\b(?:delete_memory"
            r"|store_memory|"
            r"search_memories|inspect_memories|consolidate_memories|delete_namespace_data)\b"
        ),
    ),
    (
        "works the memory's tools",
        "memor|mem_",
        (
            r"\b(?:delete|erase|remove|overwrite|supersede|wipe|purge|forget)\b[^.!?]{0,20}"
            r"\b(?:(?:all|every) (?:of )?(?:the |your |other |stored |saved |existing "
            r"|previous |user )+"
            r"memor(?:y|ies)\b|memor(?:y|ies) mem_[0-9a-z]{26}|mem_[0-9a-z]{26})"
        ),
    ),
)
_ID = r"(?:mem|ep)_[0-9a-z]{26}(?:\.[0-9]{1,6})?"
_ECHOES: tuple[tuple[str, str, str], ...] = (
    (
        "a recalled memory, stored again",
        "mem_|ep_",
        rf"\\{{0,3}}\"(?:id|memory_id|episode_id)\\{{0,3}}\" ?: ?\\{{0,3}}\"{_ID}\b",
    ),
    (
        "a recalled memory, stored again",
        "mem_|ep_",
        rf"[\[(] ?(?:memory |source |id |id: ?)?{_ID} ?[\])]",
    ),
    (
        "a recalled memory, stored again",
        "valid_from",
        (
            r"\\{0,3}\"valid_from\\{0,3}\" ?: ?\\{0,3}\"[^\"\n]{10,30}\" ?, ?"
            r"\\{0,3}\"score\\{0,3}\" ?:"
        ),
    ),
)


class _Sign(NamedTuple):
    """One suspicious pattern. It is tried only if one of the `keywords` occurs: ordinary talk has
    none, and searching for a word is many times faster than for a pattern.
    """

    reason: str
    keywords: tuple[str, ...]
    pattern: re.Pattern[str]


def _signs(kind: str, rows: Sequence[tuple[str, str, str]]) -> list[_Sign]:
    return [
        _Sign(f"{kind}: {what}", tuple(keywords.split("|")), re.compile(text, re.MULTILINE))
        for what, keywords, text in rows
    ]


_SIGNS = [*_signs("instruction", _COMMANDS), *_signs("echo", _ECHOES)]
# The places of signs by keyword.
_PLACES = {
    keyword: [place for place, sign in enumerate(_SIGNS) if keyword in sign.keywords]
    for sign in _SIGNS
    for keyword in sign.keywords
}

_FLAG = re.compile("\U0001f3f4[\U000e0030-\U000e0039\U000e0061-\U000e007a]{2,6}\U000e007f")
_HIDDEN = (
    ("hidden: characters of the tag block", re.compile("[\U000e0000-\U000e007f]")),
    ("hidden: an override of the writing direction", re.compile("[\u202d\u202e]")),
    (
        "hidden: a run of characters without width",
        re.compile("[\u00ad\u034f\u180e\u200b-\u200f\u2060-\u2064\ufeff]{6}"),
    ),
    ("hidden: a run of variation selectors", re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]{4}")),
)
# How many turns may lie between two echoes of one answer: a long answer is cut into several turns.
_ECHO_GAP_MAX = 3


def suspicions(text: str) -> tuple[str, ...]:
    """Return the reasons to quarantine a single text; empty for ordinary talk."""
    return suspects([text]).get(0, ())


def suspects(said: Sequence[str]) -> dict[int, tuple[str, ...]]:
    """Return the turns to quarantine, by index, with the reasons. If an order spans several turns,
    all of them are suspects. Time is linear in the text.
    """
    found: dict[int, dict[str, None]] = {}
    folded = [fold(text) for text in said]
    for reason, first, last in _matches(folded):
        for number in range(first, last + 1):
            found.setdefault(number, {})[reason] = None
    for number, text in enumerate(said):
        reasons = [reason for inner in decoded(text) for reason, _, _ in _matches([fold(inner)])]
        if not text.isascii():
            bare = _FLAG.sub("", text)
            reasons += [reason for reason, pattern in _HIDDEN if pattern.search(bare)]
        for reason in reasons:
            found.setdefault(number, {})[reason] = None
    return {number: tuple(found[number]) for number in sorted(found)}


def _matches(folded: Sequence[str]) -> Iterator[tuple[str, int, int]]:
    """Yield each reason with the first and the last of the texts that it spans."""
    whole = "\n".join(folded)
    possible = {place for keyword, some in _PLACES.items() if keyword in whole for place in some}
    starts = [0, *accumulate(len(text) + 1 for text in folded[:-1])]
    for place in sorted(possible):
        reason, _, pattern = _SIGNS[place]
        before = -1
        for match in pattern.finditer(whole):
            first = bisect_right(starts, match.start()) - 1
            last = bisect_left(starts, match.end()) - 1
            if reason.startswith("echo") and 0 <= before < first <= before + _ECHO_GAP_MAX:
                first = before + 1
            yield reason, first, max(first, last)
            before = last


class Held(StrEnum):
    """The state of a suspect. Only a held one waits for a decision, and it is decided once."""

    HELD = "held"
    RELEASED = "released"
    REJECTED = "rejected"


@dataclass(frozen=True)
class Decided:
    """A decision about one suspect: its author (an accessor or the operator) and time."""

    state: Held
    by: str | None = None
    at: datetime | None = None


@dataclass(frozen=True)
class Suspect:
    """A turn that recall does not find, with its words and the reasons."""

    item_id: str
    topic: str
    citation: Citation
    reasons: tuple[str, ...]
    held_at: datetime
    decided: Decided
    agent_id: str | None = None
    client: str | None = None


@dataclass(frozen=True)
class Place:
    """The position of a suspect in its episode, and the decision about it."""

    item_id: str
    episode_id: str
    position: int
    decided: Decided
