"""The files of the local server: its database, the tokens of local databases, and those that say
where the server of an SQLite file listens, and whether clients use it. File locks show both, so
they end with their processes, however these end.
"""

import asyncio
import errno
import fcntl
import hashlib
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from platformdirs import user_config_path, user_data_path

from recall_server.domain.errors import DatabaseUnusable

NAME = "recall-server"


def database() -> Path:
    """Return the path of the local server's database, in the user's data folder."""
    return user_data_path(NAME, appauthor=False) / "recall.db"


def token_file(path: Path) -> Path:
    """Return the file with the token of a local database, in the user's configuration folder."""
    named = "" if path == database() else f"-{hashlib.sha256(bytes(path)).hexdigest()[:12]}"
    return user_config_path(NAME, appauthor=False) / f"token{named}"


def private(folder: Path) -> Path:
    """Return the folder, created for its owner alone if missing. Raises `DatabaseUnusable`."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise DatabaseUnusable(
            f"The folder {folder} cannot be made ({error.strerror}: {error.filename}). Check the "
            "owner and mode of what is above it, or name a database in another one with --db."
        ) from None
    return folder


def write_private(path: Path, text: str) -> None:
    """Write a file that its owner alone can read, completely or not at all."""
    private(path.parent)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        part.replace(path)
    finally:
        with suppress(FileNotFoundError):
            part.unlink()


POLL_S = 15.0


@contextmanager
def published(database: Path | str, address: str) -> Iterator[None]:
    """Write the address of the server to a file beside its SQLite file for the duration of the
    block.

    The file is locked before it gets its name. So a file without a lock was left by a killed
    server, and its port may belong to another program now.
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
    """Return the address of the server of an SQLite file; None if none runs. A link, and a file
    that another user has made or can write, is ignored: it could make us send the token elsewhere.
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
    """Count as a client of the server of an SQLite file for the duration of the block. Waits until
    a server that is stopping has ended.
    """
    with _opened(_beside(database, ".clients")) as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        os.utime(file.fileno())
        yield


def touch(database: Path) -> None:
    """Count as a client that has just come and gone."""
    _beside(database, ".clients").touch(0o600)


@contextmanager
def clients_of(database: Path) -> Iterator["Clients"]:
    """Yield the clients of an SQLite file, for its server."""
    with _opened(_beside(database, ".clients")) as file:
        yield Clients(file)


class Clients:
    """The clients of a server: programs with a shared lock on its file of clients."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    async def gone(self, unused_s: float) -> None:
        """Return when there has been no client for `unused_s`. The lock is kept then: a new client
        waits until this process has ended, and then starts another server.
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
    """Return whether a file belongs to the current user and nobody else can write it."""
    found = os.fstat(file.fileno())
    return found.st_uid == os.geteuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _beside(path: Path, ending: str) -> Path:
    path = path.resolve()
    return path.with_name(path.name + ending)
