"""Scan the files of the database, and others, for what should be gone."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from recall_server.domain.security.leak_patterns import LeakPatterns
from recall_server.services.erasure.held_open import held_open
from recall_server.storage.store import Store

BLOCK_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True)
class Place:
    """Something of a canary (they count from 0), in a file or a table: in which form, from which
    byte on.
    """

    where: str
    word: int
    form: str
    at: int


@dataclass
class Scan:
    """Counts of what was read, what could not be read, and what was found."""

    files: int = 0
    rows: int = 0
    bytes: int = 0
    unreadable: list[str] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)


async def scan(store: Store, words: Sequence[str], paths: Sequence[Path]) -> Scan:
    """Search for anything of `words`. Raises `Invalid` on a word too short to tell."""
    return await scan_for(store, LeakPatterns.of(words), paths)


async def scan_for(store: Store, patterns: LeakPatterns, paths: Sequence[Path]) -> Scan:
    """Search the files of the database, also those that were deleted and are held open, those at
    `paths`, and where the database's own cannot be read, its rows.
    """
    files = [file.resolve() for file in await store.driver.files()]
    result = Scan()
    # A running database removes files of its own; a missing one that was named is reported.
    result.unreadable += [f"{path} (not there)" for path in paths if not path.exists()]
    await asyncio.to_thread(_scan_files, [*files, *paths], patterns, result)
    await asyncio.to_thread(_scan_held, files, patterns, result)
    if not files:
        await _scan_rows(store.texts(), patterns, result)
    return result


def _scan_files(paths: Sequence[Path], patterns: LeakPatterns, result: Scan) -> None:
    for path in _files(paths):
        try:
            with path.open("rb") as file:
                _scan_file(file, str(path), patterns, result)
        except FileNotFoundError:
            continue  # a running database removes files
        except OSError as error:
            result.unreadable.append(f"{path} ({error.strerror})")


def _scan_held(files: Sequence[Path], patterns: LeakPatterns, result: Scan) -> None:
    for path, name in held_open(files, result.unreadable):
        try:
            with path.open("rb") as file:
                _scan_file(file, name, patterns, result)
        except FileNotFoundError:
            continue  # let go meanwhile
        except OSError as error:
            result.unreadable.append(f"{name} ({error.strerror})")


def _files(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            yield from (found for found in sorted(path.rglob("*")) if found.is_file())
        else:
            yield path


def _scan_file(file: BinaryIO, name: str, patterns: LeakPatterns, result: Scan) -> None:
    result.files += 1
    tail, read = b"", 0
    while block := file.read(BLOCK_BYTES):
        for trace in patterns.find(tail + block):
            result.places.append(Place(name, trace.word, trace.form, read - len(tail) + trace.at))
        read += len(block)
        tail = (tail + block)[-patterns.overlap :]
    result.bytes += read


async def _scan_rows(
    rows: AsyncIterator[tuple[str, str]], patterns: LeakPatterns, result: Scan
) -> None:
    async for table, text in rows:
        block = text.encode()
        result.rows += 1
        result.bytes += len(block)
        result.places += [
            Place(f"table {table}", trace.word, trace.form, trace.at)
            for trace in patterns.find(block)
        ]
