"""Cuts a sentence into clauses, each freed of words that only lead in, and spelt out."""

from __future__ import annotations

import re
from collections.abc import Iterator

from recall_server.integrations.extraction.rules import nouns
from recall_server.integrations.extraction.rules.verbs import AUXILIARIES, FORMS, word_set

_MARKERS = re.compile(
    r"(?:(?:yeah|yea|yes|yep|yup|yay|no|nope|nah|wait|hold on|well|so|and|but|also|oh|ah|aw|hmm"
    r"|um|wow|woah"
    r"|whoa|woo"
    r"|btw|by the way|fyi|honestly|anyway|anyways|plus|ok|okay|right|sure|hey|hi|hello|thanks"
    r"|thank you"
    r"|thanks so much|thanks a lot|definitely|absolutely|totally|of course|agreed|awesome|great"
    r"|cool"
    r"|nice|sounds good|good news|guess what|update|then|actually|sorry|correction|scratch that"
    r"|strike that|change of plan|(?:(?:i|we)(?:'ve| have)? )?changed (?:my"
    r"|our) minds?(?: (?:about|on) [\w' -]{2,40}?(?=[:,;]))?"
    r"|on second thought|turns out|in fact|basically|to be honest|tbh|personally"
    r"|for me|as for me|in general|generally|usually|lately|recently|currently|nowadays|these days"
    r"|right now|at the moment|for now|now|just so you know|for the record|for context"
    r"|for reference"
    r"|for your information|quick update|heads up|note that|note|please note that|keep in mind that"
    r"|remember that|please remember that|please remember|remember|don't forget that|just|also note"
    r"|happy to say|luckily|fortunately|unfortunately|sadly|finally|overall|like i said|as you know"
    r"|as i said|speaking of \w+|and yes|yes and|because|since|which is why|that's why|i'll admit"
    r"|i must say|i have to say|i gotta say|so far|after that|even so|still|first of all|besides"
    r"|i can tell you that|i know that|i realized that|i realised that|the thing is|as a heads up)"
    r"(?:,? [A-Z][\w'-]+(?=[,!]))?[,:.!]*\s+)+",
    re.IGNORECASE,
)
_VOCATIVE = re.compile(r"[A-Z][\w-]+, (?=(?:[Ii]|we|We|my|My)\b)")
_CONTRACTIONS = tuple(
    (re.compile(pattern, re.IGNORECASE), full)
    for pattern, full in (
        (r"\bi'?m\b(?! not sure)", "I am"), (r"\bi'?ve\b", "I have"), (r"\bi'll\b", "I will"),
        (r"\bi'd (?=(?:\w+ly |just |never |already )?(?:been|had|gone|\w{2,}ed|\w+en)\b)",
         "I had "),
        (r"\bi'd\b", "I would"), (r"(?<=\s)'em\b", "them"),
        (r"\bwe're\b", "we are"), (r"\bwe'?ve\b", "we have"), (r"\bwe'll\b", "we will"),
        (r"\bwe'd (?=(?:just |never |already )?(?:been|had|gone|\w{2,}ed|\w+en)\b)", "we had "),
        (r"\bwe'd\b", "we would"), (r"\by'all're\b", "y'all are"),
        (r"\b(she|he|it|(?:my|our) (?:[\w-]+ )?[\w-]+)'s (?=been\b|got\b)", r"\1 has "),
        (r"\b(it)'s\b", r"\1 is"), (r"\b(she|he)'s\b", r"\1 is"),
        (r"\bthey're\b", "they are"), (r"\bthey've\b", "they have"),
        (r"\b(she|he|they)'ll\b", r"\1 will"),
        (r"\bcan'?t\b|\bcannot\b", "can not"), (r"\bwon't\b", "will not"),
        (r"\b(do|does|did|is|are|was|were|has|have|had|would|should|could)n'?t\b", r"\1 not"),
        (r"\bain't\b", "am not"), (r"\bgonna\b", "going to"), (r"\bwanna\b", "want to"),
        (r"\bgotta\b", "have to"), (r"\bhave got\b(?! to)", "have"),
        ((r"\b(name|birthday|favou?rite \w+|job|email|number|age|(?:my"
            r"|our) (?:[\w-]+ )?[\w-]+)'s (?=(?:an?|the|in|on|at|not|from|called|named|\w+ing"
         r"|(?-i:[A-Z])[a-z]+|\d)\b)"), r"\1 is "),
    )
)  # fmt: skip
_SPLIT = re.compile(
    r"\s*(?:;\s|\s[-–—]{1,2}\s|[—–]|\.\.\.\s|,\s(?:it\s)?turns out\s"
    r"|(?<=[a-z])-\s(?!and\b|or\b|to\b))\s*"
    r"|,?\s(?:and|but|so|yet|plus|although|though|while|whereas)\s(?:then |also |now |so |yes,? )?"
    r"(?=(?:i|we|my|our|he|she|they|it|this|that's|there|you|you're|it's|i've|i'm|i'd|i'll|we're"
    r"|we've|we'll|he's|she's|they're)\b)"
    r"|,?\sand\s(?=\w+'s (?:\w+ ){1,3}(?:is|are)\b)"
    r"|,\sand\s(?=(?:the \w+|(?-i:[A-Z])\w+) (?:is|are|was|were|has|had|\w+(?:s|ed))\b)"
    r"|,\s(?=(?:now |these days )?(?:i|we|i'm|we're|i've|we've|i'll|we'll|my|it|it's|he|she"
    r"|they|you|this|that's"
    r"|but|so|though|right|thanks)\b)",
    re.IGNORECASE,
)


def _first_predicate(words: str) -> str:
    """The words up to the next finite verb: "went to on Friday [was amazing]"."""
    said = words.split()
    for at, word in enumerate(said[1:], 1):
        forms = FORMS[word].forms if word in FORMS else frozenset[str]()
        if word in AUXILIARIES or forms & {"s", "past"} or word in _VERDICTS:
            return " ".join(said[:at])
    return words


_VERDICTS = word_set(
    "remind reminds inspires motivates means brings gives tastes looks just totally"
)
_SOMEBODY = re.compile(
    r"(?:^|[\s,])(?:(?:[Mm]y|[Oo]ur) (?:[\w-]+ ){0,2}?(?P<noun>[\w-]+)|(?P<name>[A-Z][\w-]+))$"
)
_RELATIVE = re.compile(
    r"(?:[A-Za-z]{2,8},? )?(?P<article>[Tt]he|[Tt]his|[Tt]hat|[Tt]hose|[Tt]hese|[Mm]y|[Aa]n?) "
    r"(?P<what>(?:(?!(?:and|but|so|or|because|was|is|were|are|from|has"
    r"|had)\b)[\w'-]+ ){1,5}?)(?:(?:that|which) )?(?P<who>I|i|we)(?:'ve)? (?:just |recently )?"
    r"(?P<deed>(?:went|attended|visited|joined|bought|made|painted|wrote|built|read|watched|saw|won"
    r"|took|ran|hosted|organi[sz]ed|adopted|cooked|baked|found|started|finished)\b.*)"
)
_PREPOSITION = re.compile(r"(to|in|at|on|for)\b ?(?!a\b|an\b|the\b|my\b)")
_EMOJI = re.compile("[\U0001f300-\U0001faff\u2600-\u27bf\ufe0f\u200d]+")
_TAIL = re.compile(
    r",\s(?:speaking of|take a look|check (?:it|this|them) out|look|here|see|thanks|right"
    r"|you know|ya know|huh"
    r"|hopefully|trust me|believe it|as you can see|i guess"
    r"|(?:the|this|these|those|things|such|so) [^,]{1,60}?\b(?:is|are|was|were|have been"
    r"|has been))\b.*$",
    re.IGNORECASE,
)
_REASON = re.compile(
    r"\s(?:because|'?cause|since|as|now that)\s(?=(?:i|i'm|i've|we|we're|we've|my|our)\b)",
    re.IGNORECASE,
)


def clauses(sentence: str) -> Iterator[str]:
    """The clauses of a sentence; each may state something of its own."""
    start = 0
    for match in _SPLIT.finditer(sentence):
        after = sentence[match.end() : match.end() + 2]
        if _joins_people(sentence[start : match.start()], match[0], after):
            continue
        if match.start() > start:
            yield from _with_others(sentence[start : match.start()])
        start = match.end()
    if start < len(sentence):
        yield from _with_others(sentence[start:])


def _joins_people(before: str, joint: str, after: str) -> bool:
    """Whether "and" joins two people ("my colleagues and I"), not two clauses."""
    if joint == " and " and before.endswith((" me", "Me")):
        return True
    somebody = _SOMEBODY.search(before)
    return (
        after[:2] in ("I ", "i ")
        and joint == " and "
        and somebody is not None
        and (somebody["name"] is not None or somebody["noun"].lower() in nouns.PEOPLE | nouns.PETS)
    )


def _with_others(clause: str) -> Iterator[str]:
    """A clause, and the one within its subject: "the parade that I went to was amazing"."""
    inner = _RELATIVE.match(clause)
    if inner is None:
        yield from _with_reason(clause)
        return
    deed = _first_predicate(inner["deed"].split(",", 1)[0])
    article = (
        "a "
        if inner["article"].lower() in ("this", "that", "those", "these")
        else (inner["article"] + " ")
    )
    if inner["article"].lower() in ("those", "these"):
        article = "some "
    verb, _, more = deed.partition(" ")
    joint = _PREPOSITION.match(more) if verb == "went" else None
    place = f" {joint[1]}" if joint else ""
    more = more[joint.end() :].strip() if joint else more
    yield f"{inner['who']} {verb}{place} {article.lower()}{inner['what']}{more}".strip()


def _with_reason(clause: str) -> Iterator[str]:
    """A clause whole, and then its reason alone: "..., because I'm allergic to nuts"."""
    opening = _SINCE.match(clause)
    if opening:  # "since I'm lactose intolerant I'm trying ..." has no comma to part the two
        second = re.search(r"\s(?=(?:I|i|we)(?:'m|'re|'ve|'ll| am| are| have| will)\b)",
                           clause[opening.end() :])  # fmt: skip
        if second:
            yield clause[opening.end() : opening.end() + second.start()]
            clause = clause[opening.end() + second.end() :]
    yield clause
    reason = _REASON.search(clause)
    if reason:
        yield clause[reason.end() :]


_SINCE = re.compile(
    r"\s*(?:(?:yeah|yes|so|and|but|well|oh),? )?(?:because|since|as|now that)\s(?=(?:i|we)\b)",
    re.IGNORECASE,
)


def opened(clause: str) -> str:
    """A clause without the words that only lead in ("Yeah, Maria!", "By the way,"), spelt out."""
    text = _EMOJI.sub("", clause).strip(" ,.!*_~\"'")
    for _ in range(3):
        lead = _MARKERS.match(text) or _VOCATIVE.match(text)
        if lead is None:
            break
        text = text[lead.end() :]
    text = _TAIL.sub("", text)
    for pattern, full in _CONTRACTIONS:
        text = pattern.sub(full, text)
    if text[:5].lower() == "been ":
        text = "I have been " + text[5:]
    return re.sub(r"\s+", " ", text)
