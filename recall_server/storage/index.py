"""The word index: which terms stand in which findable item, with each namespace's own statistics
(SECURITY: a shared index tells one tenant of another's words).
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from recall_server.domain.model import Findable, Namespace
from recall_server.domain.ranking import K1, B
from recall_server.domain.words import speaker_terms, term_counts
from recall_server.storage.driver import Document
from recall_server.storage.handle import Handle

POSTINGS_READ = 500


@dataclass(frozen=True)
class Statistics:
    """What a namespace holds: findable items, their words, the version of its vectors, how often
    something was erased, and in how many items each term asked for stands (none: left out).
    """

    documents: int = 0
    words: int = 0
    vector_version: int = 0
    erase_epoch: int = 0
    frequencies: Mapping[str, int] = field(default_factory=dict)

    @property
    def average_length(self) -> float:
        return max(self.words / max(self.documents, 1), 1.0)


@dataclass(frozen=True)
class Postings:
    """What the index has to hold of some items: made outside a transaction, as it takes a while."""

    rows: tuple[tuple[str, str, int, int], ...]
    documents: int
    words: int

    def without(self, ids: Collection[str]) -> "Postings":
        """The same, as if these items were not there."""
        lengths = {item_id: length for _, item_id, _, length in self.rows if item_id in ids}
        rows = tuple(row for row in self.rows if row[1] not in ids)
        return Postings(rows, self.documents - len(ids), self.words - sum(lengths.values()))

    def frequencies(self) -> dict[str, int]:
        return Counter(term for term, *_ in self.rows)


def postings(found: Mapping[str, Findable]) -> Postings:
    """The postings of items, by their ids. They follow from what an item is found by alone, so what
    was added with it can be removed with it.
    """
    rows: list[tuple[str, str, int, int]] = []
    words = 0
    for item_id, findable in found.items():
        counts, length = term_counts(findable.text)
        words += length
        rows += [(term, item_id, occurrences, length) for term, occurrences in counts.items()]
        rows += [(term, item_id, 1, length) for term in speaker_terms(findable.speaker)]
    return Postings(tuple(rows), len(found), words)


class WordIndex:
    """Keyword look-up over memories and open turns."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    async def add(self, added: Postings) -> None:
        """Make items findable by their words."""
        await self._count(added, 1)
        await self._handle.send("add_postings", rows=Document(added.rows))

    async def remove(self, removed: Postings) -> None:
        """Undo `add`."""
        await self._count(removed, -1)
        await self._handle.send("remove_postings", rows=Document(removed.rows))
        await self._handle.send("drop_unused_terms", terms=list(removed.frequencies()))

    async def stale(self) -> list[Namespace]:
        """The namespaces whose index was made by an older recipe."""
        return [Namespace(r["namespace"]) for r in await self._handle.fetch("stale_word_indexes")]

    async def begin_anew(self) -> bool:
        """Forget all that is indexed; False where the index is of the present recipe."""
        if not await self._handle.fetch("renew_word_index"):
            return False
        await self._handle.send("clear_postings")
        await self._handle.send("clear_terms")
        return True

    async def _count(self, changed: Postings, sign: int) -> None:
        await self._handle.send(
            "count_documents", documents=sign * changed.documents, words=sign * changed.words
        )
        counts = {term: sign * number for term, number in changed.frequencies().items()}
        await self._handle.send("count_terms", counts=Document(counts))

    async def statistics(self, terms: Iterable[str] = ()) -> Statistics:
        rows = await self._handle.fetch("statistics", terms=sorted(set(terms)))
        if not rows:
            return Statistics()
        return Statistics(
            rows[0]["documents"],
            rows[0]["words"],
            rows[0]["vector_version"],
            rows[0]["erase_epoch"],
            {row["term"]: int(row["frequency"]) for row in rows if row["term"] is not None},
        )

    async def pool(
        self,
        weights: Mapping[str, float],
        statistics: Statistics,
        limit: int,
        within: Sequence[str] | None = None,
    ) -> list[str]:
        """The ids of the `limit` items with the best BM25 score, best first; of those `within`,
        if given.

        The rarest terms decide: of the others no more are looked at than make `POSTINGS_READ`
        postings together, so that the cost does not grow with the namespace. Within a part of it
        all terms are looked at: the rarest of the whole may stand nowhere in the part.
        """
        rarest = sorted(weights, key=lambda term: (statistics.frequencies[term], term))
        chosen: dict[str, float] = {}
        read = 0
        for term in rarest:
            read += statistics.frequencies[term]
            if within is None and chosen and read > POSTINGS_READ:
                break
            chosen[term] = weights[term]
        if not chosen:
            return []
        rows = await self._handle.fetch(
            "keyword_pool",
            weights=Document(chosen),
            average=statistics.average_length,
            k1=K1,
            b=B,
            limit=limit,
            anywhere=within is None,
            within=list(within or ()),
        )
        return [row["item_id"] for row in rows]
