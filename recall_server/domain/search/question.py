"""A question as ranking uses it: its terms, the speakers that it names, and how like its words
those of a text are. Pure.

Words are compared by vectors of single words: "slept" is like "sleep", and "weight" like "weigh".
The vector of a whole text tells what it is about, and says little of a single word in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from recall_server.domain.search.broad import Broad, broad_of
from recall_server.domain.search.fact_question import FactQuestion, fact_question
from recall_server.domain.text.dates import TEXT_CHARS_MAX
from recall_server.domain.text.terms import (
    SPEAKER,
    STOP,
    asked_terms,
    asked_values,
    folded,
    language_of,
    other_forms,
    speaker_terms,
    terms,
    tokens_of,
    written,
)

TERMS_MAX = 64
# A name in more items than this, and in more than this share of them, is mostly one of a title. In
# 25 texts with 271 questions, .4 points more of the answers are shown if these are left out of the
# vector of a question. LoCoMo has as many, and its R@10 is as before.
COMMON_ABOVE, COMMON_SHARE = 15, 0.03
NAMES_MAX = 32

# The speakers that "I" may stand for.
_SELF = frozenset(f"{SPEAKER}{role}" for role in ("user", "human", "me"))
ROLES = frozenset({*_SELF, *(f"{SPEAKER}{role}" for role in ("assistant", "ai", "system"))})
_FIRST_PERSON = re.compile(r"\b(?:i|me|my|mine|myself)\b", re.IGNORECASE)
# Endings that are no part of a name: "Ana's", "Ana'll"; and "Chris' son".
_JOINED = re.compile(r"'(?:s|d|ll|re|ve|m)$", re.IGNORECASE)
# In French: "d'Inès".
_ELIDED = re.compile(r"(?:[djlmnst]|qu)'(?=[A-ZÀ-Þ])")
# A name of a file, a part or a version.
_CODED = re.compile(r"[\d_/\\]|\.(?=[a-z])")
_GENITIVE = re.compile(r"'s\b|(?<=s)'(?=\s+\w)", re.IGNORECASE)


@dataclass(frozen=True)
class Question:
    """A question: `asked` are its terms, `names` the terms of speakers that it may name, `values`
    those of the kinds of value that it asks for, `forms` those of other forms of its words.
    `broad` is what a broad question asks for; if it has a topic, only that is `asked`. `language`
    is that of `language_of`, `written_names` are the words of its beginning that may be names.
    `fact` is the fact that it asks for, if it asks for nothing else.
    """

    text: str
    language: str
    written_names: Sequence[Name]
    asked: tuple[str, ...]
    names: tuple[str, ...]
    broad: Broad | None = None
    values: frozenset[str] = frozenset()
    forms: Mapping[str, Collection[str]] = field(default_factory=dict)
    fact: FactQuestion | None = None

    @staticmethod
    def parse(text: str, *, may_be_broad: bool = True) -> Question:
        language = language_of(text)
        asked = tuple(asked_terms(text, language))[:TERMS_MAX]
        wanted = broad_of(text[:TEXT_CHARS_MAX], asked) if may_be_broad else None
        if wanted is not None:
            asked = wanted.topic or asked
        read = text[:TEXT_CHARS_MAX]  # as for dates
        names = dict.fromkeys(sorted(_SELF) if _FIRST_PERSON.search(read) else ())
        written_names = tuple(_names(read))
        for name in written_names:
            names |= dict.fromkeys(name.terms)
            if len(names) >= NAMES_MAX:
                break
        others = other_forms(text, language) if language else {}
        forms = {term: some for term, some in others.items() if term in asked}
        return Question(
            text,
            language,
            written_names,
            asked,
            tuple(names)[:NAMES_MAX],
            broad=wanted,
            values=asked_values(read),
            forms=forms,
            fact=fact_question(text) if may_be_broad else None,
        )

    @property
    def terms(self) -> list[str]:
        """All terms that have a say, or would have in another form of the word."""
        others = sorted(term for some in self.forms.values() for term in some)
        return [*self.asked, *others, *self.names, *sorted(self.values)]

    @cached_property
    def people(self) -> frozenset[str]:
        """The terms of the names in the question, and of other words with a capital letter, but not
        of "App.vue". Those of a question in German, where every noun has one, are none.
        """
        text = self.text[:TEXT_CHARS_MAX]
        if text == text.lower() or self.language == "de":
            return frozenset()
        first = next(written(text), None)
        begun = first.end() if first else 0
        said = {
            one for name in self.written_names
            if name.start >= begun and not _CODED.search(text, name.start, name.end)
            for one in name.terms
        }  # fmt: skip
        return frozenset(term for one in said for term in terms(one.removeprefix(SPEAKER)))

    def as_written(self, frequencies: Mapping[str, int]) -> Question:
        """Return the question with each word that no text has in the form that most texts have."""
        asked = dict.fromkeys(
            max((term, *sorted(self.forms.get(term, ()))), key=lambda one: frequencies.get(one, 0))
            if term not in frequencies
            else term
            for term in self.asked
        )
        return replace(self, asked=tuple(asked))

    def common_names(self, frequencies: Mapping[str, int], documents: int) -> frozenset[str]:
        """Return the terms of the names that many items have, if more than names is asked for: in
        the title of a text they are in all of its memories, and tell none of them from the others.
        """
        if self.people.issuperset(self.asked):
            return frozenset()
        least = max(COMMON_ABOVE, COMMON_SHARE * documents)
        return frozenset(one for one in self.people if frequencies.get(one, 0) > least)

    def in_first_person(
        self, speakers: Collection[str], common: Collection[str] = frozenset()
    ) -> str:
        """Return the question as one of these speakers would ask it about themselves: "What did
        Ana's son say" becomes "What did my son say". A name draws a vector to every text with that
        name; without names, MiniLM found 58.1 instead of 38.6 % of the evidence in LoCoMo. Roles
        stay. The names of `common` are left out.
        """
        people = set(speakers) - ROLES
        said: list[str] = []
        end = 0
        for name in self.written_names if people or common else ():
            if people.isdisjoint(name.terms):
                if not name.is_of(common):
                    continue
                said.append(self.text[end : name.start])
                end = name.end
                continue
            between = self.text[end : name.start]
            if said[-1:] == ["I"] and between.isspace():
                said.pop()  # "Mary Ann" is one speaker
            else:
                said.append(between)
            said.append("my" if name.genitive else "I")
            end = name.end
        return "".join(said) + self.text[end:]


class Name(NamedTuple):
    """A word that may be a name, with the terms of the speaker that it may name. `start` to `end`
    includes the ending of a genitive.
    """

    terms: list[str]
    start: int
    end: int
    genitive: bool

    def is_of(self, words: Collection[str]) -> bool:
        """Return whether one of these terms of words is in the name."""
        return any(term in words for one in self.terms for term in terms(one.removeprefix(SPEAKER)))


def _names(text: str) -> Iterator[Name]:
    """Yield the words that may be names. In a text with capital letters, "agent-1" may still be
    one, but "mark" may not.
    """
    lower, known = text == text.lower(), dict[str, list[str]]()
    text = text.replace("’", "'")
    for word in written(text):
        name = _JOINED.sub("", word[0])
        start = word.start()
        if elided := _ELIDED.match(name):
            name, start = name[elided.end() :], start + elided.end()
        ordinary = name[0].islower() and name.isalpha()
        if name[0].isalpha() and (lower or not ordinary):
            end = start + len(name)
            genitive = _GENITIVE.match(text, end)
            end = genitive.end() if genitive else end
            if name not in known:
                known[name] = speaker_terms(name)
            yield Name(known[name], start, end, genitive is not None)


# How much of a text is compared.
WORDS_MAX = 200
# Below this, a text says nothing of what a question asks beside its names. With .3, 53 instead of
# 39 of 68 questions about nothing stored have weak evidence, most of which name somebody of the
# text; of 762 questions of LoCoMo with an answer, 80 instead of 74.
SAID_MIN = 0.3

WordVectors = Callable[[Sequence[str]], NDArray[np.float32]]
Row = NDArray[np.float64]


class Alike(NamedTuple):
    """How like a question each of some texts is. `beside_names`: without the names in the question;
    1 if it names nobody, or asks for nothing else.
    """

    whole: Row
    beside_names: Row


def alike(
    question: str,
    weights: Mapping[str, float],
    names: Collection[str],
    texts: Sequence[str],
    vectors: WordVectors,
) -> Alike | None:
    """Return how near the nearest word of each text is to each word of the question: the mean,
    weighted by `weights` of their terms. `names`: the terms of names. None if it has no words.
    """
    first = {word: of[0] for word in words(question) if (of := terms(word))}
    asked = {word: weights[term] for word, term in first.items() if term in weights}
    if not asked:
        return None
    whole = np.array(list(asked.values()))
    rest = whole * [first[word] not in names for word in asked]
    said = [words(text) for text in texts]
    place = {word: at for at, word in enumerate(dict.fromkeys(chain(*said)))}
    near = np.zeros((len(texts), len(asked)))
    if place:
        likeness = vectors(list(place)).dot(vectors(list(asked)).T).clip(0.0, 1.0)
        here = [at for at, found in enumerate(said) if found]
        begun = [0, *accumulate(len(said[at]) for at in here)][:-1]
        near[here] = np.maximum.reduceat(likeness[[place[word] for word in chain(*said)]], begun)
    named = 0.0 < rest.sum() < whole.sum()
    beside = near.dot(rest) / rest.sum() if named else np.ones(len(texts))
    return Alike(near.dot(whole) / whole.sum(), beside)


def words(text: str) -> list[str]:
    """Return the distinct words of a text, folded, without function words."""
    return [word for word in dict.fromkeys(tokens_of(folded(text))) if word not in STOP][:WORDS_MAX]
