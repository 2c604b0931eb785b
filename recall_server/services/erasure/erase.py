"""Erase: destroy what is remembered, so that nothing brings it back, and give a receipt for it.

A small erasure is done in the transaction of the call. The rows of a large one, and what deleted
rows leave behind in files, are destroyed by the job `purge`, which the same transaction adds.
"""

import hashlib
import hmac
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

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
from recall_server.domain.namespace import NONE, Namespace, container
from recall_server.domain.permissions import FULL_ACCESS, AccessScope
from recall_server.domain.text.cleaning import clean_label, storable
from recall_server.services.erasure import redact
from recall_server.services.erasure.eraser import Eraser, Targets
from recall_server.services.erasure.ledger import Ledger, Noted
from recall_server.services.erasure.purge import Receipts
from recall_server.storage.store import Store, Transaction
from recall_server.storage.tables.erasure import PURGE, Hold

REASON_CHARS_MAX = 256


@dataclass(frozen=True)
class Holds:
    """Place, lift and list them."""

    store: Store
    now: Callable[[], datetime]

    async def place(self, context: Context, because: str) -> None:
        """Hold all that is there and all that comes; a refused erasure shows `because`. Raises
        `NotFound`, and `Invalid` without a reason.
        """
        because = clean_label(because, "reason", chars_max=REASON_CHARS_MAX)
        context.entry.details["reason"] = because
        await self._set(context, Hold(context.namespace, self.now(), because))

    async def lift(self, context: Context) -> None:
        """Raises `NotFound` where there is no hold."""
        await self._set(context, None)

    async def _set(self, context: Context, hold: Hold | None) -> None:
        async with self.store.transaction(context.namespace, entry=context.entry) as tx:
            # An erasure that is under way ends first; one that begins later sees it.
            await tx.lock()
            if hold is None and await tx.erasures.hold() is None:
                raise NotFound("This namespace is not on hold. `recall hold list` shows those.")
            if not await tx.erasures.set_hold(hold):
                raise NamespaceNotFound

    async def all(self) -> list[Hold]:
        """All that stand, by namespace."""
        async with self.store.transaction(None, write=False) as tx:
            return await tx.erasures.holds()


async def refuse_held(tx: Transaction) -> None:
    """Raise `OnHold` where nothing may be destroyed. In the transaction that would, which must hold
    the lock of the namespace.
    """
    hold = await tx.erasures.hold()
    if hold is not None:
        raise OnHold(f"{OnHold().message} The reason that the operator gave: {hold.because}")


@dataclass(frozen=True)
class Targeted:
    """The ids of what is erased; of a namespace or a large container none are listed."""

    memory_ids: tuple[str, ...] = ()
    episode_ids: tuple[str, ...] = ()
    task_ids: tuple[str, ...] = ()


@dataclass(frozen=True)
class Erased:
    """An erasure that was done, or would be (`dry_run`: no id, receipt or secret). `secret` opens
    the receipt, without a token, until it is acknowledged, and is shown this once.
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
    """A receipt as it now stands; `final` where no other will follow."""

    receipt: str
    final: bool


@dataclass(frozen=True)
class Erase:
    """The operations that destroy. Forgetting, which keeps the record, is in `recall`."""

    store: Store
    runtime: Runtime
    receipts: Receipts
    ledger: Ledger
    digests: Digests
    eraser: Eraser

    async def namespace(self, context: Context, confirm: str) -> Erased:
        """Erase all that a namespace holds and revoke all its tokens, the caller's too. A large one
        is closed at once: no token opens it until the job that purges has erased it.

        Raises `ConfirmRequired` unless `confirm` is exactly the words that say so.
        """
        if confirm != CONFIRMATION:
            raise ConfirmRequired
        return await self._erase(context, Kind.NAMESPACE, "")

    async def memory(self, context: Context, item_id: str, *, dry_run: bool = False) -> Erased:
        """Erase a memory in any state (or a turn) with the words it rests on, the other memories
        that rest on the same words, and the tasks that hold any of it.

        Raises `MemoryNotFound`.
        """
        return await self._erase(context, Kind.MEMORY, item_id, dry_run=dry_run)

    async def subject(self, context: Context, name: str, *, dry_run: bool = False) -> Erased:
        """Erase every memory about or naming a subject, every turn said by or naming it, the
        name wherever else it stands in a text, and what rests on the same words.

        An unknown name is no error: the receipt then counts nothing. Raises `Invalid`.
        """
        return await self._erase(context, Kind.SUBJECT, name, dry_run=dry_run)

    async def container(self, context: Context, name: str, *, dry_run: bool = False) -> Erased:
        """Erase all that was put into a container: its texts, the memories that rest on them, its
        tasks, and others that hold any of it. Other words that such a memory rests on stay, and
        are read anew. Nothing of a large container is found until the job that purges has erased
        it; texts put in meanwhile are found then.

        A container without anything in it is no error: the receipt then counts nothing. Texts in
        no container have no name to be erased by. Raises `Invalid`, `OutsideAccessScope`.
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
        """Erase the targets, or return them. The first scan holds no lock."""
        storable(what)
        namespace, entry = context.namespace, context.entry
        request = Noted(self.runtime.new_id("ers"), namespace, kind, what, scope)
        targets = self.eraser.targets(request)
        await targets.scan(self.store.autocommit(namespace))
        async with self.store.transaction(namespace, entry=entry, erasing=True) as tx:
            await tx.lock()
            if not await targets.scan(tx):
                raise MemoryNotFound
            if dry_run:
                entry.counts |= targets.counts
                return Erased(kind, targets.counts, targets=_targeted(targets))
            await refuse_held(tx)
            if kind is Kind.NAMESPACE:
                await tx.audit.require(entry)
                entry.ends_caller = True
            erased = await self._begin(tx, entry, request, targets)
        self._after(namespace)
        return erased

    async def again(self, context: Context, noted: Noted) -> Erased:
        """Erase what was erased before, in a database that was restored from a backup; a hold of
        that time does not stand over it. A target that is not there is erased already.
        """
        namespace = noted.namespace
        targets = self.eraser.targets(noted)
        await targets.scan(self.store.autocommit(namespace))
        async with self.store.transaction(namespace, entry=context.entry, erasing=True) as tx:
            await tx.access.add_namespace(self.runtime.now())
            await tx.lock()
            await targets.scan(tx)
            erased = await self._begin(tx, context.entry, noted, targets)
        self._after(namespace)
        return erased

    async def _begin(
        self, tx: Transaction, entry: AuditEntry, request: Noted, targets: Targets
    ) -> Erased:
        """Erase a small target, close a large one, and sign the receipt: one transaction."""
        counts, now = targets.counts, self.runtime.now()
        large = self.eraser.limits.exceeded_by(counts)
        by = entry.by
        await tx.erasures.begin(request.id, request.kind, by, {}, now)
        revoked = await (targets.close(tx, request.id) if large else targets.erase_at_once(tx))
        claims = {
            "jti": request.id,
            "namespace": request.namespace,
            "kind": str(request.kind),
            "requested_by": by,
            "requested_at": now.isoformat(timespec="seconds"),
            "record": entry.id,
            "engine": self.store.engine,
            "counts": dict(counts),
            "tokens_revoked": revoked,
            **self._name_digest(request),
        }
        receipt, secret = self.receipts.signed(claims, now), secrets.token_urlsafe(32)
        await tx.erasures.settle(
            request.id,
            claims,
            receipt,
            _hash(secret),
            sealed=self.ledger.sealed(request),
            stage=Stage.ERASING if large else Stage.LOGICAL,
        )
        await tx.jobs.add(self.runtime.new_id("job"), PURGE, {"erasure_id": request.id}, now)
        entry.ids.append(request.id)
        entry.counts |= {**counts, "tokens_revoked": revoked}
        return Erased(
            request.kind, counts, request.id, revoked, _targeted(targets), receipt, secret
        )

    def _name_digest(self, request: Noted) -> dict[str, str]:
        """The digest by which the name that was asked for can be checked, with the key."""
        named = {Kind.SUBJECT: "subject", Kind.CONTAINER: "container"}.get(request.kind)
        if named is None:
            return {}
        name = Subject(request.what).key if request.kind is Kind.SUBJECT else request.what
        return {named: self.digests.digest(request.namespace, f"{named} {name}")}

    async def allow(self, context: Context, text: str) -> int:
        """Take an erased text again, with its turns and lines; how many digests that sets free."""
        storable(text)
        digests = redact.digests_to_allow(self.digests, context.namespace, text, self.runtime.now())
        async with self.store.transaction(
            context.namespace, entry=context.entry, erasing=True
        ) as tx:
            await tx.lock()
            context.entry.counts["allowed"] = await tx.erasures.allow(digests)
        return context.entry.counts["allowed"]

    async def find_receipt(self, receipt_id: str, secret: str) -> Namespace:
        """The namespace of a receipt. Raises `ReceiptNotFound`, whatever is wrong."""
        storable(receipt_id)
        async with self.store.transaction(None, write=False) as tx:
            erasure = await tx.erasures.find(receipt_id)
        known = (erasure and erasure.secret_hash) or ""
        if not hmac.compare_digest(known, _hash(secret)) or erasure is None:
            raise ReceiptNotFound
        return erasure.namespace

    async def collect(
        self, context: Context, receipt_id: str, secret: str, *, acknowledge: bool = False
    ) -> Collected:
        """The newest receipt. It can be read again until one is acknowledged that says that the
        purge is done. Raises `ReceiptNotFound`.
        """
        async with self.store.transaction(context.namespace, entry=context.entry) as tx:
            await tx.lock()
            erasure = await tx.erasures.get(receipt_id)
            if erasure is None:
                raise ReceiptNotFound
            final = erasure.stage is Stage.DONE
            # Somebody may have acknowledged it meanwhile.
            if erasure.secret_hash != _hash(secret):
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


def _hash(secret: str) -> str:
    """One SHA-256 is enough for 256 random bits."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()
