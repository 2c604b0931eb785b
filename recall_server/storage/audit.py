"""The shelf of the book: one line an operation, written in the transaction of its effect."""

from dataclasses import dataclass
from datetime import datetime

from recall_server.domain.model import AuditEntry, Namespace, Outcome, Usage
from recall_server.storage.driver import Document, Row
from recall_server.storage.handle import Handle
from recall_server.storage.rows import document, moment


@dataclass(frozen=True)
class AuditRecord:
    """A line of the book, as it is read."""

    namespace: Namespace
    at: datetime
    door: str
    operation: str
    accessor: str | None
    request_id: str
    ids: tuple[str, ...]
    counts: dict[str, int]
    outcome: Outcome
    code: str | None
    milliseconds: float
    usage: Usage


class Audit:
    """Append and read; nothing here changes a line."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    async def record(self, entry: AuditEntry) -> None:
        """Write `entry` as it stands now."""
        await self._handle.send(
            "record",
            id=entry.id,
            at=entry.started_at,
            door=entry.door,
            operation=entry.operation,
            accessor=entry.accessor,
            request_id=entry.request_id,
            ids=Document(entry.ids),
            counts=Document(entry.counts),
            outcome=entry.outcome,
            code=entry.code,
            milliseconds=entry.elapsed_ms(),
            model=entry.usage.model,
            input_tokens=entry.usage.input_tokens,
            output_tokens=entry.usage.output_tokens,
            cost_usd=entry.usage.cost_usd,
        )

    async def newest(self, limit: int) -> list[AuditRecord]:
        """The newest lines of this namespace, newest first."""
        return [_record(row) for row in await self._handle.fetch("records", limit=limit)]

    async def newest_of_all(self, limit: int) -> list[AuditRecord]:
        """The newest lines of all namespaces, newest first."""
        return [_record(row) for row in await self._handle.fetch("all_records", limit=limit)]


def _record(row: Row) -> AuditRecord:
    return AuditRecord(
        namespace=Namespace(row["namespace"]),
        at=moment(row["at"]),
        door=row["door"],
        operation=row["operation"],
        accessor=row["accessor"],
        request_id=row["request_id"],
        ids=tuple(document(row["ids"])),
        counts=document(row["counts"]),
        outcome=Outcome(row["outcome"]),
        code=row["code"],
        milliseconds=row["milliseconds"],
        usage=Usage(row["model"], row["input_tokens"], row["output_tokens"], row["cost_usd"]),
    )
