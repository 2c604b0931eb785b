"""Re-ranking: a model scores the best hits of a search, with the turns around them."""

from collections.abc import Sequence
from dataclasses import dataclass

from recall_server.domain.external_errors import RerankerUnavailable
from recall_server.domain.search import fusion
from recall_server.domain.search.ranking import Candidate
from recall_server.integrations.rerankers.reranker import Passage, Reranker, RerankQuery
from recall_server.services.search.search import Candidates, PreparedQuery
from recall_server.storage.store import Transaction
from recall_server.storage.tables.episodes import turn_id

# Hits that are scored again where no more are wanted: of 30 to 100 all find as much among ten on
# LoCoMo, and each costs time.
RERANKED_MIN = 30
# The turn that a hit comes from, and those before and after it.
STEPS = (0, -1, 1)


@dataclass(frozen=True)
class Reranking:
    """The second ranking of the best hits, where the operator has chosen a re-ranker."""

    reranker: Reranker
    min_score: float

    async def passages(self, tx: Transaction, found: Candidates) -> list[Passage]:
        """The texts of the best, with the turn they come from and the turns around it. Turns that
        are in quarantine, or of which a memory is not believed any more, are left out.
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
        """The hits in the order of the re-ranker, without those below the threshold of the query;
        and why it did not answer, if so. `passages` are in the order of the hits.
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
        ranked = fusion.reranked(
            hits, scores, judges=self.reranker.judges, min_score=self.min_score
        )
        return [one for one in ranked if one.final >= prepared.query.score_threshold], None
