"""The second ranking of the best hits of a search by a re-ranker."""

from collections.abc import Sequence
from dataclasses import dataclass

from recall_server.domain.episode import turn_id
from recall_server.domain.errors import RerankerUnavailable
from recall_server.domain.search import ranking
from recall_server.domain.search.ranking import Candidate
from recall_server.integrations.rerankers import Passage, Reranker, RerankQuery
from recall_server.services.search.search import Candidates, PreparedQuery
from recall_server.storage.store import Transaction

# How many hits are scored again, unless more are wanted. On LoCoMo, 30 to 100 find equally much
# among ten hits, and each costs time.
RERANKED_MIN = 30
# The turn that a hit comes from, and those before and after it.
STEPS = (0, -1, 1)


@dataclass(frozen=True)
class Reranking:
    """The second ranking of the best hits, if the operator has chosen a re-ranker."""

    reranker: Reranker
    min_score: float

    async def passages(self, tx: Transaction, found: Candidates) -> list[Passage]:
        """Return the texts of the best, each with the turn that it comes from and the turns around
        it. Turns in quarantine, and turns with a memory that is no longer believed, are left out.
        """
        texts = [found.items[one.slot].text for one in found.best]
        if self.reranker.judges:
            return list(map(Passage, texts))
        turns = [
            [turn_id(*turn) for turn in found.documents.turns(one.slot, STEPS)]
            for one in found.best
        ]
        said = await tx.episodes.said([turn for of_hit in turns for turn in of_hit])
        return [
            Passage(
                text,
                said[of_hit[0]].text if of_hit and of_hit[0] in said else None,
                tuple(said[turn].text for turn in of_hit[1:] if turn in said),
            )
            for text, of_hit in zip(texts, turns, strict=True)
        ]

    async def rank(
        self, prepared: PreparedQuery, hits: Sequence[Candidate], passages: Sequence[Passage]
    ) -> tuple[list[Candidate], str | None]:
        """Return the hits in the order of the re-ranker, or as they were with the reason why it did
        not answer. `passages` must be in the order of the hits.
        """
        query = RerankQuery(
            prepared.query.text,
            prepared.question.in_first_person(prepared.named),
            prepared.idf,
            prepared.namespace,
            prepared.statistics.erase_epoch,
        )
        try:
            scores = await self.reranker.scores(query, passages)
        except RerankerUnavailable as error:
            return list(hits), error.message
        ranked = ranking.reranked(
            hits, scores, judges=self.reranker.judges, min_score=self.min_score
        )
        return ranked, None
