"""The rows of a memory to be added, which need no database."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from recall_server.domain import record
from recall_server.domain.attributes import normal_attribute, normal_entity, value_key
from recall_server.domain.episode import Citation
from recall_server.domain.memory import Memory
from recall_server.domain.record import Recorded
from recall_server.storage.tables.access import label_bytes
from recall_server.storage.tables.episodes import labels_of

_NO_FACT = {"entity": None, "attribute": None, "value": None, "negated": False}


@dataclass(frozen=True)
class NewMemory:
    """The rows of a memory to be added, and what its event records of it. It may be computed ahead
    of the transaction.
    """

    row: Mapping[str, Any]
    citations: Sequence[Mapping[str, Any]]
    recorded: Recorded
    reason: str

    @classmethod
    def made_of(cls, memory: Memory, reason: str = "", also: Iterable[Citation] = ()) -> Self:
        """`also`: further citations."""
        known, source = memory.fact, memory.source
        row: dict[str, Any] = {
            **vars(memory),
            **(vars(known) if known else _NO_FACT),
            **keys_of(*((known.entity, known.attribute, known.value) if known else (None,) * 3)),
            "session_id": source.session_id,
            "agent_id": source.agent_id,
            **labels_of(source),
        }
        row["stored_bytes"] = label_bytes(row)
        cited = [memory.citation, *also]
        recorded = Recorded()
        recorded.add(row)
        recorded.citations += map(record.cited, cited)
        return cls(row, [citation_row(memory.id, one) for one in cited], recorded, reason)

    @property
    def id(self) -> str:
        return str(self.row["id"])

    def dated(self, memory: Memory) -> Self:
        """Return the rows with the dates of this memory, which is the same one."""
        dates = {"recorded_at": memory.recorded_at, "retired_at": memory.retired_at}
        return replace(self, row={**self.row, **dates})


def citation_row(memory_id: str, citation: Citation) -> dict[str, Any]:
    return {
        "memory_id": memory_id,
        "episode_id": citation.episode_id,
        "span_start": citation.span.start,
        "span_end": citation.span.end,
    }


def keys_of(entity: str | None, attribute: str | None, value: str | None) -> dict[str, str | None]:
    """Return the columns by which facts are found: none without a fact."""
    return {
        "entity_key": None if entity is None else normal_entity(entity),
        "attribute_key": None if attribute is None else normal_attribute(attribute),
        "value_key": None if value is None else value_key(value),
    }
