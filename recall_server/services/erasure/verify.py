"""Verify erasures before their receipts are final: take names out of what stands beside the texts,
scan again for all that was erased, and say what is left. What each table may hold is in the table
registry.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from recall_server.domain.erasure import Kind, Subject
from recall_server.domain.namespace import NONE, Namespace
from recall_server.domain.permissions import TokenInfo
from recall_server.services.erasure.eraser import Eraser, PartTargets
from recall_server.services.erasure.ledger import Ledger, Noted
from recall_server.services.erasure.redact import Affected
from recall_server.storage.driver import Row, document
from recall_server.storage.store import Store, Transaction
from recall_server.storage.tables.erasure import Erasure

# An erasure of a memory erases words, and no name; one of a namespace leaves nothing to look at.
_NAMED = frozenset({Kind.SUBJECT, Kind.CONTAINER})


@dataclass(frozen=True)
class _Name:
    """What is not to be named any more by records up to `place` of the audit log."""

    subject: Subject | None
    container: str
    place: int

    def in_details(self, row: Row) -> bool:
        details = document(row["details"])
        if row["seq"] > self.place:
            return False
        if self.subject is not None:
            return self.subject.named(details)
        return bool(details.get("container") == self.container)

    def without(self, job: Row, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        """What a job needs, without the name. Nothing is left to do for a text that is gone."""
        if self.subject is not None:
            cleaned: Mapping[str, Any] = self.subject.without_name(payload)
            return cleaned
        limits = payload.get("reach", {}).get("containers") or ()
        if self.container in limits and job["episode_id"] is None:
            return {name: value for name, value in payload.items() if name != "reach"}
        return payload

    def withdrawn(self, token: TokenInfo) -> TokenInfo:
        """A token that neither names the subject nor is wider than before."""
        if self.subject is None:
            return token
        named, limits = self.subject.named, token.rights.access_scope
        limits = replace(
            limits,
            topics=limits.topics and frozenset(one for one in limits.topics if not named(one)),
            containers=limits.containers
            and frozenset(one for one in limits.containers if not named(one)),
            # Nobody else's: overwritten, two names of one length would be the same.
            agent_id=token.accessor if named(limits.agent_id) else limits.agent_id,
        )
        return replace(
            token,
            label=self.subject.without_name(token.label),
            rights=replace(token.rights, access_scope=limits),
        )


@dataclass(frozen=True)
class Verified:
    """`changed`: rows beside the texts that were deleted or redacted; `left`: of each erasure, the
    tables that still hold what it has erased.
    """

    changed: int
    left: Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class ErasureCheck:
    """Finishes erasures of which no text should be left, and checks that none is."""

    store: Store
    eraser: Eraser
    ledger: Ledger

    async def verify(self, erasures: Sequence[Erasure]) -> Verified:
        """Verify erasures of any namespaces. What stands beside the texts is read once for all."""
        changed, left = 0, dict[str, Sequence[str]]()
        asked = [(one, self.ledger.opened(one.sealed)) for one in erasures if one.sealed]
        for namespace in sorted({one.namespace for one, _ in asked}):
            ours = [pair for pair in asked if pair[0].namespace == namespace]
            names = [await self._name(*pair) for pair in ours if pair[1].kind in _NAMED]
            if names:
                changed += await self._redact(namespace, names)
            left |= {one.id: await self._left(one, noted) for one, noted in ours}
        return Verified(changed, left)

    async def _name(self, erasure: Erasure, asked: Noted) -> _Name:
        scan = self.store.autocommit(erasure.namespace).erasure_scan
        place = await scan.place_of(erasure.claims["record"])
        if asked.kind is Kind.SUBJECT:
            return _Name(Subject(asked.what), NONE, place)
        return _Name(None, asked.what, place)

    async def _redact(self, namespace: Namespace, names: Sequence[_Name]) -> int:
        """How many rows were changed. Reads without the lock; what it changes, it reads again."""
        scan = self.store.autocommit(namespace).erasure_scan
        changed = 0
        async for rows in scan.details():
            if ids := await asyncio.to_thread(_naming, names, rows):
                async with self._change(namespace) as tx:
                    await tx.erasures.remove_details(ids)
                changed += len(ids)
        subjects = [one.subject for one in names if one.subject is not None]
        async for rows in scan.pushes():
            for row in rows:
                if any(one.named(row["id"], row["url"], row["scheme"]) for one in subjects):
                    async with self._change(namespace) as tx:
                        changed += await tx.pushes.remove(row["run_id"], row["id"])
        return (
            changed
            + await self._redact_jobs(namespace, names)
            + await self._tokens(namespace, names)
        )

    async def _redact_jobs(self, namespace: Namespace, names: Sequence[_Name]) -> int:
        changed, after, more = 0, "", True
        while more:
            async with self._change(namespace) as tx:
                rows = await tx.erasure_scan.jobs(after)
                for row in rows:
                    before = payload = document(row["payload"])
                    for name in names:
                        payload = name.without(row, payload)
                    if payload != before:
                        await tx.erasures.redact_job(row["id"], payload)
                        changed += 1
            more, after = bool(rows), rows[-1]["id"] if rows else ""
        return changed

    async def _tokens(self, namespace: Namespace, names: Sequence[_Name]) -> int:
        changed = 0
        async with self._change(namespace) as tx:
            for before in await tx.access.tokens():
                token = before
                for name in names:
                    token = name.withdrawn(token)
                if token != before:
                    await tx.erasures.redact_token(token)
                    changed += 1
        return changed

    async def _left(self, erasure: Erasure, asked: Noted) -> list[str]:
        """The tables that hold what was there before the erasure, each with a number of rows."""
        tx, epoch = self.store.autocommit(erasure.namespace), erasure.epoch or 0
        targets = self.eraser.targets(asked, begun=True)
        left: dict[str, int]
        if not isinstance(targets, PartTargets):
            left = await tx.erasure_scan.rows_before(epoch)
        else:
            found = await targets.scanner.scan(tx) or Affected()
            rows = [*found.memories.values(), *await tx.erasures.memories_of(found.labelled)]
            texts = [row for row, _ in found.episodes.values()]
            left = {
                "memories": len({one["id"] for one in rows if one["erase_epoch"] < epoch}),
                "episodes": sum(one["erase_epoch"] < epoch for one in texts),
                "tasks": len(await tx.erasure_scan.begun(found.tasks, erasure.requested_at)),
            }
        if asked.kind is Kind.CONTAINER:
            limits = [one.rights.access_scope.containers or () for one in await tx.access.tokens()]
            left["limits of tokens"] = sum(asked.what in one for one in limits)
        return [f"{table} ({count})" for table, count in left.items() if count]

    @asynccontextmanager
    async def _change(self, namespace: Namespace) -> AsyncIterator[Transaction]:
        async with self.store.transaction(namespace) as tx:
            await tx.lock()
            yield tx


def _naming(names: Iterable[_Name], rows: Iterable[Row]) -> list[str]:
    """The records whose details name any."""
    return [row["id"] for row in rows if any(name.in_details(row) for name in names)]
