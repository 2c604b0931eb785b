"""Purge a source: the memories made of one bad agent, session or text are deleted, and those that
they replaced are active again.

The words stay, hidden for good, so that they can be inspected. A memory that rests on other
words too is made of these anew.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from recall_server.domain.context import Context
from recall_server.domain.errors import Invalid
from recall_server.domain.memory import Memory, Status
from recall_server.domain.plan import PERSON
from recall_server.domain.security.trust import corroborations
from recall_server.domain.task import Task, TaskState
from recall_server.domain.text.cleaning import storable
from recall_server.services.erasure.restore_turns import cited_only_by, restore_turns, show_turns
from recall_server.services.memory import indexing
from recall_server.services.memory.embedding import EMBED
from recall_server.services.tasks.requeue import mentions, requeue
from recall_server.services.tasks.transitions import TaskTransitions
from recall_server.storage.store import Store, Transaction
from recall_server.storage.tables.erasure import OPERATOR

REASON = "source: purged by an operator"


@dataclass(frozen=True)
class BadSource:
    """A source by its parts; all that are given must match. Raises `Invalid` where none is."""

    agent_id: str = ""
    session_id: str = ""
    episode_id: str = ""

    def __post_init__(self) -> None:
        if not any(vars(self).values()):
            raise Invalid("Name the source: an agent, a session or an episode.")
        for name in vars(self).values():
            storable(name)

    def handed_in(self, request: Mapping[str, Any], work: Mapping[str, Any]) -> bool:
        """Whether a task brought a text of this source."""
        source = request.get("source") or {}
        return all(
            not wanted or wanted == known
            for wanted, known in (
                (self.agent_id, source.get("agent_id")),
                (self.session_id, source.get("session_id")),
                (self.episode_id, work.get("episode_id")),
            )
        )


@dataclass
class Purged:
    """The things that came of a source, by their fate: memories that are removed, those that keep
    other citations, those that are active again, turns of others that are read again, tasks that
    are removed, and those of others that are asked again.
    """

    episodes: list[str] = field(default_factory=list)
    removed: dict[str, Memory] = field(default_factory=dict)
    kept: dict[str, Memory] = field(default_factory=dict)
    restored: dict[str, Memory] = field(default_factory=dict)
    relinked: dict[str, str] = field(default_factory=dict)
    again: dict[str, tuple[str, int]] = field(default_factory=dict)
    runs: list[str] = field(default_factory=list)
    asked_again: list[str] = field(default_factory=list)

    def counts(self) -> dict[str, int]:
        return {
            "episodes": len(self.episodes),
            "removed": len(self.removed),
            "kept": len(self.kept),
            "restored": len(self.restored),
            "read_again": len(self.again),
            "tasks": len(self.runs),
            "asked_again": len(self.asked_again),
        }


@dataclass(frozen=True)
class Sources:
    """Taking back what a source brought."""

    store: Store
    runs: TaskTransitions
    now: Callable[[], datetime]
    new_id: Callable[[str], str]
    wake: Callable[[], None]

    async def purge(
        self,
        context: Context,
        source: BadSource,
        *,
        dry_run: bool,
    ) -> Purged:
        """Take back all that rests on a source; with `dry_run`, only say what that would be. An
        unknown source is no error. One transaction; reading again is left to the worker.
        """
        asking: list[Task] = []
        async with self.store.transaction(
            context.namespace, entry=context.entry, erasing=True
        ) as tx:
            await tx.lock()
            found = await _derived(tx, source)
            context.entry.counts |= found.counts()
            if not dry_run:
                context.entry.ids += [*found.episodes, *found.removed]
                asking = await self._take_back(tx, found, context.entry.accessor or OPERATOR)
        if not dry_run:
            self.store.forget(context.namespace)
            for run in asking:
                self.runs.notify(context.namespace, run)
            self.wake()
        return found

    async def _take_back(self, tx: Transaction, found: Purged, by: str) -> list[Task]:
        now = self.now()
        turns = await tx.sources.turns(found.episodes)
        gone = {one.id for one in found.removed.values() if one.status is Status.ACTIVE}
        # As long as the words are there: by them an item is taken out of the index.
        await indexing.hide(tx, gone | {turn["id"] for turn in turns if turn["state"] == "open"})
        await tx.sources.reject(turns, REASON, by, now)
        await tx.sources.forget_citations(list(found.kept), found.episodes)
        left = await tx.memories.witnesses(list(found.kept))
        await tx.sources.recount({i: corroborations(left[i]) for i in found.kept})
        await tx.sources.relink(found.relinked)
        await tx.sources.believe(list(found.restored))
        await tx.erasures.remove_memories(found.removed)
        await tx.erasures.remove_tasks(found.runs)
        await show_turns(tx, found.again)
        await indexing.show_again(tx, found.restored)
        # A job that works on the source at this moment has read what is taken back.
        await tx.erasures.fence(now)
        await tx.erasures.next_epoch()
        await restore_turns(tx, found.again, self.new_id, now)
        for episode_id in sorted({one.citation.episode_id for one in found.restored.values()}):
            await tx.jobs.add(self.new_id("job"), EMBED, {"episode_id": episode_id}, now)
        return await requeue(tx, self.runs, found.asked_again, found.removed.keys(), now)


async def _derived(tx: Transaction, source: BadSource) -> Purged:
    found = Purged(await tx.sources.episodes(**vars(source)))
    bad = set(found.episodes)
    if bad:
        cited = await tx.erasures.citations_in(bad)
        touched = await tx.memories.get(sorted({row["memory_id"] for row in cited}))
        for memory in touched.values():
            goes = memory.citation.episode_id in bad or _merged(memory)
            (found.removed if goes else found.kept)[memory.id] = memory
        await _trace(tx, found)
        found.again = {**await cited_only_by(tx, set(found.removed), bad)}
    async for task in tx.erasure_scan.tasks():
        run, kept = task.id, task.documents
        request, work, status = kept[:3]
        ended, shows = TaskState(status["state"]).final, mentions(kept, found.removed.keys())
        if source.handed_in(request, work) or (ended and shows):
            found.runs.append(run)
        elif shows:
            found.asked_again.append(run)
    return found


def _merged(memory: Memory) -> bool:
    """Whether its text was made of others, by a merger or by the answer of a person."""
    return memory.extractor == PERSON or "merge" in memory.extractor.split("/")


async def _trace(tx: Transaction, found: Purged) -> None:
    """Trace what gave way to a deleted memory: it is active again, or gives way to the next one."""
    given_way = await tx.memories.get(await tx.sources.given_way(list(found.removed)))
    for memory in given_way.values():
        if memory.id in found.removed:
            continue
        by = memory.superseded_by
        while by in found.removed:
            by = found.removed[by].superseded_by
        if by is None:
            found.restored[memory.id] = memory
        else:
            found.relinked[memory.id] = by
