"""Signed checkpoints of the audit log, and where they are stored outside the database."""

import asyncio
import json
import os
import stat
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from pydantic import TypeAdapter, ValidationError

from recall_server.domain.errors import Invalid, PushFailed, Unavailable
from recall_server.domain.security.audit_chain import Checkpoint
from recall_server.integrations.crypto.keys import Jwk, ServerKey, verified
from recall_server.integrations.webhook import Webhook


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


TYP = "recall-checkpoint+jwt"
_CHECKPOINT = TypeAdapter(Checkpoint)


def signed(key: ServerKey, checkpoint: Checkpoint) -> str:
    """Return the checkpoint as a JWS (RFC 7515)."""
    return key.sign(asdict(checkpoint), TYP)


def verified_checkpoint(token: str, public: Jwk) -> Checkpoint:
    """Return the checkpoint that the holder of `public` signed. Raises `Invalid` on a bad
    signature.
    """
    try:
        return _CHECKPOINT.validate_json(json.dumps(verified(token, public, TYP)), strict=True)
    except (Invalid, ValidationError):
        raise Invalid("This is not a checkpoint that the key at hand has signed.") from None


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
