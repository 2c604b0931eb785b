"""Carries out an erasure: in the transaction of the call if it is small, and otherwise in many
short transactions of the job `purge`, so that no call waits for it.

A large erasure takes these steps: the first transaction closes the target, batches of rows are
deleted and redacted, and the last batch ends the erasure. A batch no longer finds rows that are
erased, so after a crash the job continues where it was.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import structlog

from recall_server.domain.context import Runtime
from recall_server.domain.episode import Span, texts_in
from recall_server.domain.erasure import (
    QUOTE_TERMS_MIN,
    TURN_TERMS_MIN,
    Digests,
    Kind,
    Subject,
    as_read,
    distinctive,
)
from recall_server.domain.ids import NONE
from recall_server.domain.permissions import FULL_ACCESS, AccessScope
from recall_server.services.erasure import redact
from recall_server.services.erasure.ledger import Ledger, Noted
from recall_server.services.erasure.redact import EPISODES, MEMORIES, Affected, restore_turns
from recall_server.services.memory.indexing import promise_vectors
from recall_server.storage.driver import Row, span
from recall_server.storage.store import Store, Transaction
from recall_server.storage.tables import registry
from recall_server.storage.tables.erasure import Erasure, Table, TaskDocuments
from recall_server.storage.tables.registry import Part


@dataclass(frozen=True)
class Batch:
    """How much one transaction erases: `items` texts or memories, with about `rows` rows."""

    items: int
    rows: int


ALL = Batch(2**31 - 1, 2**31 - 1)
NONE_YET = Batch(0, 0)


class Lookup(ABC):
    """Finds the target of an erasure; later calls cost less than the first."""

    async def size(self, tx: Transaction) -> Mapping[str, int]:  # noqa: ARG002
        """Return the number of rows by table, if they can be counted without reading them."""
        return {}

    @abstractmethod
    async def find(self, tx: Transaction, batch: Batch) -> Affected | None:
        """Return the first batch of the target, without what rests on it; None if there is no
        such thing.
        """

    def erased(self, affected: Affected) -> None:  # noqa: B027
        """Note that these rows are erased in the transaction that has found them."""


@dataclass
class Item(Lookup):
    """One memory in any state, or one turn, by its id. It is erased whole, whatever the batch."""

    id: str

    async def find(self, tx: Transaction, batch: Batch) -> Affected | None:  # noqa: ARG002
        affected = Affected()
        affected.memories = {row["id"]: row for row in await tx.erasures.memories_of([self.id])}
        if affected.memories:
            await _add_citations(tx, affected)
        elif turn := await tx.erasures.turn(self.id):
            affected.add(turn["episode_id"], span(turn))
        elif lost := await tx.erasure_scan.lost(self.id):
            _add_lost(affected, lost)
        else:
            return None
        return affected


@dataclass
class Container(Lookup):
    """A container, or its content when an erasure began: first its texts, then its memories."""

    name: str
    erasure_id: str

    async def size(self, tx: Transaction) -> Mapping[str, int]:
        return await tx.erasure_scan.size(self.name)

    async def find(self, tx: Transaction, batch: Batch) -> Affected:
        affected = Affected(container=self.name)
        texts = await self._ids(tx, "episodes", batch)
        affected.last = len(texts) < batch.items
        if texts and batch is not ALL:
            some = await tx.erasure_scan.up_to(texts, batch.rows)
            affected.last = affected.last and len(some) == len(texts)
            texts = some
        for episode, turns in await tx.erasures.episodes_of(texts):
            affected.take(episode, turns)
        if affected.last:
            memories = await self._ids(tx, "memories", batch)
            affected.last = len(memories) < batch.items
            rows = await tx.erasures.memories_of(memories)
            affected.memories = {row["id"]: row for row in rows}
        return affected

    async def _ids(self, tx: Transaction, table: Table, batch: Batch) -> list[str]:
        return await tx.erasure_scan.in_container(
            table, self.name, erasure_id=self.erasure_id, limit=batch.items
        )


@dataclass
class _Read:
    """Remembers which rows of a table were read, so that later calls read only new ones."""

    table: Table
    _ids: set[str] = field(default_factory=set)
    _last: str = ""

    async def more(
        self, tx: Transaction, *, erased: bool, again: Collection[str]
    ) -> AsyncIterator[Sequence[Row]]:
        """Yield the rows that were not read yet, and those of `again` that were; `erased`: some may
        have been deleted since.
        """
        async for page in tx.erasure_scan.rows(self.table, self._ids.intersection(again)):
            yield page
        async for page in tx.erasure_scan.pages(self.table, self._last):
            self._last = page[-1]["id"]
            self._ids |= {row["id"] for row in page}
            yield page
        # New rows may have ids that sort before the last one. A changed count reveals them, unless
        # rows were deleted too.
        if erased or await tx.erasure_scan.count(self.table) != len(self._ids):
            present = set(await tx.erasure_scan.ids(self.table))
            new = present - self._ids
            self._ids = present
            async for page in tx.erasure_scan.rows(self.table, new):
                yield page

    def deleted(self, ids: Iterable[str]) -> None:
        self._ids.difference_update(ids)


class _Marks(NamedTuple):
    """The spans at which a text names the subject, and whether its labels name it."""

    spans: frozenset[Span]
    labels: bool


@dataclass
class Named(Lookup):
    """All that names a subject. No index has every name, so the whole namespace is read once. Only
    an erasure changes the words of rows that were read, and it adds no name. A relabel may add a
    name to their labels, so relabelled rows are read again.
    """

    subject: Subject
    _memories: _Read = field(default_factory=lambda: _Read("memories"))
    _episodes: _Read = field(default_factory=lambda: _Read("episodes"))
    _naming: set[str] = field(default_factory=set)
    _labelled: set[str] = field(default_factory=set)
    _marks: dict[str, _Marks] = field(default_factory=dict)
    _lost: dict[str, dict[str, Any]] | None = None
    _epoch: int | None = None
    _event: int | None = None

    async def find(self, tx: Transaction, batch: Batch) -> Affected:
        await self._read(tx)
        affected = Affected(self.subject)
        known = (self._naming, self._labelled, self._marks)
        naming, labelled, marked = (sorted(ids)[: batch.items] for ids in known)
        affected.last = all(len(ids) <= batch.items for ids in known)
        affected.labelled = set(labelled)
        affected.memories = {row["id"]: row for row in await tx.erasures.memories_of(naming)}
        await _add_citations(tx, affected)
        _add_lost(affected, {i: self._lost[i] for i in naming if self._lost and i in self._lost})
        if marked:
            await asyncio.to_thread(self._add_marks, affected, marked)
        texts = [one for one in marked if self._marks[one].labels]
        for episode, turns in await tx.erasures.episodes_of(texts):
            affected.episodes[episode["id"]] = (episode, turns)
        # A memory that this batch only relabels must still be erased if its words name the subject.
        affected.batch = {*naming, *marked}
        return affected

    def erased(self, affected: Affected) -> None:
        self._naming -= affected.batch | affected.memories.keys()
        self._labelled -= affected.batch | affected.memories.keys() | affected.labelled
        for episode_id in self._marks.keys() & affected.batch:
            del self._marks[episode_id]
        self._memories.deleted(affected.memories)
        # That of this erasure: nobody else erases, as the transaction has the lock.
        self._epoch = (self._epoch or 0) + 1

    async def _read(self, tx: Transaction) -> None:
        epoch, event = await tx.erasure_scan.moment()
        if (epoch, event) == (self._epoch, self._event):
            return  # every change of a memory or a text is an event
        erased, self._epoch = epoch != self._epoch, epoch
        again = set[str]()
        if self._event is not None and self._event != event:
            again = await tx.erasure_scan.relabelled(self._event)
        self._event = event
        self._naming -= again
        self._labelled -= again
        for episode_id in self._marks.keys() & again:
            del self._marks[episode_id]
        if self._lost is None:
            self._lost = await tx.erasure_scan.lost()
            for ids in await asyncio.to_thread(self._named_in, [*self._lost.values()]):
                self._naming |= ids
        async for page in self._memories.more(tx, erased=erased, again=again):
            naming, labelled = await asyncio.to_thread(self._named_in, page)
            self._naming |= naming
            self._labelled |= labelled
        if erased and self._marks:
            # Read the marked texts again: they may have been deleted or redacted since.
            texts = await tx.erasures.episodes_of(self._marks)
            self._marks = await asyncio.to_thread(self._marked, texts)
        async for page in self._episodes.more(tx, erased=erased, again=again):
            texts = await tx.erasures.with_turns(page)
            self._marks |= await asyncio.to_thread(self._marked, texts)

    def _named_in(self, memories: Sequence[Row]) -> tuple[set[str], set[str]]:
        """Return the ids of memories that name the subject in their words, and in their labels."""
        named = self.subject.named
        labels = MEMORIES.labels_of
        return (
            {row["id"] for row in memories if named(*(row[name] for name in MEMORIES.words))},
            {row["id"] for row in memories if named(*labels(row).values())},
        )

    def _add_marks(self, affected: Affected, marked: Iterable[str]) -> None:
        for episode_id in marked:
            for where in self._marks[episode_id].spans:
                affected.add(episode_id, where)

    def _marked(self, texts: Iterable[tuple[Row, list[Row]]]) -> dict[str, _Marks]:
        """Return the marks of those texts that name the subject."""
        named, found = self.subject.named, {}
        for episode, turns in texts:
            text, labels = episode["text"], [*EPISODES.labels_of(episode).values()]
            sessions = [turn["session"] for turn in turns]
            labels += [episode["idempotency_key"], *sessions]
            speakers = [turn["speaker"] for turn in turns]
            if not self.subject.may_be_in(as_read([text, labels, speakers])):
                continue
            spans = {
                span(turn)
                for turn in turns
                if named(turn["speaker"], text[turn["span_start"] : turn["span_end"]])
            }
            spans |= {*self.subject.places(text)}
            in_labels = named(*labels)
            if spans or in_labels:
                found[episode["id"]] = _Marks(frozenset(spans), in_labels)
        return found


async def _add_citations(tx: Transaction, affected: Affected) -> None:
    for row in await tx.erasures.citations(affected.memories):
        affected.add(row["episode_id"], span(row))


def _add_lost(affected: Affected, lost: Mapping[str, dict[str, Any]]) -> None:
    """Add memories whose rows are lost, with the words that they rested on."""
    affected.memories |= lost
    for row in lost.values():
        for episode_id, start, end in row["cited"]:
            affected.add(episode_id, Span(start, end))


@dataclass(frozen=True)
class _Sought:
    """The ids, words and names by which a task is known to hold something that is erased."""

    ids: frozenset[str] = frozenset()
    words: frozenset[str] = frozenset()
    subject: Subject | None = None
    container: str = NONE
    scope: AccessScope = FULL_ACCESS

    @classmethod
    def after(cls, affected: Affected, scope: AccessScope) -> "_Sought":
        words = {text for text in affected.quotes() if distinctive(text, QUOTE_TERMS_MIN)}
        words |= {text for text in affected.said() if distinctive(text, TURN_TERMS_MIN)}
        words |= {row["text"] for row in affected.memories.values() if row["text"]}
        ids = frozenset({*affected.memories, *affected.whole})
        return cls(ids, frozenset(words), affected.subject, affected.container, scope)

    def held_by(self, task: TaskDocuments) -> bool:
        """True if a task holds, anywhere in it, an id, a text or words that are erased."""
        container = task.documents[0].get("container", NONE)
        if self.container and container == self.container:
            return True
        subject = self.subject
        # Most tasks do not name a subject, and looking at each of their words takes long.
        if not (self.ids or self.words) and (
            subject is None or not subject.may_be_in(as_read(task.documents))
        ):
            return False
        own = self.scope.containers is None or container in self.scope.containers
        return any(map(self._matches if own else self.ids.__contains__, texts_in(task.documents)))

    def _matches(self, value: str) -> bool:
        return (
            value in self.ids
            or any(text in value for text in self.words)
            or (self.subject is not None and self.subject.named(value))
        )


@dataclass
class _Tasks:
    """Finds the tasks that hold what is erased. Each is read once, and again if it has changed."""

    _sought: _Sought = field(default_factory=_Sought)
    _read: dict[str, int] = field(default_factory=dict)
    _found: set[str] = field(default_factory=set)

    async def holding(self, tx: Transaction, sought: _Sought) -> list[str]:
        before = self._sought
        same = (sought.subject, sought.container) == (before.subject, before.container)
        if not (same and sought.ids <= before.ids and sought.words <= before.words):
            self._read = {}
        self._sought = sought
        versions = await tx.erasure_scan.task_versions()
        found = self._found & versions.keys()
        changed = {one for one, version in versions.items() if self._read.get(one) != version}
        self._read = versions
        self._found = set()
        async for tasks in tx.erasure_scan.tasks_of(found | changed):
            self._read |= {task.id: task.version for task in tasks}
            self._found |= await asyncio.to_thread(_holding, sought, tasks)
        return sorted(self._found)


def _holding(sought: _Sought, tasks: Iterable[TaskDocuments]) -> set[str]:
    return {task.id for task in tasks if sought.held_by(task)}


log = structlog.get_logger()


@dataclass(frozen=True)
class Limits:
    """How much one transaction erases. That of a call: `rows_at_once_max` rows, for which others
    wait about a fifth of a second on SQLite. One of the job, in less: `rows_max` rows of a
    namespace, or `batch` of a part.
    """

    rows_at_once_max: int = 2_000
    rows_max: int = 1_000
    batch: Batch = Batch(items=50, rows=500)

    def exceeded_by(self, counts: Mapping[str, int]) -> bool:
        """True if these are too many rows for the transaction of the call."""
        return sum(counts.values()) > self.rows_at_once_max


DEFAULT_LIMITS = Limits()

OnProgress = Callable[[int], object]


@dataclass
class Step:
    """The result of one batch: how many rows it erased, and whether it was the last."""

    rows: int
    last: bool


@dataclass
class PartTargets:
    """The erasure of a container, a subject, a memory or a turn. `affected`: the rows found."""

    eraser: "Eraser"
    lookup: Lookup
    scope: AccessScope = FULL_ACCESS
    affected: Affected = field(default_factory=Affected)
    _size: Mapping[str, int] | None = None
    _tasks: _Tasks = field(default_factory=_Tasks)

    async def find(self, tx: Transaction, batch: Batch = ALL) -> Affected | None:
        """Return all targets of a batch as of now; None if there is no such thing. A task outside
        of the access scope is a target only if it shows an erased memory or text by its id.
        """
        affected = await self.lookup.find(tx, batch)
        if affected is None:
            return None
        for episode, turns in await tx.erasures.episodes_of(affected.spans):
            affected.episodes[episode["id"]] = (episode, turns)
        # A lost memory may have cited a text that was erased since.
        for gone in affected.spans.keys() - affected.episodes.keys():
            del affected.spans[gone]
        others = {
            row["memory_id"]
            for row in await tx.erasures.citations_in(affected.spans)
            if affected.touches(row["episode_id"], span(row))
        } - set(affected.memories)
        affected.memories |= {row["id"]: row for row in await tx.erasures.memories_of(others)}
        if affected.episodes or affected.memories:
            sought = await asyncio.to_thread(_Sought.after, affected, self.scope)
            # They are counted several times from now on, on the event loop.
            await asyncio.to_thread(affected.turns)
        else:
            sought = _Sought.after(affected, self.scope)
        affected.tasks = await self._tasks.holding(tx, sought)
        return affected

    async def scan(self, tx: Transaction) -> bool:
        """Find the targets, or what has changed since; False if there is no such thing."""
        if self._size is None:
            self._size = await self.lookup.size(tx)
        found = await self.find(tx, NONE_YET if self.eraser.limits.exceeded_by(self._size) else ALL)
        self.affected = found or Affected()
        return found is not None

    @property
    def counts(self) -> Mapping[str, int]:
        counts = self.affected.counts()
        if self._size and self.eraser.limits.exceeded_by(self._size):
            return {**counts, **self._size, "spans": self._size["episodes"]}
        return counts

    async def close(self, tx: Transaction, erasure_id: str) -> int:
        """Close a large target until the job has erased it: its tasks are erased, and a container
        is hidden. No other row is erased yet. Return how many tokens were revoked.
        """
        first = await self.find(tx, NONE_YET)
        assert first is not None
        await self._apply(tx, first)
        if first.container:
            await tx.erasures.close_container(erasure_id, first.container)
        return 0

    async def erase_at_once(self, tx: Transaction) -> int:
        """Erase all that was found. Return how many tokens were revoked."""
        await self._apply(tx, self.affected)
        return 0

    async def erase_batch(self, tx: Transaction) -> Step:
        found = await self.find(tx, self.eraser.limits.batch) or Affected()
        rows = sum(found.counts().values())
        if rows or found.batch or found.labelled:
            await self._apply(tx, found)
        return Step(rows, found.last)

    async def _apply(self, tx: Transaction, affected: Affected) -> None:
        runtime = self.eraser.runtime
        now = runtime.now()
        left = await redact.apply(tx, affected, self.eraser.digests, now)
        self.lookup.erased(affected)
        await restore_turns(tx, left, runtime.new_id, now)
        await promise_vectors(tx, runtime, affected.episodes.keys() - affected.whole)


@dataclass
class NamespaceTargets:
    """The erasure of a whole namespace and its tokens, with the methods of `PartTargets`."""

    eraser: "Eraser"
    counts: Mapping[str, int] = field(default_factory=dict)
    affected: Affected = field(default_factory=Affected)
    _tables: list[str] = field(
        default_factory=lambda: [*registry.SOME_AT_A_TIME, "memories", "episodes"]
    )

    async def scan(self, tx: Transaction) -> bool:
        """Count the rows. Rows that a large namespace gets after the first count are erased too,
        but not counted.
        """
        if not self.eraser.limits.exceeded_by(self.counts):
            self.counts = await tx.erasures.counts()
        return True

    async def close(self, tx: Transaction, erasure_id: str) -> int:  # noqa: ARG002
        """End all work for the namespace and refuse all its tokens."""
        await tx.erasures.remember(await redact.digests_of_tasks(tx, self.eraser.digests))
        return await tx.erasures.close_namespace(self.eraser.runtime.now())

    async def erase_at_once(self, tx: Transaction) -> int:
        digests = self.eraser.digests
        found = await redact.digests_of_tasks(tx, digests)
        async for episodes in tx.erasure_scan.pages("episodes"):
            found |= redact.digests_of_episodes(tx, digests, await tx.erasures.with_turns(episodes))
        async for memories in tx.erasure_scan.pages("memories"):
            found |= redact.digests_of_memories(tx, digests, memories)
        await tx.erasures.remember(found)
        return await tx.erasures.erase_rest(self.eraser.runtime.now())

    async def erase_batch(self, tx: Transaction) -> Step:
        while self._tables:
            limit = min(self.eraser.limits.rows_max, registry.BY_NAME[self._tables[0]].batch_rows)
            if rows := await self._erase_some(tx, self._tables[0], limit):
                return Step(rows, last=False)
            del self._tables[0]
        # Also erase what calls wrote that were under way when it was closed.
        await tx.erasures.erase_rest(self.eraser.runtime.now())
        return Step(0, last=True)

    async def _erase_some(self, tx: Transaction, table: str, limit: int) -> int:
        digests = self.eraser.digests
        match table:
            case "memories":
                memories = await tx.erasures.first_memories(limit)
                await tx.erasures.remember(redact.digests_of_memories(tx, digests, memories))
                await tx.erasures.remove(Part.MEMORY, [row["id"] for row in memories])
                return len(memories)
            case "episodes":
                episodes = await tx.erasures.first_episodes(limit)
                await tx.erasures.remember(redact.digests_of_episodes(tx, digests, episodes))
                await tx.erasures.remove(Part.EPISODE, [row["id"] for row, _ in episodes])
                return len(episodes) + sum(len(turns) for _, turns in episodes)
            case _:
                return await tx.erasures.erase_some(table, limit)


Targets = PartTargets | NamespaceTargets


@dataclass(frozen=True)
class Eraser:
    """Finds the targets of erasures, and erases large ones batch by batch."""

    store: Store
    runtime: Runtime
    digests: Digests
    ledger: Ledger
    limits: Limits

    def targets(self, asked: Noted, *, begun: bool = False) -> Targets:
        """Return the targets of an erasure. `begun`: it has begun, so of a container only what was
        there then. Raises `Invalid` if a subject is no name.
        """
        match asked.kind:
            case Kind.NAMESPACE:
                return NamespaceTargets(self)
            case Kind.CONTAINER:
                lookup: Lookup = Container(asked.what, asked.id if begun else "")
            case Kind.SUBJECT:
                lookup = Named(Subject(asked.what))
            case Kind.MEMORY:
                lookup = Item(asked.what)
        return PartTargets(self, lookup, asked.scope)

    async def run(self, erasure: Erasure, on_progress: OnProgress = lambda _: None) -> None:
        """Erase what a large erasure has closed; `on_progress` gets the number of erased rows."""
        assert erasure.sealed is not None
        namespace, rows = erasure.namespace, 0
        targets = self.targets(self.ledger.opened(erasure.sealed), begun=True)
        while True:
            async with self.store.transaction(namespace, erasing=True, locked=True) as tx:
                step = await targets.erase_batch(tx)
                if step.last:
                    await tx.erasures.end_erasing(erasure.id)
            self.store.forget(namespace)
            if step.rows:
                rows += step.rows
                on_progress(rows)
            if step.last:
                break
        log.info("rows_erased", erasure=erasure.id, kind=erasure.kind, rows=rows)
