"""The power fails at the moment when something is reported as done. Only what was flushed by then
is left, and it is enough.

SQLite alone: Postgres answers for its own disk, and `recall doctor` names the settings with which
it does not; test_postgres.py shows that the server waits for it. Needs `strace`, whose log has all
writes and flushes: `make faults`.
"""

import asyncio
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.kill_points import prepared, victim
from tests.support.victim import WORKS, opened

CALLS = "openat,pwrite64,write,ftruncate,fdatasync,fsync,rename,link,unlink"
# Those that can be repeated find what is reported as done.
CUT = ("store", "extract", "consolidate", "answer", "erase", "import", "restore", "revoke")
_LINE = re.compile(r"(\d+) +(.*)")
_CALL = re.compile(r"(\w+)\((.*)\) += (-?\d+)")
_BEGUN, _RESUMED = " <unfinished ...>", re.compile(r"<\.\.\. \w+ resumed>")
_HEX = re.compile(r"((?:\\x[0-9a-f]{2})*)")
_TEXT = re.compile(rf'"{_HEX.pattern}"')
_PLACE = re.compile(rf"(\d+)<{_HEX.pattern}>")


def _bytes(spelled: str) -> bytes:
    return bytes.fromhex(spelled.replace("\\x", ""))


@dataclass
class Disk:
    """The files of one folder: as programs see them, and as they are after the power has failed.

    Nothing that was not flushed is kept, neither contents nor names. A real disk may keep more.
    """

    folder: Path
    now: dict[Path, bytearray] = field(default_factory=dict)
    flushed: dict[Path, bytes] = field(default_factory=dict)
    named: set[Path] = field(default_factory=set)

    def __post_init__(self) -> None:
        for path in self.folder.iterdir():
            self.now[path] = bytearray(path.read_bytes())
            self.flushed[path] = path.read_bytes()
            self.named.add(path)

    def left(self) -> dict[str, bytes]:
        """Return what a power failure leaves. The index of the journal is built again at each
        start.
        """
        return {
            path.name: self.flushed[path] for path in self.named if not path.name.endswith("-shm")
        }

    def take(self, name: str, arguments: str, result: int) -> None:
        """Apply one successful call."""
        place, texts = _PLACE.search(arguments), _TEXT.findall(arguments)
        path = Path(_bytes(place[2]).decode()) if place else Path()
        if name in ("openat", "rename", "link", "unlink"):
            self._rename(name, [self._at(text) for text in texts], arguments)
        elif name in ("fdatasync", "fsync") and path == self.folder:
            self.named = set(self.now)
        elif path.parent != self.folder or path not in self.now:
            return
        elif name in ("fdatasync", "fsync"):
            self.flushed[path] = bytes(self.now[path])
        elif name == "ftruncate":
            length = int(arguments.rsplit(", ", 1)[1])
            self.now[path] = self.now[path][:length].ljust(length, b"\0")
        else:
            content = _bytes(texts[0])[:result]
            at = int(arguments.rsplit(", ", 1)[1]) if name == "pwrite64" else len(self.now[path])
            self.now[path] = self.now[path].ljust(at, b"\0")
            self.now[path][at : at + len(content)] = content

    def _at(self, spelled: str) -> Path:
        return self.folder / _bytes(spelled).decode()

    def _rename(self, name: str, paths: list[Path], arguments: str) -> None:
        if paths[-1].parent != self.folder:
            return
        if name == "openat":
            if "O_CREAT" in arguments and paths[0] not in self.now:
                self.now[paths[0]], self.flushed[paths[0]] = bytearray(), b""
            if "O_TRUNC" in arguments:
                self.now[paths[0]] = bytearray()
            return
        if name in ("rename", "link"):
            self.now[paths[1]], self.flushed[paths[1]] = self.now[paths[0]], self.flushed[paths[0]]
        if name in ("rename", "unlink"):
            del self.now[paths[0]]


def calls(trace: Path) -> Iterator[tuple[str, str, int]]:
    """Yield name, arguments and result of each call when it ends. Failed calls do nothing."""
    begun: dict[str, str] = {}
    for line in trace.read_text("ascii").splitlines():
        match = _LINE.fullmatch(line)
        assert match is not None, line
        thread, said = match[1], match[2]
        if said.endswith(_BEGUN):
            begun[thread] = said.removesuffix(_BEGUN)
            continue
        said = _RESUMED.sub(lambda _, own=thread: begun.pop(own), said)
        call = _CALL.match(said)
        if call is not None and int(call[3]) >= 0:
            yield call[1], call[2], int(call[3])


@dataclass(frozen=True)
class Failure:
    """What was reported as done, what is left, and what would be left without any flush."""

    told: tuple[str, ...]
    left: dict[str, bytes]
    less: dict[str, bytes]


def failures(disk: Disk, trace: Path) -> Iterator[Failure]:
    """Yield one for each report of the victim."""
    said, before = b"", disk.left()
    for name, arguments, result in calls(trace):
        if name == "write" and arguments.startswith("1<"):
            said += _bytes(_TEXT.findall(arguments)[0])
            if said.endswith(b"\n"):
                yield Failure(tuple(said.decode().split()), disk.left(), before)
            continue
        disk.take(name, arguments, result)


def _put(left: dict[str, bytes], folder: Path) -> None:
    folder.mkdir()
    for name, content in left.items():
        (folder / name).write_bytes(content)
        (folder / name).chmod(0o600)


async def lost(work: str, told: tuple[str, ...], left: dict[str, bytes], folder: Path) -> list[str]:
    """Return what was reported as done and is not there."""
    _put(left, folder)
    async with opened(folder / "before.db") as built:
        assert await WORKS[work].whole(built)
        return [one for one in told if not await WORKS[work].holds(built, one)]


@pytest.mark.parametrize("work", CUT)
def test_what_is_said_to_be_done_when_the_power_fails_is_on_the_disk(
    work: str, tmp_path: Path
) -> None:
    async def tried() -> tuple[int, int]:
        with copies.one() as database:
            assert isinstance(database, Path)
            disk, trace = Disk(database.parent), tmp_path / "trace"
            strace = ("-y", "-xx", "-s", "33554432", "-e", f"trace={CALLS}")
            said = await victim(work, database, trace, *strace)
        points = missed = 0
        for failure in failures(disk, trace):
            gone = await lost(work, failure.told, failure.left, tmp_path / f"left-{points}")
            assert not gone, f"said to be done, and not on the disk: {gone}"
            missed += bool(
                await lost(work, failure.told, failure.less, tmp_path / f"less-{points}")
            )
            points += 1
        assert points == len(said), "not everything that was said is in the log"
        return points, missed

    with prepared("sqlite", work, tmp_path, None) as copies:
        points, missed = asyncio.run(tried())
    print(f"{work}: the power failed at {points} points; without a flush {missed} lose")
    assert missed == points, "nothing had to be flushed: this would not notice a loss"
