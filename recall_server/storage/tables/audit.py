"""The audit log: one record per operation, chained to the previous one, and written in the
transaction of its effect, or after a read.
"""

import os
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from recall_server.domain import audit
from recall_server.domain.audit import START, AccessCount, AuditEntry, Head, Link, Outcome
from recall_server.domain.errors import NamespaceNotFound, Unauthenticated
from recall_server.domain.extraction import Usage
from recall_server.domain.ids import Namespace, is_ours
from recall_server.domain.permissions import LATEST, Bearer
from recall_server.storage.bound_connection import BoundTable
from recall_server.storage.driver import Document, Row, accesses, reader

SALT_BYTES = 16
NAMESPACES_AT_ONCE = 500


@dataclass(frozen=True)
class Details:
    """Values that are stored apart from a record, so that they can be erased."""

    salt: bytes
    values: Mapping[str, str]


@dataclass(frozen=True)
class AuditRecord:
    """A record of the audit log; one without a `link` is older than the chain."""

    namespace: Namespace
    id: str
    at: datetime
    protocol: str
    operation: str
    accessor: str | None
    request_id: str
    ids: tuple[str, ...]
    counts: dict[str, int]
    outcome: Outcome
    code: str | None
    milliseconds: float
    usage: Usage
    link: Link | None
    details: Details | None
    inputs_hash: str | None = None

    def exported(self) -> dict[str, Any]:
        """Return a chained record in the form in which it is exported and verified."""
        assert self.link is not None
        # Fractions are texts (`repr`), which give exactly the same number back.
        line = {
            "namespace": self.namespace,
            "seq": self.link.seq,
            "prev": self.link.prev,
            "id": self.id,
            "at": self.at.astimezone(UTC).isoformat(timespec="microseconds"),
            "door": self.protocol,
            "operation": self.operation,
            "accessor": self.accessor,
            "request_id": self.request_id,
            "ids": list(self.ids),
            "counts": self.counts,
            "outcome": str(self.outcome),
            "code": self.code,
            "milliseconds": repr(float(self.milliseconds)),
            "model": self.usage.model,
            "input_tokens": self.usage.input_tokens,
            "output_tokens": self.usage.output_tokens,
            "cost_usd": repr(float(self.usage.cost_usd)),
            "detail_digest": self.link.detail_digest,
            "digest": self.link.digest,
            "mac": self.link.mac,
        }
        if self.inputs_hash is not None:
            # Left out if there is none, so that older records keep their digests.
            line["inputs_hash"] = self.inputs_hash
        if self.details is not None:
            values = dict(self.details.values)
            line["details"] = {"salt": self.details.salt.hex(), "values": values}
        return line


@dataclass(frozen=True)
class Filter:
    """The conditions on records; "" is no condition. `touching`: an id among those of a record."""

    since: datetime
    until: datetime
    operation: str = ""
    accessor: str = ""
    outcome: str = ""
    touching: str = ""


class Audit(BoundTable):
    """Appends and reads records; nothing here changes one."""

    # The head as `read_head` has read it.
    _rows: Sequence[Row] = ()

    async def record(self, entry: AuditEntry) -> None:
        """Write `entry`. Other writers of this namespace wait until the end of the transaction, so
        call this last.

        Raises `NamespaceNotFound`, and `Unauthenticated` if the caller's token has ended: then the
        operation does not happen.
        """
        asks = entry.outcome is Outcome.OK and not entry.ends_caller
        await self._append(await self._locked_head(entry, asks=asks), [entry])

    async def record_all(self, entries: Sequence[AuditEntry]) -> None:
        """Write the records of operations that have ended, in their order, even if their tokens
        were revoked since. Other writers wait as for `record`. Raises `NamespaceNotFound`.
        """
        if entries:
            await self._append(await self._locked_head(None, asks=False), entries)

    async def count_accesses(
        self, memories: Sequence[AccessCount], turns: Sequence[AccessCount]
    ) -> None:
        """Add to the access counts of memories and turns. On Postgres rows locked by another
        transaction are skipped.
        """
        for table, counts in (("memories", memories), ("turns", turns)):
            if counts:
                await self._bound.send(f"count_accesses_of_{table}", counts=accesses(counts))

    async def written(self, ids: Iterable[str]) -> set[str]:
        """Return the ids of those of these records that are in the audit log."""
        return set(await self._column("id", "written_records", ids=list(ids)))

    async def _append(self, head: Head, entries: Sequence[AuditEntry]) -> None:
        mac_key = self._bound.mac_key
        if mac_key is None:
            raise LookupError("this store has no key; it cannot write the audit log")
        records, details = [], []
        for entry in entries:
            salt = os.urandom(SALT_BYTES)
            beside = audit.detail_digest(salt, entry.details) if entry.details else None
            link = Link(head.seq + 1, head.digest, "", "", beside)
            record = AuditRecord(
                namespace=entry.namespace,
                id=entry.id,
                at=entry.started_at,
                protocol=entry.protocol,
                operation=entry.operation,
                accessor=entry.accessor,
                request_id=entry.request_id,
                # Keep no id that a caller chose: it may be personal, and records are not erased.
                ids=tuple(filter(is_ours, entry.ids)),
                counts=entry.counts,
                outcome=entry.outcome,
                code=entry.code,
                milliseconds=entry.elapsed_ms(),
                usage=entry.usage,
                link=link,
                details=None,
                inputs_hash=audit.inputs_hash(mac_key, entry.id, entry.inputs)
                if entry.inputs
                else None,
            )
            line = record.exported()
            head = Head(link.seq, audit.digest(line))
            row = {
                "at": record.at,
                "ids": Document(record.ids),
                "counts": Document(record.counts),
                "milliseconds": record.milliseconds,
                "cost_usd": record.usage.cost_usd,
                "digest": head.digest,
                "mac": audit.mac(mac_key, head.digest),
                "inputs_hash": record.inputs_hash,
            }
            records.append(line | row)
            if entry.details:
                values = Document(entry.details)
                details.append({"record_id": entry.id, "salt": salt, "details": values})
        await self._bound.many("record", records)
        await self._bound.many("record_details", details)
        await self._bound.send("move_audit_head", seq=head.seq, digest=head.digest)

    async def lock(self) -> None:
        """Lock the audit log of the namespace. Call it before the transaction locks other rows."""
        await self._bound.send("lock_audit_head")

    async def require(self, entry: AuditEntry | None) -> None:
        """Lock the audit log of the namespace. Raises `Unauthenticated` if the caller's token has
        ended, and `NamespaceNotFound`.
        """
        await self._locked_head(entry)

    async def read_head(self, entry: AuditEntry | None) -> None:
        """Read the head of the chain, which must be locked, for the next record or `require` of
        this transaction, and whether the token of `entry` has ended.
        """
        bearer = (entry and entry.bearer) or Bearer((entry and entry.accessor) or "", LATEST)
        self._rows = await self._bound.fetch("locked_audit_head", **bearer.named())

    async def _locked_head(self, entry: AuditEntry | None, *, asks: bool = True) -> Head:
        """Lock the head of the chain and return it. Raises `Unauthenticated` if it `asks` and the
        token of `entry` has ended, and `NamespaceNotFound`.
        """
        if not self._rows:
            # Two statements in one round trip: only the second sees the changes that the lock
            # waited for.
            await self.lock()
            await self.read_head(entry)
        if not self._rows:
            await self._bound.send("begin_audit", seq=START.seq, digest=START.digest)
            await self.lock()
            await self.read_head(entry)
        if not self._rows:
            raise NamespaceNotFound
        (row,), self._rows = self._rows, ()
        if asks and row["ended"]:
            raise Unauthenticated("This token is not let in any more. Ask for a new one.")
        return Head(row["seq"], row["digest"])

    async def head(self) -> Head | None:
        """Return the head of the chain; None if there is no such namespace or no record."""
        return await self._first(reader(Head), "audit_head")

    async def cut(self) -> tuple[int, str]:
        """Return up to which record the chain was cut, and the signed statement; 0 and "" if not
        cut.
        """
        rows = await self._bound.fetch("audit_cut")
        return (rows[0]["cut_seq"], rows[0]["cut_statement"]) if rows else (0, "")

    async def move_cut(self, before: int, seq: int, statement: str) -> bool:
        """Cut the records up to `seq`: they no longer count, and `remove_cut` may delete them.
        Return False if the last cut is not the one at `before`.
        """
        return await self._bound.touched(
            "move_audit_cut", before=before, seq=seq, statement=statement
        )

    async def remove_cut(self, limit: int) -> int:
        """Delete the oldest records that were cut, with their details. Return how many."""
        if ids := await self._column("id", "cut_records", limit=limit):
            await self._bound.send("erase_details", ids=ids)
            await self._bound.send("remove_records", ids=ids)
        return len(ids)

    def to_cut(self, before: datetime) -> AsyncIterator[Namespace]:
        """Yield the namespaces whose first remaining record is older than `before`, or that still
        have records which were cut. Needs a connection for all namespaces.
        """
        return self._namespaces("audits_to_cut", before=before)

    async def newest(self, limit: int) -> list[AuditRecord]:
        """Return the newest records of the namespace, or of all, newest first, without details."""
        query = "all_records" if self._bound.namespace is None else "records"
        return await self._all(_record, query, limit=limit)

    async def page(self, wanted: Filter, before: int, limit: int) -> list[AuditRecord]:
        """Return the chained records before `before` that meet the conditions, newest first."""
        return await self._all(_record, "record_page", before=before, limit=limit, **vars(wanted))

    async def chained(self, after: int, limit: int) -> list[dict[str, Any]]:
        """Return the records after `after` in the exported form, in the order of the chain. A
        record that was tampered with and cannot be read is empty.
        """
        return await self._all(_exported, "chained_records", after=after, limit=limit)

    async def unchained(self) -> int:
        """Return the number of records from before there was a chain."""
        return await self._int("records", "unchained_records")

    async def recent(self, since: datetime) -> int:
        """Return the number of records at `since` or later."""
        return await self._int("records", "recent_records", since=since)

    async def checkpointed(self, seq: int) -> None:
        """Note that a checkpoint for `seq` was written."""
        await self._bound.send("mark_checkpoint", seq=seq)

    def namespaces(self, *, grown: bool = False) -> AsyncIterator[Namespace]:
        """Yield the namespaces that have an audit log; with `grown`, one that has grown since its
        checkpoint. Needs a connection for all namespaces.
        """
        return self._namespaces("grown_audits" if grown else "all_audits")

    async def _namespaces(self, query: str, **params: Any) -> AsyncIterator[Namespace]:
        keys = {"after": "namespace"}
        async for rows in self._pages(query, NAMESPACES_AT_ONCE, keys, **params):
            for row in rows:
                yield Namespace(row["namespace"])


def _exported(row: Row) -> dict[str, Any]:
    try:
        return _record(row).exported()
    except (TypeError, ValueError, AttributeError):
        return {}


_link, _details = reader(Link), reader(Details, values="details")
_record = reader(
    AuditRecord,
    protocol="door",
    usage=reader(Usage),
    link=lambda row: None if row["seq"] is None else _link(row),
    details=lambda row: None if row["salt"] is None else _details(row),
)
