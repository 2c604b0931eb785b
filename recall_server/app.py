"""The composition root: settings in, a running house out. Tests call the same with other parts."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from recall_server import parts
from recall_server.config import Settings
from recall_server.domain.erasure import Digests
from recall_server.domain.finding import Finding, Level
from recall_server.domain.ids import new_id
from recall_server.domain.turns import Turns
from recall_server.files import shipped
from recall_server.providers.embedding import Embedder
from recall_server.providers.extraction import Extractor
from recall_server.providers.issuers import Issuer
from recall_server.providers.keys import ServerKey
from recall_server.providers.merging import Merger
from recall_server.providers.reranking import Reranker
from recall_server.providers.sealing import Sealer
from recall_server.providers.webhook import Webhook
from recall_server.services import Services, finding
from recall_server.services.access import Access
from recall_server.services.audit import Audit
from recall_server.services.bell import Bell
from recall_server.services.budget import Budget
from recall_server.services.checkpoints import Checkpoints
from recall_server.services.clearing import Clearing
from recall_server.services.consolidate import Consolidate
from recall_server.services.cursors import PURPOSE as CURSORS
from recall_server.services.cursors import Cursors
from recall_server.services.delegation import Delegation
from recall_server.services.embedding import EMBED, Embedding, ItemEmbedder
from recall_server.services.emptying import Emptying
from recall_server.services.erase import Erase
from recall_server.services.export import Export
from recall_server.services.holds import Holds
from recall_server.services.identity import Identity
from recall_server.services.importing import Import
from recall_server.services.ingest import EXTRACT, Ingest
from recall_server.services.keeping import erased_among
from recall_server.services.merge import Merging
from recall_server.services.proof import PURPOSE, Proof
from recall_server.services.purge import Purge, Receipts
from recall_server.services.push import PUSH_END, Push, PushEvent
from recall_server.services.quarantine import Quarantine
from recall_server.services.recall import Recall
from recall_server.services.runs import CONSOLIDATE, DISCARD, EXPIRE, Runs
from recall_server.services.second_look import Reranking
from recall_server.services.signed import JsonWebTokens
from recall_server.services.sources import Sources
from recall_server.services.tasks import Tasks
from recall_server.storage import driver_for
from recall_server.storage.driver import TimeLimits
from recall_server.storage.erasure import PURGE
from recall_server.storage.push import PUSH
from recall_server.storage.room import room
from recall_server.storage.schema import migrate, read
from recall_server.storage.store import Store, Transaction
from recall_server.worker import Worker

Clock = Callable[[], datetime]


def utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass
class House:
    """All parts, put together. `stopping` turns `/ready` off while open calls finish."""

    settings: Settings
    store: Store
    services: Services
    worker: Worker
    extractor: Extractor
    embedder: ItemEmbedder | None
    key: ServerKey
    issuers: tuple[Issuer, ...] = ()
    stopping: bool = False

    def stop(self) -> None:
        """Take no part in what is new: `/ready` says so, and whoever waits for a task is let go."""
        self.stopping = True
        self.services.tasks.runs.bell.close()

    async def check(self) -> None:
        """Raise `Unavailable` where the database does not answer."""
        await self.store.alone(None).access.by_accessor("")

    def short_of_room(self) -> list[Finding]:
        """What will go wrong if nobody acts, as far as it shows without asking the database."""
        where = self.settings.database
        found = room(where) if isinstance(where, Path) and where.exists() else ()
        return [one for one in found if one.level is not Level.OK]


@asynccontextmanager
async def house(
    settings: Settings,
    *,
    extractor: Extractor | None = None,
    embedder: Embedder | None = None,
    reranker: Reranker | None = None,
    merger: Merger | None = None,
    now: Clock = utc_now,
    chance: Callable[[int], bytes] = os.urandom,
    restored: bool = False,
) -> AsyncIterator[House]:
    """Open the database, bring it up to date, and build everything on it; one that does not know of
    all erasures only where it is known to be `restored` from a backup.

    Raises `DatabaseUnusable` or `DatabaseUnavailable` with one sentence for the operator.
    """

    def id_of(prefix: str) -> str:
        return new_id(prefix, now(), chance(10))

    parts.refuse_lost(settings)
    async with AsyncExitStack() as stack:
        store, key = await _opened(stack, settings, now())
        ledger = await parts.ledger(store, key, settings, restored=restored)
        await finding.renew(store)
        issuers = parts.issuers(settings)
        identity = Identity(store, now, issuers)
        stack.push_async_callback(identity.close)
        us = settings.canonical_url or f"urn:recall:{key.kid}"
        delegation = Delegation(store, now, id_of, key, us)
        chosen = extractor or parts.extractor(settings)
        stack.push_async_callback(chosen.close)
        mind = embedder or parts.embedder(settings)
        vectors = ItemEmbedder(mind) if mind else None
        second = reranker or parts.reranker(settings)
        if second is not None:
            stack.push_async_callback(second.close)
            store.holders.append(second.forget)
        if mind is not None:
            stack.push_async_callback(mind.close)
        lease, woken = timedelta(seconds=settings.lease_s), _Wake()
        cursors = Cursors(key.derive(CURSORS), now)
        audit = Audit(store, now, id_of, cursors)
        proof = Proof(store, key, now)
        checkpoints = Checkpoints(proof, parts.checkpoint_places(settings), settings.checkpoint_s)
        stack.push_async_callback(checkpoints.close)
        digests, masking = Digests(key.derive("erased")), parts.masking(settings)
        budget = Budget(store, now, settings.model_tokens_per_day)
        ingest = Ingest(
            store,
            chosen,
            vectors is not None,
            now,
            chance,
            settings.text_chars_max,
            lease,
            woken,
            digests,
            masking,
            budget,
        )
        embedding = Embedding(store, vectors, now, lease)
        receipts = Receipts(key)
        clearing = Clearing(store, digests, now)
        emptying = Emptying(store, digests, ledger, now, id_of)
        purge = Purge(store, receipts, ledger, clearing, emptying, now, lease)
        webhook = Webhook(allowed=settings.push_allowed_hosts, timeout_s=settings.push_timeout_s)
        stack.push_async_callback(webhook.close)
        push = Push(
            store,
            webhook,
            Sealer([key.get_secret_value() for key in settings.secret_key]),
            _told,
            now,
            id_of,
            lease,
            woken,
            cursors,
        )
        runs = Runs(
            store,
            now,
            chance,
            timedelta(days=settings.task_days),
            woken,
            Bell(poll_s=settings.task_poll_s),
            push.announce,
        )
        merging = Merging(store, merger or parts.merger(settings), vectors, budget)
        stack.push_async_callback(merging.merger.close)
        consolidate = Consolidate(
            store, runs, chosen, merging, settings.text_chars_max, lease, digests, masking
        )
        tasks = Tasks(runs, masking, cursors)
        worker = Worker(
            store,
            {
                EXTRACT: ingest.extract,
                EMBED: embedding.work,
                CONSOLIDATE: consolidate.work,
                EXPIRE: tasks.expire,
                DISCARD: tasks.discard,
                PUSH: push.deliver,
                PUSH_END: push.end,
                PURGE: purge.work,
            },
            now,
            lambda job, operation: audit.begin(job.namespace, operation, "worker", None),
            lease=lease,
            poll_s=settings.worker_poll_s,
            jobs_at_once=settings.worker_jobs,
            last_words={CONSOLIDATE: consolidate.give_up},
        )
        woken.worker = worker
        yield House(
            settings,
            store,
            Services(
                access=Access(
                    store,
                    now,
                    id_of,
                    audit.begin,
                    timedelta(days=settings.token_days),
                    signed=JsonWebTokens(delegation, identity),
                ),
                audit=audit,
                checkpoints=checkpoints,
                consolidate=consolidate,
                delegation=delegation,
                embedding=embedding,
                erase=Erase(
                    store, receipts, ledger, digests, clearing, emptying, now, id_of, woken
                ),
                export=Export(store, now, key.kid, len(read(shipped("migrations"), store.engine))),
                importing=Import(
                    store,
                    now,
                    vectors.model if vectors else None,
                    settings.text_chars_max,
                    settings.import_line_bytes_max,
                    woken,
                    partial(erased_among, digests=digests),
                ),
                holds=Holds(store, now),
                ingest=ingest,
                ledger=ledger,
                proof=proof,
                purge=purge,
                push=push,
                quarantine=Quarantine(store, now, id_of, woken),
                recall=Recall(
                    store,
                    vectors,
                    now,
                    settings.query_chars_max,
                    timedelta(days=settings.forget_days),
                    Reranking(second, settings.rerank_min_score) if second else None,
                ),
                sources=Sources(store, runs, now, id_of, woken),
                tasks=tasks,
            ),
            worker,
            chosen,
            vectors,
            key,
            issuers,
        )


async def _opened(
    stack: AsyncExitStack, settings: Settings, now: datetime
) -> tuple[Store, ServerKey]:
    """The database, brought up to date, and the key of this server, which may be kept there."""
    driver = driver_for(
        settings.database, TimeLimits(settings.query_s, snapshot_s=settings.export_s)
    )
    stack.push_async_callback(driver.close)
    await driver.open()
    await migrate(driver, shipped("migrations"), now)
    key = await parts.server_key(Store(driver, cache_bytes_max=0), settings, now)
    store = Store(
        driver,
        cache_bytes_max=settings.cache_bytes_max,
        mac_key=key.derive(PURPOSE),
        room=settings.namespace_bytes_max,
        turns=Turns(settings.calls_at_once, each=settings.namespace_calls_at_once, beside=1),
    )
    return store, key


async def _told(tx: Transaction, run_id: str, after: int) -> list[PushEvent]:
    """What happened to a run, in the words of A2A: the only ones in which it is pushed."""
    # Imported on use: it brings the SDK of A2A, and only a house that delivers has need of it.
    from recall_server.surface import a2a_wire  # noqa: PLC0415

    events = await tx.runs.events(run_id, after)
    return [PushEvent(event.seq, event.final, a2a_wire.pushed(event)) for event in events]


class _Wake:
    """Ingest wakes the worker, which is built of ingest's handlers: this ties the knot."""

    worker: Worker | None = None

    def __call__(self) -> None:
        if self.worker is not None:
            self.worker.wake()


@asynccontextmanager
async def working(built: House) -> AsyncIterator[None]:
    """The worker at work, beside whatever else this process does."""
    task = asyncio.create_task(built.worker.run())
    vouching = asyncio.create_task(built.services.checkpoints.run())
    try:
        yield
    finally:
        vouching.cancel()
        await asyncio.wait({vouching})
        built.worker.stop()
        done, _ = await asyncio.wait({task}, timeout=built.settings.drain_s)
        if not done:
            task.cancel()
            await asyncio.wait({task})
