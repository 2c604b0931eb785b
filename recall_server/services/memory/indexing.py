"""The index of items: adds items, takes them out, and rebuilds it; the texts that a vector of an
item is made from, and the job that stores vectors.
"""

import asyncio
from bisect import bisect_right
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from recall_server.domain.audit import AuditEntry
from recall_server.domain.context import Runtime
from recall_server.domain.episode import Episode, Span, episode_of
from recall_server.domain.errors import Invalid, Stale
from recall_server.domain.ids import Namespace, derived_id
from recall_server.domain.memory import Memory
from recall_server.domain.search.index_entry import (
    Findable,
    changed_passages,
    findable_passages,
    labelled,
)
from recall_server.domain.task import Job
from recall_server.domain.text.passages import Passage, VisiblePassage, visible_passages
from recall_server.integrations.embeddings import Embedder, Vectors, word_vectors
from recall_server.storage.driver import Document, apart, batches, grouped
from recall_server.storage.index.words import Postings, postings
from recall_server.storage.store import Store, Transaction
from recall_server.telemetry import tracer

# Work on more items or turns than this runs in a thread: other callers would notice the delay.
INLINE_MAX = 50
INLINE_CHARS_MAX = 4_000
# How many texts are held in memory at a time.
TEXTS_AT_ONCE = 20
# How many vectors one transaction copies.
VECTORS_AT_ONCE = 500


async def show(tx: Transaction, ids: Collection[str]) -> None:
    """Let search find items by their words, and by their vectors if they have any. The items must
    be stored already and not be found yet.
    """
    found = await read(tx, ids)
    await tx.words.add(await _postings(found))
    await tx.vectors.copy(list(found))


async def _postings(
    found: Mapping[str, Findable], computed: Callable[[Postings], Postings] = Postings.written
) -> Postings:
    """Return the postings of these items; of many, with the parameters of their use `computed`."""
    if len(found) > INLINE_MAX:
        return await asyncio.to_thread(lambda: computed(postings(found)))
    return postings(found)


async def hide(tx: Transaction, ids: Collection[str]) -> None:
    """Hide memories from search, from now on. Their words tell which terms lose an item."""
    found = await tx.findables.memories(await tx.findables.found(ids))
    await tx.words.hide(await _postings(found, Postings.counted))


async def read(tx: Transaction, ids: Collection[str]) -> dict[str, Findable]:
    """Return the index entries of items: memories in any state, and readable passages."""
    found = await tx.findables.memories(ids)
    passages = set(ids) - found.keys()
    if passages:
        texts = await of_episodes(tx, map(episode_of, passages))
        found |= {item_id: one for item_id, one in texts.items() if item_id in passages}
    return found


async def of_episodes(tx: Transaction, episode_ids: Iterable[str]) -> dict[str, Findable]:
    """Return the index entries of the passages of these episodes."""
    found: dict[str, Findable] = {}
    async for episodes in some_of(tx, episode_ids):
        large = sum(len(one.text) for one in episodes) > INLINE_CHARS_MAX
        found |= await apart(large, _passages, episodes)
    return found


async def some_of(tx: Transaction, episode_ids: Iterable[str]) -> AsyncIterator[list[Episode]]:
    """Yield these episodes, `TEXTS_AT_ONCE` at a time."""
    for some in batches(sorted(set(episode_ids)), TEXTS_AT_ONCE):
        yield await tx.episodes.several(some)


def _passages(episodes: Iterable[Episode]) -> dict[str, Findable]:
    found: dict[str, Findable] = {}
    for one in episodes:
        found |= findable_passages(one)
    return found


@dataclass(frozen=True)
class Prepared:
    """A change of the index, computed before the transaction that writes it, which must find the
    index as it was. `lists`: those of the shown items. `memories`: those of them that have their
    earlier vectors again.
    """

    hidden: Postings
    shown: Postings
    lists: "Lists"
    memories: Sequence[str]

    async def write(self, tx: Transaction) -> None:
        await tx.words.hide(self.hidden)
        await tx.words.add(self.shown, self.lists.lists)

    async def write_beside_texts(self, tx: Transaction) -> None:
        """`write`, although texts may have been added since."""
        lists = await self.lists.fitting(tx) if self.shown.documents else None
        await tx.words.hide(self.hidden)
        await tx.words.add(self.shown, lists)

    async def copy_vectors(self, store: Store, namespace: Namespace) -> None:
        """Copy the earlier vectors, after the change, as nobody waits for them: items without a
        vector are found by their words.
        """
        for some in batches(self.memories, VECTORS_AT_ONCE):
            async with store.transaction(namespace, locked=True) as tx:
                await tx.vectors.copy(some)


async def prepared(
    tx: Transaction,
    hidden: Collection[str],
    shown: Collection[str],
    episode_ids: Collection[str],
    change: Callable[[Episode], Episode],
) -> Prepared:
    """Compute what hides and shows these memories, and what of the index differs after a `change`
    of what can be read of these texts. Passages that it changes get new entries, without vectors
    until a job has made them.
    """
    gone, come = await tx.findables.memories(hidden), await tx.findables.memories(shown)
    async for episodes in some_of(tx, episode_ids):
        before, after = await asyncio.to_thread(changed_passages, episodes, map(change, episodes))
        gone |= {i: before[i] for i in sorted(await tx.findables.found(before))}
        come |= dict(sorted(after.items()))
    added, now = await _postings(come), await tx.words.statistics()
    made = await asyncio.to_thread(lists, added, now.last_slot)
    return Prepared(await _postings(gone, Postings.counted), added, made, sorted(shown))


class Lists(NamedTuple):
    """For each term how many of some items have it, and its postings, behind the `last_slot`."""

    lists: Document
    last_slot: int

    async def fitting(self, tx: Transaction) -> Document | None:
        """Return the lists, unless other items have got these slots meanwhile."""
        statistics = await tx.words.statistics()
        return self.lists if self.last_slot == statistics.last_slot else None


def lists(added: Postings, last_slot: int) -> Lists:
    """Return the lists of these words, made ahead."""
    slots = {item_id: slot for slot, item_id in enumerate(added.ids, last_slot + 1)}
    found: dict[str, list[str]] = {}
    for term, item_id, often, length in added.rows:
        found.setdefault(term, []).append(f";{slots[item_id]} {often} {length}")
    made = [(term, len(some), "".join(some)) for term, some in sorted(found.items())]
    return Lists(Document.written(made), last_slot)


async def replace(tx: Transaction, ids: Collection[str]) -> None:
    """Make the entries of these items anew, with the moments since which they were found. The
    counts of entries stay as they are.
    """
    found = await read(tx, ids)
    kept = await tx.findables.found(ids)
    await tx.words.replace(ids, len(kept), await _postings(found))
    await tx.words.take_places(found)
    # Those of memories whose entries are lost.
    await tx.words.backdate(await tx.rebuilt.found_since(found.keys() - kept))
    await tx.vectors.move(list(found))


async def renew(store: Store) -> None:
    """Rebuild the word indexes that an older release made, each in one transaction: search uses the
    old one until the commit. Several replicas may call this at the same time.
    """
    for namespace in await store.autocommit(None).words.stale():
        async with store.transaction(namespace, locked=True) as tx:
            if not await tx.words.begin_anew():
                continue
            async for memories, episodes in tx.findables.to_index():
                found = await tx.findables.memories(memories)
                found |= await of_episodes(tx, episodes)
                await tx.words.add(await _postings(found))
                await tx.words.take_places(found)
                await tx.vectors.move(list(found))


EMBED = "embed"


async def promise_vectors(tx: Transaction, runtime: Runtime, episode_ids: Iterable[str]) -> None:
    """Add the jobs that make the vectors of these texts and of their memories."""
    payloads = {runtime.new_id("job"): {"episode_id": one} for one in sorted(set(episode_ids))}
    await tx.jobs.add_each(EMBED, payloads, runtime.now())


async def promise_lacking(
    store: Store, runtime: Runtime, namespace: Namespace, model: str | None
) -> None:
    """Add a job for each text with an item that has no vector, a page of items at a time."""
    if model is None:
        return
    after, more = 0, True
    while more:
        async with store.transaction(namespace, locked=True) as tx:
            bare, after = await tx.vectors.lacking_of(model, after)
            for episode_id in sorted(bare):
                job_id = derived_id("job", episode_id, EMBED, model)
                payload = {"episode_id": episode_id}
                await tx.jobs.add(job_id, EMBED, payload, runtime.now(), again=True)
        more = bool(after)


REEMBED = "reembed"
# Goes up with every change of the texts that a vector is made from: vectors of different recipes
# are never compared.
RECIPE = 7
# How many characters from the end of the previous turn precede a passage. On LoCoMo, 200 found 0.6
# points more of the evidence (R@10) than the whole turn.
PREVIOUS_CHARS_MAX = 200
# How many vectors are written in one transaction.
BATCH = 256
DROPPED_AT_ONCE = 2_000
ATTEMPTS_MAX = 3

Texts = tuple[str, ...]
"""The texts of one item. Its vector is the mean of theirs."""


class ItemEmbedder:
    """An `Embedder` with the recipe of items. `model`, the key of stored vectors, names both."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self.word_vectors = word_vectors(embedder)

    @cached_property
    def model(self) -> str:
        return f"{self._embedder.model}+{RECIPE}"

    @property
    def dimensions(self) -> int:
        return self._embedder.dimensions

    async def load(self) -> None:
        await self._embedder.load()

    async def close(self) -> None:
        await self._embedder.close()

    async def embed(self, texts: Sequence[str]) -> Vectors:
        with tracer.part("embed", {"recall.texts": len(texts)}):
            return await self._embedder.embed(texts)

    async def vectors_of(self, items: Sequence[Texts]) -> Vectors:
        """Return one row for each item: the mean of its texts' vectors, scaled to length 1, or the
        zero vector if the mean has no direction. Raises `EmbedderUnavailable`.
        """
        rows = await self.embed([text for texts in items for text in texts])
        if not items:
            return rows
        starts = np.cumsum([0, *(len(texts) for texts in items[:-1])])
        sums: Vectors = np.add.reduceat(rows, starts, axis=0)
        lengths = np.linalg.norm(sums, axis=1, keepdims=True)
        directed = lengths > np.finfo(np.float32).tiny
        means: Vectors = np.where(directed, sums / np.where(directed, lengths, 1.0), 0.0)
        return means.astype(np.float32)


def of_passages(found: Mapping[str, VisiblePassage]) -> dict[str, Texts]:
    """Return the texts of the vectors of an episode's passages, by id: speaker, headings and words.
    One that begins a turn has the end of the last turn before it, as an answer says little without
    its question: on LoCoMo that found 4.6 points more of the evidence (R@10).

    Hidden passages have no vector and are no part of another's.
    """
    texts: dict[str, Texts] = {}
    before: VisiblePassage | None = None
    for item_id, one in found.items():
        turn = one.passage.turn
        said = labelled(turn.speaker, f"{one.heading} {one.words}".strip())
        if before is not None and _follows(before.passage, one.passage):
            said = f"{before.words[-PREVIOUS_CHARS_MAX:]} {said}"
        texts[item_id] = (said,)
        before = one
    return texts


def _follows(before: Passage, one: Passage) -> bool:
    """True if a passage begins the turn after that of another, in the same session. Within a turn
    the passage before is often of another matter, as in a list: with it, vectors found no more, and
    answers were 6 to 9 % longer.
    """
    turn, last = one.turn, before.turn
    return one.number == 0 and turn.index == last.index + 1 and turn.session == last.session


def of_memories(
    said: Iterable[tuple[str, Span]],
    found: Mapping[str, VisiblePassage],
    texts: Mapping[str, Texts],
) -> list[Texts]:
    """Return the texts of the vector of each memory: its own words, and the first passage that it
    cites. `texts` must be `of_passages(found)`.
    """
    ids = list(found)
    spans = [one.passage.span for one in found.values()]
    made: list[Texts] = []
    for words, cited in said:
        place = bisect_right(spans, cited.start, key=lambda span: span.end)
        rests = place < len(ids) and spans[place].start < cited.end
        made.append((words, *(texts[ids[place]] if rests else ())))
    return made


def _of_episode(episode: Episode, memories: Sequence[Memory]) -> dict[str, Texts]:
    """Return the texts of the vectors of an episode's passages and of these memories of it."""
    found = visible_passages(episode)
    texts = of_passages(found)
    made = of_memories([(one.searchable, one.citation.span) for one in memories], found, texts)
    return texts | dict(zip((one.id for one in memories), made, strict=True))


async def texts_of(tx: Transaction, ids: Sequence[str]) -> dict[str, Texts]:
    """Return the texts of the vectors of those `ids` that search finds."""
    memories = await tx.memories.found(ids)
    of_episode = grouped((one.citation.episode_id, one) for one in memories)
    stored = {memory.id for memory in memories}
    passages = await tx.findables.found([i for i in ids if i not in stored])
    found: dict[str, Texts] = {}
    for episode_id in sorted({*of_episode, *map(episode_of, passages)}):
        episode = await tx.episodes.get(episode_id)
        assert episode is not None
        # In a thread, as cutting a long text takes long.
        found |= await asyncio.to_thread(_of_episode, episode, of_episode.get(episode_id, ()))
    return {i: texts for i, texts in found.items() if i in stored or i in passages}


@dataclass(frozen=True)
class Embedding:
    """Stores vectors for items that lack one of the embedder's model, never calling a model in a
    transaction.
    """

    store: Store
    runtime: Runtime
    embedder: ItemEmbedder | None
    batch: int = BATCH
    dropped_at_once: int = DROPPED_AT_ONCE

    async def work(self, job: Job, entry: Callable[[str], AuditEntry]) -> None:
        """Handle the job that stores vectors for an episode's memories and passages, batch by
        batch, so that a crash repeats one batch at most. Without an embedder it just finishes.

        Raises `EmbedderUnavailable`; items without a vector are still found by their words.
        """
        epoch, texts = await self._lacking_of(job.namespace, job.payload["episode_id"])
        *before, last = [*batches(texts, self.batch)] or [[]]

        async def finish(tx: Transaction) -> None:
            await tx.jobs.finish(job, self.runtime.now())

        async def advance(tx: Transaction) -> None:
            await tx.jobs.advance(job, job.payload, self.runtime.now() + self.runtime.lease)

        for batch, also in (*((one, advance) for one in before), (last, finish)):
            line = entry(EMBED)
            line.ids.append(job.id)
            await self._give(job.namespace, epoch, {i: texts[i] for i in batch}, line, also)

    async def _lacking_of(
        self, namespace: Namespace, episode_id: str
    ) -> tuple[int, dict[str, Texts]]:
        """Return the erase epoch, and the texts of the vectors that an episode lacks. They are read
        together, as each of them needs the whole episode.
        """
        if self.embedder is None:
            return 0, {}
        async with self.store.transaction(namespace, write=False) as tx:
            epoch = (await tx.words.statistics()).erase_epoch
            episode = await tx.episodes.get(episode_id)
            if episode is None:
                return epoch, {}
            ids = await tx.findables.memories_from(episode_id)
            texts = await asyncio.to_thread(_of_episode, episode, await tx.memories.found(ids))
            lacking = await tx.vectors.lacking(self.embedder.model, list(texts))
        return epoch, {i: texts[i] for i in lacking}

    async def lacking(self, namespace: Namespace) -> int:
        """Estimate how many findable items of a namespace lack a vector of the embedder's model."""
        async with self.store.transaction(namespace, write=False) as tx:
            found = (await tx.words.statistics()).documents
            return max(0, found - await tx.vectors.count(self._chosen().model))

    async def reembed(
        self,
        namespace: Namespace,
        *,
        entry: Callable[[str], AuditEntry],
        on_progress: Callable[[int], None] = lambda _: None,
    ) -> int:
        """Store vectors for all findable items of a namespace that have none, and return how many;
        `on_progress` gets that number after each batch. A batch is one transaction with its audit
        record: the next run continues where a stopped one ended.

        Raises `EmbedderUnavailable`; `Invalid` if there is no embedder; `Stale` if an erasure
        interfered with every attempt at a batch.
        """
        model, made = self._chosen().model, 0
        after, more = 0, True
        while more:
            async with self.store.transaction(namespace, write=False) as tx:
                page, after = await tx.findables.page(after)
                lacking = await tx.vectors.lacking(model, page)
            more = bool(page)
            for batch in batches(lacking, self.batch):
                made += await self._given(namespace, batch, entry)
                on_progress(made)
        return made

    async def _given(
        self, namespace: Namespace, batch: Sequence[str], entry: Callable[[str], AuditEntry]
    ) -> int:
        async def given() -> int:
            async with self.store.transaction(namespace, write=False) as tx:
                epoch = (await tx.words.statistics()).erase_epoch
                texts = await texts_of(tx, batch)
            return await self._give(namespace, epoch, texts, entry(REEMBED))

        for _ in range(ATTEMPTS_MAX - 1):
            with suppress(Stale):
                return await given()
        return await given()

    async def drop_others(self, namespace: Namespace, *, entry: Callable[[str], AuditEntry]) -> int:
        """Delete the vectors of all other models and recipes, and return how many. A server that
        still uses one of them searches by words only. Raises `Invalid` if there is no embedder.
        """
        model, dropped = self._chosen().model, 0
        models = await self.store.autocommit(namespace).vectors.models()
        others = [one for one in models if one != model]
        for other in others:
            more = True
            while more:
                line = entry(REEMBED)
                async with self.store.erasing(namespace, line) as tx:
                    gone = await tx.vectors.drop(other, self.dropped_at_once)
                    if gone < self.dropped_at_once:
                        # Their places are reused, so caches by place must be dropped.
                        await tx.erasures.next_epoch()
                    line.counts["dropped"] = gone
                dropped += gone
                more = gone == self.dropped_at_once
        return dropped

    def _chosen(self) -> ItemEmbedder:
        if self.embedder is None:
            raise Invalid("There is no embedder. Choose one with RECALL_EMBEDDER.")
        return self.embedder

    async def _give(
        self,
        namespace: Namespace,
        epoch: int,
        texts: Mapping[str, Texts],
        line: AuditEntry,
        also: Callable[[Transaction], Awaitable[None]] | None = None,
    ) -> int:
        """Store vectors for those items that search still finds, and return how many. `texts` were
        read at the `epoch`. `also` runs in the same transaction. Raises `Stale` if something was
        erased meanwhile.
        """
        vectors: dict[str, Vectors] = {}
        if self.embedder is not None and texts:
            rows = await self.embedder.vectors_of(list(texts.values()))
            vectors = dict(zip(texts, rows, strict=True))
        async with self.store.transaction(namespace, entry=line, locked=True) as tx:
            if also is not None:
                await also(tx)
            if self.embedder is not None and vectors:
                # A vector is made from other turns too, and must not bring back an erased one.
                if (await tx.words.statistics()).erase_epoch != epoch:
                    raise Stale
                still = await tx.findables.found(list(vectors))
                vectors = {i: vector for i, vector in vectors.items() if i in still}
                await tx.vectors.put(self.embedder.model, vectors)
            line.counts["embedded"] = len(vectors)
        return len(vectors)
