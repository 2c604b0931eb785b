"""The word index: which terms stand in which findable item, with each namespace's own statistics,
since shared ones would tell one tenant of another's words.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Self

import numpy as np

from recall_server.domain.namespace import Namespace
from recall_server.domain.search.index_entry import Findable, Place
from recall_server.domain.search.ranking import K1, B
from recall_server.domain.text.terms import speaker_terms, term_counts
from recall_server.storage.bound_connection import BoundConnection
from recall_server.storage.driver import Document, moment
from recall_server.storage.index.cache import Cache
from recall_server.storage.index.documents import Documents, Slots
from recall_server.storage.index.vector_cache import Flags
from recall_server.storage.tables.limits import ITEM_BYTES

# Documents read at a time: half a megabyte of text.
PAGE = 65_536
# Behind any slot.
LAST = 2**62


@dataclass(frozen=True)
class Statistics:
    """The statistics of a namespace: its findable items, their words, the version of its index, the
    number of its erasures, its last event, and for each term asked for that it has in how many
    items it stands. Of each that any item has or had, a slot that none of these is behind.
    """

    documents: int = 0
    words: int = 0
    version: int = 0
    erase_epoch: int = 0
    last_event: int = 0
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
    lengths: tuple[int, ...]

    @property
    def documents(self) -> int:
        return len(self.ids)

    @cached_property
    def words(self) -> int:
        return sum(self.lengths)

    def joined(self, other: "Postings") -> "Postings":
        """Those of both."""
        return Postings(
            self.ids + other.ids,
            self.places + other.places,
            self.rows + other.rows,
            self.lengths + other.lengths,
        )

    def written(self) -> Self:
        """The same with what `add` sends made now: of a long text that takes a while."""
        for document in (self.entries, self.numbered, self.counts):
            _ = document.text
        return self

    @cached_property
    def entries(self) -> Document:
        """The id of each item, the id of its turn, and where it and its heading begin and end; null
        where it is a memory. And its length.
        """
        found: list[list[str | int | None]] = []
        for item_id, place, length in zip(self.ids, self.places, self.lengths, strict=True):
            if place is None:
                found.append([item_id, None, None, None, None, None, length])
                continue
            heading = (place.heading.start, place.heading.end) if place.heading else (None, None)
            where = (place.span.start, place.span.end, *heading)
            found.append([item_id, place.turn_id, *where, length])
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
    function tells what to add and what to count no more.
    """
    rows: list[tuple[str, str, int, int]] = []
    lengths: list[int] = []
    for item_id, findable in found.items():
        counts, length = term_counts(findable.text)
        lengths.append(length)
        rows += [(term, item_id, occurrences, length) for term, occurrences in counts.items()]
        rows += [(term, item_id, 1, length) for term in speaker_terms(findable.speaker)]
    places = tuple(findable.place for findable in found.values())
    return Postings(tuple(found), places, tuple(rows), tuple(lengths))


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
        await self._count(count, added.words, slots=count)
        now = self._bound.now()
        await self._bound.send("add_documents", entries=added.entries, count=count, now=now)
        await self._bound.send("add_postings", rows=added.numbered, count=count)
        await self._bound.send("count_terms", counts=added.counts)

    async def hide(self, hidden: Postings) -> None:
        """Find these items no more from now on; their entries stay for searches of before."""
        if hidden.documents:
            await self._hide(hidden, kept=hidden.documents)

    async def _hide(self, hidden: Postings, *, kept: int) -> None:
        """`kept`: how many more entries there are that search does not find."""
        await self._count(-hidden.documents, -hidden.words, hidden=kept)
        await self._bound.send("hide_documents", ids=list(hidden.ids), now=self._bound.now())
        await self._bound.send("uncount_terms", counts=hidden.counts)

    async def _count(self, documents: int, words: int, *, slots: int = 0, hidden: int = 0) -> None:
        """Count so many more. What is hidden is kept, and counts towards the quota as before."""
        await self._bound.send(
            "count_documents",
            documents=documents,
            words=words,
            slots=slots,
            hidden_bytes=hidden * ITEM_BYTES,
        )

    async def erase(self, ids: Collection[str], words: Postings) -> None:
        """Take all entries of these items out, also those of before. `words` are those of the
        entries that are found. The epoch of the namespace must be changed in this transaction:
        caches do not learn of it otherwise.
        """
        if not ids:
            return
        wanted = sorted(ids)
        (hidden,) = await self._bound.fetch("hidden_among", ids=wanted)
        if hidden["documents"]:
            await self._bound.send("erase_postings_of_all_terms", ids=wanted)
        elif words.documents:
            await self._bound.send("erase_postings", rows=Document(words.rows))
        if hidden["documents"] or words.documents:
            await self._hide(words, kept=-hidden["documents"])
        await self._bound.send("erase_documents", ids=wanted)
        await self._bound.send("drop_unused_terms")

    async def moments(self, ids: Collection[str]) -> dict[str, datetime]:
        """Since when each of these items is found."""
        rows = await self._bound.fetch("moments_added", ids=sorted(ids)) if ids else []
        return {row["item_id"]: moment(row["added_at"]) for row in rows}

    async def backdate(self, moments: Mapping[str, datetime]) -> None:
        """Say of entries that were made anew since when the items are found."""
        rows = [{"item_id": one, "added_at": at} for one, at in moments.items()]
        await self._bound.many("backdate_document", rows)

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
        for query in ("clear_postings", "clear_documents", "clear_terms", "keep_hidden_terms"):
            await self._bound.send(query)
        return True

    async def take_places(self, ids: Collection[str]) -> None:
        """Let entries that were made anew be found since when those before them were."""
        await self._bound.send("backdate_documents", ids=sorted(ids))

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
            rows[0]["last_event"],
            {row["term"]: int(row["frequency"]) for row in found if row["frequency"] > 0},
            {row["term"]: int(row["last_slot"]) for row in found},
        )

    async def of_allowed(self, statistics: Statistics, *, limited: bool) -> Statistics:
        """The same of the items that the caller asks for alone, in the access scope and at the
        moment: one pass over the postings of the terms. For a `limited` token the length of an item
        is the mean of those that have any of the terms.
        """
        documents = await self.documents(statistics)
        # At once, and kept: a search beside this one may evict them.
        postings = documents.postings(statistics.last_slots)
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
        if limited:
            words = count * sum(lengths.values()) // max(len(lengths), 1)
        else:
            words = documents.words_of(allowed)
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
        """For each slot whether search finds it, or found it at the moment that is asked for, and
        the access scope of the caller includes it.
        """
        found, known_at = documents.findable, self._bound.past.known_at
        if known_at is not None:
            await self._read_intervals(documents)
            found = documents.found_at(known_at)
        scope = self._bound.access_scope
        if scope.everything:
            return found
        upto, flags = documents.scope(scope)
        if upto < documents.last:
            (row,) = await self._bound.fetch("slots_in_reach", after=upto)
            slots = np.fromstring(row["slots"] or "", dtype=np.int64, sep=" ")
            flags = documents.extend_scope(scope, row["upto"] or 0, slots)
        size = min(len(flags), len(found))
        return flags[:size] & found[:size]

    async def true_then(self, documents: Documents, statistics: Statistics) -> Flags:
        """For each slot whether it may have been true at the moment that is asked for."""
        past, truths = self._bound.past, documents.truths
        assert past.as_of is not None
        if truths.seq < statistics.last_event or truths.slot < documents.last:
            async with documents.loading:
                (row,) = await self._bound.fetch("truths_behind", slot=truths.slot, seq=truths.seq)
                truths.update(row)
                truths.seq = max(truths.seq, statistics.last_event)
                truths.slot = max(truths.slot, documents.last)
        return truths.true_at(past.as_of, past.known_at, documents.size)

    async def _read_intervals(self, documents: Documents) -> None:
        """When entries are found, as of the documents in memory or later."""
        if documents.intervals.version >= documents.version:
            return
        async with documents.loading:
            version, slot, read = documents.intervals.version, LAST, PAGE
            while read == PAGE:
                (page,) = await self._bound.fetch(
                    "page_of_intervals", version=version, slot=slot, limit=PAGE
                )
                read = page["documents"]
                if not read:
                    return
                slots = documents.intervals.update(page)
                version, slot = page["version"], int(slots[-1])

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
