"""The values of an attribute over time: when each was true, and when it was believed. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import NamedTuple

from recall_server.domain.attributes import is_single_valued, normal_value
from recall_server.domain.memory import Memory

# Two hundred values that are all kept have twenty thousand overlaps.
OVERLAPS_MAX = 200


class Interval(NamedTuple):
    """From `start` (inclusive) to `end` (exclusive); None: not ended yet."""

    start: datetime
    end: datetime | None

    def until(self, now: datetime) -> datetime:
        """Return the end, or now if there is none."""
        return max(self.start, now) if self.end is None else self.end


class Overlap(NamedTuple):
    """Two memories that were both true in an interval, by their ids."""

    interval: Interval
    one: str
    other: str


def true_in(memory: Memory) -> Interval:
    """Return when a memory was true in the world: until its end, or until it expired."""
    ends = [end for end in (memory.valid_until, memory.expires_at) if end is not None]
    end = min(ends, default=None)
    return Interval(memory.valid_from, end and max(end, memory.valid_from))


def known_in(memory: Memory) -> Interval:
    """Return when a memory was believed here."""
    return Interval(memory.recorded_at, memory.retired_at)


def without_taken_over(memories: Sequence[Memory]) -> list[Memory]:
    """Leave out the memories whose whole time another one has taken over that says the same: it was
    said before, and arrived later.
    """
    said = {
        one.id: (normal_value(one.fact.value), one.fact.negated) for one in memories if one.fact
    }

    def taken_over(one: Memory) -> bool:
        by = said.get(one.superseded_by or "")
        return one.valid_until == one.valid_from and by is not None and by == said.get(one.id)

    return [one for one in memories if not taken_over(one)]


@dataclass(frozen=True)
class Timeline:
    """The values of one attribute of one entity, in the order in which they became true. `cut`:
    older values exist that are not shown.
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
        """The intervals in which two values of a single-valued attribute were true, the first
        `OVERLAPS_MAX`.
        """
        if not is_single_valued(self.attribute):
            return ()
        return tuple(islice(self._overlapping(), OVERLAPS_MAX))

    def _overlapping(self) -> Iterator[Overlap]:
        values = [(one.id, true_in(one)) for one in self._values]
        for place, (one_id, one) in enumerate(values):
            for other_id, other in values[place + 1 :]:
                if one.end is not None and other.start >= one.end:
                    break  # all following values begin later still
                end = _earlier(one.end, other.end)
                if end is None or other.start < end:
                    yield Overlap(Interval(other.start, end), one_id, other_id)

    @property
    def _values(self) -> Sequence[Memory]:
        """The memories that state a value; a denial only says what it was not."""
        return [one for one in self.memories if one.fact and not one.fact.negated]


def _earlier(one: datetime | None, other: datetime | None) -> datetime | None:
    return min((end for end in (one, other) if end is not None), default=None)
