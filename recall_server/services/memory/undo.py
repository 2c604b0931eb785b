"""Undo: what a job, task, import or call did to memories and texts is taken back exactly, unless
something later rests on it. Nothing is deleted: what a change added is forgotten.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime

from recall_server.domain.context import Context, Runtime
from recall_server.domain.episode import Citation, Episode, Span
from recall_server.domain.errors import ChangeNotFound, NotUndoable
from recall_server.domain.memory import FINDABLE, Status
from recall_server.domain.memory_event import Change, EventKind, Histories, MemoryEvent
from recall_server.domain.text.cleaning import storable
from recall_server.services.memory import commit, indexing, reconcile
from recall_server.services.memory.embedding import promise_vectors
from recall_server.storage.store import Store, Transaction

# An undo is one transaction, which others of the namespace wait for.
EVENTS_MAX = 5_000
NAMED_MAX = 10
PAGE_EVENTS = 1_000
# What a person decided about a turn is decided once, and time does not go back.
_FINAL = {
    EventKind.RELEASED: "It released a turn from quarantine: forget the turn instead.",
    EventKind.REJECTED: "It hid turns for good.",
    EventKind.RELABELLED: "It changed the labels of a text: change them again.",
    EventKind.EXPIRED: "What it ended was to end then: store it anew without expires_at.",
}


@dataclass(frozen=True)
class Undone:
    """What an undo takes back: the changes, newest first; memories that are as they were before,
    those that are forgotten since a change had added them, and texts whose words are shown or
    hidden again. `change_id` names the undo itself, which can be undone; None in a dry run.
    """

    changes: tuple[str, ...]
    memories: tuple[str, ...]
    forgotten: tuple[str, ...]
    texts: tuple[str, ...]
    change_id: str | None


@dataclass(frozen=True)
class Page:
    """The changes of the latest events; `next_before` is where to go on."""

    changes: tuple[Change, ...]
    next_before: int | None


class _RolledBack(Exception):
    """Ends the transaction of a dry run."""


@dataclass
class _Effect:
    """What was taken back so far."""

    changes: list[str] = field(default_factory=list)
    last_seq: int = 0
    memories: dict[str, None] = field(default_factory=dict)
    forgotten: dict[str, None] = field(default_factory=dict)
    texts: dict[str, None] = field(default_factory=dict)

    def report(self, change_id: str | None) -> Undone:
        memories = tuple(one for one in self.memories if one not in self.forgotten)
        parts = (tuple(self.changes), memories, tuple(self.forgotten), tuple(self.texts))
        return Undone(*parts, change_id)


@dataclass(frozen=True)
class Changes:
    """The changes of a namespace: listing them, and taking one back."""

    store: Store
    runtime: Runtime
    embeds: bool

    async def page(self, context: Context, before: int | None) -> Page:
        """The changes of the last `PAGE_EVENTS` events behind which no `before` was given, newest
        first.
        """
        async with self.store.view(context) as tx:
            events = await tx.events.page(before, PAGE_EVENTS)
            gone = Histories(await tx.events.of_items({one.item_id for one in events})).taken_back
        found: dict[str, Change] = {}
        for one in events:
            if not one.change_id:
                continue
            known = found.get(one.change_id)
            counts = dict(known.counts) if known else {}
            counts[one.kind] = counts.get(one.kind, 0) + 1
            # The oldest comes last, and says how it began.
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
        return Page(tuple(found.values()), events[-1].seq if more else None)

    async def undo(
        self, context: Context, change_id: str, *, dry_run: bool, with_dependents: bool
    ) -> Undone:
        """Take back a change, with `with_dependents` also all that rests on it; with `dry_run` only
        say what that would be. Raises `ChangeNotFound`, and `NotUndoable` where something rests on
        it, it was taken back before, or it is of a kind that cannot be.
        """
        storable(change_id)
        if dry_run:
            return await self._tried(context, change_id, with_dependents=with_dependents)
        # Citations that a change added are deleted.
        async with self.store.transaction(
            context.namespace, entry=context.entry, erasing=True
        ) as tx:
            now = self.runtime.now()
            effect = await _undone(tx, change_id, now, with_dependents=with_dependents)
            if self.embeds:
                await promise_vectors(tx, self.runtime, effect.texts)
            context.entry.ids += effect.changes
            context.entry.counts["undone"] = len(effect.memories) + len(effect.texts)
        self.runtime.wake()
        return effect.report(context.entry.change)

    async def _tried(self, context: Context, change_id: str, *, with_dependents: bool) -> Undone:
        """What an undo would do: it is done, and rolled back."""
        effect = _Effect()
        with suppress(_RolledBack):
            async with self.store.transaction(context.namespace, erasing=True) as tx:
                now = self.runtime.now()
                effect = await _undone(tx, change_id, now, with_dependents=with_dependents)
                raise _RolledBack
        return effect.report(None)


async def _undone(
    tx: Transaction, change_id: str, now: datetime, *, with_dependents: bool
) -> _Effect:
    effect = _Effect()
    await tx.lock()
    await _take_back(tx, change_id, now, effect, with_dependents=with_dependents)
    await commit.settle_ended(tx, now)
    await _refuse_second_values(tx, effect)
    return effect


async def _events(tx: Transaction, change_id: str) -> list[MemoryEvent]:
    """The events of a change. Raises what `undo` raises where it cannot be taken back at all."""
    events = await tx.events.of_change(change_id) if change_id else []
    if not events:
        raise ChangeNotFound
    for one in events:
        if one.kind in _FINAL:
            raise NotUndoable(f"This change cannot be taken back. {_FINAL[one.kind]}")
    if len(events) > EVENTS_MAX:
        raise NotUndoable(
            f"This change is of {len(events)} memories and texts; at most {EVENTS_MAX} are taken "
            "back at once."
        )
    return events


async def _take_back(
    tx: Transaction, change_id: str, now: datetime, effect: _Effect, *, with_dependents: bool
) -> None:
    events = await _events(tx, change_id)
    items = list(dict.fromkeys(one.item_id for one in events))
    histories = Histories(await tx.events.of_items(items))
    if change_id in histories.taken_back:
        raise NotUndoable("This change was taken back already. Undo the undo to have it again.")
    resting = await _resting(tx, change_id, items, histories)
    if resting and not with_dependents:
        named = ", ".join(resting[:NAMED_MAX])
        more = f" and {len(resting) - NAMED_MAX} more" if len(resting) > NAMED_MAX else ""
        raise NotUndoable(
            f"Later changes rest on it: {named}{more}. Undo these first, or send with_dependents."
        )
    for later in resting:
        if later not in effect.changes:
            await _take_back(tx, later, now, effect, with_dependents=True)
    effect.changes.append(change_id)
    effect.last_seq = max(effect.last_seq, events[-1].seq)
    for item_id in items:
        of_item = histories.of_change(item_id, change_id)
        if of_item[0].state is not None:
            await _memory(tx, of_item, histories, now, effect)
        else:
            await _words(tx, of_item[0], histories, now, effect)


async def _resting(
    tx: Transaction, change_id: str, items: Sequence[str], histories: Histories
) -> list[str]:
    """The changes that still stand and rest on a change, the newest first: those that changed one
    of its items later, and those whose memories cite a text that it brought.
    """
    found = {one.change_id: one.seq for i in items for one in histories.later(i, change_id)}
    texts = [
        i
        for i in items
        for one in histories.of_change(i, change_id)
        if one.kind in (EventKind.ADDED, EventKind.IMPORTED) and one.state is None
    ]
    cited = {
        (row["memory_id"], row["position"])
        for row in await tx.erasures.citations_in(texts)
        if row["memory_id"] not in items
    }
    of_memories = Histories(await tx.events.of_items({one for one, _ in cited}))
    for memory_id, position in sorted(cited):
        event = of_memories.cited(memory_id, position)
        if event is not None and event.change_id != change_id:
            found[event.change_id] = event.seq
    return sorted(filter(None, found), key=found.__getitem__, reverse=True)


async def _memory(
    tx: Transaction,
    events: Sequence[MemoryEvent],
    histories: Histories,
    now: datetime,
    effect: _Effect,
) -> None:
    """Give a memory the state that it had before these events."""
    memory_id, change_id = events[0].item_id, events[0].change_id
    before = histories.before(memory_id, change_id)
    state = before.state if before else None
    dropped = [citation for one in events for citation in one.dropped]
    await tx.memories.undo(memory_id, change_id, state, dropped, now)
    moments = {one.at for one in events}
    for opened_at in {one.at for one in events if one.kind is EventKind.DISPUTED}:
        await tx.disputes.withdraw(memory_id, opened_at, now)
    if state and state.status is Status.DISPUTED:
        for closed_at in moments:
            await tx.disputes.reopen(memory_id, closed_at)
    if state is None:
        await tx.proposals.withdraw(memory_id, now)
    else:
        for closed_at in moments:
            await tx.proposals.reopen(memory_id, closed_at)
    found = bool(await tx.findables.found([memory_id]))
    if found and not (state and state.status in FINDABLE):
        await indexing.hide(tx, [memory_id])
    elif not found and state and state.status in FINDABLE:
        await indexing.show(tx, [memory_id])
    hidden = histories.hidden(memory_id, change_id)
    if hidden[0] != hidden[1]:
        words = await tx.memories.citations([memory_id])
        await _hide(tx, memory_id, words, now, effect, hide=hidden[0])
    effect.memories[memory_id] = None
    if state is None or state.status is Status.FORGOTTEN:
        effect.forgotten[memory_id] = None


async def _words(
    tx: Transaction, event: MemoryEvent, histories: Histories, now: datetime, effect: _Effect
) -> None:
    """Show or hide the words of a text or a passage as before this event."""
    item_id, change_id, episode_id = event.item_id, event.change_id, event.episode_id
    assert episode_id is not None
    hidden = histories.hidden(item_id, change_id)
    if hidden[0] != hidden[1]:
        episode = await tx.episodes.get(episode_id)
        assert episode is not None
        words = [Citation(episode_id, await _span(tx, item_id, episode))]
        await _hide(tx, item_id, words, now, effect, hide=hidden[0])
    await tx.episodes.undone(item_id, change_id, episode_id, now)


async def _span(tx: Transaction, item_id: str, episode: Episode) -> Span:
    if item_id != episode.id and (items := await tx.episodes.items([item_id])):
        return items[0].citation.span
    return Span(0, len(episode.text))


async def _hide(
    tx: Transaction,
    item_id: str,
    words: Sequence[Citation],
    now: datetime,
    effect: _Effect,
    *,
    hide: bool,
) -> None:
    texts = sorted({one.episode_id for one in words})

    async def change() -> None:
        if hide:
            await tx.episodes.hide_words(item_id, words, now)
        else:
            await tx.episodes.show_words(item_id)

    await indexing.reread(tx, texts, change)
    effect.texts.update(dict.fromkeys(texts))


async def _refuse_second_values(tx: Transaction, effect: _Effect) -> None:
    """Raise `NotUndoable` where a memory that is active again contradicts one that became active
    after what was taken back.
    """
    for memory in await tx.memories.active(list(effect.memories)):
        rivals = {one.id: one for one in await reconcile.rivals(tx, memory)}
        for event in await tx.events.of_items(rivals.keys() - effect.memories.keys()):
            if event.seq > effect.last_seq:
                rival = rivals[event.item_id]
                raise NotUndoable(
                    f"{memory.id} would hold again, and {rival.id} says otherwise since "
                    f"{event.at:%Y-%m-%d}. Forget or correct that first."
                )
