"""Consolidate: a text that is handed in, or the memories of a topic, worked through to a plan that
is committed, shown, or waits for answers (FEATURES C24, F01-F11, G01-G04).

Nothing of a run is in memory before it is committed: a dry run, a question or a cancelled run
leaves memory as it was. The text is kept with the run until then.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import structlog

from recall_server.domain.attributes import canonical
from recall_server.domain.audit import AuditEntry
from recall_server.domain.audit import Outcome as Ending
from recall_server.domain.containers import container
from recall_server.domain.episode import Episode
from recall_server.domain.erasure import Digests
from recall_server.domain.errors import (
    Invalid,
    NotFound,
    PlanOutdated,
    RecallError,
    Stale,
    Unavailable,
)
from recall_server.domain.external_errors import EmbedderUnavailable
from recall_server.domain.job import Job
from recall_server.domain.memory import Status as Believed
from recall_server.domain.memory import searchable
from recall_server.domain.namespace import Namespace
from recall_server.domain.permissions import FULL_ACCESS, AccessScope
from recall_server.domain.plan import Add, Plan, Policy, Reinforce, Settling, Supersede
from recall_server.domain.task import (
    Failure,
    Message,
    Mode,
    Outcome,
    Request,
    Status,
    Task,
    TaskState,
    Work,
)
from recall_server.domain.text.cleaning import clean_label, clean_text
from recall_server.integrations.extraction.extractor import Extractor
from recall_server.services.memory import commit, reconcile
from recall_server.services.memory.embedding import EMBED, Texts, of_memory, of_turns
from recall_server.services.memory.episodes import keep_planned, refuse_erased
from recall_server.services.memory.ingest import (
    INLINE_CHARS_MAX,
    TOPIC_CHARS_MAX,
    checked_source,
    told,
)
from recall_server.services.memory.passages import passages, sound
from recall_server.services.memory.redaction import Masking
from recall_server.services.tasks import merge
from recall_server.services.tasks.task_cache import Text, text_of
from recall_server.services.tasks.transitions import (
    CONSOLIDATE,
    EXPIRE,
    LIVE,
    TaskTransitions,
    working,
)
from recall_server.storage.index.codes import Floats
from recall_server.storage.store import Store, Transaction
from recall_server.storage.tables.episodes import turn_id
from recall_server.storage.tables.jobs import Fenced

log = structlog.get_logger()

EXPIRES_IN_MAX_S = 366 * 86_400
# How often what has been found so far is written down: a crash repeats no more than that.
SAVE_EVERY = timedelta(seconds=2)


@dataclass(frozen=True)
class Consolidate:
    """Starting runs, and working on them. Answering and watching them is in `tasks`."""

    store: Store
    runs: TaskTransitions
    extractor: Extractor
    merging: merge.Merging
    text_chars_max: int
    lease: timedelta
    digests: Digests
    masking: Masking

    async def start(
        self,
        namespace: Namespace,
        request: Request,
        *,
        context_id: str = "",
        message: Callable[[str, str], Message] | None = None,
        also: Callable[[Transaction, Task], Awaitable[None]] | None = None,
        reach: AccessScope = FULL_ACCESS,
        entry: AuditEntry,
    ) -> Task:
        """Accept a request, with the promise to work on it: one transaction, no model. `message`
        makes what is kept of the client's words, given the ids of the run and its context; `also`
        is done in the same transaction.

        Raises `Invalid` on unacceptable text, topic or limits, `ErasedContent` on a text that was
        erased here, `NotFound` where there is no such plan here, `OutOfReach`, `QuotaExceeded`.
        """
        request = self._checked(request).held_to(reach)
        request = replace(request, text=await self.masking.text(request.text, entry))
        entry.details |= {"mode": request.mode} | request.source.told()
        if request.mode is not Mode.APPLY:
            entry.details |= told(request.topic, request.container, request.source)
        now = self.runs.now()
        run_id, context_id = self.runs.new_id("task"), context_id or self.runs.new_id("ctx")
        said = message(run_id, context_id) if message else None
        run = Task(
            id=run_id,
            context_id=context_id,
            accessor=entry.accessor,
            created_at=now,
            request=request,
            work=Work(self.runs.new_id("ep"), now),
            status=Status(TaskState.SUBMITTED, now),
            messages=(await self.masking.message(said, entry),) if said else (),
        )
        text = await text_of(run)
        async with self.store.transaction(namespace, reach=reach, entry=entry) as tx:
            await tx.lock()
            if text is not None:
                await refuse_erased(tx, self.digests, text.episode)
            if request.mode is Mode.APPLY:
                run = await _as_planned(tx, run, reach)
            elif request.policy is None:
                policy = await tx.access.policy() or Policy.ASK
                run = replace(run, request=replace(request, policy=policy))
            run = await self.runs.add(tx, run)
            if also:
                await also(tx, run)
            entry.ids.append(run.id)
        if text is not None:
            self.runs.accepted.put(namespace, run, text)
        self.runs.wake()
        return run

    def _checked(self, request: Request) -> Request:
        if request.mode is Mode.INGEST:
            clean_text(request.text, chars_max=self.text_chars_max)
        if request.mode is not Mode.APPLY:
            topic = clean_label(request.topic, "topic", chars_max=TOPIC_CHARS_MAX)
            request = replace(request, topic=topic, container=container(request.container))
        if request.expires_in_s is not None and not 1 <= request.expires_in_s <= EXPIRES_IN_MAX_S:
            raise Invalid(f"expires_in must be 1 to {EXPIRES_IN_MAX_S} seconds.")
        return replace(request, source=checked_source(request.source))

    async def work(self, job: Job, entry: Callable[[str], AuditEntry]) -> None:
        """The handler of a run's job: propose, then commit, show or ask.

        A part that does not answer is raised, and the job tried again from where it was; anything
        else ends the run with a reason that may be shown.
        """
        line = entry(CONSOLIDATE)
        run_id = job.payload["run_id"]
        run, text = self.runs.accepted.take(job.namespace, run_id) or (None, None)
        if run is None:
            run = await self.store.autocommit(job.namespace).runs.get(run_id)
        if run is None or run.status.state not in LIVE:
            async with self.store.transaction(job.namespace) as tx:
                await tx.jobs.finish(job, self.runs.now())
            return
        try:
            text = text or await text_of(run)
            run = await self._proposed(run, text, job)
            text = text and await self._embedded(run, text)
            run = await self._settle(run, text, job, line)
        except PlanOutdated as error:
            run = await self._fail(run, job, line, error)
        except (Unavailable, Stale, Fenced):
            raise
        except RecallError as error:
            run = await self._fail(run, job, line, error)
        except Exception:
            # Whoever handed it in hears of it now, and not when the last attempt has failed.
            log.exception("consolidation_failed", run=run.id, request_id=line.request_id)
            hidden = RecallError(f"internal error (ref {line.request_id})")
            run = await self._fail(run, job, line, hidden)
        # Whoever works looks for what follows from it before anything else.
        self.runs.bell.ring(job.namespace, run)

    async def _proposed(self, run: Task, text: "Text | None", job: Job) -> Task:
        """The run with all that extractor or merger have to say; saved now and then."""
        if run.work.expected and not run.work.drafts:
            return run
        if text:
            steps = self._passages(job.namespace, text.episode, run.work)
        elif run.work.drafts:
            steps = self.merging.write(job.namespace, run.request, run.work)
        else:
            steps = self.merging.steps(job.namespace, run.request, run.work)
        saved_at = self.runs.now()
        async for work in steps:
            run = replace(run, work=work)
            if self.runs.now() - saved_at >= SAVE_EVERY:
                run, saved_at = await self._save(run, job), self.runs.now()
        return run

    async def _passages(self, ns: Namespace, episode: Episode, work: Work) -> AsyncIterator[Work]:
        for number, passage in passages(episode, self.extractor.passage_chars):
            if passage is None or number <= work.next:
                continue
            said = await self.merging.budget.extract(ns, self.extractor, passage)
            found = sound(said, passage)
            work = replace(
                work,
                next=number,
                candidates=(*work.candidates, *found.candidates),
                extractor=found.extractor,
                rejected=work.rejected + found.rejected,
                usage=work.usage + found.usage,
            )
            yield work

    async def _save(self, run: Task, job: Job) -> Task:
        now = self.runs.now()
        async with self.store.transaction(job.namespace) as tx:
            saved = await self.runs.change(tx, run, working(run, now))
            await tx.jobs.advance(job, job.payload, now + self.lease)
        self.runs.bell.ring(job.namespace, saved)
        return saved

    async def _embedded(self, run: Task, text: "Text") -> "Text":
        """With vectors for the findings and turns of a short text: made beforehand, so that they
        are kept with the memories, and no job has to come back for them. Without, where nobody can
        make them now.
        """
        embedder = self.merging.embedder
        if embedder is None or len(text.episode.text) > INLINE_CHARS_MAX:
            return text
        turns = of_turns(text.episode)
        said = {
            of_memory(
                searchable(one.text, canonical(one.fact).attribute if one.fact else None),
                one.span.start,
                text.episode,
                turns,
            )
            for one in run.work.candidates
        }
        # Who speaks for a turn is found in its place.
        cited = [one.span for one in run.work.candidates]
        open_turns = {
            turns[turn_id(text.episode.id, turn.index)]
            for turn in text.episode.turns
            if not turn.hidden and not any(turn.span.overlaps(span) for span in cited)
        }
        texts = sorted(said | open_turns)
        try:
            vectors = await embedder.vectors_of(texts)
        except EmbedderUnavailable:
            return text
        return replace(text, vectors=dict(zip(texts, vectors, strict=True)))

    async def _settle(self, run: Task, text: "Text | None", job: Job, line: AuditEntry) -> Task:
        """Make the plan, and in the same transaction what it says; so it cannot be outdated."""
        line.usage = run.work.usage
        reach = run.request.seen
        async with self.store.transaction(job.namespace, reach=reach, entry=line) as tx:
            await tx.lock()
            now = self.runs.now()
            plan = await _plan(tx, run, text, now)
            expected = run.work.expected if not run.work.resolutions else ""
            drafts = run.work.drafts
            planned = await merge.plan(tx, drafts, now) if drafts else plan
            if expected and planned.digest() != expected:
                raise PlanOutdated
            if run.request.dry_run:
                after = _ended(run, plan, now)
            elif plan.questions:
                after = await self._ask(tx, run, plan, now)
            else:
                await self._commit(tx, run, text, plan, now)
                after = _ended(run, plan, now)
            saved = await self.runs.change(tx, run, after)
            await tx.jobs.finish(job, now)
            line.ids += [run.id, *plan.ids()]
            line.counts |= plan.counts() | {"questions": len(plan.questions)}
        return saved

    async def _ask(self, tx: Transaction, run: Task, plan: Plan, now: datetime) -> Task:
        waits = run.request.expires_in_s
        expires_at = now + timedelta(seconds=waits) if waits else None
        if expires_at:
            await self.runs.promise(tx, EXPIRE, run, expires_at)
        status = Status(TaskState.INPUT_REQUIRED, now, questions=plan.questions)
        return replace(run, status=status, expires_at=expires_at)

    async def _commit(
        self, tx: Transaction, run: Task, text: "Text | None", plan: Plan, now: datetime
    ) -> None:
        added = [change.memory for change in plan.changes if isinstance(change, Add)]
        active = [one for one in added if one.status is Believed.ACTIVE]
        items: dict[str, Texts] = {one.id: (one.searchable,) for one in active}
        episodes = {memory.citation.episode_id for memory in added}
        vectors: Mapping[Texts, Floats] = {}
        planned: commit.Planned | None = None
        if text:
            covered, shown = await keep_planned(
                tx, text.episode, self.digests, key=run.id, plan=plan
            )
            planned = commit.Planned(text.episode, text.words.without(covered))
            turns = of_turns(text.episode)
            items |= {i: texts for i, texts in turns.items() if i in shown}
            items |= {
                one.id: of_memory(one.searchable, one.citation.span.start, text.episode, turns)
                for one in active
                if one.citation.episode_id == text.episode.id
            }
            episodes.add(text.episode.id)
            vectors = text.vectors
        await commit.apply(tx, plan, now, planned=planned)
        embedder = self.merging.embedder
        if embedder is None:
            return
        if vectors.keys() >= set(items.values()):
            await tx.vectors.put(embedder.model, {i: vectors[made] for i, made in items.items()})
            return
        for episode_id in sorted(episodes):
            await tx.jobs.add(self.runs.new_id("job"), EMBED, {"episode_id": episode_id}, now)

    async def _fail(self, run: Task, job: Job, line: AuditEntry, error: RecallError) -> Task:
        line.outcome, line.code = Ending.ERROR, error.code
        line.ids.append(run.id)
        async with self.store.transaction(job.namespace, entry=line) as tx:
            await tx.lock()
            failed = await self._failed(tx, run.id, Failure(error.code, error.message))
            await tx.jobs.finish(job, self.runs.now())
        return failed or run

    async def give_up(self, tx: Transaction, job: Job, code: str) -> Callable[[], None]:
        """What is left to say when a run's job is given up; after the commit, to who waits."""
        reason = Failure(code, "It was tried several times, and did not succeed.")
        run = await self._failed(tx, job.payload["run_id"], reason)
        return lambda: self.runs.bell.ring(job.namespace, run) if run else None

    async def _failed(self, tx: Transaction, run_id: str, reason: Failure) -> Task | None:
        run = await tx.runs.locked(run_id)
        if run is None or run.status.state not in LIVE:
            return run
        status = Status(TaskState.FAILED, self.runs.now(), reason.message, failure=reason)
        return await self.runs.change(tx, run, replace(run, status=status))


async def _plan(tx: Transaction, run: Task, text: Text | None, now: datetime) -> Plan:
    if text is None:
        return await merge.plan(tx, run.work.proposals, now)
    return await reconcile.plan(
        tx,
        text.episode,
        run.work.candidates,
        extractor=run.work.extractor,
        now=now,
        new=True,
        settling=Settling(
            run.request.policy or Policy.ASK, {one.question_id: one for one in run.work.resolutions}
        ),
    )


async def _as_planned(tx: Transaction, run: Task, reach: AccessScope) -> Task:
    """The run, set to do exactly what an earlier dry run planned."""
    planned = await tx.runs.get(run.request.plan_id)
    if planned is None or planned.outcome is None or not planned.outcome.dry_run:
        raise NotFound("There is no such plan in this namespace. Make one with dry_run.")
    work = replace(planned.work, expected=planned.outcome.digest)
    if any(one.draft for one in work.proposals):
        work = replace(work, next=0, proposals=(), drafts=work.proposals)
    return replace(
        run,
        # Where the plan was made with a wider access scope than is left, it is outdated.
        request=replace(planned.request, dry_run=False, plan_id=planned.id).held_to(reach),
        work=work,
    )


def _ended(run: Task, plan: Plan, now: datetime) -> Task:
    changes = plan.changes
    outcome = Outcome(
        dry_run=run.request.dry_run,
        created=tuple(change.memory for change in changes if isinstance(change, Add)),
        superseded=tuple(change.memory_id for change in changes if isinstance(change, Supersede)),
        reinforced=tuple(change.memory_id for change in changes if isinstance(change, Reinforce)),
        groups_found=len(run.work.groups or ()),
        questions=plan.questions,
        resolutions=tuple(decision.resolution for decision in plan.decisions),
        digest=plan.digest(),
        rejected=run.work.rejected,
    )
    return replace(run, status=Status(TaskState.COMPLETED, now), outcome=outcome)
