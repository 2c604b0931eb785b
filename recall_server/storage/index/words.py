"""The word index: which terms stand in which findable item, with each namespace's own statistics,
since shared ones would tell one tenant of another's words.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self

import numpy as np

from recall_server.domain.namespace import Namespace
from recall_server.domain.search.index_entry import Findable, Place
from recall_server.domain.search.ranking import K1, B
from recall_server.domain.text.terms import speaker_terms, term_counts
from recall_server.storage.bound_connection import BoundConnection
from recall_server.storage.driver import Document
from recall_server.storage.index.cache import Cache
from recall_server.storage.index.documents import Documents, Slots
from recall_server.storage.index.vector_cache import Flags

# Documents read at a time: half a megabyte of text.
PAGE = 65_536
# Behind any slot.
LAST = 2**62


@dataclass(frozen=True)
class Statistics:
    """The statistics of a namespace: its findable items, their words, the version of its index, the
    number of its erasures, and for each term asked for that it has in how many items it stands, and
    a slot that none of these is behind.
    """

    documents: int = 0
    words: int = 0
    version: int = 0
    erase_epoch: int = 0
    frequencies: Mapping[str, int] = field(default_factory=dict)
    last_slots: Mapping[str, int] = field(default_factory=dict)

    @property
    def average_length(self) -> float:
        return max(self.words / max(self.documents, 1), 1.0)


@dataclass(frozen=True)
class Postings:
    """The entries of some items in the word index: made outside a transaction, as that takes a
    while.
    """

    ids: tuple[str, ...]
    places: tuple[Place | None, ...]
    rows: tuple[tuple[str, str, int, int], ...]
    words: int

    @property
    def documents(self) -> int:
        return len(self.ids)

    def joined(self, other: "Postings") -> "Postings":
        """Those of both."""
        return Postings(
            self.ids + other.ids,
            self.places + other.places,
            self.rows + other.rows,
            self.words + other.words,
        )

    def written(self) -> Self:
        """The same with what `add` sends made now: of a long text that takes a while."""
        for document in (self.entries, self.numbered, self.counts):
            _ = document.text
        return self

    @cached_property
    def entries(self) -> Document:
        """The id of each item, the id of its turn, and where it and its heading begin and end; null
        where it is a memory.
        """
        found: list[list[str | int | None]] = []
        for item_id, place in zip(self.ids, self.places, strict=True):
            if place is None:
                found.append([item_id, None, None, None, None, None])
                continue
            heading = (place.heading.start, place.heading.end) if place.heading else (None, None)
            found.append([item_id, place.turn_id, place.span.start, place.span.end, *heading])
        return Document(found)

    @cached_property
    def numbered(self) -> Document:
        """The rows with the number of each item in place of its id."""
        place = {item_id: number for number, item_id in enumerate(self.ids)}
        return Document(
            [(term, place[item_id], often, length) for term, item_id, often, length in self.rows]
        )

    @cached_property
    def counts(self) -> Document:
        """In how many of the items each term stands."""
        return Document(Counter(term for term, *_ in self.rows))


def postings(found: Mapping[str, Findable]) -> Postings:
    """The postings of items, by their ids. They follow from the texts of an item alone, so the same
    function tells what to add and what to remove.
    """
    rows: list[tuple[str, str, int, int]] = []
    words = 0
    for item_id, findable in found.items():
        counts, length = term_counts(findable.text)
        words += length
        rows += [(term, item_id, occurrences, length) for term, occurrences in counts.items()]
        rows += [(term, item_id, 1, length) for term in speaker_terms(findable.speaker)]
    places = tuple(findable.place for findable in found.values())
    return Postings(tuple(found), places, tuple(rows), words)


class WordIndex:
    """The index of the words of memories and passages."""

    def __init__(self, bound: BoundConnection, cache: Cache) -> None:
        self._bound = bound
        self._cache = cache

    async def add(self, added: Postings) -> None:
        """Make items findable by their words."""
        if not added.documents:
            return
        count = added.documents
        await self._bound.send("count_documents", documents=count, words=added.words, slots=count)
        await self._bound.send("add_documents", entries=added.entries, count=count)
        await self._bound.send("add_postings", rows=added.numbered, count=count)
        await self._bound.send("count_terms", counts=added.counts)

    async def remove(self, removed: Postings) -> None:
        """Undo `add`."""
        if not removed.documents:
            return
        await self._bound.send(
            "count_documents", documents=-removed.documents, words=-removed.words, slots=0
        )
        await self._bound.send("remove_postings", rows=Document(removed.rows))
        await self._bound.send("remove_documents", ids=list(removed.ids))
        await self._bound.send("uncount_terms", counts=removed.counts)
        await self._bound.send("drop_unused_terms", terms=list(removed.counts.value))

    async def stale(self) -> list[Namespace]:
        """The namespaces whose index was made by an older recipe."""
        return [Namespace(r["namespace"]) for r in await self._bound.fetch("stale_word_indexes")]

    async def spoil(self) -> None:
        """Mark the index as stale."""
        await self._bound.send("spoil_word_index")

    async def frequencies(self) -> dict[str, int]:
        """In how many items that search finds each word stands: of all words, page by page."""
        found: dict[str, int] = {}
        after = ""
        while rows := await self._bound.fetch("page_of_terms", after=after, limit=PAGE):
            found |= {row["term"]: int(row["documents"]) for row in rows}
            after = rows[-1]["term"]
        return found

    async def begin_anew(self) -> bool:
        """Empty the index; False where it is of the present recipe already."""
        if not await self._bound.fetch("renew_word_index"):
            return False
        for query in ("clear_documents", "clear_postings", "clear_terms"):
            await self._bound.send(query)
        return True

    async def statistics(self, terms: Iterable[str] = ()) -> Statistics:
        rows = await self._bound.fetch("statistics", terms=sorted(set(terms)))
        if not rows:
            return Statistics()
        found = [row for row in rows if row["term"] is not None]
        return Statistics(
            rows[0]["documents"],
            rows[0]["words"],
            rows[0]["index_version"],
            rows[0]["erase_epoch"],
            {row["term"]: int(row["frequency"]) for row in found},
            {row["term"]: int(row["last_slot"]) for row in found},
        )

    async def in_scope(self, statistics: Statistics) -> Statistics:
        """The same of the items in the access scope of the caller alone: one pass over the postings
        of the terms. The length of an item is the mean of those that have any of the terms.
        """
        documents = await self.documents(statistics)
        # At once, and kept: a search beside this one may evict them.
        postings = documents.postings(statistics.frequencies)
        allowed = await self.allowed(documents)
        frequencies: dict[str, int] = {}
        lengths: dict[int, int] = {}
        for term, found in postings.items():
            # Later slots were added since `allowed` was read.
            inside = np.flatnonzero(allowed[found.slots[found.slots < len(allowed)]])
            if len(inside):
                frequencies[term] = len(inside)
                slots, of_slots = found.slots[inside].tolist(), found.lengths[inside].tolist()
                lengths |= zip(slots, of_slots, strict=True)
        count = int(np.count_nonzero(allowed))
        words = count * sum(lengths.values()) // max(len(lengths), 1)
        return replace(statistics, documents=count, words=words, frequencies=frequencies)

    def cached(self, statistics: Statistics) -> Documents:
        """The documents of this namespace, as far as they are in memory."""
        assert self._bound.namespace is not None
        return self._cache.index(self._bound.namespace, statistics.erase_epoch).documents

    async def documents(self, statistics: Statistics) -> Documents:
        """The documents of this namespace, as of `statistics` or later, with the postings of their
        terms: reads only what is not in memory yet.
        """
        documents = self.cached(statistics)
        if not _missing(documents, statistics):
            return documents
        async with documents.loading:
            # Another search may have read it while this one waited.
            if documents.version < statistics.version:
                await self._read_documents(documents)
                documents.version = max(documents.version, statistics.version)
            behind = documents.lacking(statistics.last_slots)
            if behind:
                for row in await self._bound.fetch("postings_behind", slots=Document(behind)):
                    upto = statistics.last_slots[row["term"]]
                    documents.extend(row["term"], upto, row["found"])
        return documents

    async def _read_documents(self, documents: Documents) -> None:
        version, slot, read = documents.version, LAST, PAGE
        while read == PAGE:
            (page,) = await self._bound.fetch(
                "page_of_documents", version=version, slot=slot, limit=PAGE
            )
            read = page["documents"]
            if not read:
                return
            slots = np.fromstring(page["slots"], dtype=np.int64, sep=" ")
            findable = np.frombuffer(page["findable"].encode(), dtype=np.uint8) == ord("1")
            documents.update(slots, findable)
            version, slot = page["version"], int(slots[-1])

    async def load(self, documents: Documents, slots: Slots) -> None:
        """Read the columns that ranking needs of the documents at these slots, where missing."""
        missing = documents.missing(slots)
        if missing:
            async with documents.loading:
                documents.load(await self._bound.fetch("placed", slots=missing))

    async def allowed(self, documents: Documents) -> Flags:
        """For each slot whether the access scope of the caller includes it."""
        scope = self._bound.access_scope
        if scope.everything:
            return documents.findable
        upto, flags = documents.scope(scope)
        if upto < documents.last:
            (row,) = await self._bound.fetch("slots_in_reach", after=upto)
            slots = np.fromstring(row["slots"] or "", dtype=np.int64, sep=" ")
            flags = documents.extend_scope(scope, row["upto"] or 0, slots)
        return flags & documents.findable

    async def similar(
        self,
        weights: Mapping[str, float],
        average_length: float,
        limit: int,
    ) -> list[str]:
        """The ids of the `limit` items with the best BM25 score, best first: also of what this
        transaction has changed. All postings of the terms are read.
        """
        if not weights:
            return []
        rows = await self._bound.fetch(
            "similar_items",
            weights=Document(dict(weights)),
            average=average_length,
            k1=K1,
            b=B,
            limit=limit,
        )
        return [row["item_id"] for row in rows]


def _missing(documents: Documents, statistics: Statistics) -> bool:
    return documents.version < statistics.version or bool(documents.lacking(statistics.last_slots))
