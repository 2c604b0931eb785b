"""What an erasure of less than everything reaches: what was asked for, what rests on the same
words, and the tasks that hold any of it.

To find somebody by name takes reading all of a namespace, and so it is looked twice: first where
nobody waits for it, and then in the transaction that erases, which reads only what came or changed
since, and again what was found. `TargetScan.look` is both.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from recall_server.domain.containers import NONE
from recall_server.domain.episode import Span
from recall_server.domain.erasure import QUOTE_TERMS_MIN, TURN_TERMS_MIN, Subject, telling
from recall_server.domain.permissions import FULL_ACCESS, AccessScope
from recall_server.services.erasure.redact import LABELS, Affected
from recall_server.storage.driver import Row
from recall_server.storage.rows import span
from recall_server.storage.store import Transaction
from recall_server.storage.tables.erasure_scan import Kept, Table

_WORDS_OF_MEMORY = ("text", "topic", "container", "entity", "attribute", "value")
ALL = 2**31 - 1


class Wanted(Protocol):
    """What is to be erased. It may be looked for again, at less cost than before."""

    async def find(self, tx: Transaction) -> Affected | None:
        """It, without what rests on it; None where there is no such thing."""
        ...


@dataclass
class Item:
    """One memory in any state, or one turn, by its id."""

    id: str

    async def find(self, tx: Transaction) -> Affected | None:
        affected = Affected()
        affected.memories = {row["id"]: row for row in await tx.erasures.memories_of([self.id])}
        if affected.memories:
            await _add_citations(tx, affected)
        elif turn := await tx.erasures.turn(self.id):
            affected.add(turn["episode_id"], span(turn))
        else:
            return None
        return affected


@dataclass
class Room:
    """What was put into a container until then, `limit` texts of it at most, and about as many rows
    as `rows_max` where that is given; and once there are none, what else is in it.
    """

    container: str
    until: datetime
    limit: int = ALL
    rows_max: int | None = None

    async def find(self, tx: Transaction) -> Affected:
        affected = Affected(container=self.container)
        texts = await self._in(tx, "episodes")
        last = len(texts) < self.limit
        if self.rows_max is not None and texts:
            some = await tx.looking.up_to(texts, self.rows_max)
            texts, last = some, last and len(some) == len(texts)
        for episode, turns in await tx.erasures.episodes_of(texts):
            affected.take(episode, turns)
        if last:
            rows = await tx.erasures.memories_of(await self._in(tx, "memories"))
            affected.memories = {row["id"]: row for row in rows}
        return affected

    async def _in(self, tx: Transaction, table: Table) -> list[str]:
        return await tx.looking.in_container(
            table, self.container, until=self.until, limit=self.limit
        )


@dataclass
class _Read:
    """Which rows of a table were read, so that only others are read again."""

    table: Table
    _ids: set[str] = field(default_factory=set)
    _last: str = ""

    async def more(self, tx: Transaction, *, erased: bool) -> AsyncIterator[Sequence[Row]]:
        """Those that were not; `erased`: some may be gone since."""
        async for page in tx.looking.pages(self.table, self._last):
            self._last = page[-1]["id"]
            self._ids |= {row["id"] for row in page}
            yield page
        # What came under an id that sorts before. Where rows went too, their number says nothing.
        if erased or await tx.looking.count(self.table) != len(self._ids):
            there = set(await tx.looking.ids(self.table))
            new = there - self._ids
            self._ids = there
            async for page in tx.looking.rows(self.table, new):
                yield page


class _Marks(NamedTuple):
    """Where a text names somebody, and whether its labels do."""

    spans: frozenset[Span]
    labels: bool


@dataclass
class Somebody:
    """Whatever names a subject. No index knows every name: all of the namespace is read, once.
    What was read changes its words by an erasure only, which names nobody anew.
    """

    subject: Subject
    _memories: _Read = field(default_factory=lambda: _Read("memories"))
    _episodes: _Read = field(default_factory=lambda: _Read("episodes"))
    _naming: set[str] = field(default_factory=set)
    _marks: dict[str, _Marks] = field(default_factory=dict)
    _epoch: int | None = None

    async def find(self, tx: Transaction) -> Affected:
        epoch = await tx.looking.epoch()
        erased, self._epoch = epoch != self._epoch, epoch
        async for page in self._memories.more(tx, erased=erased):
            self._naming |= await asyncio.to_thread(self._among, page)
        if erased and self._marks:
            # Of those that are still there, and have not been struck out since.
            texts = await tx.erasures.episodes_of(self._marks)
            self._marks = await asyncio.to_thread(self._marked, texts)
        async for page in self._episodes.more(tx, erased=erased):
            texts = await tx.erasures.with_turns(page)
            self._marks |= await asyncio.to_thread(self._marked, texts)
        affected = Affected(self.subject)
        rows = await tx.erasures.memories_of(self._naming)
        affected.memories = {row["id"]: row for row in rows}
        await _add_citations(tx, affected)
        for episode_id, marks in self._marks.items():
            for where in marks.spans:
                affected.add(episode_id, where)
        labelled = [one for one, marks in self._marks.items() if marks.labels]
        for episode, turns in await tx.erasures.episodes_of(labelled):
            affected.episodes[episode["id"]] = (episode, turns)
        return affected

    def _among(self, memories: Iterable[Row]) -> set[str]:
        named = self.subject.named
        return {row["id"] for row in memories if named(*(row[name] for name in _WORDS_OF_MEMORY))}

    def _marked(self, texts: Iterable[tuple[Row, list[Row]]]) -> dict[str, _Marks]:
        """Of those texts that name the subject."""
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
    """By what a task is told that holds anything that goes."""

    ids: frozenset[str] = frozenset()
    words: frozenset[str] = frozenset()
    subject: Subject | None = None
    container: str = NONE
    reach: AccessScope = FULL_ACCESS

    @classmethod
    def of(cls, affected: Affected, reach: AccessScope) -> "_Sought":
        words = {text for text in affected.quotes() if telling(text, QUOTE_TERMS_MIN)}
        words |= {text for text in affected.said() if telling(text, TURN_TERMS_MIN)}
        words |= {row["text"] for row in affected.memories.values()}
        ids = frozenset({*affected.memories, *affected.whole})
        return cls(ids, frozenset(words), affected.subject, affected.container, reach)

    def known_from(self, before: "_Sought") -> bool:
        """Whether nothing is sought that was not."""
        return (
            self.ids <= before.ids
            and self.words <= before.words
            and (self.subject, self.container) == (before.subject, before.container)
        )

    def held_by(self, task: Kept) -> bool:
        """Whether a task, anywhere in it, holds an id, a text or words that go."""
        container = task.documents[0].get("container", NONE)
        if self.container and container == self.container:
            return True
        own = self.reach.containers is None or container in self.reach.containers
        return _anywhere(task.documents, self._tells if own else self.ids.__contains__)

    def _tells(self, value: str) -> bool:
        return (
            value in self.ids
            or any(text in value for text in self.words)
            or (self.subject is not None and self.subject.named(value))
        )


def _anywhere(value: Any, told: Callable[[str], bool]) -> bool:
    if isinstance(value, str):
        return told(value)
    if isinstance(value, Mapping):
        return any(_anywhere(key, told) or _anywhere(one, told) for key, one in value.items())
    return isinstance(value, Sequence) and any(_anywhere(one, told) for one in value)


@dataclass
class _Tasks:
    """Which tasks hold what goes: each is read once, and again when it has changed."""

    _sought: _Sought = field(default_factory=_Sought)
    _read: dict[str, int] = field(default_factory=dict)
    _found: set[str] = field(default_factory=set)

    async def holding(self, tx: Transaction, sought: _Sought) -> list[str]:
        """Their ids."""
        if not sought.known_from(self._sought):
            self._read = {}
        self._sought = sought
        there = await tx.looking.run_versions()
        before = self._found & there.keys()
        changed = {one for one, version in there.items() if self._read.get(one) != version}
        self._read = there
        self._found = set()
        async for task in tx.looking.runs_of(before | changed):
            self._read[task.id] = task.version
            if await asyncio.to_thread(sought.held_by, task):
                self._found.add(task.id)
        return sorted(self._found)


@dataclass
class TargetScan:
    """One erasure's looking, at first and again; `reach` is what whoever asks may see of tasks: of
    those beyond, only such go that show a memory or a text which goes.
    """

    wanted: Wanted
    reach: AccessScope = FULL_ACCESS
    _tasks: _Tasks = field(default_factory=_Tasks)

    async def look(self, tx: Transaction) -> Affected | None:
        """All that is reached, as it is now; None where there is no such thing."""
        affected = await self.wanted.find(tx)
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
        affected.runs = await self._tasks.holding(tx, _Sought.of(affected, self.reach))
        return affected
