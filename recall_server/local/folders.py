"""The files of the local server: its database, and the tokens of local databases."""

import hashlib
import os
from contextlib import suppress
from pathlib import Path

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
