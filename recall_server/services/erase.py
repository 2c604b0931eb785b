"""Erase: destroy what is remembered, so that nothing brings it back, and give a receipt for it.

One transaction does all that one can do. What deleted rows leave behind in files is destroyed by a
job, `purge`, which is promised in the same transaction (FEATURES H07, I11, I12, C02, C19).
"""

import hashlib
import hmac
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from recall_server.domain.erasure import CONFIRMATION, Digests, Kind, Stage, Subject
from recall_server.domain.errors import ConfirmRequired, MemoryNotFound, ReceiptNotFound
from recall_server.domain.model import AuditEntry, Namespace
from recall_server.domain.text import storable
from recall_server.services import strike
from recall_server.services.clearing import Clearing
from recall_server.services.embedding import EMBED
from recall_server.services.holds import refuse_held
from recall_server.services.ledger import Ledger, Noted
from recall_server.services.purge import Receipts
from recall_server.services.strike import Affected
from recall_server.storage.erasure import PURGE
from recall_server.storage.store import Store, Transaction


@dataclass(frozen=True)
class Reached:
    """The ids of what an erasure reaches; a whole namespace is not listed."""

    memory_ids: tuple[str, ...] = ()
    episode_ids: tuple[str, ...] = ()
    task_ids: tuple[str, ...] = ()


@dataclass(frozen=True)
class Erased:
    """What was erased, or would be (`dry_run`: no id, receipt or secret). `secret` opens the
    receipt once, without a token, and is told this once.
    """

    kind: Kind
    counts: Mapping[str, int]
    id: str = ""
    tokens_revoked: int = 0
    reached: Reached = Reached()
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
    """The verbs of destroying. Forgetting, which keeps the record, is in `recall`."""

    store: Store
    receipts: Receipts
    ledger: Ledger
    digests: Digests
    clearing: Clearing
    now: Callable[[], datetime]
    new_id: Callable[[str], str]
    wake: Callable[[], None]

    async def namespace(self, namespace: Namespace, confirm: str, *, entry: AuditEntry) -> Erased:
        """Erase all that a namespace holds and revoke all its tokens, the caller's too. A large one
        is closed at once, and emptied behind closed doors by the job that purges.

        Raises `ConfirmRequired` unless `confirm` is exactly the words that say so.
        """
        if confirm != CONFIRMATION:
            raise ConfirmRequired
        large = await self.clearing.large(namespace)
        async with self.store.transaction(namespace, entry=entry, erasing=True) as tx:
            await tx.lock()
            await refuse_held(tx)
            await tx.audit.require(entry.accessor)
            entry.ends_caller = True
            erased = await self._clear(tx, _Begun(self, Kind.NAMESPACE, entry), large=large)
        self._after(namespace)
        return erased

    async def _clear(
        self, tx: Transaction, job: "_Begun", *, large: Mapping[str, int] | None
    ) -> Erased:
        """All at once, or the beginning of it: `large` is how many rows there are."""
        await job.begin(tx)
        if large is not None:
            await tx.erasures.remember(await strike.digests_of_tasks(tx, self.digests))
            revoked = await tx.erasures.close(self.now())
            return await job.settle(tx, large, tokens_revoked=revoked, stage=Stage.ERASING)
        counts = await tx.erasures.counts()
        digests = await strike.digests_of_all(tx, self.digests)
        revoked = await tx.erasures.clear(self.now())
        await tx.erasures.remember(digests)
        return await job.settle(tx, counts, tokens_revoked=revoked)

    async def memory(
        self, namespace: Namespace, item_id: str, *, dry_run: bool = False, entry: AuditEntry
    ) -> Erased:
        """Erase a memory in any state (or a turn) with the words it rests on, the other memories
        that rest on the same words, and the tasks that hold any of it.

        Raises `MemoryNotFound`.
        """
        storable(item_id)
        async with self.store.transaction(namespace, entry=entry, erasing=True) as tx:
            await tx.lock()
            affected = await strike.of_item(tx, item_id)
            if affected is None:
                raise MemoryNotFound
            job = _Begun(self, Kind.MEMORY, entry, item_id)
            erased = await self._strike(tx, job, affected, dry_run=dry_run)
        self._after(namespace)
        return erased

    async def subject(
        self, namespace: Namespace, name: str, *, dry_run: bool = False, entry: AuditEntry
    ) -> Erased:
        """Erase every memory about or naming somebody, every turn spoken by or naming them, the
        name wherever else it stands in a text, and what rests on the same words.

        An unknown name is no error: the receipt then counts nothing. Raises `Invalid`.
        """
        storable(name)
        subject = Subject(name)
        async with self.store.transaction(namespace, entry=entry, erasing=True) as tx:
            await tx.lock()
            affected = await strike.of_subject(tx, subject)
            job = _Begun(self, Kind.SUBJECT, entry, name)
            erased = await self._strike(tx, job, affected, dry_run=dry_run)
        self._after(namespace)
        return erased

    async def again(self, noted: Noted, *, entry: AuditEntry) -> Erased:
        """Erase what was erased before, in a database that was restored from a backup; a hold of
        that time does not stand over it. What is not there is erased already.
        """
        namespace = noted.namespace
        large = await self.clearing.large(namespace)
        async with self.store.transaction(namespace, entry=entry, erasing=True) as tx:
            await tx.access.add_namespace(self.now())
            await tx.lock()
            job = _Begun(self, noted.kind, entry, noted.what, noted.id)
            if noted.kind is Kind.NAMESPACE:
                erased = await self._clear(tx, job, large=large)
            else:
                affected = (
                    await strike.of_item(tx, noted.what)
                    if noted.kind is Kind.MEMORY
                    else await strike.of_subject(tx, Subject(noted.what))
                )
                erased = await self._apply(tx, job, affected or Affected())
        self._after(namespace)
        return erased

    async def _strike(
        self,
        tx: Transaction,
        job: "_Begun",
        affected: Affected,
        *,
        dry_run: bool,
    ) -> Erased:
        if dry_run:
            job.entry.counts |= affected.counts()
            return Erased(job.kind, affected.counts(), reached=_reached(affected))
        await refuse_held(tx)
        return await self._apply(tx, job, affected)

    async def _apply(self, tx: Transaction, job: "_Begun", affected: Affected) -> Erased:
        await job.begin(tx)
        await strike.apply(tx, affected, self.digests, self.now())
        for episode_id in sorted(affected.episodes):
            await tx.jobs.add(self.new_id("job"), EMBED, {"episode_id": episode_id}, self.now())
        return await job.settle(tx, affected.counts(), reached=_reached(affected))

    async def allow(self, namespace: Namespace, text: str, *, entry: AuditEntry) -> int:
        """Take a text again that was erased, with each of its turns and lines; how many digests
        that sets free.
        """
        storable(text)
        digests = strike.digests_to_allow(self.digests, namespace, text, self.now())
        async with self.store.transaction(namespace, entry=entry, erasing=True) as tx:
            await tx.lock()
            entry.counts["allowed"] = await tx.erasures.allow(digests)
        return entry.counts["allowed"]

    async def find_receipt(self, receipt_id: str, secret: str) -> Namespace:
        """Whose receipt it is. Raises `ReceiptNotFound`, whatever is wrong."""
        storable(receipt_id)
        async with self.store.transaction(None, write=False) as tx:
            erasure = await tx.erasures.find(receipt_id)
        known = (erasure and erasure.secret_hash) or ""
        if not hmac.compare_digest(known, _hash(secret)) or erasure is None:
            raise ReceiptNotFound
        return erasure.namespace

    async def collect(
        self, namespace: Namespace, receipt_id: str, secret: str, *, entry: AuditEntry
    ) -> Collected:
        """The newest receipt. It can be read again until it says that the purge is done; that one
        is handed out once. Raises `ReceiptNotFound`.
        """
        async with self.store.transaction(namespace, entry=entry) as tx:
            erasure = await tx.erasures.get(receipt_id)
            if erasure is None:
                raise ReceiptNotFound
            final = erasure.stage is Stage.DONE
            if final and not await tx.erasures.collect(receipt_id, _hash(secret), self.now()):
                raise ReceiptNotFound
            entry.ids.append(receipt_id)
        return Collected(erasure.receipt, final)

    def _after(self, namespace: Namespace) -> None:
        self.store.forget(namespace)
        self.wake()


@dataclass
class _Begun:
    """One erasure, from its row to its receipt, in one transaction; `what` is the memory or the
    subject.
    """

    erase: Erase
    kind: Kind
    entry: AuditEntry
    what: str = ""
    id: str = ""

    async def begin(self, tx: Transaction) -> None:
        self.id = self.id or self.erase.new_id("ers")
        by = self.entry.accessor or "operator"
        await tx.erasures.begin(self.id, self.kind, by, {}, self.erase.now())

    async def settle(
        self,
        tx: Transaction,
        counts: Mapping[str, int],
        *,
        tokens_revoked: int = 0,
        reached: Reached = Reached(),
        stage: Stage = Stage.LOGICAL,
    ) -> Erased:
        erase, entry, now = self.erase, self.entry, self.erase.now()
        secret = secrets.token_urlsafe(32)
        told = {
            "jti": self.id,
            "namespace": entry.namespace,
            "kind": str(self.kind),
            "requested_by": entry.accessor or "operator",
            "requested_at": now.isoformat(timespec="seconds"),
            "record": entry.id,
            "engine": erase.store.engine,
            "counts": dict(counts),
            "tokens_revoked": tokens_revoked,
            **self._mark(),
        }
        receipt = erase.receipts.pending(told, now)
        sealed = erase.ledger.sealed(Noted(self.id, entry.namespace, self.kind, self.what))
        await tx.erasures.settle(self.id, told, receipt, _hash(secret), sealed=sealed, stage=stage)
        await tx.jobs.add(erase.new_id("job"), PURGE, {"erasure_id": self.id}, now)
        entry.ids.append(self.id)
        entry.counts |= {**counts, "tokens_revoked": tokens_revoked}
        return Erased(
            self.kind,
            counts,
            id=self.id,
            tokens_revoked=tokens_revoked,
            receipt=receipt,
            secret=secret,
            reached=reached,
        )

    def _mark(self) -> dict[str, str]:
        """By what a receipt tells whom it is about, to whoever knows the name and has the key."""
        if self.kind is not Kind.SUBJECT:
            return {}
        key = f"subject {Subject(self.what).key}"
        return {"subject": self.erase.digests.of(self.entry.namespace, key)}


def _reached(affected: Affected) -> Reached:
    return Reached(
        tuple(sorted(affected.memories)),
        tuple(sorted(affected.episodes)),
        tuple(sorted(affected.runs)),
    )


def _hash(secret: str) -> str:
    """One SHA-256 is enough for 256 random bits."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()
