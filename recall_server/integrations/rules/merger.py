"""The merger that needs no model: joins what several memories say, in their own words.

It leaves out only what another text says in the same words, and rewords nothing. So it repeats
itself if two texts say the same differently, and never loses what only one of them says.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import NamedTuple, TypeVar

from recall_server.domain.context import Compute, in_thread
from recall_server.domain.extraction import MERGED_CHARS_MAX, Merged, Merger
from recall_server.domain.memory import Memory, MemoryType
from recall_server.domain.similarity import negations
from recall_server.integrations.rules import INLINE_CHARS_MAX
from recall_server.integrations.rules.language import detect, table
from recall_server.integrations.rules.layout import pieces

_S = TypeVar("_S", "_Text", "_Sentence")
NAME = "rules/merge/1"
SOURCES_CHARS_MAX = 10 * MERGED_CHARS_MAX
"""The most characters of all different texts together."""
SENTENCES_MAX = 200
"""The most sentences of these: each is compared with each, which takes 0.1 s at worst."""


class RulesMerger(Merger):
    """Joins the sentences of all memories, in the order in which they were said.

    A text, or a sentence of it, is left out if another one says it too: it has all of the words in
    their order, nothing between them that could change the meaning, and as many negations.

    Returns None if the text would be too long, or if a sentence would have to be taken out of a
    procedure or out of sentences that depend on each other ("It is called Rex.").
    """

    name = NAME
    call_tokens_max = 0

    def __init__(self, compute: Compute = in_thread) -> None:
        self._compute = compute

    async def merge(self, memories: Sequence[Memory]) -> Merged | None:
        text = (await all_said(memories, self._compute)).text
        return None if text is None else Merged(text, NAME)

    async def preview(self, memories: Sequence[Memory]) -> Merged | None:
        return await self.merge(memories)

    async def close(self) -> None:
        """Nothing is held open."""


@dataclass(frozen=True)
class Said:
    """The memories that say something that no other one says, in the order in which they were said,
    and their joined text, if there is one. Both are empty if there is too much to compare.
    """

    sources: tuple[Memory, ...]
    text: str | None


async def all_said(memories: Sequence[Memory], compute: Compute) -> Said:
    """Return what the memories say together."""
    different: dict[str, Memory] = {}
    for memory in sorted(memories, key=lambda memory: (memory.said_at, memory.id)):
        different.setdefault(memory.text, memory)
    chars = sum(map(len, different))
    if chars > SOURCES_CHARS_MAX:
        return Said((), None)
    if chars <= INLINE_CHARS_MAX:
        return _distinct(list(different.values()))
    return await compute(_distinct, list(different.values()))


def _distinct(memories: Sequence[Memory]) -> Said:
    texts = [_Text(memory) for memory in memories]
    if sum(len(text.sentences) for text in texts) > SENTENCES_MAX:
        return Said((), None)
    numbered = list(enumerate(texts))
    telling = [text for number, text in numbered if not _repeats(text, number, numbered)]
    joined = telling[0].memory.text if len(telling) == 1 else _joined(telling)
    fits = joined is not None and len(joined) <= MERGED_CHARS_MAX
    return Said(tuple(text.memory for text in telling), joined if fits else None)


def _joined(texts: Sequence[_Text]) -> str | None:
    parts: list[str] = []
    every = [(at, sentence) for at, text in enumerate(texts) for sentence in text.sentences]
    for number, text in enumerate(texts):
        kept = [sentence for sentence in text.sentences if not _repeats(sentence, number, every)]
        if len(kept) == len(text.sentences):
            parts.append(_ended(text.memory.text.strip()))
        elif text.hangs_together:
            return None
        else:
            parts += [_ended(sentence.text) for sentence in kept]
    return " ".join(parts)


def _repeats(one: _S, number: int, others: Iterable[tuple[int, _S]]) -> bool:
    """Return whether another text says it too; of two equal ones the first stays."""
    return any(
        at != number and one.is_said_by(other) and (at < number or not other.is_said_by(one))
        for at, other in others
    )


@cache
def _listed(name: str) -> frozenset[str]:
    return frozenset(table("en").data["merge"][name].split())


class _Text:
    """The text of a memory, as sentences."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.sentences = [_Sentence(sentence) for sentence in _sentences(memory.text)]

    @property
    def hangs_together(self) -> bool:
        """Whether removing a sentence could change what the others say."""
        later: Iterable[str] = (word for sentence in self.sentences[1:] for word in sentence.words)
        return (
            self.memory.type is MemoryType.PROCEDURE
            or "\n" in self.memory.text
            or not _listed("leaning").isdisjoint(later)
        )

    def is_said_by(self, other: _Text) -> bool:
        """Return whether `other` says each of its sentences, one after the other. Only a procedure
        may have further steps in between.
        """
        if self.memory.type is MemoryType.PROCEDURE:
            steps = iter(other.sentences)
            return all(any(mine.is_said_by(step) for step in steps) for mine in self.sentences)
        starts = range(len(other.sentences) - len(self.sentences) + 1)
        return any(
            all(map(_Sentence.is_said_by, self.sentences, other.sentences[start:]))
            for start in starts
        )


def _sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a text. What is no sentence by itself ("1.") goes with the next."""
    start = 0
    language = table(detect(text)[0] or "en")
    lines = ((line.start(), line.end()) for line in re.finditer(r"[^\n]+", text))
    ends = [piece.end for line in lines for piece in pieces(text, *line, language)]
    found = [end + 1 if text[end : end + 1] in (":", "：") else end for end in ends]
    for end in [*found[:-1], len(text)]:
        if sentence := text[start:end].strip():
            yield sentence
        start = end


_ARTICLES = frozenset(("a", "an", "the"))
_OPENING = re.compile(r"^[(\[{\"'`\u2018\u201c\u00ab]+")
# A quotation mark after a digit may be a unit: feet or minutes.
_CLOSING = re.compile(r"(?:[.,;:!?\u2026)\]}\u00bb\u3002\uff01\uff1f]|(?<!\d)[\"'`\u2019\u201d])+$")


class _Word(NamedTuple):
    folded: str
    is_name: bool


class _Sentence:
    """A sentence as its words, without regard to blanks, case, articles and punctuation."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._spelt = list(_spelt(text))
        self.words = tuple(word.folded for word in self._spelt)
        self._set = frozenset(self.words)

    @cached_property
    def _turned(self) -> tuple[int, list[str]]:
        return negations(self.text), [word for word in self.words if word in _listed("turning")]

    def is_said_by(self, other: _Sentence) -> bool:
        """Return whether `other` says the same, and possibly more.

        It must begin with the same two words (who does what), and have the rest in the same order
        without a name in between: "Ana moved to Rome, Bob to Porto" does not say "Ana moved to
        Porto".
        """
        if not self._set <= other._set or self._turned != other._turned:
            return False
        if self.words[:2] != other.words[: len(self.words[:2])]:
            return False
        more = iter(other._spelt)
        return all(_comes_next(word, more) for word in self.words)


def _comes_next(word: str, more: Iterator[_Word]) -> bool:
    """Advance to `word`. Return False if a name or the end comes first."""
    for found in more:
        if found.folded == word:
            return True
        if found.is_name:
            return False
    return False


def _spelt(text: str) -> Iterator[_Word]:
    for number, chunk in enumerate(unicodedata.normalize("NFKC", text).split()):
        word = _CLOSING.sub("", _OPENING.sub("", chunk))
        # "A" is an article at the beginning of a sentence; elsewhere it may be a vitamin.
        article = word in _ARTICLES or (number == 0 and word.lower() in _ARTICLES)
        if word and not article:
            folded = unicodedata.normalize("NFKC", word.casefold().replace("\u2019", "'"))
            yield _Word(folded, is_name=number > 0 and word != word.lower())


_ENDED = re.compile(r"[.!?:\u2026\u3002\uff01\uff1f][\"'`)\]\u2019\u201d\u00bb*_]*$")


def _ended(sentence: str) -> str:
    return sentence if _ENDED.search(sentence) else f"{sentence.rstrip(',; ')}."
