"""Undo: takes back exactly what a job, task, import or call did to memories and texts, unless a
later change rests on it. No memory is deleted: one that the change added is forgotten.
"""

import asyncio
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from itertools import chain, islice

from recall_server.domain.context import Context, Runtime
from recall_server.domain.episode import Citation, Episode, Span, Turn, episode_of, turn_id
from recall_server.domain.errors import Busy, ChangeNotFound, NotUndoable
from recall_server.domain.fairness import Pace
from recall_server.domain.ids import Namespace
from recall_server.domain.memory import FINDABLE, Status
from recall_server.domain.memory_event import (
    Change,
    EventKind,
    Histories,
    MemoryEvent,
    MemoryState,
    Reversal,
)
from recall_server.domain.permissions import Rights, Scope
from recall_server.domain.plan import Resolution
from recall_server.domain.text.cleaning import storable
from recall_server.services.memory import commit, indexing, reconcile
from recall_server.services.memory.beliefs import Beliefs, FactKey, fact_keys
from recall_server.services.memory.episodes import promise_expiry
from recall_server.services.memory.indexing import promise_vectors
from recall_server.storage.driver import batches, span
from recall_server.storage.store import Store, Transaction

# How many items are held in memory at a time.
BATCH = 200
NAMED_MAX = 10
# Of so many memories does a dry run tell the words; of each, so many characters are read.
WORDS_MAX = 100
WORDS_CHARS = 200
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


@dataclass(frozen=True)
class Undone:
    """The result of an undo.

    `changes`: the changes that are undone, newest first.
    `memories`: the memories that are as they were before.
    `forgotten`: the memories that are forgotten, mostly because a change had added them.
    `texts`: the texts with words that are shown or hidden again.
    `change_id`: the undo itself, which can be undone; None in a dry run.
    `words`: of a dry run, how these memories begin, as far as its caller may read them.
    """

    changes: tuple[str, ...]
    memories: tuple[str, ...]
    forgotten: tuple[str, ...]
    texts: tuple[str, ...]
    change_id: str | None
    words: Mapping[str, str] = field(default_factory=dict, compare=False)


@dataclass(frozen=True)
class Page:
    """One page of changes; `next_before` is where the next page begins. By the id of the change,
    `answers`: those that settled disputes; and `words`: how a memory that it added, or else
    changed, begins, if one can still be read.
    """

    changes: tuple[Change, ...]
    next_before: int | None
    answers: Mapping[str, Sequence[Resolution]] = field(default_factory=dict)
    words: Mapping[str, str] = field(default_factory=dict)


@dataclass
class _Planned:
    """The plan of an undo, as far as it is made before the undo holds the lock.

    `events`: how many events, of at most `events_max`.
    `last_seq`: the number of the last of them.
    `states`: the states that memories get; None: forgotten.
    `reversals`: what becomes of each memory, change by change.
    `differ`: the items whose words are then hidden (True) or shown (False).
    `places`: the words of those of them that are no memories.
    `decided`: by turn, what was decided about it in quarantine.
    `expire_otherwise`: memories that expired, or will, at another time.
    `expired`: the texts whose expiry is taken back.
    `counts`: by type and topic, how many more memories are active then.
    `disputed`: True if a dispute may be open then.
    `screens`: True if it changes what an administrator decided about a turn or a memory in
    quarantine.
    `related`: memories of which only relations are taken back.
    `lacking`: the texts with words that are found again, perhaps without vectors.
    `hidden`: the words that items hide then; `shown`: items that hide none any more.
    `relabelled`: findable memories that expire otherwise.
    """

    events_max: int
    changes: dict[str, None] = field(default_factory=dict)
    steps: list["_Step"] = field(default_factory=list)
    states: dict[str, MemoryState | None] = field(default_factory=dict)
    reversals: dict[str, list[Reversal]] = field(default_factory=dict)
    differ: dict[str, bool] = field(default_factory=dict)
    places: dict[str, Citation] = field(default_factory=dict)
    decided: dict[str, MemoryEvent | None] = field(default_factory=dict)
    expire_otherwise: set[str] = field(default_factory=set)
    events: int = 0
    last_seq: int = 0
    expired: set[str] = field(default_factory=set)
    counts: Mapping[tuple[str, str], int] = field(default_factory=dict)
    disputed: bool = False
    screens: bool = False
    related: dict[str, None] = field(default_factory=dict)
    texts: Sequence[str] = ()
    lacking: Sequence[str] = ()
    hidden: Mapping[str, Sequence[Citation]] = field(default_factory=dict)
    shown: Sequence[str] = ()
    relabelled: Collection[str] = ()
    index: indexing.Prepared | None = None

    def count(self, counts: Mapping[EventKind, int]) -> None:
        """Count the events of one more change. Raises `NotUndoable` if there are too many."""
        self.events += sum(counts.values())
        if self.events > self.events_max:
            raise NotUndoable(
                f"It changed memories and texts {self.events:,} times, and at most "
                f"{self.events_max:,} are taken back at once, since others wait for it. An "
                f"operator can run recall undo with RECALL_UNDO_EVENTS_MAX={self.events}."
            )

    async def write(self, tx: Transaction, now: datetime) -> None:
        for step in self.steps:
            await step.write(tx, now)
            # The step only queues statements, so it never gave way to others.
            await asyncio.sleep(0)
        # An item that two changes have hidden may hide other words afterwards.
        await tx.episodes.show_words([*self.shown, *self.hidden])
        await tx.episodes.hide_words(self.hidden, now)
        await tx.quarantine.undo(self.decided)
        # Filters that searches hold in memory go by the expiry.
        if self.relabelled:
            await tx.words.relabelled(self.relabelled)
        assert self.index is not None
        await self.index.write(tx)
        await tx.events.correct_counts(self.counts, self.states)

    def report(self, change_id: str | None) -> Undone:
        gone = {
            one: None
            for one, state in self.states.items()
            if state is None or state.status is Status.FORGOTTEN
        }
        changed = dict.fromkeys((*self.states, *self.related))
        memories = tuple(one for one in changed if one not in gone)
        parts = (tuple(self.changes), memories, tuple(gone), tuple(self.texts))
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
            changed = {one.item_id for one in events if one.state is not None}
            readable = await tx.memories.beginnings(changed, WORDS_CHARS)
        counts: dict[str, Counter[EventKind]] = {}
        for one in events:
            counts.setdefault(one.change_id, Counter())[one.kind] += 1
        # The oldest event comes last and says how the change began.
        oldest = {one.change_id: one for one in events if one.change_id}
        found = [
            Change(i, one.at, one.operation, one.accessor, counts[i], undone=i in gone)
            for i, one in oldest.items()
        ]
        context.entry.counts["changes"] = len(found)
        more = len(events) == PAGE_EVENTS
        given: dict[str, list[Resolution]] = {}
        for dispute, answer in sorted(answers.items()):
            # A dispute that was settled again has the last of its answers.
            if ended_by := ending.get((dispute, answer.decided_at)):
                given.setdefault(ended_by, []).append(answer)
        words = _words_of(events, readable)
        return Page(tuple(found), events[-1].seq if more else None, given, words)

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
        made = await commit.planned(self.store, context.namespace, plan)
        if dry_run:
            found = made.plan.report(None)
            if not rights.allows(Scope.READ):
                return found
            ids = islice(chain(found.forgotten, found.memories), WORDS_MAX)
            async with self.store.view(context) as tx:
                return replace(found, words=await tx.memories.beginnings(ids, WORDS_CHARS))
        if context.entry.bearer is not None:
            await self._pass(context.namespace, made.plan.events)
        write = partial(self._write, context)
        planned = await commit.written(self.store, context, made, plan, write)
        assert planned.index is not None
        await planned.index.copy_vectors(self.store, context.namespace)
        self.runtime.wake()
        return planned.report(context.entry.change)

    async def _write(self, context: Context, tx: Transaction, planned: "_Planned") -> "_Planned":
        if planned.events <= PACED_FROM:
            # Only a large one is dated before its turn, since its statements take long to make.
            await tx.lock()
        now = await tx.moment()
        await planned.write(tx, now)
        if planned.disputed:
            await commit.settle_ended(tx, now)
        for episode_id in sorted(planned.expired):
            episode = await tx.episodes.get(episode_id)
            if episode is not None and Span(0, len(episode.text)) not in episode.forgotten:
                # The undo makes the text findable again; it still has to expire.
                await promise_expiry(tx, self.runtime, episode_id, episode.expires_at)
        if self.embeds:
            await promise_vectors(tx, self.runtime, planned.lacking)
        context.entry.ids = list(planned.changes)
        changed = len(planned.states.keys() | planned.related) + len(planned.texts)
        context.entry.counts["undone"] = changed
        return planned

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
        planned = _Planned(self.events_max)
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
        await _words(tx, planned)
        believed = [i for i, one in planned.states.items() if one and one.retired_at is None]
        planned.counts = await tx.events.counts_then(planned.states, believed)
        reopened = any(False in step.disputes.values() for step in planned.steps)
        planned.disputed = reopened or bool(await tx.disputes.page(limit=1, offset=0))
        return planned


def _words_of(events: Sequence[MemoryEvent], readable: Mapping[str, str]) -> dict[str, str]:
    """Return how the first memory begins that each change added, or changed if it added none."""
    added: dict[str, list[str]] = {}
    changed: dict[str, list[str]] = {}
    for one in reversed(events):  # the newest comes first
        if one.state is not None:
            kinds = added if one.kind in (EventKind.ADDED, EventKind.IMPORTED) else changed
            kinds.setdefault(one.change_id, []).append(one.item_id)
    first = {
        change: next((readable[one] for one in items if one in readable), "")
        for change, items in (changed | added).items()
    }
    return {change: text for change, text in first.items() if text}


async def _take_back(
    tx: Transaction, change_id: str, planned: _Planned, *, with_dependents: bool
) -> None:
    """Plan the undo of a change, and before it, of each change that rests on it. A chain of them
    may be longer than what Python lets functions call themselves.
    """
    under_way = {change_id: await _rests(tx, change_id, with_dependents=with_dependents)}
    while under_way:
        one, (items, resting) = next(reversed(under_way.items()))
        later = next((other for other in resting if other not in planned.changes), None)
        if later is None:
            del under_way[one]
            planned.changes[one] = None
            for batch in batches(items, BATCH):
                histories = Histories(await tx.events.of_items(batch))
                planned.steps.append(await _step(tx, one, batch, histories, planned))
        elif later in under_way:
            raise NotUndoable(
                f"{one} and {later} changed the same memories in turn, so neither can be taken "
                "back. Correct or forget these memories."
            )
        else:
            planned.count(await tx.events.counts(later))
            under_way[later] = await _rests(tx, later, with_dependents=True)


async def _rests(
    tx: Transaction, change_id: str, *, with_dependents: bool
) -> tuple[Sequence[str], Iterator[str]]:
    """Return the items of a change, and the changes that rest on it, newest first."""
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
            f"Later changes rest on it: {named}{more}. Undo these first, or with it: send "
            "with_dependents, or say `recall undo --with-dependents`."
        )
    return items, iter(resting)


async def _resting(tx: Transaction, change_id: str, items: Sequence[str]) -> list[str]:
    """Return the changes that still stand and rest on a change, newest first: those that changed
    one of its items later, and those whose memories cite words that its undo hides.
    """
    found: dict[str, int] = {}
    own = set(items)
    for batch in batches(await tx.events.changed_later(change_id), BATCH):
        histories = Histories(await tx.events.of_items(batch))
        found |= {one.change_id: one.seq for i in batch for one in histories.later(i, change_id)}
    for brought in batches(await tx.events.brought(change_id), BATCH):
        hides: dict[str, list[Span]] = {}
        for one in (await _places(tx, {one.item_id: one for one in brought})).values():
            hides.setdefault(one.episode_id, []).append(one.span)
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


async def _places(tx: Transaction, items: Mapping[str, MemoryEvent]) -> dict[str, Citation]:
    """Return where each of these texts, turns and passages stands."""
    parts = [one for one, event in items.items() if one != event.episode_id]
    of_parts = await tx.findables.places(parts)
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
    `texts`: the texts, turns and passages, each with its event in the change.
    `reversals`: what becomes of the memories.
    `disputes`: those that the change opened (True) or ended (False).
    `brought`: the memories that the change added.
    `again`: memories of which the change, an undo, reopened proposals; `closed`: those of which it
    closed proposals, with the moment.
    `differ`: the items whose words are then hidden (True) or shown (False).
    """

    change_id: str
    related: Sequence[str]
    texts: Mapping[str, MemoryEvent]
    reversals: Sequence[Reversal]
    disputes: Mapping[str, bool]
    brought: Sequence[str]
    again: Sequence[str]
    closed: Sequence[tuple[str, datetime]]
    differ: Mapping[str, bool]

    async def write(self, tx: Transaction, now: datetime) -> None:
        tx.relations.undone(self.related, self.change_id, now)
        await tx.memories.undo(self.change_id, self.reversals, now)
        await tx.disputes.undo(self.disputes, now)
        await tx.proposals.close_reopened(self.again, now)
        for memory_id, closed_at in self.closed:
            await tx.proposals.reopen(memory_id, closed_at)
        await tx.proposals.withdraw(self.brought, now)
        for item_id, event in self.texts.items():
            assert event.episode_id is not None
            hides = self.differ.get(item_id)
            await tx.episodes.undone(item_id, self.change_id, event.episode_id, now, hides=hides)


async def _step(
    tx: Transaction, change_id: str, items: Sequence[str], histories: Histories, planned: _Planned
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
    reversals = [histories.reversal(one, change_id) for one in memories]
    standing = [one.memory_id for one in reversals if one.state]
    for reversal in reversals:
        memory_id, state, *_ = reversal
        planned.reversals.setdefault(memory_id, []).append(reversal)
        after = memories[memory_id][-1].state
        planned.states[memory_id] = state
        planned.screens |= _screens(state, after)
        if state and after and state.expires_at != after.expires_at:
            planned.expire_otherwise.add(memory_id)
    planned.differ |= differ
    planned.places |= await _places(tx, {i: texts[i] for i in differ if i in texts})
    decided = {i: before for i, (before, after) in in_quarantine.items() if before != after}
    planned.decided |= decided
    planned.screens |= bool(decided)
    planned.related.update(dict.fromkeys(related))
    planned.expired.update(i for i, event in texts.items() if event.kind is EventKind.EXPIRED)
    return _Step(
        change_id,
        related,
        texts,
        reversals,
        disputes,
        brought=[one for one in memories if histories.takes_out(one, change_id)],
        again=[i for i, events in memories.items() if events[-1].kind is EventKind.UNDONE],
        closed=[
            (memory_id, closed_at)
            for memory_id, closed_at in await tx.proposals.closed_about(standing)
            if closed_at in {one.at for one in memories[memory_id]}
        ],
        differ=differ,
    )


async def _words(tx: Transaction, planned: _Planned) -> None:
    """Plan which words are hidden and shown, and what becomes of the index."""
    words = await _cited(tx, planned)
    words |= {one: [place] for one, place in planned.places.items()}
    planned.hidden = {one: words.get(one, ()) for one, hide in planned.differ.items() if hide}
    planned.shown = [one for one in planned.differ if one not in planned.hidden]
    hid: dict[str, Counter[Span]] = {}
    for row in await tx.erasures.hidden_by(planned.differ):
        hid.setdefault(row["episode_id"], Counter())[span(row)] += 1
    hides: dict[str, list[Span]] = {}
    for one in chain.from_iterable(planned.hidden.values()):
        hides.setdefault(one.episode_id, []).append(one.span)
    of_words = {one.episode_id for some in words.values() for one in some}
    touched = of_words | hid.keys() | set(map(episode_of, planned.decided))
    planned.texts = sorted(touched)

    def then(episode: Episode) -> Episode:
        left = Counter(episode.forgotten) - hid.get(episode.id, Counter())
        forgotten = (*left.elements(), *hides.get(episode.id, ()))
        turns = (_decided(episode.id, turn, planned.decided) for turn in episode.turns)
        return replace(episode, turns=tuple(turns), forgotten=forgotten)

    findable = {i for i, state in planned.states.items() if state and state.status in FINDABLE}
    found = await tx.findables.found(planned.states)
    planned.index = await indexing.prepared(
        tx, found - findable, findable - found, planned.texts, then
    )
    shown = planned.index.shown.ids
    of_shown = chain.from_iterable(words.get(one, ()) for one in shown)
    found_again = {*map(episode_of, shown), *(one.episode_id for one in of_shown)}
    planned.lacking = sorted(touched & found_again)
    planned.relabelled = planned.expire_otherwise & findable & found


def _decided(episode_id: str, turn: Turn, decided: Mapping[str, MemoryEvent | None]) -> Turn:
    """Return the turn as it is after what was decided about it in quarantine."""
    if (one := turn_id(episode_id, turn.index)) not in decided:
        return turn
    before = decided[one]
    return replace(turn, hidden=before is not None and before.kind is not EventKind.RELEASED)


async def _cited(tx: Transaction, planned: _Planned) -> dict[str, list[Citation]]:
    """Return the words that memories whose words are hidden or shown then cite."""
    found: dict[str, dict[int, Citation]] = {}
    for row in await tx.erasures.citations(planned.differ.keys() & planned.states.keys()):
        cited = Citation(row["episode_id"], span(row))
        found.setdefault(row["memory_id"], {})[row["position"]] = cited
    for memory_id, cited_by in found.items():
        for one in planned.reversals[memory_id]:
            if one.state is not None:
                gone = [i for i in cited_by if i >= one.state.citations or i in one.returned]
                for position in gone:
                    del cited_by[position]
            cited_by.update(one.dropped)
    return {one: list(cited_by.values()) for one, cited_by in found.items()}


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
    for batch in batches((one for one in changed if one not in planned.states), BATCH):
        keys.update(key for one in await tx.memories.active(batch) for key in fact_keys(one.fact))
    beliefs = Beliefs(tx)
    active = [one for one, state in planned.states.items() if state and state.retired_at is None]
    for batch in batches(active, BATCH):
        for memory in (await tx.memories.get(batch)).values() if keys else ():
            if keys.isdisjoint(fact_keys(memory.fact)):
                continue
            rivals = {one.id: one for one in await reconcile.rivals(tx, memory, beliefs)}
            # Not `rivals.keys() - planned.states.keys()`: that walks all memories of the undo
            # each time.
            others = {one for one in rivals if one not in planned.states}
            histories = Histories(await tx.events.of_items(others) if others else ())
            for rival in sorted(others):
                event = histories.changed_after(rival, planned.last_seq)
                if event is not None:
                    raise NotUndoable(
                        f"{memory.id} would hold again, and {rival} says otherwise since "
                        f"{event.at:%Y-%m-%d}. Forget or correct that first."
                    )
