"""How many tokens of a language model a namespace may use in a day. The maximum cost of a call is
reserved before it and settled after it, so that any number of workers stay within the budget.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from recall_server.domain.errors import BudgetSpent, ModelUnavailable
from recall_server.domain.extraction import Extraction, Usage
from recall_server.domain.namespace import Namespace
from recall_server.domain.plan import Question
from recall_server.integrations.extraction.extractor import Extractor, Judge, Judgement, Passage
from recall_server.storage.store import Store

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
