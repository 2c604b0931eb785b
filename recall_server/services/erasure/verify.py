"""Verify erasures before their receipts are final: take names out of what stands beside the texts,
scan again for all that was erased, and say what is left. What each table may hold is in the table
registry.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from recall_server.domain.erasure import Kind, Subject
from recall_server.domain.namespace import NONE, Namespace
from recall_server.domain.permissions import TokenInfo
from recall_server.domain.text.terms import folded
from recall_server.services.erasure.eraser import Eraser, PartTargets
from recall_server.services.erasure.ledger import Ledger, Noted
from recall_server.services.erasure.redact import Affected
from recall_server.storage.driver import Row, document
from recall_server.storage.store import Store, Transaction
from recall_server.storage.tables.erasure import Erasure

K = TypeVar("K")

# An erasure of a memory erases words, and no name; one of a namespace leaves nothing to look at.
_NAMED = frozenset({Kind.SUBJECT, Kind.CONTAINER})


@dataclass(frozen=True)
class _Name:
    """What is not to be named any more by records up to `place` of the audit log."""

    subject: Subject | None
    container: str
    place: int

    @property
    def key(self) -> tuple[str, str]:
        return (self.subject.key if self.subject else "", self.container)

    def in_details(self, details: Mapping[str, Any]) -> bool:
        if self.subject is not None:
            return self.subject.named(details)
        return bool(details.get("container") == self.container)

    def without(self, payload: Mapping[str, Any], *, done: bool) -> Mapping[str, Any]:
        """What a job needs, without the name; `done`: nothing is left to do for its text."""
        if self.subject is not None:
            cleaned: Mapping[str, Any] = self.subject.without_name(payload)
            return cleaned
        limits = payload.get("reach", {}).get("containers") or ()
        if done and self.container in limits:
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


def _in_question(names: Iterable[_Name], value: object) -> Iterator[_Name]:
    """Those that a value may name: of many names most are in none."""
    text = folded(str(value))
    return (one for one in names if one.subject is None or one.subject.may_be_in(text))


def _details_naming(names: Sequence[_Name], rows: Iterable[Row]) -> list[str]:
    """The records whose details name any."""
    found = []
    for row in rows:
        details = document(row["details"])
        if any(
            row["seq"] <= name.place and name.in_details(details)
            for name in _in_question(names, details)
        ):
            found.append(row["id"])
    return found


def _receivers_naming(names: Sequence[_Name], rows: Mapping[K, Sequence[str]]) -> list[K]:
    """The keys of those push configurations or webhooks that name any, of what each says."""
    return [
        key
        for key, said in rows.items()
        if any(one.subject and one.subject.named(*said) for one in _in_question(names, said))
    ]


def _jobs_naming(names: Sequence[_Name], rows: Iterable[Row]) -> dict[str, Mapping[str, Any]]:
    """What jobs that name any need without the names."""
    found = {}
    for row in rows:
        before = payload = document(row["payload"])
        for name in _in_question(names, payload):
            payload = name.without(payload, done=row["episode_id"] is None)
        if payload != before:
            found[row["id"]] = payload
    return found


def _tokens_naming(names: Sequence[_Name], tokens: Iterable[TokenInfo]) -> list[TokenInfo]:
    """The tokens that name any, without the names."""
    found = []
    for before in tokens:
        token = before
        for name in _in_question(names, (token.label, token.rights.access_scope)):
            token = name.withdrawn(token)
        if token != before:
            found.append(token)
    return found


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
            named = [await self._name(*pair) for pair in ours if pair[1].kind in _NAMED]
            # Of what was erased again and again, the last time.
            names = [*{one.key: one for one in sorted(named, key=lambda one: one.place)}.values()]
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
        """How many rows were changed. Looks without the lock, and again before it changes any."""
        scan = self.store.autocommit(namespace).erasure_scan
        changed = 0
        async for rows in scan.details():
            if ids := await asyncio.to_thread(_details_naming, names, rows):
                async with self._change(namespace) as tx:
                    await tx.erasures.remove_details(ids)
                changed += len(ids)
        async for rows in scan.pushes():
            said = {
                (row["run_id"], row["id"]): (row["id"], row["url"], row["scheme"]) for row in rows
            }
            if pushes := await asyncio.to_thread(_receivers_naming, names, said):
                async with self._change(namespace) as tx:
                    for task_id, push_id in pushes:
                        await tx.pushes.remove(task_id, push_id)
                changed += len(pushes)
        registered = await self.store.autocommit(namespace).webhooks.all()
        urls = {one.id: (one.url,) for one in registered}
        if webhooks := await asyncio.to_thread(_receivers_naming, names, urls):
            async with self._change(namespace) as tx:
                for webhook_id in webhooks:
                    await tx.webhooks.remove(webhook_id)
            changed += len(webhooks)
        changed += await self._redact_jobs(namespace, names)
        return changed + await self._redact_tokens(namespace, names)

    async def _redact_jobs(self, namespace: Namespace, names: Sequence[_Name]) -> int:
        scan = self.store.autocommit(namespace).erasure_scan
        changed, after = 0, ""
        while rows := await scan.jobs(after):
            if await asyncio.to_thread(_jobs_naming, names, rows):
                async with self._change(namespace) as tx:
                    found = _jobs_naming(names, await tx.erasure_scan.jobs(after))
                    for job_id, payload in found.items():
                        await tx.erasures.redact_job(job_id, payload)
                changed += len(found)
            after = rows[-1]["id"]
        return changed

    async def _redact_tokens(self, namespace: Namespace, names: Sequence[_Name]) -> int:
        tokens = await self.store.autocommit(namespace).access.tokens()
        found = await asyncio.to_thread(_tokens_naming, names, tokens)
        if found:
            async with self._change(namespace) as tx:
                found = _tokens_naming(names, await tx.access.tokens())
                for token in found:
                    await tx.erasures.redact_token(token)
        return len(found)

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
            # Whoever purges may be another process, after a crash.
            await tx.erasures.keep_unpurged()
