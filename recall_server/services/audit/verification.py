"""The book as evidence: exported, vouched for, and verified, with the database or without."""

import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from recall_server.domain.errors import AuditBroken, Invalid, NamespaceNotFound
from recall_server.domain.namespace import Namespace
from recall_server.domain.security.audit_chain import START, Checkpoint, Head, Verifier
from recall_server.integrations.checkpoints import opened, signed
from recall_server.integrations.crypto.keys import Jwk, ServerKey
from recall_server.storage.store import Store

FORMAT = "recall-audit/1"
# Records read at once: what an export or a verification holds in memory.
BATCH = 500
NAMESPACES_AT_ONCE = 500
# What a record's code is derived for.
PURPOSE = "audit"


@dataclass(frozen=True)
class Verified:
    """What was found sound: the records 1 to `seq`, of which `vouched_for` by checkpoints."""

    namespace: str
    seq: int
    digest: str
    unchained: int
    details_erased: int
    vouched_for: int


@dataclass(frozen=True)
class Verification:
    """What needs the database. Verifying an export does not: see `verified_export`."""

    store: Store
    key: ServerKey
    now: Callable[[], datetime]

    async def export(self, namespace: Namespace) -> AsyncIterator[str]:
        """The book of a namespace as it is now, as lines of JSON, in constant memory: a manifest,
        the records, and the server's seal, which is a checkpoint of the last of them. A book that
        is broken comes out whole, but with the fault in place of the seal; then this raises
        `AuditBroken`. Raises `NamespaceNotFound` where there is no such namespace.
        """
        head, unchained = await self._state(namespace)
        manifest = {
            "format": FORMAT,
            "namespace": namespace,
            "exported_at": self._time(),
            "key": dict(self.key.public),
            "head": {"seq": head.seq, "digest": head.digest},
            "unchained": unchained,
        }
        yield _line(manifest)
        verifier = self._verifier(namespace)
        fault: AuditBroken | None = None
        async for record in self._records(namespace, to=head.seq):
            fault = fault or _fault(partial(verifier.take, record))
            yield _line(record)
        fault = fault or _fault(partial(_same, verifier, head))
        if fault is not None:
            yield _line({"broken": {"seq": fault.seq, "message": fault.message}})
            raise fault
        yield _line({"seal": signed(self.key, self._checkpoint(namespace, head))})

    async def verify(
        self, namespace: Namespace, checkpoints: Iterable[Checkpoint] = ()
    ) -> Verified:
        """Go through the book as it stands in the database. Raises `AuditBroken`,
        `NamespaceNotFound`.
        """
        head, unchained = await self._state(namespace)
        outside = [one for one in checkpoints if one.namespace == namespace]
        verifier = self._verifier(namespace, outside)
        async for record in self._records(namespace):
            verifier.take(record)
            if verifier.head.seq == head.seq:
                _same(verifier, head)
        verifier.finish()
        if verifier.head.seq < head.seq:
            _same(verifier, head)
        after, _ = await self._state(namespace)  # others may have written meanwhile
        if verifier.head.seq > after.seq:
            raise AuditBroken(namespace, after.seq + 1, "the head of the book does not know it")
        vouched_for = max((one.seq for one in outside), default=0)
        return _verified(verifier, unchained, vouched_for)

    async def checkpoint(self, namespace: Namespace) -> tuple[int, str] | None:
        """How far the book goes and a signed checkpoint of it; None while it is empty. Raises
        `AuditBroken` where its last record is not this server's, `NamespaceNotFound`.
        """
        head, _ = await self._state(namespace)
        if head == START:
            return None
        async with self.store.transaction(namespace, write=False) as tx:
            last = await tx.audit.chained(head.seq - 1, 1)
        before = Head(head.seq - 1, str(last[0].get("prev")) if last else "")
        verifier = self._verifier(namespace, start=before)
        for record in last:
            verifier.take(record)
        _same(verifier, head)
        return head.seq, signed(self.key, self._checkpoint(namespace, head))

    async def namespaces(self, *, grown: bool = False) -> AsyncIterator[Namespace]:
        """All that have a book; or one that has `grown` since its last checkpoint."""
        after = ""
        while True:
            async with self.store.transaction(None, write=False) as tx:
                found = await tx.audit.namespaces(after, NAMESPACES_AT_ONCE, grown=grown)
            for namespace in found:
                yield namespace
            if len(found) < NAMESPACES_AT_ONCE:
                return
            after = found[-1]

    async def _state(self, namespace: Namespace) -> tuple[Head, int]:
        async with self.store.transaction(namespace, write=False) as tx:
            head, unchained = await tx.audit.head(), await tx.audit.unchained()
        if head is None:
            raise NamespaceNotFound
        return head, unchained

    async def _records(
        self, namespace: Namespace, *, to: int | None = None
    ) -> AsyncIterator[dict[str, Any]]:
        after = 0
        while to is None or after < to:
            limit = BATCH if to is None else min(BATCH, to - after)
            async with self.store.transaction(namespace, write=False) as tx:
                found = await tx.audit.chained(after, limit)
            for record in found:
                yield record
            if len(found) < limit:
                return
            after = found[-1].get("seq", after + limit)

    def _verifier(
        self, namespace: Namespace, checkpoints: Iterable[Checkpoint] = (), *, start: Head = START
    ) -> Verifier:
        secret = self.key.derive(PURPOSE)
        return Verifier(namespace, checkpoints=checkpoints, mac_key=secret, start=start)

    def _checkpoint(self, namespace: Namespace, head: Head) -> Checkpoint:
        return Checkpoint(namespace, head.seq, head.digest, self._time())

    def _time(self) -> str:
        return self.now().astimezone(UTC).isoformat(timespec="seconds")


def manifest_of(lines: Iterator[str]) -> dict[str, Any]:
    """The first line of an export. Raises `Invalid` where it is none."""
    found = _parsed(next(lines, ""))
    if found.get("format") != FORMAT or not isinstance(found.get("namespace"), str):
        raise Invalid("This is not an export of the book. Make one with `recall audit export`.")
    return found


def verified_export(
    manifest: dict[str, Any], lines: Iterator[str], checkpoints: Iterable[Checkpoint], public: Jwk
) -> Verified:
    """Go through the rest of an export, with nothing but the key that is trusted and what
    checkpoints there are. Raises `AuditBroken`.
    """
    namespace = manifest["namespace"]
    verifier = Verifier(namespace, checkpoints=checkpoints)
    fault: AuditBroken | None = None
    seal = None
    for line in lines:
        found = _parsed(line)
        if "broken" in found:
            raise _exact(fault, _as_told(namespace, verifier.head.seq, found["broken"]))
        if fault is None and seal is not None:
            raise AuditBroken(namespace, verifier.head.seq + 1, "it follows the seal")
        seal = found.get("seal")
        if fault is None and seal is None:
            fault = _fault(partial(verifier.take, found))
    # A checkpoint tells more than the seal, which anybody may have cut off.
    fault = fault or _fault(verifier.finish)
    if fault is not None:
        raise fault
    vouched_for = verifier.vouched_for
    verifier.confirm(_opened(seal, verifier, public))
    return _verified(verifier, manifest.get("unchained", 0), vouched_for)


def _opened(seal: Any, verifier: Verifier, public: Jwk) -> Checkpoint:
    namespace, first = verifier.namespace, verifier.vouched_for + 1
    if seal is None:
        raise AuditBroken(
            namespace, verifier.head.seq + 1, "the export ends before it, without a seal"
        )
    try:
        found = opened(str(seal), public)
    except Invalid:
        raise AuditBroken(
            namespace, first, "the seal over it is not of the key that is trusted"
        ) from None
    if found.namespace != namespace:
        raise AuditBroken(namespace, first, "the seal over it is of another namespace")
    return found


def read_checkpoints(lines: Iterable[str], public: Jwk) -> Iterator[Checkpoint]:
    """The checkpoints of a file, one a line. Raises `Invalid`, naming the first line that the
    trusted key has not signed.
    """
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                yield opened(line.strip(), public)
            except Invalid:
                raise Invalid(
                    f"Line {number} of the checkpoints is not signed by the trusted key. Give the "
                    "key that signed them, and the file as the server wrote it."
                ) from None


def _as_told(namespace: str, read: int, told: Any) -> AuditBroken:
    seq = told.get("seq") if isinstance(told, dict) else None
    return AuditBroken(
        namespace,
        seq if isinstance(seq, int) else read + 1,
        "the server found the book broken there when it exported it",
    )


def _exact(found: AuditBroken | None, told: AuditBroken) -> AuditBroken:
    """Where only a stretch is known to be bad, what the server said of it, who has the key."""
    if found is None or found.seq <= told.seq <= found.to:
        return told
    return found


def _same(verifier: Verifier, head: Head) -> None:
    """Raise `AuditBroken` where the chain does not end in its head."""
    reached = verifier.head
    if reached.seq < head.seq:
        why = f"it is missing: the head of the book knows of {head.seq} records"
        raise AuditBroken(verifier.namespace, reached.seq + 1, why)
    if reached != head:
        why = "the head of the book knows another one"
        raise AuditBroken(verifier.namespace, reached.seq, why)


def _verified(verifier: Verifier, unchained: int, vouched_for: int) -> Verified:
    head, erased = verifier.head, verifier.details_erased
    return Verified(verifier.namespace, head.seq, head.digest, unchained, erased, vouched_for)


def _fault(step: Callable[[], None]) -> AuditBroken | None:
    try:
        step()
    except AuditBroken as error:
        return error
    return None


def _line(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _parsed(line: str) -> dict[str, Any]:
    """The object of a line; an empty one where there is none, which is no record either."""
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
