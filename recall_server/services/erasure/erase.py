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
from functools import partial

from recall_server.domain.audit import AuditEntry
from recall_server.domain.containers import NONE, container
from recall_server.domain.context import Context
from recall_server.domain.erasure import CONFIRMATION, Digests, Kind, Stage, Subject
from recall_server.domain.errors import ConfirmRequired, Invalid, MemoryNotFound, ReceiptNotFound
from recall_server.domain.namespace import Namespace
from recall_server.domain.text.cleaning import storable
from recall_server.services.erasure import redact
from recall_server.services.erasure.eraser import Eraser, Targets, is_large
from recall_server.services.erasure.holds import refuse_held
from recall_server.services.erasure.ledger import Ledger, Noted
from recall_server.services.erasure.purge import Receipts
from recall_server.storage.store import Store, Transaction
from recall_server.storage.tables.erasure import OPERATOR, PURGE


@dataclass(frozen=True)
class Targeted:
    """The ids of what is erased; of a namespace or a large container none are listed."""

    memory_ids: tuple[str, ...] = ()
    episode_ids: tuple[str, ...] = ()
    task_ids: tuple[str, ...] = ()


@dataclass(frozen=True)
class Erased:
    """An erasure that was done, or would be (`dry_run`: no id, receipt or secret). `secret` opens
    the receipt once, without a token, and is shown this once.
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
    """A receipt as it now stands; `final` where no other will follow, and it was the last time."""

    receipt: str
    final: bool


@dataclass(frozen=True)
class Erase:
    """The operations that destroy. Forgetting, which keeps the record, is in `recall`."""

    store: Store
    receipts: Receipts
    ledger: Ledger
    digests: Digests
    eraser: Eraser
    now: Callable[[], datetime]
    new_id: Callable[[str], str]
    wake: Callable[[], None]

    async def namespace(
        self,
        context: Context,
        confirm: str,
    ) -> Erased:
        """Erase all that a namespace holds and revoke all its tokens, the caller's too. A large one
        is closed at once: no token opens it until the job that purges has erased it.

        Raises `ConfirmRequired` unless `confirm` is exactly the words that say so.
        """
        if confirm != CONFIRMATION:
            raise ConfirmRequired
        request = _Request(self, Kind.NAMESPACE, context.entry)
        return await self._erase(
            context.namespace, request, self.eraser.targets(Kind.NAMESPACE, "")
        )

    async def memory(
        self,
        context: Context,
        item_id: str,
        *,
        dry_run: bool = False,
    ) -> Erased:
        """Erase a memory in any state (or a turn) with the words it rests on, the other memories
        that rest on the same words, and the tasks that hold any of it.

        Raises `MemoryNotFound`.
        """
        storable(item_id)
        request = _Request(self, Kind.MEMORY, context.entry, item_id)
        targets = self.eraser.targets(Kind.MEMORY, item_id)
        return await self._erase(context.namespace, request, targets, dry_run=dry_run)

    async def subject(
        self,
        context: Context,
        name: str,
        *,
        dry_run: bool = False,
    ) -> Erased:
        """Erase every memory about or naming a subject, every turn said by or naming it, the
        name wherever else it stands in a text, and what rests on the same words.

        An unknown name is no error: the receipt then counts nothing. Raises `Invalid`.
        """
        storable(name)
        request = _Request(self, Kind.SUBJECT, context.entry, name)
        targets = self.eraser.targets(Kind.SUBJECT, name)
        return await self._erase(context.namespace, request, targets, dry_run=dry_run)

    async def container(
        self,
        context: Context,
        name: str,
        *,
        dry_run: bool = False,
    ) -> Erased:
        """Erase all that was put into a container: its texts, the memories that rest on them, its
        tasks, and others that hold any of it. Other words that such a memory rests on stay, and
        are read anew. Nothing of a large container is found until the job that purges has erased
        it; texts put in meanwhile are found then.

        A container without anything in it is no error: the receipt then counts nothing. Texts in
        no container have no name to be erased by. Raises `Invalid`, `OutsideAccessScope`.
        """
        name = _named(name)
        context.scope.whole(name)
        request = _Request(self, Kind.CONTAINER, context.entry, name)
        targets = self.eraser.targets(Kind.CONTAINER, name, scope=context.scope)
        return await self._erase(context.namespace, request, targets, dry_run=dry_run)

    async def _erase(
        self, namespace: Namespace, request: "_Request", targets: Targets, *, dry_run: bool = False
    ) -> Erased:
        """Erase what is found, or say what that is. The first scan holds no lock."""
        await targets.scan(self.store.autocommit(namespace))
        async with self.store.transaction(namespace, entry=request.entry, erasing=True) as tx:
            await tx.lock()
            if not await targets.scan(tx):
                raise MemoryNotFound
            if dry_run:
                request.entry.counts |= targets.counts
                return Erased(request.kind, targets.counts, targets=_targeted(targets))
            await refuse_held(tx)
            if request.kind is Kind.NAMESPACE:
                await tx.audit.require(request.entry.accessor)
                request.entry.ends_caller = True
            erased = await request.begin(tx, targets)
        self._after(namespace)
        return erased

    async def again(
        self,
        context: Context,
        noted: Noted,
    ) -> Erased:
        """Erase what was erased before, in a database that was restored from a backup; a hold of
        that time does not stand over it. A target that is not there is erased already.
        """
        namespace = noted.namespace
        targets = self.eraser.targets(noted.kind, noted.what)
        await targets.scan(self.store.autocommit(namespace))
        async with self.store.transaction(namespace, entry=context.entry, erasing=True) as tx:
            await tx.access.add_namespace(self.now())
            await tx.lock()
            await targets.scan(tx)
            request = _Request(self, noted.kind, context.entry, noted.what, noted.id)
            erased = await request.begin(tx, targets)
        self._after(namespace)
        return erased

    async def allow(
        self,
        context: Context,
        text: str,
    ) -> int:
        """Take a text again that was erased, with each of its turns and lines; how many digests
        that sets free.
        """
        storable(text)
        digests = redact.digests_to_allow(self.digests, context.namespace, text, self.now())
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
        self,
        context: Context,
        receipt_id: str,
        secret: str,
    ) -> Collected:
        """The newest receipt. It can be read again until it says that the purge is done; that one
        is handed out once. Raises `ReceiptNotFound`.
        """
        async with self.store.transaction(context.namespace, entry=context.entry) as tx:
            erasure = await tx.erasures.get(receipt_id)
            if erasure is None:
                raise ReceiptNotFound
            final = erasure.stage is Stage.DONE
            if final and not await tx.erasures.collect(receipt_id, _hash(secret), self.now()):
                raise ReceiptNotFound
            context.entry.ids.append(receipt_id)
        return Collected(erasure.receipt, final)

    def _after(self, namespace: Namespace) -> None:
        self.store.forget(namespace)
        self.wake()


@dataclass(frozen=True)
class _Request:
    """One erasure as it was asked for; `what` is the memory, the subject or the container."""

    erase: Erase
    kind: Kind
    entry: AuditEntry
    what: str = ""
    id: str = ""

    async def begin(self, tx: Transaction, targets: Targets) -> Erased:
        """Erase a small one, close a large one, and sign the receipt: one transaction."""
        erase, entry, now = self.erase, self.entry, self.erase.now()
        erasure_id = self.id or erase.new_id("ers")
        by = entry.accessor or OPERATOR
        counts, large = targets.counts, is_large(targets.counts)
        await tx.erasures.begin(erasure_id, self.kind, by, {}, now)
        revoked = await (targets.close(tx, erasure_id) if large else targets.erase_at_once(tx))
        claims = {
            "jti": erasure_id,
            "namespace": entry.namespace,
            "kind": str(self.kind),
            "requested_by": by,
            "requested_at": now.isoformat(timespec="seconds"),
            "record": entry.id,
            "engine": erase.store.engine,
            "counts": dict(counts),
            "tokens_revoked": revoked,
            **self._mark(),
        }
        receipt, secret = erase.receipts.pending(claims, now), secrets.token_urlsafe(32)
        sealed = erase.ledger.sealed(Noted(erasure_id, entry.namespace, self.kind, self.what))
        stage = Stage.ERASING if large else Stage.LOGICAL
        await tx.erasures.settle(
            erasure_id, claims, receipt, _hash(secret), sealed=sealed, stage=stage
        )
        await tx.jobs.add(erase.new_id("job"), PURGE, {"erasure_id": erasure_id}, now)
        entry.ids.append(erasure_id)
        entry.counts |= {**counts, "tokens_revoked": revoked}
        return Erased(
            self.kind,
            counts,
            id=erasure_id,
            tokens_revoked=revoked,
            receipt=receipt,
            secret=secret,
            targets=_targeted(targets),
        )

    def _mark(self) -> dict[str, str]:
        """The digest by which the name that was asked for can be checked, with the key."""
        digest = partial(self.erase.digests.of, self.entry.namespace)
        if self.kind is Kind.SUBJECT:
            return {"subject": digest(f"subject {Subject(self.what).key}")}
        return (
            {"container": digest(f"container {self.what}")} if self.kind is Kind.CONTAINER else {}
        )


def _named(name: str) -> str:
    if container(name) == NONE:
        raise Invalid("Name the container: what is in none cannot be erased as one.")
    return name


def _targeted(targets: Targets) -> Targeted:
    found = targets.affected
    return Targeted(
        tuple(sorted(found.memories)), tuple(sorted(found.episodes)), tuple(sorted(found.tasks))
    )


def _hash(secret: str) -> str:
    """One SHA-256 is enough for 256 random bits."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()
