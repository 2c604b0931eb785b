"""Starts the local server if none runs, and makes its token on first use."""

import json
import os
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from recall_server.domain.errors import ServerUnreachable
from recall_server.local import files

NAMESPACE = "local"
START_S = 60.0
POLL_S = 0.02
LOG_BYTES_MAX = 1_048_576


@dataclass(frozen=True)
class Local:
    """The server of an SQLite file, which all clients of one user share."""

    database: Path

    def token(self) -> str:
        """Return its token. Raises `ServerUnreachable` if there is none yet, or others can read the
        file.
        """
        path = files.token_file(self.database)
        token = read_token(path)
        if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise ServerUnreachable(
                f"Others can read the token file {path}. Make it yours alone (chmod 600), or "
                "remove it, and another token is made."
            )
        return token

    def begin(self) -> None:
        """Start the server in the background, without waiting for it."""
        subprocess.Popen(  # noqa: S603  # this very program
            [*_PYTHON, "-c", _START, str(self.database)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self.database.parent,
            start_new_session=True,
        )

    def address(self) -> str:
        """Return the address of the server, which is started if none runs. Raises
        `ServerUnreachable`.
        """
        with self._locked_start():
            self._make_token()
            return files.address_of(self.database) or self._start()

    def create(self) -> None:
        """Create the database, and its token, if there is none. Raises `ServerUnreachable`."""
        files.private(self.database.parent)
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
            server = subprocess.Popen(  # noqa: S603  # this very program
                [*PROGRAM, "serve", "--until-unused", "--db", str(self.database)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                # The server outlives the client that started it, and ignores its Ctrl-C.
                start_new_session=True,
            )
        until = time.monotonic() + START_S
        while time.monotonic() < until:
            ended = server.poll() is not None
            if address := files.address_of(self.database):
                return address
            if ended and not self._locked():
                raise ServerUnreachable(
                    f"The local server did not start: {self._error_since(began)}"
                )
            time.sleep(POLL_S)
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
        return files.private(files.token_file(self.database).parent)

    def _make_token(self) -> None:
        """Make the token, unless there is one for this database: a new database needs a new one."""
        token_file = files.token_file(self.database)
        if token_file.exists() and self.database.exists():
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
        files.write_private(token_file, json.loads(made.stdout)["token"])

    def _error_since(self, began: int) -> str:
        with self._log.open("rb") as log:
            log.seek(began)
            return _last(log.read().decode(errors="replace"))

    @property
    def _log(self) -> Path:
        return self.database.with_name("server.log")


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
    "import pathlib, sys; from recall_server.local.starting import Local;"
    "Local(pathlib.Path(sys.argv[1])).address()"
)
_NEW_TOKEN = ("create-token", NAMESPACE, "--never", "--label", "stdio", "--json", "--create")


def read_token(path: Path) -> str:
    """Return the token in a file. Raises `ServerUnreachable`."""
    try:
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        raise ServerUnreachable(
            f"The token file {path} cannot be read. Check its path, owner and mode."
        ) from None
    if not token.isascii() or not token.isprintable() or " " in token or not token:
        raise ServerUnreachable(
            f"The token file {path} holds no token, or more than one. Write the token alone there."
        )
    return token
