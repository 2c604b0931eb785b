"""What is held in memory of what search finds in one namespace: by slot, in columns.

A document's slot is its number in the namespace. Slots are given in order, and never again to
another, so what was read once stays true: of a term only the postings behind the last slot read are
missing, and what is found no more is told by its version.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recall_server.domain.permissions import AccessScope
from recall_server.domain.query import Item
from recall_server.domain.search.index_entry import TermPostings
from recall_server.storage.index.codes import Flags, grown

Slots = NDArray[np.int64]

# Reaches that are held of one namespace: as many limited tokens ask in turn without being in each
# other's way.
REACHES_MAX = 32
# What Python takes to hold an id of 30 characters under a number.
ID_BYTES = 200

RANKED = {
    "recorded_at": np.float64,
    "valid_from": np.float64,
    "importance": np.float64,
    "session": np.int64,
    "episode": np.int64,
    "position": np.int64,
}
"""What ranking needs of a document, in the order of `fusion.Pool`."""


NONE = TermPostings(np.zeros(0, np.uint32), np.zeros(0, np.uint16), np.zeros(0, np.uint32))


class Documents:
    """The findable documents of a namespace as of `version`, and the postings of the terms that
    were asked for last.
    """

    def __init__(self) -> None:
        self.version = 0
        self.loading = asyncio.Lock()
        self.ids: dict[int, str] = {}
        self._last = 0
        kinds = {**RANKED, "source": np.int64, "known": np.bool_, "findable": np.bool_}
        self._columns: dict[str, NDArray[Any]] = {
            name: np.zeros(0, kind) for name, kind in kinds.items()
        }
        self._terms: OrderedDict[str, tuple[int, TermPostings]] = OrderedDict()
        self._terms_bytes = 0
        self._numbers: dict[str, int] = {}
        self._reaches: OrderedDict[AccessScope, tuple[int, Flags]] = OrderedDict()

    @property
    def bytes(self) -> int:
        columns = sum(column.nbytes for column in self._columns.values())
        flags = sum(flags.nbytes for _, flags in self._reaches.values())
        named = ID_BYTES * (len(self.ids) + len(self._numbers))
        return columns + flags + named + self._terms_bytes

    @property
    def size(self) -> int:
        """More than any slot that is known here."""
        return len(self._columns["findable"])

    @property
    def last(self) -> int:
        """The last slot that is known here."""
        return self._last

    @property
    def findable(self) -> Flags:
        found: Flags = self._columns["findable"]
        return found

    def take(self, slots: Slots, findable: Flags) -> None:
        """Take in which documents are found, or no more."""
        if not len(slots):
            return
        self._last = max(self._last, int(slots.max()))
        self._reserve(self._last + 1)
        self._columns["findable"][slots] = findable
        gone = slots[~findable]
        self._columns["known"][gone] = False
        for slot in gone.tolist():
            self.ids.pop(slot, None)

    def _reserve(self, wanted: int) -> None:
        self._columns = {name: grown(column, wanted) for name, column in self._columns.items()}

    # --- postings ---

    def lacking(self, terms: Mapping[str, int]) -> dict[str, int]:
        """Of terms, each with its last slot, those that are not here up to it, with the slot up to
        which they are.
        """
        held = {term: self._terms[term][0] if term in self._terms else 0 for term in terms}
        return {term: upto for term, upto in held.items() if upto < terms[term]}

    def extend(self, term: str, upto: int, numbers: str | None) -> None:
        """Take in the postings of a term from the last that is here up to a slot, as text: slot,
        times, length of each.
        """
        _, held = self._terms.get(term, (0, NONE))
        read = np.fromstring(numbers or "", dtype=np.int64, sep=" ").reshape(-1, 3)
        # What was read once, for the sake of a term whose end nobody knew, is not read twice.
        read = read[read[:, 0] > (held.slots[-1] if len(held.slots) else 0)]
        slots, times, lengths = read[np.argsort(read[:, 0])].T
        more = TermPostings(
            np.concatenate([held.slots, slots.astype(np.uint32)]),
            np.concatenate([held.times, np.minimum(times, 65_535).astype(np.uint16)]),
            np.concatenate([held.lengths, lengths.astype(np.uint32)]),
        )
        self._terms[term] = upto, more
        self._terms_bytes += _bytes(more) - _bytes(held)

    def postings(self, terms: Iterable[str]) -> dict[str, TermPostings]:
        """Those of each term, as far as they are here."""
        for term in terms:
            if term in self._terms:
                self._terms.move_to_end(term)
        return {term: self._terms[term][1] if term in self._terms else NONE for term in terms}

    def forget_terms(self, bytes_: int) -> None:
        """Drop the postings asked for longest ago, until so many bytes are free."""
        left = self._terms_bytes - bytes_
        while self._terms_bytes > max(left, 0):
            _, (_, dropped) = self._terms.popitem(last=False)
            self._terms_bytes -= _bytes(dropped)

    # --- what ranking needs ---

    def unknown(self, slots: Slots) -> list[int]:
        """Those of which nothing but the slot is here."""
        missing: list[int] = slots[~self._columns["known"][slots]].tolist()
        return missing

    def know(self, items: Mapping[int, Item]) -> None:
        """Take in what ranking needs of the documents at these slots."""
        if not items:
            return
        at = np.fromiter(items, np.int64, len(items))
        placed = [item.place for item in items.values()]
        values: Mapping[str, Sequence[float]] = {
            "recorded_at": [item.recorded_at.timestamp() for item in items.values()],
            "valid_from": [item.valid_from.timestamp() for item in items.values()],
            "importance": [item.importance for item in items.values()],
            # Who is of no session is one by itself, and of no episode.
            "session": [
                self._number(place.session) if place else -1 - slot
                for slot, place in zip(items, placed, strict=True)
            ],
            "source": [
                self._number(place.source) if place else -1 - slot
                for slot, place in zip(items, placed, strict=True)
            ],
            "episode": [self._number(place.episode_id) if place else -1 for place in placed],
            "position": [place.position if place else 0 for place in placed],
        }
        for name, column in values.items():
            self._columns[name][at] = column
        self._columns["known"][at] = True
        self.ids |= {slot: item.id for slot, item in items.items()}

    def _number(self, name: str) -> int:
        return self._numbers.setdefault(name, len(self._numbers))

    def by_id(self, slots: Slots) -> list[int]:
        """The places of those of these slots of which ranking knows all, by their ids."""
        named = [
            (self.ids[slot], place) for place, slot in enumerate(slots.tolist()) if slot in self.ids
        ]
        return [place for _, place in sorted(named)]

    def columns(self, slots: Slots) -> list[NDArray[Any]]:
        """What ranking needs of these slots, in the order of `fusion.Pool`."""
        return [self._columns[name][slots] for name in RANKED]

    def source(self, slot: int) -> int:
        """The session or text that it comes from, as a number."""
        return int(self._columns["source"][slot])

    # --- reach ---

    def reached(self, reach: AccessScope) -> tuple[int, Flags]:
        """Up to which slot it is known what is within a reach, and for each slot whether it is."""
        upto, flags = self._reaches.get(reach, (0, np.zeros(0, np.bool_)))
        return upto, np.pad(flags, (0, max(0, self.size - len(flags))))

    def reach(self, reach: AccessScope, upto: int, slots: Slots) -> Flags:
        """Take in that these more are within it, and no others up to the slot `upto`."""
        before, flags = self.reached(reach)
        flags[slots[slots < len(flags)]] = True
        self._reaches[reach] = max(before, min(upto, len(flags) - 1)), flags
        self._reaches.move_to_end(reach)
        while len(self._reaches) > REACHES_MAX:
            self._reaches.popitem(last=False)
        return flags


def _bytes(postings: TermPostings) -> int:
    return sum(column.nbytes for column in postings)
