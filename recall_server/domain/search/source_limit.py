"""A limit on the share of one source in an answer: a document that is stuffed to match every
question would otherwise displace all others.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence

SHARE = 0.3
"""The share of the hits that is reserved for other sources, if there are so many: a source is a
session, or a text that came without one. Answers often stand in one session: on LoCoMo half of ten
hits for others cost 1 point of recall@10, and these cost .1 to .3."""


def others(limit: int) -> int:
    """How many of `limit` hits are reserved for other sources."""
    return round(limit * SHARE)


def spread(
    places: Iterable[int], sources: Sequence[Hashable], size: int, reserved: int
) -> list[int]:
    """The first `size` of `places`, in their order, with `reserved` of them kept from each source
    for the others; `sources` has the source at each place. Places that the others do not need go to
    the best of those left out, behind them. No more is looked at than it takes.
    """
    seen: Counter[Hashable] = Counter()
    kept, left_out = list[int](), list[int]()
    most = size - reserved
    for place in places:
        if len(kept) == size:
            break
        source = sources[place]
        seen[source] += 1
        (kept if seen[source] <= most else left_out).append(place)
    return [*kept, *left_out][:size]
