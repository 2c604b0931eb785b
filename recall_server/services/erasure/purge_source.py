"""Purges a source: the memories made from one bad agent, session or text go into quarantine, and
those that they replaced are active again.

The words stay, hidden, so that they can be inspected. Words of other texts that such a memory
rests on are extracted again. All of that is one change, which can be undone; only tasks are
deleted.

A purge is done piece by piece, so that no writer waits long. First its texts are hidden, so that no
more memories are made of them. After each piece the memories are as if only those had been purged
that are. A piece no longer finds what is purged, so a purge that was cut off is called again.
"""

import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from graphlib import CycleError, TopologicalSorter
from typing import Any, NamedTuple

from recall_server.domain.audit import OPERATOR, AuditEntry
from recall_server.domain.context import Context, Runtime
from recall_server.domain.episode import Episode, texts_in, turn_id
from recall_server.domain.errors import Invalid, Stale
from recall_server.domain.memory import Memory, Status
from recall_server.domain.memory_event import Histories
from recall_server.domain.plan import PERSON, Question
from recall_server.domain.task import PART_OF, Task, TaskState, Work
from recall_server.domain.task import Status as TaskStatus
from recall_server.domain.text.cleaning import storable
from recall_server.domain.trust import corroborations
from recall_server.services.erasure import refuse_held
from recall_server.services.erasure.redact import cited_only_by, restore_turns
from recall_server.services.memory import commit, indexing
from recall_server.services.memory.indexing import promise_vectors
from recall_server.services.tasks.transitions import (
    Prepared,
    TaskTransitions,
    change_ahead,
    prepared,
)
from recall_server.storage.driver import Row, batches, fitting, span
from recall_server.storage.store import Store, Transaction

# How many rows a transaction changes, for which SQLite's writers wait (see `Sources`), and how many
# tasks, each of which it may have to read.
ROWS_MAX = 250
TASKS_AT_ONCE = 10
# How many rows are read at once.
PAGE = 500
# A turn has about one passage for so many characters.
CHARS_OF_PASSAGE = 200


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
    `again`: turns of other texts that are extracted again.
    `tasks`: tasks that are deleted; `requeued`: other tasks that ask again.
    """

    episodes: list[str] = field(default_factory=list)
    removed: dict[str, Memory] = field(default_factory=dict)
    kept: dict[str, Memory] = field(default_factory=dict)
    restored: dict[str, Memory] = field(default_factory=dict)
    relinked: dict[str, str] = field(default_factory=dict)
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

    def add(self, piece: "Purged") -> None:
        for name, some in vars(self).items():
            if isinstance(some, dict):
                some.update(getattr(piece, name))
            else:
                some.extend(getattr(piece, name))


class _Listed(NamedTuple):
    """The memories that cite the texts of a source.

    `purged`: those that go, or went.
    `left`: those that change, in the order in which they do: a memory before the one that has
    superseded it, or a lie would be believed again.
    """

    citing: frozenset[str]
    purged: frozenset[str]
    left: Sequence[str]


@dataclass(frozen=True)
class _Piece:
    """The changes of one transaction.

    `taken`: how many of the turns that are left it takes; `turns`: those that it hides; `last`: no
    others are left to hide.
    `memories`: how many of the listed ones it takes.
    `counts_then`: by type and topic, how many more memories are active then.
    `dropped`: the citations that kept memories lose. `supported`: how often each is said then.
    `disputed`: True if removed memories are in disputes.
    """

    taken: int
    turns: Sequence[Row]
    last: bool
    memories: int
    purged: Purged
    counts_then: Mapping[tuple[str, str], int]
    dropped: Sequence[Row]
    supported: Mapping[str, int]
    disputed: bool
    index: indexing.Prepared


@dataclass
class _Rest:
    """The turns that a purge still hides, and the memories that it still changes.

    `texts`: all texts of the source. `done`: the changes until now. `changed`: a memory or turn
    that it has changed, if any.
    """

    texts: Collection[str]
    turns: Sequence[Row]
    listed: _Listed
    done: Purged
    changed: str = ""

    def after(self, piece: _Piece) -> None:
        self.turns = self.turns[piece.taken :]
        self.listed = self.listed._replace(left=self.listed.left[piece.memories :])
        changed = (*piece.purged.removed, *piece.purged.kept, *(row["id"] for row in piece.turns))
        self.changed = self.changed or next(iter(changed), "")
        self.done.add(replace(piece.purged, episodes=[]))


@dataclass(frozen=True)
class Sources:
    """Takes back what a source brought. A piece changes `rows_max` turns and memories: a turn with
    all of its passages, a memory with those that it superseded.
    """

    store: Store
    runtime: Runtime
    transitions: TaskTransitions
    rows_max: int = ROWS_MAX

    async def purge(self, context: Context, source: BadSource, *, dry_run: bool) -> Purged:
        """Take back all that rests on a source, piece by piece, each with an audit record; with
        `dry_run`, only report what that would be, without a lock. An unknown source is no error.
        The worker extracts again what is left. Raises `OnHold`, and `Stale` if somebody undoes the
        purge meanwhile: what has been done until then stays, or is undone.
        """
        tables = self.store.autocommit(context.namespace)
        texts = set(await tables.sources.episodes(**vars(source)))
        done = Purged(sorted(texts))
        listed = await _listed(tables, texts)
        if dry_run:
            found, *_ = await _resting(tables, listed.left, texts, listed.citing, sys.maxsize)
            done.add(found)
            done.tasks, done.requeued = await _tasks(tables, source, listed.purged)
            context.entry.counts |= done.counts()
            return done
        # Before its texts, or a task would store more.
        own, _ = await _tasks(tables, source, frozenset())
        await self._change_tasks(context, own, frozenset(), done)
        turns = [
            row
            for some in batches(sorted(texts), PAGE)
            for row in await tables.sources.turns_to_reject(some)
        ]
        rest = _Rest(texts, turns, listed, done)
        while True:
            await self._write_piece(context, rest)
            if not (rest.turns or rest.listed.left):
                # Others may have merged some meanwhile, or were still making some of its words.
                rest.listed = await _listed(tables, texts)
                if not rest.listed.left:
                    break
        ended, asking = await _tasks(tables, source, rest.listed.purged)
        await self._change_tasks(context, ended, frozenset(), done)
        await self._change_tasks(context, asking, rest.listed.purged, done)
        self.store.forget(context.namespace)
        self.runtime.wake()
        return done

    async def _write_piece(self, context: Context, rest: _Rest) -> None:
        context = commit.next_part(context, self.runtime)

        async def write(tx: Transaction, piece: _Piece) -> _Piece:
            # This waits for its turn: what follows is dated then.
            await refuse_held(tx)
            context.entry.counts |= piece.purged.counts()
            context.entry.ids = [*piece.purged.episodes, *piece.purged.removed]
            await self._take_back(tx, piece, context.entry)
            return piece

        plan = partial(self._planned, context.entry.change, rest)
        made = await commit.planned(self.store, context.namespace, plan)
        rest.after(await commit.written(self.store, context, made, plan, write))

    async def _planned(self, change_id: str, rest: _Rest, tx: Transaction) -> _Piece:
        if rest.changed:
            undone = Histories(await tx.events.undone_of([rest.changed])).taken_back
            if change_id in undone:
                raise Stale(f"{undone[change_id]} has taken this purge back. Call it again.")
        turns = fitting(((turn, _rows(turn)) for turn in rest.turns), self.rows_max)
        left = rest.turns[len(turns) :]
        # Others may have rejected some meanwhile.
        of_texts = {str(row["episode_id"]) for row in turns}
        shown = {row["id"] for row in await tx.sources.turns_to_reject(of_texts)}
        # Once all are hidden, no more memories are made of its words.
        most = 0 if left else max(0, self.rows_max - sum(map(_rows, turns)))
        purged, dropped, memories = await _resting(
            tx, rest.listed.left, rest.texts, rest.listed.citing, most
        )
        purged.episodes = sorted(of_texts - {row["episode_id"] for row in left[:1]})
        witnesses = await tx.memories.witnesses(list(purged.kept))
        hidden = await tx.findables.found(purged.removed)
        return _Piece(
            len(turns),
            [row for row in turns if row["id"] in shown],
            bool(turns) and not left,
            memories,
            purged,
            await tx.events.counts_then(purged.removed, ()),
            dropped,
            {
                i: corroborations([one for one in said if one.episode_id not in rest.texts])
                for i, said in witnesses.items()
            },
            bool(await tx.disputes.others(list(purged.removed))),
            await indexing.prepared(tx, hidden, (), of_texts, partial(_rejected, turns)),
        )

    async def _take_back(self, tx: Transaction, piece: _Piece, entry: AuditEntry) -> None:
        now, by, purged = await tx.moment(), entry.made_by or OPERATOR, piece.purged
        await tx.sources.quarantine(purged.removed, RULE, now)
        await tx.events.correct_counts(piece.counts_then, purged.removed)
        await tx.sources.reject(piece.turns, REASON, by, now)
        await piece.index.write(tx)
        await tx.sources.forget_citations(piece.dropped, now)
        await tx.sources.recount(piece.supported)
        await tx.sources.relink(purged.relinked, now)
        await tx.sources.believe(list(purged.restored), now)
        if piece.disputed:
            await commit.settle_ended(tx, now)
        if piece.last:
            # A job that works on the source at this moment has read what is taken back.
            await tx.erasures.fence(now)
            await tx.erasures.next_epoch()
        part_of = {PART_OF: entry.change}
        await restore_turns(tx, purged.again, self.runtime.new_id, now, **part_of)
        texts = (one.citation.episode_id for one in purged.restored.values())
        await promise_vectors(tx, self.runtime, texts)

    async def _change_tasks(
        self, context: Context, task_ids: Sequence[str], purged: frozenset[str], done: Purged
    ) -> None:
        """Delete tasks some at a time; those that have not ended and are about `purged` memories
        ask again instead.
        """
        for some in batches(task_ids, TASKS_AT_ONCE):
            entry = commit.next_part(context, self.runtime).entry
            change = partial(self.store.erasing, context.namespace, entry)
            plan, write = partial(self._requeues, some, purged), partial(self._write_tasks, some)
            found, asking = await change_ahead(
                self.store.autocommit(context.namespace), change, plan, write
            )
            done.add(found)
            for task in asking:
                self.transitions.notify(context.namespace, task)

    async def _write_tasks(
        self, some: Sequence[str], tx: Transaction, requeues: "Sequence[_Requeue]"
    ) -> tuple[Purged, list[Task]]:
        """Delete these tasks, except for those that ask again, which are returned."""
        await refuse_held(tx)
        asking = list[Task]()
        for one in requeues:
            await tx.sources.forget_events(one.change.before.id, one.forgotten)
            asking.append(await self.transitions.write(tx, one.change))
        found = Purged(requeued=[one.id for one in asking])
        found.tasks = [one for one in some if one not in found.requeued]
        await tx.erasures.remove_tasks(found.tasks)
        # A job that works on one of them at this moment has read it.
        await tx.erasures.fence(await tx.moment())
        if tx.entry is not None:
            tx.entry.counts |= found.counts()
        return found, asking

    async def _requeues(
        self, some: Sequence[str], purged: frozenset[str], tx: Transaction
    ) -> "list[_Requeue]":
        tasks = [task for one in some if (task := await tx.tasks.get(one))] if purged else []
        return [await self._requeue(tx, one, purged) for one in tasks if not one.status.state.final]

    async def _requeue(self, tx: Transaction, task: Task, purged: frozenset[str]) -> "_Requeue":
        """Return what removes these memories from the questions, answers and proposals of a
        task.
        """
        events = await tx.tasks.events(task.id, 0)
        asked = [question for one in events if one.status for question in one.status.questions]
        work, messages = task.work, task.messages
        for gone in (purged, frozenset(one.id for one in asked if _about(one, purged))):
            work = _work(work, gone)
            messages = tuple(one for one in messages if gone.isdisjoint(texts_in(one.document)))
        after = replace(task, work=work, messages=messages)
        if task.status.state is TaskState.INPUT_REQUIRED and _asks(task.status, purged):
            status = TaskStatus(TaskState.WORKING, self.runtime.now())
            after = replace(after, round=task.round + 1, status=status, expires_at=None)
        forgotten = [one.seq for one in events if _asks(one.status, purged)]
        return _Requeue(await prepared(task, after), forgotten)


class _Requeue(NamedTuple):
    """A task that asks again, and the numbers of its events that are forgotten."""

    change: Prepared
    forgotten: Sequence[int]


async def _listed(tx: Transaction, texts: Collection[str]) -> _Listed:
    citing, going, gone, kept = set[str](), set[str](), set[str](), list[str]()
    successors = TopologicalSorter[str]()
    for some in batches(sorted(texts), PAGE):
        citing.update(row["memory_id"] for row in await tx.erasures.citations_in(some))
    for some in batches(sorted(citing), PAGE):
        for memory in (await tx.memories.get(some, quoted=False)).values():
            if memory.status is Status.QUARANTINED:
                gone.add(memory.id)
            elif _goes(memory, texts):
                going.add(memory.id)
                successors.add(memory.superseded_by or "", memory.id)
            else:
                kept.append(memory.id)
    # Those of a circle, which an import may bring, have no order.
    with suppress(CycleError):
        successors.prepare()
    ordered = dict[str, None]()
    while ready := successors.get_ready():
        ordered |= dict.fromkeys(one for one in ready if one in going)
        successors.done(*ready)
    ordered |= dict.fromkeys(sorted(going))
    return _Listed(frozenset(citing), frozenset(going | gone), [*ordered, *kept])


async def _resting(
    tx: Transaction, ids: Sequence[str], texts: Collection[str], citing: Collection[str], most: int
) -> tuple[Purged, list[Row], int]:
    """Return what becomes of the first of these memories, with those that they superseded, `most`
    together but at least one; the citations that the kept ones lose; and how many of `ids` these
    are.
    """
    ids = ids[:most]
    given_way = await tx.sources.given_way(ids)
    ids = fitting(((one, 1 + len(given_way.get(one, ()))) for one in ids), most)
    purged, keeps = Purged(), dict[str, Memory]()
    for memory in (await tx.memories.get(ids, quoted=False)).values():
        if memory.status is not Status.QUARANTINED:
            (purged.removed if _goes(memory, texts) else keeps)[memory.id] = memory
    freed = {one for i in purged.removed for one in given_way.get(i, ())} - purged.removed.keys()
    # Of a circle, some that it frees go themselves.
    stay = {
        memory.id: memory
        for memory in (await tx.memories.get(sorted(freed), quoted=False)).values()
        if memory.status is not Status.QUARANTINED
        and not (memory.id in citing and _goes(memory, texts))
    }
    await _trace(tx, purged, stay)
    # At once: others might change them in between, and then neither change could be undone first.
    keeps |= {i: one for i, one in stay.items() if i in citing}
    rows = [row for row in await tx.erasures.citations(keeps) if row["episode_id"] in texts]
    cited = {row["memory_id"] for row in rows}
    purged.kept = {i: one for i, one in keeps.items() if i in cited}
    purged.again = {**await cited_only_by(tx, set(purged.removed), texts)}
    return purged, rows, len(ids)


async def _trace(tx: Transaction, purged: Purged, found: Mapping[str, Memory]) -> None:
    """Find what becomes of the memories that a removed one superseded: they are active again, or
    superseded by the next memory of the chain that is in no quarantine.
    """
    ends = {i: one.superseded_by for i, one in found.items()}
    successors = {i: one.superseded_by for i, one in purged.removed.items()}
    standing: set[str | None] = {None}
    while unknown := set(ends.values()) - standing:
        ids = [one for one in unknown if one and one not in successors]
        others = await tx.memories.get(ids, quoted=False)
        for one in ids:
            if one in others and others[one].status is Status.QUARANTINED:
                successors[one] = others[one].superseded_by
            else:
                standing.add(one)
        ends = {i: _end(successors, by) for i, by in ends.items()}
    for i, by in ends.items():
        if by is not None:
            purged.relinked[i] = by
        elif found[i].status is Status.SUPERSEDED:
            purged.restored[i] = found[i]


def _end(successors: Mapping[str, str | None], memory_id: str | None) -> str | None:
    passed = set[str]()
    while memory_id is not None and memory_id in successors:
        if memory_id in passed:
            return None
        passed.add(memory_id)
        memory_id = successors[memory_id]
    return memory_id


async def _tasks(
    tx: Transaction, source: BadSource, purged: frozenset[str]
) -> tuple[list[str], list[str]]:
    """Return the tasks of a source and ended ones that show what is purged, which are deleted; and
    the others that show it.
    """
    deleted, requeued = list[str](), list[str]()
    async for task in tx.erasure_scan.tasks():
        request, work, status = task.documents[:3]
        shows = not purged.isdisjoint(texts_in(task.documents))
        if source.handed_in(request, work) or (shows and TaskState(status["state"]).final):
            deleted.append(task.id)
        elif shows:
            requeued.append(task.id)
    return deleted, requeued


def _rows(turn: Row) -> int:
    where = span(turn)
    return 1 + (where.end - where.start) // CHARS_OF_PASSAGE


def _rejected(turns: Collection[Row], episode: Episode) -> Episode:
    rejected = {row["id"] for row in turns}
    after = (
        replace(one, hidden=one.hidden or turn_id(episode.id, one.index) in rejected)
        for one in episode.turns
    )
    return replace(episode, turns=tuple(after))


def _goes(memory: Memory, texts: Collection[str]) -> bool:
    """True if a memory that cites these texts rests on them: it was first found there, or its text
    was made from others, by a merger or by a person's answer.
    """
    made_by = memory.extractor
    merged = made_by == PERSON or "merge" in made_by.split("/")
    return memory.citation.episode_id in texts or merged
