"""The local server: its database, the tokens of local databases, and the files that say where the
server of an SQLite file listens, and whether clients use it. File locks show both, so they end with
their processes, however these end. It is started if none runs, and its token is made on first use.
"""

import asyncio
import errno
import fcntl
import hashlib
import json
import os
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from filelock import FileLock, Timeout
from platformdirs import user_config_path, user_data_path

from recall_server.domain.errors import DatabaseUnusable, ServerUnreachable

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
        with open(_beside(database, ".address"), encoding="utf-8", opener=private_file) as file:
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


def _ours(file: IO[str]) -> bool:
    """Return whether a file belongs to the current user and nobody else can write it."""
    found = os.fstat(file.fileno())
    return found.st_uid == os.geteuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _beside(path: Path, ending: str) -> Path:
    path = path.resolve()
    return path.with_name(path.name + ending)


NAMESPACE = "local"
START_S = 60.0
ASKED_EVERY_S = 0.02
LOG_BYTES_MAX = 1_048_576


@dataclass(frozen=True)
class Local:
    """The server of an SQLite file, which all clients of one user share."""

    database: Path

    def token(self) -> str:
        """Return its token. Raises `ServerUnreachable` if there is none yet, or others can read the
        file.
        """
        path = token_file(self.database)
        token = read_token(path)
        if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise ServerUnreachable(
                f"Others can read the token file {path}. Make it yours alone (chmod 600), or "
                "remove it, and another token is made."
            )
        return token

    def begin(self) -> None:
        """Start the server in the background, without waiting for it."""
        _detached([*_PYTHON, "-c", _START, str(self.database)], self.database.parent)

    def address(self) -> str:
        """Return the address of the server, which is started if none runs. Raises
        `ServerUnreachable`.
        """
        with self._locked_start():
            self._make_token()
            return address_of(self.database) or self._start()

    def create(self) -> None:
        """Create the database, and its token, if there is none. Raises `ServerUnreachable`."""
        private(self.database.parent)
        with self._locked_start():
            self._make_token()

    @contextmanager
    def _locked_start(self) -> Iterator[None]:
        """Hold the lock under which a server of this file is started."""
        lock = FileLock(self.database.with_name(f"{self.database.name}.starting"), mode=0o600)
        try:
            with lock.acquire(timeout=START_S):
                yield
        except OSError as error:
            raise ServerUnreachable(
                f"The local server cannot be started: {error.filename} ({error.strerror})."
            ) from None
        except Timeout:
            raise ServerUnreachable(
                f"Another program has been starting the server of {self.database} for "
                f"{START_S:.0f} s. Its log is {self._log}."
            ) from None

    def _start(self) -> str:
        if self._log.exists() and self._log.stat().st_size > LOG_BYTES_MAX:
            self._log.unlink()
        with open(self._log, "a", encoding="utf-8", opener=private_file) as log:
            began = log.tell()
            command = [*PROGRAM, "serve", "--until-unused", "--db", str(self.database)]
            server = _detached(command, self._folder, log)
        until = time.monotonic() + START_S
        while time.monotonic() < until:
            ended = server.poll() is not None
            if address := address_of(self.database):
                return address
            if ended and not self._locked():
                raise ServerUnreachable(
                    f"The local server did not start: {self._error_since(began)}"
                )
            time.sleep(ASKED_EVERY_S)
        server.kill()
        raise ServerUnreachable(
            f"The local server did not start within {START_S:.0f} s. Its log is {self._log}."
        )

    def _locked(self) -> bool:
        """Return whether another server has locked the file. It may not listen yet, if the client
        that started it has ended since.
        """
        lock = FileLock(self.database.with_name(f"{self.database.name}.lock"), mode=0o600)
        try:
            with lock.acquire(timeout=0):
                Path(lock.lock_file).unlink(missing_ok=True)
        except Timeout:
            return True
        return False

    @property
    def _folder(self) -> Path:
        """The user's folder, in which the programs run: they read `.env` there. That beside the
        database may be of others.
        """
        return private(token_file(self.database).parent)

    def _make_token(self) -> None:
        """Make the token, unless there is one for this database: a new database needs a new one."""
        path = token_file(self.database)
        if path.exists() and self.database.exists():
            return
        made = subprocess.run(  # noqa: S603  # this very program
            [*PROGRAM, *_NEW_TOKEN, "--db", str(self.database)],
            capture_output=True,
            text=True,
            check=False,
            cwd=self._folder,
        )
        if made.returncode:
            raise ServerUnreachable(f"No token could be made: {_last(made.stderr)}")
        write_private(path, json.loads(made.stdout)["token"])

    def _error_since(self, began: int) -> str:
        with self._log.open("rb") as log:
            log.seek(began)
            return _last(log.read().decode(errors="replace"))

    @property
    def _log(self) -> Path:
        return self.database.with_name("server.log")


def _detached(
    command: Sequence[str], folder: Path, output: IO[str] | int = subprocess.DEVNULL
) -> subprocess.Popen[bytes]:
    """Start this very program. It outlives the client that started it, and ignores its Ctrl-C."""
    return subprocess.Popen(  # noqa: S603
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        cwd=folder,
        start_new_session=True,
    )


def _last(said: str) -> str:
    """Return the last line of a command's output, which is its error."""
    lines = said.strip().splitlines()
    return lines[-1].removeprefix("recall: ") if lines else "it does not say why."


def private_file(path: str, flags: int) -> int:
    """Open a file, not through a link; a new one is its owner's alone."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


# -P: modules in the current folder are not imported. An agent starts its programs in the folder of
# a project, and a database may lie in one, whose files others have written.
_PYTHON = (sys.executable, "-P")
PROGRAM = (*_PYTHON, "-m", "recall_server")
_START = (
    "import pathlib, sys; from recall_server.local import Local;"
    "Local(pathlib.Path(sys.argv[1])).address()"
)
_NEW_TOKEN = ("create-token", NAMESPACE, "--never", "--label", "stdio", "--json", "--create")


def read_token(path: Path) -> str:
    """Return the token in a file. Raises `ServerUnreachable`."""
    try:
        token = path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ServerUnreachable(
            f"The token file {path} cannot be read ({error.strerror}). Check its path, owner and "
            "mode."
        ) from None
    except UnicodeDecodeError:
        raise ServerUnreachable(
            f"The token file {path} holds no token: it is not UTF-8. Name another one."
        ) from None
    if not token.isascii() or not token.isprintable() or " " in token or not token:
        raise ServerUnreachable(
            f"The token file {path} holds no token, or more than one. Write the token alone there."
        )
    return token
