"""Carries out an erasure: in the transaction of the call if it is small, and otherwise in many
short transactions of the job `purge`, so that no call waits for it.

A large erasure takes these steps: the first transaction closes the target, batches of rows are
deleted and redacted, and the last batch ends the erasure. A batch no longer finds rows that are
erased, so after a crash the job continues where it was.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import structlog

from recall_server.domain.context import Runtime
from recall_server.domain.episode import texts_in
from recall_server.domain.erasure import (
    QUOTE_TERMS_MIN,
    TURN_TERMS_MIN,
    Digests,
    ErasedText,
    Kind,
    Subject,
    as_read,
    distinctive,
)
from recall_server.domain.errors import Stale
from recall_server.domain.ids import NONE
from recall_server.domain.permissions import FULL_ACCESS, AccessScope
from recall_server.services.erasure import redact
from recall_server.services.erasure.ledger import Ledger, Noted
from recall_server.services.erasure.redact import Redaction, restore_turns
from recall_server.services.erasure.targets import (
    ALL,
    NONE_YET,
    Affected,
    Batch,
    Container,
    Item,
    Lookup,
    Named,
    Piece,
)
from recall_server.services.memory.commit import PLANS_MAX
from recall_server.services.memory.indexing import promise_vectors
from recall_server.storage.driver import Row, span
from recall_server.storage.store import Store, Transaction
from recall_server.storage.tables import registry
from recall_server.storage.tables.erasure import Erasure, TaskDocuments
from recall_server.storage.tables.registry import Part


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

    def held_in(self, tasks: Iterable[TaskDocuments]) -> set[str]:
        """Return the ids of the tasks that hold any of it."""
        return {task.id for task in tasks if self._held_by(task)}

    def _held_by(self, task: TaskDocuments) -> bool:
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
            self._found |= await asyncio.to_thread(sought.held_in, tasks)
        return sorted(self._found)


log = structlog.get_logger()


# About a tenth of a second on PostgreSQL.
BATCH = Batch(items=50, rows=250)


@dataclass(frozen=True)
class Limits:
    """How much one transaction erases. That of a call: `rows_at_once_max` rows, for which others
    wait about a fifth of a second on SQLite. One of the job, in less: `rows_max` rows of a
    namespace, or `batch` of a part.
    """

    rows_at_once_max: int = 2_000
    rows_max: int = 1_000
    batch: Batch = BATCH

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
    _sought: _Sought = field(default_factory=_Sought)
    _redaction: Redaction | None = None
    _stored: set[ErasedText] = field(default_factory=set)

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
        cited = await tx.erasures.citations_in(affected.spans)
        others = await asyncio.to_thread(_resting_on, affected, cited)
        affected.memories |= {row["id"]: row for row in await tx.erasures.memories_of(others)}
        if affected.episodes or affected.memories:
            self._sought = await asyncio.to_thread(_Sought.after, affected, self.scope)
            # They are counted several times from now on, on the event loop.
            await asyncio.to_thread(affected.turns)
        else:
            self._sought = _Sought.after(affected, self.scope)
        affected.tasks = await self._tasks.holding(tx, self._sought)
        return affected

    async def scan(self, tx: Transaction) -> bool:
        """Find the targets, or what has changed since; False if there is no such thing."""
        self._redaction = None
        if self._size is None:
            self._size = await self.lookup.size(tx)
        found = await self.find(tx, NONE_YET if self.eraser.limits.exceeded_by(self._size) else ALL)
        self.affected = found or Affected()
        return found is not None

    async def plan(self, tx: Transaction) -> bool:
        """`scan`, and compute what a small erasure writes."""
        found = await self.scan(tx)
        if not self.eraser.limits.exceeded_by(self.counts):
            self._redaction = await redact.planned(tx, self.affected, self.eraser.digests)
        return found

    async def refresh(self, tx: Transaction) -> None:
        """Find the tasks that hold the targets now. All else must be as it was planned."""
        await self._find_tasks(tx, self.affected)

    async def _find_tasks(self, tx: Transaction, affected: Affected) -> None:
        before, affected.tasks = affected.tasks, await self._tasks.holding(tx, self._sought)
        if affected.tasks != before:
            given = await redact.digests_given(tx, affected, self.eraser.digests)
            await tx.erasures.remember(given)

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
        await self._apply(tx, await redact.planned(tx, first, self.eraser.digests))
        if first.container:
            await tx.erasures.close_container(erasure_id, first.container)
        return 0

    async def erase_at_once(self, tx: Transaction) -> int:
        """Erase all that was found. Return how many tokens were revoked."""
        found = self._redaction
        if found is None:
            found = await redact.planned(tx, self.affected, self.eraser.digests)
        await self._apply(tx, found)
        return 0

    async def _apply(self, tx: Transaction, redaction: Redaction) -> None:
        for piece in redaction.pieces:
            await self._write(tx, redaction, piece)

    async def next_batch(self, tx: Transaction) -> Redaction:
        """Return the next batch to erase, in pieces."""
        batch, digests = self.eraser.limits.batch, self.eraser.digests
        found = await self.find(tx, batch) or Affected()
        return await redact.planned(tx, found, digests, batch.rows, self._stored)

    def written(self, piece: Piece) -> None:
        """Note that a piece is committed. Digests leave no trace in what is still to be erased."""
        self._stored.update(piece.digests)

    async def write_piece(self, tx: Transaction, redaction: Redaction, piece: Piece) -> Step:
        """Write a piece, which must be planned with all as it is now."""
        affected = redaction.affected
        rows = piece.rows
        if piece.tasks:
            await self._find_tasks(tx, affected)
        if piece.texts:
            before = sum(one.rows for one in redaction.pieces if not one.texts)
            rows = sum(affected.counts().values()) - before
        await self._write(tx, redaction, piece)
        return Step(rows, affected.last and piece is redaction.pieces[-1])

    async def _write(self, tx: Transaction, redaction: Redaction, piece: Piece) -> None:
        affected, runtime = redaction.affected, self.eraser.runtime
        now = runtime.now()
        await redact.write(tx, redaction, piece, now)
        if piece.texts:
            await restore_turns(tx, redaction.again, runtime.new_id, now)
            await promise_vectors(tx, runtime, affected.episodes.keys() - affected.whole)


def _resting_on(affected: Affected, citations: Iterable[Row]) -> set[str]:
    """Return the other memories that cite words which are erased."""
    touching = {
        row["memory_id"] for row in citations if affected.touches(row["episode_id"], span(row))
    }
    return touching - affected.memories.keys()


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

    # A small namespace is read in the transaction that erases it.
    plan = scan

    async def refresh(self, tx: Transaction) -> None:
        """Count a small namespace again: tasks and jobs change without an event."""
        await self.scan(tx)

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

        def done(step: Step) -> None:
            nonlocal rows
            self.store.forget(namespace)
            if step.rows:
                rows += step.rows
                on_progress(rows)

        if isinstance(targets, PartTargets):
            await self._run_part(erasure, targets, done)
        else:
            await self._run_namespace(erasure, targets, done)
        log.info("rows_erased", erasure=erasure.id, kind=erasure.kind, rows=rows)

    async def _run_namespace(
        self, erasure: Erasure, targets: NamespaceTargets, done: Callable[[Step], None]
    ) -> None:
        step = Step(0, last=False)
        while not step.last:
            async with self.store.erasing(erasure.namespace) as tx:
                step = await targets.erase_batch(tx)
                await self._ended(tx, erasure, step)
            done(step)

    async def _run_part(
        self, erasure: Erasure, targets: PartTargets, done: Callable[[Step], None]
    ) -> None:
        """Erase batch by batch. Each is planned without a lock, and if others change the namespace
        before all its pieces are written, planned anew.
        """
        step, tries = Step(0, last=False), 0
        while not step.last:
            async with AsyncExitStack() as alone:
                if tries >= PLANS_MAX:
                    await alone.enter_async_context(self.store.locking.closed(erasure.namespace))
                if tries == 2 * PLANS_MAX:
                    # Another process writes all the time.
                    async with self.store.erasing(erasure.namespace) as tx:
                        redaction = await targets.next_batch(tx)
                        step = await targets.write_piece(tx, redaction, redaction.pieces[0])
                        await self._ended(tx, erasure, step)
                    targets.written(redaction.pieces[0])
                    done(step)
                    # The next may be planned without the lock, for which all wait on SQLite.
                    tries = PLANS_MAX
                    continue
                tables = self.store.autocommit(erasure.namespace)
                known = await tables.words.statistics()
                redaction = await targets.next_batch(tables)
                try:
                    for piece in redaction.pieces:
                        async with self.store.erasing(erasure.namespace) as tx:
                            await tx.words.expect(known, Stale)
                            step = await targets.write_piece(tx, redaction, piece)
                            await self._ended(tx, erasure, step)
                            known = await tx.words.statistics()
                        # Others of the namespace wait for one piece at most.
                        await alone.aclose()
                        tries = min(tries, PLANS_MAX)
                        targets.written(piece)
                        done(step)
                except Stale:
                    tries += 1
                else:
                    targets.lookup.erased(redaction.affected, known.erase_epoch)

    async def _ended(self, tx: Transaction, erasure: Erasure, step: Step) -> None:
        if step.last:
            await tx.erasures.end_erasing(erasure.id)
