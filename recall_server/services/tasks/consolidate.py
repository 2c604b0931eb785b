"""Consolidation tasks: turn a text, or the memories of a topic, into a plan that is committed,
shown, or waits for answers.

A task changes no memory before its commit: after a dry run, a question or a cancellation, memory is
as it was. Until the commit the text is stored with the task.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import NamedTuple

import structlog

from recall_server.domain.attributes import canonical
from recall_server.domain.audit import AuditEntry
from recall_server.domain.audit import Outcome as Ending
from recall_server.domain.context import Context, Runtime
from recall_server.domain.episode import Episode, Span, Turn
from recall_server.domain.erasure import Digests
from recall_server.domain.errors import (
    EmbedderUnavailable,
    Invalid,
    NotFound,
    PlanOutdated,
    RecallError,
    Stale,
    Unavailable,
)
from recall_server.domain.extraction import Extractor
from recall_server.domain.ids import Namespace, container
from recall_server.domain.memory import Memory, searchable
from recall_server.domain.moments import check_times
from recall_server.domain.permissions import AccessScope
from recall_server.domain.plan import Add, Plan, Policy, Reinforce, Settling, Supersede
from recall_server.domain.task import (
    Failure,
    Job,
    Message,
    Mode,
    Outcome,
    Proposal,
    Request,
    Status,
    Task,
    TaskState,
    Work,
)
from recall_server.domain.text.cleaning import clean_label, clean_text, not_too_long
from recall_server.domain.text.passages import visible_passages
from recall_server.domain.text.transcript import transcript
from recall_server.services.memory import commit, reconcile
from recall_server.services.memory.episodes import (
    Computed,
    ErasedTexts,
    Redaction,
    checked_utterances,
    computed,
    conversation,
    is_short,
    last_said_at,
    passages,
    promise_expiry,
    refuse_erased,
    refuse_fragments,
    store_planned_episode,
    validate_candidates,
)
from recall_server.services.memory.indexing import (
    INLINE_CHARS_MAX,
    INLINE_MAX,
    Texts,
    of_memories,
    of_passages,
    promise_vectors,
)
from recall_server.services.memory.ingest import TOPIC_CHARS_MAX, text_details
from recall_server.services.tasks import merge, recheck
from recall_server.services.tasks.transitions import (
    CONSOLIDATE,
    EXPIRE,
    LIVE,
    Leaving,
    Prepared,
    TaskTransitions,
    Text,
    change_ahead,
    ended_with_token,
    prepared,
    revoked,
    task_text,
    working,
)
from recall_server.storage.driver import apart, batches
from recall_server.storage.store import Store, Transaction
from recall_server.storage.tables.jobs import Fenced
from recall_server.storage.tables.tasks import NewTask, new_task

log = structlog.get_logger()

EXPIRES_IN_MAX_S = 366 * 86_400
# How often progress is saved: a crash repeats no more than this.
SAVE_EVERY = timedelta(seconds=2)
# How many merged texts one query compares with what was erased.
PROPOSALS_AT_ONCE = 100
_SENTENCE = re.compile(r"[^.!?…。！？\n]+[.!?…。！？]*")


@dataclass(frozen=True)
class Consolidate:
    """Starts tasks and works on them. `Tasks` answers and watches them."""

    store: Store
    runtime: Runtime
    transitions: TaskTransitions
    extractor: Extractor
    merging: merge.Merging
    text_chars_max: int
    text_passages_max: int
    digests: Digests
    redaction: Redaction
    questions_max: int
    changes_max: int
    doubted_max: float

    async def start(
        self,
        context: Context,
        request: Request,
        *,
        context_id: str = "",
        message: Callable[[str, str], Message] | None = None,
        also: Callable[[Transaction, Task], Awaitable[None]] | None = None,
    ) -> Task:
        """Store a task and enqueue its work in one transaction, without a model. `message` makes
        the client's message to store, given the ids of the task and its context; `also` runs in the
        same transaction.

        Raises `Invalid` if the text, the topic or a limit is not acceptable, `ErasedContent` if the
        text was erased, `NotFound` if the plan is unknown, `OutsideAccessScope`, `QuotaExceeded`.
        """
        request = self._checked(request)
        now = self.runtime.now()
        if said := await conversation(request.text, now, self.runtime.compute, context.namespace):
            request = replace(request, text="", utterances=said)
        request = await self._redacted(request, context.entry)
        request = request.limited_to(context.scope)
        context.entry.details |= {"mode": request.mode} | request.source.details()
        if request.mode is not Mode.APPLY:
            context.entry.details |= text_details(request.topic, request.container, request.source)
        task_id = self.runtime.new_id("task")
        (context_id,) = await self.redaction.lines([context_id], context.entry)
        context_id = context_id or self.runtime.new_id("ctx")
        sent = message(task_id, context_id) if message else None
        task = Task(
            id=task_id,
            context_id=context_id,
            accessor=context.entry.began_by,
            created_at=now,
            request=request,
            work=Work(self.runtime.new_id("ep"), now),
            status=Status(TaskState.SUBMITTED, now),
            messages=(await self.redaction.message(sent, context.entry),) if sent else (),
        )
        text = await task_text(task, self.runtime.compute, context.namespace)
        if text is not None:
            refuse_fragments(text.words, self.text_passages_max)
        task = await self._add(context, task, text, also)
        if text is not None:
            self.transitions.cache.put(context.namespace, task, text)
        self.runtime.wake()
        return task

    async def _add(
        self,
        context: Context,
        task: Task,
        text: "Text | None",
        also: Callable[[Transaction, Task], Awaitable[None]] | None,
    ) -> Task:
        """Store a task. Its rows are made before the transaction: see `change_ahead`."""
        request, of_text = task.request, list[str]()
        if text is not None:
            given = (context.namespace, text.episode.text, text.episode.turns)
            many = len(text.episode.turns) > INLINE_MAX
            of_text = await apart(many, self.digests.of_text, *given)

        async def plan(tx: Transaction) -> NewTask:
            if request.mode is Mode.APPLY:
                return await new_task(await _from_plan(tx, task, context.scope))
            policy = request.policy or await tx.access.policy() or Policy.ASK
            return await new_task(replace(task, request=replace(request, policy=policy)))

        async def write(tx: Transaction, made: NewTask) -> Task:
            if text is not None:
                await refuse_erased(tx, self.digests, text.episode, context.scope, of_text)
            if request.plan_id and await tx.tasks.version(request.plan_id) is None:
                # It was erased since it was read.
                raise Stale
            added = await self.transitions.add(tx, made)
            if also:
                await also(tx, added)
            context.entry.ids.append(task.id)
            return added

        tables = self.store.autocommit(context.namespace, access_scope=context.scope)
        return await change_ahead(tables, partial(self.store.change, context), plan, write)

    def _checked(self, request: Request) -> Request:
        now = self.runtime.now()
        said = checked_utterances(request.utterances, now)
        if said:
            text, _ = transcript(said)
            not_too_long(len(text), self.text_chars_max)
        elif request.mode is Mode.INGEST:
            clean_text(request.text, chars_max=self.text_chars_max)
        if request.mode is not Mode.APPLY:
            topic = clean_label(request.topic, "topic", chars_max=TOPIC_CHARS_MAX)
            request = replace(request, topic=topic, container=container(request.container))
        check_times(now, request.occurred_at, request.text_expires_at)
        if request.expires_in_s is not None and not 1 <= request.expires_in_s <= EXPIRES_IN_MAX_S:
            raise Invalid(f"expires_in_s must be 1 to {EXPIRES_IN_MAX_S} seconds.")
        return replace(request, utterances=said, source=request.source.checked())

    async def _redacted(self, request: Request, entry: AuditEntry) -> Request:
        text, turns = await self.redaction.text(request.text, entry), request.turns
        said = await self.redaction.utterances(request.utterances, entry)
        if said:
            text, turns = transcript(said)
        topic, source = await self.redaction.labels(
            request.topic, request.container, request.source, entry
        )
        return replace(
            request,
            text=text,
            turns=turns,
            utterances=(),
            occurred_at=request.occurred_at or last_said_at(said),
            topic=topic,
            source=source,
        )

    async def work(self, job: Job, entry: Callable[[str], AuditEntry]) -> None:
        """Handle the job of a task: propose, then commit, show or ask.

        If a part is unavailable, its error is raised and the job is retried from its last progress;
        any other error fails the task with a reason that callers may see.
        """
        record = entry(CONSOLIDATE)
        task_id = job.payload["run_id"]
        task, text = self.transitions.cache.take(job.namespace, task_id) or (None, None)
        if task is None:
            task = await self.store.autocommit(job.namespace).tasks.get(task_id)
        if task is None or task.status.state not in LIVE:
            async with self.store.transaction(job.namespace) as tx:
                await tx.jobs.finish(job, self.runtime.now())
            return
        record.caused_by = task.accessor
        try:
            text = text or await task_text(task, self.runtime.compute, job.namespace)
            task = await self._propose(task, text, job)
            text = text and await self._embed(task, text)
            task = await self._settle(task, text, job, record)
        except PlanOutdated as error:
            task = await self._fail(task, job, record, error)
        except (Unavailable, Stale, Fenced):
            raise
        except RecallError as error:
            task = await self._fail(task, job, record, error)
        except Exception:
            # Fail the task now, not after the last attempt of the job.
            log.exception("consolidation_failed", task=task.id, request_id=record.request_id)
            hidden = RecallError(f"internal error (ref {record.request_id})")
            task = await self._fail(task, job, record, hidden)
        # No wake-up is needed: the worker looks for follow-up jobs itself.
        self.transitions.publish(job.namespace, task)

    async def _propose(self, task: Task, text: "Text | None", job: Job) -> Task:
        """Return the task with all proposals of the extractor or merger, saving progress at
        intervals.
        """
        if task.work.expected and not task.work.drafts:
            return task
        if text:
            steps = self._passages(job.namespace, text.episode, task.work)
        elif task.work.drafts:
            steps = self.merging.write(job.namespace, task.request, task.work)
        else:
            steps = self.merging.steps(job.namespace, task.request, task.work)
        saved_at = self.runtime.now()
        async for work in steps:
            task = replace(task, work=work)
            now = self.runtime.now()
            if now - saved_at >= SAVE_EVERY:
                made = await prepared(task, working(task, now))
                async with self.store.transaction(job.namespace, locked=True) as tx:
                    task = await self.transitions.write(tx, made)
                    await tx.jobs.advance(job, job.payload, now + self.runtime.lease)
                self.transitions.publish(job.namespace, task)
                saved_at = self.runtime.now()
        return task

    async def _passages(self, ns: Namespace, episode: Episode, work: Work) -> AsyncIterator[Work]:
        for number, passage in passages(episode, self.extractor.passage_chars):
            if passage is None or number <= work.next:
                continue
            if len(work.candidates) >= self.changes_max:
                yield replace(work, read_to=passage.turns[0].span.start)
                return
            ask, most = partial(self.extractor.extract, passage), self.extractor.call_tokens_max
            said = await self.merging.budget.ask(ns, most, ask)
            found = validate_candidates(said, passage).capped(self.doubted_max)
            work = replace(
                work,
                next=number,
                candidates=(*work.candidates, *found.candidates),
                extractor=found.extractor,
                rejected=work.rejected + found.rejected,
                usage=work.usage + found.usage,
            )
            yield work

    async def _embed(self, task: Task, text: "Text") -> "Text":
        """Add the vectors of the memories and passages of a short text, so that all are stored
        together and no job has to follow. Return the text unchanged if the embedder is unavailable.
        """
        embedder = self.merging.embedder
        if embedder is None or len(text.episode.text) > INLINE_CHARS_MAX:
            return text
        found = visible_passages(text.episode)
        passages = of_passages(found)
        said = of_memories(
            (
                (
                    searchable(one.text, canonical(one.fact).attribute if one.fact else None),
                    one.span,
                )
                for one in task.work.candidates
            ),
            found,
            passages,
        )
        texts = sorted({*said, *passages.values()})
        try:
            vectors = await embedder.vectors_of(texts)
        except EmbedderUnavailable:
            return text
        return replace(text, vectors=dict(zip(texts, vectors, strict=True)))

    async def _settle(self, task: Task, text: "Text | None", job: Job, record: AuditEntry) -> Task:
        """Plan, and apply the plan in a transaction, so that it cannot be outdated: see
        `commit.apply_planned`.
        """
        record.usage, work = task.work.usage, task.work

        async def plan(tx: Transaction) -> _Made:
            now = await tx.moment()
            agreed, shown = await self._plans(tx, task, text, now)
            commits = text and not task.request.dry_run and not agreed.questions
            ahead = await self._ahead(tx, text, agreed) if text and commits else None
            return _Made(now, agreed, shown, ahead)

        async def write(tx: Transaction, made: _Made) -> Task:
            """Commit, show or ask what was planned. Return the task."""
            now = await tx.moment()
            if await ended_with_token(tx, task):
                cancelled = await self.transitions.change(tx, task, revoked(task, now))
                await tx.jobs.finish(job, now)
                record.ids.append(task.id)
                return cancelled
            sound = await self._without_erased(tx, task)
            if sound is not task:
                made = _Made(now, *await self._plans(tx, sound, text, now), None)
            agreed = made.agreed
            expected = work.expected if not work.resolutions else ""
            if expected and made.shown.digest() != expected:
                raise PlanOutdated
            if task.request.dry_run:
                after = _ended(sound, agreed, now)
            elif agreed.questions:
                after = await self._ask(tx, sound, agreed, now)
            else:
                agreed = agreed.dated(made.planned_at, now)
                made = made._replace(agreed=agreed)
                sound = await self._commit(tx, sound, text, made, now)
                after = _ended(sound, agreed, now)
            saved = await self.transitions.change(tx, sound, after)
            await tx.jobs.finish(job, now)
            record.ids += [task.id, *agreed.ids()]
            record.counts |= agreed.counts() | {"questions": len(agreed.questions)}
            return saved

        merged = sum(len(one.source_ids) for one in (*work.proposals, *work.drafts))
        inside = len(work.candidates) + merged <= commit.PLANNED_INSIDE_MAX
        inside = inside and (text is None or is_short(text.episode, text.words))
        context = Context(record, task.request.effective_scope)
        return await commit.apply_planned(self.store, context, plan, write, inside=inside)

    async def _ahead(self, tx: Transaction, text: "Text", plan: Plan) -> "_Ahead":
        added = await commit.added(plan, text.words)
        return _Ahead(added, await computed(tx, text.episode, added.words, self.digests))

    async def _without_erased(self, tx: Transaction, task: Task) -> Task:
        """Return the task without merged texts that would bring back erased words, as a whole or in
        a sentence: a model may have written them before the erasure.
        """
        scope, kept = task.request.effective_scope, list[Proposal]()
        erased, namespace = ErasedTexts(self.digests), tx.bound.owner
        for some in batches(task.work.proposals, PROPOSALS_AT_ONCE):
            texts = [(one.text, _parts(one.text)) for one in some]
            digests = await asyncio.to_thread(erased.digests_of, namespace, texts)
            gone = await erased.refused(tx, digests, scope)
            kept += [one for index, one in enumerate(some) if index not in gone]
        left_out = len(task.work.proposals) - len(kept)
        if not left_out:
            return task
        work = replace(task.work, proposals=tuple(kept), rejected=task.work.rejected + left_out)
        return replace(task, work=work)

    async def _plans(
        self, tx: Transaction, task: Task, text: "Text | None", now: datetime
    ) -> tuple[Plan, Plan]:
        """Return the plan, and the plan that a dry run would show for it."""
        work, drafts = task.work, task.work.drafts
        if text is None:
            plan = await merge.plan(tx, work.proposals, now)
        else:
            resolutions = {one.question_id: one for one in work.resolutions}
            policy = task.request.policy or Policy.ASK
            plan = await reconcile.plan(
                tx,
                text.episode,
                work.candidates,
                extractor=work.extractor,
                now=now,
                new=True,
                settling=Settling(
                    policy, resolutions, self.questions_max, changes_max=self.changes_max
                ),
            )
        return plan, await merge.plan(tx, drafts, now) if drafts else plan

    async def _ask(self, tx: Transaction, task: Task, plan: Plan, now: datetime) -> Task:
        waits = task.request.expires_in_s
        expires_at = now + timedelta(seconds=waits) if waits else None
        if expires_at:
            await self.transitions.promise(tx, EXPIRE, task, expires_at)
        status = Status(TaskState.INPUT_REQUIRED, now, questions=plan.questions)
        return replace(task, status=status, expires_at=expires_at)

    async def _commit(
        self, tx: Transaction, task: Task, text: "Text | None", made: "_Made", now: datetime
    ) -> Task:
        """Apply the plan, and store the text with it. Return the task, which no longer holds it."""
        plan = made.agreed
        added = [change.memory for change in plan.changes if isinstance(change, Add)]
        episodes = {memory.citation.episode_id for memory in added}
        if text:
            task = await tx.tasks.hand_over(task)
            ahead = made.ahead or await self._ahead(tx, text, plan)
            scope, computed_ = task.request.access_scope, ahead.text
            await store_planned_episode(
                tx, text.episode, self.digests, key=task.id, scope=scope, ahead=computed_
            )
            await promise_expiry(tx, self.runtime, text.episode.id, text.episode.expires_at)
            episodes.add(text.episode.id)
            lists = await computed_.lists.fitting(tx) if computed_ else None
            await commit.apply(tx, plan, now, ahead=replace(ahead.added, lists=lists))
        else:
            await commit.apply(tx, plan, now)
        if text is None and await tx.access.policy() is Policy.ASK:
            # A merge leaves memories that contradict each other apart; somebody is to be asked.
            scope = task.request.effective_scope.filtered(topic=task.request.topic)
            await recheck.promise(tx, self.runtime, scope, task.accessor)
        embedder = self.merging.embedder
        if embedder is None:
            return task
        if text and text.vectors:
            items = _items(text, added)
            if text.vectors.keys() >= set(items.values()):
                vectors = {i: text.vectors[made] for i, made in items.items()}
                await tx.vectors.put(embedder.model, vectors)
                return task
        await promise_vectors(tx, self.runtime, episodes)
        return task

    async def _fail(self, task: Task, job: Job, record: AuditEntry, error: RecallError) -> Task:
        record.outcome, record.code = Ending.ERROR, error.code
        record.ids.append(task.id)

        async def write(tx: Transaction, made: Prepared | Task | None) -> Task:
            await tx.jobs.finish(job, self.runtime.now())
            if isinstance(made, Prepared):
                return await self.transitions.write(tx, made)
            return made or task

        plan = partial(self._failed, task.id, Failure(error.code, error.message))
        change = partial(self.store.transaction, job.namespace, entry=record, locked=True)
        return await change_ahead(self.store.autocommit(job.namespace), change, plan, write)

    async def give_up(self, tx: Transaction, job: Job, code: str) -> Leaving:
        """Read the task of a job that is given up. Return a call that fails it."""
        reason = Failure(code, "It was tried several times, and did not succeed.")
        made = await self._failed(job.payload["run_id"], reason, tx)

        async def leave(tx: Transaction) -> Callable[[], None]:
            task = await self.transitions.write(tx, made) if isinstance(made, Prepared) else made
            return lambda: self.transitions.publish(job.namespace, task) if task else None

        return leave

    async def _failed(
        self, task_id: str, reason: Failure, tx: Transaction
    ) -> Prepared | Task | None:
        """Return what fails a task, or else the task if it has ended or waits."""
        task = await tx.tasks.get(task_id)
        if task is None or task.status.state not in LIVE:
            return task
        status = Status(TaskState.FAILED, self.runtime.now(), reason.message, failure=reason)
        return await prepared(task, replace(task, status=status))


class _Ahead(NamedTuple):
    """The rows of a text and of its memories, computed before the lock."""

    added: commit.Added
    text: Computed | None


class _Made(NamedTuple):
    """The plan, the one that a dry run would show, and what they were made with, at a moment."""

    planned_at: datetime
    agreed: Plan
    shown: Plan
    ahead: _Ahead | None


def _items(text: Text, added: Sequence[Memory]) -> dict[str, Texts]:
    """Return the texts of the vectors of a text's passages and of the added memories, by id."""
    found = visible_passages(text.episode)
    items = of_passages(found)
    here = [one for one in added if one.citation.episode_id == text.episode.id]
    made = of_memories([(one.searchable, one.citation.span) for one in here], found, items)
    others: dict[str, Texts] = {one.id: (one.searchable,) for one in added}
    return others | items | dict(zip((one.id for one in here), made, strict=True))


def _parts(text: str) -> list[Turn]:
    found = enumerate(_SENTENCE.finditer(text))
    return [Turn(index, Span(*one.span())) for index, one in found]


async def _from_plan(tx: Transaction, task: Task, access_scope: AccessScope) -> Task:
    """Return the task, set to do exactly what an earlier dry run planned."""
    planned = await tx.tasks.get(task.request.plan_id)
    if planned is None or planned.outcome is None or not planned.outcome.dry_run:
        raise NotFound("There is no such plan in this namespace. Make one with dry_run.")
    work = replace(planned.work, expected=planned.outcome.digest)
    if any(one.draft for one in work.proposals):
        work = replace(work, next=0, proposals=(), drafts=work.proposals)
    return replace(
        task,
        # A plan that was made with a wider access scope turns out outdated.
        request=replace(planned.request, dry_run=False, plan_id=planned.id).limited_to(
            access_scope
        ),
        work=work,
    )


def _ended(task: Task, plan: Plan, now: datetime) -> Task:
    changes = plan.changes
    outcome = Outcome(
        dry_run=task.request.dry_run,
        created=tuple(change.memory for change in changes if isinstance(change, Add)),
        superseded=tuple(change.memory_id for change in changes if isinstance(change, Supersede)),
        reinforced=tuple(change.memory_id for change in changes if isinstance(change, Reinforce)),
        groups_found=len(task.work.groups or ()),
        questions=plan.questions,
        resolutions=tuple(decision.resolution for decision in plan.decisions),
        digest=plan.digest(),
        rejected=task.work.rejected,
        read_to=_read_to(task.work, plan),
    )
    return replace(task, status=Status(TaskState.COMPLETED, now), outcome=outcome)


def _read_to(work: Work, plan: Plan) -> int | None:
    """Return where the part of the text ends that the plan is about; None: it is about all."""
    ends = [one.span.start for one in plan.left]
    return min([*ends, work.read_to] if work.read_to is not None else ends, default=None)
