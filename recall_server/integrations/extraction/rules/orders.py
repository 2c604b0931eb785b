"""Standing orders: what somebody asks always or never to be done, and what to call them."""

from __future__ import annotations

import re
from dataclasses import replace

from recall_server.domain.memory import MemoryType
from recall_server.integrations.extraction.rules import nouns
from recall_server.integrations.extraction.rules.drafts import Draft, says_something
from recall_server.integrations.extraction.rules.subjects import Voice
from recall_server.integrations.extraction.rules.wording import finished, outside, value_of

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


def _rule(
    voice: Voice, saying: str, type_: MemoryType, attribute: str, value: str, **more: object
) -> Draft:
    text = finished(f"{voice.shown} {outside(saying)}", None)
    draft = Draft(text, type_, voice.entity, attribute,
                  outside(value), 0.9)  # fmt: skip
    return replace(draft, **more)  # type: ignore[arg-type]


def called(text: str, voice: Voice) -> Draft | None:
    match = _CALL.match(text)
    if match is None:
        return None
    said = f"wants to be called {match['value']}"
    return _rule(voice, said, MemoryType.PREFERENCE, "nickname", match["value"])


def order(text: str, voice: Voice) -> Draft | None:
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
