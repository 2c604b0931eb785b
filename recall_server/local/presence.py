"""Where the server of an SQLite file listens, and which clients use it; both are gone with their
processes, however these end.
"""

import asyncio
import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

POLL_S = 15.0


@contextmanager
def published(database: Path | str, address: str) -> Iterator[None]:
    """Name the address of the server beside its SQLite file for the duration of the block.

    The file is locked before it gets its name, so that one without a lock is known to be of a
    server that was killed, and its port may be another program's.
    """
    if isinstance(database, str):
        yield
        return
    path = _beside(database, ".address")
    part = path.with_name(f"{path.name}.{os.getpid()}")
    with _opened(part) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(address)
        file.truncate()
        file.flush()
        part.replace(path)
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def address_of(database: Path) -> str | None:
    """The address of the server of an SQLite file; None where none runs. A link, and a file that
    another user has made or can write, is none of ours: the token would go where it says.
    """
    try:
        with open(_beside(database, ".address"), encoding="utf-8", opener=_unlinked) as file:
            if not _ours(file):
                return None
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return file.read()
    except FileNotFoundError:
        pass
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
    return None


@contextmanager
def client_of(database: Path) -> Iterator[None]:
    """Count as a client of the server of an SQLite file for the duration of the block. Waits for a
    server that is about to end.
    """
    with _opened(_beside(database, ".clients")) as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        os.utime(file.fileno())
        yield


def touch(database: Path) -> None:
    """Count as a client that has come and gone just now."""
    _beside(database, ".clients").touch(0o600)


@contextmanager
def clients_of(database: Path) -> Iterator["Clients"]:
    """The clients of an SQLite file, as its server sees them."""
    with _opened(_beside(database, ".clients")) as file:
        yield Clients(file)


class Clients:
    """The programs that count as clients."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    async def gone(self, unused_s: float) -> None:
        """Return when there has been no client for so long. No new one comes until the process
        has ended: it waits, and then starts another server.
        """
        last = time.monotonic()
        while True:
            await asyncio.sleep(min(unused_s / 4, POLL_S))
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                last = time.monotonic()
                continue
            came = time.time() - os.fstat(self._file.fileno()).st_mtime
            if min(time.monotonic() - last, came) >= unused_s:
                return
            fcntl.flock(self._file, fcntl.LOCK_UN)


def _opened(path: Path) -> IO[str]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    return os.fdopen(descriptor, "w+", encoding="utf-8")


def _unlinked(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW)


def _ours(file: IO[str]) -> bool:
    """Whether the user who runs this has made a file, and nobody else can write it."""
    found = os.fstat(file.fileno())
    return found.st_uid == os.geteuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _beside(path: Path, ending: str) -> Path:
    path = path.resolve()
    return path.with_name(path.name + ending)
