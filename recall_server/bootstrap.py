"""The composition root: builds an `Application` from settings. Tests pass other parts."""

import asyncio
import hmac
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime, timedelta
from functools import lru_cache, partial

from recall_server import factories, shipped
from recall_server.application import Application, Services
from recall_server.config import Settings
from recall_server.domain.audit import AuditEntry
from recall_server.domain.context import Compute, Runtime, in_thread
from recall_server.domain.erasure import Digests
from recall_server.domain.extraction import Extractor, Judge, Merger
from recall_server.domain.fairness import FairSemaphore
from recall_server.domain.ids import Namespace
from recall_server.domain.moments import utc_now
from recall_server.domain.task import Job
from recall_server.domain.text.passages import cut_again
from recall_server.integrations.audit_files import ArchiveFolder
from recall_server.integrations.embeddings import Embedder
from recall_server.integrations.keys import CURSORS, Cursors, Sealer, ServerKey
from recall_server.integrations.rerankers import Reranker
from recall_server.integrations.webhook import Webhook
from recall_server.services.audit import Audit, ReadLog
from recall_server.services.audit.verification import PURPOSE, Checkpoints, Verification
from recall_server.services.auth import Access, OpenAnswers
from recall_server.services.auth.signed_tokens import Delegation, Identity, JwtVerifier
from recall_server.services.erasure import Erase, Holds
from recall_server.services.erasure.eraser import DEFAULT_LIMITS, Eraser, Limits
from recall_server.services.erasure.ledger import PURPOSE as LEDGER
from recall_server.services.erasure.ledger import Ledger
from recall_server.services.erasure.purge import Purge
from recall_server.services.erasure.purge_source import Sources
from recall_server.services.limits import Budget, KeyedExtractor, KeyedJudge, KeyedMerger, ModelKeys
from recall_server.services.memory import indexing
from recall_server.services.memory.beliefs import Aliases
from recall_server.services.memory.commit import JUDGE
from recall_server.services.memory.episodes import EXPIRE_TEXT, ErasedTexts
from recall_server.services.memory.indexing import EMBED, Embedding, ItemEmbedder
from recall_server.services.memory.ingest import EXTRACT, Ingest
from recall_server.services.memory.intents import Intents
from recall_server.services.memory.rebuild import Rebuild
from recall_server.services.memory.texts import Texts
from recall_server.services.memory.undo import Changes
from recall_server.services.metrics import Metrics
from recall_server.services.retention import Days, Retention
from recall_server.services.search.hits import Reranking
from recall_server.services.search.recall import Recall
from recall_server.services.supervision import Supervisor, beside
from recall_server.services.tasks import Tasks
from recall_server.services.tasks.consolidate import Consolidate
from recall_server.services.tasks.merge import Merging
from recall_server.services.tasks.push import PUSH_END, Push, PushEvent
from recall_server.services.tasks.recheck import RECHECK, Judging, Recheck
from recall_server.services.tasks.reviews import Quarantine, Reviews
from recall_server.services.tasks.transitions import (
    CONSOLIDATE,
    DISCARD,
    END,
    EXPIRE,
    Ending,
    TaskEvents,
    TaskTransitions,
)
from recall_server.services.transfer import Export
from recall_server.services.transfer.importing import Import
from recall_server.services.webhooks import Delivery, Registrations
from recall_server.storage import driver_for
from recall_server.storage.driver import TimeLimits
from recall_server.storage.migrations import migrate, read
from recall_server.storage.store import Store, Transaction
from recall_server.storage.tables.erasure import PURGE
from recall_server.storage.tables.jobs import PUSH
from recall_server.worker import Lane, Worker


@asynccontextmanager
async def open_application(  # noqa: PLR0915  # one place that wires all parts
    settings: Settings,
    *,
    extractor: Extractor | None = None,
    embedder: Embedder | None = None,
    reranker: Reranker | None = None,
    merger: Merger | None = None,
    judge: Judge | None = None,
    now: Callable[[], datetime] = utc_now,
    random_bytes: Callable[[int], bytes] = os.urandom,
    erasure_limits: Limits = DEFAULT_LIMITS,
    restored: bool = False,
    migrating: bool = True,
    compute: Compute = in_thread,
    compute_merges: Compute = in_thread,
) -> AsyncIterator[Application]:
    """Open the database and build everything on it. Without `migrating`, only an empty database is
    migrated. A database that lacks recorded erasures is refused, unless it is known to be
    `restored` from a backup. `compute` runs long functions,
    and `compute_merges` those that take seconds.

    Raises `DatabaseUnusable` or `DatabaseUnavailable` with one sentence for the operator.
    """
    runtime = Runtime(
        now,
        random_bytes,
        wake=lambda: worker.wake(),  # noqa: PLW0108  # the worker is built after those that wake it
        lease=timedelta(seconds=settings.lease_s),
        wake_pushes=lambda: worker.wake(pushes=True),
        compute=compute,
    )
    factories.refuse_lost(settings)
    async with AsyncExitStack() as stack:
        store, key = await _opened(stack, settings, now, migrating=migrating)
        ledger = Ledger(key.derive(LEDGER), settings.erasure_path)
        if not restored:
            await ledger.require(store)
        await indexing.renew(store)
        issuers = factories.issuers(settings)
        identity = Identity(store, now, issuers)
        stack.push_async_callback(identity.close)
        audience = settings.canonical_url or f"urn:recall:{key.kid}"
        metrics = Metrics()
        keys = ModelKeys(store, now, EXTRACT, metrics.used)
        # While a key is rejected, the rules take over if the settings say so; a judge waits.
        falls_back = settings.model_fallback == "rules"
        rules = factories.rules_extractor(compute)
        extractor = extractor or factories.extractor(settings) or rules
        keyed_extractor = KeyedExtractor(extractor, keys, rules if falls_back else None)
        merger = KeyedMerger(
            merger or factories.merger(settings, compute_merges),
            keys,
            factories.rules_merger(compute_merges) if falls_back else None,
        )
        judge = judge or factories.judge(settings)
        keyed_judge = KeyedJudge(judge, keys, not falls_back, metrics.judged) if judge else None
        embedder = embedder or factories.embedder(settings)
        vectors = ItemEmbedder(embedder) if embedder else None
        reranker = reranker or factories.reranker(settings)
        store.holders.append(lambda _: cut_again.cache_clear())
        if reranker is not None:
            store.holders.append(reranker.forget)
        for one in (extractor, merger, judge, embedder, reranker):
            if one is not None:
                stack.push_async_callback(one.close)
        digests = Digests(key.derive("erased"))
        redaction = factories.redaction(settings)
        sealer = Sealer([one.get_secret_value() for one in settings.secret_key])
        log_name = _log_name(key)
        cursors = Cursors(key.derive(CURSORS), now)
        supervisor = Supervisor(store, now)
        open_answers = OpenAnswers()
        reads = ReadLog(store, supervisor)
        stack.push_async_callback(reads.close)
        audit = Audit(store, runtime, cursors, reads)
        verification = Verification(store, key, now)
        checkpoints = Checkpoints(
            verification, factories.checkpoint_places(settings), settings.checkpoint_s
        )
        stack.push_async_callback(checkpoints.close)
        budget = Budget(store, now, settings.model_tokens_per_day)
        judging = Judging(store, runtime, budget, redaction, keyed_judge, settings.judge_confidence)
        ingest = Ingest(
            store,
            runtime,
            keyed_extractor,
            vectors is not None,
            settings.text_chars_max,
            settings.text_passages_max,
            digests,
            redaction,
            budget,
            judging.judgements,
            settings.thresholds,
        )
        embedding = Embedding(store, runtime, vectors)
        eraser = Eraser(store, runtime, digests, ledger, erasure_limits)
        purge = Purge(
            store,
            runtime,
            key,
            ledger,
            eraser,
            supervisor,
            timedelta(seconds=settings.purge_interval_s),
        )
        webhook = Webhook(
            allowed=settings.push_allowed_hosts,
            timeout_s=settings.push_timeout_s,
            lookup_s=settings.push_lookup_s,
            lookups=settings.push_lookups,
            tenant_lookups=settings.namespace_push_lookups,
        )
        stack.push_async_callback(webhook.close)
        push = Push(store, runtime, webhook, sealer, _push_events, cursors)
        transitions = TaskTransitions(
            runtime,
            timedelta(days=settings.task_days),
            TaskEvents(poll_s=settings.task_poll_s),
            push.announce,
            settings.task_bytes_max,
        )
        merging = Merging(store, merger, vectors, budget, compute_merges)
        consolidate = Consolidate(
            store,
            runtime,
            transitions,
            keyed_extractor,
            merging,
            settings.text_chars_max,
            settings.text_passages_max,
            digests,
            redaction,
            settings.task_questions_max,
            settings.task_changes_max,
            settings.doubted_max,
        )
        tasks = Tasks(
            store,
            runtime,
            transitions,
            redaction,
            cursors,
            settings.task_messages_max,
            settings.task_history_bytes_max,
            settings.answer_bytes_max,
            open_answers,
        )
        ending = Ending(store, runtime, transitions, open_answers)
        recheck = Recheck(store, runtime, judging.judgements)
        texts = Texts(store, runtime, redaction)
        intents = Intents(store, ingest, rules, embeds=vectors is not None)
        delegation = Delegation(store, runtime, key, audience, ending.end)
        delivery = Delivery(store, runtime, webhook, sealer, settings.webhook_pending_max)
        worker = Worker(
            store,
            {
                EXTRACT: ingest.extract,
                EXPIRE_TEXT: texts.expire,
                EMBED: embedding.work,
                CONSOLIDATE: consolidate.work,
                EXPIRE: tasks.expire,
                DISCARD: tasks.discard,
                END: ending.work,
                PUSH: partial(_delivered, push, delivery),
                PUSH_END: push.end,
                PURGE: purge.work,
                RECHECK: recheck.work,
                JUDGE: judging.work,
            },
            runtime,
            audit.begin_job,
            supervisor,
            poll_s=settings.worker_poll_s,
            # Pushes have a lane of their own, as it waits for slow receivers.
            lanes=(
                Lane(
                    pushes=False,
                    slots=settings.worker_jobs,
                    per_namespace=settings.namespace_worker_jobs,
                ),
                Lane(
                    pushes=True,
                    slots=settings.push_jobs if settings.worker_jobs else 0,
                    per_namespace=settings.namespace_push_jobs,
                ),
            ),
            log_name=log_name,
            on_give_up={CONSOLIDATE: consolidate.give_up},
        )
        yield Application(
            settings,
            runtime,
            store,
            Services(
                access=Access(
                    store,
                    runtime,
                    audit.begin,
                    timedelta(days=settings.token_days),
                    JwtVerifier(delegation, identity),
                    ending.end,
                ),
                aliases=Aliases(store, redaction),
                audit=audit,
                changes=Changes(
                    store, runtime, embeds=vectors is not None, events_max=settings.undo_events_max
                ),
                checkpoints=checkpoints,
                consolidate=consolidate,
                delegation=delegation,
                embedding=embedding,
                erase=Erase(store, runtime, key, ledger, digests, eraser, purge.interval),
                export=Export(
                    store,
                    reads,
                    now,
                    key.kid,
                    len(read(shipped("migrations"), store.engine)),
                    settings.exports_at_once,
                    settings.export_reader_s,
                    settings.turn_wait_s,
                    open_answers,
                ),
                importing=Import(
                    store,
                    runtime,
                    vectors.model if vectors else None,
                    settings.text_chars_max,
                    settings.text_passages_max,
                    settings.import_line_bytes_max,
                    ErasedTexts(digests),
                    redaction,
                    judging.judgements,
                ),
                holds=Holds(store, now),
                ingest=ingest,
                intents=intents,
                ledger=ledger,
                model_keys=keys,
                metrics=metrics,
                open_answers=open_answers,
                log_name=log_name,
                verification=verification,
                purge=purge,
                push=push,
                quarantine=Quarantine(store, runtime),
                rebuild=Rebuild(store, runtime, rules, vectors.model if vectors else None),
                recall=Recall(
                    store,
                    vectors,
                    runtime,
                    settings.query_chars_max,
                    timedelta(days=settings.forget_days),
                    judging.judgements,
                    Reranking(reranker, settings.rerank_min_score) if reranker else None,
                ),
                recheck=recheck,
                retention=Retention(
                    store,
                    verification,
                    audit.begin,
                    now,
                    Days(
                        *(
                            timedelta(days=one) if one else None
                            for one in (
                                settings.audit_days,
                                settings.job_days,
                                settings.ended_token_days,
                            )
                        )
                    ),
                    ArchiveFolder(settings.audit_archive) if settings.audit_archive else None,
                    settings.retention_s,
                ),
                reviews=Reviews(
                    store,
                    runtime,
                    tasks,
                    Quarantine(store, runtime),
                    intents,
                    redaction,
                    embeds=vectors is not None,
                ),
                sources=Sources(store, runtime, transitions),
                tasks=tasks,
                texts=texts,
                webhooks=Registrations(
                    store,
                    runtime,
                    webhook,
                    sealer,
                    settings.namespace_webhooks,
                    settings.webhook_pending_max,
                ),
            ),
            worker,
            extractor,
            keyed_judge,
            vectors,
            key,
            supervisor,
            issuers,
        )


def _log_name(key: ServerKey) -> Callable[[Namespace], str]:
    """Return a function for keyed digests of namespaces: without the key nobody can guess them."""
    secret = key.derive("log")

    @lru_cache(10_000)
    def named(namespace: Namespace) -> str:
        return hmac.digest(secret, namespace.encode(), "sha256").hex()[:16]

    return named


async def _opened(
    stack: AsyncExitStack, settings: Settings, now: Callable[[], datetime], *, migrating: bool
) -> tuple[Store, ServerKey]:
    """Open and migrate the database. Return its store, and the key of this server."""
    driver = driver_for(
        settings.database, TimeLimits(settings.query_s, snapshot_s=settings.export_s)
    )
    stack.push_async_callback(driver.close)
    await driver.open()
    await migrate(driver, shipped("migrations"), now(), only_new=not migrating)
    key = await factories.server_key(Store(driver, cache_bytes_max=0), settings, now())
    store = Store(
        driver,
        cache_bytes_max=settings.cache_bytes_max,
        mac_key=key.derive(PURPOSE),
        quota_bytes_max=settings.namespace_bytes_max,
        now=now,
        turns=FairSemaphore(
            settings.calls_at_once, per_key=settings.namespace_calls_at_once, per_key_contended=1
        ),
    )
    return store, key


async def _push_events(tx: Transaction, task_id: str, after: int) -> list[PushEvent]:
    """Return the events of a task after `after`, as the A2A messages that are pushed."""
    # Imported on use: only a server that delivers needs the A2A SDK.
    from recall_server.api.a2a import wire  # noqa: PLC0415

    events = await tx.tasks.events(task_id, after)
    # In a thread: a result may be large.
    return await asyncio.to_thread(
        lambda: [PushEvent(one.seq, one.final, wire.pushed(one)) for one in events]
    )


async def _delivered(
    push: Push, delivery: Delivery, job: Job, entry: Callable[[str], AuditEntry]
) -> None:
    """Handle a job of the lane of pushes: deliver events of a task, or to a webhook."""
    await (delivery if "webhook_id" in job.payload else push).deliver(job, entry)


@asynccontextmanager
async def working(built: Application) -> AsyncIterator[None]:
    """Run the worker, the checkpoints and the retention for the duration of the block."""
    await built.services.model_keys.begin()
    await built.services.ingest.begin()
    keep = built.supervisor.keep
    task = asyncio.create_task(keep("worker", built.worker.run))
    try:
        async with beside(
            keep("checkpoints", built.services.checkpoints.run),
            keep("retention", built.services.retention.run),
        ):
            yield
    finally:
        built.supervisor.stop()
        built.worker.stop()
        done, _ = await asyncio.wait({task}, timeout=built.settings.drain_s)
        if not done:
            task.cancel()
            await asyncio.wait({task})
