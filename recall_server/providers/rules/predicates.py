"""The table of predicates: which verb, followed by what, states which attribute of its subject."""

from __future__ import annotations

import re
from dataclasses import dataclass

from recall_server.domain.model import MemoryType

NOW = frozenset({"present", "progressive", "perfect", "perfect_ing", "used"})
DONE = frozenset({"past", "perfect"})
ANY = NOW | DONE | {"past_ing"}
FACT, PREFERENCE, DECISION = MemoryType.FACT, MemoryType.PREFERENCE, MemoryType.DECISION
SURE, LIKELY = 0.9, 0.7


@dataclass(frozen=True)
class Predicate:
    """A rule for one verb. `value`, `old` and `key` are groups of the pattern over what follows it;
    a "{key}" in the attribute is filled in, "{category}" by what kind of thing the value is.
    """

    pattern: re.Pattern[str]
    attribute: str
    type: MemoryType = FACT
    confidence: float = SURE
    tenses: frozenset[str] = NOW
    place: bool = False  # the value ends at the next preposition
    people: bool = False  # the subject must be a person or a group
    things: bool = False  # the subject must be anything else
    listed: bool = False  # the value may be an enumeration
    negated: bool = False
    correction: bool = False


def _rules(*rows: tuple[str, str, str, dict[str, object]]) -> dict[str, tuple[Predicate, ...]]:
    table: dict[str, tuple[Predicate, ...]] = {}
    for lemmas, pattern, attribute, options in rows:
        rule = Predicate(re.compile(pattern, re.IGNORECASE), attribute, **options)  # type: ignore[arg-type]
        for lemma in lemmas.split():
            table[lemma] = (*table.get(lemma, ()), rule)
    return table


_OVER = r"(?:over|to(?! \w+ing\b)|rather than|instead of|than|more than)"
_V = r"(?P<value>.+)"
_WEAK: dict[str, object] = {"confidence": LIKELY}
_PAST: dict[str, object] = {"tenses": DONE}
_PREF: dict[str, object] = {"type": PREFERENCE}
_TASTE: dict[str, object] = {"type": PREFERENCE, "tenses": NOW, "people": True}
_DECIDED: dict[str, object] = {"type": DECISION, "tenses": DONE | {"present"}}
_PERSON: dict[str, object] = {"people": True}
_THINGS: dict[str, object] = {"confidence": LIKELY, "things": True}

PREDICATES: dict[str, tuple[Predicate, ...]] = _rules(
    # taste
    ("prefer", rf"(?P<value>.+?) {_OVER} (?P<over>.+)", "preferred_{category}", _TASTE),
    ("prefer", r"(?P<value>.+?) for (?P<key>[\w -]{3,40})", "preferred_for_{key}", _TASTE),
    ("prefer", _V, "preferred_{category}", _TASTE),
    ("like love enjoy adore", _V, "likes", _TASTE),
    ("hate dislike detest despise loathe", _V, "likes", {**_TASTE, "negated": True}),
    ("stand", _V, "likes", {**_TASTE, "tenses": frozenset({"can"})}),
    # home, work
    ("live", r"(?:\w+ )?(?:in|at|on|near|outside) " + _V, "lives_in",
     {"place": True, "people": True}),
    ("base locate", r"(?:out of|in|at) " + _V, "lives_in", {"place": True, "tenses": ANY}),
    ("move relocate", r"(?:\w+ )?from (?P<old>.+?) to " + _V, "lives_in",
     {"place": True, "tenses": ANY, "correction": True}),
    ("move relocate", (r"(?:(?:back|over|out|up|down|here|away|house) )?to (?P<value>(?!(?:a|an|the"
     r"|this|that|another) |use\b|do\b).+?)(?: from (?P<old>.+))?$"), "lives_in",
     {"place": True, "tenses": DONE, "people": True}),
    ("work", r"(?P<also>as an? .+?) (?:at|for) " + _V, "works_at", {"place": True, "people": True}),
    ("work", (r"(?:at|for) (?P<value>(?!(?:home|night|me|us|free|hours|weeks|days|months)\b"
    r"|an? while).+)"),
     "works_at", {"place": True, "people": True}),
    ("work", r"(?:\w+-time )?as (?:an? |the )?" + _V, "job_title", {"people": True, "place": True}),
    ("work", r"in (?P<value>(?:the )?[\w& -]{3,40})", "works_in", {"people": True, "place": True}),
    ("work", r"(?:on|with) " + _V, "working_on", {"tenses": NOW}),
    ("work", (r"(?P<value>remotely|from home|part[- ]time|full[- ]time|nights|weekends"
    r"|night shifts?)"),
     "schedule", _PERSON),
    ("report", r"to " + _V, "reports_to", {"place": True, "people": True}),
    ("manage lead supervise", _V, "responsible_for", {"people": True}),
    ("teach", _V, "teaches", _PERSON),
    ("run", r"(?:only )?on " + _V, "hosted_on", _THINGS),
    ("get", r"(?P<value>married|engaged|divorced)\b", "relationship_status", _PAST),
    ("live", r"(?:in|at|on|under) (?:the )?" + _V, "located_in", {**_THINGS, "place": True}),
    ("move relocate", r"to (?P<value>(?-i:[A-Z]).+|the .+)", "located_in",
     {**_THINGS, "place": True, "tenses": ANY}),
    ("depend rely", r"on " + _V, "depends_on", _THINGS),
    # having
    ("own", _V, "owns", {}), ("drive ride", r"(?P<value>an? .+)", "owns", _WEAK),
    ("use run", r"(?P<value>.+?) instead of (?P<old>.+)", "uses_for_{category}",
     {"correction": True}),
    ("use", (r"(?P<value>.+?) for (?:our |my |the |all |their |most )?(?P<key>(?!now\b|good\b"
    r"|the time)[\w /-]{2,40})"),
     "uses_for_{key}", {}),
    ("use", (r"(?P<value>.+?) as (?:our |my |the |an? |their )(?P<key>(?!now\b|good\b"
    r"|the time)[\w /-]{2,40})"),
     "uses_for_{key}", {}),
    ("use", _V, "uses_for_{category}", {}),
    ("wear", r"(?P<value>glasses|contacts|contact lenses|hearing aids?|size .+)", "has", {}),
    ("speak", (r"(?P<value>(?:(?:fluent|some|a little|a bit of|basic|native|both) )?"
     r"(?!at\b|to\b|with\b|in\b|on\b|up\b|about\b|for\b)[a-z]+(?:(?:,? and|,) (?:(?:some|a little"
     r"|basic) )?[a-z]+){0,4})"), "speaks", {"people": True, "listed": True}),
    ("play", r"(?:the )?(?P<value>(?!(?:a )?(?:role|part|with|as|at|in|around|well|\w+ly)\b).+)",
     "plays", _PERSON),
    ("study", r"(?!(?:for|hard|a lot)\b)" + _V, "studies", _PERSON),
    ("learn", r"(?!(?:a lot|so much|from|more)\b)(?:about )?" + _V, "learning",
     {"tenses": frozenset({"progressive", "perfect_ing"})}),
    ("train", r"for " + _V, "working_on", {"tenses": frozenset({"progressive", "perfect_ing"})}),
    ("volunteer", r"(?:at|for|with|in) " + _V, "member_of", {"place": True}),
    ("collect", _V, "hobby", _PERSON),
    ("practice practise", r"(?!what\b)" + _V, "hobby", _PERSON),
    ("eat", r"(?P<value>(?:only )?(?!out\b|well\b|too\b|that\b).+)", "eats",
     {"tenses": frozenset({"present"}), "people": True}),
    ("drink", _V, "drinks", {"tenses": frozenset({"present"}), "people": True}),
    ("need require", (r"(?P<value>(?!an? (?:break|change|minute|hand|rest|bit)\b)(?:an?|the"
    r"|at least"
     r"|\d+|(?-i:[A-Z])) ?.+)"), "needs", _WEAK),
    # wishes and plans
    ("want", (r"(?P<value>(?!to (?:say|thank|know|see|hear|share|show|make sure|ask|tell|help"
    r"|give|be"
     r" (?:there|able))\b).+)"), "wants", {"type": PREFERENCE}),
    ("wish", r"to (?P<value>.+)", "wants", {"type": PREFERENCE}),
    ("hope aim intend", r"to (?P<value>(?!(?:see|hear|talk|catch)\b).+)", "goal", {}),
    ("plan", r"(?:to|on|for) (?P<value>(?!it\b).+)", "plans", {"tenses": ANY}),
    ("plan organize organise host", r"(?P<value>(?:an?|the|our|my|some) .+)", "plans",
     {"tenses": frozenset({"progressive"})}),
    # decisions
    ("decide agree choose opt", (r"(?:that )?(?:we |i )?(?:will |are going |to )?(?:to )?(?:go with"
     r"|use|adopt|standardi[sz]e on|move to|switch to|stick with|keep using|build on|pick|keep)"
     r" (?P<value>.+?)(?:,? (?:and not|not|over|instead of|rather than) (?P<over>.+?))?"
     r"(?:(?: for| as) (?:our |my |the |all |an? )?(?P<key>(?!now\b|good\b"
     r"|the time)[\w /-]{2,40}))?$"),
     "uses_for_{key}", _DECIDED),
    ("choose pick select", (r"(?P<value>.+?) (?:over|instead of|rather than) (?P<over>.+?)"
     r"(?: (?:for|as) (?:our |my |the |an? )?(?P<key>(?!now\b|good\b|the time)[\w /-]{2,40}))?$"),
     "uses_for_{key}", _DECIDED),
    ("choose pick", (r"(?P<value>.+?) (?:for|as) (?:our |my |the |an? )?(?P<key>(?!now\b|good\b"
    r"|the time)[\w /-]{2,40})$"),
     "uses_for_{key}", _DECIDED),
    ("settle", (r"on (?P<value>.+?)(?: (?:for|as) (?:our |my |the |an? )?(?P<key>(?!now\b|good\b"
    r"|the time)[\w /-]{2,40}))?$"),
     "uses_for_{key}", _DECIDED),
    ("standardize standardise", (r"on (?P<value>.+?)(?: for (?:our |the )?(?P<key>(?!now\b|good\b"
    r"|the time)[\w /-]{2,40}))?$"),
     "uses_for_{key}", _DECIDED),
    ("go", (r"with (?P<value>.+?)(?: (?:instead of|over|rather than) (?P<over>.+?))?"
     r"(?: for (?:our |my |the )?(?P<key>(?!now\b|good\b|the time)[\w /-]{2,40}))?$"),
     "uses_for_{key}",
     {"type": DECISION, "tenses": frozenset({"will", "going", "progressive", "past", "perfect"})}),
    ("use adopt", (r"(?P<value>.+?)(?: instead of (?P<over>.+?))?(?: (?:for|as) (?:our |my |the "
    r"|an? )?"
     r"(?P<key>(?!now\b|good\b|the time)[\w /-]{2,40}))?$"),
     "uses_for_{key}",
     {"type": DECISION, "tenses": frozenset({"will", "going"})}),
    ("decide agree", r"(?P<value>(?:not )?to (?!be\b).+)", "decided",
     {**_DECIDED, "confidence": SURE}),
    ("decide agree", r"that (?:we (?:will |would |are going to )?)?(?P<value>.+)", "decided",
     _DECIDED),
    ("decide", r"against (?P<value>.+)", "decided", {**_DECIDED, "negated": True}),
    ("decide settle agree", r"on (?P<value>.+)", "decided", _DECIDED),
    ("approve reject postpone delay cancel drop deprecate", (r"(?P<value>(?:the|our|a"
    r"|support for) .+)"), "decided",
     {"type": DECISION, "tenses": DONE, "confidence": LIKELY}),
    # changes
    ("switch migrate move change convert", r"(?:(?P<key>(?:our |my "
    r"|the )?[\w /-]{2,40}?) )?(?:over )?"
     r"from (?P<old>.+?) (?:over )?to " + _V, "uses_for_{key}",
     {"correction": True, "tenses": ANY, "type": FACT}),
    ("switch migrate change convert", r"(?:over )?to " + _V, "uses_for_{category}",
     {"correction": True, "tenses": DONE}),
    ("replace", r"(?P<old>.+?) (?:with|by) " + _V, "uses_for_{category}",
     {"correction": True, "tenses": ANY}),
    ("stop quit", r"(?P<value>(?!using|drinking|eating|playing)\w+ing\b.*)", "habit",
     {"negated": True, "tenses": DONE, "correction": True}),
    ("stop quit", r"(?:using|drinking|eating|playing) (?P<value>.+)", "uses",
     {"negated": True, "tenses": DONE, "correction": True, "confidence": LIKELY}),
)  # fmt: skip

_GO_VISITED = (
    r"(?:(?:back|over|out|up|down|away) )?(?:to|on) "
    r"(?P<value>(?:an?|the|my|our|this|[A-Z]|\w+ing).+)"
)
_THING = (
    r"(?P<value>(?:an?|the|my|our|some|two|three|four|five|\d+|[A-Z][\w'-]+|\"|new|another|more)"
    r" ?.+)"
)
EVENTS: tuple[tuple[str, str, str], ...] = (
    ("go travel fly drive", _GO_VISITED, "visited"),
    ("go", r"(?P<value>\w{3,}ing\b.*)", "did"),
    ("visit explore", r"(?P<value>.+)", "visited"),
    ("return get come", r"back from (?P<value>.+)", "visited"),
    ("attend", r"(?P<value>.+)", "attended"),
    (
        "volunteer participate present speak perform compete",
        r"(?:at|in|for|with|on) (?P<value>.+)",
        "attended",
    ),
    ("buy purchase order rent", _THING, "bought"),
    ("adopt", _THING, "has_pet"),
    (
        "get receive earn land",
        (
            r"(?P<value>(?:an?|my|our|some|two|three|\d+|the|[A-Z]\w+|new|"
            r"promoted|hired|fired|laid off|married|engaged|divorced|accepted|into) ?.*)"
        ),
        "received",
    ),
    (
        (
            "make paint cook bake build write create design draw develop sew knit carve plant"
            " compose film"
            " record photograph publish post"
        ),
        _THING,
        "made",
    ),
    ("start launch open begin", r"(?!(?:to feel|feeling|off|out|over)\b)(?P<value>.+)", "started"),
    ("finish complete release ship deploy merge submit", r"(?P<value>.+)", "finished"),
    ("graduate", r"(?:from )?(?P<value>(?!to\b).+)", "studied"),
    (
        "join sign enroll enrol register",
        r"(?:(?:up )?(?:for|to|with|in|as|at) )?(?!up\b|off\b|in\b)(?P<value>.+)",
        "joined",
    ),
    ("leave quit retire resign", r"(?:from )?(?P<value>(?:my|our|the|a|[A-Z]).+)", "left"),
    ("lose", r"(?P<value>(?:my|our|the|a|an|[A-Z]).+)", "lost"),
    ("win", r"(?P<value>.+)", "won"),
    ("meet", r"(?!up\b)(?P<value>.+)", "met"),
    ("read", r"(?P<value>(?:\"|[A-Z]|an?|the|my|some|this|about).+)", "read"),
    ("watch see", r"(?P<value>(?:\"|[A-Z]|an?|the|my|our).+)", "watched"),
    (
        "learn discover",
        r"(?:that )?(?P<value>(?:about|how|an?|the|to|[A-Z]|\w+ing\b).+)",
        "learned",
    ),
    ("find", r"(?P<value>(?:an?|my|our|two|three|\d|[A-Z]).+)", "found"),
    (
        (
            "donate send give raise teach mentor organize organise host help run hike climb swim"
            " camp cycle"
            " bike walk take do try have hold fix upgrade downgrade install implement refactor"
            " rename test"
            " hire fire promote interview replace repair renovate celebrate marry propose injure"
            " break sell"
            " move decorate assemble serve support set bring pass fail schedule book throw"
            " become hurt"
            " sprain recover plan research study spend train practice practise collect play tour"
            " feed catch"
            " end pay clean announce score wrap whip skype pick reconnect chat contribute"
            " accomplish achieve"
            " remodel secure recommend fund pitch negotiate upload automate document configure"
            " provision"
            " rotate revoke restore benchmark optimise optimize debug reproduce escalate resolve"
            " patch bump"
            " pin enable disable nominate elect appoint reschedule reserve inherit overhaul"
            " audit onboard"
            " apply tune replace cancel postpone share reach"
        ),
        r"(?P<value>.+)",
        "did",
    ),
)
"""Deeds worth remembering: (verbs, what must follow, attribute); past and perfect tense only."""


def _event_table() -> dict[str, tuple[tuple[re.Pattern[str], str], ...]]:
    table: dict[str, tuple[tuple[re.Pattern[str], str], ...]] = {}
    for lemmas, pattern, attribute in EVENTS:
        for lemma in lemmas.split():
            table[lemma] = (*table.get(lemma, ()), (re.compile(pattern), attribute))
    return table


DEEDS = _event_table()
