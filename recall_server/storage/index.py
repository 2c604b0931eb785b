"""The word index: which terms stand in which findable item, with each namespace's own statistics
(SECURITY: a shared index tells one tenant of another's words).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from recall_server.domain.ranking import K1, B
from recall_server.domain.words import term_counts
from recall_server.storage.handle import Handle

FREQUENCY_CAP = 10_000


@dataclass(frozen=True)
class Statistics:
    """What a namespace holds: findable items, their words, and the version of its vectors."""

    documents: int
    words: int
    vector_version: int


@dataclass(frozen=True)
class Postings:
    """What the index has to hold of some items: made outside a transaction, as it takes a while."""

    rows: tuple[Mapping[str, str | int], ...]
    documents: int
    words: int


def postings(texts: Mapping[str, str]) -> Postings:
    """The postings of items (item id to text). They follow from the text alone, so what was added
    with a text can be removed with it.
    """
    rows: list[Mapping[str, str | int]] = []
    words = 0
    for item_id, text in texts.items():
        counts, length = term_counts(text)
        words += length
        rows += [
            {"term": term, "item_id": item_id, "occurrences": occurrences, "length": length}
            for term, occurrences in counts.items()
        ]
    return Postings(tuple(rows), len(texts), words)


class WordIndex:
    """Keyword look-up over memories and open turns."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    async def add(self, added: Postings) -> None:
        """Make items findable by their words."""
        await self._handle.many("add_posting", added.rows)
        await self._count(added.documents, added.words)

    async def remove(self, removed: Postings) -> None:
        """Undo `add`."""
        await self._handle.many(
            "remove_posting",
            [{"term": row["term"], "item_id": row["item_id"]} for row in removed.rows],
        )
        await self._count(-removed.documents, -removed.words)

    async def _count(self, documents: int, words: int) -> None:
        if documents:
            await self._handle.fetch("count_documents", documents=documents, words=words)

    async def statistics(self) -> Statistics:
        rows = await self._handle.fetch("namespace_statistics")
        if not rows:
            return Statistics(0, 0, 0)
        return Statistics(rows[0]["documents"], rows[0]["words"], rows[0]["vector_version"])

    async def frequencies(self, terms: Iterable[str]) -> dict[str, int]:
        """In how many items each term stands, counted up to `FREQUENCY_CAP`."""
        rows = await self._handle.fetch(
            "document_frequencies", terms=sorted(set(terms)), cap=FREQUENCY_CAP
        )
        return {row["term"]: int(row["documents"]) for row in rows}

    async def pool(
        self, weights: Mapping[str, float], average_length: float, limit: int
    ) -> dict[str, float]:
        """The ids of the `limit` items with the best BM25 score, with that score."""
        rows = await self._handle.fetch(
            "keyword_pool",
            weights=dict(weights),
            average=max(average_length, 1.0),
            k1=K1,
            b=B,
            limit=limit,
        )
        return {row["item_id"]: float(row["score"]) for row in rows}
