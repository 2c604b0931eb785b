"""Purges a source: the memories made from one bad agent, session or text go into quarantine, and
those that they replaced are active again.

The words stay, hidden, so that they can be inspected. Words of other texts that such a memory
rests on are extracted again. All of that is one change, which can be undone; only tasks are
deleted.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from recall_server.domain.audit import OPERATOR, AuditEntry
from recall_server.domain.context import Context, Runtime
from recall_server.domain.episode import Episode, texts_in
from recall_server.domain.errors import Invalid
from recall_server.domain.memory import Memory, Status
from recall_server.domain.plan import PERSON, Question
from recall_server.domain.security.trust import corroborations
from recall_server.domain.task import PART_OF, Task, TaskState, Work
from recall_server.domain.task import Status as TaskStatus
from recall_server.domain.text.cleaning import storable
from recall_server.services.erasure import refuse_held
from recall_server.services.erasure.redact import cited_only_by, restore_turns
from recall_server.services.memory import commit, indexing
from recall_server.services.memory.indexing import promise_vectors
from recall_server.services.tasks.transitions import TaskTransitions
from recall_server.storage.store import Store, Transaction


def _work(work: Work, removed: Collection[str]) -> Work:
    """Return the work without answers about the removed memories; a merge starts again."""
    answered = tuple(one for one in work.resolutions if one.question_id not in removed)
    work = replace(work, resolutions=answered)
    if any(one in removed for group in work.groups or () for one in group):
        return replace(work, groups=None, next=0, proposals=())
    return work


def _asks(status: TaskStatus | None, memory_ids: Collection[str]) -> bool:
    return status is not None and any(_about(one, memory_ids) for one in status.questions)


def _about(question: Question, memory_ids: Collection[str]) -> bool:
    return any(one.id in memory_ids for one in (question.new, *question.existing))


REASON = "source: purged by an operator"
RULE = "purge_source"


@dataclass(frozen=True)
class BadSource:
    """A source; all parts that are given must match. Raises `Invalid` if none is given."""

    agent_id: str = ""
    session_id: str = ""
    episode_id: str = ""

    def __post_init__(self) -> None:
        if not any(vars(self).values()):
            raise Invalid("Name the source: an agent, a session or an episode.")
        for name in vars(self).values():
            storable(name)

    def handed_in(self, request: Mapping[str, Any], work: Mapping[str, Any]) -> bool:
        """True if a task brought a text of this source."""
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
    """The things that came from a source, by what happens to them.

    `episodes`: its texts.
    `removed`: memories that go into quarantine.
    `kept`: memories that keep other citations.
    `restored`: memories that are active again; `relinked`: those that another successor replaces.
    `counts_then`: by type and topic, how many more memories are active then.
    `again`: turns of other texts that are extracted again.
    `tasks`: tasks that are deleted; `requeued`: other tasks that ask again.
    """

    episodes: list[str] = field(default_factory=list)
    removed: dict[str, Memory] = field(default_factory=dict)
    kept: dict[str, Memory] = field(default_factory=dict)
    restored: dict[str, Memory] = field(default_factory=dict)
    relinked: dict[str, str] = field(default_factory=dict)
    counts_then: Mapping[tuple[str, str], int] = field(default_factory=dict)
    again: dict[str, tuple[str, int]] = field(default_factory=dict)
    tasks: list[str] = field(default_factory=list)
    requeued: list[str] = field(default_factory=list)

    def counts(self) -> dict[str, int]:
        return {
            "episodes": len(self.episodes),
            "removed": len(self.removed),
            "kept": len(self.kept),
            "restored": len(self.restored),
            "read_again": len(self.again),
            "tasks": len(self.tasks),
            "asked_again": len(self.requeued),
        }


@dataclass(frozen=True)
class Sources:
    """Takes back what a source brought."""

    store: Store
    runtime: Runtime
    transitions: TaskTransitions

    async def purge(self, context: Context, source: BadSource, *, dry_run: bool) -> Purged:
        """Take back all that rests on a source, in one transaction; with `dry_run`, only report
        what that would be, without a lock. An unknown source is no error. The worker extracts again
        what is left. Raises `OnHold`.
        """
        if dry_run:
            async with self.store.transaction(context.namespace, write=False) as tx:
                purged = await _derived(tx, source)
                await _Tasks(source, purged).find(tx)
            context.entry.counts |= purged.counts()
            return purged

        async def plan(tx: Transaction) -> tuple[Purged, indexing.Prepared, _Tasks]:
            purged = await _derived(tx, source)
            tasks = _Tasks(source, purged)
            await tasks.find(tx)
            purged.counts_then = await tx.events.counts_then(purged.removed, ())
            hidden = await tx.findables.found(purged.removed)
            index = await indexing.prepared(tx, hidden, (), purged.episodes, _rejected)
            return purged, index, tasks

        async def write(
            tx: Transaction, made: tuple[Purged, indexing.Prepared, _Tasks]
        ) -> tuple[Purged, list[Task]]:
            purged, index, tasks = made
            # Tasks change without an event of a memory.
            await tasks.find(tx)
            context.entry.counts |= purged.counts()
            await refuse_held(tx)
            context.entry.ids += [*purged.episodes, *purged.removed]
            return purged, await self._take_back(tx, purged, index, context.entry)

        made = await commit.planned(self.store, context.namespace, plan)
        purged, asking = await commit.written(self.store, context, made, plan, write)
        self.store.forget(context.namespace)
        for task in asking:
            self.transitions.notify(context.namespace, task)
        self.runtime.wake()
        return purged

    async def _take_back(
        self, tx: Transaction, purged: Purged, index: indexing.Prepared, entry: AuditEntry
    ) -> list[Task]:
        now, by, change_id = await tx.moment(), entry.made_by or OPERATOR, entry.change
        await tx.sources.quarantine(purged.removed, RULE, now)
        await tx.events.correct_counts(purged.counts_then, purged.removed)
        await tx.sources.reject(purged.episodes, REASON, by, now)
        await index.write(tx)
        await tx.sources.forget_citations(list(purged.kept), purged.episodes, now)
        left = await tx.memories.witnesses(list(purged.kept))
        await tx.sources.recount({i: corroborations(left[i]) for i in purged.kept})
        await tx.sources.relink(purged.relinked, now)
        await tx.sources.believe(list(purged.restored), now)
        await commit.settle_ended(tx, now)
        await tx.erasures.remove_tasks(purged.tasks)
        # A job that works on the source at this moment has read what is taken back.
        await tx.erasures.fence(now)
        await tx.erasures.next_epoch()
        await restore_turns(tx, purged.again, self.runtime.new_id, now, **{PART_OF: change_id})
        texts = (one.citation.episode_id for one in purged.restored.values())
        await promise_vectors(tx, self.runtime, texts)
        tasks = [await tx.tasks.locked(one) for one in purged.requeued]
        return [
            await self._requeue(tx, task, purged.removed.keys(), now)
            for task in tasks
            if task is not None and not task.status.state.final
        ]

    async def _requeue(
        self, tx: Transaction, task: Task, memory_ids: Collection[str], now: datetime
    ) -> Task:
        """Remove these memories from the questions, answers and proposals of a task."""
        events = await tx.tasks.events(task.id, 0)
        asked = [question for one in events if one.status for question in one.status.questions]
        removed = {*memory_ids, *(one.id for one in asked if _about(one, memory_ids))}
        await tx.sources.forget_events(
            task.id, [one.seq for one in events if _asks(one.status, memory_ids)]
        )
        messages = [one for one in task.messages if removed.isdisjoint(texts_in(one.document))]
        after = replace(task, work=_work(task.work, removed), messages=tuple(messages))
        if task.status.state is TaskState.INPUT_REQUIRED and _asks(task.status, memory_ids):
            status = TaskStatus(TaskState.WORKING, now)
            after = replace(after, round=task.round + 1, status=status, expires_at=None)
        return await self.transitions.change(tx, task, after)


async def _derived(tx: Transaction, source: BadSource) -> Purged:
    purged = Purged(await tx.sources.episodes(**vars(source)))
    bad = set(purged.episodes)
    if bad:
        cited = await tx.erasures.citations_in(bad)
        ids = sorted({row["memory_id"] for row in cited})
        touched = await tx.memories.get(ids, quoted=False)
        for memory in touched.values():
            if memory.status is Status.QUARANTINED:
                continue
            goes = memory.citation.episode_id in bad or _merged(memory)
            (purged.removed if goes else purged.kept)[memory.id] = memory
        await _trace(tx, purged)
        purged.again = {**await cited_only_by(tx, set(purged.removed), bad)}
    return purged


@dataclass
class _Tasks:
    """Finds the tasks of a source, and those that show what goes with it. Each is read once, and
    again if it has changed.
    """

    source: BadSource
    purged: Purged
    _read: dict[str, int] = field(default_factory=dict)

    async def find(self, tx: Transaction) -> None:
        versions = await tx.erasure_scan.task_versions()
        as_read = {one for one, version in versions.items() if self._read.get(one) == version}
        tasks = as_read.intersection(self.purged.tasks)
        requeued = as_read.intersection(self.purged.requeued)
        self._read = versions
        async for page in tx.erasure_scan.tasks_of(versions.keys() - as_read):
            for task in page:
                kept = task.documents
                request, work, status = kept[:3]
                ended = TaskState(status["state"]).final
                shows = not self.purged.removed.keys().isdisjoint(texts_in(kept))
                if self.source.handed_in(request, work) or (ended and shows):
                    tasks.add(task.id)
                elif shows:
                    requeued.add(task.id)
        self.purged.tasks, self.purged.requeued = sorted(tasks), sorted(requeued)


def _rejected(episode: Episode) -> Episode:
    return replace(episode, turns=tuple(replace(one, hidden=True) for one in episode.turns))


def _merged(memory: Memory) -> bool:
    """True if its text was made from others, by a merger or by a person's answer."""
    return memory.extractor == PERSON or "merge" in memory.extractor.split("/")


async def _trace(tx: Transaction, purged: Purged) -> None:
    """Find the memories that a removed one superseded: they are active again, or superseded by the
    next memory of the chain.
    """
    ids = await tx.sources.given_way(list(purged.removed))
    given_way = await tx.memories.get(ids, quoted=False)
    for memory in given_way.values():
        if memory.id in purged.removed:
            continue
        by = memory.superseded_by
        while by in purged.removed:
            by = purged.removed[by].superseded_by
        if by is None:
            purged.restored[memory.id] = memory
        else:
            purged.relinked[memory.id] = by
