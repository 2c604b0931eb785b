"""The gates that keep out what states nothing: questions, greetings, hypotheticals, jokes,
quoted speech, hearsay, and text that tries to give orders to a model.
"""

from __future__ import annotations

import re

ORDERS = re.compile(
    r"\b(?:ignore|disregard|forget|override|bypass)\b[^.\n]{0,40}\b(?:instructions?|rules|prompts?"
    r"|guidelines|restrictions|guardrails)\b"
    r"|\byou are now\b|\bsystem prompt\b|\bjailbreak|\bdeveloper mode\b|\bDAN mode\b"
    r"|\b(?:pretend|act) (?:to be|as if|as though|like you|as an? (?:unrestricted|evil))"
    r"|\bnew instructions?:|</?(?:system|instructions?|assistant|tool)>|\[/?INST\]|<\|im_"
    r"|\b(?:reveal|print|repeat|leak) (?:your|the) (?:prompt|instructions|system|secrets?)"
    r"|\bdo anything now\b|\bsave (?:this|the following) (?:as|to) (?:a )?memory\b",
    re.IGNORECASE,
)
_QUESTION_START = re.compile(
    r"(?:so|and|but|oh|hey|well|btw|by the way|ok|okay|also|wow|hi|yeah)?,?\s*"
    r"(?:who|whom|whose|what|what's|whats|when|where|where's|why|how|how's|which|do|does|did|don't"
    r"|doesn't|didn't|are|aren't|is|isn't|was|wasn't|were|have you|haven't|has|had you|can|can't"
    r"|could|would|will|won't|should|shall|may i|am i|any)\b(?! (?:said|works|lives)\b)",
    re.IGNORECASE,
)
_WH_STATEMENT = re.compile(
    r"(?:when|where|what|how|why|who)\b[^,]{3,80}(?:,| is\b| was\b)", re.IGNORECASE
)
_GREETING = re.compile(
    r"(?:hi|hey|hello|yo|thanks?|thank you|thx|cheers|bye|goodbye|good (?:morning|night|evening"
    r"|afternoon|luck|job|point)|see you|see ya|take care|congrat\w*|sorry|welcome|no problem"
    r"|no worries|you're welcome|sure|ok|okay|got it|sounds good|lol|haha|nice|wow|yes|no|yep|nope)"
    r"\b(?:,? [\w'-]{1,20}){0,2}[!., ]*",
    re.IGNORECASE,
)
_JOKE = re.compile(
    r"\b(?:just kidding|kidding|jk|j/k|joking|joke|sarcasm|sarcastic|pulling your leg"
    r"|april fools)\b"
    r"|(?<!\w)/s\b|\bha(?:ha)+\b|\blol\b|\blmao\b",
    re.IGNORECASE,
)
_TAKEN_BACK = re.compile(
    r"\b(?:just kidding|kidding|jk|j/k|joking|april fools|scratch that|strike that"
    r"|never ?mind that|ignore that)\b",
    re.IGNORECASE,
)
_HYPOTHETICAL = re.compile(
    r"\b(?:if|imagine|suppose|supposing|pretend|hypothetically|what if|unless|whether"
    r"|in theory|let's say|in another life|in my dreams|as though)\b",
    re.IGNORECASE,
)
_UNCERTAIN = re.compile(
    r"\b(?:might|(?-i:may)|maybe|perhaps|possibly|probably|apparently|supposedly|allegedly"
    r"|rumou?rs?"
    r"|not sure|unsure|no idea|i guess|i suppose|i assume|i bet|i wonder|i doubt|i think"
    r"|i'm thinking"
    r"|i was thinking|thinking (?:of|about)|i thought|seems?|seemed|sounds like|looks like|could"
    r"|considering|i don't know|dunno|undecided|debating|as far as i know|iirc|i heard|i've heard"
    r"|they say|people say|should've|could've|would've|wouldn't|couldn't|wish)\b",
    re.IGNORECASE,
)
_WOULD = re.compile(r"\bwould\b(?! (?:rather|prefer|like|love)\b)|\bshould\b", re.IGNORECASE)
_REPORTED = re.compile(
    r"\b(?:said|says|told|asked|claims?|claimed|thinks|thought|believes|wonders|mentioned|suggested"
    r"|suggests|proposed|argued|reckons|joked)\b|\bthe (?:song|book|movie|lyrics?|quote) (?:goes"
    r"|says)",
    re.IGNORECASE,
)
_SPEECH = re.compile(r'"([^"]{1,400})"')


def takes_back(sentence: str) -> bool:
    """Whether a sentence unsays the one before it ("just kidding", "scratch that")."""
    return _TAKEN_BACK.search(sentence) is not None


def is_question(sentence: str) -> bool:
    """Whether a sentence asks; also without a question mark, and with a tag ("..., right?")."""
    if "?" in sentence[-5:]:
        return True
    return bool(_QUESTION_START.match(sentence)) and not _WH_STATEMENT.match(sentence)


def states_nothing(sentence: str) -> bool:
    """Whether a whole sentence is to be passed over: asked, greeted, supposed, joked or quoted."""
    if is_question(sentence) or _GREETING.fullmatch(sentence) or _JOKE.search(sentence):
        return True
    if _HYPOTHETICAL.search(sentence) or _is_foreign(sentence):
        return True
    return any(len(quote.split()) > 3 and _is_speech(quote) for quote in _SPEECH.findall(sentence))


def is_doubtful(clause: str) -> bool:
    """Whether a clause only reports, doubts or weighs something."""
    return bool(_UNCERTAIN.search(clause) or _WOULD.search(clause) or _REPORTED.search(clause))


def _is_speech(quote: str) -> bool:
    return quote[-1] in ".!?," or bool(re.search(r"\b(?:I|we|you|my)\b", quote, re.IGNORECASE))


def _is_foreign(sentence: str) -> bool:
    letters = [c for c in sentence if c.isalpha()]
    return sum(c > "\u024f" for c in letters) * 5 > len(letters)
