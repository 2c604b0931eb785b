"""Limits of calls per minute: by token, by namespace, and without a valid token by address.
Replicas on one database share their counts about once a second.

Limits of language models: notes for the operator that a key is rejected, rules that take over
meanwhile, and how many tokens a namespace may use in a day. The maximum cost of a call is reserved
before it and settled after it, so that any number of workers stay within the budget.
"""

import asyncio
import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from ipaddress import IPv6Address, ip_address
from typing import Generic, TypeVar

import structlog

from recall_server.domain.errors import (
    BudgetSpent,
    ModelKeyRejected,
    ModelUnavailable,
    RateLimited,
    RecallError,
)
from recall_server.domain.extraction import (
    Author,
    Extraction,
    Extractor,
    Judge,
    Judgement,
    Merged,
    Merger,
    Passage,
    RejectedKey,
    Role,
    Usage,
)
from recall_server.domain.ids import Namespace
from recall_server.domain.memory import Memory
from recall_server.domain.plan import Question
from recall_server.storage.store import Store
from recall_server.telemetry import tracer

MINUTE_S = 60
KEYS_MAX = 100_000

Key = tuple[str, ...]
Counted = tuple[Key, int]
"""A key and the number of a minute."""


class SlidingWindow:
    """Sliding windows of a minute, one per key. Beyond `keys_max` keys, the one that was used
    longest ago is forgotten.

    With `shared`, `take_unshared` returns the counts of this server to publish to the replicas, and
    `learn` takes in the published sums.
    """

    def __init__(
        self, now: Callable[[], datetime], *, shared: bool = False, keys_max: int = KEYS_MAX
    ) -> None:
        self._now = now
        self._shared = shared
        self._keys_max = keys_max
        # The calls of this minute and of the previous one.
        self._calls: OrderedDict[Key, dict[int, int]] = OrderedDict()
        self._unshared: dict[Counted, int] = {}

    def take(self, key: Key, limit: int) -> None:
        """Count one more call. The calls of this minute count, and those of the previous one in
        proportion to its part of the sliding window. Raises `RateLimited`, without counting it, if
        it exceeds the limit; 0: any number.
        """
        if not limit:
            return
        minute, left = self._minute()
        known = self._calls.setdefault(key, {})
        self._calls.move_to_end(key)
        if len(self._calls) > self._keys_max:
            self._calls.popitem(last=False)
        if minute not in known:
            known = self._calls[key] = {minute - 1: known.get(minute - 1, 0), minute: 0}
            if self._shared:
                # Publishing zero calls returns the sum of the other replicas.
                self._unshared.setdefault((key, minute - 1), 0)
        before, calls = known.get(minute - 1, 0), known[minute]
        if int(before * left / MINUTE_S + calls) + 1 > limit:
            raise RateLimited(retry_after_s=_wait_s(before, calls, left, limit), limit=limit)
        known[minute] += 1
        if self._shared:
            self._unshared[key, minute] = self._unshared.get((key, minute), 0) + 1

    def _minute(self) -> tuple[int, float]:
        """Return the number of this minute, and the seconds that are left of it."""
        minute, passed = divmod(self._now().timestamp(), MINUTE_S)
        return int(minute), MINUTE_S - passed

    def take_unshared(self) -> dict[Counted, int]:
        """Return the counts of this server since the last call, and clear them."""
        counts, self._unshared = self._unshared, {}
        return counts

    def put_back(self, counts: dict[Counted, int]) -> None:
        """Keep counts that could not be published for the next time, if they still matter."""
        minute, _ = self._minute()
        for (key, at), calls in counts.items():
            if at >= minute - 1:
                self._unshared[key, at] = self._unshared.get((key, at), 0) + calls

    def learn(self, sums: dict[Counted, int]) -> None:
        """Take in the sums of all replicas, plus the calls counted here meanwhile."""
        for (key, at), calls in sums.items():
            known = self._calls.get(key, {})
            if at in known:
                known[at] = calls + self._unshared.get((key, at), 0)


def _wait_s(before: int, calls: int, left: float, limit: int) -> int:
    """Return the whole seconds until one more call fits, as the previous minute fades."""
    if calls < limit:
        # before * rest / minute + calls < limit
        rest = MINUTE_S * (limit - calls) / before if before else MINUTE_S
        return max(1, math.floor(left - rest) + 1)
    return math.floor(left + MINUTE_S * (1 - limit / calls)) + 1


log = structlog.get_logger()

SHARE_S = 1.0
_BITS_OF_A_NETWORK = 64


class Rates:
    def __init__(
        self,
        store: Store,
        now: Callable[[], datetime],
        *,
        token_calls: int,
        namespace_calls: int,
        bad_tokens: int,
        anonymous: int = 0,
        keys_max: int = KEYS_MAX,
    ) -> None:
        """Each limit is per minute; 0: any number. `keys_max`: how many callers are told apart."""
        self._store = store
        self._now = now
        # An SQLite file has one server; a Postgres database may have any number.
        self.shared = store.engine == "postgres"
        self._windows = SlidingWindow(now, shared=self.shared, keys_max=keys_max)
        self._token_calls = token_calls
        self._namespace_calls = namespace_calls
        self._bad, self._bad_tokens = SlidingWindow(now, keys_max=keys_max), bad_tokens
        self._open, self._anonymous = SlidingWindow(now, keys_max=keys_max), anonymous
        self._forgotten = 0

    async def call(self, namespace: Namespace, accessor: str) -> None:
        """Count a call by a token. Raises `RateLimited`."""
        self._windows.take((namespace, accessor), self._token_calls)
        self._windows.take((namespace, ""), self._namespace_calls)

    async def bad_token(self, address: str) -> None:
        """Count a call from `address` with an invalid token. Raises `RateLimited`."""
        self._bad.take((network_of(address),), self._bad_tokens)

    async def anonymous(self, address: str) -> None:
        """Count a call from `address` that needs no token. Raises `RateLimited`."""
        self._open.take((network_of(address),), self._anonymous)

    async def run(self) -> None:
        """Share the counts until cancelled."""
        while self.shared:
            await asyncio.sleep(SHARE_S)
            try:
                await self.share()
            except RecallError as error:
                log.warning("rates_not_shared", code=error.code)

    async def share(self) -> None:
        """Publish the counts and learn those of all replicas in one statement, if there were calls.
        If the database does not answer, this server goes on with what it knows.
        """
        unshared = self._windows.take_unshared()
        if not unshared:
            return
        keys = {(Namespace(key[0]), key[1], minute): (key, minute) for key, minute in unshared}
        minute = int(self._now().timestamp() // MINUTE_S)
        try:
            async with self._store.transaction(None) as tx:
                sums = await tx.rates.add({one: unshared[key] for one, key in keys.items()})
                if self._forgotten != minute:
                    await tx.rates.forget(before=minute - 1)
        except BaseException:
            self._windows.put_back(unshared)
            raise
        self._forgotten = minute
        self._windows.learn({keys[one]: calls for one, calls in sums.items()})


def network_of(address: str) -> str:
    """Return what counts as one address. For IPv6 it is the network, as its holder has 2**64
    addresses.
    """
    try:
        parsed = ip_address(address)
    except ValueError:
        return "unknown"
    if isinstance(parsed, IPv6Address):
        return f"{int(parsed) >> (128 - _BITS_OF_A_NETWORK):x}"
    return str(parsed)


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


M = TypeVar("M", bound=Author)
A = TypeVar("A", bound=Extraction | Merged | Judgement | None)


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

    async def asked(self, role: Role, answer: Awaitable[A]) -> A:
        """Return the answer of the model, in a span. Notes that its key was rejected, or accepted,
        and counts the usage.
        """
        try:
            with tracer.part(role) as span:
                found = await answer
                if found is not None and (usage := found.usage).model is not None:
                    # By the OpenTelemetry semantic conventions for language models.
                    span.update(
                        {
                            "gen_ai.request.model": usage.model,
                            "gen_ai.usage.input_tokens": usage.input_tokens,
                            "gen_ai.usage.output_tokens": usage.output_tokens,
                        }
                    )
        except ModelKeyRejected as error:
            await self.keys.reject(role, error)
            raise
        if found is not None:
            await self.keys.accept(role, found.usage)
        return found

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
            return await self.asked(Role.EXTRACT, self.by.extract(passage))
        except ModelKeyRejected as error:
            if self.instead is None:
                raise
            return replace(await self.instead.extract(passage), fault=error.code)


@dataclass(frozen=True)
class KeyedMerger(_Keyed[Merger], Merger):
    """A merger; `instead` works while the key is rejected."""

    instead: Merger | None

    async def merge(self, memories: Sequence[Memory]) -> Merged | None:
        try:
            return await self.asked(Role.MERGE, self.by.merge(memories))
        except ModelKeyRejected:
            if self.instead is None:
                raise
            return await self.instead.merge(memories)

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
            found = await self.asked(Role.JUDGE, self.by.judge(question))
        except ModelKeyRejected as error:
            if self.waits:
                raise
            return Judgement(None, self.name, refused=error.message)
        self.judged(found)
        return found


DAY_S = 86_400


@dataclass(frozen=True)
class Budget:
    """The tokens in and out that a namespace may use per day (UTC); 0: any number."""

    store: Store
    now: Callable[[], datetime]
    tokens_a_day: int

    async def ask(self, namespace: Namespace, most: int, answer: Callable[[], Awaitable[A]]) -> A:
        """Return an answer that may cost `most` tokens, which are reserved for it. All of them are
        spent if it was refused at an unknown price, or could not be used; a call that was not
        answered (`ModelUnavailable`) costs nothing.

        Raises what `answer` raises, and `BudgetSpent` if the day has not enough left.
        """
        if not (most and self.tokens_a_day):
            return await answer()
        day, since = divmod(int(self.now().timestamp()), DAY_S)
        async with self.store.transaction(namespace) as tx:
            if not await tx.spend.reserve(day, most, self.tokens_a_day):
                raise BudgetSpent(retry_after_s=float(DAY_S - since))
        try:
            found = await answer()
        except ModelUnavailable:
            await self._settle(namespace, day, -most)
            raise
        if found is not None and (found.usage.input_tokens or not found.refused):
            cost = found.usage.input_tokens + found.usage.output_tokens
            await self._settle(namespace, day, cost - most)
        return found

    async def _settle(self, namespace: Namespace, day: int, more: int) -> None:
        if more:
            async with self.store.transaction(namespace) as tx:
                await tx.spend.settle(day, more)
