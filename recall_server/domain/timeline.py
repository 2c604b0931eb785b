"""The values of an attribute over time: from when until when each was true, and was known. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from recall_server.domain.attributes import is_single_valued
from recall_server.domain.memory import Memory


class Interval(NamedTuple):
    """From a moment until another, which is no part of it; None is not ended yet."""

    start: datetime
    end: datetime | None

    def until(self, now: datetime) -> datetime:
        """The end, or now where there is none."""
        return max(self.start, now) if self.end is None else self.end


class Overlap(NamedTuple):
    """Two memories that were both true in an interval, by their ids."""

    interval: Interval
    one: str
    other: str


def true_in(memory: Memory) -> Interval:
    """When a memory was true in the world: up to its end, or until it expired."""
    ends = [end for end in (memory.valid_until, memory.expires_at) if end is not None]
    end = min(ends, default=None)
    return Interval(memory.valid_from, end and max(end, memory.valid_from))


def known_in(memory: Memory) -> Interval:
    """When it was believed here."""
    return Interval(memory.recorded_at, memory.retired_at)


@dataclass(frozen=True)
class Timeline:
    """What was said of one attribute of one entity, what began first first. `cut`: there is more of
    it than is shown, and older.
    """

    entity: str
    attribute: str
    memories: tuple[Memory, ...]
    cut: bool = False

    @property
    def gaps(self) -> tuple[Interval, ...]:
        """The intervals between the first and the last value in which none was true."""
        found, reached = [], None
        for memory in self._values:
            start, end = true_in(memory)
            if reached is not None and start > reached:
                found.append(Interval(reached, start))
            if end is None:
                break
            reached = end if reached is None else max(reached, end)
        return tuple(found)

    @property
    def overlaps(self) -> tuple[Overlap, ...]:
        """The intervals in which two values were true, of an attribute that has one at a time."""
        values = self._values
        if not is_single_valued(self.attribute):
            return ()
        found = []
        for place, one in enumerate(values):
            for other in values[place + 1 :]:
                start, end = true_in(other).start, _earlier(true_in(one).end, true_in(other).end)
                if end is None or start < end:
                    found.append(Overlap(Interval(start, end), one.id, other.id))
        return tuple(found)

    @property
    def _values(self) -> Sequence[Memory]:
        """The memories that say what the value was; a denial says what it was not."""
        return [one for one in self.memories if one.fact and not one.fact.negated]


def _earlier(one: datetime | None, other: datetime | None) -> datetime | None:
    return min((end for end in (one, other) if end is not None), default=None)
