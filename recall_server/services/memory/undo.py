"""Undo: takes back exactly what a job, task, import or call did to memories and texts, unless a
later change rests on it. No memory is deleted: one that the change added is forgotten.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import NamedTuple, TypeVar

from recall_server.domain.context import Context, Runtime
from recall_server.domain.episode import Citation, Span
from recall_server.domain.errors import Busy, ChangeNotFound, NotUndoable, Stale
from recall_server.domain.fairness import Pace
from recall_server.domain.memory import FINDABLE, Status
from recall_server.domain.memory_event import (
    Change,
    EventKind,
    Histories,
    MemoryEvent,
    MemoryState,
    Reversal,
)
from recall_server.domain.namespace import Namespace
from recall_server.domain.permissions import Rights, Scope
from recall_server.domain.plan import Resolution
from recall_server.domain.text.cleaning import storable
from recall_server.services.memory import commit, indexing, reconcile
from recall_server.services.memory.beliefs import Beliefs, FactKey, fact_keys
from recall_server.services.memory.embedding import promise_vectors
from recall_server.services.memory.episodes import promise_expiry
from recall_server.storage.driver import span
from recall_server.storage.store import Store, Transaction

# How many items are held in memory at a time.
BATCH = 200
NAMED_MAX = 10
PAGE_EVENTS = 1_000
# Tokens of one namespace may take back so many events a second, in undos of more than PACED_FROM;
# none waits for longer than PACE_WAIT_MAX_S.
EVENTS_PER_S = 100
PACED_FROM = 200
PACE_WAIT_MAX_S = 5.0
# Changes that cannot be undone: expiry, as time does not go back, and labels, which have no
# recorded state.
_FINAL = {
    EventKind.EXPIRED: "What this change ended was to end then. Store it anew, without expires_at "
    "or with a later one.",
    EventKind.RELABELLED: "This change gave a text other labels. Change them again.",
}

# How often an undo is planned without a lock, if others change memories meanwhile; then it is
# planned under the lock.
PLANS_MAX = 3

_T = TypeVar("_T")
_Plan = Callable[[Transaction], Awaitable["_Planned"]]


@dataclass(frozen=True)
class Undone:
    """The result of an undo.

    `changes`: the changes that are undone, newest first.
    `memories`: the memories that are as they were before.
    `forgotten`: the memories that are forgotten, mostly because a change had added them.
    `texts`: the texts with words that are shown or hidden again.
    `change_id`: the undo itself, which can be undone; None in a dry run.
    """

    changes: tuple[str, ...]
    memories: tuple[str, ...]
    forgotten: tuple[str, ...]
    texts: tuple[str, ...]
    change_id: str | None


@dataclass(frozen=True)
class Page:
    """One page of changes; `next_before` is where the next page begins. `answers`: those that
    settled disputes, by the id of the change.
    """

    changes: tuple[Change, ...]
    next_before: int | None
    answers: Mapping[str, Sequence[Resolution]] = field(default_factory=dict)


class _Moment(NamedTuple):
    """The last event and the number of erasures at a moment: while both stay, nothing that a plan
    rests on changes.
    """

    last_event: int
    erase_epoch: int


@dataclass
class _Planned:
    """The plan of an undo, as far as it is made, as of a moment.

    `events`: how many events, of at most `events_max`.
    `last_seq`: the number of the last of them.
    `states`: the states that memories get; None: forgotten.
    `expired`: the texts whose expiry is taken back.
    `screens`: True if it changes what an administrator decided about a turn or a memory in
    quarantine.
    """

    events_max: int
    moment: _Moment
    changes: list[str] = field(default_factory=list)
    steps: list["_Step"] = field(default_factory=list)
    states: dict[str, MemoryState | None] = field(default_factory=dict)
    events: int = 0
    last_seq: int = 0
    expired: set[str] = field(default_factory=set)
    screens: bool = False
    memories: dict[str, None] = field(default_factory=dict)
    forgotten: dict[str, None] = field(default_factory=dict)
    texts: dict[str, None] = field(default_factory=dict)
    # Memories of which only relations are taken back.
    related: dict[str, None] = field(default_factory=dict)

    def count(self, counts: Mapping[EventKind, int]) -> None:
        """Count the events of one more change. Raises `NotUndoable` if there are too many."""
        self.events += sum(counts.values())
        if self.events > self.events_max:
            raise NotUndoable(
                f"It changed memories and texts more than {self.events_max:,} times, which is the "
                "most that is taken back at once. An operator can raise RECALL_UNDO_EVENTS_MAX."
            )

    def report(self, change_id: str | None) -> Undone:
        changed = self.memories | self.related
        memories = tuple(one for one in changed if one not in self.forgotten)
        parts = (tuple(self.changes), memories, tuple(self.forgotten), tuple(self.texts))
        return Undone(*parts, change_id)


@dataclass(frozen=True)
class Changes:
    """The changes of a namespace: listing them, and taking one back."""

    store: Store
    runtime: Runtime
    embeds: bool
    # An undo is one transaction: other writers of the namespace wait for it, on SQLite all writers.
    events_max: int
    # So that no token keeps the others from writing by undoing and undoing again.
    _pace: Pace = field(default_factory=lambda: Pace(EVENTS_PER_S, PACE_WAIT_MAX_S))

    async def page(self, context: Context, before: int | None) -> Page:
        """Return the changes of the last `PAGE_EVENTS` events, or of those before the event
        `before`, newest first.
        """
        async with self.store.view(context) as tx:
            events = await tx.events.page(before, PAGE_EVENTS)
            # An undo has an event for every item of a change, so one item per change is enough.
            some = {one.change_id: one.item_id for one in events}
            gone = Histories(await tx.events.undone_of(set(some.values()))).taken_back
            ending = {
                (one.reason, one.at): one.change_id
                for one in events
                if one.kind is EventKind.SETTLED
            }
            answers = await tx.decisions.answers({dispute for dispute, _ in ending})
        found: dict[str, Change] = {}
        for one in events:
            if not one.change_id:
                continue
            known = found.get(one.change_id)
            counts = dict(known.counts) if known else {}
            counts[one.kind] = counts.get(one.kind, 0) + 1
            # The oldest event comes last and says how the change began.
            found[one.change_id] = Change(
                one.change_id,
                one.at,
                one.operation,
                one.accessor,
                counts,
                undone=one.change_id in gone,
            )
        context.entry.counts["changes"] = len(found)
        more = len(events) == PAGE_EVENTS
        given: dict[str, list[Resolution]] = {}
        for dispute, answer in sorted(answers.items()):
            # A dispute that was settled again has the last of its answers.
            if ended_by := ending.get((dispute, answer.decided_at)):
                given.setdefault(ended_by, []).append(answer)
        return Page(tuple(found.values()), events[-1].seq if more else None, given)

    async def undo(
        self,
        context: Context,
        change_id: str,
        *,
        rights: Rights,
        dry_run: bool,
        with_dependents: bool,
    ) -> Undone:
        """Take back a change, and with `with_dependents` all changes that rest on it; with
        `dry_run` only report what that would do. Raises `ChangeNotFound`; `NotUndoable` if another
        change rests on it, it was taken back before, or its kind cannot be undone;
        `InsufficientScope` if it decides about the quarantine and the rights do not allow that; and
        `Busy` if tokens have taken back much just now.
        """
        storable(change_id)
        plan = partial(self._plan, rights, change_id, with_dependents=with_dependents)
        planned = await self._planned(context.namespace, plan)
        if dry_run:
            return planned.report(None)
        if context.entry.bearer is not None:
            await self._pass(context.namespace, planned.events)
        for _ in range(PLANS_MAX):
            with suppress(Stale):
                return await self._write(context, planned)
            planned = await self._planned(context.namespace, plan)
        return await self._write(context, planned, plan)

    async def _planned(self, namespace: Namespace, plan: _Plan) -> _Planned:
        """Plan without a lock, so that nobody waits for it."""
        async with self.store.transaction(namespace, write=False) as tx:
            return await plan(tx)

    async def _write(
        self, context: Context, planned: _Planned, plan: _Plan | None = None
    ) -> Undone:
        """Make the changes of a plan. If something has changed since it was made, make another one
        with `plan`, under the lock; without, raise `Stale`.
        """
        now = self.runtime.now()
        # `erasing`: citations that a change added are deleted.
        async with self.store.transaction(
            context.namespace, entry=context.entry, erasing=True, locked=True
        ) as tx:
            if planned.moment != await _moment(tx):
                if plan is None:
                    raise Stale
                planned = await plan(tx)
            texts = [one for step in planned.steps for one in await step.write(tx, now)]
            planned.texts = dict.fromkeys(texts)
            await commit.settle_ended(tx, now)
            await self._promise_expiries(tx, planned)
            if self.embeds:
                await promise_vectors(tx, self.runtime, planned.texts)
            context.entry.ids += planned.changes
            context.entry.counts["undone"] = len(planned.memories | planned.related) + len(
                planned.texts
            )
        self.runtime.wake()
        return planned.report(context.entry.change)

    async def _pass(self, namespace: Namespace, events: int) -> None:
        """Wait until a token may take back so many events. Raises `Busy`."""
        if events <= PACED_FROM:
            return
        wait_s = self._pace.wait_s(namespace, events, asyncio.get_running_loop().time())
        if wait_s is None:
            raise Busy("Much was taken back here just now. Wait a minute, then undo this too.")
        await asyncio.sleep(wait_s)

    async def _plan(
        self, rights: Rights, change_id: str, tx: Transaction, *, with_dependents: bool
    ) -> _Planned:
        planned = _Planned(self.events_max, await _moment(tx))
        counts = await tx.events.counts(change_id) if change_id else {}
        if not counts:
            raise ChangeNotFound
        for kind in _FINAL.keys() & counts.keys():
            raise NotUndoable(_FINAL[kind])
        planned.count(counts)
        await _take_back(tx, change_id, planned, with_dependents=with_dependents)
        if planned.screens:
            # Else the token that forgets could release what an administrator holds back.
            rights.require(Scope.ADMIN, whole_namespace=True)
        await _refuse_second_values(tx, planned)
        return planned

    async def _promise_expiries(self, tx: Transaction, planned: _Planned) -> None:
        for episode_id in sorted(planned.expired):
            episode = await tx.episodes.get(episode_id)
            if episode is not None and Span(0, len(episode.text)) not in episode.forgotten:
                # The undo makes the text findable again; it still has to expire.
                await promise_expiry(tx, self.runtime, episode_id, episode.expires_at)


async def _moment(tx: Transaction) -> _Moment:
    now = await tx.words.statistics()
    return _Moment(now.last_event, now.erase_epoch)


async def _take_back(
    tx: Transaction, change_id: str, planned: _Planned, *, with_dependents: bool
) -> None:
    items = await tx.events.items(change_id)
    taken_back = Histories(await tx.events.undone_of(items[:1])).taken_back
    if change_id in taken_back:
        raise NotUndoable(
            f"This change was taken back already. Undo {taken_back[change_id]} to have it again."
        )
    resting = await _resting(tx, change_id, items)
    if resting and not with_dependents:
        named = ", ".join(resting[:NAMED_MAX])
        more = f" and {len(resting) - NAMED_MAX} more" if len(resting) > NAMED_MAX else ""
        raise NotUndoable(
            f"Later changes rest on it: {named}{more}. Undo these first, or send with_dependents."
        )
    for later in resting:
        if later not in planned.changes:
            planned.count(await tx.events.counts(later))
            await _take_back(tx, later, planned, with_dependents=True)
    planned.changes.append(change_id)
    for batch in _batches(items):
        histories = Histories(await tx.events.of_items(batch))
        planned.steps.append(await _step(tx, change_id, batch, histories, planned))


def _batches(items: Sequence[_T]) -> Iterator[Sequence[_T]]:
    for start in range(0, len(items), BATCH):
        yield items[start : start + BATCH]


async def _resting(tx: Transaction, change_id: str, items: Sequence[str]) -> list[str]:
    """Return the changes that still stand and rest on a change, newest first: those that changed
    one of its items later, and those whose memories cite words that its undo hides.
    """
    found: dict[str, int] = {}
    own = set(items)
    for batch in _batches(await tx.events.changed_later(change_id)):
        histories = Histories(await tx.events.of_items(batch))
        found |= {one.change_id: one.seq for i in batch for one in histories.later(i, change_id)}
    for brought in _batches(await tx.events.brought(change_id)):
        hides = await _spans(tx, {one.item_id: one for one in brought})
        cited = {
            (row["memory_id"], row["position"])
            for row in await tx.erasures.citations_in(hides)
            if row["memory_id"] not in own
            and any(span(row).overlaps(one) for one in hides[row["episode_id"]])
        }
        of_memories = Histories(await tx.events.of_items({one for one, _ in cited}))
        for memory_id, position in sorted(cited):
            event = of_memories.cited(memory_id, position)
            if event is not None and event.change_id != change_id:
                found[event.change_id] = event.seq
    return sorted(filter(None, found), key=found.__getitem__, reverse=True)


async def _spans(tx: Transaction, items: Mapping[str, MemoryEvent]) -> dict[str, list[Span]]:
    """Return the spans of texts, turns and passages, by the id of their text."""
    found: dict[str, list[Span]] = {}
    for one in (await _places(tx, items)).values():
        found.setdefault(one.episode_id, []).append(one.span)
    return found


async def _places(tx: Transaction, items: Mapping[str, MemoryEvent]) -> dict[str, Citation]:
    """Return where each of these texts, turns and passages stands."""
    parts = [one for one, event in items.items() if one != event.episode_id]
    of_parts = {one.id: one.citation.span for one in await tx.memories.items(parts)}
    released = {one for one, event in items.items() if event.kind is EventKind.RELEASED}
    # The first passage of a turn has the id of the turn.
    for row in await tx.sources.turns({str(items[one].episode_id) for one in released}):
        if row["id"] in released:
            of_parts[row["id"]] = span(row)
    lengths = await tx.exports.lengths({str(one.episode_id) for one in items.values()})
    found: dict[str, Citation] = {}
    for item_id, event in items.items():
        episode_id = str(event.episode_id)
        whole = Span(0, lengths[episode_id])
        found[item_id] = Citation(episode_id, of_parts.get(item_id, whole))
    return found


@dataclass(frozen=True)
class _Step:
    """Gives some items of a change the state that they had before it.

    `related`: the memories of which only relations are taken back.
    `memories`, `texts`: the other items, with their events in the change.
    `reversals`: what becomes of the memories.
    `disputes`: those that the change opened (True) or ended (False).
    `brought`: the memories that the change added.
    `differ`: the items whose words are then hidden (True) or shown (False).
    `places`: the words of those of them that are no memories.
    `decided`: by turn, what was decided about it in quarantine.
    """

    change_id: str
    related: Sequence[str]
    memories: Mapping[str, Sequence[MemoryEvent]]
    texts: Mapping[str, MemoryEvent]
    reversals: Sequence[Reversal]
    disputes: Mapping[str, bool]
    brought: Sequence[str]
    differ: Mapping[str, bool]
    places: Mapping[str, Citation]
    decided: Mapping[str, MemoryEvent | None]

    async def write(self, tx: Transaction, now: datetime) -> list[str]:
        """Return the texts of which other words can be read then."""
        tx.relations.undone(self.related, self.change_id, now)
        await self._restore(tx, now)
        touched = await self._words(tx, now)
        for item_id, event in self.texts.items():
            assert event.episode_id is not None
            hides = self.differ.get(item_id)
            await tx.episodes.undone(item_id, self.change_id, event.episode_id, now, hides=hides)
        return touched

    async def words(self, tx: Transaction) -> dict[str, list[Citation]]:
        """Return the words that are hidden or shown, by item."""
        words = await _cited(tx, [one for one in self.memories if one in self.differ])
        return words | {one: [place] for one, place in self.places.items()}

    def touched(self, words: Mapping[str, Sequence[Citation]]) -> list[str]:
        """Return the texts of which other words can then be read."""
        of_words = {one.episode_id for some in words.values() for one in some}
        return sorted(of_words | {str(self.texts[one].episode_id) for one in self.decided})

    async def _restore(self, tx: Transaction, now: datetime) -> None:
        states = {one.memory_id: one.state for one in self.reversals}
        await tx.memories.undo(self.change_id, self.reversals, now)
        await tx.disputes.undo(self.disputes, now)
        # An undo that reopened proposals is undone.
        again = [i for i, events in self.memories.items() if events[-1].kind is EventKind.UNDONE]
        await tx.proposals.close_reopened(again, now)
        standing = [one for one, state in states.items() if state]
        for memory_id, closed_at in await tx.proposals.closed_about(standing):
            if closed_at in {one.at for one in self.memories[memory_id]}:
                await tx.proposals.reopen(memory_id, closed_at)
        await tx.proposals.withdraw(self.brought, now)
        findable = {i for i, state in states.items() if state and state.status in FINDABLE}
        found = await tx.findables.found(self.memories)
        await indexing.hide(tx, found - findable)
        await indexing.show(tx, findable - found)
        # Filters that searches hold in memory go by the expiry.
        expire_otherwise = [
            one
            for one in findable & found
            if (before := states[one])
            and (after := self.memories[one][-1].state)
            and before.expires_at != after.expires_at
        ]
        if expire_otherwise:
            await tx.words.relabelled(expire_otherwise)

    async def _words(self, tx: Transaction, now: datetime) -> list[str]:
        """Show or hide words, and restore the decisions about turns in quarantine."""
        words = await self.words(tx)

        async def change() -> None:
            hidden = {one: words.get(one, ()) for one, hide in self.differ.items() if hide}
            await tx.episodes.hide_words(hidden, now)
            await tx.episodes.show_words([one for one in self.differ if one not in hidden])
            for turn_id, before in self.decided.items():
                await tx.quarantine.undo(turn_id, before)

        if touched := self.touched(words):
            await indexing.reread(tx, touched, change)
        return touched


async def _step(
    tx: Transaction,
    change_id: str,
    items: Sequence[str],
    histories: Histories,
    planned: _Planned,
) -> _Step:
    """Plan what becomes of some items of a change."""
    of_change = {one: histories.of_change(one, change_id) for one in items}
    last = max(events[-1].seq for events in of_change.values())
    planned.last_seq = max(planned.last_seq, last)
    related = [one for one in items if histories.only_relates(one, change_id)]
    of_change = {i: of_change[i] for i in items if i not in related}
    memories = {i: events for i, events in of_change.items() if events[0].state is not None}
    texts = {i: events[0] for i, events in of_change.items() if events[0].state is None}
    around = {i: histories.hidden(i, change_id) for i in (*memories, *texts)}
    differ = {i: before for i, (before, after) in around.items() if before != after}
    in_quarantine = {i: histories.decided(i, change_id) for i in texts}
    disputes: dict[str, bool] = {}
    for one in memories:
        disputes |= histories.disputes(one, change_id)
    step = _Step(
        change_id,
        related,
        memories,
        texts,
        reversals=[
            Reversal(
                one,
                histories.state_before(one, change_id),
                histories.dropped(one, change_id),
                histories.returned(one, change_id),
            )
            for one in memories
        ],
        disputes=disputes,
        brought=[one for one in memories if histories.takes_out(one, change_id)],
        differ=differ,
        places=await _places(tx, {i: texts[i] for i in differ if i in texts}),
        decided={i: before for i, (before, after) in in_quarantine.items() if before != after},
    )
    for memory_id, state, *_ in step.reversals:
        planned.states[memory_id] = state
        planned.screens |= _screens(state, memories[memory_id][-1].state)
        planned.memories[memory_id] = None
        if state is None or state.status is Status.FORGOTTEN:
            planned.forgotten[memory_id] = None
    planned.screens |= bool(step.decided)
    planned.related.update(dict.fromkeys(related))
    planned.texts.update(dict.fromkeys(step.touched(await step.words(tx))))
    planned.expired.update(i for i, event in texts.items() if event.kind is EventKind.EXPIRED)
    return step


async def _cited(tx: Transaction, memories: Sequence[str]) -> dict[str, list[Citation]]:
    found: dict[str, list[Citation]] = {}
    for row in await tx.erasures.citations(memories) if memories else ():
        cited = Citation(row["episode_id"], span(row))
        found.setdefault(row["memory_id"], []).append(cited)
    return found


def _screens(before: MemoryState | None, after: MemoryState | None) -> bool:
    """True if a memory that both states are of is in quarantine in one of them only."""
    if before is None or after is None:
        return False
    return (before.status is Status.QUARANTINED) != (after.status is Status.QUARANTINED)


async def _refuse_second_values(tx: Transaction, planned: _Planned) -> None:
    """Raise `NotUndoable` if a memory that is active again contradicts one that changed after the
    events that were taken back.
    """
    changed = await tx.events.changed_after(planned.last_seq)
    keys: set[FactKey] = set()
    for batch in _batches([one for one in changed if one not in planned.memories]):
        keys.update(key for one in await tx.memories.active(batch) for key in fact_keys(one.fact))
    beliefs = Beliefs(tx)
    active = [one for one, state in planned.states.items() if state and state.retired_at is None]
    for batch in _batches(active):
        for memory in (await tx.memories.get(batch)).values() if keys else ():
            if keys.isdisjoint(fact_keys(memory.fact)):
                continue
            rivals = {one.id: one for one in await reconcile.rivals(tx, memory, beliefs)}
            # Not `rivals.keys() - planned.memories.keys()`: that walks all memories of the undo
            # each time.
            others = {one for one in rivals if one not in planned.memories}
            histories = Histories(await tx.events.of_items(others) if others else ())
            for rival in sorted(others):
                event = histories.changed_after(rival, planned.last_seq)
                if event is not None:
                    raise NotUndoable(
                        f"{memory.id} would hold again, and {rival} says otherwise since "
                        f"{event.at:%Y-%m-%d}. Forget or correct that first."
                    )
