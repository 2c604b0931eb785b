"""Copy an SQLite file as of one moment, while others read and write it, and put a copy in place."""

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from recall_server.domain.errors import DatabaseUnusable
from recall_server.storage.sqlite.connection import translated

PAGES_AT_ONCE = 2_048

Progress = Callable[[int], None]
"""Takes how many per cent are done."""


def copy_to(source: Path, target: Path, on_progress: Progress = lambda _: None) -> None:
    """Write a checked copy to `target`, a file readable by its owner alone. It gets its name when
    it is complete and on the disk. Raises `DatabaseUnusable` and `DatabaseUnavailable`.
    """
    part = target.with_name(f"{target.name}.part")
    with translated(target):
        # Remove what a killed copy has left, with the journals beside it.
        for left in (part, *_beside(part), *_beside(target)):
            left.unlink(missing_ok=True)
        os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        with translated(source), closing(sqlite3.connect(source)) as raw:
            # This fixes the moment of the copy, however long it takes.
            raw.execute("BEGIN")
            raw.execute("SELECT 1 FROM sqlite_master").fetchall()
            with closing(sqlite3.connect(part)) as copy:
                raw.backup(
                    copy,
                    pages=PAGES_AT_ONCE,
                    progress=lambda _, left, pages: on_progress(100 * (pages - left) // pages),
                )
                # Make the copy a single file without a journal.
                copy.execute("PRAGMA journal_mode=DELETE")
        check(part)
        with translated(target):
            _sync(part)
            part.replace(target)
            _sync(target.parent)
    finally:
        part.unlink(missing_ok=True)


def check(path: Path) -> None:
    """Raise `DatabaseUnusable` unless the file is an intact SQLite database."""
    with (
        translated(path),
        closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as raw,
    ):
        [(found,)] = raw.execute("PRAGMA quick_check(1)").fetchall()
    if found != "ok":
        raise DatabaseUnusable(
            f"{path} is not an intact SQLite database. Take another backup, and check the disk."
        )


def put_in_place(new: Path, path: Path, old: Path) -> None:
    """Replace the database `path` with the file `new` atomically, and keep the old one as `old`."""
    with translated(path):
        if path.exists():
            _emptied(path)
            old.unlink(missing_ok=True)
            os.link(path, old)
        for journal, kept in zip(_beside(path), _beside(old), strict=True):
            # A journal that could not be emptied belongs to the old file.
            if journal.exists():
                journal.replace(kept)
        new.replace(path)
        _sync(path.parent)


def _beside(path: Path) -> list[Path]:
    return [path.with_name(path.name + ending) for ending in ("-wal", "-shm")]


def _emptied(path: Path) -> None:
    """Copy the journal into the database; skip that if the database is damaged."""
    try:
        with closing(sqlite3.connect(path)) as raw:
            raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    except sqlite3.DatabaseError:
        return


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
