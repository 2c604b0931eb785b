"""Events: each change of a memory or a passage, with its author, reason and resulting state; and
what they say about undoing a change.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple, TypeVar

from recall_server.domain.episode import Citation
from recall_server.domain.ids import is_proposal
from recall_server.domain.memory import Status

_T = TypeVar("_T")


class EventKind(StrEnum):
    """The kinds of events of a text, a turn, a passage or a memory."""

    ADDED = "added"
    IMPORTED = "imported"
    """`reason` is "forgotten" if its words were hidden in the file."""
    REINFORCED = "reinforced"
    SUPERSEDED = "superseded"
    DISPUTED = "disputed"
    """A dispute about it was opened: `reason` is the id of the dispute."""
    SETTLED = "settled"
    """A dispute about it ended, or other words took the place of a proposal of it: `reason` is the
    id of the dispute or the proposal."""
    DEPRECATED = "deprecated"
    CONSOLIDATED = "consolidated"
    FORGOTTEN = "forgotten"
    RESTORED = "restored"
    EXPIRED = "expired"
    QUARANTINED = "quarantined"
    RELEASED = "released"
    REJECTED = "rejected"
    RELABELLED = "relabelled"
    """Its tags, metadata or expiry were changed."""
    UNCITED = "uncited"
    """Citations of it were taken back."""
    RELATED = "related"
    """A relation to or from it was stated: `reason` is its kind. Its state stays as it was."""
    UNDONE = "undone"
    """A change was taken back: `reason` names it."""


@dataclass(frozen=True)
class MemoryState:
    """The mutable state of a memory; `citations` is the position that its next citation gets."""

    status: Status
    superseded_by: str | None
    valid_until: datetime | None
    retired_at: datetime | None
    expires_at: datetime | None
    confidence: float
    reinforcements: int
    citations: int

    def fields(self) -> dict[str, Any]:
        """Return it as fields of a memory, without its citations, which are rows of their own."""
        return {name: value for name, value in vars(self).items() if name != "citations"}


@dataclass(frozen=True)
class MemoryEvent:
    """One event.

    `seq`: orders the events of a namespace.
    `change_id`: the job, task, import or call that it is a part of.
    `state`: the state of a memory after the event; the previous event has the state before it. A
    text, turn or passage has an `episode_id` instead.
    `dropped`: the citations that a memory lost, with their positions.
    """

    seq: int
    change_id: str
    at: datetime
    kind: EventKind
    item_id: str
    reason: str = ""
    operation: str = ""
    accessor: str | None = None
    episode_id: str | None = None
    state: MemoryState | None = None
    dropped: tuple[tuple[int, Citation], ...] = ()


class Reversal(NamedTuple):
    """The state that a memory had before a change, or None if the change added it; the citations
    that it lost in the change, with their positions; the positions of those that the change, an
    undo, gave back to it; and whether the change may have given it any.
    """

    memory_id: str
    state: MemoryState | None
    dropped: Sequence[tuple[int, Citation]]
    returned: Sequence[int] = ()
    cited: bool = True


class InDispute(NamedTuple):
    """A memory in a dispute: when that was opened, None in another database; and when it ended.
    `seq` is the event that opened it: of a dispute, the new side has the first.
    """

    seq: int
    opened_at: datetime | None
    closed_at: datetime | None


@dataclass(frozen=True)
class Change:
    """The events of one job, task, import or call, counted by kind; `undone`: it was taken back."""

    id: str
    at: datetime
    operation: str
    accessor: str | None
    counts: Mapping[EventKind, int]
    undone: bool = False


class Histories:
    """All events of some items, and what they say about changes that were taken back."""

    def __init__(self, events: Iterable[MemoryEvent]) -> None:
        self._of_item: dict[str, list[MemoryEvent]] = {}
        # By item and change: True if the change only stated or took back relations of the item.
        self._only_relates: dict[tuple[str, str], bool] = {}
        # By item and change: the disputes that the change opened (True) or ended (False).
        self._disputes: dict[tuple[str, str], dict[str, bool]] = {}
        undoing: dict[tuple[str, str], int] = {}
        for one in sorted(events, key=lambda one: one.seq):
            self._of_item.setdefault(one.item_id, []).append(one)
            key = one.item_id, one.change_id
            self._note_disputes(one)
            only_relates = one.kind is EventKind.RELATED
            if one.kind is EventKind.UNDONE:
                undoing[one.change_id, one.reason] = one.seq
                only_relates = self.only_relates(one.item_id, one.reason)
            self._only_relates[key] = only_relates and self._only_relates.get(key, True)
        self.taken_back: dict[str, str] = {}
        """The changes that were undone and whose undo was not undone in turn, with their undos."""
        for undo, change in sorted(undoing, key=undoing.__getitem__, reverse=True):
            if undo not in self.taken_back:
                self.taken_back[change] = undo

    def _note_disputes(self, event: MemoryEvent) -> None:
        changed = {event.reason: event.kind is EventKind.DISPUTED}
        if event.kind is EventKind.UNDONE:
            undone = self.disputes(event.item_id, event.reason)
            changed = {dispute: not opened for dispute, opened in undone.items()}
        elif event.kind not in (EventKind.DISPUTED, EventKind.SETTLED):
            return
        of_change = self._disputes.setdefault((event.item_id, event.change_id), {})
        for dispute, opened in changed.items():
            if of_change.get(dispute, opened) is opened:
                of_change[dispute] = opened
            else:
                del of_change[dispute]  # opened and ended by the same change

    def disputes(self, item_id: str, change_id: str) -> Mapping[str, bool]:
        """Return the disputes of an item that a change opened (True) or ended (False)."""
        return self._disputes.get((item_id, change_id), {})

    def in_disputes(self, item_id: str) -> dict[str, InDispute]:
        """Return the disputes that the events of a memory tell of, as they stand now."""
        found: dict[str, InDispute] = {}
        for one in self._of_item.get(item_id, ()):
            if one.kind is EventKind.DISPUTED:
                found[one.reason] = InDispute(one.seq, one.at, None)
            elif one.kind is EventKind.SETTLED and not is_proposal(one.reason):
                known = found.get(one.reason, InDispute(0, None, None))
                found[one.reason] = known._replace(closed_at=one.at)
            elif one.kind is EventKind.UNDONE:
                for dispute, opened in self.disputes(item_id, one.reason).items():
                    if dispute in found:
                        closed = (found[dispute].closed_at or one.at) if opened else None
                        found[dispute] = found[dispute]._replace(closed_at=closed)
        return found

    def open_disputes(self, item_id: str) -> set[str]:
        found = self.in_disputes(item_id)
        return {dispute for dispute, known in found.items() if known.closed_at is None}

    def of_change(self, item_id: str, change_id: str) -> list[MemoryEvent]:
        return [one for one in self._of_item.get(item_id, ()) if one.change_id == change_id]

    def only_relates(self, item_id: str, change_id: str) -> bool:
        """True if a change only stated or took back relations of an item."""
        return self._only_relates.get((item_id, change_id), False)

    def related(self, item_id: str, reason: str) -> dict[str, MemoryEvent]:
        """Return the events that stated relations of an item for this reason, by change id."""
        return {
            one.change_id: one
            for one in self._of_item.get(item_id, ())
            if one.kind is EventKind.RELATED and one.reason == reason
        }

    def before(self, item_id: str, change_id: str) -> MemoryEvent | None:
        """Return the last event of an item before those of a change."""
        found = None
        for one in self._of_item.get(item_id, ()):
            if one.change_id == change_id:
                return found
            found = one
        return None

    def later(self, item_id: str, change_id: str) -> list[MemoryEvent]:
        """Return the events of an item after those of a change that still stand and rest on it:
        neither undone, nor the undo of a change that is taken back. Changed labels and relations
        rest on nothing, and nothing rests on a relation.
        """
        if self.only_relates(item_id, change_id):
            return []
        last = self.of_change(item_id, change_id)[-1].seq
        return [
            one
            for one in self._of_item[item_id]
            if one.seq > last
            and one.kind is not EventKind.RELABELLED
            and not self.only_relates(item_id, one.change_id)
            and one.change_id not in self.taken_back
            and not (one.kind is EventKind.UNDONE and one.reason in self.taken_back)
        ]

    def changed_after(self, item_id: str, seq: int) -> MemoryEvent | None:
        """Return an event of an item behind this number that changed it, None if there is none: a
        change behind the number and its undo leave the item as it was.
        """
        for one in self._of_item.get(item_id, ()):
            undoes = one.kind is EventKind.UNDONE and one.reason in self.taken_back
            if one.seq <= seq or one.change_id in self.taken_back:
                continue
            if not undoes or self.of_change(item_id, one.reason)[0].seq <= seq:
                return one
        return None

    def reversal(self, memory_id: str, change_id: str) -> Reversal:
        state = self._state_before(memory_id, change_id)
        events = self.of_change(memory_id, change_id)
        after = events[-1].state
        undone = {one.reason for one in events if one.kind is EventKind.UNDONE}
        returned = [place for one in undone for place, _ in self._dropped(memory_id, one)]
        more = state is None or after is None or after.citations > state.citations
        dropped = self._dropped(memory_id, change_id)
        return Reversal(memory_id, state, dropped, returned, bool(more or returned))

    def _state_before(self, item_id: str, change_id: str) -> MemoryState | None:
        """Return the state of a memory before a change, with the expiry that it was given since;
        None if the change added it.
        """
        before = self.before(item_id, change_id)
        if before is None or before.state is None:
            return None
        last = self.of_change(item_id, change_id)[-1].seq
        ends = [
            one.state.expires_at
            for one in self._of_item[item_id]
            if one.seq > last and one.kind is EventKind.RELABELLED and one.state is not None
        ]
        return replace(before.state, expires_at=ends[-1]) if ends else before.state

    def takes_out(self, item_id: str, change_id: str) -> bool:
        """Return whether the undo of a change takes back that the item was added: the change added
        it, or is an undo by which it stands again.
        """
        undoes = False
        while (event := self.of_change(item_id, change_id)[-1]).kind is EventKind.UNDONE:
            change_id, undoes = event.reason, not undoes
        return not undoes and self.before(item_id, change_id) is None

    def _dropped(self, item_id: str, change_id: str) -> list[tuple[int, Citation]]:
        """Return the citations that a memory lost in a change, with their positions."""
        return [lost for one in self.of_change(item_id, change_id) for lost in one.dropped]

    def cited(self, memory_id: str, position: int) -> MemoryEvent | None:
        """Return the event that gave a memory its citation at this position, if it still stands."""
        for one in self._of_item.get(memory_id, ()):
            if one.state is not None and one.state.citations > position:
                return None if one.change_id in self.taken_back else one
        return None

    def hidden(self, item_id: str, change_id: str) -> tuple[bool, bool]:
        """Return whether the words of an item were hidden before a change, and after it. Before it
        is stored, a text counts as hidden.
        """

        def left(hidden: bool, event: MemoryEvent) -> bool:
            if _hidden_in_file(event):
                return True
            return event.kind in _HIDES if event.kind in (*_HIDES, *_SHOWS) else hidden

        first = next(iter(self._of_item.get(item_id, ())), None)
        brought = first is not None and first.kind in _ADDS and first.state is None
        came_hidden = first is not None and _hidden_in_file(first)
        return self._around(item_id, change_id, brought or came_hidden, left)

    def decided(
        self, item_id: str, change_id: str
    ) -> tuple[MemoryEvent | None, MemoryEvent | None]:
        """Return the event that last decided about a turn (held back, released or rejected) before
        a change, and after it; None if there is none. A turn that was held back on arrival has that
        event from the beginning.
        """

        def left(decided: MemoryEvent | None, event: MemoryEvent) -> MemoryEvent | None:
            return event if event.kind in SCREENED else decided

        first = next(iter(self._of_item.get(item_id, ())), None)
        held = first if first is not None and first.kind is EventKind.QUARANTINED else None
        return self._around(item_id, change_id, held, left)

    def _around(
        self, item_id: str, change_id: str, state: _T, left: Callable[[_T, MemoryEvent], _T]
    ) -> tuple[_T, _T]:
        """Return the state of an item before a change and after it. `state` is its first state;
        `left(state, event)` returns the state after an event.
        """
        before: dict[str, _T] = {}
        after = state
        for one in self._of_item.get(item_id, ()):
            before.setdefault(one.change_id, state)
            if one.kind is EventKind.UNDONE:
                if not self.only_relates(item_id, one.reason):
                    state = before.get(one.reason, state)
            else:
                state = left(state, one)
            if one.change_id == change_id:
                after = state
        return before.get(change_id, state), after


def _hidden_in_file(event: MemoryEvent) -> bool:
    return event.kind is EventKind.IMPORTED and event.reason == EventKind.FORGOTTEN


_ADDS = (EventKind.ADDED, EventKind.IMPORTED)
_SHOWS = (EventKind.RESTORED, *_ADDS)
_HIDES = (EventKind.FORGOTTEN, EventKind.EXPIRED)
SCREENED = (EventKind.QUARANTINED, EventKind.RELEASED, EventKind.REJECTED)
