"""The active memories about a matter, and their witnesses, while a plan is made."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from recall_server.domain.attributes import normal_attribute, normal_entity
from recall_server.domain.contradiction import same_statement
from recall_server.domain.extraction import Candidate
from recall_server.domain.memory import Memory
from recall_server.domain.plan import Change, Reinforce
from recall_server.domain.search.ranking import bm25_weights
from recall_server.domain.security.trust import Trust, Witness, corroborates, trust
from recall_server.domain.text.terms import terms
from recall_server.storage.store import Transaction

SIMILAR_LOOKED_AT = 8
# The same statement uses the same rare words. Terms with more postings are skipped, as each planned
# memory asks for them.
SIMILAR_POSTINGS = 500


@dataclass
class Beliefs:
    """The active memories as the plan so far would leave them."""

    tx: Transaction
    _added: list[Memory] = field(default_factory=list)
    _dropped: set[str] = field(default_factory=set)
    _witnesses: dict[str, list[Witness]] = field(default_factory=dict)

    def add(self, memory: Memory) -> None:
        self._added.append(memory)

    def drop(self, memory: Memory) -> None:
        self._dropped.add(memory.id)
        self._added = [other for other in self._added if other.id != memory.id]

    def add_witness(self, memory: Memory, witness: Witness) -> None:
        """Set the witness of a proposed memory."""
        self._witnesses[memory.id] = [witness]

    def inherit_witnesses(self, memory: Memory, on: Sequence[Memory]) -> None:
        """Give a planned memory all witnesses of these."""
        self._witnesses[memory.id] = [one for other in on for one in self._witnesses[other.id]]

    async def load_witnesses(self, memories: Sequence[Memory]) -> None:
        """Load the witnesses of these memories, for `trust` and `reinforce`."""
        wanted = [one.id for one in memories if one.id not in self._witnesses]
        if wanted:
            self._witnesses |= await self.tx.memories.witnesses(wanted)

    def trust(self, memory: Memory) -> Trust:
        return trust(self._witnesses[memory.id])

    def reinforce(self, other: Memory, said: Memory) -> list[Change]:
        """Return the change when `other` was `said` again; none if it already cites these words."""
        (new,) = self._witnesses[said.id]
        before = self._witnesses[other.id]
        if any((one.episode_id, one.span) == (new.episode_id, new.span) for one in before):
            return []
        self._witnesses[other.id] = [*before, new]
        return [Reinforce(other.id, said.citation, corroborates(new, before))]

    async def related(self, candidate: Candidate) -> list[Memory]:
        """Return memories of the same entity that the candidate's fact may affect."""
        fact = candidate.fact
        if fact is None:
            return []
        # A stated correction may name a value that is stored under another attribute.
        anywhere = candidate.correction and candidate.replaces is not None
        stored = await (
            self.tx.memories.of_entity(fact.entity)
            if anywhere
            else self.tx.memories.about(fact.entity, fact.attribute)
        )
        planned = [
            memory
            for memory in self._added
            if memory.fact
            and normal_entity(memory.fact.entity) == normal_entity(fact.entity)
            and (
                anywhere
                or normal_attribute(memory.fact.attribute) == normal_attribute(fact.attribute)
            )
        ]
        return [memory for memory in [*stored, *planned] if memory.id not in self._dropped]

    async def similar_statement(self, memory: Memory) -> list[Memory]:
        """Return a memory that says the same in nearly the same words, if there is one."""
        statistics = await self.tx.words.statistics(terms(memory.text))
        frequencies = statistics.frequencies
        weights = bm25_weights(
            {term: frequencies[term] for term in _rarest(frequencies, SIMILAR_POSTINGS)},
            statistics.documents,
        )
        pool = await self.tx.words.similar(weights, statistics.average_length, SIMILAR_LOOKED_AT)
        texts = await self.tx.memories.texts(pool) if pool else {}
        for item_id in pool:
            active = item_id in texts and item_id not in self._dropped
            if active and same_statement(memory.text, texts[item_id]):
                return list(await self.tx.memories.active([item_id]))
        return [one for one in self._added if same_statement(memory.text, one.text)][:1]


def _rarest(frequencies: Mapping[str, int], postings: int) -> list[str]:
    """Return the rarest terms with at most so many postings together, and at least one term."""
    chosen: list[str] = []
    for term in sorted(frequencies, key=lambda term: (frequencies[term], term)):
        postings -= frequencies[term]
        if chosen and postings < 0:
            break
        chosen.append(term)
    return chosen
