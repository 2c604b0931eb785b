"""Archives of records that were cut from audit logs: files that are written completely or not at
all, and the server's signed statement of each.
"""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO

from filelock import FileLock, Timeout
from pydantic import TypeAdapter, ValidationError

from recall_server.domain.errors import Invalid, Unavailable
from recall_server.domain.security.audit_chain import Cut
from recall_server.integrations.crypto.keys import Jwk, ServerKey, verified

TYP = "recall-audit-cut+jwt"
_CUT = TypeAdapter(Cut)


def signed_cut(key: ServerKey, cut: Cut) -> str:
    """Return the statement of a cut as a JWS (RFC 7515): the same for the same cut."""
    return key.sign(asdict(cut), TYP)


def verified_cut(token: str, public: Jwk) -> Cut:
    """Return the cut that the holder of `public` has stated. Raises `Invalid`."""
    try:
        return _CUT.validate_json(json.dumps(verified(token, public, TYP)), strict=True)
    except (Invalid, ValidationError):
        raise Invalid("This is not a statement of a cut that the key at hand has signed.") from None


def name_of(cut: Cut) -> str:
    """Return the name of an archive. It has a digest, as after a restore from a backup the same
    positions may be cut again.
    """
    return f"{cut.namespace}.{cut.first:012}-{cut.last:012}.{cut.digest[:12]}.jsonl"


@dataclass(frozen=True)
class ArchiveFolder:
    """A folder of the operator for archives; only the owner can read the files."""

    path: Path

    @contextmanager
    def locked(self) -> Iterator[bool]:
        """Lock the folder against other processes of this machine for the duration of the block.
        Yields False if another process has it. Raises `Unavailable`.
        """
        lock = FileLock(self.path / ".lock", mode=0o600)
        try:
            # The lock would create a missing folder, which may be a mount that is gone.
            self.path.stat()
            lock.acquire(timeout=0)
        except Timeout:
            yield False
            return
        except OSError as error:
            raise self._unwritable(error) from None
        try:
            yield True
        finally:
            lock.release()

    @contextmanager
    def new(self) -> Iterator[tuple[BinaryIO, Callable[[str], None]]]:
        """Yield a file, and a function that syncs it and gives it its name when it is complete.
        Raises `Unavailable`.
        """
        part = self.path / ".part"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        try:
            with os.fdopen(os.open(part, flags, 0o600), "wb") as file:

                def complete(name: str) -> None:
                    file.flush()
                    os.fsync(file.fileno())
                    part.replace(self.path / name)
                    _sync(self.path)

                yield file, complete
        except OSError as error:
            raise self._unwritable(error) from None
        finally:
            part.unlink(missing_ok=True)

    def _unwritable(self, error: OSError) -> Unavailable:
        return Unavailable(
            f"RECALL_AUDIT_ARCHIVE: {self.path} cannot be written ({error.strerror}). Nothing is "
            "cut from the audit log meanwhile."
        )


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
