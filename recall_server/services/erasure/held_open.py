"""Files that have no name any more and are still there: deleted, and held open by a process that
has the database open. Only Linux lists them.
"""

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

PROCESSES = Path("/proc")
DELETED = " (deleted)"


def held_open(files: Sequence[Path], unreadable: list[str]) -> Iterator[tuple[Path, str]]:
    """The deleted files that this process, or one that has any of `files` (or a file in one of
    these folders) open, still holds: where each can be read, and its name. A server of such a
    folder whose files we may not list is `unreadable`.
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
        if int(process.name) in ours or any(_of(files, target) for target in open_.values()):
            for fd, target in open_.items():
                if target.endswith(DELETED) and _regular(fd):
                    yield fd, f"{fd} ({target.removesuffix(DELETED)}, deleted)"


def _target(fd: Path) -> str:
    try:
        return str(fd.readlink())
    except FileNotFoundError:
        return ""  # it was closed meanwhile


def _of(files: Sequence[Path], target: str) -> bool:
    opened = Path(target.removesuffix(DELETED))
    return any(opened == file or file in opened.parents for file in files)


def _postmasters(files: Sequence[Path]) -> Iterator[int]:
    """The servers of the folders of Postgres."""
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
