"""A record of the audit log while its operation runs, and the hash chain of the log: each record of
a namespace holds the digest of the one before, so that no record can be changed, dropped or moved
without all that follow.

A chain alone does not show that its end was cut off or that all of it was rewritten. Checkpoints
show it; they are stored where nobody with access to the database can write
(https://www.rfc-editor.org/rfc/rfc6962 has the same need).
"""

import hashlib
import hmac
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from recall_server.domain.errors import AuditBroken
from recall_server.domain.extraction import Usage
from recall_server.domain.ids import Namespace
from recall_server.domain.permissions import Bearer

# Stands for the token if a change was asked for without one.
OPERATOR = "operator"


class Outcome(StrEnum):
    OK = "ok"
    ERROR = "error"


class AccessCount(NamedTuple):
    """How many times a memory or a turn was shown, and when last."""

    id: str
    times: int
    last: datetime


@dataclass
class AuditEntry:
    """One audit record, filled in while the operation runs.

    Holds ids, counts and codes, never text.

    `details`: stored next to the log, so that they can be erased.
    `written`: set by the transaction that wrote the record, so that each operation writes one.
    `ends_caller`: the operation may revoke the token of its caller and has checked that the token
    was valid.
    `read_only`: the operation changes nothing, so its record is written after the reply.
    `bearer`: the token of the caller; what the operation begins ends with it.
    `memories_shown`, `turns_shown`: the accesses that a search counts.
    `part_of`: the job, task or import that the operation is a part of.
    `caused_by`: the token that began that.
    `inputs`: a digest of the arguments; the record has a keyed digest of it.
    """

    id: str
    namespace: Namespace
    operation: str
    protocol: str
    accessor: str | None
    request_id: str
    started_at: datetime
    elapsed_ms: Callable[[], float]
    ids: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    outcome: Outcome = Outcome.OK
    code: str | None = None
    usage: Usage = field(default_factory=Usage)
    details: dict[str, str] = field(default_factory=dict)
    written: bool = False
    ends_caller: bool = False
    read_only: bool = False
    bearer: Bearer | None = None
    memories_shown: list[str] = field(default_factory=list)
    turns_shown: list[str] = field(default_factory=list)
    part_of: str | None = None
    caused_by: str | None = None
    inputs: bytes | None = None

    @property
    def change(self) -> str:
        """The change id that memory events name."""
        return self.part_of or self.id

    @property
    def made_by(self) -> str | None:
        """The accessor that memory events name."""
        return self.accessor or self.caused_by

    @property
    def by(self) -> str:
        """The decider that decisions of this call name."""
        return self.accessor or OPERATOR

    @property
    def began_by(self) -> str | None:
        """The name of the caller's token, for the work that it begins."""
        return self.bearer.name if self.bearer else self.accessor

    def part(self, record_id: str) -> "AuditEntry":
        """Return the record of a further transaction of this operation, a part of its change."""
        return replace(
            self, id=record_id, part_of=self.change, ids=[], counts={}, details={}, written=False
        )


# Fields of an exported record that its digest does not cover: the digest, its MAC, and the details,
# which can be erased and are covered by a salted digest of their own.
_NOT_DIGESTED = frozenset({"digest", "mac", "details"})


@dataclass(frozen=True)
class Head:
    """The last record of a chain."""

    seq: int
    digest: str


START = Head(0, "0" * 64)


@dataclass(frozen=True)
class Link:
    """The fields that tie a record to the one before it. Digests are SHA-256 in hexadecimal."""

    seq: int
    prev: str
    digest: str
    mac: str
    detail_digest: str | None


@dataclass(frozen=True)
class Checkpoint:
    """The head of a namespace's chain at a time (ISO 8601), signed by the server."""

    namespace: str
    seq: int
    digest: str
    at: str


# The operation of an operator that restores a backup: records that an earlier checkpoint confirms
# are then gone on purpose.
RESTORE = "restore_backup"


@dataclass(frozen=True)
class Restored:
    """A backup was restored at `at` (ISO 8601): the records from `seq` on were written since."""

    seq: int
    at: str


@dataclass(frozen=True)
class Cut:
    """The statement, signed by the server, that the records `first` to `last` were cut from a
    namespace's chain and are in an archive. `prev` is the digest before them, `digest` that of the
    last, and `sha256` that of the archive up to this statement. `restored`: the restores up to
    there.
    """

    namespace: str
    first: int
    prev: str
    last: int
    digest: str
    sha256: str
    restored: tuple[Restored, ...] = ()

    @property
    def head(self) -> Head:
        """The head after which the rest of the chain begins."""
        return Head(self.last, self.digest)


def excuses(restored: Iterable[Restored], checkpoint: Checkpoint, *, whole: bool = False) -> bool:
    """True if one of the restores took away the records that a checkpoint confirms. `whole`: they
    are the restores of other namespaces, and took away all of this one.
    """
    return any(
        (whole or one.seq <= checkpoint.seq)
        and datetime.fromisoformat(checkpoint.at) <= datetime.fromisoformat(one.at)
        for one in restored
    )


def canonical(value: Any) -> bytes:
    """Encode as canonical JSON: sorted keys, no spaces, UTF-8 (RFC 8785).

    Raises `ValueError` on floats, which each language writes in its own way.
    """
    if _has_float([value]):
        raise ValueError("a float has no canonical form")
    return _encode(value).encode()


_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode


def _has_float(values: Iterable[Any]) -> bool:
    for value in values:
        if isinstance(value, dict) and _has_float(value.values()):
            return True
        if isinstance(value, float) or (isinstance(value, list | tuple) and _has_float(value)):
            return True
    return False


def digest(record: Mapping[str, Any]) -> str:
    """Return the digest of an exported record, without the fields in `_NOT_DIGESTED`."""
    content = {name: value for name, value in record.items() if name not in _NOT_DIGESTED}
    return hashlib.sha256(canonical(content)).hexdigest()


def mac(key: bytes, digest: str) -> str:
    """Return the MAC of a digest: without the key nobody can continue the chain."""
    return hmac.digest(key, digest.encode(), "sha256").hex()


def inputs_hash(key: bytes, record_id: str, inputs: bytes) -> str:
    """Return the keyed digest of the arguments of one call. Two calls with equal arguments get
    different digests, and without the key nobody can test a guess.
    """
    return hmac.digest(key, b"inputs\0" + record_id.encode() + b"\0" + inputs, "sha256").hex()


def detail_digest(salt: bytes, details: Mapping[str, str]) -> str:
    """Return the salted digest of details. The salt is erased with them, so that they cannot be
    guessed.
    """
    return hashlib.sha256(salt + canonical(details)).hexdigest()


class Verifier:
    """Verifies the chain of one namespace from its start, in constant memory. Raises `AuditBroken`,
    which names the first record that is bad or contradicts a checkpoint.

    `mac_key`: check the MAC of each record too. `start`: verify only the records after this one,
    which was verified before, or was cut. `known`: the restores up to there.
    """

    def __init__(
        self,
        namespace: str,
        *,
        checkpoints: Iterable[Checkpoint] = (),
        mac_key: bytes | None = None,
        start: Head = START,
        known: Iterable[Restored] = (),
    ) -> None:
        self.namespace = namespace
        self.start = self.head = start
        self.confirmed_up_to = start.seq
        self.details_erased = 0
        self.restored = list(known)
        self._mac_key = mac_key
        self._waiting: dict[int, list[Checkpoint]] = {}
        for one in checkpoints:
            if one.namespace == namespace and one.seq > start.seq:
                self._waiting.setdefault(one.seq, []).append(one)

    def take(self, record: Mapping[str, Any]) -> None:
        seq = self.head.seq + 1
        try:
            self._check(record, seq)
        except (KeyError, TypeError, ValueError, AttributeError):
            raise self._broken(seq, "it is not a record of the audit log") from None
        self.head = Head(seq, record["digest"])
        if (record.get("operation"), record.get("outcome")) == (RESTORE, Outcome.OK):
            self.restored.append(Restored(seq, record["at"]))
        for one in self._waiting.pop(seq, ()):
            self.confirm(one)

    def _check(self, record: Mapping[str, Any], seq: int) -> None:
        if record["seq"] != seq:
            raise self._broken(seq, "it is missing, or not in its place")
        if record["namespace"] != self.namespace:
            raise self._broken(seq, "it belongs to another namespace")
        if record["digest"] != digest(record):
            raise self._broken(seq, "its content is not what was written")
        if self._mac_key is not None and not hmac.compare_digest(
            record["mac"], mac(self._mac_key, record["digest"])
        ):
            raise self._broken(seq, "it was not written by this server")
        if record["prev"] != self.head.digest:
            # This record or the one before it was rewritten; no earlier one was.
            raise self._broken(max(1, seq - 1), f"record {seq} was written after another one")
        wanted, details = record["detail_digest"], record.get("details")
        if details is None:
            self.details_erased += wanted is not None
        elif wanted != detail_digest(bytes.fromhex(details["salt"]), details["values"]):
            raise self._broken(seq, "its details are not those that were written")

    def confirm(self, checkpoint: Checkpoint) -> None:
        """Check that the checkpoint names the current head, unless a restore took that away."""
        if (checkpoint.seq, checkpoint.digest) == (self.head.seq, self.head.digest):
            self.confirmed_up_to = checkpoint.seq
            return
        if excuses(self.restored, checkpoint):
            return
        if checkpoint.seq > self.head.seq:
            raise self._broken(
                self.head.seq + 1,
                f"it is missing: the checkpoint of {checkpoint.at} confirms the records "
                f"up to {checkpoint.seq}",
            )
        raise self._broken(
            self.confirmed_up_to + 1,
            f"it or one up to {checkpoint.seq} was rewritten: the checkpoint of "
            f"{checkpoint.at} confirms another record {checkpoint.seq}",
            to=checkpoint.seq,
        )

    def finish(self) -> None:
        """End the chain: no checkpoint may name a later record."""
        for seq in sorted(self._waiting, reverse=True):
            for one in self._waiting[seq]:
                self.confirm(one)

    def _broken(self, seq: int, why: str, *, to: int | None = None) -> AuditBroken:
        return AuditBroken(self.namespace, seq, why, to=to)
