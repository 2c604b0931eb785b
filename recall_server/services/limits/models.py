"""Limits of language models: notes for the operator that a key is rejected, rules that take over
meanwhile, and how many tokens a namespace may use in a day.

The maximum cost of a call is reserved before it and settled after it, so that any number of workers
stay within the budget.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Generic, Protocol, TypeVar

from recall_server.domain.errors import BudgetSpent, ModelKeyRejected, ModelUnavailable
from recall_server.domain.extraction import Extraction, RejectedKey, Role, Usage
from recall_server.domain.memory import Memory
from recall_server.domain.namespace import Namespace
from recall_server.domain.plan import Question
from recall_server.integrations.extraction.extractor import (
    Extractor,
    Judge,
    Judgement,
    Merged,
    Merger,
    Passage,
)
from recall_server.storage.store import Store
from recall_server.tracing import Span, tracer


@dataclass(frozen=True)
class ModelKeys:
    """The rejected keys, noted in the database for every process of this server. `job_kind`: the
    kind of the jobs that wait for the key of `Role.EXTRACT`.
    """

    store: Store
    now: Callable[[], datetime]
    job_kind: str
    used: Callable[[Usage], None]
    _noted: set[Role] = field(default_factory=set)

    async def begin(self) -> None:
        """Forget all notes and run the waiting jobs again: this process may have another key."""
        for role in Role:
            await self._forget(role)

    async def rejected(self) -> list[RejectedKey]:
        return await self.store.autocommit(None).server.rejected_keys()

    async def reject(self, role: Role, error: ModelKeyRejected) -> None:
        async with self.store.transaction(None) as tx:
            await tx.server.note_rejected_key(role, error.status, self.now())
        self._noted.add(role)

    async def accept(self, role: Role, usage: Usage) -> None:
        """Count the usage, and if a model was asked, withdraw the note of this process. Notes of
        other processes stay: they may have another key.
        """
        self.used(usage)
        if role in self._noted and usage.model is not None:
            self._noted.discard(role)
            await self._forget(role)

    async def _forget(self, role: Role) -> None:
        async with self.store.transaction(None) as tx:
            await tx.server.forget_rejected_key(role)
            if role is Role.EXTRACT:
                await tx.jobs.requeue_without_key(self.job_kind, self.now())


def _attributes(usage: Usage) -> dict[str, str | int]:
    """Return span attributes by the OpenTelemetry semantic conventions for language models."""
    if usage.model is None:
        return {}
    return {
        "gen_ai.request.model": usage.model,
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
    }


M = TypeVar("M", Extractor, Merger, Judge)


@dataclass(frozen=True)
class _Keyed(Generic[M]):
    """A part that may ask a language model, and notes the state of its key."""

    by: M
    keys: ModelKeys

    @property
    def name(self) -> str:
        return self.by.name

    @property
    def call_tokens_max(self) -> int:
        return self.by.call_tokens_max

    @asynccontextmanager
    async def asking(self, role: Role) -> AsyncIterator[Span]:
        """Ask the model, in a span. Notes that its key was rejected."""
        try:
            with tracer.part(role) as span:
                yield span
        except ModelKeyRejected as error:
            await self.keys.reject(role, error)
            raise

    async def close(self) -> None:
        await self.by.close()


@dataclass(frozen=True)
class KeyedExtractor(_Keyed[Extractor], Extractor):
    """An extractor; `instead` works while the key is rejected."""

    instead: Extractor | None

    @property
    def passage_chars(self) -> int:
        return self.by.passage_chars

    async def extract(self, passage: Passage) -> Extraction:
        try:
            async with self.asking(Role.EXTRACT) as span:
                found = await self.by.extract(passage)
                span.set(_attributes(found.usage))
        except ModelKeyRejected as error:
            if self.instead is None:
                raise
            return replace(await self.instead.extract(passage), fault=error.code)
        await self.keys.accept(Role.EXTRACT, found.usage)
        return found


@dataclass(frozen=True)
class KeyedMerger(_Keyed[Merger], Merger):
    """A merger; `instead` works while the key is rejected."""

    instead: Merger | None

    async def merge(self, memories: Sequence[Memory]) -> Merged | None:
        try:
            async with self.asking(Role.MERGE):
                merged = await self.by.merge(memories)
        except ModelKeyRejected:
            if self.instead is None:
                raise
            return await self.instead.merge(memories)
        if merged is not None:
            await self.keys.accept(Role.MERGE, merged.usage)
        return merged

    async def preview(self, memories: Sequence[Memory]) -> Merged | None:
        return await self.by.preview(memories)


@dataclass(frozen=True)
class KeyedJudge(_Keyed[Judge], Judge):
    """A judge whose judgements are counted. While the key is rejected there is none; `waits` says
    whether that is an error.
    """

    waits: bool
    judged: Callable[[Judgement], None]

    async def judge(self, question: Question) -> Judgement:
        try:
            async with self.asking(Role.JUDGE) as span:
                found = await self.by.judge(question)
                span.set(_attributes(found.usage))
        except ModelKeyRejected as error:
            if self.waits:
                raise
            return Judgement(None, self.name, refused=error.message)
        await self.keys.accept(Role.JUDGE, found.usage)
        self.judged(found)
        return found


DAY_S = 86_400


class Priced(Protocol):
    """Something that costs tokens of a language model."""

    @property
    def call_tokens_max(self) -> int:
        """Tokens in and out that one call may cost; 0: none."""
        ...


@dataclass(frozen=True)
class Budget:
    """The tokens in and out that a namespace may use per day (UTC); 0: any number."""

    store: Store
    now: Callable[[], datetime]
    tokens_a_day: int

    @asynccontextmanager
    async def call(
        self, namespace: Namespace, part: Priced
    ) -> AsyncIterator[Callable[[Usage], None]]:
        """Reserve the maximum cost of one call of `part`. Yields a function that settles the actual
        cost. If it is not called, because the answer was of no use, all that was reserved is spent;
        a call that was not answered (`ModelUnavailable`) costs nothing.

        Raises `BudgetSpent` if the day has not enough left.
        """
        most = part.call_tokens_max
        if not (most and self.tokens_a_day):
            yield lambda _: None
            return
        day, since = divmod(int(self.now().timestamp()), DAY_S)
        async with self.store.transaction(namespace) as tx:
            if not await tx.spend.reserve(day, most, self.tokens_a_day):
                raise BudgetSpent(retry_after_s=float(DAY_S - since))
        cost = most

        def settle(usage: Usage) -> None:
            nonlocal cost
            cost = usage.input_tokens + usage.output_tokens

        try:
            yield settle
        except ModelUnavailable:
            await self._settle(namespace, day, -most)
            raise
        await self._settle(namespace, day, cost - most)

    async def extract(
        self, namespace: Namespace, extractor: Extractor, passage: Passage
    ) -> Extraction:
        """Call the extractor within the budget. Raises what it raises, and `BudgetSpent`."""
        async with self.call(namespace, extractor) as settle:
            found = await extractor.extract(passage)
            settle(found.usage)
        return found

    async def judge(self, namespace: Namespace, judge: Judge, question: Question) -> Judgement:
        """The judgement of a question, paid for. Raises as the judge does, and `BudgetSpent`."""
        async with self.call(namespace, judge) as settle:
            found = await judge.judge(question)
            # An answer that was refused unread was paid for, at an unknown price.
            if found.usage.input_tokens or not found.refused:
                settle(found.usage)
        return found

    async def _settle(self, namespace: Namespace, day: int, more: int) -> None:
        if more:
            async with self.store.transaction(namespace) as tx:
                await tx.spend.settle(day, more)
