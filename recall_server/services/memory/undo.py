"""Undo: takes back exactly what a job, task, import or call did to memories and texts, unless a
later change rests on it. No memory is deleted: one that the change added is forgotten.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeVar

from recall_server.domain.context import Context, Runtime
from recall_server.domain.episode import Citation, Span
from recall_server.domain.errors import Busy, ChangeNotFound, NotUndoable
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

_T = TypeVar("_T")


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


@dataclass
class _Effect:
    """The effect of an undo so far. A `dry` one writes nothing.

    `events`: how many events, of at most `events_max`.
    `last_seq`: the number of the last of them.
    `states`: the states that memories get; None: forgotten.
    `expired`: the texts whose expiry was taken back.
    `screens`: True if it changes what an administrator decided about a turn or a memory in
    quarantine.
    """

    events_max: int
    dry: bool
    changes: list[str] = field(default_factory=list)
    states: dict[str, MemoryState | None] = field(default_factory=dict)
    events: int = 0
    last_seq: int = 0
    expired: set[str] = field(default_factory=set)
    screens: bool = False
    memories: dict[str, None] = field(default_factory=dict)
    forgotten: dict[str, None] = field(default_factory=dict)
    texts: dict[str, None] = field(default_factory=dict)
    # Memories of which only relations were taken back.
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
        if dry_run or context.entry.bearer is not None:
            planned = _Effect(self.events_max, dry=True)
            # Without a lock, so that nobody waits for it.
            async with self.store.transaction(context.namespace, write=False) as tx:
                await self._undo(tx, rights, change_id, planned, with_dependents=with_dependents)
            if dry_run:
                return planned.report(None)
            await self._pass(context.namespace, planned.events)
        effect = _Effect(self.events_max, dry=False)
        # `erasing`: citations that a change added are deleted.
        async with self.store.transaction(
            context.namespace, entry=context.entry, erasing=True
        ) as tx:
            await tx.lock()
            await self._undo(tx, rights, change_id, effect, with_dependents=with_dependents)
            await commit.settle_ended(tx, self.runtime.now())
            await self._promise_expiries(tx, effect)
            if self.embeds:
                await promise_vectors(tx, self.runtime, effect.texts)
            context.entry.ids += effect.changes
            context.entry.counts["undone"] = len(effect.memories | effect.related) + len(
                effect.texts
            )
        self.runtime.wake()
        return effect.report(context.entry.change)

    async def _pass(self, namespace: Namespace, events: int) -> None:
        """Wait until a token may take back so many events. Raises `Busy`."""
        if events <= PACED_FROM:
            return
        wait_s = self._pace.wait_s(namespace, events, asyncio.get_running_loop().time())
        if wait_s is None:
            raise Busy("Much was taken back here just now. Wait a minute, then undo this too.")
        await asyncio.sleep(wait_s)

    async def _undo(
        self,
        tx: Transaction,
        rights: Rights,
        change_id: str,
        effect: _Effect,
        *,
        with_dependents: bool,
    ) -> None:
        counts = await tx.events.counts(change_id) if change_id else {}
        if not counts:
            raise ChangeNotFound
        for kind in _FINAL.keys() & counts.keys():
            raise NotUndoable(_FINAL[kind])
        effect.count(counts)
        now = self.runtime.now()
        await _take_back(tx, change_id, now, effect, with_dependents=with_dependents)
        if effect.screens:
            # Else the token that forgets could release what an administrator holds back.
            rights.require(Scope.ADMIN, whole_namespace=True)
        await _refuse_second_values(tx, effect)

    async def _promise_expiries(self, tx: Transaction, effect: _Effect) -> None:
        for episode_id in sorted(effect.expired):
            episode = await tx.episodes.get(episode_id)
            if episode is not None and Span(0, len(episode.text)) not in episode.forgotten:
                # The undo makes the text findable again; it still has to expire.
                await promise_expiry(tx, self.runtime, episode_id, episode.expires_at)


async def _take_back(
    tx: Transaction, change_id: str, now: datetime, effect: _Effect, *, with_dependents: bool
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
        if later not in effect.changes:
            effect.count(await tx.events.counts(later))
            await _take_back(tx, later, now, effect, with_dependents=True)
    effect.changes.append(change_id)
    for batch in _batches(items):
        reverting = _Reverting(
            tx, change_id, Histories(await tx.events.of_items(batch)), now, effect
        )
        await reverting.revert(batch)


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
    of_parts = {one.id: one.citation.span for one in await tx.episodes.items(parts)}
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
class _Reverting:
    """Gives items of a change the state that they had before it."""

    tx: Transaction
    change_id: str
    histories: Histories
    now: datetime
    effect: _Effect

    async def revert(self, items: Sequence[str]) -> None:
        of_change = {one: self.histories.of_change(one, self.change_id) for one in items}
        last = max(events[-1].seq for events in of_change.values())
        self.effect.last_seq = max(self.effect.last_seq, last)
        related = [one for one in items if self.histories.only_relates(one, self.change_id)]
        if not self.effect.dry:
            self.tx.relations.undone(related, self.change_id, self.now)
        self.effect.related.update(dict.fromkeys(related))
        of_change = {i: of_change[i] for i in items if i not in related}
        memories = {i: events for i, events in of_change.items() if events[0].state is not None}
        texts = {i: events[0] for i, events in of_change.items() if events[0].state is None}
        await self._memories(memories)
        differ = await self._words(list(memories), texts)
        for item_id, event in () if self.effect.dry else texts.items():
            assert event.episode_id is not None
            hides = differ.get(item_id)
            await self.tx.episodes.undone(
                item_id, self.change_id, event.episode_id, self.now, hides=hides
            )

    async def _memories(self, memories: Mapping[str, Sequence[MemoryEvent]]) -> None:
        states: dict[str, MemoryState | None] = {}
        reversals: list[Reversal] = []
        for memory_id, events in memories.items():
            states[memory_id] = state = self.histories.state_before(memory_id, self.change_id)
            dropped = [citation for one in events for citation in one.dropped]
            reversals.append(Reversal(memory_id, state, dropped))
            self.effect.screens |= _screens(state, events[-1].state)
            self.effect.memories[memory_id] = None
            if state is None or state.status is Status.FORGOTTEN:
                self.effect.forgotten[memory_id] = None
        self.effect.states |= states
        if not self.effect.dry:
            await self._restore(memories, states, reversals)

    async def _restore(
        self,
        memories: Mapping[str, Sequence[MemoryEvent]],
        states: Mapping[str, MemoryState | None],
        reversals: Sequence[Reversal],
    ) -> None:
        await self.tx.memories.undo(self.change_id, reversals, self.now)
        disputes: dict[str, bool] = {}
        for memory_id in memories:
            disputes |= self.histories.disputes(memory_id, self.change_id)
        await self.tx.disputes.undo(disputes, self.now)
        # An undo that reopened proposals is undone.
        again = [i for i, events in memories.items() if events[-1].kind is EventKind.UNDONE]
        await self.tx.proposals.close_reopened(again, self.now)
        standing = [one for one, state in states.items() if state]
        for memory_id, closed_at in await self.tx.proposals.closed_about(standing):
            if closed_at in {one.at for one in memories[memory_id]}:
                await self.tx.proposals.reopen(memory_id, closed_at)
        brought = [one for one in memories if self.histories.takes_out(one, self.change_id)]
        await self.tx.proposals.withdraw(brought, self.now)
        findable = {i for i, state in states.items() if state and state.status in FINDABLE}
        found = await self.tx.findables.found(memories)
        await indexing.hide(self.tx, found - findable)
        await indexing.show(self.tx, findable - found)
        # Filters that searches hold in memory go by the expiry.
        expire_otherwise = [
            one
            for one in findable & found
            if (before := states[one])
            and (after := memories[one][-1].state)
            and before.expires_at != after.expires_at
        ]
        if expire_otherwise:
            await self.tx.words.relabelled(expire_otherwise)

    async def _words(
        self, memories: Sequence[str], texts: Mapping[str, MemoryEvent]
    ) -> Mapping[str, bool]:
        """Show or hide the words of memories, texts and passages as before the change, and restore
        the decisions about turns in quarantine. Return the items whose words are now hidden (True)
        or shown (False).
        """
        differ = {
            item_id: before
            for item_id in (*memories, *texts)
            for before, after in (self.histories.hidden(item_id, self.change_id),)
            if before != after
        }
        decided = {
            item_id: before
            for item_id in texts
            for before, after in (self.histories.decided(item_id, self.change_id),)
            if before != after
        }
        self.effect.screens |= bool(decided)
        words = await self._cited([one for one in memories if one in differ])
        of_texts = {one: texts[one] for one in differ if one in texts}
        words |= {one: [place] for one, place in (await _places(self.tx, of_texts)).items()}
        touched = {one.episode_id for some in words.values() for one in some}
        touched |= {str(texts[one].episode_id) for one in decided}

        async def change() -> None:
            hidden = {one: words.get(one, ()) for one, hide in differ.items() if hide}
            await self.tx.episodes.hide_words(hidden, self.now)
            await self.tx.episodes.show_words([one for one in differ if one not in hidden])
            for turn_id, before in decided.items():
                await self.tx.quarantine.undo(turn_id, before)

        if touched and not self.effect.dry:
            await indexing.reread(self.tx, sorted(touched), change)
        self.effect.texts.update(dict.fromkeys(sorted(touched)))
        self.effect.expired.update(
            one for one, event in texts.items() if event.kind is EventKind.EXPIRED
        )
        return differ

    async def _cited(self, memories: Sequence[str]) -> dict[str, list[Citation]]:
        found: dict[str, list[Citation]] = {}
        for row in await self.tx.erasures.citations(memories) if memories else ():
            cited = Citation(row["episode_id"], span(row))
            found.setdefault(row["memory_id"], []).append(cited)
        return found


def _screens(before: MemoryState | None, after: MemoryState | None) -> bool:
    """True if a memory that both states are of is in quarantine in one of them only."""
    if before is None or after is None:
        return False
    return (before.status is Status.QUARANTINED) != (after.status is Status.QUARANTINED)


async def _refuse_second_values(tx: Transaction, effect: _Effect) -> None:
    """Raise `NotUndoable` if a memory that is active again contradicts one that changed after the
    events that were taken back.
    """
    changed = await tx.events.changed_after(effect.last_seq)
    keys: set[FactKey] = set()
    for batch in _batches([one for one in changed if one not in effect.memories]):
        keys.update(key for one in await tx.memories.active(batch) for key in fact_keys(one.fact))
    beliefs = Beliefs(tx)
    active = [one for one, state in effect.states.items() if state and state.retired_at is None]
    for batch in _batches(active):
        for memory in (await tx.memories.get(batch)).values() if keys else ():
            if keys.isdisjoint(fact_keys(memory.fact)):
                continue
            rivals = {one.id: one for one in await reconcile.rivals(tx, memory, beliefs)}
            # Not `rivals.keys() - effect.memories.keys()`: that walks all memories of the undo each
            # time.
            others = {one for one in rivals if one not in effect.memories}
            histories = Histories(await tx.events.of_items(others) if others else ())
            for rival in sorted(others):
                event = histories.changed_after(rival, effect.last_seq)
                if event is not None:
                    raise NotUndoable(
                        f"{memory.id} would hold again, and {rival} says otherwise since "
                        f"{event.at:%Y-%m-%d}. Forget or correct that first."
                    )
