"""The targets of an erasure of less than a namespace: what was asked for, what rests on the same
words, and the tasks that hold any of it.

To find a subject by name, all of a namespace is read. So `TargetScan.scan` runs twice: first
outside of any transaction, and then in the transaction that erases, where it reads only what was
written since, and again what was found.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from recall_server.domain.containers import NONE
from recall_server.domain.episode import Span
from recall_server.domain.erasure import QUOTE_TERMS_MIN, TURN_TERMS_MIN, Subject, distinctive
from recall_server.domain.permissions import FULL_ACCESS, AccessScope
from recall_server.services.erasure.redact import LABELS, Affected
from recall_server.storage.driver import Row
from recall_server.storage.rows import span
from recall_server.storage.store import Transaction
from recall_server.storage.tables.erasure_scan import Table, TaskDocuments

_WORDS_OF_MEMORY = ("text", "topic", "container", "entity", "attribute", "value")


@dataclass(frozen=True)
class Batch:
    """How much one transaction takes: so many items (texts or memories), and about so many rows of
    what belongs to them.
    """

    items: int
    rows: int


ALL = Batch(2**31 - 1, 2**31 - 1)
NONE_YET = Batch(0, 0)


class Wanted(Protocol):
    """The request: it can be looked up again, at less cost than before."""

    async def size(self, tx: Transaction) -> Mapping[str, int]:
        """How many rows it has by table, where they can be counted without reading them."""
        ...

    async def find(self, tx: Transaction, batch: Batch) -> Affected | None:
        """The first of it, without what rests on it; None where there is no such thing."""
        ...

    async def erased(self, tx: Transaction, affected: Affected) -> None:
        """These are gone, in this transaction."""
        ...


@dataclass
class Item:
    """One memory in any state, or one turn, by its id. It goes at once, whatever the batch."""

    id: str

    async def size(self, tx: Transaction) -> Mapping[str, int]:  # noqa: ARG002
        return {}

    async def find(self, tx: Transaction, batch: Batch) -> Affected | None:  # noqa: ARG002
        affected = Affected()
        affected.memories = {row["id"]: row for row in await tx.erasures.memories_of([self.id])}
        if affected.memories:
            await _add_citations(tx, affected)
        elif turn := await tx.erasures.turn(self.id):
            affected.add(turn["episode_id"], span(turn))
        else:
            return None
        return affected

    async def erased(self, tx: Transaction, affected: Affected) -> None:
        """Nothing is remembered of it."""


@dataclass
class Container:
    """A container as it was until then: its texts, and then what else is in it."""

    name: str
    until: datetime

    async def size(self, tx: Transaction) -> Mapping[str, int]:
        return await tx.erasure_scan.size(self.name)

    async def find(self, tx: Transaction, batch: Batch) -> Affected:
        affected = Affected(container=self.name)
        texts = await self._ids(tx, "episodes", batch)
        affected.last = len(texts) < batch.items
        if texts and batch is not ALL:
            some = await tx.erasure_scan.up_to(texts, batch.rows)
            affected.last = affected.last and len(some) == len(texts)
            texts = some
        for episode, turns in await tx.erasures.episodes_of(texts):
            affected.take(episode, turns)
        if affected.last:
            memories = await self._ids(tx, "memories", batch)
            affected.last = len(memories) < batch.items
            rows = await tx.erasures.memories_of(memories)
            affected.memories = {row["id"]: row for row in rows}
        return affected

    async def _ids(self, tx: Transaction, table: Table, batch: Batch) -> list[str]:
        return await tx.erasure_scan.in_container(
            table, self.name, until=self.until, limit=batch.items
        )

    async def erased(self, tx: Transaction, affected: Affected) -> None:
        """Nothing is remembered of it."""


@dataclass
class _Read:
    """Which rows of a table were read, so that only others are read again."""

    table: Table
    _ids: set[str] = field(default_factory=set)
    _last: str = ""

    async def more(self, tx: Transaction, *, erased: bool) -> AsyncIterator[Sequence[Row]]:
        """The rows that were not; `erased`: some may have been deleted since."""
        async for page in tx.erasure_scan.pages(self.table, self._last):
            self._last = page[-1]["id"]
            self._ids |= {row["id"] for row in page}
            yield page
        # Rows whose ids sort before the last one. Where rows were deleted too, counting says
        # nothing.
        if erased or await tx.erasure_scan.count(self.table) != len(self._ids):
            present = set(await tx.erasure_scan.ids(self.table))
            new = present - self._ids
            self._ids = present
            async for page in tx.erasure_scan.rows(self.table, new):
                yield page

    def deleted(self, ids: Iterable[str]) -> None:
        self._ids.difference_update(ids)


class _Marks(NamedTuple):
    """Where a text names the subject, and whether its labels do."""

    spans: frozenset[Span]
    labels: bool


@dataclass
class Named:
    """All that names a subject. No index knows every name: all of the namespace is read, once.
    The words of what was read change by an erasure only, which adds no name.
    """

    subject: Subject
    _memories: _Read = field(default_factory=lambda: _Read("memories"))
    _episodes: _Read = field(default_factory=lambda: _Read("episodes"))
    _naming: set[str] = field(default_factory=set)
    _marks: dict[str, _Marks] = field(default_factory=dict)
    _epoch: int | None = None

    async def size(self, tx: Transaction) -> Mapping[str, int]:  # noqa: ARG002
        return {}

    async def find(self, tx: Transaction, batch: Batch) -> Affected:
        await self._read(tx)
        affected = Affected(self.subject)
        naming, marked = sorted(self._naming)[: batch.items], sorted(self._marks)[: batch.items]
        affected.last = (len(naming), len(marked)) == (len(self._naming), len(self._marks))
        affected.memories = {row["id"]: row for row in await tx.erasures.memories_of(naming)}
        await _add_citations(tx, affected)
        for episode_id in marked:
            for where in self._marks[episode_id].spans:
                affected.add(episode_id, where)
        labelled = [one for one in marked if self._marks[one].labels]
        for episode, turns in await tx.erasures.episodes_of(labelled):
            affected.episodes[episode["id"]] = (episode, turns)
        affected.batch = {*naming, *marked}
        return affected

    async def erased(self, tx: Transaction, affected: Affected) -> None:
        self._naming -= affected.batch | affected.memories.keys()
        for episode_id in self._marks.keys() & affected.batch:
            del self._marks[episode_id]
        self._memories.deleted(affected.memories)
        self._epoch = await tx.erasure_scan.epoch()

    async def _read(self, tx: Transaction) -> None:
        epoch = await tx.erasure_scan.epoch()
        erased, self._epoch = epoch != self._epoch, epoch
        async for page in self._memories.more(tx, erased=erased):
            self._naming |= await asyncio.to_thread(self._among, page)
        if erased and self._marks:
            # Of those that are still there, and were not redacted since.
            texts = await tx.erasures.episodes_of(self._marks)
            self._marks = await asyncio.to_thread(self._marked, texts)
        async for page in self._episodes.more(tx, erased=erased):
            texts = await tx.erasures.with_turns(page)
            self._marks |= await asyncio.to_thread(self._marked, texts)

    def _among(self, memories: Iterable[Row]) -> set[str]:
        named = self.subject.named
        return {row["id"] for row in memories if named(*(row[name] for name in _WORDS_OF_MEMORY))}

    def _marked(self, texts: Iterable[tuple[Row, list[Row]]]) -> dict[str, _Marks]:
        """The marks of those texts that name the subject."""
        named, found = self.subject.named, {}
        for episode, turns in texts:
            text = episode["text"]
            spans = {
                span(turn)
                for turn in turns
                if named(turn["speaker"], text[turn["span_start"] : turn["span_end"]])
            }
            spans |= {*self.subject.places(text)}
            sessions = [turn["session"] for turn in turns]
            labels = named(*(episode[label] for label in LABELS), *sessions)
            if spans or labels:
                found[episode["id"]] = _Marks(frozenset(spans), labels)
        return found


async def _add_citations(tx: Transaction, affected: Affected) -> None:
    for row in await tx.erasures.citations(affected.memories):
        affected.add(row["episode_id"], span(row))


@dataclass(frozen=True)
class _Sought:
    """By what it is known that a task holds anything that is erased."""

    ids: frozenset[str] = frozenset()
    words: frozenset[str] = frozenset()
    subject: Subject | None = None
    container: str = NONE
    scope: AccessScope = FULL_ACCESS

    @classmethod
    def of(cls, affected: Affected, scope: AccessScope) -> "_Sought":
        words = {text for text in affected.quotes() if distinctive(text, QUOTE_TERMS_MIN)}
        words |= {text for text in affected.said() if distinctive(text, TURN_TERMS_MIN)}
        words |= {row["text"] for row in affected.memories.values()}
        ids = frozenset({*affected.memories, *affected.whole})
        return cls(ids, frozenset(words), affected.subject, affected.container, scope)

    def known_from(self, before: "_Sought") -> bool:
        """Whether nothing is sought that was not."""
        return (
            self.ids <= before.ids
            and self.words <= before.words
            and (self.subject, self.container) == (before.subject, before.container)
        )

    def held_by(self, task: TaskDocuments) -> bool:
        """Whether a task, anywhere in it, holds an id, a text or words that are erased."""
        container = task.documents[0].get("container", NONE)
        if self.container and container == self.container:
            return True
        own = self.scope.containers is None or container in self.scope.containers
        return _anywhere(task.documents, self._matches if own else self.ids.__contains__)

    def _matches(self, value: str) -> bool:
        return (
            value in self.ids
            or any(text in value for text in self.words)
            or (self.subject is not None and self.subject.named(value))
        )


def _anywhere(value: Any, matches: Callable[[str], bool]) -> bool:
    if isinstance(value, str):
        return matches(value)
    if isinstance(value, Mapping):
        return any(_anywhere(key, matches) or _anywhere(one, matches) for key, one in value.items())
    return isinstance(value, Sequence) and any(_anywhere(one, matches) for one in value)


@dataclass
class _Tasks:
    """Which tasks hold what is erased: each is read once, and again when it has changed."""

    _sought: _Sought = field(default_factory=_Sought)
    _read: dict[str, int] = field(default_factory=dict)
    _found: set[str] = field(default_factory=set)

    async def holding(self, tx: Transaction, sought: _Sought) -> list[str]:
        """Their ids."""
        if not sought.known_from(self._sought):
            self._read = {}
        self._sought = sought
        versions = await tx.erasure_scan.task_versions()
        before = self._found & versions.keys()
        changed = {one for one, version in versions.items() if self._read.get(one) != version}
        self._read = versions
        self._found = set()
        async for task in tx.erasure_scan.tasks_of(before | changed):
            self._read[task.id] = task.version
            if await asyncio.to_thread(sought.held_by, task):
                self._found.add(task.id)
        return sorted(self._found)


@dataclass
class TargetScan:
    """Finds the targets of one erasure, at first and again. Of the tasks outside of the access
    scope of the caller, only those that show a memory or a text which is erased are targets.
    """

    wanted: Wanted
    scope: AccessScope = FULL_ACCESS
    _tasks: _Tasks = field(default_factory=_Tasks)

    async def scan(self, tx: Transaction, batch: Batch = ALL) -> Affected | None:
        """All targets of a batch, as they are now; None where there is no such thing."""
        affected = await self.wanted.find(tx, batch)
        if affected is None:
            return None
        for episode, turns in await tx.erasures.episodes_of(affected.spans):
            affected.episodes[episode["id"]] = (episode, turns)
        others = {
            row["memory_id"]
            for row in await tx.erasures.citations_in(affected.spans)
            if affected.touches(row["episode_id"], span(row))
        } - set(affected.memories)
        affected.memories |= {row["id"]: row for row in await tx.erasures.memories_of(others)}
        affected.tasks = await self._tasks.holding(tx, _Sought.of(affected, self.scope))
        return affected
