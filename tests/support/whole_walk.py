"""Random walks that take every kind of step, and the state after each."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

from recall_server.application import Application
from recall_server.domain.intents import Intent
from recall_server.domain.permissions import Rights, Scope
from recall_server.domain.plan import Choice, Policy, RelationKind
from recall_server.services.erasure.purge_source import BadSource
from recall_server.services.memory.ingest import Submission
from recall_server.services.memory.intents import Wish
from recall_server.services.tasks.reviews import ReviewKind, Verdict
from tests.support.conversation import ALICE, context, drained, memories
from tests.support.erasure import select
from tests.support.index_walk import HELD, LINES, PASSAGES, Walk
from tests.support.runtime import Clock
from tests.support.transfer import BOB, exported, taken_in

# All that a search goes by and all that is believed or waits; what was forgotten is neither. To
# propose that something is forgotten changes no memory.
PRESENT = """
SELECT id, text, status, superseded_by, valid_until, retired_at, expires_at, confidence,
  reinforcements FROM memories WHERE status <> 'forgotten' ORDER BY id;
SELECT c.memory_id, c.position, c.episode_id, c.span_start, c.span_end
FROM citations c JOIN memories m ON m.namespace = c.namespace AND m.id = c.memory_id
WHERE m.status <> 'forgotten' ORDER BY c.memory_id, c.position;
SELECT item_id, turn_id, span_start, span_end FROM documents WHERE findable ORDER BY item_id;
SELECT term, documents FROM terms WHERE documents > 0 ORDER BY term;
SELECT documents, words FROM namespaces WHERE documents > 0;
SELECT type, topic, memories FROM memory_counts WHERE memories > 0 ORDER BY type, topic;
SELECT t.id, t.state FROM turns t WHERE NOT EXISTS (SELECT 1 FROM forgotten f
  WHERE f.namespace = t.namespace AND f.item_id = t.episode_id) ORDER BY t.id;
SELECT item_id, state, decided_by, decided_at, reasons FROM quarantine q
WHERE NOT EXISTS (SELECT 1 FROM forgotten f
  WHERE f.namespace = q.namespace AND f.item_id = q.episode_id) ORDER BY item_id;
SELECT question_id, memory_id, side FROM disputes WHERE closed_at IS NULL ORDER BY 1, 2;
SELECT id, memory_id, side FROM proposals WHERE closed_at IS NULL AND kind <> 'forget'
ORDER BY id, memory_id;
SELECT e.item_id FROM embeddings e
JOIN documents d ON d.namespace = e.namespace AND d.slot = e.document
WHERE d.findable ORDER BY e.item_id
"""
ALL_RIGHTS = Rights(frozenset(Scope))
UNFORGOTTEN = "SELECT id FROM memories WHERE namespace = 'alice' AND status <> 'forgotten'"
TEXTS = "SELECT id FROM episodes WHERE namespace = 'alice' ORDER BY id"


async def present(application: Application) -> list[list[tuple[Any, ...]]]:
    await drained(application)
    return [
        *[
            [tuple(row.values()) for row in map(dict, await select(application.store, query))]
            for query in PRESENT.split(";")
        ],
        await related(application),
    ]


async def related(application: Application) -> list[tuple[Any, ...]]:
    """The relations of Alice that stand, between memories that are not forgotten."""
    ids = {row["id"] for row in await select(application.store, UNFORGOTTEN)}
    async with application.store.transaction(ALICE, write=False) as tx:
        found = await tx.relations.of_memories(sorted(ids), limit=1_000)
    return sorted(
        (one.from_id, one.to_id, one.kind, one.confidence)
        for one in found
        if {one.from_id, one.to_id} <= ids
    )


async def file_of(application: Application) -> bytes:
    """An export of another namespace, in which two people live and a change waits."""
    for text in ("Kim: I live in Oslo.", "Lou: I prefer jam. I live in Faro."):
        submission = Submission(text, "life")
        await application.services.ingest.remember(context(application, BOB), submission)
    wish = Wish(Intent.REMEMBER, Submission("Max lives in Split.", "life"), review=True)
    await application.services.intents.submit(context(application, BOB), wish)
    await drained(application)
    return await exported(application, BOB)


class WholeWalk(Walk):
    """A walk of all steps; it erases only if it `erases`. `file` is the export that it imports."""

    def __init__(
        self, application: Application, seed: int, clock: Clock, file: bytes, *, erases: bool
    ) -> None:
        super().__init__(application, seed)
        self.clock = clock
        self.file = file
        self.erases = erases

    def steps(self) -> tuple[tuple[int, Callable[[], Awaitable[object]]], ...]:
        return (
            *super().steps(),
            (2, self.submit),
            (2, self.correct),
            (2, self.resolve),
            (1, self.reject),
            (2, self.purge_source),
            (1, self.take_in),
            (2, self.expire),
            (1, self.rebuild),
            (1, self.reextract),
            (1, self.forget_by_words),
            (1, self.update),
            (2, self.propose),
            (1, self.decide),
            (1, self.relabel),
            (1, self.recheck),
            (1, self.relate),
            (1, self.erase_passage),
        )

    async def erase(self) -> bool:
        return await super().erase() if self.erases else False

    async def erase_passage(self) -> bool:
        if chosen := await self._one(PASSAGES) if self.erases else "":
            await self.application.services.erase.memory(context(self.application), chosen)
            self.erased.append(chosen)
        return bool(chosen)

    async def submit(self) -> None:
        await self._submit(Wish(Intent.REMEMBER, Submission(self._line(), "life")))

    async def correct(self) -> bool:
        if chosen := await self._memory():
            await self._submit(Wish(Intent.CORRECT, Submission(self._line(), ""), chosen))
        return bool(chosen)

    async def resolve(self) -> bool:
        """Let a contradiction stay open, and answer the one that has waited longest."""
        services = self.application.services
        await services.tasks.set_policy(context(self.application), Policy.ASK)
        await self.submit()
        await services.tasks.set_policy(context(self.application), None)
        waiting = await services.reviews.waiting(
            context(self.application), [ReviewKind.DISPUTE], limit=1
        )
        if waiting and self.chance.random() < 0.5:
            choice = self.chance.choice((Choice.KEEP_NEW, Choice.KEEP_EXISTING, Choice.KEEP_BOTH))
            await services.reviews.answer(context(self.application), waiting[0].id, choice)
        return True

    async def reject(self) -> bool:
        if chosen := await self._one(HELD):
            await self.application.services.quarantine.reject(context(self.application), chosen)
        return bool(chosen)

    async def purge_source(self) -> bool:
        if chosen := await self._one(TEXTS):
            # In as many pieces as it can be.
            sources = replace(self.application.services.sources, rows_max=1)
            await sources.purge(
                context(self.application), BadSource(episode_id=chosen), dry_run=False
            )
        return bool(chosen)

    async def take_in(self) -> None:
        await taken_in(self.application, self.file)

    async def expire(self) -> None:
        """Store a text that expires soon, and wait until it has."""
        ends = self.clock() + timedelta(minutes=1)
        submission = Submission(self._line(), "life", expires_at=ends)
        await self.application.services.ingest.remember(context(self.application), submission)
        await drained(self.application)
        self.clock.pass_(timedelta(minutes=1))
        await drained(self.application)

    async def rebuild(self) -> None:
        await self.application.services.rebuild.mend(context(self.application))

    async def reextract(self) -> None:
        rebuild = self.application.services.rebuild
        await rebuild.reextract(ALICE, lambda: context(self.application), lambda _: None)

    async def forget_by_words(self) -> None:
        await self._submit(Wish(Intent.FORGET, Submission(self._line(), "")))

    async def update(self) -> bool:
        if chosen := await self._memory():
            await self.application.services.intents.update(
                context(self.application),
                chosen,
                text=self._line(),
                type_=None,
                confidence=None,
                dry_run=False,
            )
        return bool(chosen)

    async def propose(self) -> bool:
        """Let a change wait."""
        chosen = await self._memory() if self.chance.random() < 0.5 else ""
        intent = self.chance.choice((Intent.CORRECT, Intent.FORGET)) if chosen else Intent.REMEMBER
        text = "" if intent is Intent.FORGET else self._line()
        await self._submit(Wish(intent, Submission(text, "life"), chosen, review=True))
        return True

    async def decide(self) -> bool:
        """Answer the proposal that has waited longest. To reject one changes no memory."""
        reviews = self.application.services.reviews
        waiting = await reviews.waiting(context(self.application), [ReviewKind.PROPOSAL], limit=1)
        if waiting:
            verdict = self.chance.choice((Verdict.ACCEPT, Verdict.REJECT))
            await reviews.answer(
                context(self.application), waiting[0].id, verdict, rights=ALL_RIGHTS
            )
        return bool(waiting)

    async def relabel(self) -> bool:
        if chosen := await self._one(TEXTS):
            texts = self.application.services.texts
            ends = self.clock() + timedelta(minutes=3) if self.chance.random() < 0.3 else None
            await texts.update(
                context(self.application),
                chosen,
                tags=[self.chance.choice("abc")],
                metadata=None,
                expires_at=ends,
                forever=ends is None and self.chance.random() < 0.3,
            )
        return bool(chosen)

    async def recheck(self) -> None:
        await self.application.services.recheck.begin(context(self.application))

    async def relate(self) -> bool:
        found = await memories(self.application, limit=50)
        if len(found) > 1:
            one, other = self.chance.sample(found, 2)
            kind = self.chance.choice((RelationKind.EXTENDS, RelationKind.REFINES))
            await self.application.services.intents.relate(
                context(self.application), one.id, kind, other.id, 0.5
            )
        return len(found) > 1

    async def _submit(self, wish: Wish) -> None:
        await self.application.services.intents.submit(context(self.application), wish)

    def _line(self) -> str:
        return self.chance.choice(LINES).partition(": ")[2]
