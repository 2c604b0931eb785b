"""Ranks the later of two statements about the same thing first. Pure."""

from collections.abc import Hashable, Sequence
from datetime import datetime

from recall_server.domain.query import Item
from recall_server.domain.security.trust import Witness
from recall_server.domain.text.terms import terms

# How many of the best hits are compared. On FactConsolidation, two statements about one thing are
# together among them.
LOOKED_AT = 10
# Longer texts say more than one thing.
TERMS_MAX = 25
# The least share of common terms (Jaccard) of two statements about the same thing.
ALIKE_MIN = 0.4


def later_first(question: str, items: Sequence[Item]) -> tuple[list[int], dict[int, int]]:
    """Return the places of `items` in their new order, and for each that gave way the place of the
    latest item above it about the same thing: in the same container, by the same speaker, with the
    same terms of the question. The later item swaps places with the earlier one.

    Superseded items are not compared, as their order is decided. A less trusted item never goes
    above a more trusted one.
    """
    asked = frozenset(terms(question))
    said = [frozenset(terms(item.searchable)) for item in items]
    about = [_about(item, of_item, asked) for item, of_item in zip(items, said, strict=True)]
    order = list(range(len(items)))
    alike: dict[Hashable, list[int]] = {}
    for place in order:
        if about[place] is not None:
            alike.setdefault(about[place], []).append(place)
    if len(alike) == sum(map(len, alike.values())):
        return order, {}
    when = [_when(item) for item in items]
    trust = [_trust(item) for item in items]

    def is_later(other: int, one: int) -> bool:
        """True if the other, about the same thing, may rank above this one."""
        return (
            when[other] > when[one]
            and trust[other] >= trust[one]
            and len(said[one] & said[other]) >= ALIKE_MIN * len(said[one] | said[other])
        )

    above = [
        [other for other in alike.get(of_one, ()) if is_later(other, one)]
        for one, of_one in enumerate(about)
    ]

    def later(one: int, others: Sequence[int]) -> int | None:
        """Return the latest of the others that may rank above this one."""
        if not above[one]:
            return None
        return max((i for i in others if i in above[one]), key=when.__getitem__, default=None)

    for place, here in enumerate(order):
        if (other := later(here, order[place + 1 :])) is not None:
            at = order.index(other)
            order[place], order[at] = other, here
    gave_way = {here: later(here, order[:place]) for place, here in enumerate(order)}
    return order, {here: other for here, other in gave_way.items() if other is not None}


def _about(item: Item, said: frozenset[str], asked: frozenset[str]) -> Hashable:
    """Return a key that is equal for statements about the same thing; None: do not compare."""
    shared = said & asked
    if not shared or len(said) > TERMS_MAX or item.superseded_by:
        return None
    return shared, item.container, item.citation.speaker


def _when(item: Item) -> tuple[datetime, datetime, int]:
    """Return the sort key of a statement: when it became true, was recorded, and its position."""
    return item.valid_from, item.recorded_at, item.citation.span.start


def _trust(item: Item) -> int:
    cited = item.citation
    return Witness(cited.episode_id, cited.span, cited.speaker, None, item.agent_id).trust
