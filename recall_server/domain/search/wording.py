"""Compares the words of a question with the words of a text by vectors of single words: "slept" is
like "sleep", and "weight" like "weigh". Pure.

The vector of a whole text tells what it is about, and says little of a single word in it.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import accumulate, chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from recall_server.domain.text.terms import STOP, folded, terms, tokens_of

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
