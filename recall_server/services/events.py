"""Looking up when the events were that a question names."""

from collections.abc import Mapping, Sequence

from recall_server.domain import events
from recall_server.domain.periods import Period
from recall_server.domain.when import Event
from recall_server.storage.index import Statistics
from recall_server.storage.store import Transaction

# Items that may tell when an event was.
LOOKED_AT = 3


async def resolved(
    tx: Transaction,
    asked: Sequence[Event],
    statistics: Statistics,
    *,
    idf: Mapping[str, float],
    named: frozenset[str],
) -> tuple[Period, ...]:
    """The periods that the events of a question make, of each that is remembered here: one look-up
    of its words, bounded as that of the question is. `idf` is of the terms of the question, and
    `named` are the terms of speakers that it names.
    """
    found: list[Period] = []
    for event in asked:
        weights = events.weights(event, idf=idf, named=named, documents=statistics.documents)
        known = {term: weight for term, weight in weights.items() if term in idf}
        if not known:
            continue
        ids = await tx.words.pool(known, statistics, LOOKED_AT, await tx.reachable())
        tellers = events.tellers(weights, await tx.words.occurrences(list(known), ids))
        items = sorted(await tx.findables.placed(tellers), key=lambda item: item.id)
        found += [events.period(event, item.valid_from) for item in items]
    return tuple(found)
