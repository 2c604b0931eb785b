"""The word index: which terms occur in which item. Each namespace has statistics of its own, since
shared ones would tell one tenant of another's words.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property, lru_cache
from hashlib import blake2b
from itertools import chain
from typing import Self

import numpy as np
from numpy.typing import NDArray

from recall_server.domain.ids import Namespace
from recall_server.domain.search.index_entry import Findable, Place
from recall_server.domain.search.ranking import K1, B
from recall_server.domain.text.terms import speaker_terms, term_counts, value_terms
from recall_server.storage.bound_connection import BoundTable
from recall_server.storage.driver import Document, Failure, Row, batches, moment
from recall_server.storage.index.documents import (
    Documents,
    Removal,
    Slots,
    having,
    numbers_of,
    shorter,
    without,
)
from recall_server.storage.index.vector_cache import Flags
from recall_server.storage.tables.access import ITEM_BYTES

# Documents read at a time: half a megabyte of text.
PAGE = 65_536
# Entries or events read at a time. Their times are joined from other tables.
TRUTHS_PAGE = 8_192
# Terms whose lists are read at a time.
TERMS = 500
PAGE_OF_ITEMS = 500
# Up to so many items, the database looks for them in the lists: it takes each with each.
FEW = 10
ITEMS_PER_HIT = 4  # that the first lookup takes, as some are hidden
FACTS_MAX = 50  # of the memories of a fact that a question asks for
LAST = 2**62  # greater than any slot
# A prime, so that occurrences and length stay apart in a digest.
MULTIPLIER = 1_000_003


@dataclass(frozen=True)
class Statistics:
    """The statistics of a namespace: the number of findable items and of their words, the version
    of its index, the number of its erasures, its last event, its last slot, and for each requested
    term the number of findable items with it. `last_slots` has every requested term that any item
    has or had, with a slot that is not less than the slot of any of these items.
    """

    documents: int = 0
    words: int = 0
    version: int = 0
    erase_epoch: int = 0
    last_event: int = 0
    last_slot: int = 0
    frequencies: Mapping[str, int] = field(default_factory=dict)
    last_slots: Mapping[str, int] = field(default_factory=dict)

    @property
    def average_length(self) -> float:
        return max(self.words / max(self.documents, 1), 1.0)


@dataclass(frozen=True)
class Postings:
    """The entries of some items in the word index; made outside a transaction, as it takes time."""

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
        return Postings(
            self.ids + other.ids,
            self.places + other.places,
            self.rows + other.rows,
            self.lengths + other.lengths,
        )

    def written(self) -> Self:
        """Return itself with the parameters of `add` computed: for a long text that takes time."""
        _ = self.entries.text, self.numbered.text, self.terms
        return self

    def counted(self) -> Self:
        """Return itself with the parameters of `hide` and `erase` computed."""
        _ = self.counts.text, self.terms
        return self

    @cached_property
    def entries(self) -> Document:
        """For each item: its id and its length, and for a passage the id of its turn, and where it
        and its heading, if any, begin and end.
        """
        found: list[list[str | int]] = []
        for item_id, place, length in zip(self.ids, self.places, self.lengths, strict=True):
            found.append([item_id, length])
            if place is not None:
                found[-1] += [place.turn_id, place.span.start, place.span.end]
                found[-1] += [place.heading.start, place.heading.end] if place.heading else []
        return Document(found)

    @cached_property
    def numbered(self) -> Document:
        """The rows as term, number of the item (in place of its id), and the occurrences and length
        as a list has them after the slot.
        """
        place = {item_id: number for number, item_id in enumerate(self.ids)}
        return Document(
            [
                (term, place[item_id], f"{often} {length}")
                for term, item_id, often, length in self.rows
            ]
        )

    @cached_property
    def terms(self) -> list[str]:
        """The terms, each once."""
        return sorted({term for term, *_ in self.rows})

    @cached_property
    def counts(self) -> Document:
        """The number of these items with each term."""
        return Document(Counter(term for term, *_ in self.rows))


def postings(found: Mapping[str, Findable]) -> Postings:
    """Return the postings of items, given by their ids. They depend on the text and speaker of an
    item alone, so they tell both what to add and what to subtract later.
    """
    rows: list[tuple[str, str, int, int]] = []
    lengths: list[int] = []
    for item_id, findable in found.items():
        counts, length = term_counts(findable.text)
        lengths.append(length)
        rows += [(term, item_id, occurrences, length) for term, occurrences in counts.items()]
        labels = [*speaker_terms(findable.speaker), *value_terms(findable.text)]
        rows += [(term, item_id, 1, length) for term in labels]
    places = tuple(findable.place for findable in found.values())
    return Postings(tuple(found), places, tuple(rows), tuple(lengths))


_BY_TERM = {"after": "term"}


class WordIndex(BoundTable):
    """The index of the words of memories and passages."""

    async def add(self, added: Postings, lists: Document | None = None) -> None:
        """Make items findable by their words. `lists`: those of the items, if they are made."""
        if not added.documents:
            return
        count = added.documents
        await self._count(count, added.words, slots=count)
        now = await self._bound.moment()
        await self._bound.send("add_documents", entries=added.entries, count=count, now=now)
        await self._bound.send("close_lists", terms=added.terms)
        if lists is not None:
            await self._bound.send("add_lists", lists=lists)
            return
        await self._bound.send("add_postings", rows=added.numbered, count=count)

    async def hide(self, hidden: Postings) -> None:
        """Hide these items from now on; their entries stay for searches of an earlier moment."""
        if hidden.documents:
            await self._hide(hidden, kept=hidden.documents)

    async def _hide(self, hidden: Postings, *, kept: int) -> None:
        """`kept`: the change in the number of hidden entries."""
        await self._count(-hidden.documents, -hidden.words, hidden=kept)
        await self._bound.send(
            "hide_documents", ids=list(hidden.ids), now=await self._bound.moment()
        )
        await self._bound.send("uncount_terms", counts=hidden.counts)

    async def _count(self, documents: int, words: int, *, slots: int = 0, hidden: int = 0) -> None:
        """Add to the counts. Hidden entries are kept, and go on counting towards the quota."""
        await self._bound.send(
            "count_documents",
            documents=documents,
            words=words,
            slots=slots,
            hidden_bytes=hidden * ITEM_BYTES,
        )

    async def relabelled(self, ids: Collection[str], *, text: str = "") -> None:
        """Have filters that searches hold in memory read again: what they say of these memories, or
        of the passages of a text, may be different now.
        """
        await self._bound.send("next_index_version")
        if text:
            await self._bound.send("relabel_passages", episode_id=text)
        if ids:
            await self._bound.send("relabel_documents", ids=sorted(ids))

    async def erase(
        self,
        ids: Collection[str],
        words: Postings,
        of_hidden: Iterable[str] | None = None,
        ahead: Removal | None = None,
    ) -> None:
        """Delete all entries of these items, hidden ones too. `words` are the postings of the
        findable entries, `of_hidden` all terms of the hidden ones, if they are known, and `ahead`
        what `removal` returns for these. The caller must change the epoch of the namespace in this
        transaction, or caches keep the entries.
        """
        if not ids:
            return
        hidden, lists = ahead or await self.removal(ids, words, of_hidden)
        for terms, opened, closed in lists:
            await self._bound.send("put_lists", lists=opened)
            await self._bound.send("put_closed_lists", lists=closed)
            await self._bound.send("drop_empty_lists", terms=terms)
        if hidden or words.documents:
            await self._hide(words, kept=-hidden)
        await self._bound.send("erase_documents", ids=sorted(ids))
        await self._bound.send(
            "drop_unused_terms", terms=[one for some, *_ in lists for one in some]
        )

    async def removal(
        self, ids: Collection[str], words: Postings, of_hidden: Iterable[str] | None = None
    ) -> Removal:
        """Return what `erase` writes: reading and cutting long lists takes time."""
        rows = await self._by_ids("slots_of_items", ids)
        gone, hidden = [row["slot"] for row in rows], sum(not row["findable"] for row in rows)
        terms = words.terms if words.documents else []
        if hidden:
            if of_hidden is None:
                of_hidden = chain.from_iterable((await self.terms_of_hidden(ids)).values())
            terms = sorted({*terms, *of_hidden})
        lists = [(some, *await self._without(ids, gone, some)) for some in batches(terms, TERMS)]
        return Removal(hidden, lists)

    async def entered(self, ids: Collection[str]) -> set[str]:
        """Return those of these items that have any entry, found or hidden."""
        return {row["item_id"] for row in await self._by_ids("slots_of_items", ids)}

    async def terms_of_hidden(self, ids: Collection[str]) -> dict[str, list[str]]:
        """Return the terms of the hidden entries of these items, by item. Reads all lists if there
        are such entries, as only these tell.
        """
        rows = await self._by_ids("slots_of_items", ids)
        hidden = {row["slot"]: row["item_id"] for row in rows if not row["findable"]}
        found: dict[str, list[str]] = {}
        if hidden:
            async for lists in self._all_lists():
                for term, slots in await asyncio.to_thread(having, lists, hidden):
                    for item_id in {hidden[slot] for slot in slots}:
                        found.setdefault(item_id, []).append(term)
        return found

    async def _without(
        self, ids: Collection[str], gone: Collection[int], terms: Sequence[str]
    ) -> tuple[Document, Document]:
        """Return the lists of these terms without these items, whose slots are `gone`."""
        few, first, last = len(ids) <= FEW, min(gone, default=0), max(gone, default=0)
        given = {"ids": sorted(ids) if few else [], "few": few, "first": first, "last": last}
        lists = await self._bound.fetch("lists_of", terms=terms, **given)
        return await asyncio.to_thread(shorter, lists, {*gone})

    async def moments(self, ids: Collection[str]) -> dict[str, datetime]:
        """Return since when search finds each of these items."""
        rows = await self._by_ids("moments_added", ids)
        return {row["item_id"]: moment(row["added_at"]) for row in rows}

    async def backdate(self, moments: Mapping[str, datetime]) -> None:
        """Set since when search finds these items, after their entries were made anew."""
        if moments:
            written = {one: at.isoformat(timespec="microseconds") for one, at in moments.items()}
            await self._bound.send("backdate_each", moments=Document(written))

    async def stale(self) -> list[Namespace]:
        """The namespaces whose index was made by an older recipe."""
        return await self._column("namespace", "stale_word_indexes")

    async def frequencies(self) -> dict[str, int]:
        """Return for every word the number of findable items with it. Reads page by page."""
        found: dict[str, int] = {}
        async for rows in self._pages("page_of_terms", PAGE, _BY_TERM):
            found |= {row["term"]: int(row["documents"]) for row in rows}
        return found

    async def begin_anew(self) -> bool:
        """Empty the index, except for hidden entries. Return False if it is not stale."""
        if not await self._bound.fetch("renew_word_index"):
            return False
        kept = Document(await self._hidden_lists())
        for query in ("clear_postings", "clear_documents", "clear_terms"):
            await self._bound.send(query)
        await self._bound.send("keep_hidden_terms", kept=kept)
        return True

    async def _hidden_lists(self) -> dict[str, str]:
        """Return for each term of a hidden entry its list with the hidden entries alone."""
        hidden = set(await self._column("slot", "hidden_slots"))
        found: dict[str, str] = {}
        if not hidden:
            return found
        async for lists in self._all_lists():
            for term, one in lists.items():
                if left := await asyncio.to_thread(without, one, hidden, only=True):
                    found[term] = left
        return found

    async def _all_lists(self) -> AsyncIterator[dict[str, str]]:
        async for rows in self._pages("terms_behind", TERMS, _BY_TERM):
            yield await self._lists(row["term"] for row in rows)

    async def _lists(self, terms: Iterable[str]) -> dict[str, str]:
        """Return the whole list of each of these terms."""
        behind = Document(dict.fromkeys(terms, 0))
        rows = await self._bound.fetch("postings_behind", slots=behind)
        return {row["term"]: row["found"] for row in rows}

    async def take_places(self, ids: Collection[str]) -> None:
        """Give entries that were made anew the moment since which their predecessors were found."""
        await self._bound.send("backdate_documents", ids=sorted(ids))

    async def digests(self) -> NDArray[np.uint64]:
        """Return for each slot the sum of the `posting_digest` of its postings. Reads all lists."""
        found = np.zeros(1, np.uint64)
        async for lists in self._all_lists():
            found = await asyncio.to_thread(_add_digests, found, lists)
        return found

    async def replace(self, ids: Collection[str], kept: int, made: Postings) -> None:
        """Replace the entries of these items, of which `kept` are findable. The counts of entries
        stay as they are.
        """
        await self._count(-made.documents, -made.words, hidden=kept)
        await self._bound.send("withdraw_documents", ids=sorted(ids))
        await self.add(made)
        await self._bound.send("uncount_terms", counts=made.counts)

    async def hide_entries(self, ids: Collection[str]) -> None:
        """Hide the entries of these items from now on. The counts of entries stay as they are."""
        if ids:
            await self._count(0, 0, hidden=len(ids))
            await self._bound.send(
                "hide_documents", ids=sorted(ids), now=await self._bound.moment()
            )

    async def correct(self, terms: Mapping[str, int], documents: int, words: int) -> None:
        """Subtract from the counts what they have too many."""
        await self._count(-documents, -words)
        await self._bound.send("uncount_terms", counts=Document(dict(terms)))

    async def expect(self, known: Statistics, otherwise: Failure) -> None:
        """Have this transaction fail if a memory, text or entry has changed since these were."""
        given = {"erase_epoch": known.erase_epoch, "version": known.version}
        await self._bound.expect("index_unchanged", otherwise, last_event=known.last_event, **given)

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
            rows[0]["slots"],
            {row["term"]: int(row["frequency"]) for row in found if row["frequency"] > 0},
            {row["term"]: int(row["last_slot"]) for row in found},
        )

    async def of_allowed(self, statistics: Statistics, *, limited: bool) -> Statistics:
        """Return the statistics of only those items that were found at the requested moment: one
        pass over the postings of the terms. For a `limited` token only those in its access scope
        count, each with the mean length of those that have any of the terms.
        """
        documents = await self.documents(statistics)
        # Take them before the next await: a concurrent search may evict them.
        postings = documents.postings(statistics.last_slots)
        allowed = await (self.allowed(documents) if limited else self._found(documents))
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
        return self._bound.cache.index(self._bound.namespace, statistics.erase_epoch).documents

    async def documents(self, statistics: Statistics) -> Documents:
        """Return the documents of this namespace, as of `statistics` or later, with the postings of
        its terms. Reads only what is not in memory yet.
        """
        documents = self.cached(statistics)
        lacking = documents.lacking(statistics.last_slots)
        if documents.version >= statistics.version and not lacking:
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
        async for page in self._changed_since("page_of_documents", documents.version):
            slots = np.fromstring(page["slots"], dtype=np.int64, sep=" ")
            findable = np.frombuffer(page["findable"].encode(), dtype=np.uint8) == ord("1")
            documents.update(slots, findable)

    async def _changed_since(self, query: str, version: int) -> AsyncIterator[Row]:
        """Yield the entries that have changed since a version of the index, page by page."""
        slot, read = LAST, PAGE
        while read == PAGE:
            (page,) = await self._bound.fetch(query, version=version, slot=slot, limit=PAGE)
            read = page["documents"]
            if not read:
                return
            yield page
            version, slot = page["version"], int(page["slots"].rpartition(" ")[2])

    async def load(self, documents: Documents, slots: Slots) -> None:
        """Read the columns that ranking needs of the documents at these slots, where missing."""
        missing = documents.missing(slots)
        if missing:
            async with documents.loading:
                documents.load(await self._bound.fetch("placed", slots=missing))

    async def of_facts(self, names: Collection[str], attributes: Collection[str]) -> list[int]:
        """Return the slots of the entries that state one of these attributes of a subject."""
        given = {"names": sorted(names), "attributes": sorted(attributes), "limit": FACTS_MAX}
        return await self._column("slot", "slots_of_facts", **given)

    async def allowed(self, documents: Documents) -> Flags:
        """Return for each slot whether search finds it (or found it at the requested moment) and
        the caller's access scope includes it.
        """
        found, scope = await self._found(documents), self._bound.access_scope
        if scope.everything:
            return found
        upto, flags = documents.scope(scope)
        if upto < documents.last:
            (row,) = await self._bound.fetch("slots_in_reach", after=upto)
            slots = np.fromstring(row["slots"] or "", dtype=np.int64, sep=" ")
            flags = documents.extend_scope(scope, row["upto"] or 0, slots)
        size = min(len(flags), len(found))
        return flags[:size] & found[:size]

    async def _found(self, documents: Documents) -> Flags:
        known_at = self._bound.past.known_at
        if known_at is None:
            return documents.findable
        await self._read_intervals(documents)
        return documents.found_at(known_at)

    async def true_then(self, documents: Documents, statistics: Statistics) -> Flags:
        """Return for each slot whether it may have been true at the requested moment."""
        past, truths = self._bound.past, documents.truths
        assert past.as_of is not None
        if truths.seq < statistics.last_event or truths.slot < documents.last:
            async with documents.loading:
                await self._read_truths(documents, statistics)
        return truths.true_at(past.as_of, past.known_at, documents.size)

    async def _read_truths(self, documents: Documents, statistics: Statistics) -> None:
        """Read in pages, since a statement has a time limit. If the search is cancelled, the next
        one goes on from the pages that were read.
        """
        truths, last = documents.truths, documents.last
        if truths.slot == 0:
            # All entries are read in their present state, which includes the events so far.
            truths.seq = statistics.last_event
        read = TRUTHS_PAGE
        while read == TRUTHS_PAGE:
            (page,) = await self._bound.fetch(
                "page_of_truths", slot=truths.slot, seq=truths.seq, limit=TRUTHS_PAGE
            )
            truths.update(page)
            read = max(page["entries"], page["events"])
        truths.seq = max(truths.seq, statistics.last_event)
        truths.slot = max(truths.slot, last)

    async def _read_intervals(self, documents: Documents) -> None:
        """Read the intervals of entries, as of the documents in memory or later."""
        if documents.intervals.version >= documents.version:
            return
        async with documents.loading:
            intervals = documents.intervals
            async for page in self._changed_since("page_of_intervals", intervals.version):
                intervals.update(page)

    async def similar(
        self,
        weights: Mapping[str, float],
        average_length: float,
        limit: int,
    ) -> list[str]:
        """Return the ids of the `limit` items with the best BM25 score, best first, including what
        this transaction has changed. Reads all postings of the terms. A limited token gets only the
        memories in its access scope.
        """
        parts: list[NDArray[np.int64]] = []
        lists = await self._lists(weights) if weights else {}
        for term, found in lists.items():
            slots, times, lengths = numbers_of(found).T
            norm = times + K1 * (1.0 - B + B * lengths / average_length)
            # In whole millionths, so that the sum does not depend on the order of the terms.
            scores = np.rint(1_000_000 * weights[term] * times * (K1 + 1.0) / norm)
            parts.append(np.stack([slots, scores.astype(np.int64)]))
        if not parts:
            return []
        read, scores = np.concatenate(parts, axis=1)
        slots, which = np.unique(read, return_inverse=True)
        totals = np.zeros(len(slots), np.int64)
        np.add.at(totals, which, scores)
        best_first = slots[np.lexsort((slots, -totals))].tolist()
        found_ids: list[str] = []
        looked_at = 0
        while looked_at < len(best_first) and len(found_ids) < limit:
            # Most of the best are findable; a second lookup is rare.
            page = best_first[
                looked_at : looked_at + (ITEMS_PER_HIT * limit if not looked_at else PAGE)
            ]
            looked_at += len(page)
            rows = await self._bound.fetch("items_at", slots=page)
            ids = {row["slot"]: row["item_id"] for row in rows}
            found_ids += [ids[slot] for slot in page if slot in ids]
        return found_ids[:limit]

    async def shared(self, terms: Iterable[str], limit: int = LAST) -> dict[int, int]:
        """Return, by slot, how many of these terms each entry has, if any: of the `limit` entries
        with the most, later ones first.
        """
        lists = (await self._lists(terms)).values()
        # A namespace may have a million entries with a common word.
        return await asyncio.to_thread(_shared, lists, limit)


def _shared(lists: Iterable[str], limit: int) -> dict[int, int]:
    slots = [numbers_of(one)[:, 0] for one in lists]
    if not slots:
        return {}
    found, counts = np.unique(np.concatenate(slots), return_counts=True)
    best = np.lexsort((-found, -counts))[:limit]
    return dict(zip(found[best].tolist(), counts[best].tolist(), strict=True))


@lru_cache(maxsize=PAGE)
def _number(term: str) -> int:
    return int.from_bytes(blake2b(term.encode(), digest_size=8).digest())


def posting_digest(term: str, often: int, length: int) -> int:
    """Return a digest of one posting: sums of them, modulo 2**64, tell whether postings differ."""
    return _number(term) * (MULTIPLIER * often + length)


def _add_digests(found: NDArray[np.uint64], lists: Mapping[str, str]) -> NDArray[np.uint64]:
    for term, one in lists.items():
        slots, times, lengths = numbers_of(one).T
        if len(slots) and (last := int(slots.max())) >= len(found):
            found = np.concatenate([found, np.zeros(last + 1, np.uint64)])
        numbers = (MULTIPLIER * times + lengths).astype(np.uint64)
        np.add.at(found, slots, np.uint64(_number(term)) * numbers)
    return found
