"""What items are found by, and how often a term stands in them."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]


class Findable(NamedTuple):
    """What an item is found by: its own words, what was said where it comes from, and by whom."""

    words: str
    speaker: str | None = None
    said: str = ""

    @property
    def text(self) -> str:
        """All that is indexed of it, but for who spoke."""
        said = labelled(self.speaker, self.said) if self.said else ""
        return f"{self.words}\n{said}" if self.words else said


def labelled(speaker: str | None, words: str) -> str:
    """Words as a transcript has them."""
    return f"{speaker}: {words}" if speaker else words


class TermPostings(NamedTuple):
    """Where one term stands: the documents by their slots, the least first, how often, and how long
    each of them is, in terms.
    """

    slots: NDArray[np.uint32]
    times: NDArray[np.uint16]
    lengths: NDArray[np.uint32]

    def places(self, slots: Counts) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
        """Where each of these documents stands here, and whether it does: where not, the place says
        nothing.
        """
        if not len(self.slots):
            return np.zeros(len(slots), np.intp), np.zeros(len(slots), np.bool_)
        # Of one kind, or all postings would be turned into the other.
        at = np.searchsorted(self.slots, slots.astype(self.slots.dtype))
        at = np.minimum(at, len(self.slots) - 1)
        return at, self.slots[at] == slots


class Words(NamedTuple):
    """What is asked for, in each of some documents: of each term how often it stands in them, and
    how long each of those is in which any term stands, in terms (0: none does).
    """

    times: Mapping[str, Counts]
    lengths: Counts


def words_in(slots: Counts, postings: Mapping[str, TermPostings]) -> Words:
    """The words that the postings of these terms tell of the documents at these slots."""
    lengths = np.zeros(len(slots), np.int64)
    times: dict[str, Counts] = {}
    for term, of in postings.items():
        times[term] = np.zeros(len(slots), np.int64)
        at, here = of.places(slots)
        times[term][here] = of.times[at[here]]
        lengths[here] = of.lengths[at[here]]
    return Words(times, lengths)
