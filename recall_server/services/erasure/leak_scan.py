"""Scans the files of the database, and others, for words that should be gone."""

import asyncio
import base64
import hashlib
import json
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO, Self

import numpy as np
from numpy.typing import NDArray

from recall_server.domain.errors import Invalid
from recall_server.domain.text.cleaning import storable
from recall_server.storage.store import Store

WINDOW = 8


@dataclass(frozen=True)
class Trace:
    """A match: the index of the word (from 0), its form, the byte at which it begins, and the file
    or table.
    """

    word: int
    form: str
    at: int
    where: str = ""


class LeakPatterns:
    """Byte strings of `WINDOW` bytes or more, each with the number of its word and its form. Bytes
    are compared without regard to the case of ASCII letters.
    """

    @classmethod
    def compile(cls, words: Sequence[str]) -> Self:
        """Build all forms of these words. Raises `Invalid` on a word that is too short."""
        forms: dict[bytes, tuple[int, str]] = {}
        for number, word in enumerate(words):
            storable(word)
            if len(word.encode()) < WINDOW:
                raise Invalid(f"A canary needs {WINDOW} bytes at least, or everything holds it.")
            for form, pattern in _forms(word):
                forms.setdefault(pattern.lower(), (number, form))
        return cls(forms)

    def __init__(self, forms: Mapping[bytes, tuple[int, str]]) -> None:
        self._forms = {pattern.lower(): origin for pattern, origin in forms.items()}
        self._beginning: dict[bytes, list[bytes]] = {}
        # True if a pair of bytes occurs at this position of any pattern: one lookup per byte,
        # however many patterns there are.
        self._pairs = np.zeros((WINDOW // 2, 1 << 16), dtype=np.bool_)
        for pattern in self._forms:
            self._beginning.setdefault(pattern[:WINDOW], []).append(pattern)
            self._pairs[np.arange(WINDOW // 2), _pairs_of(pattern[:WINDOW])[::2]] = True

    @property
    def overlap(self) -> int:
        """How many bytes of one block must be searched again with the next."""
        return max(map(len, self._forms)) - 1

    def find(self, block: bytes) -> list[Trace]:
        """Return the first match of each form in a block."""
        lowered = block.lower()
        if len(lowered) < WINDOW:
            return []
        pairs = _pairs_of(lowered)
        places = np.flatnonzero(self._pairs[0][pairs[: 2 - WINDOW]])
        for number in range(1, WINDOW // 2):
            places = places[self._pairs[number][pairs[places + 2 * number]]]
        found: dict[bytes, int] = {}
        for at in places.tolist():
            for pattern in self._beginning.get(lowered[at : at + WINDOW], ()):
                if pattern not in found and lowered.startswith(pattern, at):
                    found[pattern] = at
        return [Trace(*self._forms[pattern], at) for pattern, at in found.items()]


def _pairs_of(text: bytes) -> NDArray[np.uint16]:
    """Return each byte with the next one, as a number."""
    each = np.frombuffer(text, dtype=np.uint8).astype(np.uint16)
    pairs: NDArray[np.uint16] = np.bitwise_or(np.left_shift(each[:-1], np.uint16(8)), each[1:])
    return pairs


def _forms(word: str) -> Iterator[tuple[str, bytes]]:
    for spelled in {word, word.lower(), word.upper(), word.casefold()}:
        plain = spelled.encode()
        for start in range(len(plain) - WINDOW + 1):
            yield "fragment", plain[start : start + WINDOW]
        for encoding in ("utf-16-le", "utf-16-be"):
            wide = spelled.encode(encoding)
            for start in range(0, len(wide) - 2 * WINDOW + 1, 2):
                yield encoding, wide[start : start + 2 * WINDOW]
        yield "reversed", spelled[::-1].encode()
        yield "hex", plain.hex().encode()
        yield "url", "".join(f"%{byte:02x}" for byte in plain).encode()
        units = spelled.encode("utf-16-be").hex()
        yield "json", "".join(f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4)).encode()
        if not spelled.isascii():
            yield "json", json.dumps(spelled)[1:-1].encode()
        for offset in range(3):
            yield "base64", _inner_base64(plain, offset)
        yield "sha256", hashlib.sha256(plain).digest()
        yield "sha256", hashlib.sha256(plain).hexdigest().encode()


def _inner_base64(plain: bytes, offset: int) -> bytes:
    """Return the part of the base64 text that does not depend on its neighbours, `offset` bytes
    after a multiple of 3: the characters whose six bits all belong to `plain`.
    """
    encoded = base64.b64encode(b"\x00" * offset + plain)
    return encoded[-(-offset * 8 // 6) : (offset + len(plain)) * 8 // 6]


PROCESSES = Path("/proc")
DELETED = " (deleted)"


def held_open(files: Sequence[Path], unreadable: list[str]) -> Iterator[tuple[Path, str]]:
    """Yield the deleted files that a process still holds open: the path where each can be read, and
    its name. The processes are this one, and those with any of `files` (or a file in one of these
    folders) open. A database server of such a folder whose open files this process may not list is
    added to `unreadable`.
    """
    ours = {os.getpid(), *_postmasters(files)}
    for process in sorted(PROCESSES.glob("[0-9]*")):
        try:
            open_ = {fd: _target(fd) for fd in sorted((process / "fd").iterdir())}
        except PermissionError:
            if int(process.name) in ours:
                unreadable.append(f"{process}/fd (Permission denied)")
            continue
        except OSError:
            continue  # it has ended
        if int(process.name) in ours or any(_is_one_of(files, target) for target in open_.values()):
            for fd, target in open_.items():
                if target.endswith(DELETED) and _regular(fd):
                    yield fd, f"{fd} ({target.removesuffix(DELETED)}, deleted)"


def _target(fd: Path) -> str:
    try:
        return str(fd.readlink())
    except FileNotFoundError:
        return ""  # it was closed meanwhile


def _is_one_of(files: Sequence[Path], target: str) -> bool:
    opened = Path(target.removesuffix(DELETED))
    return any(opened == file or file in opened.parents for file in files)


def _postmasters(files: Sequence[Path]) -> Iterator[int]:
    """Yield the process ids of the Postgres servers of these folders."""
    for file in files:
        try:
            yield int((file / "postmaster.pid").read_text("ascii").splitlines()[0])
        except (OSError, ValueError, IndexError):
            continue


def _regular(fd: Path) -> bool:
    try:
        return stat.S_ISREG(fd.stat().st_mode)
    except OSError:
        return False


BLOCK_BYTES = 4 * 1024 * 1024


@dataclass
class Scan:
    """Counts of what was read, what could not be read, and what was found."""

    files: int = 0
    rows: int = 0
    bytes: int = 0
    unreadable: list[str] = field(default_factory=list)
    places: list[Trace] = field(default_factory=list)


async def scan(store: Store, words: Sequence[str], paths: Sequence[Path]) -> Scan:
    """Search for any part of `words`. Raises `Invalid` if a word is too short."""
    return await scan_for(store, LeakPatterns.compile(words), paths)


async def scan_for(store: Store, patterns: LeakPatterns, paths: Sequence[Path]) -> Scan:
    """Search the files of the database, deleted files that are still open, and those at `paths`. If
    the database has no files that can be read from here, search its rows.
    """
    files = [file.resolve() for file in await store.driver.files()]
    result = Scan()
    # A running database may remove its own files; a missing file that was named is reported.
    result.unreadable += [f"{path} (not there)" for path in paths if not path.exists()]
    named = ((path, str(path)) for path in _files([*files, *paths]))
    await asyncio.to_thread(_scan_files, named, patterns, result)
    await asyncio.to_thread(_scan_files, held_open(files, result.unreadable), patterns, result)
    if not files:
        async for table, text in store.texts():
            block = text.encode()
            result.rows += 1
            result.bytes += len(block)
            result.places += [replace(one, where=f"table {table}") for one in patterns.find(block)]
    return result


def _scan_files(files: Iterator[tuple[Path, str]], patterns: LeakPatterns, result: Scan) -> None:
    for path, name in files:
        try:
            with path.open("rb") as file:
                _scan_file(file, name, patterns, result)
        except FileNotFoundError:
            continue  # a running database removes files, and closes those that were deleted
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
            at = read - len(tail) + trace.at
            result.places.append(replace(trace, at=at, where=name))
        read += len(block)
        tail = (tail + block)[-patterns.overlap :]
    result.bytes += read
