"""Cuts a turn into sentences, each with its place in the text; code and quoted lines blanked."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

SENTENCE_CHARS_MAX = 600


@dataclass(frozen=True)
class Sentence:
    """A sentence with its place in the episode's text; `text` has straight quotes, same length."""

    start: int
    end: int
    text: str


_FENCE = re.compile(r"```.{0,20000}?```|~~~.{0,20000}?~~~", re.DOTALL)
_QUOTED_LINE = re.compile(r"^[ \t]{0,3}>[^\n]*", re.MULTILINE)
_EMOJI = "\U0001f300-\U0001faff\u2600-\u27bf"
_END = re.compile(rf"[.!?…]+[\"')\]*_]{{0,3}}(?=\s|$|[{_EMOJI}])|[{_EMOJI}\ufe0f\u200d]+|\n\s*")
# After these nothing ends; after the others a sentence ends if the next word begins one.
_UNFINISHED = re.compile(
    r"\b(?:mr|mrs|ms|prof|vs|e\.g|i\.e|approx|fig|cf|dept|est|gov|sen|capt|lt|sgt|ca)\.$",
    re.IGNORECASE,
)
_NUMBERED = re.compile(r"\b(?:no|nos|vol|pp?|min|max)\.\s\d", re.IGNORECASE)
_ABBREVIATION = re.compile(
    r"\b(?:st|dr|ave?|rd|blvd|ln|etc|inc|ltd|co|corp|jr|sr|min|max|hrs?|a\.m|p\.m|ph\.d|u\.s|u\.k"
    r"|\w)\.$",
    re.IGNORECASE,
)
_BEGINS = re.compile(
    r"\s+(?:[^\w\s]|(?:I|I'\w+|We|You|He|She|It|They|My|Our|Your|His|Her|Its|Their|The|A|An"
    r"|This|That"
    r"|These|Those|There|Here|And|But|So|Or|Then|Now|Also|Actually|Yes|No|Yeah|Ok|Okay|What"
    r"|When|Where"
    r"|Who|Why|How|Which|If|In|On|At|After|Before|Since|Because|While|Not|Is|Are|Do|Does|Did"
    r"|Can|Let"
    r"|Please|Thanks|Last|Next|Every|Some|All|Most|One|Both|For|From|With|As|To|Once|It's|We're"
    r"|We've"
    r"|That's|There's|She's|He's|They're)\b)|\s*$"
)
_BULLET = re.compile(r"\s*(?:[-*•+]\s+|\d{1,2}[.)]\s+|#{1,6}\s+|\[[ x]\]\s*)+")
_STRAIGHT = str.maketrans("’‘“”\u00a0\t", "''\"\"  ")
_ENGLISH = re.compile(r"[A-Za-z]")


def masked(text: str) -> str:
    """The text with code blocks and quoted lines blanked out, every position kept."""

    def blank(match: re.Match[str]) -> str:
        return re.sub(r"[^\n]", " ", match[0])

    plain = text.translate(_STRAIGHT)
    if "```" in plain or "~~~" in plain:
        plain = _FENCE.sub(blank, plain)
    return _QUOTED_LINE.sub(blank, plain)


def sentences(text: str, offset: int) -> Iterator[Sentence]:
    """The sentences of a masked turn that starts at `offset` in the episode's text."""
    start = 0
    for match in _END.finditer(text):
        if match[0] == "." and _abbreviates(text, start, match.end()):
            continue
        if match[0][0] == "\n" and _runs_on(text, start, match.start(), match.end()):
            continue
        yield from _trimmed(text, start, match.end(), offset)
        start = match.end()
    yield from _trimmed(text, start, len(text), offset)


def _abbreviates(text: str, start: int, end: int) -> bool:
    """Whether a full stop belongs to an abbreviation, and does not end its sentence as well."""
    said = text[max(start, end - 8) : end]
    if _UNFINISHED.search(said) or _NUMBERED.search(said[-5:] + text[end : end + 2]):
        return True
    return bool(_ABBREVIATION.search(said)) and not _BEGINS.match(text, end)


def _runs_on(text: str, start: int, stop: int, after: int) -> bool:
    """Whether a line break stands inside a sentence: hard-wrapped prose goes on in lower case."""
    return (
        stop - start >= 50
        and text[after : after + 1].islower()
        and "\n" not in text[stop + 1 : after]
    )


def _trimmed(text: str, start: int, end: int, offset: int) -> Iterator[Sentence]:
    bullet = _BULLET.match(text, start, end)
    if bullet:
        start = bullet.end()
    while start < end and (text[start].isspace() or text[start] in "*_\"'(["):
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    if 6 <= end - start <= SENTENCE_CHARS_MAX and _ENGLISH.search(text, start, end):
        yield Sentence(offset + start, offset + end, text[start:end])
