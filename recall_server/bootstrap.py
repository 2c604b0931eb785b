"""The composition root: builds an `Application` from settings. Tests pass other parts."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime, timedelta
from functools import partial

from recall_server import factories
from recall_server.application import Application, Clock, utc_now
from recall_server.config import Settings
from recall_server.domain.erasure import Digests
from recall_server.domain.fair_semaphore import FairSemaphore
from recall_server.domain.ids import new_id
from recall_server.integrations.crypto.keys import ServerKey
from recall_server.integrations.crypto.sealing import Sealer
from recall_server.integrations.embeddings.embedder import Embedder
from recall_server.integrations.extraction.extractor import Extractor
from recall_server.integrations.extraction.merger import Merger
from recall_server.integrations.http.webhook import Webhook
from recall_server.integrations.rerankers.reranker import Reranker
from recall_server.resources import shipped
from recall_server.services import Services
from recall_server.services.audit.audit import Audit
from recall_server.services.audit.checkpoints import Checkpoints
from recall_server.services.audit.read_log import ReadLog
from recall_server.services.audit.verification import PURPOSE, Verification
from recall_server.services.auth.access import Access
from recall_server.services.auth.delegation import Delegation
from recall_server.services.auth.identity import Identity
from recall_server.services.auth.jwt_verifier import JwtVerifier
from recall_server.services.cursors import PURPOSE as CURSORS
from recall_server.services.cursors import Cursors
from recall_server.services.erasure.erase import Erase
from recall_server.services.erasure.eraser import Eraser
from recall_server.services.erasure.holds import Holds
from recall_server.services.erasure.purge import Purge, Receipts
from recall_server.services.erasure.purge_source import Sources
from recall_server.services.limits.budget import Budget
from recall_server.services.memory import indexing
from recall_server.services.memory.embedding import EMBED, Embedding, ItemEmbedder
from recall_server.services.memory.episodes import find_erased
from recall_server.services.memory.ingest import EXTRACT, Ingest
from recall_server.services.memory.quarantine import Quarantine
from recall_server.services.search.recall import Recall
from recall_server.services.search.rerank import Reranking
from recall_server.services.tasks.consolidate import Consolidate
from recall_server.services.tasks.merge import Merging
from recall_server.services.tasks.push import PUSH_END, Push, PushEvent
from recall_server.services.tasks.task_events import TaskEvents
from recall_server.services.tasks.tasks import Tasks
from recall_server.services.tasks.transitions import CONSOLIDATE, DISCARD, EXPIRE, TaskTransitions
from recall_server.services.transfer.export import Export
from recall_server.services.transfer.importing import Import
from recall_server.storage import driver_for
from recall_server.storage.driver import TimeLimits
from recall_server.storage.migrations import migrate, read
from recall_server.storage.store import Store, Transaction
from recall_server.storage.tables.erasure import PURGE
from recall_server.storage.tables.push import PUSH
from recall_server.worker import Worker


@asynccontextmanager
async def open_application(
    settings: Settings,
    *,
    extractor: Extractor | None = None,
    embedder: Embedder | None = None,
    reranker: Reranker | None = None,
    merger: Merger | None = None,
    now: Clock = utc_now,
    random_bytes: Callable[[int], bytes] = os.urandom,
    restored: bool = False,
) -> AsyncIterator[Application]:
    """Open and migrate the database and build everything on it. A database that lacks recorded
    erasures is refused, unless it is known to be `restored` from a backup.

    Raises `DatabaseUnusable` or `DatabaseUnavailable` with one sentence for the operator.
    """

    def id_of(prefix: str) -> str:
        return new_id(prefix, now(), random_bytes(10))

    factories.refuse_lost(settings)
    async with AsyncExitStack() as stack:
        store, key = await _opened(stack, settings, now())
        ledger = await factories.ledger(store, key, settings, restored=restored)
        await indexing.renew(store)
        issuers = factories.issuers(settings)
        identity = Identity(store, now, issuers)
        stack.push_async_callback(identity.close)
        audience = settings.canonical_url or f"urn:recall:{key.kid}"
        delegation = Delegation(store, now, id_of, key, audience)
        chosen = extractor or factories.extractor(settings)
        stack.push_async_callback(chosen.close)
        embedder = embedder or factories.embedder(settings)
        vectors = ItemEmbedder(embedder) if embedder else None
        reranker = reranker or factories.reranker(settings)
        if reranker is not None:
            stack.push_async_callback(reranker.close)
            store.holders.append(reranker.forget)
        if embedder is not None:
            stack.push_async_callback(embedder.close)
        lease, woken = timedelta(seconds=settings.lease_s), _Wake()
        cursors = Cursors(key.derive(CURSORS), now)
        reads = ReadLog(store)
        stack.push_async_callback(reads.close)
        audit = Audit(store, now, id_of, cursors, reads)
        verification = Verification(store, key, now)
        checkpoints = Checkpoints(
            verification, factories.checkpoint_places(settings), settings.checkpoint_s
        )
        stack.push_async_callback(checkpoints.close)
        digests, redaction = Digests(key.derive("erased")), factories.redaction(settings)
        budget = Budget(store, now, settings.model_tokens_per_day)
        ingest = Ingest(
            store,
            chosen,
            vectors is not None,
            now,
            random_bytes,
            settings.text_chars_max,
            lease,
            woken,
            digests,
            redaction,
            budget,
        )
        embedding = Embedding(store, vectors, now, lease)
        receipts = Receipts(key)
        eraser = Eraser(store, digests, ledger, now, id_of)
        purge = Purge(store, receipts, ledger, eraser, now, lease)
        webhook = Webhook(allowed=settings.push_allowed_hosts, timeout_s=settings.push_timeout_s)
        stack.push_async_callback(webhook.close)
        push = Push(
            store,
            webhook,
            Sealer([key.get_secret_value() for key in settings.secret_key]),
            _push_events,
            now,
            id_of,
            lease,
            woken,
            cursors,
        )
        transitions = TaskTransitions(
            store,
            now,
            random_bytes,
            timedelta(days=settings.task_days),
            woken,
            TaskEvents(poll_s=settings.task_poll_s),
            push.announce,
        )
        merging = Merging(store, merger or factories.merger(settings), vectors, budget)
        stack.push_async_callback(merging.merger.close)
        consolidate = Consolidate(
            store, transitions, chosen, merging, settings.text_chars_max, lease, digests, redaction
        )
        tasks = Tasks(transitions, redaction, cursors)
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
            on_give_up={CONSOLIDATE: consolidate.give_up},
        )
        woken.worker = worker
        yield Application(
            settings,
            store,
            Services(
                access=Access(
                    store,
                    now,
                    id_of,
                    audit.begin,
                    timedelta(days=settings.token_days),
                    signed=JwtVerifier(delegation, identity),
                ),
                audit=audit,
                checkpoints=checkpoints,
                consolidate=consolidate,
                delegation=delegation,
                embedding=embedding,
                erase=Erase(store, receipts, ledger, digests, eraser, now, id_of, woken),
                export=Export(store, now, key.kid, len(read(shipped("migrations"), store.engine))),
                importing=Import(
                    store,
                    now,
                    vectors.model if vectors else None,
                    settings.text_chars_max,
                    settings.import_line_bytes_max,
                    woken,
                    partial(find_erased, digests=digests),
                ),
                holds=Holds(store, now),
                ingest=ingest,
                ledger=ledger,
                verification=verification,
                purge=purge,
                push=push,
                quarantine=Quarantine(store, now, id_of, woken),
                recall=Recall(
                    store,
                    vectors,
                    now,
                    settings.query_chars_max,
                    timedelta(days=settings.forget_days),
                    Reranking(reranker, settings.rerank_min_score) if reranker else None,
                ),
                sources=Sources(store, transitions, now, id_of, woken),
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
    """Return the migrated database, and the key of this server."""
    driver = driver_for(
        settings.database, TimeLimits(settings.query_s, snapshot_s=settings.export_s)
    )
    stack.push_async_callback(driver.close)
    await driver.open()
    await migrate(driver, shipped("migrations"), now)
    key = await factories.server_key(Store(driver, cache_bytes_max=0), settings, now)
    store = Store(
        driver,
        cache_bytes_max=settings.cache_bytes_max,
        mac_key=key.derive(PURPOSE),
        quota_bytes_max=settings.namespace_bytes_max,
        turns=FairSemaphore(
            settings.calls_at_once, per_key=settings.namespace_calls_at_once, per_key_contended=1
        ),
    )
    return store, key


async def _push_events(tx: Transaction, task_id: str, after: int) -> list[PushEvent]:
    """The events of a task after `after`, as the A2A messages that are pushed."""
    # Imported on use: only a server that delivers needs the A2A SDK.
    from recall_server.api.a2a import wire  # noqa: PLC0415

    events = await tx.tasks.events(task_id, after)
    return [PushEvent(event.seq, event.final, wire.pushed(event)) for event in events]


class _Wake:
    """Wakes the worker, which is built after the services that wake it."""

    worker: Worker | None = None

    def __call__(self) -> None:
        if self.worker is not None:
            self.worker.wake()


@asynccontextmanager
async def working(built: Application) -> AsyncIterator[None]:
    """Run the worker and the checkpoints for the duration of the block."""
    task = asyncio.create_task(built.worker.run())
    checkpointing = asyncio.create_task(built.services.checkpoints.run())
    try:
        yield
    finally:
        checkpointing.cancel()
        await asyncio.wait({checkpointing})
        built.worker.stop()
        done, _ = await asyncio.wait({task}, timeout=built.settings.drain_s)
        if not done:
            task.cancel()
            await asyncio.wait({task})
