"""The word index: which terms stand in which findable item, with each namespace's own statistics
(SECURITY: a shared index tells one tenant of another's words).
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from recall_server.domain.findable import Findable, Occurrence
from recall_server.domain.model import Namespace
from recall_server.domain.ranking import K1, B
from recall_server.domain.words import speaker_terms, term_counts
from recall_server.storage.driver import Document
from recall_server.storage.handle import Handle

# Postings that one search may read, whatever the size of the namespace, and how many of them are
# enough to choose from. On SQLite these take 3 ms. Of 100,000 bench texts, whose words are all
# frequent, every one of the ten best by all postings is found so; with 500 it was 68 %.
POSTINGS_READ = 4_000
POSTINGS_ENOUGH = 2_000
# Single postings that may be looked up beside them, for what was found: they take 1 us each.
LOOK_UPS = 3_000
# A word in more than this share of all items tells little of any, where there are others.
COMMON = 0.2


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

    async def occurrences(self, terms: Sequence[str], ids: Sequence[str]) -> list[Occurrence]:
        """How often each of `terms` stands in each of these items, where it does."""
        if not terms or not ids:
            return []
        rows = await self._handle.fetch("occurrences", terms=list(terms), ids=list(ids))
        return [
            Occurrence(row["item_id"], row["term"], row["occurrences"], row["length"])
            for row in rows
        ]

    async def pool(
        self,
        weights: Mapping[str, float],
        statistics: Statistics,
        limit: int,
        within: Sequence[str] | None = None,
    ) -> list[str]:
        """The ids of the `limit` items with the best BM25 score, best first; of those `within`,
        if given.

        Exact as long as all postings of the terms are `POSTINGS_READ` at most. Beyond, the rarest
        terms decide which items are looked at, and the others are looked up for the best of
        those, so that the cost does not grow with the namespace (`_Plan`). Within a part of it all
        terms are looked at: the rarest of the whole may stand nowhere in the part.
        """
        plan = _Plan(weights, statistics)
        if within is not None:
            plan.read = dict.fromkeys(weights, "")
            plan.looked_up = {}
        elif plan.partly is not None:
            term, places = plan.partly
            rows = await self._handle.fetch("item_before", term=term, places=places)
            plan.divide(term, rows[0]["item_id"] if rows else "")
        if not plan.read:
            return []
        rows = await self._handle.fetch(
            "keyword_pool",
            read=Document({term: [weights[term], since] for term, since in plan.read.items()}),
            looked_up=Document(
                {term: [weights[term], before] for term, before in plan.looked_up.items()}
            ),
            candidates=max(limit, plan.candidates),
            average=statistics.average_length,
            k1=K1,
            b=B,
            limit=limit,
            anywhere=within is None,
            within=list(within or ()),
        )
        return [row["item_id"] for row in rows]


class _Plan:
    """Which postings a search reads.

    `read`: the terms with the first item of each, "" for all; `looked_up`: those that are looked up
    for the best items found, with the item before which, "" for all. `partly`: the term of which
    only so many of the last items are read.
    """

    def __init__(self, weights: Mapping[str, float], statistics: Statistics) -> None:
        often = statistics.frequencies
        self.read: dict[str, str] = {}
        self.looked_up: dict[str, str] = {}
        self.partly: tuple[str, int] | None = None
        left = POSTINGS_READ
        for term in sorted(weights, key=lambda term: (often[term], term)):
            enough = POSTINGS_READ - left >= POSTINGS_ENOUGH
            if enough and often[term] > COMMON * statistics.documents:
                break
            if often[term] <= left:
                self.read[term] = ""
                left -= often[term]
                continue
            if not enough and self.partly is None:
                # The last items by their ids, which is as good as any part.
                self.partly = term, left
                left = 0
            self.looked_up[term] = ""

    def divide(self, term: str, item_id: str) -> None:
        """Read the items of the term from this one on, and look up those before it; "" where there
        are so few by now that all are read.
        """
        self.read[term] = item_id
        if item_id:
            self.looked_up[term] = item_id
        else:
            del self.looked_up[term]

    @property
    def candidates(self) -> int:
        """For how many of the items that were read others are looked up."""
        return LOOK_UPS // len(self.looked_up) if self.looked_up else 0
