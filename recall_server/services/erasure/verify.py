"""Verifies erasures before their receipts are final: removes names from rows beside the texts,
scans again for all that was erased, and reports what is left. The table registry says what each
table may hold.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from recall_server.domain.erasure import Kind, Subject, as_read
from recall_server.domain.namespace import NONE, Namespace
from recall_server.domain.permissions import TokenInfo
from recall_server.services.erasure.eraser import Eraser, PartTargets
from recall_server.services.erasure.ledger import Ledger, Noted
from recall_server.services.erasure.redact import Affected
from recall_server.storage.driver import Row, document
from recall_server.storage.store import Store, Transaction
from recall_server.storage.tables.erasure import Erasure

K = TypeVar("K")

# The erasure of a memory erases words, but no name; that of a namespace leaves nothing to check.
_NAMED = frozenset({Kind.SUBJECT, Kind.CONTAINER})


@dataclass(frozen=True)
class _Name:
    """A name that audit records up to `place` may no longer contain: a subject or a container."""

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
        """Return a job's payload without the name; `done`: nothing is left to do for its text."""
        if self.subject is not None:
            cleaned: Mapping[str, Any] = self.subject.without_name(payload)
            return cleaned
        limits = payload.get("reach", {}).get("containers") or ()
        if done and self.container in limits:
            return {name: value for name, value in payload.items() if name != "reach"}
        return payload

    def withdrawn(self, token: TokenInfo) -> TokenInfo:
        """Return the token without the name of the subject, and with no wider limits."""
        if self.subject is None:
            return token
        named, limits = self.subject.named, token.rights.access_scope
        limits = replace(
            limits,
            topics=limits.topics and frozenset(one for one in limits.topics if not named(one)),
            containers=limits.containers
            and frozenset(one for one in limits.containers if not named(one)),
            # A unique id: overwritten names of equal length would be equal.
            agent_id=token.accessor if named(limits.agent_id) else limits.agent_id,
        )
        return replace(
            token,
            label=self.subject.without_name(token.label),
            rights=replace(token.rights, access_scope=limits),
        )


def _in_question(names: Iterable[_Name], value: object) -> Iterator[_Name]:
    """Yield the names that a value may contain; a quick check, as most values contain none."""
    # Not as Python shows it, with an escape in place of what nobody sees.
    text = as_read(json.dumps(value, ensure_ascii=False, default=list))
    return (one for one in names if one.subject is None or one.subject.may_be_in(text))


def _details_naming(names: Sequence[_Name], rows: Iterable[Row]) -> list[str]:
    """Return the ids of records whose details contain one of the names."""
    found = []
    for row in rows:
        details = document(row["details"])
        if any(
            row["seq"] <= name.place and name.in_details(details)
            for name in _in_question(names, details)
        ):
            found.append(row["id"])
    return found


def _naming(names: Sequence[_Name], rows: Mapping[K, Sequence[str]]) -> list[K]:
    """Return the keys of rows whose texts contain one of the names."""
    return [
        key
        for key, said in rows.items()
        if any(one.subject and one.subject.named(*said) for one in _in_question(names, said))
    ]


def _jobs_naming(names: Sequence[_Name], rows: Iterable[Row]) -> dict[str, Mapping[str, Any]]:
    """Return the payloads of jobs that contain one of the names, without the names."""
    found = {}
    for row in rows:
        before = payload = document(row["payload"])
        for name in _in_question(names, payload):
            payload = name.without(payload, done=row["episode_id"] is None)
        if payload != before:
            found[row["id"]] = payload
    return found


def _tokens_naming(names: Sequence[_Name], tokens: Iterable[TokenInfo]) -> list[TokenInfo]:
    """Return the tokens that contain one of the names, without the names."""
    found = []
    for before in tokens:
        token = before
        limits = token.rights.access_scope
        said = (token.label, limits.topics, limits.containers, limits.agent_id)
        for name in _in_question(names, said):
            token = name.withdrawn(token)
        if token != before:
            found.append(token)
    return found


@dataclass(frozen=True)
class Verified:
    """`changed`: how many rows beside the texts were deleted or redacted. `left`: for each erasure,
    the tables that still hold something that it should have erased.
    """

    changed: int
    left: Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class ErasureCheck:
    """Finishes erasures after their texts are erased, and checks that nothing is left."""

    store: Store
    eraser: Eraser
    ledger: Ledger

    async def verify(self, erasures: Sequence[Erasure]) -> Verified:
        """Verify erasures of any namespaces. Rows beside the texts are read once for all of a
        namespace.
        """
        changed, left = 0, dict[str, Sequence[str]]()
        asked = [(one, self.ledger.opened(one.sealed)) for one in erasures if one.sealed]
        for namespace in sorted({one.namespace for one, _ in asked}):
            ours = [pair for pair in asked if pair[0].namespace == namespace]
            named = [await self._name(*pair) for pair in ours if pair[1].kind in _NAMED]
            # If a name was erased several times, the last erasure counts.
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
        """Remove the names from rows beside the texts. Return how many rows were changed. Reads
        without the lock.
        """
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
            if pushes := await asyncio.to_thread(_naming, names, said):
                async with self._change(namespace) as tx:
                    for task_id, push_id in pushes:
                        await tx.pushes.remove(task_id, push_id)
                changed += len(pushes)
        registered = await self.store.autocommit(namespace).webhooks.all()
        urls = {one.id: (one.url,) for one in registered}
        if webhooks := await asyncio.to_thread(_naming, names, urls):
            async with self._change(namespace) as tx:
                for webhook_id in webhooks:
                    await tx.webhooks.remove(webhook_id)
            changed += len(webhooks)
        aliases = (await self.store.autocommit(namespace).aliases.all()).all
        if named := await asyncio.to_thread(_naming, names, {one.alias: one for one in aliases}):
            async with self._change(namespace) as tx:
                await tx.aliases.remove(named)
            changed += len(named)
        changed += await self._redact_judgements(namespace, names)
        changed += await self._redact_jobs(namespace, names)
        return changed + await self._redact_tokens(namespace, names)

    async def _redact_judgements(self, namespace: Namespace, names: Sequence[_Name]) -> int:
        changed = 0
        async for rows in self.store.autocommit(namespace).erasure_scan.judgements():
            reasons = {
                (row["memory_id"], row["question_id"]): (row["judge_reason"],) for row in rows
            }
            if found := await asyncio.to_thread(_naming, names, reasons):
                async with self._change(namespace) as tx:
                    for memory_id, question_id in found:
                        await tx.erasures.redact_judgement(memory_id, question_id)
                changed += len(found)
        return changed

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
        """Return the tables that still hold rows from before the erasure, with their number."""
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
            # Noted in the database: after a crash another process may purge.
            await tx.erasures.keep_unpurged()
