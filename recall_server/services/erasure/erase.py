"""Erase: destroy what is remembered, so that nothing brings it back, and give a receipt for it.

One transaction does all that one can do. What deleted rows leave behind in files is destroyed by a
job, `purge`, which is promised in the same transaction (FEATURES H07, I11, I12, C02, C19).
"""

import hashlib
import hmac
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial

from recall_server.domain.audit import AuditEntry
from recall_server.domain.containers import NONE, container
from recall_server.domain.erasure import CONFIRMATION, Digests, Kind, Stage, Subject
from recall_server.domain.errors import ConfirmRequired, Invalid, MemoryNotFound, ReceiptNotFound
from recall_server.domain.namespace import Namespace
from recall_server.domain.permissions import FULL_ACCESS, AccessScope
from recall_server.domain.text.cleaning import storable
from recall_server.services.erasure import redact, restore_turns
from recall_server.services.erasure.container_eraser import ContainerEraser
from recall_server.services.erasure.holds import refuse_held
from recall_server.services.erasure.ledger import Ledger, Noted
from recall_server.services.erasure.namespace_eraser import NamespaceEraser
from recall_server.services.erasure.purge import Receipts
from recall_server.services.erasure.redact import Affected
from recall_server.services.erasure.targets import ALL, Item, Room, Somebody, TargetScan
from recall_server.services.memory.embedding import EMBED
from recall_server.storage.store import Store, Transaction
from recall_server.storage.tables.erasure import OPERATOR, PURGE

# Later than anything was put anywhere.
EVER = datetime.max.replace(tzinfo=UTC, hour=0)


@dataclass(frozen=True)
class Reached:
    """The ids of what an erasure reaches; a namespace or a large container is not listed."""

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
    clearing: NamespaceEraser
    emptying: ContainerEraser
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
            await tx.erasures.remember(await redact.digests_of_tasks(tx, self.digests))
            revoked = await tx.erasures.close(self.now())
            return await job.settle(tx, large, tokens_revoked=revoked, stage=Stage.ERASING)
        counts = await tx.erasures.counts()
        digests = await redact.digests_of_all(tx, self.digests)
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
        job, looking = _Begun(self, Kind.MEMORY, entry, item_id), TargetScan(Item(item_id))
        return await self._reach(namespace, job, looking, dry_run=dry_run)

    async def subject(
        self, namespace: Namespace, name: str, *, dry_run: bool = False, entry: AuditEntry
    ) -> Erased:
        """Erase every memory about or naming somebody, every turn spoken by or naming them, the
        name wherever else it stands in a text, and what rests on the same words.

        An unknown name is no error: the receipt then counts nothing. Raises `Invalid`.
        """
        storable(name)
        job, looking = _Begun(self, Kind.SUBJECT, entry, name), TargetScan(Somebody(Subject(name)))
        return await self._reach(namespace, job, looking, dry_run=dry_run)

    async def container(
        self,
        namespace: Namespace,
        name: str,
        *,
        dry_run: bool = False,
        reach: AccessScope = FULL_ACCESS,
        entry: AuditEntry,
    ) -> Erased:
        """Erase all that was put into a container: its texts, the memories that rest on them, its
        tasks, and others that hold any of it. What such a memory rests on elsewhere stays, and is
        read anew. A large one is emptied by the job that purges.

        A container without anything in it is no error: the receipt then counts nothing. What is in
        no container has no name to be erased by. Raises `Invalid`, `OutsideAccessScope`.
        """
        name = _named(name)
        reach.whole(name)
        room, size = await self._room(namespace, name)
        job, looking = _Begun(self, Kind.CONTAINER, entry, name), TargetScan(room, reach)
        return await self._reach(namespace, job, looking, dry_run=dry_run, size=size)

    async def _room(self, namespace: Namespace, name: str) -> tuple[Room, Mapping[str, int] | None]:
        """What goes of a container in the first transaction: of a large one, of that size, none of
        its texts, but its tasks.
        """
        size = await self.emptying.large(namespace, name)
        return Room(name, EVER, 0 if size else ALL), size

    async def _reach(
        self,
        tenant: Namespace,
        job: "_Begun",
        looking: TargetScan,
        *,
        dry_run: bool,
        size: Mapping[str, int] | None = None,
    ) -> Erased:
        """Erase what is found, or tell what that is. Looked for at first where nobody waits."""
        await looking.look(self.store.autocommit(tenant))
        async with self.store.transaction(tenant, entry=job.entry, erasing=True) as tx:
            await tx.lock()
            affected = await looking.look(tx)
            if affected is None:
                raise MemoryNotFound
            if dry_run:
                counts = _counts(affected, size)
                job.entry.counts |= counts
                return Erased(job.kind, counts, reached=_reached(affected))
            await refuse_held(tx)
            erased = await self._apply(tx, job, affected, size)
        self._after(tenant)
        return erased

    async def again(self, noted: Noted, *, entry: AuditEntry) -> Erased:
        """Erase what was erased before, in a database that was restored from a backup; a hold of
        that time does not stand over it. What is not there is erased already.
        """
        namespace, what = noted.namespace, noted.what
        size, large = None, None
        looking = TargetScan(Item(what))
        if noted.kind is Kind.NAMESPACE:
            large = await self.clearing.large(namespace)
        elif noted.kind is Kind.SUBJECT:
            looking = TargetScan(Somebody(Subject(what)))
        elif noted.kind is Kind.CONTAINER:
            room, size = await self._room(namespace, what)
            looking = TargetScan(room)
        async with self.store.transaction(namespace, entry=entry, erasing=True) as tx:
            await tx.access.add_namespace(self.now())
            await tx.lock()
            job = _Begun(self, noted.kind, entry, what, noted.id)
            if noted.kind is Kind.NAMESPACE:
                erased = await self._clear(tx, job, large=large)
            else:
                affected = await looking.look(tx) or Affected()
                erased = await self._apply(tx, job, affected, size)
        self._after(namespace)
        return erased

    async def _apply(
        self,
        tx: Transaction,
        job: "_Begun",
        affected: Affected,
        size: Mapping[str, int] | None = None,
    ) -> Erased:
        """Of a large container of that `size`, the beginning."""
        await job.begin(tx)
        left = await redact.apply(tx, affected, self.digests, self.now())
        await restore_turns.read_again(tx, left, self.new_id, self.now())
        for episode_id in sorted(affected.episodes.keys() - affected.whole):
            await tx.jobs.add(self.new_id("job"), EMBED, {"episode_id": episode_id}, self.now())
        stage = Stage.ERASING if size else Stage.LOGICAL
        counts, reached = _counts(affected, size), _reached(affected)
        return await job.settle(tx, counts, reached=reached, stage=stage)

    async def allow(self, namespace: Namespace, text: str, *, entry: AuditEntry) -> int:
        """Take a text again that was erased, with each of its turns and lines; how many digests
        that sets free.
        """
        storable(text)
        digests = redact.digests_to_allow(self.digests, namespace, text, self.now())
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
    """One erasure, from its row to its receipt, in one transaction; `what` is the memory, the
    subject or the container.
    """

    erase: Erase
    kind: Kind
    entry: AuditEntry
    what: str = ""
    id: str = ""

    async def begin(self, tx: Transaction) -> None:
        self.id = self.id or self.erase.new_id("ers")
        by = self.entry.accessor or OPERATOR
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
            "requested_by": entry.accessor or OPERATOR,
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


def _counts(affected: Affected, size: Mapping[str, int] | None) -> dict[str, int]:
    """Of a large container's texts those that were there to be counted."""
    return affected.counts() | ({**size, "spans": size["episodes"]} if size else {})


def _reached(affected: Affected) -> Reached:
    return Reached(
        tuple(sorted(affected.memories)),
        tuple(sorted(affected.episodes)),
        tuple(sorted(affected.runs)),
    )


def _hash(secret: str) -> str:
    """One SHA-256 is enough for 256 random bits."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()
