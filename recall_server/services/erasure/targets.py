"""The targets of an erasure: finds a memory or turn, a container, or all that names a subject; the
rows that it concerns, and the pieces in which it is written.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from recall_server.domain.episode import Span
from recall_server.domain.erasure import Covered, ErasedText, Subject, as_read
from recall_server.domain.ids import NONE
from recall_server.domain.search.index_entry import Findable
from recall_server.storage.driver import Row, batches, fitting, grouped, span
from recall_server.storage.index.documents import Removal
from recall_server.storage.index.words import Postings, postings
from recall_server.storage.store import Transaction
from recall_server.storage.tables import registry
from recall_server.storage.tables.erasure import Table

EPISODES, TURNS, MEMORIES = (registry.BY_NAME[name] for name in ("episodes", "turns", "memories"))


@dataclass
class Affected:
    """All that one transaction erases.

    `memories`, `spans`, `tasks`: rows of memories by id, spans of episodes, ids of whole tasks.
    `container`, `whole`: a container, and its episodes, which are deleted with their turns.
    `subject`: its name is erased from labels too; `labelled`: the memories with it in a label.
    `last`: nothing is left after these.
    `batch`: the ids from which the others were found.
    """

    subject: Subject | None = None
    container: str = NONE
    labelled: set[str] = field(default_factory=set)
    memories: dict[str, Row] = field(default_factory=dict)
    spans: dict[str, set[Span]] = field(default_factory=dict)
    episodes: dict[str, tuple[Row, list[Row]]] = field(default_factory=dict)
    whole: set[str] = field(default_factory=set)
    tasks: list[str] = field(default_factory=list)
    last: bool = True
    batch: set[str] = field(default_factory=set)
    # Derived from the others.
    _covered: dict[str, Covered] = field(default_factory=dict)
    _turns: list[Row] | None = None

    def take(self, episode: Row, turns: list[Row]) -> None:
        self.whole.add(episode["id"])
        self.episodes[episode["id"]] = (episode, turns)
        self.add(episode["id"], Span(0, len(episode["text"])))

    def add(self, episode_id: str, where: Span) -> None:
        self.spans.setdefault(episode_id, set()).add(where)
        self._covered.pop(episode_id, None)
        self._turns = None

    def touches(self, episode_id: str, where: Span) -> bool:
        if episode_id not in self._covered:
            self._covered[episode_id] = Covered(self.spans.get(episode_id, ()))
        return episode_id in self.whole or self._covered[episode_id].touches(where)

    def turns(self) -> list[Row]:
        """Return the turns whose words or labels are erased. The first call may take long."""
        if self._turns is None:
            named = self.subject.named if self.subject else lambda *_: False
            self._turns = [
                turn
                for episode, turns in self.episodes.values()
                for turn in turns
                if self.touches(episode["id"], span(turn))
                or named(turn["speaker"], turn["session"])
            ]
        return self._turns

    def quotes(self) -> set[str]:
        return {
            self.episodes[episode_id][0]["text"][one.start : one.end]
            for episode_id, spans in self.spans.items()
            for one in spans
        }

    def said(self) -> list[str]:
        """Return the words of each turn that is deleted with its episode."""
        texts = {one: self.episodes[one][0]["text"] for one in self.whole}
        return spoken((turn for one in texts for turn in self.episodes[one][1]), texts)

    @property
    def nothing(self) -> bool:
        """True if no row is erased or redacted, so no index, cache or job has read one."""
        return not (self.memories or self.labelled or self.episodes or self.tasks)

    def counts(self) -> dict[str, int]:
        return {
            "memories": len(self.memories),
            "episodes": len(self.episodes),
            "spans": sum(len(spans) for spans in self.spans.values()),
            "turns": len(self.turns()),
            "runs": len(self.tasks),
        }


def spoken(turns: Iterable[Row], texts: Mapping[str, str]) -> list[str]:
    return [texts[turn["episode_id"]][turn["span_start"] : turn["span_end"]] for turn in turns]


NO_WORDS = postings({})


@dataclass(frozen=True)
class Piece:
    """The changes of one transaction of an erasure: the `memories` and `passages` that it takes out
    of the index, with the `words` of those that search finds, and the terms `of_hidden` entries;
    the `digests` that it stores; the ids of the `turns` that it deletes before their text; the
    turns that it overwrites (`labels`). `texts`: it erases the words of the texts, and all that is
    not in another piece. `tasks`: it erases the tasks that hold any of it by then. `removal`: what
    takes the entries out of the index, if that is known.
    """

    memories: Sequence[str] = ()
    passages: Sequence[str] = ()
    digests: Sequence[ErasedText] = ()
    turns: Sequence[str] = ()
    labels: Sequence[Row] = ()
    words: Postings = NO_WORDS
    of_hidden: Collection[str] = ()
    texts: bool = False
    removal: Removal | None = None

    @property
    def tasks(self) -> bool:
        # Those that begin between the texts and the last piece change nothing that it rests on.
        return self.texts or bool(self.labels)

    @property
    def rows(self) -> int:
        """How many rows of texts and memories it erases."""
        return len(self.memories) + len(self.turns)


@dataclass(frozen=True)
class Writes:
    """All changes of an erasure, before they are cut into pieces.

    `gone`: the passages that lose their entries, of which `remaining` get new ones. `known`: the
    digests. `hides`: the words that the memories hide. `labels`: turns that are overwritten.
    `words`: the entries of all items that search finds. `of_hidden`: the terms of hidden entries.
    """

    affected: Affected
    gone: Collection[str]
    remaining: Collection[str]
    known: Collection[ErasedText]
    hides: Sequence[Row]
    labels: Sequence[Row]
    words: Mapping[str, Findable]
    of_hidden: Mapping[str, Sequence[str]]

    def pieces(self, rows: int) -> list[Piece]:
        """Return one piece, or some of about so many rows: passages of which nothing is left,
        memories, digests, turns of texts that are deleted, the texts, and turns with the name of
        a subject. After each of them, a search for the targets finds the rest.
        """
        affected = self.affected
        # From their ends, so that what is left is cut into the same passages.
        turns = [
            turn["id"]
            for one in sorted(affected.whole)
            for turn in sorted(affected.episodes[one][1], key=lambda turn: -int(turn["position"]))
        ]
        if len(affected.memories) + len(self.gone) + len(turns) + len(self.labels) <= rows:
            whole = self._piece(affected.memories, self.gone, self.known, self.labels)
            return [replace(whole, texts=True)]
        # Those by which words are found, and those that hide words that others may still read.
        kept = affected.batch
        if not affected.container:
            kept = kept | {row["item_id"] for row in self.hides}
        memories = sorted(affected.memories.keys() - kept)
        passages = sorted({*self.gone} - {*self.remaining})
        # While a passage is in the index, what it hides stays as the index has it.
        early = [self._piece((), some) for some in batches(passages, rows)]
        early += [self._piece(some) for some in batches(memories, rows)]
        early += [Piece(digests=some) for some in batches(sorted(self.known), rows)]
        # The last ones go with their text.
        early += [Piece(turns=some) for some in batches(turns, rows)][
            : max(0, len(turns) - 1) // rows
        ]
        rest = affected.memories.keys() - {*memories}, {*self.gone} - {*passages}
        # With some of the turns, so that fewer are left if others go on only after a crash.
        texts = self._piece(*rest, labels=self.labels[:rows])
        later = [Piece(labels=some) for some in batches(self.labels[rows:], rows)]
        return [*early, replace(texts, texts=True), *later]

    def _piece(
        self,
        memories: Iterable[str],
        passages: Iterable[str] = (),
        digests: Iterable[ErasedText] = (),
        labels: Sequence[Row] = (),
    ) -> Piece:
        items = sorted(memories), sorted(passages)
        words = {i: self.words[i] for some in items for i in some if i in self.words}
        hidden = {term for some in items for i in some for term in self.of_hidden.get(i, ())}
        return Piece(
            *items,
            sorted(digests),
            labels=labels,
            words=postings(words).counted(),
            of_hidden=hidden,
        )


@dataclass(frozen=True)
class Batch:
    """How much one transaction erases: `items` texts or memories, with about `rows` rows."""

    items: int
    rows: int


ALL = Batch(2**31 - 1, 2**31 - 1)
NONE_YET = Batch(0, 0)


class Lookup(ABC):
    """Finds the target of an erasure; later calls cost less than the first."""

    async def size(self, tx: Transaction) -> Mapping[str, int]:  # noqa: ARG002
        """Return the number of rows by table, if they can be counted without reading them."""
        return {}

    @abstractmethod
    async def find(self, tx: Transaction, batch: Batch) -> Affected | None:
        """Return the first batch of the target, without what rests on it; None if there is no
        such thing.
        """

    def erased(self, affected: Affected, epoch: int) -> None:  # noqa: B027
        """Note that these rows are erased, and nothing else was since they were found; `epoch`: the
        erase epoch after that.
        """


@dataclass
class Item(Lookup):
    """One memory in any state, or one turn, by its id. It is erased whole, whatever the batch."""

    id: str

    async def find(self, tx: Transaction, batch: Batch) -> Affected | None:  # noqa: ARG002
        affected = Affected()
        affected.memories = {row["id"]: row for row in await tx.erasures.memories_of([self.id])}
        if affected.memories:
            await _add_citations(tx, affected)
        elif turn := await tx.erasures.turn(self.id):
            affected.add(turn["episode_id"], span(turn))
        elif lost := await tx.erasure_scan.lost(self.id):
            _add_lost(affected, lost)
        else:
            return None
        return affected


@dataclass
class Container(Lookup):
    """A container, or its content when an erasure began: first its texts, then its memories."""

    name: str
    erasure_id: str

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
            table, self.name, erasure_id=self.erasure_id, limit=batch.items
        )


@dataclass
class _Read:
    """Remembers which rows of a table were read, so that later calls read only new ones."""

    table: Table
    _ids: set[str] = field(default_factory=set)
    _last: str = ""

    async def more(
        self, tx: Transaction, *, erased: bool, again: Collection[str]
    ) -> AsyncIterator[Sequence[Row]]:
        """Yield the rows that were not read yet, and those of `again` that were; `erased`: some may
        have been deleted since.
        """
        async for page in tx.erasure_scan.rows(self.table, self._ids.intersection(again)):
            yield page
        async for page in tx.erasure_scan.pages(self.table, self._last):
            self._last = page[-1]["id"]
            self._ids |= {row["id"] for row in page}
            yield page
        # New rows may have ids that sort before the last one. A changed count reveals them, unless
        # rows were deleted too.
        if erased or await tx.erasure_scan.count(self.table) != len(self._ids):
            present = set(await tx.erasure_scan.ids(self.table))
            new = present - self._ids
            self._ids = present
            async for page in tx.erasure_scan.rows(self.table, new):
                yield page

    def deleted(self, ids: Iterable[str]) -> None:
        self._ids.difference_update(ids)


class _Marks(NamedTuple):
    """The spans at which a text names the subject, and whether its labels name it."""

    spans: frozenset[Span]
    labels: bool


@dataclass
class Named(Lookup):
    """All that names a subject. No index has every name, so the whole namespace is read once. Only
    an erasure changes the words of rows that were read, and it adds no name. A relabel may add a
    name to their labels, so relabelled rows are read again.
    """

    subject: Subject
    _memories: _Read = field(default_factory=lambda: _Read("memories"))
    _episodes: _Read = field(default_factory=lambda: _Read("episodes"))
    _naming: set[str] = field(default_factory=set)
    _labelled: set[str] = field(default_factory=set)
    _marks: dict[str, _Marks] = field(default_factory=dict)
    _lost: dict[str, dict[str, Any]] | None = None
    _epoch: int | None = None
    _event: int | None = None

    async def find(self, tx: Transaction, batch: Batch) -> Affected:
        await self._read(tx)
        affected = Affected(self.subject)
        known = (self._naming, self._labelled, self._marks)
        naming, labelled, marked = (sorted(ids)[: batch.items] for ids in known)
        naming = await self._up_to(tx, naming, batch)
        marked = fitting(((one, len(self._marks[one].spans)) for one in marked), batch.rows)
        affected.last = (len(naming), len(labelled), len(marked)) == tuple(map(len, known))
        affected.labelled = set(labelled)
        affected.memories = {row["id"]: row for row in await tx.erasures.memories_of(naming)}
        await _add_citations(tx, affected)
        _add_lost(affected, {i: self._lost[i] for i in naming if self._lost and i in self._lost})
        if marked:
            await asyncio.to_thread(self._add_marks, affected, marked)
        texts = [one for one in marked if self._marks[one].labels]
        for episode, turns in await tx.erasures.episodes_of(texts):
            affected.episodes[episode["id"]] = (episode, turns)
        # A memory that this batch only relabels must still be erased if its words name the subject.
        affected.batch = {*naming, *marked}
        return affected

    async def _up_to(self, tx: Transaction, naming: list[str], batch: Batch) -> list[str]:
        """Return the first of these memories that cite few texts together; at least one."""
        if batch is ALL or not naming:
            return naming
        cited = grouped(
            (row["memory_id"], row["episode_id"]) for row in await tx.erasures.citations(naming)
        )
        return fitting(((one, len({*cited.get(one, ())})) for one in naming), batch.items)

    def erased(self, affected: Affected, epoch: int) -> None:
        self._naming -= affected.batch | affected.memories.keys()
        self._labelled -= affected.batch | affected.memories.keys() | affected.labelled
        for episode_id in self._marks.keys() & affected.batch:
            del self._marks[episode_id]
        self._memories.deleted(affected.memories)
        # That of this erasure: nobody else has erased meanwhile.
        self._epoch = epoch

    async def _read(self, tx: Transaction) -> None:
        now = await tx.words.statistics()
        epoch, event = now.erase_epoch, now.last_event
        if (epoch, event) == (self._epoch, self._event):
            return  # every change of a memory or a text is an event
        erased, self._epoch = epoch != self._epoch, epoch
        again = set[str]()
        if self._event is not None and self._event != event:
            again = await tx.erasure_scan.relabelled(self._event)
        self._event = event
        self._naming -= again
        self._labelled -= again
        for episode_id in self._marks.keys() & again:
            del self._marks[episode_id]
        if self._lost is None:
            self._lost = await tx.erasure_scan.lost()
            for ids in await asyncio.to_thread(self._named_in, [*self._lost.values()]):
                self._naming |= ids
        async for page in self._memories.more(tx, erased=erased, again=again):
            naming, labelled = await asyncio.to_thread(self._named_in, page)
            self._naming |= naming
            self._labelled |= labelled
        if erased and self._marks:
            # Read the marked texts again: they may have been deleted or redacted since.
            texts = await tx.erasures.episodes_of(self._marks)
            self._marks = await asyncio.to_thread(self._marked, texts)
        async for page in self._episodes.more(tx, erased=erased, again=again):
            texts = await tx.erasures.with_turns(page)
            self._marks |= await asyncio.to_thread(self._marked, texts)

    def _named_in(self, memories: Sequence[Row]) -> tuple[set[str], set[str]]:
        """Return the ids of memories that name the subject in their words, and in their labels."""
        named = self.subject.named
        labels = MEMORIES.labels_of
        return (
            {row["id"] for row in memories if named(*(row[name] for name in MEMORIES.words))},
            {row["id"] for row in memories if named(*labels(row).values())},
        )

    def _add_marks(self, affected: Affected, marked: Iterable[str]) -> None:
        for episode_id in marked:
            for where in self._marks[episode_id].spans:
                affected.add(episode_id, where)

    def _marked(self, texts: Iterable[tuple[Row, list[Row]]]) -> dict[str, _Marks]:
        """Return the marks of those texts that name the subject."""
        named, found = self.subject.named, {}
        for episode, turns in texts:
            text, labels = episode["text"], [*EPISODES.labels_of(episode).values()]
            sessions = [turn["session"] for turn in turns]
            labels += [episode["idempotency_key"], *sessions]
            speakers = [turn["speaker"] for turn in turns]
            if not self.subject.may_be_in(as_read([text, labels, speakers])):
                continue
            spans = {
                span(turn)
                for turn in turns
                if named(turn["speaker"], text[turn["span_start"] : turn["span_end"]])
            }
            spans |= {*self.subject.places(text)}
            in_labels = named(*labels)
            if spans or in_labels:
                found[episode["id"]] = _Marks(frozenset(spans), in_labels)
        return found


async def _add_citations(tx: Transaction, affected: Affected) -> None:
    for row in await tx.erasures.citations(affected.memories):
        affected.add(row["episode_id"], span(row))


def _add_lost(affected: Affected, lost: Mapping[str, dict[str, Any]]) -> None:
    """Add memories whose rows are lost, with the words that they rested on."""
    affected.memories |= lost
    for row in lost.values():
        for episode_id, start, end in row["cited"]:
            affected.add(episode_id, Span(start, end))
