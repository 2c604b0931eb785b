"""Rebuild: derives memories and the index again from the texts and the events, and compares them
with what search reads. No model is called.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

from recall_server.domain.context import Context, Runtime
from recall_server.domain.episode import Episode
from recall_server.domain.extraction import Candidate
from recall_server.domain.memory import Memory, Status
from recall_server.domain.memory_event import MemoryState
from recall_server.domain.moments import passed
from recall_server.domain.namespace import Namespace
from recall_server.domain.plan import Add, Plan, Settling, Supersede
from recall_server.domain.task import JobState
from recall_server.integrations.extraction.extractor import Extractor
from recall_server.services.memory import commit, indexing, reconcile
from recall_server.services.memory.embedding import promise_vectors
from recall_server.services.memory.passages import passages, validate_candidates, without_forgotten
from recall_server.storage.index.words import postings
from recall_server.storage.store import Store, Transaction

NAMED_MAX = 100
REEXTRACTED = "reextracted"

Progress = Callable[[int], object]


class _Digest:
    """A SHA-256 over values in the order in which they are added."""

    def __init__(self) -> None:
        self._sum = hashlib.sha256()

    def add(self, value: object) -> None:
        self._sum.update(json.dumps(value, default=str).encode() + b"\n")

    def __str__(self) -> str:
        return self._sum.hexdigest()


@dataclass(frozen=True)
class Compared:
    """The comparison of what search reads with what texts and events say.

    `memories`: the number of memories.
    `different`: the ids of those whose state differs, `NAMED_MAX` at most.
    `items`, `words`: how many items and words of the index differ.
    `digest`, `rebuilt`: the digests of what is read, and of what is derived.
    """

    memories: int
    different: tuple[str, ...]
    items: int
    words: int
    digest: str
    rebuilt: str

    @property
    def same(self) -> bool:
        return self.digest == self.rebuilt


@dataclass
class Reextracted:
    """How many texts were extracted again, and how their memories changed."""

    texts: int = 0
    added: int = 0
    superseded: int = 0
    deprecated: int = 0
    change_id: str = ""


@dataclass
class _Sides:
    """The comparison so far."""

    live: _Digest = field(default_factory=_Digest)
    derived: _Digest = field(default_factory=_Digest)
    different: dict[str, MemoryState] = field(default_factory=dict)
    memories: int = 0


@dataclass(frozen=True)
class Rebuild:
    """Compares what search reads with what it derives from, repairs it, and extracts again."""

    store: Store
    runtime: Runtime
    rules: Extractor
    embeds: bool

    async def compare(self, context: Context, on_progress: Progress = lambda _: None) -> Compared:
        """Compare all of a namespace in one snapshot."""
        async with self.store.snapshot(context.namespace) as tx:
            return (await _compared(tx, on_progress))[0]

    async def mend(self, context: Context, on_progress: Progress = lambda _: None) -> Compared:
        """Give memories the state of their last event, and rebuild the index if anything differs,
        in one transaction. Return the comparison from before. Readers see the old state until the
        commit.
        """
        async with self.store.change(context) as tx:
            await tx.lock()
            compared, different = await _compared(tx, on_progress)
            if not compared.same:
                for memory_id, state in different.items():
                    await tx.memories.mend(memory_id, state)
                await tx.words.spoil()
                await indexing.renew_within(tx)
            context.entry.counts["mended"] = len(different)
        return compared

    async def reextract(
        self, namespace: Namespace, begin: Callable[[], Context], on_progress: Progress
    ) -> Reextracted:
        """Extract each text again with the rules of this release. A memory that they now make of
        the same words supersedes the one that they made before; a memory that they no longer make
        is deprecated. Each text is one transaction; together they are one change, which can be
        undone. A second run continues where the first was interrupted.
        """
        done = Reextracted()
        for number, episode_id in enumerate(await self._texts(namespace), 1):
            context = begin()
            done.change_id = done.change_id or context.entry.id
            context.entry.part_of = done.change_id
            await self._anew(context, episode_id, done)
            on_progress(number)
        self.runtime.wake()
        return done

    async def _texts(self, namespace: Namespace) -> list[str]:
        found: list[str] = []
        async with self.store.snapshot(namespace) as tx:
            async for _, episodes in tx.findables.to_index():
                found += episodes
        return found

    async def _anew(self, context: Context, episode_id: str, done: Reextracted) -> None:
        async with self.store.transaction(context.namespace, write=False) as tx:
            episode = await tx.episodes.get(episode_id)
        now = self.runtime.now()
        if episode is None or episode.kept_as is not None or passed(episode.expires_at, now):
            return
        candidates, extractor = await self._extracted(episode)
        async with self.store.change(context) as tx:
            await tx.lock()
            if await tx.jobs.state(episode.job_id) in (JobState.QUEUED, JobState.PROCESSING):
                return  # its first extraction is still to come
            left = await without_forgotten(tx, episode, candidates)
            made = reconcile.ids_of(episode, left)
            old = [
                one
                for one in await tx.memories.of_episode(episode.id)
                if one.extractor.startswith("rules/") and one.id not in made
            ]
            plan = await reconcile.plan(
                tx, episode, left, extractor=extractor, now=now, settling=Settling(), without=old
            )
            plan, ended = _replacing(plan, old)
            await commit.apply(tx, plan, now)
            for one in ended:
                await tx.memories.retire(one.id, Status.DEPRECATED, now, reason=REEXTRACTED)
            await indexing.hide(tx, [one.id for one in ended])
            await commit.settle_ended(tx, now)
            counts = plan.counts()
            if self.embeds and counts.get("added"):
                await promise_vectors(tx, self.runtime, [episode.id])
            context.entry.ids += [episode.id, *plan.ids()]
            context.entry.counts |= {**counts, "deprecated": len(ended)}
        done.texts += 1
        done.added += counts.get("added", 0)
        done.superseded += counts.get("superseded", 0)
        done.deprecated += len(ended)

    async def _extracted(self, episode: Episode) -> tuple[list[Candidate], str]:
        found: list[Candidate] = []
        extractor = ""
        for _, passage in passages(episode, self.rules.passage_chars):
            if passage is not None:
                one = validate_candidates(await self.rules.extract(passage), passage)
                found += one.candidates
                extractor = one.extractor
        return found, extractor


def _replacing(plan: Plan, old: Iterable[Memory]) -> tuple[Plan, list[Memory]]:
    """Return the plan in which each old memory is superseded by a new one of overlapping words, and
    the old memories without such a one.
    """
    new = [change.memory for change in plan.changes if isinstance(change, Add)]
    changes, ended = list(plan.changes), []
    for one in old:
        span = one.citation.span
        by = next((made for made in new if made.citation.span.overlaps(span)), None)
        if by is None:
            ended.append(one)
        else:
            changes.append(Supersede(one.id, by.id, one.valid_from, REEXTRACTED))
    return Plan(tuple(changes), plan.questions, plan.decisions), ended


async def _compared(
    tx: Transaction, on_progress: Progress
) -> tuple[Compared, dict[str, MemoryState]]:
    sides = _Sides()
    async for memory_id, live, derived in tx.memories.states():
        sides.memories += 1
        sides.live.add([memory_id, vars(live)])
        sides.derived.add([memory_id, vars(derived)])
        if live != derived:
            sides.different[memory_id] = derived
        on_progress(sides.memories)
    items, terms = await _indexed(tx)
    expected_items, expected_terms = await _to_index(tx, partial(on_progress, sides.memories))
    for digest, found, words in (
        (sides.live, items, terms),
        (sides.derived, expected_items, expected_terms),
    ):
        digest.add(sorted(found))
        digest.add(sorted(words.items()))
    compared = Compared(
        sides.memories,
        tuple(sides.different)[:NAMED_MAX],
        len(items ^ expected_items),
        len(set((terms - expected_terms) | (expected_terms - terms))),
        str(sides.live),
        str(sides.derived),
    )
    return compared, sides.different


async def _indexed(tx: Transaction) -> tuple[set[str], Counter[str]]:
    """Return the items that search finds, and how many of them contain each word."""
    items: set[str] = set()
    ids, after = await tx.findables.page(0)
    while ids:
        items.update(ids)
        ids, after = await tx.findables.page(after)
    return items, Counter(await tx.words.frequencies())


async def _to_index(
    tx: Transaction, on_page: Callable[[], object]
) -> tuple[set[str], Counter[str]]:
    """Return the same as `_indexed`, derived from texts and memories."""
    items: set[str] = set()
    terms: Counter[str] = Counter()
    async for memories, episodes in tx.findables.to_index():
        found = await tx.findables.memories(memories)
        found |= await indexing.of_episodes(tx, episodes)
        made = postings(found)
        items.update(made.ids)
        terms.update(term for term, *_ in made.rows)
        on_page()
    return items, terms
