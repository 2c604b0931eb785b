"""Commits of several transactions that reach the disk together: each ends without waiting for the
disk, and is acknowledged when a sync has ended that began after it.
"""

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

Sync = Callable[[int], None]
"""Of an open file; raises `OSError`."""

# fsync also waits for the times of a file whose length has not changed.
sync_file: Sync = os.fdatasync if hasattr(os, "fdatasync") else os.fsync


class GroupSync:
    """Syncs the journal (WAL) of a database file; all that wait meanwhile share the next sync."""

    def __init__(self, database: Path, sync: Sync = sync_file) -> None:
        self._journal = database.with_name(database.name + "-wal")
        self._sync = sync
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sqlite-sync")
        self._file: int | None = None
        self._asked = 0
        self._synced = 0
        self._syncing: asyncio.Task[None] | None = None
        self._failure: OSError | None = None

    async def wait(self) -> None:
        """Return when all that was committed before is on the disk. Raises `OSError` for good once
        a sync has failed: nobody knows what of it the disk has.
        """
        self._asked += 1
        mine = self._asked
        while self._synced < mine:
            if self._failure is not None:
                raise self._failure
            if self._syncing is None:
                self._syncing = asyncio.create_task(self._run())
            await asyncio.shield(self._syncing)

    async def close(self) -> None:
        if self._syncing is not None:
            await asyncio.wait({self._syncing})
        self._thread.shutdown()
        if self._file is not None:
            os.close(self._file)

    async def _run(self) -> None:
        asked = self._asked
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._sync_journal)
            self._synced = asked
        except OSError as error:
            self._failure = error
        finally:
            self._syncing = None

    def _sync_journal(self) -> None:
        if self._file is None:
            self._file = os.open(self._journal, os.O_RDONLY)
        self._sync(self._file)
