"""Another look at the best hits of a search, with what was said around them."""

from collections.abc import Sequence
from dataclasses import dataclass

from recall_server.domain.external_errors import RerankerUnavailable
from recall_server.domain.query import Place
from recall_server.domain.search import fusion
from recall_server.domain.search.ranking import Candidate
from recall_server.integrations.rerankers.reranker import Look, Passage, Reranker
from recall_server.services.search.search import Candidates, PreparedQuery
from recall_server.storage.store import Transaction
from recall_server.storage.tables.episodes import turn_id

# Hits that are looked at, where no more are wanted: of 30 to 100 all find as much among ten on
# LoCoMo, and each costs.
LOOKED_AT = 30


@dataclass(frozen=True)
class Reranking:
    """Another look at the best hits, where the operator wants one."""

    reranker: Reranker
    min_score: float

    async def read(self, tx: Transaction, narrowed: Candidates) -> list[Passage]:
        """What is to be looked at: the texts of the best, with what was said there and in the turns
        around. What is held back, or not believed any more, is not among it.
        """
        slots = [one.slot for one in narrowed.best]
        texts = [narrowed.items[slot].text for slot in slots]
        if self.reranker.judges:
            return list(map(Passage, texts))
        placed = await tx.findables.placed(slots)
        turns = [_turns(placed[slot].place) if slot in placed else () for slot in slots]
        said = await tx.episodes.said([turn for of_hit in turns for turn in of_hit])
        return [
            Passage(
                text,
                said[of_hit[0]].text if of_hit and of_hit[0] in said else None,
                tuple(said[turn].text for turn in of_hit[1:] if turn in said),
            )
            for text, of_hit in zip(texts, turns, strict=True)
        ]

    async def look(
        self, asked: PreparedQuery, hits: Sequence[Candidate], passages: Sequence[Passage]
    ) -> tuple[list[Candidate], str | None]:
        """The hits in the order of the re-ranker, without those that it puts below the threshold of
        the query, and why not, where it does not answer; `passages` are theirs.
        """
        look = Look(
            asked.query.text,
            asked.question.in_first_person(asked.named),
            asked.idf,
            asked.namespace,
            asked.statistics.erase_epoch,
        )
        try:
            scores = await self.reranker.scores(look, passages)
        except RerankerUnavailable as error:
            return list(hits), error.message
        again = fusion.reranked(hits, scores, judges=self.reranker.judges, min_score=self.min_score)
        return [one for one in again if one.scores.final >= asked.query.score_threshold], None


def _turns(place: Place | None) -> tuple[str, ...]:
    """The turn that an item comes from, and the ones around it; none where it has no place."""
    if place is None:
        return ()
    return tuple(turn_id(place.episode_id, place.position + step) for step in (0, -1, 1))
