"""Carry out an erasure: in the transaction of the call where it is small, and otherwise in many
short ones of the job `purge`, so that no call waits for it.

Both take the same steps: the first transaction closes what is to be erased, batches of rows are
deleted and redacted, and the last batch ends the erasure. The next batch does not find what
is erased, so after a crash the job goes on where it was.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol

import structlog

from recall_server.domain.erasure import Digests, Kind, Subject
from recall_server.domain.permissions import FULL_ACCESS, AccessScope
from recall_server.services.erasure import redact
from recall_server.services.erasure.ledger import Ledger
from recall_server.services.erasure.redact import Affected
from recall_server.services.erasure.restore_turns import restore_turns
from recall_server.services.erasure.targets import (
    ALL,
    NONE_YET,
    Batch,
    Container,
    Item,
    Named,
    TargetScan,
    Wanted,
)
from recall_server.services.memory.embedding import EMBED
from recall_server.storage.store import Store, Transaction
from recall_server.storage.tables import registry
from recall_server.storage.tables.erasure import OPERATOR, Erasure
from recall_server.storage.tables.registry import Part

log = structlog.get_logger()

JOB_BATCH = Batch(items=50, rows=500)


@dataclass(frozen=True)
class Limits:
    """How much one transaction erases: that of the call `rows_at_once_max` rows, in about a second;
    one of the job `rows_max` rows of a namespace or `batch` of a part, in less.
    """

    rows_at_once_max: int = 10_000
    rows_max: int = 1_000
    batch: Batch = JOB_BATCH


LIMITS = Limits()
# Later than anything was recorded.
EVER = datetime.max.replace(tzinfo=UTC, hour=0)

OnProgress = Callable[[int], object]


@dataclass
class Step:
    """One batch: how many rows it has erased, and whether nothing is left."""

    rows: int
    last: bool


class Targets(Protocol):
    """The rows that one erasure erases."""

    async def scan(self, tx: Transaction) -> bool:
        """Find it, or find what has changed since; False where there is no such thing."""
        ...

    @property
    def counts(self) -> Mapping[str, int]:
        """How many rows were found, by table."""
        ...

    @property
    def affected(self) -> Affected:
        """The rows that were found, as far as they are listed."""
        ...

    async def close(self, tx: Transaction, erasure_id: str) -> int:
        """Close a large one until the job has erased it; how many tokens were revoked."""
        ...

    async def erase_at_once(self, tx: Transaction) -> int:
        """Erase all that was found; how many tokens were revoked."""
        ...

    async def erase_batch(self, tx: Transaction) -> Step:
        """Erase the next rows. After the last ones it is no longer closed."""
        ...


@dataclass
class PartTargets:
    """A container, a subject, a memory or a turn."""

    eraser: "Eraser"
    looked_up: TargetScan
    affected: Affected = field(default_factory=Affected)
    _size: Mapping[str, int] | None = None

    async def scan(self, tx: Transaction) -> bool:
        if self._size is None:
            self._size = await self.looked_up.wanted.size(tx)
        found = await self.looked_up.scan(tx, NONE_YET if is_large(self._size) else ALL)
        self.affected = found or Affected()
        return found is not None

    @property
    def counts(self) -> Mapping[str, int]:
        counts = self.affected.counts()
        if self._size and is_large(self._size):
            return {**counts, **self._size, "spans": self._size["episodes"]}
        return counts

    async def close(self, tx: Transaction, erasure_id: str) -> int:
        """Its tasks end, and nothing of a container is found. No other row is erased yet."""
        first = await self.looked_up.scan(tx, NONE_YET)
        assert first is not None
        await self._apply(tx, first)
        if first.container:
            await tx.erasures.close_container(erasure_id, first.container)
        return 0

    async def erase_at_once(self, tx: Transaction) -> int:
        await self._apply(tx, self.affected)
        return 0

    async def erase_batch(self, tx: Transaction) -> Step:
        found = await self.looked_up.scan(tx, LIMITS.batch) or Affected()
        rows = sum(found.counts().values())
        if rows:
            await self._apply(tx, found)
        return Step(rows, found.last)

    async def _apply(self, tx: Transaction, affected: Affected) -> None:
        eraser, now = self.eraser, self.eraser.now()
        left = await redact.apply(tx, affected, eraser.digests, now)
        await self.looked_up.wanted.erased(tx, affected)
        await restore_turns(tx, left, eraser.new_id, now)
        for episode_id in sorted(affected.episodes.keys() - affected.whole):
            await tx.jobs.add(eraser.new_id("job"), EMBED, {"episode_id": episode_id}, now)


@dataclass
class NamespaceTargets:
    """All that a namespace holds, and its tokens."""

    eraser: "Eraser"
    counts: Mapping[str, int] = field(default_factory=dict)
    affected: Affected = field(default_factory=Affected)
    _tables: list[str] = field(
        default_factory=lambda: [*registry.SOME_AT_A_TIME, "memories", "episodes"]
    )

    async def scan(self, tx: Transaction) -> bool:
        """Of a large one, what is written after the first count is erased and not counted."""
        if not is_large(self.counts):
            self.counts = await tx.erasures.counts()
        return True

    async def close(self, tx: Transaction, erasure_id: str) -> int:  # noqa: ARG002
        """All work for it ends, and no token is let in."""
        await tx.erasures.remember(await redact.digests_of_tasks(tx, self.eraser.digests))
        return await tx.erasures.close_namespace(self.eraser.now())

    async def erase_at_once(self, tx: Transaction) -> int:
        await tx.erasures.remember(await redact.digests_of_all(tx, self.eraser.digests))
        return await tx.erasures.erase_rest(self.eraser.now())

    async def erase_batch(self, tx: Transaction) -> Step:
        while self._tables:
            limit = min(LIMITS.rows_max, registry.BY_NAME[self._tables[0]].batch_rows)
            if rows := await self._erase_some(tx, self._tables[0], limit):
                return Step(rows, last=False)
            del self._tables[0]
        # And what was written by calls that were under way when it was closed.
        await tx.erasures.erase_rest(self.eraser.now())
        return Step(0, last=True)

    async def _erase_some(self, tx: Transaction, table: str, limit: int) -> int:
        digests = self.eraser.digests
        match table:
            case "memories":
                memories = await tx.erasures.first_memories(limit)
                await tx.erasures.remember(redact.digests_of_memories(tx, digests, memories))
                await tx.erasures.remove(Part.MEMORY, [row["id"] for row in memories])
                return len(memories)
            case "episodes":
                episodes = await tx.erasures.first_episodes(limit)
                await tx.erasures.remember(redact.digests_of_episodes(tx, digests, episodes))
                await tx.erasures.remove(Part.EPISODE, [row["id"] for row, _ in episodes])
                return len(episodes) + sum(len(turns) for _, turns in episodes)
            case _:
                return await tx.erasures.erase_some(table, limit)


@dataclass(frozen=True)
class Eraser:
    """Finds the targets of erasures, and erases large ones batch by batch."""

    store: Store
    digests: Digests
    ledger: Ledger
    now: Callable[[], datetime]
    new_id: Callable[[str], str]

    def targets(
        self, kind: Kind, what: str, *, until: datetime = EVER, scope: AccessScope = FULL_ACCESS
    ) -> Targets:
        """The targets of an erasure of this kind; of a container only what was recorded `until`
        then. Raises `Invalid` on a subject that is no name.
        """
        match kind:
            case Kind.NAMESPACE:
                return NamespaceTargets(self)
            case Kind.CONTAINER:
                wanted: Wanted = Container(what, until)
            case Kind.SUBJECT:
                wanted = Named(Subject(what))
            case Kind.MEMORY:
                wanted = Item(what)
        return PartTargets(self, TargetScan(wanted, scope))

    async def run(self, erasure: Erasure, on_progress: OnProgress = lambda _: None) -> None:
        """Erase what a large erasure has closed; `on_progress` gets how many rows are erased so
        far.
        """
        assert erasure.sealed is not None
        namespace, rows = erasure.namespace, 0
        targets = self._targets_of(erasure)
        while True:
            async with self.store.transaction(namespace, erasing=True) as tx:
                await tx.lock()
                step = await targets.erase_batch(tx)
                if step.last:
                    await tx.erasures.end_erasing(erasure.id)
            self.store.forget(namespace)
            if step.rows:
                rows += step.rows
                on_progress(rows)
            if step.last:
                break
        log.info("rows_erased", erasure=erasure.id, kind=erasure.kind, rows=rows)

    def _targets_of(self, erasure: Erasure) -> Targets:
        assert erasure.sealed is not None
        asked = self.ledger.opened(erasure.sealed)
        scope = FULL_ACCESS
        if asked.kind is Kind.CONTAINER and erasure.claims["requested_by"] != OPERATOR:
            # The token that asked may be limited to the container: its tasks only.
            scope = AccessScope(containers=frozenset({asked.what}))
        return self.targets(asked.kind, asked.what, until=erasure.requested_at, scope=scope)


def is_large(counts: Mapping[str, int]) -> bool:
    """Whether these are too many rows for one transaction."""
    return sum(counts.values()) > LIMITS.rows_at_once_max
