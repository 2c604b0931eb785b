"""Erase: destroys memories and texts, so that nothing brings them back, and gives a receipt.

A small erasure is done in the transaction of the call. The job `purge`, which the same transaction
adds, destroys the rows of a large one, and what deleted rows leave behind in files.
"""

import hmac
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from recall_server.domain.audit import AuditEntry
from recall_server.domain.context import Context, Runtime
from recall_server.domain.erasure import CONFIRMATION, Digests, Kind, Stage, Subject
from recall_server.domain.errors import (
    ConfirmRequired,
    Invalid,
    MemoryNotFound,
    NamespaceNotFound,
    NotFound,
    OnHold,
    ReceiptNotFound,
)
from recall_server.domain.ids import NONE, Namespace, container
from recall_server.domain.permissions import FULL_ACCESS, AccessScope
from recall_server.domain.text.cleaning import clean_label, storable
from recall_server.domain.text.transcript import parse_turns
from recall_server.integrations.keys import ServerKey
from recall_server.services.auth import token_hash
from recall_server.services.erasure.eraser import Eraser, Targets
from recall_server.services.erasure.ledger import Ledger, Noted
from recall_server.services.erasure.purge import signed_receipt
from recall_server.services.memory import commit
from recall_server.storage.store import Store, Transaction
from recall_server.storage.tables.erasure import PURGE, Hold

REASON_CHARS_MAX = 256


@dataclass(frozen=True)
class Holds:
    store: Store
    now: Callable[[], datetime]

    async def place(self, context: Context, because: str) -> None:
        """Place a hold on all data of the namespace, now and later; a refused erasure shows
        `because`. Raises `NamespaceNotFound`, and `Invalid` without a reason.
        """
        because = clean_label(because, "reason", chars_max=REASON_CHARS_MAX)
        context.entry.details["reason"] = because
        await self._set(context, Hold(context.namespace, self.now(), because))

    async def lift(self, context: Context) -> None:
        """Lift the hold. Raises `NotFound` if there is none."""
        await self._set(context, None)

    async def _set(self, context: Context, hold: Hold | None) -> None:
        async with self.store.transaction(context.namespace, entry=context.entry) as tx:
            # A running erasure ends first; one that begins later sees the hold.
            await tx.lock()
            if hold is None and await tx.erasures.hold() is None:
                raise NotFound("This namespace is not on hold. `recall hold list` shows those.")
            if not await tx.erasures.set_hold(hold):
                raise NamespaceNotFound

    async def all(self) -> list[Hold]:
        return await self.store.autocommit(None).erasures.holds()


async def refuse_held(tx: Transaction) -> None:
    """Raise `OnHold` if the namespace is on hold. Call it in the transaction that would destroy
    data, which must hold the lock of the namespace.
    """
    hold = await tx.erasures.hold()
    if hold is not None:
        raise OnHold(f"{OnHold().message} The reason that the operator gave: {hold.because}")


@dataclass(frozen=True)
class Targeted:
    """The ids of what is erased; not listed for a namespace or a large container."""

    memory_ids: tuple[str, ...] = ()
    episode_ids: tuple[str, ...] = ()
    task_ids: tuple[str, ...] = ()


@dataclass(frozen=True)
class Erased:
    """An erasure that was done, or would be (`dry_run`: no id, receipt or secret). `secret` opens
    the receipt without a token, until it is acknowledged; it is shown only once.
    """

    kind: Kind
    counts: Mapping[str, int]
    id: str = ""
    tokens_revoked: int = 0
    targets: Targeted = Targeted()
    receipt: str = ""
    secret: str = field(default="", repr=False)

    @property
    def dry_run(self) -> bool:
        return not self.id


@dataclass(frozen=True)
class Collected:
    """The current receipt of an erasure; `final`: no other will follow."""

    receipt: str
    final: bool


@dataclass(frozen=True)
class Erase:
    """The operations that destroy data. Forgetting, which keeps the record, is in `Recall`."""

    store: Store
    runtime: Runtime
    key: ServerKey
    ledger: Ledger
    digests: Digests
    eraser: Eraser
    purge_interval: timedelta

    async def namespace(self, context: Context, confirm: str) -> Erased:
        """Erase all that a namespace holds and revoke all its tokens, the caller's too. A large
        namespace is closed immediately: no token opens it until the purge job has erased it.

        Raises `ConfirmRequired` unless `confirm` is exactly `CONFIRMATION`.
        """
        if confirm != CONFIRMATION:
            raise ConfirmRequired
        return await self._erase(context, Kind.NAMESPACE, "")

    async def memory(self, context: Context, item_id: str, *, dry_run: bool = False) -> Erased:
        """Erase a memory in any state (or a turn) with the words that it rests on, the other
        memories that rest on the same words, and the tasks that hold any of these.

        Raises `MemoryNotFound`.
        """
        return await self._erase(context, Kind.MEMORY, item_id, dry_run=dry_run)

    async def subject(self, context: Context, name: str, *, dry_run: bool = False) -> Erased:
        """Erase every memory about or naming a subject, every turn said by or naming it, the name
        wherever else it occurs in a text, and all memories that rest on the same words.

        An unknown name is no error: the receipt then counts nothing. Raises `Invalid`, and
        `QuotaExceeded` for an unknown name in a full namespace.
        """
        return await self._erase(context, Kind.SUBJECT, name, dry_run=dry_run)

    async def container(self, context: Context, name: str, *, dry_run: bool = False) -> Erased:
        """Erase all that was put into a container: its texts, the memories that rest on them, its
        tasks, and other tasks that hold any of these. Other words that such a memory rests on stay,
        and are extracted again. A large container is hidden until the purge job has erased it;
        texts that are put into it meanwhile are found after that.

        A container without anything in it is no error: the receipt then counts nothing. Texts in
        no container have no name to be erased by. Raises `Invalid`, `OutsideAccessScope`,
        and `QuotaExceeded` for an empty one in a full namespace.
        """
        if container(name) == NONE:
            raise Invalid("Name the container: what is in none cannot be erased as one.")
        context.scope.whole(name)
        return await self._erase(
            context, Kind.CONTAINER, name, scope=context.scope, dry_run=dry_run
        )

    async def _erase(
        self,
        context: Context,
        kind: Kind,
        what: str,
        *,
        scope: AccessScope = FULL_ACCESS,
        dry_run: bool = False,
    ) -> Erased:
        """Erase the targets, or in a dry run only return them. The first scan holds no lock, and is
        all that a dry run does: nobody waits for one.
        """
        storable(what)
        namespace, entry = context.namespace, context.entry
        request = Noted(self.runtime.new_id("ers"), namespace, kind, what, scope)
        targets, tables = self.eraser.targets(request), self.store.autocommit(namespace)
        known = await tables.words.statistics()
        if dry_run:
            if not await targets.scan(tables):
                raise MemoryNotFound
            entry.counts |= targets.counts
            return Erased(kind, targets.counts, targets=_targeted(targets))
        purged_at = await self.store.autocommit(None).server.purged_at()

        async def write(tx: Transaction, found: bool) -> Erased:
            if not found:
                raise MemoryNotFound
            await targets.refresh(tx)
            await refuse_held(tx)
            if kind is Kind.NAMESPACE:
                await tx.audit.require(entry)
                entry.ends_caller = True
            return await self._begin(tx, entry, request, targets, purged_at)

        made = commit.Planned(known, await targets.plan(tables))
        erased = await commit.written(self.store, context, made, targets.plan, write)
        self._after(namespace)
        return erased

    async def again(self, context: Context, noted: Noted) -> Erased:
        """Repeat an erasure in a database that was restored from a backup, even if the backup has a
        hold. A target that does not exist is erased already.
        """
        namespace = noted.namespace
        targets = self.eraser.targets(noted)
        await targets.scan(self.store.autocommit(namespace))
        purged_at = await self.store.autocommit(None).server.purged_at()
        async with self.store.transaction(namespace, entry=context.entry, erasing=True) as tx:
            await tx.access.add_namespace(self.runtime.now())
            await tx.lock()
            await targets.scan(tx)
            erased = await self._begin(tx, context.entry, noted, targets, purged_at, replayed=True)
        self._after(namespace)
        return erased

    async def _begin(
        self,
        tx: Transaction,
        entry: AuditEntry,
        request: Noted,
        targets: Targets,
        purged_at: datetime | None,
        *,
        replayed: bool = False,
    ) -> Erased:
        """Erase a small target, or close a large one, and sign the receipt, in one transaction.
        `purged_at`: when the last purge began. Raises `QuotaExceeded` if nothing is there to erase
        and the namespace is full, unless it is `replayed` from the ledger.
        """
        counts, now = targets.counts, self.runtime.now()
        large = self.eraser.limits.exceeded_by(counts)
        by = entry.by
        await tx.erasures.begin(request.id, request.kind, by, now)
        revoked = await (targets.close(tx, request.id) if large else targets.erase_at_once(tx))
        claims: dict[str, Any] = {
            "jti": request.id,
            "namespace": request.namespace,
            "kind": str(request.kind),
            "requested_by": by,
            "requested_at": now.isoformat(timespec="seconds"),
            "record": entry.id,
            "engine": self.store.engine,
            "counts": dict(counts),
            "tokens_revoked": revoked,
        }
        if named := {Kind.SUBJECT: "subject", Kind.CONTAINER: "container"}.get(request.kind):
            # The keyed digest by which the erased name can be checked later.
            name = Subject(request.what).key if request.kind is Kind.SUBJECT else request.what
            claims[named] = self.digests.digest(request.namespace, f"{named} {name}")
        receipt, secret = signed_receipt(self.key, claims, now), secrets.token_urlsafe(32)
        kept = await tx.erasures.settle(
            request.id,
            claims,
            receipt,
            token_hash(secret),
            sealed=self.ledger.sealed(request),
            stage=Stage.ERASING if large else Stage.LOGICAL,
        )
        if request.kind is not Kind.NAMESPACE:
            # Otherwise erasures of nobody could fill the disk.
            empty = not replayed and not revoked and not any(counts.values())
            await tx.erasures.count(kept, refused_if_full=empty)
        # A small one only waits for the next purge.
        due_at = now if large or purged_at is None else max(now, purged_at + self.purge_interval)
        payload = {"erasure_id": request.id}
        await tx.jobs.add(self.runtime.new_id("job"), PURGE, payload, now, due_at=due_at)
        entry.ids[:] = [request.id]
        entry.counts |= {**counts, "tokens_revoked": revoked}
        return Erased(
            request.kind, counts, request.id, revoked, _targeted(targets), receipt, secret
        )

    async def allow(self, context: Context, text: str) -> int:
        """Allow an erased text again, with its turns and lines. Return how many digests were
        removed.
        """
        storable(text)
        turns = parse_turns(text, self.runtime.now())
        spoken = (text[turn.span.start : turn.span.end] for turn in turns)
        texts = {text, *spoken, *text.splitlines()}
        digests = sorted(
            {self.digests.digest(context.namespace, one) for one in texts if one.strip()}
        )
        async with self.store.erasing(context.namespace, context.entry) as tx:
            context.entry.counts["allowed"] = await tx.erasures.allow(digests)
        return context.entry.counts["allowed"]

    async def find_receipt(self, receipt_id: str, secret: str) -> Namespace:
        """Return the namespace of a receipt. Raises `ReceiptNotFound`, whatever is wrong."""
        storable(receipt_id)
        erasure = await self.store.autocommit(None).erasures.find(receipt_id)
        known = (erasure and erasure.secret_hash) or ""
        if not hmac.compare_digest(known, token_hash(secret)) or erasure is None:
            raise ReceiptNotFound
        return erasure.namespace

    async def collect(
        self, context: Context, receipt_id: str, secret: str, *, acknowledge: bool = False
    ) -> Collected:
        """Return the newest receipt. It can be read again until the final one, after the purge, is
        acknowledged. Raises `ReceiptNotFound`.
        """
        async with self.store.transaction(
            context.namespace, entry=context.entry, locked=True
        ) as tx:
            erasure = await tx.erasures.get(receipt_id)
            if erasure is None:
                raise ReceiptNotFound
            final = erasure.stage is Stage.DONE
            # Somebody may have acknowledged it meanwhile.
            if erasure.secret_hash != token_hash(secret):
                raise ReceiptNotFound
            if final and acknowledge:
                await tx.erasures.acknowledge(receipt_id, self.runtime.now())
            context.entry.ids.append(receipt_id)
        return Collected(erasure.receipt, final)

    def _after(self, namespace: Namespace) -> None:
        self.store.forget(namespace)
        self.runtime.wake()


def _targeted(targets: Targets) -> Targeted:
    affected = targets.affected
    ids = (affected.memories, affected.episodes, affected.tasks)
    return Targeted(*(tuple(sorted(one)) for one in ids))
