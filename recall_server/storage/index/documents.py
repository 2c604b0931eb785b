"""The findable documents of one namespace, in memory: columns by slot, and postings by term.

A document's slot is its number in the namespace. Slots are given in order and never reused, so what
was read once stays true: of a term only the postings after the last slot read can be missing, and a
document that was hidden since has a newer version.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recall_server.domain.ids import Namespace
from recall_server.domain.permissions import AccessScope
from recall_server.domain.search.index_entry import TermPostings
from recall_server.domain.search.question import TYPES
from recall_server.domain.search.signals import COLUMNS
from recall_server.storage.driver import Document, Row, moment
from recall_server.storage.index.vector_cache import (
    Flags,
    VectorCache,
    bytes_of_arrays,
    grown,
    padded,
)

Slots = NDArray[np.int64]

# Access scopes held for one namespace: this many limited tokens can alternate without an eviction.
SCOPES_MAX = 32
# The bytes that Python needs for an entry of a dictionary with an id of 30 characters.
ID_BYTES = 200

DTYPES: Mapping[str, type[np.generic]] = {
    **{column.name: column.dtype for column in COLUMNS},
    # Numbers that stand for names; negative if an item has none, so that it is equal to no other.
    "session": np.int64,
    "source": np.int64,
    "episode": np.int64,
    # The position of the turn in its episode.
    "position": np.int64,
    # The entity and the attribute of a fact.
    "subject": np.int64,
    "attribute": np.int64,
    # The place of its type in `TYPES`; negative for what is no memory.
    "type": np.int8,
    # Whether it is a memory; and the span of the episode that it cites, or that a passage has.
    "memory": np.bool_,
    "span_start": np.int64,
    "span_end": np.int64,
    # Whether the columns above are loaded.
    "loaded": np.bool_,
    "findable": np.bool_,
}

_TYPES: Mapping[str, int] = {one: number for number, one in enumerate(TYPES)}

NONE = TermPostings(np.zeros(0, np.uint32), np.zeros(0, np.uint16), np.zeros(0, np.uint32))


Moments = NDArray[np.datetime64]
NEVER = np.datetime64("NaT", "us")


def _with_moments(column: Moments, slots: Slots, moments: str) -> Moments:
    """Return a column with these moments at these slots."""
    column = grown(column, int(slots.max()) + 1, fill=NEVER)
    column[slots] = np.array(moments.split(), "datetime64[us]")
    return column


class Intervals:
    """From when until when each document was found, as of `version`, and its length. Read only if a
    search asks for another moment than now.
    """

    def __init__(self) -> None:
        self.version = 0
        self.added: Moments = np.zeros(0, "datetime64[us]")
        self.hidden: Moments = np.zeros(0, "datetime64[us]")
        self.lengths: NDArray[np.uint32] = np.zeros(0, np.uint32)

    def update(self, page: Row) -> None:
        """Take in a row of the query `page_of_intervals`."""
        slots = np.fromstring(page["slots"], dtype=np.int64, sep=" ")
        self.added = _with_moments(self.added, slots, page["added"])
        self.hidden = _with_moments(self.hidden, slots, page["hidden"])
        self.lengths = grown(self.lengths, int(slots.max()) + 1)
        self.lengths[slots] = np.fromstring(page["lengths"], dtype=np.int64, sep=" ")
        self.version = page["version"]

    def found_at(self, at: datetime) -> Flags:
        """For each slot whether a search found it then."""
        then = _moment(at)
        found: Flags = (self.added <= then) & (np.isnat(self.hidden) | (self.hidden > then))
        return found


class Truths:
    """When what each document says was true, as of the document `slot` and the event `seq`. Read
    only if a search asks what was true at a moment.
    """

    def __init__(self) -> None:
        self.slot = 0
        self.seq = 0
        self._starts: Moments = np.zeros(0, "datetime64[us]")
        self._ends: Moments = np.zeros(0, "datetime64[us]")
        self._retired: Moments = np.zeros(0, "datetime64[us]")

    def update(self, page: Row) -> None:
        """Take in a row of the query `page_of_truths`."""
        self.slot = page["last_slot"] or self.slot
        self.seq = page["last_event"] or self.seq
        if page["slots"] is None:
            return
        slots = np.fromstring(page["slots"], dtype=np.int64, sep=" ")
        self._starts = _with_moments(self._starts, slots, page["starts"])
        self._ends = _with_moments(self._ends, slots, page["ends"])
        self._retired = _with_moments(self._retired, slots, page["retired"])

    def true_at(self, at: datetime, known_at: datetime | None, size: int) -> Flags:
        """Return for each slot whether it may have been true then, by what was known at `known_at`.
        It may be too generous: the items that are shown are read and checked again.
        """
        then = _moment(at)
        found: Flags = (self._starts <= then) & (np.isnat(self._ends) | (self._ends > then))
        if known_at is not None:
            found |= (self._starts <= then) & (self._retired > _moment(known_at))
        return padded(found, size)[:size]


def _moment(at: datetime) -> np.datetime64:
    return np.datetime64(at.astimezone(UTC).replace(tzinfo=None), "us")


class Documents:
    """The findable documents of a namespace as of `version`, and the postings of the terms that
    were searched last.
    """

    def __init__(self) -> None:
        self.version = 0
        self.loading = asyncio.Lock()
        self.ids: dict[int, str] = {}
        self.intervals = Intervals()
        self.truths = Truths()
        # The last slot in memory.
        self.last = 0
        self._columns: dict[str, NDArray[Any]] = {
            name: np.zeros(0, dtype) for name, dtype in DTYPES.items()
        }
        self._terms: OrderedDict[str, tuple[int, TermPostings]] = OrderedDict()
        self._terms_bytes = 0
        self._numbers: dict[str, int] = {}
        self._names: list[str] = []
        self._scopes: OrderedDict[AccessScope, tuple[int, Flags]] = OrderedDict()

    @property
    def bytes(self) -> int:
        columns = sum(column.nbytes for column in self._columns.values())
        flags = sum(flags.nbytes for _, flags in self._scopes.values())
        names = ID_BYTES * (len(self.ids) + len(self._numbers))
        in_time = bytes_of_arrays(self.intervals, self.truths)
        return columns + flags + names + self._terms_bytes + in_time

    @property
    def size(self) -> int:
        """The length of the columns: greater than any slot in memory."""
        return len(self.findable)

    @property
    def findable(self) -> Flags:
        found: Flags = self._columns["findable"]
        return found

    def found_at(self, at: datetime) -> Flags:
        """For each slot whether a search found it then."""
        return self.intervals.found_at(at)[: self.size]

    def words_of(self, allowed: Flags) -> int:
        """Return the number of words of these documents together."""
        return int(self.intervals.lengths[: len(allowed)].sum(where=allowed, dtype=np.int64))

    def update(self, slots: Slots, findable: Flags) -> None:
        """Set which of these documents search finds. What was found before and still is has other
        labels now: the filters are read again.
        """
        if not len(slots):
            return
        known = slots[slots <= self.last]
        if (self.findable[known] & findable[slots <= self.last]).any():
            for one in [one for one in self._scopes if one.narrowed]:
                del self._scopes[one]
        self.last = max(self.last, int(slots.max()))
        self._columns = {
            name: grown(column, self.last + 1) for name, column in self._columns.items()
        }
        self._columns["findable"][slots] = findable
        gone = slots[~findable]
        self._columns["loaded"][gone] = False
        for slot in gone.tolist():
            self.ids.pop(slot, None)

    # --- postings ---

    def lacking(self, last_slots: Mapping[str, int]) -> dict[str, int]:
        """Return the terms whose postings in memory end before their last slot, with that end."""
        held = {term: self._terms[term][0] if term in self._terms else 0 for term in last_slots}
        return {term: upto for term, upto in held.items() if upto < last_slots[term]}

    def extend(self, term: str, upto: int, found: str) -> None:
        """Add the postings of a term up to a slot, from a list as it is stored."""
        _, held = self._terms.get(term, (0, NONE))
        read = numbers_of(found)
        # Lists are read whole, so some of their postings are held; and two searches may read one.
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
        """Return the postings of each term, as far as they are in memory."""
        found = {}
        for term in terms:
            _, found[term] = self._terms.get(term, (0, NONE))
            if term in self._terms:
                self._terms.move_to_end(term)
        return found

    def forget_terms(self, bytes_: int) -> None:
        """Drop the least recently used postings until this many bytes are free."""
        left = self._terms_bytes - bytes_
        while self._terms_bytes > max(left, 0):
            _, (_, dropped) = self._terms.popitem(last=False)
            self._terms_bytes -= _bytes(dropped)

    # --- columns of the signals ---

    def missing(self, slots: Slots) -> list[int]:
        """Return those of these slots whose columns are not loaded."""
        missing: list[int] = slots[~self._columns["loaded"][slots]].tolist()
        return missing

    def load(self, rows: Sequence[Row]) -> None:
        """Fill the columns from rows of the query `placed`."""
        if not rows:
            return
        slots = [row["slot"] for row in rows]
        for column in COLUMNS:
            values = [row[column.name] for row in rows]
            if column.is_time:
                values = [moment(value).timestamp() for value in values]
            self._columns[column.name][slots] = values
        for name in ("memory", "span_start", "span_end"):
            self._columns[name][slots] = [row[name] or 0 for row in rows]
        self._columns["type"][slots] = [_TYPES.get(row["type"], -1) for row in rows]
        for name, key in (("subject", "entity_key"), ("attribute", "attribute_key")):
            keys = [row[key] for row in rows]
            self._columns[name][slots] = [-1 if one is None else self._number(one) for one in keys]
        self._columns["loaded"][slots] = True
        places = [self._place(row) for row in rows]
        for name, numbers in zip(
            ("session", "source", "episode", "position"), zip(*places, strict=True), strict=True
        ):
            self._columns[name][slots] = numbers
        self.ids.update((row["slot"], row["id"]) for row in rows)

    def _place(self, row: Row) -> tuple[int, int, int, int]:
        """Return the numbers of the session, source and episode of a row, and its position."""
        if row["position"] is None:
            alone = -1 - row["slot"]
            return alone, alone, -1, 0
        # The session or the text as the client named it; a text may have several sessions.
        source = row["session_id"] or row["episode_id"]
        session = f"{source} {row['session'] or ''}"
        return (
            self._number(session),
            self._number(source),
            self._number(row["episode_id"]),
            row["position"],
        )

    def _number(self, name: str) -> int:
        number = self._numbers.setdefault(name, len(self._names))
        if number == len(self._names):
            self._names.append(name)
        return number

    def by_id(self, slots: Slots) -> list[int]:
        """Return the indices into `slots` of those whose columns are loaded, in the order of their
        ids.
        """
        ids = [self.ids.get(slot, "") for slot in slots.tolist()]
        return sorted((at for at, one in enumerate(ids) if one), key=ids.__getitem__)

    def columns(self, slots: Slots, names: Iterable[str] = DTYPES) -> dict[str, NDArray[Any]]:
        return {name: self._columns[name].take(slots) for name in names}

    def facts(self, slots: Slots) -> list[tuple[str, str]]:
        """Return the normal names of the subject and the attribute of the fact of each of these
        documents; two empty ones if it has none.
        """
        numbers = (self._columns[one][slots].tolist() for one in ("subject", "attribute"))
        both = zip(*numbers, strict=True)
        return [("", "") if a < 0 else (self._names[a], self._names[b]) for a, b in both]

    def sources(self, slots: Sequence[int]) -> list[int]:
        """Return the source of each of these documents, its session or text, as a number."""
        sources: list[int] = self._columns["source"][list(slots)].tolist()
        return sources

    def turns(self, slot: int, steps: Iterable[int]) -> list[tuple[str, int]]:
        """Return the episode and position of the turns at these distances from a document's turn;
        none if it comes from no turn.
        """
        episode, position = int(self._columns["episode"][slot]), self._columns["position"][slot]
        if episode < 0:
            return []
        return [(self._names[episode], int(position) + step) for step in steps]

    def opens(self, slot: int, chars_max: int) -> bool:
        """Return whether a passage is the short beginning of a text that has further turns. Those
        of a text have slots that follow each other.
        """
        after = slot + 1
        if after >= self.size or self._columns["memory"][slot]:
            return False
        episode, position = self._columns["episode"], self._columns["position"]
        if self._columns["span_start"][slot] or self._columns["span_end"][slot] > chars_max:
            return False
        same_text = episode[slot] >= 0 and episode[after] == episode[slot]
        return bool(same_text and position[slot] == 0 and position[after] > 0)

    def count_accesses(self, slots: Sequence[int]) -> None:
        """Count one access of each. Counts of other processes come with the next load."""
        self._columns["access_count"][list(slots)] += 1

    # --- access scopes ---

    def scope(self, scope: AccessScope) -> tuple[int, Flags]:
        """Return the slot up to which a scope was read, and for each slot whether it is inside."""
        upto, flags = self._scopes.get(scope, (0, np.zeros(0, np.bool_)))
        return upto, padded(flags, self.size)

    def extend_scope(self, scope: AccessScope, upto: int, slots: Slots) -> Flags:
        """Add slots to a scope. Up to the slot `upto` no others are inside."""
        before, flags = self.scope(scope)
        flags[slots[slots < len(flags)]] = True
        self._scopes[scope] = max(before, min(upto, len(flags) - 1)), flags
        self._scopes.move_to_end(scope)
        while len(self._scopes) > SCOPES_MAX:
            # Drop filters first: each search may bring another, while tokens' scopes recur.
            oldest = next((one for one in self._scopes if one.narrowed), next(iter(self._scopes)))
            del self._scopes[oldest]
        return flags


class NamespaceIndex:
    """The index of one namespace as of one erase epoch: it has nothing that was erased before."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.documents = Documents()
        self._vectors: dict[str, VectorCache] = {}
        # The bytes at the last count.
        self.counted = 0

    @property
    def bytes(self) -> int:
        return self.documents.bytes + sum(cache.bytes for cache in self._vectors.values())

    def vectors(self, model: str, dimensions: int) -> VectorCache:
        cache = self._vectors.get(model)
        if cache is None:
            cache = self._vectors[model] = VectorCache(dimensions)
        return cache


class Cache:
    """The indexes of several namespaces, `bytes_max` in all."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.bytes = 0
        self._indexes: OrderedDict[Namespace, NamespaceIndex] = OrderedDict()

    def index(self, namespace: Namespace, epoch: int) -> NamespaceIndex:
        index = self._indexes.get(namespace)
        if index is not None and index.epoch > epoch:
            # A reader that still sees the state before the erasure must not bring it back.
            return NamespaceIndex(epoch)
        if index is None or index.epoch < epoch:
            self.drop(namespace)
            index = self._indexes[namespace] = NamespaceIndex(epoch)
        self._indexes.move_to_end(namespace)
        return index

    def trim(self, namespace: Namespace) -> None:
        """Count what a search has added to a namespace, and keep to the budget: drop first the
        least recently searched namespaces, then the least recently used postings of this one.
        """
        index = self._indexes.get(namespace)
        if index is None:
            return
        self._count(index)
        while len(self._indexes) > 1 and self.bytes > self._bytes_max:
            self.bytes -= self._indexes.popitem(last=False)[1].counted
        over = self.bytes - self._bytes_max
        if over > 0 and namespace in self._indexes and not index.documents.loading.locked():
            index.documents.forget_terms(over)
            self._count(index)

    def _count(self, index: NamespaceIndex) -> None:
        counted = index.bytes
        self.bytes += counted - index.counted
        index.counted = counted

    def drop(self, namespace: Namespace) -> None:
        if (index := self._indexes.pop(namespace, None)) is not None:
            self.bytes -= index.counted


def numbers_of(found: str) -> NDArray[np.int64]:
    """Return the postings of a stored list, one a row: slot, occurrences, length."""
    return np.fromstring(found.replace(";", " "), dtype=np.int64, sep=" ").reshape(-1, 3)


def _bytes(postings: TermPostings) -> int:
    return sum(column.nbytes for column in postings)


def without(found: str, slots: Collection[int], *, only: bool = False) -> str:
    """Return a list without these slots, or with `only` these."""
    return "".join(
        f";{one}" for one in found.split(";")[1:] if (int(one.split(" ", 1)[0]) in slots) == only
    )


def having(lists: Mapping[str, str], slots: Iterable[int]) -> list[tuple[str, list[int]]]:
    """Return the terms whose lists have any of these slots, each with these."""
    wanted = np.fromiter(slots, np.int64)
    found = ((term, numbers_of(one)[:, 0]) for term, one in lists.items())
    return [(term, here.tolist()) for term, of in found if len(here := of[np.isin(of, wanted)])]


class Removal(NamedTuple):
    """Of items to erase: the number of hidden entries; and the open and the closed lists that have
    any of them, without them, of some terms at a time.
    """

    hidden: int
    lists: Sequence[tuple[Sequence[str], Document, Document]]


def shorter(lists: Iterable[Row], gone: Collection[int]) -> tuple[Document, Document]:
    """Return the lists that have any of these slots, without them: the open ones, each with its
    term, and the closed ones, each with term and slot. Postings of a list that were added together
    have no order.
    """
    opened: list[tuple[str, str]] = []
    closed: list[tuple[str, int, str]] = []
    for row in lists:
        left = without(row["found"], gone)
        if left == row["found"]:
            continue
        if row["slot"] is None:
            opened.append((row["term"], left))
        else:
            closed.append((row["term"], row["slot"], left))
    return Document.written(opened), Document.written(closed)
