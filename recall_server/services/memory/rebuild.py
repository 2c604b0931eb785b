"""Rebuild: derives memories and the index again from the texts and the events, and compares them
with what search reads. No model is called.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from recall_server.domain.context import Context, Runtime
from recall_server.domain.extraction import Candidate
from recall_server.domain.memory import FINDABLE, Memory, Status
from recall_server.domain.moments import passed
from recall_server.domain.namespace import Namespace
from recall_server.domain.plan import Add, Plan, Settling, Supersede
from recall_server.domain.task import JobState
from recall_server.integrations.extraction.extractor import Extractor
from recall_server.services.memory import commit, derivation, indexing, reconcile
from recall_server.services.memory.derivation import Compared, Progress
from recall_server.services.memory.embedding import promise_lacking, promise_vectors
from recall_server.services.memory.passages import VERBATIM, without_forgotten
from recall_server.services.memory.records import Records, extracted, remade
from recall_server.storage.store import Store

REEXTRACTED = "reextracted"
# If more entries than this are wrong, each transaction writes so many.
ENTRIES_AT_ONCE = 200
_REPLACED = frozenset({Status.SUPERSEDED, Status.CONSOLIDATED})


@dataclass
class Reextracted:
    """How many texts were extracted again, and how their memories changed."""

    texts: int = 0
    added: int = 0
    superseded: int = 0
    deprecated: int = 0
    change_id: str = ""


@dataclass(frozen=True)
class Rebuild:
    """Compares what search reads with what it derives from, repairs it, and extracts again."""

    store: Store
    runtime: Runtime
    rules: Extractor
    # That of the vectors; None without an embedder.
    model: str | None

    async def compare(self, context: Context, on_progress: Progress = lambda _: None) -> Compared:
        """Compare all of a namespace, as of one moment, with what it is derived to."""
        resumed = await derivation.derive(self.store, context.namespace, on_progress)
        async with self.store.snapshot(context.namespace) as tx:
            compared, differences = await derivation.compare(tx, self.model)
        made = await self._records.find(context.namespace, differences.altered)
        async with self.store.transaction(context.namespace) as tx:
            unmade = (await remade(tx, made)).why if made else {}
            await tx.rebuilt.discard()
        return replace(compared, unmade=unmade, resumed=resumed)

    async def mend(self, context: Context, on_progress: Progress = lambda _: None) -> Compared:
        """Replace what differs, in one transaction that only writes: it compares again if what
        differs has changed meanwhile. Return the comparison from before. Readers see the old rows
        until the commit, unless so many entries are wrong that writers would wait too long.
        """
        resumed = await derivation.derive(self.store, context.namespace, on_progress)
        async with self.store.snapshot(context.namespace) as tx:
            before, differences = await derivation.compare(tx, self.model)
        compared = before
        repaired, unmade = await self._remade(context.namespace, differences.altered)
        many = not repaired and len(differences.wrong) > ENTRIES_AT_ONCE
        if many:
            await self._replaced(context.namespace, sorted(differences.wrong))
        if repaired or many:
            await derivation.derive(self.store, context.namespace, on_progress)
            async with self.store.snapshot(context.namespace) as tx:
                compared, differences = await derivation.compare(tx, self.model)
        # `erasing`: rows of disputes and vectors are deleted.
        async with self.store.transaction(
            context.namespace, entry=context.entry, erasing=True, locked=True
        ) as tx:
            if not compared.same or differences.digests:
                if not await derivation.still(tx, differences):
                    compared, differences = await derivation.compare(tx, self.model)
                await derivation.mend(tx, differences)
            if not before.same or before.vectors:
                # Caches drop what they hold: new entries and vectors may take the slots of lost
                # ones.
                await tx.erasures.next_epoch()
            await tx.rebuilt.discard()
            context.entry.counts["mended"] = len(differences.states)
            context.entry.counts["repaired"] = len(repaired)
        if before.vectors or differences.wrong or differences.broken:
            await promise_lacking(self.store, self.runtime, context.namespace, self.model)
            self.runtime.wake()
        result = replace(before, relations=compared.relations, unmade=unmade, resumed=resumed)
        return replace(result, repaired=tuple(repaired))

    async def _replaced(self, namespace: Namespace, wrong: Sequence[str]) -> None:
        """Make entries anew, some at a time: of most of an index one transaction takes long."""
        for first in range(0, len(wrong), ENTRIES_AT_ONCE):
            async with self.store.transaction(namespace) as tx:
                await tx.lock()
                ids = wrong[first : first + ENTRIES_AT_ONCE]
                found = await tx.memories.get(ids)
                # Some may have been forgotten since they were compared.
                gone = {i for i, one in found.items() if one.status not in FINDABLE}
                await indexing.replace(tx, [one for one in ids if one not in gone])

    async def _remade(
        self, namespace: Namespace, altered: Sequence[str]
    ) -> tuple[list[str], Mapping[str, str]]:
        """Write those of these memories again that are kept or that the rules make of their texts,
        exactly as they were recorded. Return their ids, and why the others are not.
        """
        made = await self._records.find(namespace, altered)
        repaired: list[str] = []
        unmade: dict[str, str] = {}
        for first in range(0, len(altered), ENTRIES_AT_ONCE):
            some = {one: made[one] for one in altered[first : first + ENTRIES_AT_ONCE]}
            async with self.store.transaction(namespace, erasing=True) as tx:
                await tx.lock()
                again = await self._records.write(tx, some)
                await tx.rebuilt.discard()
            repaired += [one for one in again.found if one not in again.why]
            unmade |= again.why
        return repaired, unmade

    @property
    def _records(self) -> Records:
        return Records(self.store, self.rules)

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
        candidates, extractor = await extracted(self.rules, episode)
        async with self.store.change(context) as tx:
            if await tx.jobs.state(episode.job_id) in (JobState.QUEUED, JobState.PROCESSING):
                return  # its first extraction is still to come
            every = await tx.memories.get(await tx.findables.memories_of_episode(episode.id))
            if any(one.extractor == VERBATIM for one in every.values()):
                return  # somebody chose these words
            known = [one for one in every.values() if one.retired_at is None]
            left = _without_replaced(
                await without_forgotten(tx, episode, candidates), every.values(), known
            )
            made = reconcile.memories_of(episode, left)
            old = [
                one for one in known if one.extractor.startswith("rules/") and one.id not in made
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
            if self.model and counts.get("added"):
                await promise_vectors(tx, self.runtime, [episode.id])
            context.entry.ids += [episode.id, *plan.ids()]
            context.entry.counts |= {**counts, "deprecated": len(ended)}
        done.texts += 1
        done.added += counts.get("added", 0)
        done.superseded += counts.get("superseded", 0)
        done.deprecated += len(ended)


def _without_replaced(
    candidates: Iterable[Candidate], memories: Iterable[Memory], active: Iterable[Memory]
) -> list[Candidate]:
    """Return the candidates without those of words whose memory has given way to another: they
    would hold again. Words that an active memory cites too are read.
    """
    gone = [one.citation.span for one in memories if one.status in _REPLACED]
    held = [one.citation.span for one in active]
    return [
        one
        for one in candidates
        if any(map(one.span.overlaps, held)) or not any(map(one.span.overlaps, gone))
    ]


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
