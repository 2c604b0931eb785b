"""The chain of the book: each record of a namespace carries the digest of the one before, so that
none can be changed, dropped or moved without all that follow. Written and verified by these rules.

A chain alone does not show that its end was cut off, or that all of it was written anew: for that
there are checkpoints, kept where whoever can write to the database cannot
(https://www.rfc-editor.org/rfc/rfc6962 has the same need).
"""

import hashlib
import hmac
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from recall_server.domain.errors import AuditBroken

# Of a record as it is exported, what is not under its digest: the digest itself, its code, and the
# details, which may be erased and are under the digest by a salted one of their own.
_BESIDE = frozenset({"digest", "mac", "details"})


@dataclass(frozen=True)
class Head:
    """The last record of a chain."""

    seq: int
    digest: str


START = Head(0, "0" * 64)


@dataclass(frozen=True)
class Link:
    """What ties a record to the one before it. Digests are SHA-256 in hexadecimal."""

    seq: int
    prev: str
    digest: str
    mac: str
    detail_digest: str | None


@dataclass(frozen=True)
class Checkpoint:
    """The head of a namespace's chain at some time (ISO 8601), as the server vouched for it."""

    namespace: str
    seq: int
    digest: str
    at: str


def canonical(value: Any) -> bytes:
    """JSON that is the same for the same value: keys in order, no spaces, UTF-8 (RFC 8785).

    Floats, which each language writes in its own way, have no place in it: raises `ValueError`.
    """
    if _has_float(value):
        raise ValueError("a float has no canonical form")
    return _SPELLED(value).encode()


_SPELLED = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode


def _has_float(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_has_float, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_has_float, value))
    return isinstance(value, float)


def digest(record: Mapping[str, Any]) -> str:
    """The digest of a record as it is exported, over all of it but what stands beside."""
    content = {name: value for name, value in record.items() if name not in _BESIDE}
    return hashlib.sha256(canonical(content)).hexdigest()


def mac(key: bytes, digest: str) -> str:
    """What only the server can make of a digest: without the key nobody continues the chain."""
    return hmac.digest(key, digest.encode(), "sha256").hex()


def detail_digest(salt: bytes, details: Mapping[str, str]) -> str:
    """Stands in the record for details that may be erased; the salt, erased with them, keeps
    anybody from guessing what they were.
    """
    return hashlib.sha256(salt + canonical(details)).hexdigest()


class Verifier:
    """Goes along the chain of one namespace from its start, in constant memory. Raises
    `AuditBroken`, naming the first record that is bad or that nothing vouches for.

    Given `mac_key`, each record's code is looked at too. `start` is for the part after a record
    that was verified before.
    """

    def __init__(
        self,
        namespace: str,
        *,
        checkpoints: Iterable[Checkpoint] = (),
        mac_key: bytes | None = None,
        start: Head = START,
    ) -> None:
        self.namespace = namespace
        self.head = start
        self.vouched_for = start.seq
        self.details_erased = 0
        self._mac_key = mac_key
        self._waiting: dict[int, list[Checkpoint]] = {}
        for one in checkpoints:
            if one.namespace == namespace and one.seq > start.seq:
                self._waiting.setdefault(one.seq, []).append(one)

    def take(self, record: Mapping[str, Any]) -> None:
        """The next record."""
        seq = self.head.seq + 1
        try:
            self._check(record, seq)
        except (KeyError, TypeError, ValueError, AttributeError):
            raise self._broken(seq, "it is not a record of the book") from None
        self.head = Head(seq, record["digest"])
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
            # Either of the two may have been rewritten; nothing before them was.
            raise self._broken(max(1, seq - 1), f"record {seq} was written after another one")
        self._check_details(record, seq)

    def _check_details(self, record: Mapping[str, Any], seq: int) -> None:
        wanted, details = record["detail_digest"], record.get("details")
        if details is None:
            self.details_erased += wanted is not None
        elif wanted != detail_digest(bytes.fromhex(details["salt"]), details["values"]):
            raise self._broken(seq, "its details are not those that were written")

    def confirm(self, checkpoint: Checkpoint) -> None:
        """What the server vouched for must be the record that was taken last."""
        if checkpoint.seq > self.head.seq:
            raise self._broken(
                self.head.seq + 1,
                f"it is missing: the checkpoint of {checkpoint.at} vouches for the records "
                f"up to {checkpoint.seq}",
            )
        if (checkpoint.seq, checkpoint.digest) != (self.head.seq, self.head.digest):
            raise self._broken(
                self.vouched_for + 1,
                f"it or one up to {checkpoint.seq} was rewritten: the checkpoint of "
                f"{checkpoint.at} vouches for another record {checkpoint.seq}",
                to=checkpoint.seq,
            )
        self.vouched_for = checkpoint.seq

    def finish(self) -> None:
        """There are no more records: no checkpoint may know of any."""
        if self._waiting:
            self.confirm(self._waiting[max(self._waiting)][0])

    def _broken(self, seq: int, why: str, *, to: int | None = None) -> AuditBroken:
        return AuditBroken(self.namespace, seq, why, to=to)
