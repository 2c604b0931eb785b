"""Queries by which an erasure finds its targets: page by page, by task, and by container."""

from collections.abc import AsyncIterator, Collection, Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple

from recall_server.storage.bound_connection import BoundConnection
from recall_server.storage.driver import Row
from recall_server.storage.rows import document

PAGE = 50
Table = Literal["memories", "episodes"]


class TaskDocuments(NamedTuple):
    """A task: its version, and all its documents, of which the first is its request."""

    id: str
    version: int
    documents: list[Any]


class ErasureScan:
    """Only reads: also on a connection of which every query is a transaction of its own."""

    def __init__(self, handle: BoundConnection) -> None:
        self._handle = handle

    async def epoch(self) -> int:
        """Goes up with each erasure in the namespace."""
        rows = await self._handle.fetch("erase_epoch")
        return int(rows[0]["erase_epoch"]) if rows else 0

    async def count(self, table: Table) -> int:
        """How many rows there are."""
        (row,) = await self._handle.fetch(f"count_{table}")
        return int(row["rows"])

    async def ids(self, table: Table) -> list[str]:
        """The ids of all rows."""
        return [row["id"] for row in await self._handle.fetch(f"ids_of_{table}")]

    async def pages(self, table: Table, after: str = "") -> AsyncIterator[Sequence[Row]]:
        """All rows behind an id, in the order of the ids."""
        while page := await self._handle.fetch(f"{table}_to_erase", after=after, limit=PAGE):
            yield page
            after = page[-1]["id"]

    async def rows(self, table: Table, ids: Collection[str]) -> AsyncIterator[Sequence[Row]]:
        """The rows with these ids, page by page."""
        wanted = sorted(ids)
        for first in range(0, len(wanted), PAGE):
            query = f"{table}_to_erase_by_id"
            yield await self._handle.fetch(query, ids=wanted[first : first + PAGE])

    async def task_versions(self) -> dict[str, int]:
        """All tasks, each with how often it has changed."""
        return {row["id"]: int(row["version"]) for row in await self._handle.fetch("run_versions")}

    async def tasks(self) -> AsyncIterator[TaskDocuments]:
        """All tasks."""
        after = ""
        while page := await self._handle.fetch("runs_to_erase", after=after, limit=PAGE):
            for task in await self._with_events(page):
                yield task
            after = page[-1]["id"]

    async def tasks_of(self, ids: Collection[str]) -> AsyncIterator[TaskDocuments]:
        """These tasks."""
        wanted = sorted(ids)
        for first in range(0, len(wanted), PAGE):
            query = "runs_to_erase_by_id"
            page = await self._handle.fetch(query, ids=wanted[first : first + PAGE])
            for task in await self._with_events(page):
                yield task

    async def _with_events(self, page: Sequence[Row]) -> list[TaskDocuments]:
        found = {
            row["id"]: TaskDocuments(
                row["id"],
                int(row["version"]),
                [
                    document(row[key])
                    for key in ("request", "work", "status", "messages", "outcome")
                ],
            )
            for row in page
        }
        for event in await self._handle.fetch("events_of_runs", ids=sorted(found)):
            documents = (document(event["status"]), document(event["outcome"]))
            found[event["run_id"]].documents.extend(documents)
        return list(found.values())

    async def in_container(
        self, table: Table, container: str, *, until: datetime, limit: int
    ) -> list[str]:
        """The ids of what was recorded there until then."""
        query = f"{table}_of_container"
        rows = await self._handle.fetch(query, container=container, until=until, limit=limit)
        return [row["id"] for row in rows]

    async def up_to(self, episode_ids: Collection[str], rows_max: int) -> list[str]:
        """The first of these episodes, one at least, with no more rows of turns and citations."""
        found: list[str] = []
        rows = 0
        for row in await self._handle.fetch("rows_of_episodes", ids=sorted(episode_ids)):
            rows += int(row["rows"]) + 1
            if found and rows > rows_max:
                break
            found.append(row["id"])
        return found

    async def size(self, container: str) -> dict[str, int]:
        """How many rows a container has, by table."""
        (row,) = await self._handle.fetch("rows_of_container", container=container)
        return {table: int(row[table]) for table in ("memories", "episodes", "turns")}
