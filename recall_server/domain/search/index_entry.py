"""The texts by which items are found, and how often a term stands in them."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]


class Findable(NamedTuple):
    """The texts by which an item is found: its own words, and the turn it comes from with its
    speaker.
    """

    words: str
    speaker: str | None = None
    said: str = ""

    @property
    def text(self) -> str:
        """All indexed text, except for the speaker's term."""
        said = labelled(self.speaker, self.said) if self.said else ""
        return f"{self.words}\n{said}" if self.words else said


def labelled(speaker: str | None, words: str) -> str:
    """Words with their speaker, as a transcript has them."""
    return f"{speaker}: {words}" if speaker else words


class TermPostings(NamedTuple):
    """The documents that have a term: their slots, the least first, how often each has it, and the
    length of each in terms.
    """

    slots: NDArray[np.uint32]
    times: NDArray[np.uint16]
    lengths: NDArray[np.uint32]

    def places(self, slots: Counts) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
        """The position of each of these documents in the postings, and whether it is there at all:
        if not, the position means nothing.
        """
        if not len(self.slots):
            return np.zeros(len(slots), np.intp), np.zeros(len(slots), np.bool_)
        # Of one kind, or all postings would be turned into the other.
        at = np.searchsorted(self.slots, slots.astype(self.slots.dtype))
        at = np.minimum(at, len(self.slots) - 1)
        return at, self.slots[at] == slots


class Words(NamedTuple):
    """The terms of a question in some documents: how often each has each term, and the length of
    each in terms, 0 where it has none of them.
    """

    times: Mapping[str, Counts]
    lengths: Counts


def words_in(slots: Counts, postings: Mapping[str, TermPostings]) -> Words:
    """The words of the documents at these slots, by the postings of the terms."""
    lengths = np.zeros(len(slots), np.int64)
    times: dict[str, Counts] = {}
    for term, of in postings.items():
        times[term] = np.zeros(len(slots), np.int64)
        at, here = of.places(slots)
        times[term][here] = of.times[at[here]]
        lengths[here] = of.lengths[at[here]]
    return Words(times, lengths)
