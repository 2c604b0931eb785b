"""Looking up when the events were that a question names."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from recall_server.domain import event_periods
from recall_server.domain.search import candidates
from recall_server.domain.search.fusion import Pool
from recall_server.domain.search.index_entry import TermPostings, words_in
from recall_server.domain.search.question_time import Event
from recall_server.domain.text.periods import Period
from recall_server.storage.index.documents import Documents
from recall_server.storage.index.words import Statistics
from recall_server.storage.store import Transaction

# Items that may tell when an event was.
LOOKED_AT = 3


async def resolved(
    tx: Transaction,
    documents: Documents,
    asked: Sequence[Event],
    statistics: Statistics,
    *,
    postings: Mapping[str, TermPostings],
    idf: Mapping[str, float],
    named: frozenset[str],
) -> tuple[Period, ...]:
    """The periods that the events of a question make, of each that is remembered here: one look at
    the postings of its words, which are among those of the question. `idf` is of the terms of the
    question, and `named` are the terms of speakers that it names.
    """
    found: list[Period] = []
    for event in asked:
        weights = event_periods.weights(event, idf=idf, named=named, documents=statistics.documents)
        known = {term: weight for term, weight in weights.items() if term in idf}
        said = {term: postings[term] for term in known}
        allowed = await tx.words.allowed(documents)
        slots = candidates.by_words(said, known, statistics.average_length, allowed, LOOKED_AT)
        await tx.words.know(documents, slots)
        slots = slots[documents.by_id(slots)]
        tellers = slots[event_periods.tellers(weights, words_in(slots, said))]
        moments = Pool(*documents.columns(tellers)).valid_from.tolist()
        found += [event_periods.period(event, datetime.fromtimestamp(at, UTC)) for at in moments]
    return tuple(found)
