"""Archives of the records that were cut from an audit log: verifies each by itself, and orders them
so that they lead up to the rest of the log.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recall_server.domain.errors import AuditBroken, Invalid
from recall_server.domain.security.audit_chain import (
    START,
    Checkpoint,
    Cut,
    Head,
    Restored,
    Verifier,
)
from recall_server.integrations.audit_files import verified_cut
from recall_server.integrations.crypto.keys import Jwk


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


def beginning(cut: Cut | None) -> tuple[Head, tuple[Restored, ...]]:
    """Return the head after which a chain begins after a cut, and the restores known there."""
    return (cut.head, cut.restored) if cut else (START, ())


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


def begun(
    namespace: str,
    cut: Cut | None,
    archived: Iterator[dict[str, Any]],
    before: Cut | None,
    checkpoints: Iterable[Checkpoint] = (),
    *,
    mac_key: bytes | None = None,
) -> Verifier:
    """Return a verifier of the records after `cut`, which has verified the `archived` records that
    begin after `before`. Raises `AuditBroken`.
    """
    start, known = beginning(before)
    verifier = Verifier(
        namespace, checkpoints=checkpoints, mac_key=mac_key, start=start, known=known
    )
    for record in archived:
        verifier.take(record)
    # An archive has no details.
    verifier.details_erased = 0
    if cut is not None and verifier.head != cut.head:
        raise AuditBroken(namespace, verifier.head.seq, "its archive has changed meanwhile")
    return verifier
