"""Rebuild: derives memories and the index again from the texts and the events, compares them with
what search reads, and makes memories again that have lost their row or parts of it. No model is
called.
"""

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from recall_server.domain import record
from recall_server.domain.context import Context, Runtime
from recall_server.domain.episode import Episode, shared_metadata
from recall_server.domain.erasure import BLOCK
from recall_server.domain.extraction import Candidate, Extractor
from recall_server.domain.ids import Namespace
from recall_server.domain.memory import FINDABLE, Memory, Status, importance
from recall_server.domain.memory_event import MemoryState
from recall_server.domain.moments import passed
from recall_server.domain.plan import Add, Plan, Settling, Supersede
from recall_server.domain.record import Made, Remade
from recall_server.domain.task import JobState
from recall_server.services.memory import commit, derivation, indexing, reconcile
from recall_server.services.memory.derivation import Compared, Differences, Progress
from recall_server.services.memory.episodes import (
    VERBATIM,
    passages,
    validate_candidates,
    without_forgotten,
)
from recall_server.services.memory.indexing import promise_lacking, promise_vectors
from recall_server.storage.driver import batches
from recall_server.storage.store import Store, Transaction
from recall_server.storage.tables.memory_events import Kept

TEXTS_AT_ONCE = 20
# Why a memory is not made again.
NOT_ADDED = "No event tells how it was added."
NOT_KEPT = (
    "The rules of this release make it of no text, and no copy of its words is kept: a model or a "
    "person worded it for an earlier release, or other rules made it."
)
TEXT_GONE = "A text that it cites is not there any more."
ERASED = "The words that it cites were erased. Erase it by its id too."
UNCITED = "It is there, without a later citation: no event keeps it and no text tells which it was."


@dataclass(frozen=True)
class Again:
    """The memories that are made again, and `why` others are not, or not wholly, by id."""

    found: Mapping[str, Remade]
    why: Mapping[str, str]


async def remade(tx: Transaction, made: Mapping[str, Made]) -> Again:
    """Return what is made again of these memories, as `tx` sees them. What was erased is not."""
    kept = await tx.rebuilt.kept(made)
    states = await tx.rebuilt.last_states(made)
    found: dict[str, Remade] = {}
    why: dict[str, str] = {}
    for memory_id, by_texts in made.items():
        one = kept.setdefault(memory_id, Kept({}, {}, []))
        again = record.remade(one.row or None, one.citations, one.events, by_texts)
        if again is not None:
            found[memory_id] = again
        else:
            why[memory_id] = NOT_KEPT if any(event.adds for event in one.events) else NOT_ADDED
    ids = {text for one in found.values() for text in _texts(one)}
    texts = {one.id: one.text for one in await tx.episodes.several(sorted(ids))}
    for memory_id, again in [*found.items()]:
        if gone := _gone(again, texts, lost=not kept[memory_id].row):
            why[memory_id] = gone
            del found[memory_id]
        elif not again.whole or max(again.citations) + 1 != states[memory_id].citations:
            why[memory_id] = UNCITED
    return Again(found, why)


def _texts(one: Remade) -> list[str]:
    return sorted({episode_id for episode_id, *_ in one.citations.values()})


def _gone(one: Remade, texts: Mapping[str, str], *, lost: bool) -> str:
    """Return why the words that a memory cites are not there; "" if they are. An erasure did not
    find a memory without a row, which must not come back after it.
    """
    for episode_id, start, end in one.citations.values():
        if episode_id not in texts:
            return TEXT_GONE
        if lost and BLOCK in texts[episode_id][start:end]:
            return ERASED
    return ""


async def extracted(
    rules: Extractor, episode: Episode, *, only: int | None = None
) -> tuple[list[Candidate], str]:
    """Return what the rules make of a text, or of its turn at a position, and their name."""
    found: list[Candidate] = []
    extractor = ""
    for _, passage in passages(episode, rules.passage_chars, only=only):
        if passage is not None:
            one = validate_candidates(await rules.extract(passage), passage)
            found += one.candidates
            extractor = one.extractor
    return found, extractor


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
        compared, differences = await self._derived(context.namespace, on_progress)
        made = await self._made(context.namespace, differences.altered)
        async with self.store.transaction(context.namespace) as tx:
            unmade = (await remade(tx, made)).why if made else {}
            await tx.rebuilt.discard()
        return replace(compared, unmade=unmade)

    async def mend(self, context: Context, on_progress: Progress = lambda _: None) -> Compared:
        """Replace what differs, in one transaction that only writes: it compares again if what
        differs has changed meanwhile. Return the comparison from before. Readers see the old rows
        until the commit, unless so many entries are wrong that writers would wait too long.
        """
        before, differences = await self._derived(context.namespace, on_progress)
        compared = before
        repaired, unmade = await self._remade(context.namespace, differences.altered)
        many = not repaired and len(differences.wrong) > ENTRIES_AT_ONCE
        if many:
            await self._replaced(context.namespace, sorted(differences.wrong))
        if repaired or many:
            compared, differences = await self._derived(context.namespace, on_progress)
        # `erasing`: rows of disputes and vectors are deleted.
        async with self.store.erasing(context.namespace, context.entry) as tx:
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
        return replace(
            before, relations=compared.relations, unmade=unmade, repaired=tuple(repaired)
        )

    async def _derived(
        self, namespace: Namespace, on_progress: Progress
    ) -> tuple[Compared, Differences]:
        """Derive all of a namespace, and compare it as of one moment."""
        resumed = await derivation.derive(self.store, namespace, on_progress)
        async with self.store.snapshot(namespace) as tx:
            compared, differences = await derivation.compare(tx, self.model)
        return replace(compared, resumed=resumed), differences

    async def _replaced(self, namespace: Namespace, wrong: Sequence[str]) -> None:
        """Make entries anew, some at a time: of most of an index one transaction takes long."""
        for ids in batches(wrong, ENTRIES_AT_ONCE):
            async with self.store.transaction(namespace, locked=True) as tx:
                found = await tx.memories.get(ids, quoted=False)
                # Some may have been forgotten since they were compared.
                gone = {i for i, one in found.items() if one.status not in FINDABLE}
                await indexing.replace(tx, [one for one in ids if one not in gone])

    async def _remade(
        self, namespace: Namespace, altered: Sequence[str]
    ) -> tuple[list[str], Mapping[str, str]]:
        """Write those of these memories again that are kept or that the rules make of their texts,
        exactly as they were recorded. Return their ids, and why the others are not.
        """
        made = await self._made(namespace, altered)
        repaired: list[str] = []
        unmade: dict[str, str] = {}
        for ids in batches(altered, ENTRIES_AT_ONCE):
            async with self.store.erasing(namespace) as tx:
                again = await self._write(tx, {one: made[one] for one in ids})
                await tx.rebuilt.discard()
            repaired += [one for one in again.found if one not in again.why]
            unmade |= again.why
        return repaired, unmade

    async def _made(self, namespace: Namespace, ids: Collection[str]) -> dict[str, Made]:
        """Return what texts give for each of these memories: first the texts that it cites or that
        its changes brought, then all others, until nothing lacks.
        """
        made = {one: Made() for one in ids}
        if not made:
            return made
        async with self.store.transaction(namespace, write=False) as tx:
            kept = await tx.rebuilt.kept(ids)
            events = [(i, event) for i, one in kept.items() for event in one.events]
            brought = await tx.rebuilt.texts_of({event.change_id for _, event in events})
            lacking = dict((await remade(tx, made)).why)
        # By change, the memories whose citations in it only a text can tell.
        seeking: dict[str, set[str]] = {}
        for memory_id, event in events:
            if event.lacks_places:
                seeking.setdefault(event.change_id, set()).add(memory_id)
        near = {*brought, *(text for one in kept.values() for text, *_ in one.citations.values())}
        async for episodes in self._near_first(namespace, near):
            far = near.isdisjoint(one.id for one in episodes)
            if not lacking or (far and NOT_KEPT not in lacking.values()):
                break
            touched: set[str] = set()
            for episode in episodes:
                candidates = await self._readings(episode)
                memories = reconcile.proposed(episode, candidates, "", episode.recorded_at)
                for one in lacking.keys() & memories.keys():
                    made[one].memory = memories[one]
                    touched.add(one)
                spans = {(one.span.start, one.span.end) for one in candidates}
                for change_id in brought.get(episode.id, ()):
                    for one in seeking.get(change_id, set()) & lacking.keys():
                        made[one].places.append([(episode.id, *span) for span in sorted(spans)])
                        touched.add(one)
            async with self.store.transaction(namespace, write=False) as tx:
                still = (await remade(tx, {one: made[one] for one in touched})).why
            left = {one: why for one, why in lacking.items() if one not in touched}
            lacking = {**left, **still}
        return made

    async def _near_first(
        self, namespace: Namespace, first: Collection[str]
    ) -> AsyncIterator[list[Episode]]:
        """Yield all texts some at a time, these first."""
        after, left = "", sorted(first)
        while True:
            async with self.store.transaction(namespace, write=False) as tx:
                ids, left = left[:TEXTS_AT_ONCE], left[TEXTS_AT_ONCE:]
                if not ids:
                    ids = await tx.rebuilt.texts(after, TEXTS_AT_ONCE)
                    if not ids:
                        return
                    after = ids[-1]
                    ids = [one for one in ids if one not in first]
                episodes = await tx.episodes.several(ids)
            yield episodes

    async def _readings(self, episode: Episode) -> list[Candidate]:
        """Return what the rules make of a text, as it can be read now, and as it could be before
        words of it were forgotten or held back, as a whole and turn by turn.
        """
        shown = tuple(replace(turn, hidden=False) for turn in episode.turns)
        whole = replace(episode, turns=shown, forgotten=())
        found = [*(await extracted(self.rules, episode))[0]]
        if whole != episode:
            found += (await extracted(self.rules, whole))[0]
        if len(shown) > 1:
            for turn in shown:
                found += (await extracted(self.rules, whole, only=turn.index))[0]
        return found

    async def _write(self, tx: Transaction, made: Mapping[str, Made]) -> Again:
        """Write these memories as they were recorded. Needs an erasing transaction, with the lock
        of the namespace.
        """
        again = await remade(tx, made)
        kept = await tx.rebuilt.kept(again.found)
        states = await tx.rebuilt.last_states(again.found)
        for memory_id, one in again.found.items():
            if kept[memory_id].row:
                await tx.rebuilt.write(memory_id, one.fields, one.citations)
            else:
                texts = await tx.episodes.several(_texts(one))
                row = self._row(kept[memory_id], one, made[memory_id], states[memory_id], texts)
                await tx.rebuilt.add(memory_id, row, one.citations)
        return again

    def _row(
        self, kept: Kept, one: Remade, made: Made, state: MemoryState, texts: Sequence[Episode]
    ) -> dict[str, Any]:
        """Return the row of a lost memory. Nobody has counted who has read it since."""
        event = next(event for event in kept.events if event.adds)
        recorded_at, text = event.rest.get("recorded_at"), one.fields["text"]
        by_rules = made.memory.importance if made.memory else importance(text)
        extractor = event.rest.get("extractor", self.rules.name)
        first = next(each for each in texts if each.id == one.citations[min(one.citations)][0])
        merged = texts if "merge" in extractor.split("/") else [first]
        tags = {tag for each in merged for tag in each.source.tags}
        return {
            **state.fields(),
            **one.fields,
            "recorded_at": datetime.fromisoformat(recorded_at) if recorded_at else event.at,
            "importance": event.rest.get(
                "importance", importance(text) if event.said else by_rules
            ),
            "extractor": extractor,
            "access_count": 0,
            "last_accessed_at": None,
            "session_id": first.source.session_id,
            "agent_id": first.source.agent_id,
            "tags": sorted(tags) if len(merged) > 1 else list(first.source.tags),
            "metadata": shared_metadata([first.source, *(each.source for each in merged)]),
        }

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
        if episode is None or episode.kept_as is not None:
            return
        if passed(episode.expires_at, self.runtime.now()):
            return
        candidates, extractor = await extracted(self.rules, episode)
        async with self.store.change(context) as tx:
            if await tx.jobs.state(episode.job_id) in (JobState.QUEUED, JobState.PROCESSING):
                return  # its first extraction is still to come
            ids = await tx.findables.memories_from(episode.id)
            every = await tx.memories.get(ids, quoted=False)
            if any(one.extractor == VERBATIM for one in every.values()):
                return  # somebody chose these words
            now = await tx.moment()
            known = [one for one in every.values() if one.retired_at is None]
            left = _without_replaced(
                await without_forgotten(tx, episode, candidates), every.values(), known
            )
            made = reconcile.proposed(episode, left, extractor, now)
            old = [
                one for one in known if one.extractor.startswith("rules/") and one.id not in made
            ]
            plan = await reconcile.plan(
                tx, episode, left, extractor=extractor, now=now, settling=Settling(), without=old
            )
            plan, ended = _replacing(plan, old)
            await commit.apply(tx, plan, now)
            for one in ended:
                await tx.memories.retire([one.id], Status.DEPRECATED, now, reason=REEXTRACTED)
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
