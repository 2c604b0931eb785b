"""Exports, signs and verifies the audit log, with or without the database."""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from recall_server.domain.audit import START, Checkpoint, Cut, Head, Restored, Verifier
from recall_server.domain.errors import AuditBroken, Invalid, NamespaceNotFound, Stale
from recall_server.domain.ids import Namespace
from recall_server.integrations.audit_files import (
    CheckpointStore,
    signed,
    verified_checkpoint,
    verified_cut,
)
from recall_server.integrations.keys import Jwk, ServerKey
from recall_server.storage.driver import batches
from recall_server.storage.store import Store


@dataclass(frozen=True)
class Archive:
    """A verified archive file: its cut, and the cut before it."""

    path: Path
    cut: Cut
    before: Cut | None


class Digested(Iterator[str]):
    """Iterates over lines, and digests all lines read so far except the last."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = iter(lines)
        self.last = ""
        self._digest = hashlib.sha256()

    def __next__(self) -> str:
        line = next(self._lines)
        self._digest.update(self.last.encode())
        self.last = line
        return line

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()


def cut_before(namespace: str, statement: Any, public: Jwk) -> Cut | None:
    """Return the cut that the first line of an export states. Raises `AuditBroken`."""
    if statement is None:
        return None
    try:
        cut = verified_cut(str(statement), public)
    except Invalid:
        cut = None
    if cut is None or cut.namespace != namespace:
        why = "it was cut, and the statement of that is not of the key that is trusted"
        raise AuditBroken(namespace, 1, why)
    return cut


def sealed(seal: Any, verifier: Verifier, start: Head, sha256: str, public: Jwk) -> Cut:
    """Return the statement at the end of an archive that begins after `start`, whose records were
    verified; `sha256` is the digest of everything before the statement. Raises `AuditBroken`.
    """
    namespace, head = verifier.namespace, verifier.head
    first = start.seq + 1
    if seal is None:
        why = "the archive ends before it, without a statement of the server"
        raise AuditBroken(namespace, head.seq + 1, why)
    try:
        cut = verified_cut(str(seal), public)
    except Invalid:
        why = "the statement over its archive is not of the key that is trusted"
        raise AuditBroken(namespace, first, why) from None
    if cut.namespace != namespace:
        why = "the statement over its archive is of another namespace"
        raise AuditBroken(namespace, first, why)
    if cut.last > head.seq:
        raise AuditBroken(namespace, head.seq + 1, "the archive that should have it ends before it")
    same = (cut.first, cut.prev, cut.head, cut.sha256) == (first, start.digest, head, sha256)
    if not same:
        why = f"it or one up to {head.seq} is not in the archive as the server wrote it"
        raise AuditBroken(namespace, first, why, to=head.seq)
    return cut


def leading_to(cut: Cut | None, archives: Sequence[Archive]) -> list[Archive]:
    """Return the archives that lead up to a cut without a gap, oldest first. An archive whose cut
    was never made is left out.
    """
    chain: list[Archive] = []
    while cut is not None:
        ends = [
            one
            for one in archives
            if one.cut.namespace == cut.namespace and one.cut.head == cut.head
        ]
        if not ends:
            break
        chain.insert(0, min(ends, key=lambda one: one.cut.first))
        cut = chain[0].before
    return chain


FORMAT = "recall-audit/1"
# How many records one read returns: the most that an export or a verification holds in memory.
RECORDS_BATCH = 500
# The purpose for which the MAC key is derived.
PURPOSE = "audit"


@dataclass(frozen=True)
class Verified:
    """Records `first` to `seq` are intact; checkpoints confirm those up to `confirmed_up_to`,
    except what a restore took away. Records before `first` were cut, and no archive was given.
    """

    namespace: str
    seq: int
    digest: str
    unchained: int
    details_erased: int
    confirmed_up_to: int
    restored: tuple[Restored, ...] = ()
    first: int = 1


@dataclass(frozen=True)
class State:
    """The head of an audit log, the number of records that are older than its chain, and its cut
    with the server's statement. `fault`: what is wrong with the cut.
    """

    head: Head
    unchained: int
    cut: Cut | None
    statement: str
    fault: AuditBroken | None = None


@dataclass(frozen=True)
class Verification:
    """Verification with the database. `verified_export` verifies an export without it."""

    store: Store
    key: ServerKey
    now: Callable[[], datetime]

    async def export(self, namespace: Namespace) -> AsyncIterator[str]:
        """Yield the audit log of a namespace as lines of JSON, in constant memory: a manifest, the
        records, and a seal, which is a checkpoint of the last record.

        A broken log is exported whole, with the fault in place of the seal; then this raises
        `AuditBroken`. Raises `NamespaceNotFound`, and `Stale` if the log was cut meanwhile.
        """
        state = await self.state(namespace)
        manifest = {
            "format": FORMAT,
            "namespace": namespace,
            "exported_at": self._time(),
            "key": dict(self.key.public),
            "head": {"seq": state.head.seq, "digest": state.head.digest},
            "unchained": state.unchained,
            **({"cut": state.statement} if state.cut else {}),
        }
        yield as_line(manifest)
        verifier = self.verifier(namespace, state.cut)
        fault = state.fault
        async for record in self.records(namespace, verifier.start.seq, to=state.head.seq):
            fault = fault or _fault(partial(verifier.take, record))
            yield as_line(record)
        fault = fault or _fault(partial(_same, verifier, state.head))
        if fault is not None:
            if (await self.state(namespace)).statement != state.statement:
                raise Stale("The audit log was cut while it was read. Export it again.")
            yield as_line({"broken": {"seq": fault.seq, "message": fault.message}})
            raise fault
        yield as_line({"seal": signed(self.key, self._checkpoint(namespace, state.head))})

    async def verify(
        self,
        namespace: Namespace,
        checkpoints: Iterable[Checkpoint] = (),
        archives: Sequence[Archive] = (),
    ) -> Verified:
        """Verify the log in the database, from its cut on, and the earlier records in archives.
        Raises `AuditBroken`, `NamespaceNotFound`.
        """
        state = await self.state(namespace)
        outside = [one for one in checkpoints if one.namespace == namespace]
        try:
            return await self._verified(namespace, state, outside, archives)
        except AuditBroken:
            if (await self.state(namespace)).statement == state.statement:
                raise
        # The log was cut meanwhile.
        return await self.verify(namespace, outside, archives)

    async def _verified(
        self,
        namespace: Namespace,
        state: State,
        checkpoints: Iterable[Checkpoint],
        archives: Sequence[Archive],
    ) -> Verified:
        head = state.head
        if state.fault is not None:
            raise state.fault
        verifier = self.verifier(namespace, state.cut, checkpoints, archives)
        async for record in self.records(namespace, verifier.head.seq):
            verifier.take(record)
            if verifier.head.seq == head.seq:
                _same(verifier, head)
        verifier.finish()
        if verifier.head.seq < head.seq:
            _same(verifier, head)
        after = (await self.state(namespace)).head  # others may have appended meanwhile
        if verifier.head.seq > after.seq:
            raise AuditBroken(
                namespace, after.seq + 1, "the head of the audit log does not know it"
            )
        return _verified(verifier, state.unchained, verifier.confirmed_up_to)

    async def beginning(self, namespace: Namespace) -> AuditBroken | None:
        """Return what is wrong with the first record that is left, or with the cut before it.
        Raises `NamespaceNotFound`.
        """
        state = await self.state(namespace)
        verifier = self.verifier(namespace, state.cut)
        fault = state.fault
        async for record in self.records(namespace, verifier.start.seq, to=verifier.start.seq + 1):
            fault = fault or _fault(partial(verifier.take, record))
        return fault

    async def checkpoint(self, namespace: Namespace) -> tuple[int, str] | None:
        """Return the length of the log and a signed checkpoint of it; None if it is empty. Raises
        `AuditBroken` if its last record is not this server's, `NamespaceNotFound`.
        """
        head = (await self.state(namespace)).head
        if head == START:
            return None
        last = await self.store.autocommit(namespace).audit.chained(head.seq - 1, 1)
        before = Head(head.seq - 1, str(last[0].get("prev")) if last else "")
        verifier = Verifier(namespace, mac_key=self.key.derive(PURPOSE), start=before)
        for record in last:
            verifier.take(record)
        _same(verifier, head)
        return head.seq, signed(self.key, self._checkpoint(namespace, head))

    def namespaces(self, *, grown: bool = False) -> AsyncIterator[Namespace]:
        """Yield the namespaces with an audit log; `grown`: with records after the checkpoint."""
        return self.store.autocommit(None).audit.namespaces(grown=grown)

    async def state(self, namespace: Namespace) -> State:
        """Return the state of an audit log. Raises `NamespaceNotFound`."""
        async with self.store.transaction(namespace, write=False) as tx:
            head, (cut_seq, statement) = await tx.audit.head(), await tx.audit.cut()
            unchained = await tx.audit.unchained()
        if head is None:
            raise NamespaceNotFound
        try:
            cut = cut_before(namespace, statement or None, self.key.public)
        except AuditBroken as error:
            return State(head, unchained, None, statement, error)
        stated, fault = cut.last if cut else 0, None
        if stated != cut_seq:
            why = f"the log was cut up to {cut_seq}, and this server has stated {stated}"
            fault = AuditBroken(namespace, min(stated, cut_seq) + 1, why)
        return State(head, unchained, cut, statement, fault)

    async def records(
        self,
        namespace: Namespace,
        after: int,
        *,
        to: int | None = None,
        batch: int = RECORDS_BATCH,
    ) -> AsyncIterator[dict[str, Any]]:
        """Yield the records after `after`, up to `to`; `batch`: how many are read at a time."""
        while to is None or after < to:
            limit = batch if to is None else min(batch, to - after)
            found = await self.store.autocommit(namespace).audit.chained(after, limit)
            for record in found:
                yield record
            if len(found) < limit:
                return
            after = found[-1].get("seq", after + limit)

    def verifier(
        self,
        namespace: Namespace,
        cut: Cut | None,
        checkpoints: Iterable[Checkpoint] = (),
        archives: Sequence[Archive] = (),
    ) -> Verifier:
        """Return a verifier of the records after `cut`, which has verified the earlier records in
        archives. Raises `AuditBroken`.
        """
        return _begun(namespace, cut, checkpoints, archives, self.key.derive(PURPOSE))

    def _checkpoint(self, namespace: Namespace, head: Head) -> Checkpoint:
        return Checkpoint(namespace, head.seq, head.digest, self._time())

    def _time(self) -> str:
        return self.now().astimezone(UTC).isoformat(timespec="microseconds")


def manifest_of(lines: Iterator[str]) -> dict[str, Any]:
    """Parse the first line of an export. Raises `Invalid` if it is no manifest."""
    found = _parsed(next(lines, ""))
    if found.get("format") != FORMAT or not isinstance(found.get("namespace"), str):
        raise Invalid("This is not an export of an audit log. Make one with `recall audit export`.")
    return found


def verified_export(
    manifest: dict[str, Any],
    lines: Digested,
    checkpoints: Iterable[Checkpoint],
    public: Jwk,
    archives: Sequence[Archive] = (),
) -> Verified:
    """Verify the rest of an export, or of an archive, by a trusted key and checkpoints, and the
    earlier records in archives. Raises `AuditBroken`.
    """
    namespace = manifest["namespace"]
    cut = cut_before(namespace, manifest.get("cut"), public)
    verifier = _begun(namespace, cut, checkpoints, archives)
    start = verifier.head
    fault: AuditBroken | None = None
    seal = None
    for line in lines:
        found = _parsed(line)
        if "broken" in found:
            raise _reported(found["broken"], verifier, fault)
        if fault is None and seal is not None:
            raise AuditBroken(namespace, verifier.head.seq + 1, "it follows the seal")
        seal = found.get("seal")
        if fault is None and seal is None:
            fault = _fault(partial(verifier.take, found))
    # A checkpoint proves more than the seal, which may have been cut off.
    fault = fault or _fault(verifier.finish)
    if fault is not None:
        raise fault
    confirmed_up_to = verifier.confirmed_up_to
    if manifest.get("archive"):
        sealed(seal, verifier, start, lines.sha256, public)
        verifier.details_erased = 0  # archives have no details
    else:
        verifier.confirm(_opened(seal, verifier, public))
    return _verified(verifier, manifest.get("unchained", 0), confirmed_up_to)


def read_archive(path: Path, public: Jwk) -> Archive:
    """Verify and return a single archive. Raises `Invalid` if it is none, and `AuditBroken`."""
    with path.open(encoding="utf-8", newline="\n") as file:
        lines = Digested(file)
        manifest = manifest_of(lines)
        if not manifest.get("archive"):
            raise Invalid(f"{path} is not an archive. Give what RECALL_AUDIT_ARCHIVE has.")
        verified_export(manifest, lines, (), public)
        seal = str(_parsed(lines.last)["seal"])
    before = cut_before(manifest["namespace"], manifest.get("cut"), public)
    return Archive(path, verified_cut(seal, public), before)


def _archived(archives: Iterable[Archive]) -> Iterator[dict[str, Any]]:
    """Yield the records of archives that were verified."""
    for one in archives:
        with one.path.open(encoding="utf-8", newline="\n") as lines:
            manifest_of(lines)
            for line in lines:
                if "seal" not in (found := _parsed(line)):
                    yield found


def _begun(
    namespace: str,
    cut: Cut | None,
    checkpoints: Iterable[Checkpoint],
    archives: Sequence[Archive],
    mac_key: bytes | None = None,
) -> Verifier:
    """Return a verifier of the records after `cut`, which has verified those in the archives that
    lead up to it. Raises `AuditBroken`.
    """
    leading = leading_to(cut, archives)
    before = leading[0].before if leading else cut
    start, known = (before.head, before.restored) if before else (START, ())
    verifier = Verifier(
        namespace, checkpoints=checkpoints, mac_key=mac_key, start=start, known=known
    )
    for record in _archived(leading):
        verifier.take(record)
    # An archive has no details.
    verifier.details_erased = 0
    if cut is not None and verifier.head != cut.head:
        raise AuditBroken(namespace, verifier.head.seq, "its archive has changed meanwhile")
    return verifier


def _opened(seal: Any, verifier: Verifier, public: Jwk) -> Checkpoint:
    namespace, first = verifier.namespace, verifier.confirmed_up_to + 1
    if seal is None:
        raise AuditBroken(
            namespace, verifier.head.seq + 1, "the export ends before it, without a seal"
        )
    try:
        found = verified_checkpoint(str(seal), public)
    except Invalid:
        raise AuditBroken(
            namespace, first, "the seal over it is not of the key that is trusted"
        ) from None
    if found.namespace != namespace:
        raise AuditBroken(namespace, first, "the seal over it is of another namespace")
    return found


def read_checkpoints(lines: Iterable[str], public: Jwk) -> Iterator[Checkpoint]:
    """Yield the checkpoints of a file, one per line. Raises `Invalid`, which names the first line
    that the trusted key has not signed.
    """
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                yield verified_checkpoint(line.strip(), public)
            except Invalid:
                raise Invalid(
                    f"Line {number} of the checkpoints is not signed by the trusted key. Give the "
                    "key that signed them, and the file as the server wrote it."
                ) from None


def _reported(reported: Any, verifier: Verifier, found: AuditBroken | None) -> AuditBroken:
    """Return the fault that the server reported, unless it contradicts the one found here. Only the
    server has the key: without it, often just a range of records is known to be bad.
    """
    seq = reported.get("seq") if isinstance(reported, dict) else None
    seq = seq if isinstance(seq, int) else verifier.head.seq + 1
    if found is not None and not found.seq <= seq <= found.to:
        return found
    why = "the server found the audit log broken there when it exported it"
    return AuditBroken(verifier.namespace, seq, why)


def _same(verifier: Verifier, head: Head) -> None:
    """Raise `AuditBroken` if the chain does not end in its head."""
    reached = verifier.head
    if reached.seq < head.seq:
        why = f"it is missing: the head of the audit log knows of {head.seq} records"
        raise AuditBroken(verifier.namespace, reached.seq + 1, why)
    if reached != head:
        why = "the head of the audit log knows another one"
        raise AuditBroken(verifier.namespace, reached.seq, why)


def _verified(verifier: Verifier, unchained: int, confirmed_up_to: int) -> Verified:
    head, erased = verifier.head, verifier.details_erased
    return Verified(
        verifier.namespace,
        head.seq,
        head.digest,
        unchained,
        erased,
        confirmed_up_to,
        tuple(verifier.restored),
        verifier.start.seq + 1,
    )


def _fault(step: Callable[[], None]) -> AuditBroken | None:
    try:
        step()
    except AuditBroken as error:
        return error
    return None


def as_line(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _parsed(line: str) -> dict[str, Any]:
    """Return the object of a line; an empty one if there is none, which is no valid record."""
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


log = structlog.get_logger()

# How many checkpoints one delivery has.
NAMESPACES_BATCH = 500


@dataclass(frozen=True)
class Checkpoints:
    """Writes checkpoints to each of the operator's `places`; does nothing if there are none."""

    verification: Verification
    places: Sequence[CheckpointStore]
    every_s: float

    async def run(self) -> None:
        """Write checkpoints every `every_s` seconds until cancelled. Raises what `write` does."""
        while self.places:
            await self.write([one async for one in self.verification.namespaces(grown=True)])
            await asyncio.sleep(self.every_s)

    async def write(self, namespaces: Sequence[Namespace]) -> int:
        """Write a checkpoint of each namespace to every place; return how many. A broken log gets
        none, and an `audit_broken` event is logged.

        Raises `Unavailable` if a place does not accept them. They are written again later; a
        duplicate at another place does no harm.
        """
        written = 0
        for some in batches(namespaces, NAMESPACES_BATCH):
            made = await self._sign(some)
            for place in self.places if made else ():
                await place.store([signed for _, _, signed in made])
            for namespace, seq, _ in made:
                async with self.verification.store.transaction(namespace) as tx:
                    await tx.audit.checkpointed(seq)
            written += len(made)
        return written

    async def _sign(self, namespaces: Sequence[Namespace]) -> list[tuple[Namespace, int, str]]:
        checkpoints = []
        for namespace in namespaces:
            try:
                found = await self.verification.checkpoint(namespace)
            except AuditBroken as error:
                log.error("audit_broken", namespace=namespace, seq=error.seq)  # noqa: TRY400
                continue
            if found is not None:
                checkpoints.append((namespace, *found))
        return checkpoints

    async def close(self) -> None:
        for place in self.places:
            await place.close()
