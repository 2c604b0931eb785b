"""The audit log outside of the database: checkpoints and statements of cuts, signed by the server,
and the files and addresses that they, and the records that were cut, are written to.
"""

import asyncio
import json
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO, Protocol
from urllib.parse import urlsplit

from filelock import FileLock, Timeout
from pydantic import TypeAdapter, ValidationError

from recall_server.domain.audit import Checkpoint, Cut
from recall_server.domain.errors import Invalid, PushFailed, Unavailable
from recall_server.integrations.keys import Jwk, ServerKey, verified
from recall_server.integrations.webhook import Webhook

CHECKPOINT_TYP, CUT_TYP = "recall-checkpoint+jwt", "recall-audit-cut+jwt"
_CHECKPOINT, _CUT = TypeAdapter(Checkpoint), TypeAdapter(Cut)


def signed(key: ServerKey, statement: Checkpoint | Cut) -> str:
    """Return the statement as a JWS (RFC 7515): the same for the same statement."""
    typ = CUT_TYP if isinstance(statement, Cut) else CHECKPOINT_TYP
    return key.sign(asdict(statement), typ)


def verified_checkpoint(token: str, public: Jwk) -> Checkpoint:
    """Return the checkpoint that the holder of `public` signed. Raises `Invalid`."""
    try:
        claims = json.dumps(verified(token, public, CHECKPOINT_TYP))
        return _CHECKPOINT.validate_json(claims, strict=True)
    except (Invalid, ValidationError):
        raise Invalid("This is not a checkpoint that the key at hand has signed.") from None


def verified_cut(token: str, public: Jwk) -> Cut:
    """Return the cut that the holder of `public` has stated. Raises `Invalid`."""
    try:
        return _CUT.validate_json(json.dumps(verified(token, public, CUT_TYP)), strict=True)
    except (Invalid, ValidationError):
        raise Invalid("This is not a statement of a cut that the key at hand has signed.") from None


@dataclass(frozen=True)
class AppendedFile:
    """A file that only its owner can read; `setting` names the setting that holds its path."""

    path: Path
    setting: str

    def append(self, text: bytes) -> None:
        """Append all of `text` and sync it to disk. Raises `Unavailable` if that is not certain."""
        try:
            file = os.open(
                self.path,
                os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK,
                0o600,
            )
            try:
                if not stat.S_ISREG(os.fstat(file).st_mode):
                    raise Unavailable(f"{self.setting}: {self.path} is not a file.")
                # One call, so that the appends of two processes do not mix.
                if os.write(file, text) != len(text):
                    raise Unavailable(f"{self.setting}: the disk is full.")
                os.fsync(file)
            finally:
                os.close(file)
        except OSError as error:
            raise Unavailable(
                f"{self.setting}: {self.path} cannot be written ({error.strerror})."
            ) from None


class CheckpointStore(Protocol):
    async def store(self, checkpoints: Sequence[str]) -> None:
        """Append all of these. Raises `Unavailable` if that is not certain."""

    async def close(self) -> None: ...


@dataclass(frozen=True)
class CheckpointFile:
    """A file with one checkpoint per line, which only its owner can read."""

    path: Path

    async def store(self, checkpoints: Sequence[str]) -> None:
        text = "".join(f"{one}\n" for one in checkpoints).encode()
        file = AppendedFile(self.path, "RECALL_CHECKPOINT_FILE")
        await asyncio.to_thread(file.append, text)

    async def close(self) -> None:
        """No file stays open."""


class CheckpointUrl:
    """An address of the operator to which checkpoints are POSTed, one a line, until it answers with
    success. It may get a checkpoint twice.
    """

    def __init__(self, url: str, timeout_s: float) -> None:
        self._url = url
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        # The operator configured this address, so it may be private; no other private one is
        # allowed.
        self._webhook = Webhook(allowed=[f"{host}:{port}"], timeout_s=timeout_s)

    async def store(self, checkpoints: Sequence[str]) -> None:
        try:
            answer = await self._webhook.post(
                self._url,
                "".join(f"{one}\n" for one in checkpoints).encode(),
                {"Content-Type": "text/plain; charset=utf-8"},
            )
        except PushFailed as error:
            raise Unavailable(f"RECALL_CHECKPOINT_URL: {error.message}") from None
        if not 200 <= answer.status < 300:
            raise Unavailable(f"RECALL_CHECKPOINT_URL: the receiver answered {answer.status}.")

    async def close(self) -> None:
        await self._webhook.close()


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
