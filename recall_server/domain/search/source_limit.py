"""No source fills an answer by itself: a document that is stuffed to match every question would
push all others out of it (SECURITY LLM-09).
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

T = TypeVar("T")

SHARE = 0.3
"""Of the hits of an answer, how many others are to have, if there are so many: a source is a
session, or a text that came without one. What is asked for often stands in one session: on LoCoMo
half of ten hits for others cost 1 point of recall@10, and these cost .1 to .3."""


def others(limit: int) -> int:
    """How many of `limit` hits are not for one source alone."""
    return round(limit * SHARE)


def spread(
    found: Iterable[T], source: Callable[[T], Hashable], size: int, reserved: int
) -> list[T]:
    """The best `size` of what was found, in their order, with `reserved` places of them kept from
    each source for the others. What these do not need goes to the best of those left out, behind
    them. No more is looked at than it takes.
    """
    seen: Counter[Hashable] = Counter()
    kept, left_out = list[T](), list[T]()
    for one in found:
        if len(kept) == size:
            break
        its = source(one)
        seen[its] += 1
        (kept if seen[its] <= size - reserved else left_out).append(one)
    return [*kept, *left_out][:size]
