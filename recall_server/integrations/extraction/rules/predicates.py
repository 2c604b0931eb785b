"""The table of predicates: which verb, followed by what, states which attribute of its subject."""

from __future__ import annotations

import re
from dataclasses import dataclass

from recall_server.domain.memory import MemoryType

AHEAD = frozenset({"will", "going"})
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
    deed: bool = False  # the value begins with the verb: "approve the budget"


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
_TASTE: dict[str, object] = {"type": PREFERENCE, "tenses": NOW, "people": True}
_DECIDED: dict[str, object] = {"type": DECISION, "tenses": DONE | {"present"}}
_PERSON: dict[str, object] = {"people": True}
_THINGS: dict[str, object] = {"confidence": LIKELY, "things": True}

_SWITCH: dict[str, object] = {"correction": True, "tenses": ANY}
_FOR_KEY = r"for (?:our |my |the |all |an? )?(?P<key>(?!now\b|good\b|the time)[\w /-]{2,40})"
_TIME = (
    r"(?:(?:every|each) |(?:the )?\d{1,2}(?::\d\d| ?[ap]\.?m\b|(?:st|nd|rd|th)\b| [A-Z][a-z]+)"
    r"|noon\b"
    r"|midnight\b|(?:next )?(?:mon|tues|wednes|thurs|fri|satur|sun)days?\b|(?:early "
    r"|late )?mornings?\b"
    r"|afternoons?\b|evenings?\b)"
)
_NUMBER_WORDS = "one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|eighteen"

PREDICATES: dict[str, tuple[Predicate, ...]] = _rules(
    # taste
    ("prefer", rf"(?P<value>.+?) {_OVER} (?P<over>.+)", "preferred_{category}", _TASTE),
    ("prefer", r"(?P<value>.+?) for (?P<key>[\w -]{3,40})", "preferred_for_{key}", _TASTE),
    ("prefer", _V, "preferred_{category}", _TASTE),
    ("like love enjoy adore", _V, "likes", _TASTE),
    ("hate dislike detest despise loathe", _V, "likes", {**_TASTE, "negated": True}),
    ("stand", _V, "likes", {**_TASTE, "tenses": frozenset({"can"})}),
    # things: when, where and on what
    ("run listen", r"(?:only )?on port (?P<value>\d+)", "port", _THINGS),
    ("move change shift", rf"(?:from (?P<old>.+?) )?to (?P<value>{_TIME}.*)", "schedule",
     {"things": True, "tenses": ANY | AHEAD, "correction": True}),
    ("move change shift push postpone reschedule",
     (rf"(?P<about>(?:the|our|my) [\w -]{{2,40}}?) (?:back )?(?:from (?P<old>.+?) )?to "
      rf"(?P<value>{_TIME}.*)"), "schedule",
     {"tenses": ANY | AHEAD, "correction": True}),
    ("run", r"in (?P<value>(?-i:[A-Z]).+)", "located_in", {**_THINGS, "place": True}),
    ("break", r"(?P<value>down)\b", "status", {**_THINGS, "tenses": DONE, "deed": True}),
    ("run start begin happen occur", rf"(?:at|on) (?P<value>{_TIME}.*)", "schedule", _THINGS),
    ("go", rf"out (?:at|on|every) (?P<value>{_TIME}.*)", "schedule", _THINGS),
    ("go", r"(?:straight |directly )?to (?P<value>.+)", "sent_to", _THINGS),
    ("expire", r"(?:on |in )?(?P<value>.+)", "expires", _THINGS),
    # home, work
    ("live", r"(?:\w+ )?(?:in|at|on|near|outside) " + _V, "lives_in",
     {"place": True, "people": True}),
    ("live", r"with (?P<value>.+)", "lives_with", _PERSON),
    ("grow", r"up (?:in|near|on) " + _V, "from", {**_PAST, "place": True, "people": True}),
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
    ("start", r"(?:working )?at (?P<value>(?-i:[A-Z]).+)", "works_at",
     {"place": True, "people": True, "tenses": DONE}),
    ("support", r"(?P<value>(?-i:[A-Z])[\w+#.-]*(?: (?:(?-i:[A-Z])\w*|\d[\w.]*)){0,3})$",
     "supports", {"tenses": frozenset({"present"})}),
    ("work", r"in (?P<value>(?:the )?[\w& -]{3,40})", "works_in", {"people": True, "place": True}),
    ("work", r"(?:on|with) " + _V, "working_on", {"tenses": NOW}),
    ("work", r"(?P<value>remotely|from home)", "work_mode", _PERSON),
    ("work", r"(?P<value>part[- ]time|full[- ]time|nights|weekends|night shifts?)", "schedule",
     _PERSON),
    ("be", (r"(?:(?:never|only) )?to (?P<value>(?-i:[A-Z])[\w' -]*?)"
     r"(?: (?:once|twice|yet|before|many times|\w+ times))?$"), "visited",
     {"tenses": frozenset({"perfect"}), "people": True}),
    ("turn", rf"(?P<value>\d{{1,3}}|{_NUMBER_WORDS})\b(?! (?:it|the|into|to)\b)", "age", _PAST),
    ("run own manage", r"(?P<value>an? [\w -]+ (?:in|on|near) (?-i:[A-Z]).+)", "owns", _PERSON),
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
    r"|at least|two|three|four|five|six|ten|some|more"
     r"|\d+|(?-i:[A-Z])) ?.+)"), "needs", _WEAK),
    ("expect", r"(?P<value>(?:about |around )?\d.+)", "expects", _WEAK),
    # wishes and plans
    ("want", (r"(?!to (?:say|thank|know|hear|share|show|make sure|ask|tell|help|give|be|keep"
        r"|meet|talk"
     r"|chat|think|get (?:to|it|any|out|back|there)|see (?:you|it|how|that|more|if|what))\b)"
     r"(?:to )?(?P<value>.+)"), "wants",
     {"type": PREFERENCE}),
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
    ("decide agree", r"(?P<not>not )?to (?P<value>(?!be\b).+)", "decided", _DECIDED),
    ("decide agree", (r"that (?:(?:we|i) (?:(?:will|would|do|are going to) )?"
     r"(?P<not>not (?:to )?|never )?)?(?P<value>.+)"), "decided", _DECIDED),
    ("decide", r"against (?P<value>.+)", "decided", {**_DECIDED, "negated": True}),
    ("decide settle agree", r"on (?P<value>.+)", "decided", _DECIDED),
    ("drop", r"support for (?P<value>.+)", "supports",
     {"type": DECISION, "tenses": DONE, "negated": True, "correction": True}),
    ("approve reject postpone delay cancel drop deprecate", r"(?P<value>(?:the|our|a) .+)",
     "decided", {"type": DECISION, "tenses": DONE, "confidence": LIKELY, "deed": True}),
    ("sign", r"(?P<value>off (?:on )?(?:the|our|an?) .+)", "decided",
     {"type": DECISION, "tenses": DONE, "confidence": LIKELY, "deed": True}),
    # changes
    ("switch migrate move change convert upgrade",
     rf"(?:over )?from (?P<old>.+?) (?:over )?to (?P<value>.+?) {_FOR_KEY}$", "uses_for_{key}",
     _SWITCH),
    ("switch migrate move change convert upgrade downgrade transition",
     (r"(?:(?P<key>(?:our |my |the )?[\w /-]{2,40}?) )?(?:over )?from (?P<old>.+?) (?:over )?to "
      r"(?P<value>.+)"), "uses_for_{key}", _SWITCH),
    ("switch migrate change convert upgrade downgrade", r"(?:over )?to (?P<value>.+)",
     "uses_for_{category}",
     {"correction": True, "tenses": DONE}),
    ("swap trade ditch exchange", r"(?P<old>.+?) for " + _V, "uses_for_{category}", _SWITCH),
    ("replace", r"(?P<old>.+?) (?:with|by) " + _V, "uses_for_{category}",
     {"correction": True, "tenses": ANY}),
    ("quit", (r"(?P<value>(?!(?:my|the|our|an?|on|for|because|it|and|that|this|at|in)\b|\w+ing\b)"
     r"[a-z]+)$"), "habit", {"negated": True, "tenses": DONE, "correction": True, "people": True}),
    ("stop quit", r"(?P<value>(?!using|drinking|eating|playing)\w+ing\b.*)", "habit",
     {"negated": True, "tenses": DONE, "correction": True}),
    ("stop quit", r"(?:using|drinking|eating|playing) (?P<value>.+)", "uses",
     {"negated": True, "tenses": DONE, "correction": True, "confidence": LIKELY}),
)  # fmt: skip
