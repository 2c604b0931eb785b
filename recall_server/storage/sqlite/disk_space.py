"""Whether a database file has room: on its disk, and in its journal. Two calls to the system, so
that it can be asked at any time.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from recall_server.domain.findings import Finding, judged

# A journal grows this long only where somebody reads an old state for minutes.
JOURNAL_WARN_BYTES = 268_435_456
# A purge writes the file anew, and an erasure that has no room for its records takes nothing out.
FREE_WARN_BYTES = 536_870_912


def space_findings(path: Path) -> Iterator[Finding]:
    """The checks `disk_space` and `journal` of a database file, which is there."""
    disk = os.statvfs(path)
    free, size = disk.f_bavail * disk.f_frsize, path.stat().st_size
    wanted = FREE_WARN_BYTES + size
    yield judged(
        "disk_space",
        f"{_mb(free)} are free on the disk of {path}",
        warn=f"{_mb(free)} are free on the disk of {path}, of which a purge needs {_mb(size)}. "
        f"When it is full nothing can be kept, nor erased. Have {_mb(wanted)} free."
        if free < wanted
        else None,
    )
    journal = path.with_name(path.name + "-wal")
    length = journal.stat().st_size if journal.exists() else 0
    yield judged(
        "journal",
        f"the journal of {path} has {_mb(length)}",
        warn=f"the journal of {path} has {_mb(length)}: another program reads an old state of the "
        "database, and nothing gets into it. End that program; `fuser` names it."
        if length > JOURNAL_WARN_BYTES
        else None,
    )


def _mb(count: int) -> str:
    return f"{count / 1_048_576:,.0f} MB"
