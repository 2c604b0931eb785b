"""Applies plans: changes memories and their index entries, and queues the jobs that have a language
model judge the disputes that a plan opens. A large change is planned ahead: its plan is read and
computed without a lock, and the transaction, for which others wait, only writes.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from itertools import groupby
from typing import Generic, TypeVar

from recall_server.domain.audit import AuditEntry
from recall_server.domain.context import Context, Runtime
from recall_server.domain.episode import Citation, Episode
from recall_server.domain.errors import Stale
from recall_server.domain.ids import Namespace, derived_id
from recall_server.domain.memory import BELIEVED, Memory, Status
from recall_server.domain.plan import (
    Add,
    Change,
    Dispute,
    EndEarlier,
    Plan,
    Propose,
    Question,
    Reinforce,
    Restore,
    Rule,
    Settle,
    Supersede,
)
from recall_server.domain.search.index_entry import findable_memory
from recall_server.services.memory import indexing, reconcile
from recall_server.storage.driver import Document, apart, grouped, span
from recall_server.storage.index.words import Postings, Statistics, postings
from recall_server.storage.store import Store, Transaction
from recall_server.storage.tables.disputes import OpenDispute
from recall_server.storage.tables.memories import NewMemory

# How often a change is planned without a lock, if others change memories meanwhile. Then others in
# this process wait while it is planned as often again; then it is planned under the lock, for which
# all writers wait on SQLite.
PLANS_MAX = 3
# How many changes a plan makes before others have their turn on the event loop.
AT_ONCE = 100
# A call or a task with more statements than this is planned without a lock.
PLANNED_INSIDE_MAX = 10

P = TypeVar("P")
R = TypeVar("R")
Planning = Callable[[Transaction], Awaitable[P]]
Writing = Callable[[Transaction, P], Awaitable[R]]


def next_part(context: Context, runtime: Runtime) -> Context:
    """Return the context of the next transaction of a call that has several: the first has the
    record of the call.
    """
    entry = context.entry
    return replace(context, entry=entry.part(runtime.new_id("rec"))) if entry.written else context


@dataclass(frozen=True)
class Planned(Generic[P]):
    """A plan, and the statistics of the index when it was made: while they stay, no memory, text or
    entry changes.
    """

    known: Statistics
    plan: P


async def planned(store: Store, namespace: Namespace, plan: Planning[P]) -> Planned[P]:
    """Plan without a lock, so that nobody waits for it."""
    async with store.transaction(namespace, write=False) as tx:
        return Planned(await tx.words.statistics(), await plan(tx))


async def written(
    store: Store, context: Context, made: Planned[P], plan: Planning[P], write: Writing[P, R]
) -> R:
    """Write what was planned, in an erasing transaction with the lock of the namespace. If memories
    have changed since, it is planned anew first, and `write` is called again.
    """
    change = partial(store.erasing, context.namespace, context.entry)
    async with AsyncExitStack() as ended:
        for attempt in range(2 * PLANS_MAX):
            if attempt == PLANS_MAX:
                await ended.enter_async_context(store.locking.closed(context.namespace))
            with suppress(Stale):
                async with change() as tx:
                    # Not read: on SQLite nobody waits for a transaction that needs no rows yet.
                    await tx.words.expect(made.known, Stale)
                    return await write(tx, made.plan)
            made = await planned(store, context.namespace, plan)
        async with change() as tx:
            return await write(tx, await plan(tx))


async def apply_planned(
    store: Store, context: Context, plan: Planning[P], write: Writing[P, R], *, inside: bool = False
) -> R:
    """Plan changes of memories without a lock, and write them in a transaction with the lock of the
    namespace; both are limited to the access scope. The plan reads statement by statement, so that
    a long one takes no connection from others. If memories have changed since, it is planned anew.
    `inside`: plan in the transaction, as that is short.
    """
    async with AsyncExitStack() as ended:
        for attempt in range(0 if inside else 2 * PLANS_MAX):
            if attempt == PLANS_MAX:
                await ended.enter_async_context(store.locking.closed(context.namespace))
            tables = store.autocommit(context.namespace, access_scope=context.scope)
            basis = await tables.events.basis()
            made = await plan(tables)
            with suppress(Stale):
                async with store.change(context) as tx:
                    if not basis.stands(await tx.events.basis(basis.last_event)):
                        raise Stale
                    return await write(tx, made)
        async with store.change(context) as tx:
            return await write(tx, await plan(tx))


@dataclass(frozen=True)
class Forgotten:
    """Forgets an item, a memory with the words that it cites or a passage. It is computed before
    the transaction, as the words may be in a hundred long texts.
    """

    item_id: str
    is_memory: bool
    words: Sequence[Citation]
    index: indexing.Prepared

    async def write(self, tx: Transaction, now: datetime) -> None:
        """Raises `Stale` if the state of the memory does not allow it."""
        await self.index.write_beside_texts(tx)
        if self.is_memory:
            await tx.memories.forget([self.item_id], now)
        await tx.episodes.forget(self.item_id, self.words, now)
        if self.is_memory:
            await settle_ended(tx, now)


async def forgotten(
    tx: Transaction, item_id: str, words: Sequence[Citation] | None = None
) -> Forgotten:
    """Return what forgets these words of a passage, or else a memory."""
    cited = await tx.memories.citations([item_id]) if words is None else words
    found = await tx.findables.found([item_id]) if words is None else set[str]()
    spans = grouped((one.episode_id, one.span) for one in cited)

    def without(episode: Episode) -> Episode:
        return replace(episode, forgotten=(*episode.forgotten, *spans[episode.id]))

    index = await indexing.prepared(tx, found, (), spans, without)
    return Forgotten(item_id, words is None, cited, index)


@dataclass(frozen=True)
class Restored:
    """Shows a forgotten memory again, with the words that it hid."""

    words: Sequence[Citation]
    index: indexing.Prepared


async def restored(tx: Transaction, memory_id: str) -> Restored:
    words = await tx.memories.citations([memory_id])
    texts = {one.episode_id for one in words}
    return Restored(words, await remembered(tx, memory_id, texts, [memory_id]))


async def remembered(
    tx: Transaction, item_id: str, texts: Collection[str], memories: Collection[str] = ()
) -> indexing.Prepared:
    """Return what shows the words of these texts that an item hides, and these memories."""
    hides = grouped(
        (row["episode_id"], span(row)) for row in await tx.erasures.hidden_by([item_id])
    )

    def unhidden(episode: Episode) -> Episode:
        left = Counter(episode.forgotten) - Counter(hides.get(episode.id, ()))
        return replace(episode, forgotten=tuple(left.elements()))

    return await indexing.prepared(tx, (), memories, texts, unhidden)


@dataclass(frozen=True)
class Added:
    """The rows of the memories that a plan adds, by their ids, and their entries in the index. With
    the `lists` of these if they were made ahead, behind the last slot of the index.
    """

    rows: Mapping[str, NewMemory]
    words: Postings
    lists: Document | None = None


async def added(plan: Plan, passages: Postings | None = None) -> Added:
    """Return what the memories that a plan adds are written with, together with the `passages` of a
    text that is stored with them.
    """
    adds = [change for change in plan.changes if isinstance(change, Add)]
    many = len(adds) + (passages.documents if passages else 0) > indexing.INLINE_MAX
    return await apart(many, _added, adds, passages)


def _added(adds: Sequence[Add], passages: Postings | None) -> Added:
    rows = {one.memory.id: NewMemory.made_of(one.memory, one.rule, one.also) for one in adds}
    words = postings({one.memory.id: findable_memory(one.memory) for one in adds})
    return Added(rows, (words.joined(passages) if passages else words).written())


async def apply(
    tx: Transaction,
    plan: Plan,
    now: datetime,
    *,
    ahead: Added | None = None,
    restored: Restored | None = None,
) -> None:
    """Make the changes of `plan` within `tx`, index new memories, and store the decisions and
    relations. Superseded memories stay in the index. `ahead`: what the new memories are written
    with, if it is known; it may have the dates of an earlier moment. `restored`: what shows the one
    memory again that the plan restores, if it is known.

    Raises `Stale` if a change does not find what it expects; the caller's transaction rolls back.
    """
    assert not plan.questions
    new = ahead or await added(plan)
    for number, (_, alike) in enumerate(groupby(plan.changes, _by)):
        first, *others = alike
        if number % AT_ONCE == 0:
            # Changes that read no rows await nothing, so many of them would delay other callers.
            await asyncio.sleep(0)
        if isinstance(first, Restore):
            await _restore(tx, first.memory, now, restored)
        elif isinstance(first, Add):
            memories = [one.memory for one in (first, *others) if isinstance(one, Add)]
            await tx.memories.add_each([new.rows[one.id].dated(one) for one in memories])
        elif isinstance(first, Reinforce):
            again = [one for one in (first, *others) if isinstance(one, Reinforce)]
            await tx.memories.reinforce(again, now)
        else:
            await _apply(tx, first, now, others)
    await tx.words.add(new.words, new.lists)
    for decision in plan.decisions:
        await tx.decisions.add(decision)
    if plan.relations:
        await tx.relations.add(plan.relations, new.rows.keys())
    if any(isinstance(change, Supersede) for change in plan.changes):
        await settle_ended(tx, now)


async def settle_ended(tx: Transaction, now: datetime) -> None:
    """Settle the disputes with a side that is no longer believed: nothing is left to ask."""
    for question_id in await tx.disputes.ended():
        await _apply(tx, Settle(question_id), now)


def _by(change: Change) -> object:
    """Return what changes share that are made together: a merge may supersede thousands by one."""
    match change:
        case Add() | Reinforce():
            return type(change)
        case Supersede():
            return replace(change, memory_id="")
        case _:
            return id(change)


async def _apply(
    tx: Transaction, change: Change, now: datetime, alike: Iterable[Change] = ()
) -> None:
    """Make a change, and those that are `alike`."""
    done = True
    match change:
        case Supersede():
            await _supersede(tx, change, now, alike)
        case EndEarlier(memory_id, by, until):
            done = await tx.memories.end_earlier(memory_id, by, until, now, reason=Rule.LATE_REPORT)
        case Dispute(question_id, memory_id, existing):
            done = await tx.disputes.open(question_id, memory_id, existing, now)
        case Settle(question_id):
            done = await tx.disputes.close(question_id, now)
        case Propose():
            await _propose(tx, change, now)
    if not done:
        raise Stale


async def _supersede(
    tx: Transaction, change: Supersede, now: datetime, alike: Iterable[Change]
) -> None:
    await tx.memories.retire(
        [one.memory_id for one in (change, *alike) if isinstance(one, Supersede)],
        Status.SUPERSEDED,
        now,
        superseded_by=change.by,
        valid_until=change.valid_until,
        reason=change.rule,
    )


async def _restore(tx: Transaction, memory: Memory, now: datetime, known: Restored | None) -> None:
    shows = known or await restored(tx, memory.id)
    await tx.memories.restore(memory, now)
    await tx.episodes.remember(memory.id, now)
    await shows.index.write_beside_texts(tx)
    await tx.vectors.copy([memory.id])


async def _propose(tx: Transaction, change: Propose, now: datetime) -> None:
    """Store proposed memories as forgotten, which hides their words, or in quarantine if their
    words are to stay findable.
    """
    for memory in change.memories:
        if change.hides_words:
            await tx.memories.add(memory)
            await (await forgotten(tx, memory.id)).write(tx, now)
        else:
            await tx.memories.add(replace(memory, status=Status.QUARANTINED, retired_at=now))
    await tx.proposals.open(change.proposal)


JUDGE = "judge"


@dataclass(frozen=True)
class Judgements:
    """Queues the jobs that have disputes judged, on behalf of whoever opened them; none if no
    language model `judges`.
    """

    runtime: Runtime
    judges: bool

    async def apply(self, tx: Transaction, plan: Plan, now: datetime, entry: AuditEntry) -> None:
        """Apply a plan, queue a job for each of its disputes, and record its changes."""
        await apply(tx, plan, now)
        await self.promise(tx, plan, entry.began_by)
        entry.ids += plan.ids()
        for name, number in plan.counts().items():
            entry.counts[name] = entry.counts.get(name, 0) + number

    async def promise(self, tx: Transaction, plan: Plan, accessor: str | None) -> None:
        disputes = [one.question_id for one in plan.changes if isinstance(one, Dispute)]
        await self.promise_each(tx, disputes, accessor)

    async def promise_each(
        self, tx: Transaction, disputes: Iterable[str], accessor: str | None
    ) -> None:
        """Queue a job for each of these disputes that none waits for."""
        for one in disputes if self.judges else ():
            job_id, now = derived_id("job", one, JUDGE), self.runtime.now()
            payload = {"question_id": one}
            await tx.jobs.add(job_id, JUDGE, payload, now, accessor, again=True)


async def question_of(
    tx: Transaction, dispute: OpenDispute, known: Mapping[str, Memory]
) -> Question | None:
    """Return the question of a dispute; None if a side is not `known`, as it is beyond the access
    scope, or believed no more.
    """
    if not known.keys() >= {dispute.new, *dispute.existing}:
        return None
    existing = [known[one] for one in dispute.existing]
    believed = [one for one in existing if one.status in BELIEVED]
    if not believed or known[dispute.new].status not in BELIEVED:
        return None
    return await reconcile.question_of(tx, dispute.question_id, known[dispute.new], believed)
