"""Statements without a plain subject and verb: standing orders, procedures, corrections."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from recall_server.domain.model import MemoryType
from recall_server.providers.rules import nouns
from recall_server.providers.rules.drafts import Draft, says_something, slug
from recall_server.providers.rules.procedures import procedure, process, required
from recall_server.providers.rules.subjects import Voice
from recall_server.providers.rules.wording import finished, outside, value_of

_PEP = re.compile(
    r"(?:\w+ing|up|down|on|at|for|ready|excited|open|grateful|thankful|nice|wanted|game|a|give|stop"
    r"|forget|lose|doubt|let|be|stay|keep|remember|look|think|believe|trust|love|know|feel"
    r"|fun|good|great|nice|happy|here|there|hard|a |an |the |in |looking|grateful|wanted|been"
    r"|had|thought"
    r"|would|gonna|going|makes?|say|too|really|so|mind|again|underestimate|hesitate|worth)\b",
    re.IGNORECASE,
)
_ORDER = re.compile(
    r"(?:please |pls |remember to |make sure to |be sure to |also,? )*"
    r"(?P<word>always|never|do not ever|don't ever) (?P<what>[a-z][\w-]+ .+)",
    re.IGNORECASE,
)
_PLEASE = re.compile(
    r"(?:from now on,? (?:please )?|going forward,? (?:please )?|in (?:the )?future,? (?:please )?"
    r"|please (?=do not|don't|use|keep|write|call|format|reply|answer|respond|avoid|stop|stick))"
    r"(?P<not>(?:don't|do not|stop|avoid) )?(?P<what>[a-z][\w-]+ .+)",
    re.IGNORECASE,
)
_USE = re.compile(
    r"(?P<what>use (?P<value>[^,;]+?)(?:,? (?:and )?(?P<how>not|instead of|rather than|over|never)"
    r" (?P<over>[^,;]+))(?: (?:for|in) (?P<key>[\w .-]{2,40}))?)$",
    re.IGNORECASE,
)
_CALL = re.compile(
    r"(?:please |you can |just |everyone |everybody |people |friends |my friends |most people )*"
    r"(?i:calls?) me (?P<value>[A-Z][\w'-]+(?: [A-Z][\w'-]+)?)$"
)
_NO_MORE = re.compile(
    r"(?:it's |it is |we are |i am )?(?:not|no longer) (?:using |with "
    r"|on )?(?P<old>[\w.+# -]{2,40}?)"
    r" (?:any ?more|any longer)[,;.:]? (?:but |it's |it is |we (?:now )?use |i (?:now )?use |now )*"
    r"(?P<value>[\w.+# -]{2,40}?)(?: now)?$",
    re.IGNORECASE,
)
_IT_IS = re.compile(
    r"(?:it is|it's|that's|that is|should be|i meant|i mean|make that|make it) (?:now |actually )?"
    r"(?P<value>[^,;]{1,60}?)(?: now)?(?:, (?:and )?not"
    r"|,? instead of) (?:the )?(?P<old>[^,;]{1,60})$",
    re.IGNORECASE,
)
_DECISION_LABEL = re.compile(
    r"(?:decision|decided|agreed|resolved|final decision|outcome"
    r"|verdict)(?: made)?:\s+(?P<value>.{6,})",
    re.IGNORECASE,
)
_IMPERSONAL = re.compile(
    r"(?:it (?:was|has been) (?:decided|agreed|settled)|the (?:decision|consensus|agreement"
    r"|verdict) (?:is|was)"
    r"|(?:everyone|everybody|all) agreed|we are agreed|we all agreed|final decision is)"
    r" (?:that |to |on )?(?P<value>.+)",
    re.IGNORECASE,
)
_USED = re.compile(
    r"(?:we )?(?:will )?(?:use|go with|adopt|keep) (?P<value>.+?)"
    r"(?: for (?:the |our )?(?P<key>(?!now\b|good\b)[\w -]+))?$",
    re.IGNORECASE,
)
_LETS = re.compile(
    r"(?:let's|let us) (?:go with|use|stick with|stick to|settle on|standardi[sz]e on|switch to"
    r"|adopt)"
    r" (?P<value>.+?)(?: (?:over|instead of|rather than|not) (?P<over>.+?))?"
    r"(?: (?:for|as) (?:our |the |my )?(?P<key>[\w -]{2,40}))?$",
    re.IGNORECASE,
)
_FROM_NOW = re.compile(
    r"(?:from now on|going forward|starting (?:today|tomorrow|now|next \w+)"
    r"|effective immediately|as of now)"
    r",? (?:we|the team)(?:'ll| will| are going to)? (?:all )?(?P<value>.+)",
    re.IGNORECASE,
)


def declarations(sentence: str, voice: Voice) -> Iterator[Draft]:
    """What a whole sentence declares, where it has a form of its own; at most one."""
    text = sentence.strip(" .!*_")
    for read in (process, _called, _correction, _agreement, _order, procedure, required):
        draft = read(text, voice)
        if draft is not None:
            yield draft
            return


def _rule(
    voice: Voice, saying: str, type_: MemoryType, attribute: str, value: str, **more: object
) -> Draft:
    text = finished(f"{voice.shown} {outside(saying)}", None)
    draft = Draft(text, type_, voice.entity, attribute,
                  outside(value), 0.9)  # fmt: skip
    return replace(draft, **more)  # type: ignore[arg-type]


def _called(text: str, voice: Voice) -> Draft | None:
    match = _CALL.match(text)
    if match is None:
        return None
    said = f"wants to be called {match['value']}"
    return _rule(voice, said, MemoryType.PREFERENCE, "nickname", match["value"])


def _correction(text: str, voice: Voice) -> Draft | None:
    match = _NO_MORE.match(text) or _IT_IS.match(text)
    if match is None:
        return None
    value, old = value_of(match["value"]), value_of(match["old"])
    if not says_something(value) or not old or len(old.split()) > 6:
        return None
    kind = nouns.category(value) or nouns.category(old)
    attribute = f"uses_for_{kind}" if kind else "correction"
    entity = "team" if kind and re.search(r"\bwe\b", text, re.IGNORECASE) else voice.entity
    said = f"{voice.shown} corrects: {value}, not {old}"
    sure = 0.9 if kind else 0.7
    return Draft(finished(said, None), MemoryType.FACT, entity, attribute, value, sure,
                 correction=True, replaces=old)  # fmt: skip


def _agreement(text: str, _voice: Voice) -> Draft | None:
    lets = _LETS.match(text)
    if lets:
        return _lets(lets)
    match = _DECISION_LABEL.match(text) or _IMPERSONAL.match(text) or _FROM_NOW.match(text)
    if match is None:
        return None
    value = value_of(match["value"]) if len(match["value"]) > 100 else match["value"].strip(" .")
    if not says_something(value):
        return None
    value = outside(value)
    said = f"The team decided {_joint(match['value'], text)}{value}"
    use = _USED.match(value)
    kind = nouns.category(use["value"]) if use else None
    key = slug(use["key"]) if use and use["key"] else ""
    attribute = f"uses_for_{kind or key}" if kind or key else "decided"
    kept = use["value"] if use and attribute != "decided" else value
    return Draft(finished(said, None), MemoryType.DECISION, "team", attribute, kept, 0.9)


def _joint(value: str, text: str) -> str:
    """What stands after "decided": "to" before a deed, "that" before a clause."""
    if f"that {value}" in text or re.match(
        r"(?:we|the|our|it|they|all|every|no)\b", value, re.IGNORECASE
    ):
        return "that "
    return "to " if re.match(r"[a-z]+(?<!ing)(?<!ed)\b", value) else "on "


def _lets(match: re.Match[str]) -> Draft | None:
    value = value_of(match["value"])
    if not says_something(value):
        return None
    kind, key = nouns.category(value), match["key"]
    attribute = f"uses_for_{slug(key)}" if key else f"uses_for_{kind}" if kind else "decided"
    over = f" over {match['over']}" if match["over"] else ""
    said = f"The team goes with {value}{over}" + (f" for {outside(key)}" if key else "")
    return Draft(finished(said, None), MemoryType.DECISION, "team", attribute, value, 0.7)


def _order(text: str, voice: Voice) -> Draft | None:
    match = _ORDER.match(text)
    if match and not _PEP.match(match["what"]):
        word = "always" if match["word"].lower() == "always" else "never"
        what = value_of(match["what"]) if len(match["what"]) > 110 else match["what"]
        if not says_something(what):
            return None
        kind = (
            MemoryType.PROCEDURE
            if re.search(r"\b(?:before|after|then)\b", what)
            else MemoryType.PREFERENCE
        )
        said = f"says to {word} {what}" if word == "always" else f"says never to {what}"
        return _rule(voice, said, kind, word, what)
    use = _USE.match(text)
    if use:
        kind_of = nouns.category(use["value"]) or nouns.category(use["over"])
        name = f"preferred_{kind_of}" if kind_of else "prefers"
        return _rule(voice, f"wants to {text[:1].lower() + text[1:]}", MemoryType.PREFERENCE, name,
                     value_of(use["value"]))  # fmt: skip
    return _request(text, voice)


_WANTED = re.compile(
    r"i (?P<not>do not |don't )?(?:want|would like|need|prefer) you to "
    r"(?P<what>(?!know\b|see\b|be\b|feel\b|come\b|have\b|meet\b)[a-z][\w-]+ .+)",
    re.IGNORECASE,
)


def _request(text: str, voice: Voice) -> Draft | None:
    match = _PLEASE.match(text) or _WANTED.match(text)
    if match is None or re.match(
        r"(?:let|tell|give|send|help|show|check|look|see|make)\b", match["what"]
    ):
        return None
    what = re.sub(r"\byour ", "the ", match["what"])
    if re.match(r"(?:we|i|he|she|it|they|the)\b", what) or not says_something(what):
        return None
    negated = bool(match["not"])
    said = f"asks {'not ' if negated else ''}to {what}"
    if negated and what.split()[0].endswith("ing"):
        said = f"asks to {match['not']}{what}"
    return _rule(voice, said, MemoryType.PREFERENCE, "never" if negated else "always", what)
