"""No source fills an answer by itself: a document that is stuffed to match every question would
push all others out of it (SECURITY LLM-09).
"""

import math
from collections import Counter
from collections.abc import Sequence

from recall_server.domain.model import Hit

SHARE = 0.5
"""Of the hits of an answer, how many others are to have, if there are so many: a source is a
session, or a text that came without one."""


def others(limit: int) -> int:
    """How many of `limit` hits are not for one source alone."""
    return math.floor(limit * SHARE)


def spread(hits: Sequence[Hit], size: int, reserved: int) -> list[Hit]:
    """The best `size` of `hits`, in their order, with `reserved` places of them kept from each
    source for the others. What these do not need goes to the best of those left out, behind them.
    """
    seen: Counter[str] = Counter()
    kept, left_out = list[Hit](), list[Hit]()
    for hit in hits:
        source = hit.item.place.source if hit.item.place is not None else hit.item.id
        seen[source] += 1
        (kept if seen[source] <= size - reserved else left_out).append(hit)
    return [*kept, *left_out][:size]
