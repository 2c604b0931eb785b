"""Derives memories and the index from texts and events, in batches that are kept, and compares the
rows that searches read with them.
"""

import asyncio
import hashlib
import json
import operator
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recall_server import __version__
from recall_server.domain import record
from recall_server.domain.ids import Namespace
from recall_server.domain.memory import FINDABLE, Status
from recall_server.domain.memory_event import Histories, MemoryState
from recall_server.services.memory import indexing
from recall_server.storage.driver import Row, batches
from recall_server.storage.index.words import Postings, posting_digest, postings
from recall_server.storage.store import Store, Transaction
from recall_server.storage.tables.memory_events import (
    Cursor,
    Ends,
    InGroup,
    Kept,
    Moment,
    Stated,
    kept_relations,
    keys_in,
)

# A batch has this many memories, or texts.
MEMORIES = 500
TEXTS = 20
NAMED_MAX = 100

_NEVER = datetime.min.replace(tzinfo=UTC)

Progress = Callable[[int], object]
# Values of JSON. Of a state: its fields in their order. Of an entry: the turn and places, the
# length, and the digest of its postings.
Values = list[Any]
# How many values of an entry say where a passage is: all are null for a memory.
PLACE = 5


@dataclass(frozen=True)
class Batch:
    """The states and index entries that some memories or some texts give.

    `states`, `entries`: by memory, and by item of the index.
    `texts`: the texts whose passages are in `entries`.
    `terms`: the number of entries with each word.
    """

    states: Mapping[str, Values] = field(default_factory=dict)
    texts: Collection[str] = ()
    entries: Mapping[str, Values] = field(default_factory=dict)
    terms: Mapping[str, int] = field(default_factory=dict)

    @property
    def ids(self) -> Collection[str]:
        return [*self.states, *self.texts]


@dataclass(frozen=True)
class Compared:
    """The comparison of what search reads with what texts and events say.

    `memories`: the number of memories.
    `different`: the ids of those whose state differs, `NAMED_MAX` at most.
    `items`, `words`: how many items and words of the index differ.
    `digest`, `rebuilt`: the digests of what is read, and of what is derived.
    `counts`: how many counts of memories, by type and topic, differ.
    `altered`: the ids of those whose text, type, fact or citations are not what was recorded, or
    that have no row any more; `repaired`: those of them that were written again; `unmade`: those
    that cannot be, each with the reason.
    `untold`: of how many memories an older release recorded no digest.
    `relations`: those that no event states, or of which an event tells no more than that they were
    stated, `NAMED_MAX` at most; `restated`: how many others are not as they were stated.
    `disputes`: how many rows of memories in disputes differ.
    `labels`: the memories whose labels are not those of their text, `NAMED_MAX` at most.
    `broken`: how many vectors are not as they were stored; jobs make them anew.
    `vectors`: how many items have no vector yet; jobs make them, so this is no difference.
    `resumed`: how many memories and texts an interrupted run had derived before.
    """

    memories: int
    different: tuple[str, ...]
    items: int
    words: int
    digest: str
    rebuilt: str
    counts: int = 0
    altered: tuple[str, ...] = ()
    repaired: tuple[str, ...] = field(default=(), compare=False)
    unmade: Mapping[str, str] = field(default_factory=dict)
    untold: int = 0
    relations: tuple[Ends, ...] = ()
    restated: int = 0
    disputes: int = 0
    labels: tuple[str, ...] = ()
    broken: int = 0
    vectors: int = 0
    resumed: int = field(default=0, compare=False)

    @property
    def same(self) -> bool:
        return self.digest == self.rebuilt


@dataclass
class Differences:
    """The differences as of one moment.

    `states`: what the states of memories should be.
    `wrong`, `extra`: the items whose entries are missing or wrong, and those that should have none.
    `terms`, `documents`, `words`: how many entries the counts have too many.
    `owners`: the memories and texts of these items.
    `keys`: the memories whose keys are not those of their fact.
    `counts`: how many memories the counts lack, by type and topic.
    `altered`: the memories that are not as recorded, `digests`: those that events lack.
    `disputes`: the rows of memories in disputes; None: no row. `labels`: those of their texts.
    `relations`: as they were stated.
    `broken`: the items whose vectors are not as they were stored.
    """

    moment: Moment
    erase_epoch: int
    states: dict[str, MemoryState] = field(default_factory=dict)
    wrong: set[str] = field(default_factory=set)
    extra: set[str] = field(default_factory=set)
    terms: Counter[str] = field(default_factory=Counter)
    documents: int = 0
    words: int = 0
    owners: set[str] = field(default_factory=set)
    keys: dict[str, Row] = field(default_factory=dict)
    counts: dict[tuple[str, str], int] = field(default_factory=dict)
    altered: list[str] = field(default_factory=list)
    digests: dict[int, str] = field(default_factory=dict)
    disputes: dict[InGroup, dict[str, Any] | None] = field(default_factory=dict)
    labels: dict[str, Row] = field(default_factory=dict)
    relations: dict[Ends, Stated] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)


class _Digest:
    """A digest of values in any order: the sum of their SHA-256."""

    def __init__(self) -> None:
        self._sum = 0

    def add(self, *value: object) -> None:
        found = hashlib.sha256(json.dumps(value).encode()).digest()
        self._sum += int.from_bytes(found)

    def __str__(self) -> str:
        return f"{self._sum % 2**256:064x}"


async def derive(store: Store, namespace: Namespace, on_progress: Progress) -> int:
    """Derive all of a namespace, a batch at a time, and keep each, to be read by `compare`. Goes on
    where an interrupted run was. Return how many memories and texts that one had derived.
    """
    resumed = 0
    async with store.transaction(namespace, write=False) as tx:
        cursor = await tx.rebuilt.cursor(__version__)
        if cursor is not None:
            async for _, text in tx.rebuilt.batches():
                resumed += len((await asyncio.to_thread(_batch, text)).ids)
    if cursor is None:
        cursor = Cursor()
        async with store.transaction(namespace) as tx:
            await tx.rebuilt.discard()
    count = resumed
    on_progress(count)
    while True:
        async with store.transaction(namespace, write=False) as tx:
            now = await tx.words.statistics()
            batch, cursor = await _next(tx, cursor)
        if not batch.ids:
            return resumed
        derived = await asyncio.to_thread(json.dumps, vars(batch))
        async with store.transaction(namespace, locked=True) as tx:
            stands = await tx.rebuilt.keep(__version__, cursor, derived, now)
        if stands:
            count += len(batch.ids)
        else:  # An erasure has discarded all batches.
            cursor, count, resumed = Cursor(), 0, 0
        on_progress(count)


async def _next(tx: Transaction, cursor: Cursor) -> tuple[Batch, Cursor]:
    if not cursor.episode_id:
        memories = await tx.rebuilt.memories(cursor.memory_id, MEMORIES)
        if memories:
            return await _of_memories(tx, memories), Cursor(memories[-1])
    texts = await tx.rebuilt.texts(cursor.episode_id, TEXTS)
    after = Cursor(cursor.memory_id, texts[-1] if texts else cursor.episode_id)
    return await _of_texts(tx, texts), after


async def _of_memories(tx: Transaction, ids: Collection[str]) -> Batch:
    states = {**await tx.rebuilt.states(ids), **await tx.rebuilt.last_states(ids)}
    findable = [one for one, state in states.items() if state.status in FINDABLE]
    made = await asyncio.to_thread(postings, await tx.findables.memories(findable))
    entries = await asyncio.to_thread(_entries, made)
    return Batch(
        states={one: _values(state) for one, state in states.items()},
        entries=entries,
        terms=made.counts.value,
    )


async def _of_texts(tx: Transaction, ids: Collection[str]) -> Batch:
    made = await asyncio.to_thread(postings, await indexing.of_episodes(tx, ids))
    entries = await asyncio.to_thread(_entries, made)
    return Batch(texts=list(ids), entries=entries, terms=made.counts.value)


def _entries(made: Postings) -> dict[str, Values]:
    digests: Counter[str] = Counter()
    for term, item_id, often, length in made.rows:
        digests[item_id] += posting_digest(term, often, length)
    return {
        item_id: [*place, *(None,) * (PLACE - len(place)), length, digests[item_id] % 2**64]
        for item_id, length, *place in made.entries.value
    }


async def compare(tx: Transaction, model: str | None) -> tuple[Compared, Differences]:
    """Compare all of a namespace with the batches that were kept. What has changed since, and what
    no batch includes, is derived again. With a `model` of vectors, items without one are counted.
    """
    now = await tx.words.statistics()
    sides = _Sides(
        tx,
        Differences(Moment(now.last_event, now.version), now.erase_epoch),
        await tx.words.digests(),
    )
    async for batch in _batches(tx):
        await sides.take(batch)
    await sides.end(now.documents, now.words, model)
    return sides.compared, sides.differences


async def _batches(tx: Transaction) -> AsyncIterator[Batch]:
    seen: set[str] = set()
    changed: dict[str, Moment] | None = None
    async for moment, text in tx.rebuilt.batches():
        if changed is None:  # The first batch is the oldest.
            changed = await tx.rebuilt.changed_after(moment)
        batch = await asyncio.to_thread(_batch, text)
        # Two rebuilds at a time may both have derived an item.
        if seen.isdisjoint(batch.ids) and not any(
            one in changed and any(map(operator.gt, changed[one], moment)) for one in batch.ids
        ):
            seen.update(batch.ids)
            yield batch
    cursor = Cursor()
    while memories := await tx.rebuilt.memories(cursor.memory_id, MEMORIES):
        cursor = Cursor(memories[-1])
        if left := [one for one in memories if one not in seen]:
            yield await _of_memories(tx, left)
    while texts := await tx.rebuilt.texts(cursor.episode_id, TEXTS):
        cursor = Cursor(cursor.memory_id, texts[-1])
        if left := [one for one in texts if one not in seen]:
            yield await _of_texts(tx, left)


@dataclass
class _Sides:
    tx: Transaction
    differences: Differences
    digests: NDArray[np.uint64]
    memories: int = 0
    live: _Digest = field(default_factory=_Digest)
    derived: _Digest = field(default_factory=_Digest)
    terms: Counter[str] = field(default_factory=Counter)
    items: set[str] = field(default_factory=set)
    words: int = 0
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    untold: int = 0
    relations: list[Ends] = field(default_factory=list)
    stated: dict[Ends, Stated] = field(default_factory=dict)
    known: set[str] = field(default_factory=set)
    vectors: int = 0

    async def take(self, batch: Batch) -> None:
        self.memories += len(batch.states)
        self.known.update(batch.states)
        live = await self.tx.rebuilt.states(batch.states)
        kept = await self.tx.rebuilt.kept(batch.states)
        checked = await asyncio.to_thread(_checked, {one: kept[one] for one in live})
        for memory in kept.values():
            self.stated |= kept_relations(memory.events)
        for one, state in batch.states.items():
            self.derived.add("state", one, state)
            if one not in live:
                continue  # erased since
            now = _values(live[one])
            self.live.add("state", one, now)
            if now[:-1] != state[:-1]:
                self.differences.states[one] = _state(state)
                self.differences.owners.add(one)
            self._record(one, kept[one].row, checked[one], whole=now[-1] == state[-1])
            if _state(state).retired_at is None:
                self.counts[kept[one].row["type"], kept[one].row["topic"]] += 1
        labels = await self.tx.rebuilt.other_labels(batch.states)
        self.differences.labels.update(labels)
        self.differences.owners.update(labels)
        for one in labels:
            self.live.add("labels", one)
        found: dict[str, Values] = {}
        for item_id, slot, *rest in await self._rows(batch.entries):
            entry = [*rest, self._digest(slot)]
            self.live.add("item", item_id, entry)
            # Of two entries of one item at least one is wrong.
            found[item_id] = [] if item_id in found else entry
        for item_id, entry in batch.entries.items():
            self.derived.add("item", item_id, entry)
            self.words += entry[-2]
            if found.get(item_id) != entry:
                self.differences.wrong.add(item_id)
        self.items.update(batch.entries)
        self.terms.update(batch.terms)
        right = self.differences.wrong.isdisjoint(batch.entries)
        self.differences.owners.update(() if right else batch.ids)

    def _record(self, memory_id: str, row: Row, checked: record.Checked, *, whole: bool) -> None:
        if checked.intact is None and checked.first:
            self.untold += 1
            self.differences.digests[checked.first] = checked.digest
        if checked.intact is False or not whole:
            self.live.add("altered", memory_id)
            self.differences.altered.append(memory_id)
        if any(row[name] != key for name, key in keys_in(row).items()):
            self.live.add("keys", memory_id)
            self.differences.keys[memory_id] = row
            self.differences.owners.add(memory_id)

    def _digest(self, slot: int) -> int:
        return int(self.digests[slot]) if slot < len(self.digests) else 0

    async def _rows(self, ids: Iterable[str]) -> list[Values]:
        rows: list[Values] = []
        for some in batches(ids, MEMORIES):
            rows += [[*dict(row).values()] for row in await self.tx.rebuilt.entries(some)]
        return rows

    async def end(self, documents: int, words: int, model: str | None) -> None:
        """Compare what remains: entries that should not be, the counts, relations, vectors, and
        memories that have no row.
        """
        ids, after = await self.tx.findables.page(0)
        while ids:
            if model is not None:
                self.vectors += len(await self.tx.vectors.lacking(model, ids))
                broken = await self.tx.vectors.broken(model, ids)
                self.differences.broken += broken
                for one in broken:
                    self.live.add("vector", one)
            extra = [one for one in ids if one not in self.items]
            for item_id, slot, *rest in await self._rows(extra):
                self.live.add("item", item_id, [*rest, self._digest(slot)])
            self.differences.extra.update(extra)
            ids, after = await self.tx.findables.page(after)
        live = Counter(await self.tx.words.frequencies())
        for digest, terms, counts in (
            (self.live, live, (documents, words)),
            (self.derived, self.terms, (len(self.items), self.words)),
        ):
            digest.add("counts", *counts)
            for term, count in terms.items():
                digest.add("word", term, count)
        await self._lost()
        await self._relations()
        await self._disputes()
        await self._counts()
        live.subtract(self.terms)
        self.differences.terms = Counter({term: many for term, many in live.items() if many})
        self.differences.documents = documents - len(self.items)
        self.differences.words = words - self.words

    async def _lost(self) -> None:
        after = ""
        while ids := await self.tx.rebuilt.with_events(after, MEMORIES):
            after = ids[-1]
            lost = [one for one in ids if one not in self.known]
            self.differences.altered += lost
            for memory_id in lost:
                self.derived.add("row", memory_id)
            for kept in (await self.tx.rebuilt.kept(lost)).values():
                self.stated |= kept_relations(kept.events)

    async def _relations(self) -> None:
        """Compare relations with those that events keep. Of others the events of both ends tell;
        one that came with a new memory was made at the moment of that.
        """
        found = await self.tx.rebuilt.relations()
        for one, kept in self.stated.items():
            if self.known.issuperset(one[:2]) and found.get(one) != kept:
                self.derived.add("relation", one)
                self.differences.relations[one] = kept
        found = {one: row for one, row in found.items() if one not in self.stated}
        stated = await self.tx.rebuilt.stated()
        known = found.keys() | self.stated.keys()
        ends: dict[tuple[str, str], list[str]] = {}
        for memory_id, change_id, reason in stated:
            ends.setdefault((change_id, reason), []).append(memory_id)
        for from_id, change_id, kind in stated:
            to_ids = ends.get((change_id, f"inbound {kind}"), ())
            if to_ids and not any((from_id, to_id, kind) in known for to_id in to_ids):
                self.derived.add("relation", from_id, kind)
                self.relations.append((from_id, to_ids[0], kind))
        by_event = {(memory_id, reason) for memory_id, _, reason in stated}
        others = [one for one in found if (one[0], one[2]) not in by_event]
        for some in batches(others, MEMORIES):
            added = await self.tx.rebuilt.added_at({end for one in some for end in one[:2]})
            for one in some:
                if not {None, found[one].made_at} & {added.get(end, _NEVER) for end in one[:2]}:
                    self.live.add("relation", one)
                    self.relations.append(one)

    async def _disputes(self) -> None:
        """Compare the rows of memories in disputes with the events that opened and ended them. Of
        an imported dispute no event tells how it was opened.
        """
        rows = await self.tx.rebuilt.disputes()
        events = await self.tx.rebuilt.events_of_disputes()
        histories = Histories(events)
        stated = {
            (dispute, memory_id): known
            for memory_id in {one.item_id for one in events} & self.known
            for dispute, known in histories.in_disputes(memory_id).items()
        }
        untold = {memory_id for _, memory_id in rows.keys() - stated.keys()}
        added = await self.tx.rebuilt.added_at(untold) if untold else {}
        for place in rows:
            if place not in stated and added.get(place[1], _NEVER) is not None:
                self.live.add("dispute", *place)
                self.differences.disputes[place] = None
        opened = [(known.seq, place) for place, known in stated.items() if known.opened_at]
        # The new side of a dispute has the first event: of several, the last that is written stays.
        new = {dispute: memory_id for _, (dispute, memory_id) in sorted(opened, reverse=True)}
        for place, known in stated.items():
            dispute, memory_id = place
            row = rows.get(place, {})
            should = {
                "side": "new" if new.get(dispute) == memory_id else "existing",
                "opened_at": known.opened_at,
                "closed_at": known.closed_at,
            }
            if known.opened_at is None:
                should |= {name: row.get(name) for name in ("side", "opened_at")}
            if row != should and should["opened_at"] is not None:
                self.derived.add("dispute", *place)
                self.differences.disputes[place] = should

    async def _counts(self) -> None:
        counted = await self.tx.rebuilt.counts()
        for digest, counts in ((self.live, counted), (self.derived, self.counts)):
            for named, many in counts.items():
                digest.add("count", named, many)
        more = {
            named: self.counts[named] - counted.get(named, 0) for named in counted | self.counts
        }
        self.differences.counts = {named: many for named, many in more.items() if many}

    @property
    def compared(self) -> Compared:
        differ = self.differences
        return Compared(
            self.memories,
            tuple(differ.states | differ.keys)[:NAMED_MAX],
            len(differ.wrong) + len(differ.extra),
            len(differ.terms),
            str(self.live),
            str(self.derived),
            counts=len(differ.counts),
            altered=tuple(differ.altered)[:NAMED_MAX],
            untold=self.untold,
            relations=tuple(self.relations)[:NAMED_MAX],
            restated=len(differ.relations),
            disputes=len(differ.disputes),
            labels=tuple(differ.labels)[:NAMED_MAX],
            broken=len(differ.broken),
            vectors=self.vectors,
        )


async def still(tx: Transaction, differences: Differences) -> bool:
    """Return whether what differs is as it was when it was compared."""
    now = await tx.words.statistics()
    if now.erase_epoch != differences.erase_epoch:
        return False
    changed = await tx.rebuilt.changed_after(differences.moment)
    return not changed or (not differences.extra and differences.owners.isdisjoint(changed))


async def mend(tx: Transaction, differences: Differences) -> None:
    await tx.memories.mend(differences.states)
    for memory_id, row in differences.keys.items():
        await tx.rebuilt.write_keys(memory_id, row)
    await tx.events.correct_counts(differences.counts)
    await tx.rebuilt.give_digests(differences.digests)
    await tx.rebuilt.write_disputes(differences.disputes)
    await tx.rebuilt.write_relations(differences.relations)
    await tx.rebuilt.write_labels(differences.labels)
    if differences.labels:
        await tx.words.relabelled(list(differences.labels))
    if differences.broken:
        await tx.vectors.remove_found(differences.broken)
    await tx.words.hide_entries(differences.extra)
    for ids in batches(sorted(differences.wrong), MEMORIES):
        await indexing.replace(tx, ids)
    await tx.words.correct(differences.terms, differences.documents, differences.words)


def _checked(kept: Mapping[str, Kept]) -> dict[str, record.Checked]:
    return {i: record.check(one.row, one.citations, one.events) for i, one in kept.items()}


def _batch(text: str) -> Batch:
    return Batch(**json.loads(text))


def _values(state: MemoryState) -> Values:
    return [one.isoformat() if isinstance(one, datetime) else one for one in vars(state).values()]


def _state(values: Values) -> MemoryState:
    status, superseded_by, until, retired, expires, *rest = values
    moments: Values = [one and datetime.fromisoformat(one) for one in (until, retired, expires)]
    return MemoryState(Status(status), superseded_by, *moments, *rest)
