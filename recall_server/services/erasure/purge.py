"""Purge: finishes a large erasure, verifies it, destroys what erased rows leave behind in files,
and signs the receipt that says so.

It is a job, so it continues after a crash. It is tried again until it succeeds; only then an
erasure is done. One purge serves all erasures that wait, as it rewrites all files.

An erasure is verified before its receipt is final: names are removed from rows beside the texts,
all that was erased is scanned for again, and what is left is reported. The table registry says what
each table may hold.
"""

import asyncio
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

from recall_server.domain.audit import AuditEntry
from recall_server.domain.context import Runtime
from recall_server.domain.erasure import Kind, Stage, Subject, as_read
from recall_server.domain.errors import Unavailable
from recall_server.domain.ids import NONE, Namespace
from recall_server.domain.permissions import TokenInfo
from recall_server.domain.task import Job
from recall_server.domain.webhook import WebhookKind
from recall_server.integrations.keys import ServerKey
from recall_server.services.erasure.eraser import Eraser, OnProgress, PartTargets
from recall_server.services.erasure.ledger import Ledger, Noted
from recall_server.services.erasure.targets import Affected
from recall_server.services.supervision import Supervisor
from recall_server.storage.driver import Row, document
from recall_server.storage.store import Store, Transaction
from recall_server.storage.tables.erasure import PURGE, Erasure
from recall_server.storage.tables.jobs import Fenced

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
    text = as_read(value)
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


Removal = Callable[[Transaction, Any], Awaitable[object]]


async def _beside(
    tables: Transaction,
) -> AsyncIterator[tuple[Mapping[Any, Sequence[str]], Removal]]:
    """Yield the texts of rows beside the texts, by key, each with what removes one of these."""
    async for rows in tables.erasure_scan.pushes():
        pushes = {
            (row["run_id"], row["id"]): (row["id"], row["url"], row["scheme"]) for row in rows
        }
        yield pushes, lambda tx, key: tx.pushes.remove(*key)
    async for rows in tables.erasure_scan.judgements():
        reasons = {(row["memory_id"], row["question_id"]): (row["judge_reason"],) for row in rows}
        yield reasons, lambda tx, key: tx.erasures.redact_judgement(*key)
    urls = {one.id: (one.url,) for one in await tables.webhooks.all()}
    yield urls, lambda tx, key: tx.webhooks.remove(key)
    aliases = {one.alias: one for one in (await tables.aliases.all()).all}
    yield aliases, lambda tx, key: tx.aliases.remove([key])


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


RECEIPT_TYP = "recall-erasure-receipt+jwt"
# Neither the database nor this server can destroy these.
BEYOND = "backups, archived logs, the disk below the file system, and copies others have made"


def signed_receipt(
    key: ServerKey, claims: Mapping[str, Any], now: datetime, *, left_behind: str | None = None
) -> str:
    """Return a signed receipt, which has numbers, names of tables and states, but never content.
    `left_behind`: what the purge could not destroy; None before the purge, when files may still
    hold what was erased.
    """
    head = {"iss": "recall-server", "iat": int(now.timestamp()), "not_covered": BEYOND}
    physical = {"state": "pending"}
    if left_behind is not None:
        at = now.isoformat(timespec="seconds")
        physical = {"state": "done", "at": at, "left": left_behind}
    return key.sign({**head, **claims, "physical": physical}, RECEIPT_TYP)


def _erased(erasure: Erasure) -> bool:
    """True if any row was deleted or overwritten."""
    claims = erasure.claims
    return any([*claims["counts"].values(), claims["tokens_revoked"], erasure.left_behind])


@dataclass(frozen=True)
class Purge:
    """Handles the purge job, and does the same immediately for an operator."""

    store: Store
    runtime: Runtime
    key: ServerKey
    ledger: Ledger
    eraser: Eraser
    supervisor: Supervisor
    interval: timedelta
    # The most erasures of one namespace that a purge verifies; further ones wait for the next.
    each: int = 1_000

    async def work(self, job: Job, entry: Callable[[str], AuditEntry]) -> None:
        """Purge, unless the purge of another erasure has done it since. If the last purge was less
        than `interval` ago, postpone the job. Raises `Unavailable` if a reader of an older state is
        in the way.
        """
        erasure_id = job.payload["erasure_id"]
        erasure = await self.store.autocommit(job.namespace).erasures.get(erasure_id)
        if erasure is not None and erasure.stage is not Stage.DONE:
            async with self._held(job):
                if erasure.stage is Stage.ERASING:
                    await self.eraser.run(erasure)
                async with self._turn() as due:
                    if due is None:
                        await self.at_once(job.namespace, erasure_id)
            if due is not None:
                async with self.store.transaction(job.namespace) as tx:
                    await tx.jobs.release(job, due, None, failed=False)
                return
        line = entry(PURGE)
        async with self.store.transaction(job.namespace, entry=line) as tx:
            # The lock comes before any row: an erasure at this moment holds it and wants the job.
            await tx.lock()
            await tx.jobs.finish(job, self.runtime.now())
            line.ids.append(erasure_id)

    async def at_once(
        self, namespace: Namespace, erasure_id: str, on_progress: OnProgress = lambda _: None
    ) -> Erasure:
        """Finish a large erasure, verify the erasures that wait (`each` of a namespace), purge if
        any of them has erased something, and sign their receipts. Return the erasure asked for, as
        it is then. Raises `Unavailable` as `Store.purge` does.
        """
        async with self.store.transaction(namespace) as tx:
            begun = await tx.erasures.get(erasure_id)
            await tx.erasures.begin_purge(erasure_id)
        if begun is not None and begun.stage is Stage.ERASING:
            await self.eraser.run(begun, on_progress)
        waiting = await self.store.autocommit(None).erasures.unpurged(self.each, also=erasure_id)
        # This comes first: from here on no backup brings erased data back unnoticed.
        await self.ledger.note([one.sealed for one in waiting if one.sealed])
        changed, left = await self._verify(waiting)
        erased = changed or any(map(_erased, waiting))
        in_files = await self.store.purge() if erased else ""
        for one in waiting:
            now = self.runtime.now()
            left_behind = "; ".join(filter(None, [*left.get(one.id, ()), in_files]))
            receipt = signed_receipt(self.key, one.claims, now, left_behind=left_behind)
            async with self.store.transaction(one.namespace, locked=True) as tx:
                if await tx.erasures.end_purge(one.id, left_behind, receipt, now):
                    tx.webhooks.tell(WebhookKind.ERASURE_COMPLETED, one.id, now)
        erasure = await self.store.autocommit(namespace).erasures.get(erasure_id)
        assert erasure is not None
        return erasure

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[datetime | None]:
        """Take the turn to purge: yields None if it is now, else when. A purge that fails gives its
        turn back.
        """
        now = self.runtime.now()
        async with self.store.transaction(None) as tx:
            last = await tx.server.purged_at()
            mine = await tx.server.begin_purge(now, now - self.interval)
        try:
            yield None if mine or last is None else last + self.interval
        except BaseException:
            if mine:
                async with self.store.transaction(None) as tx:
                    await tx.server.set_purged_at(last)
            raise

    @asynccontextmanager
    async def _held(self, job: Job) -> AsyncIterator[None]:
        """Renew the lease of the job for as long as a large database takes."""
        over = False

        async def hold() -> None:
            # A cancellation alone does not end it: the database may fail at the same moment, and
            # only that error is raised.
            while not over:
                await asyncio.sleep(self.runtime.lease.total_seconds() / 3)
                try:
                    async with self.store.transaction(job.namespace) as tx:
                        await tx.jobs.advance(
                            job, job.payload, self.runtime.now() + self.runtime.lease
                        )
                except Unavailable:
                    continue  # the purge itself locks out everybody
                except Fenced:
                    return  # another worker has taken the job

        holding = asyncio.create_task(self.supervisor.keep("purge_lease", hold))
        try:
            yield
        finally:
            over = True
            holding.cancel()
            await asyncio.wait({holding})

    async def _verify(self, erasures: Sequence[Erasure]) -> tuple[int, Mapping[str, Sequence[str]]]:
        """Finish erasures of any namespaces, and check that nothing is left. Return how many rows
        beside the texts were deleted or redacted, which are read once for all of a namespace; and
        for each erasure, the tables that still hold something that it should have erased.
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
        return changed, left

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
        tables, changed = self.store.autocommit(namespace), 0
        async for rows in tables.erasure_scan.details():
            if ids := await asyncio.to_thread(_details_naming, names, rows):
                async with self._change(namespace) as tx:
                    await tx.erasures.remove_details(ids)
            changed += len(ids)
        async for said, act in _beside(tables):
            if keys := await asyncio.to_thread(_naming, names, said):
                async with self._change(namespace) as tx:
                    for key in keys:
                        await act(tx, key)
            changed += len(keys)
        changed += await self._redact_jobs(namespace, names)
        tokens = await asyncio.to_thread(_tokens_naming, names, await tables.access.tokens())
        if tokens:
            async with self._change(namespace) as tx:
                tokens = _tokens_naming(names, await tx.access.tokens())
                for token in tokens:
                    await tx.access.redact(token)
        return changed + len(tokens)

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

    async def _left(self, erasure: Erasure, asked: Noted) -> list[str]:
        """Return the tables that still hold rows from before the erasure, with their number."""
        tx, epoch = self.store.autocommit(erasure.namespace), erasure.epoch or 0
        targets = self.eraser.targets(asked, begun=True)
        left: dict[str, int]
        if not isinstance(targets, PartTargets):
            left = await tx.erasure_scan.rows_before(epoch)
        else:
            found = await targets.find(tx) or Affected()
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
        async with self.store.transaction(namespace, locked=True) as tx:
            yield tx
            # Noted in the database: after a crash another process may purge.
            await tx.erasures.keep_unpurged()
