"""Stores submitted texts immediately, and extracts memories from them in the background."""

import asyncio
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from itertools import chain, islice, repeat
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from recall_server.domain.audit import AuditEntry
from recall_server.domain.context import Context, Runtime
from recall_server.domain.episode import TEXT_ONLY, Episode, Source, Turn, Utterance, label_or_none
from recall_server.domain.erasure import Digests
from recall_server.domain.errors import IdempotencyConflict, Invalid, NotFound
from recall_server.domain.extraction import (
    Candidate,
    Extraction,
    Extractor,
    Passage,
    Refusal,
    Refused,
)
from recall_server.domain.ids import NONE, PROPOSAL, Namespace, container
from recall_server.domain.intents import Thresholds
from recall_server.domain.memory import MemoryType
from recall_server.domain.moments import check_times, passed
from recall_server.domain.permissions import ACCESS_SCOPE
from recall_server.domain.plan import Plan, Policy, Proposal, ProposalKind, Propose
from recall_server.domain.task import Job, TextJob
from recall_server.domain.text.cleaning import clean_label, clean_text, not_too_long, storable
from recall_server.domain.text.transcript import transcript, whole
from recall_server.domain.webhook import WebhookKind
from recall_server.services.limits import Budget
from recall_server.services.memory import commit, reconcile
from recall_server.services.memory.commit import Judgements
from recall_server.services.memory.episodes import (
    TEXT_CHARS_MAX,
    VERBATIM,
    Redaction,
    checked_utterances,
    computed,
    conversation,
    last_said_at,
    passages,
    prepared,
    promise_expiry,
    refuse_fragments,
    store_episode,
    validate_candidates,
    verbatim,
    visible_text,
    without_forgotten,
)
from recall_server.services.memory.indexing import promise_vectors
from recall_server.storage.index.words import Postings
from recall_server.storage.store import Store, Transaction
from recall_server.storage.tables.jobs import refused_row

EXTRACT = "extract"
TOPIC_CHARS_MAX = 128
# How many refused candidates the job of a text tells; the others are counted in the audit log.
REFUSED_MAX = 50
CHANGES_AT_ONCE = 250


@dataclass(frozen=True)
class Submission:
    """A text to remember, or the utterances of a conversation in its place, and its origin.
    `occurred_at`: when it was said, if not now. `kept_as` and `expires_at`: as in `Episode`.
    """

    text: str
    topic: str
    idempotency_key: str | None = None
    source: Source = field(default_factory=Source)
    container: str = NONE
    utterances: tuple[Utterance, ...] = ()
    occurred_at: datetime | None = None
    kept_as: str | None = None
    expires_at: datetime | None = None

    @property
    def chars(self) -> int:
        """The number of characters of the text, or of the transcript of the utterances."""
        lines = sum(len(one.speaker) + len(one.words) + 3 for one in self.utterances)
        return lines - 1 if lines else len(self.text)

    def digest(self) -> str:
        """Return a hash of the content, without the key: equal for equal submissions."""
        body: list[Any] = [self.text, self.topic, *self.source.digested()]
        # A submission without these fields keeps the digest that it had before they existed.
        body += [self.container] if self.container else []
        body += [{"at": self.occurred_at.isoformat()}] if self.occurred_at else []
        body += [{"kept_as": self.kept_as}] if self.kept_as else []
        body += [{"expires_at": self.expires_at.isoformat()}] if self.expires_at else []
        body += [{"said": [one.digested() for one in self.utterances]}] if self.utterances else []
        return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Accepted:
    """The answer to a submission. `cached`: its key was used before for the same content.
    `new_container`: this is the first text in `container`.
    """

    episode_id: str
    job_id: str
    cached: bool
    container: str = NONE
    new_container: bool = False


@dataclass(frozen=True)
class Extracted:
    """The job of a stored text, the active memories that were made from it, and the candidates that
    were refused, each with the words that it cites, as far as they can be read.
    """

    job: TextJob
    memory_ids: tuple[str, ...]
    refused: tuple[tuple[Refused, str], ...]


class _Progress(NamedTuple):
    """The payload of a job before a passage is done, and after it; and if it is the last one."""

    before: Mapping[str, Any]
    done: Mapping[str, Any]
    last: bool


@dataclass(frozen=True)
class Ingest:
    """Storing and extracting. `embeds`: stored items get vectors. `changes_at_once`: of memories,
    in one transaction.
    """

    store: Store
    runtime: Runtime
    extractor: Extractor
    embeds: bool
    text_chars_max: int
    text_passages_max: int
    digests: Digests
    redaction: Redaction
    budget: Budget
    judgements: Judgements
    thresholds: Thresholds
    changes_at_once: int = CHANGES_AT_ONCE
    # By namespace: held while the memories of a text are planned and written.
    _writing: WeakValueDictionary[Namespace, asyncio.Lock] = field(
        default_factory=WeakValueDictionary, init=False
    )

    async def begin(self) -> None:
        """Queue the extractions again for which there was no space: the quota may be larger now."""
        async with self.store.transaction(None) as tx:
            await tx.jobs.requeue_without_space(self.runtime.now())

    async def remember(self, context: Context, submission: Submission) -> Accepted:
        """Store the text, index its words and enqueue the extraction in one transaction, without a
        model and without vectors.

        Raises `Invalid` if the text or a label is not acceptable, `IdempotencyConflict` if the key
        was used for other content, `ErasedContent` if the text was erased here,
        `OutsideAccessScope`, `QuotaExceeded`.
        """
        submission, episode, words = await self.prepared(context, submission)
        confined = context.scope.confined(submission.topic, submission.container)
        limit = {}
        if not confined.everything:
            limit["reach"] = ACCESS_SCOPE.dump_python(confined, mode="json")
        key = submission.idempotency_key
        digest = submission.digest()
        context.entry.part_of = episode.job_id
        tables = self.store.autocommit(context.namespace)
        ahead = await computed(tables, episode, words, self.digests)
        store = partial(store_episode, key=key, digest=digest, scope=context.scope, ahead=ahead)
        async with self.store.change(context) as tx:
            if await store(tx, episode, words, self.digests):
                await tx.jobs.add(
                    episode.job_id,
                    EXTRACT,
                    {"episode_id": episode.id, **limit},
                    episode.recorded_at,
                    context.entry.began_by,
                )
                await promise_expiry(tx, self.runtime, episode.id, episode.expires_at)
                name = episode.container
                accepted = Accepted(
                    episode.id,
                    episode.job_id,
                    cached=False,
                    container=name,
                    new_container=bool(name) and await tx.episodes.first_in(name),
                )
            else:
                assert key is not None
                before = await tx.episodes.receipt(key)
                assert before is not None
                if before.request_digest != digest:
                    raise IdempotencyConflict
                # The text is now that of a token that stands.
                now = self.runtime.now()
                await tx.jobs.take_over(before.job_id, now, context.entry.began_by)
                accepted = Accepted(
                    before.episode_id, before.job_id, cached=True, container=submission.container
                )
            context.entry.ids += [accepted.episode_id, accepted.job_id]
            context.entry.counts["queued"] = int(not accepted.cached)
        self.runtime.wake()
        return accepted

    async def prepared(
        self, context: Context, submission: Submission
    ) -> tuple[Submission, Episode, Postings]:
        """Return the redacted submission within the access scope, its episode and its postings.
        Raises those errors of `remember` that need no look into the database.
        """
        # Redact before anything is stored and before the digest is made: a digest of the original
        # would confirm a guessed secret.
        submission = self._checked(submission)
        if submission.kept_as is None:
            said = await conversation(
                submission.text, self.runtime.now(), self.runtime.compute, context.namespace
            )
            submission = replace(submission, text="", utterances=said) if said else submission
        submission = await self._redacted(context, submission)
        source = submission.source
        agent = context.scope.writer(submission.topic, source.agent_id)
        name = context.scope.container_for(submission.container)
        source = replace(source, agent_id=agent)
        submission = replace(submission, source=source, container=name)
        context.entry.details |= text_details(submission.topic, name, source)
        episode, words = await prepared(
            self._episode(submission), self.runtime.compute, context.namespace
        )
        refuse_fragments(words, self.text_passages_max)
        return submission, episode, words

    def _checked(self, submission: Submission) -> Submission:
        said = submission.utterances
        if said and submission.text:
            raise Invalid("There is a text and messages. Send one of them.")
        now = self.runtime.now()
        said = checked_utterances(said, now)
        check_times(now, submission.occurred_at, submission.expires_at)
        if said:
            not_too_long(submission.chars, self.text_chars_max)
        else:
            clean_text(submission.text, chars_max=self.text_chars_max)
        if submission.kept_as not in (None, TEXT_ONLY):
            for kept in [one.words for one in said] or [submission.text]:
                not_too_long(len(kept.strip()), TEXT_CHARS_MAX)
        return replace(
            submission,
            topic=clean_label(submission.topic, "topic", chars_max=TOPIC_CHARS_MAX),
            idempotency_key=label_or_none(submission.idempotency_key, "idempotency_key"),
            source=submission.source.checked(),
            container=container(submission.container),
            utterances=said,
        )

    async def _redacted(self, context: Context, submission: Submission) -> Submission:
        entry = context.entry
        topic, source = await self.redaction.labels(
            submission.topic, submission.container, submission.source, entry
        )
        key = submission.idempotency_key
        if key is not None:
            (masked,) = await self.redaction.lines([key], entry)
            # A limited token shares its keys only with tokens of the same access scope, and learns
            # of no others. A key that holds a secret is stored as a digest.
            if not context.scope.everything or masked != key:
                key = self.digests.exact(context.namespace, context.scope.canonical(), key)
        return replace(
            submission,
            text=await self.redaction.text(submission.text, entry),
            topic=topic,
            utterances=await self.redaction.utterances(submission.utterances, entry),
            source=source,
            idempotency_key=key,
        )

    def _episode(self, submission: Submission) -> Episode:
        now = self.runtime.now()
        text, turns = submission.text, tuple[Turn, ...]()
        if submission.utterances:
            text, turns = transcript(submission.utterances)
        elif submission.kept_as not in (None, TEXT_ONLY):
            turns = whole(text)
        return Episode(
            id=self.runtime.new_id("ep"),
            text=text,
            topic=submission.topic,
            occurred_at=submission.occurred_at or last_said_at(submission.utterances) or now,
            recorded_at=now,
            content_hash=hashlib.sha256(text.encode()).hexdigest(),
            job_id=self.runtime.new_id("job"),
            source=submission.source,
            turns=turns,
            container=submission.container,
            kept_as=submission.kept_as,
            expires_at=submission.expires_at,
        )

    async def extracted(self, context: Context, job_id: str) -> Extracted:
        """Return the job of a text and what became of the text. Raises
        `NotFound`, also if the text is outside of the access scope.
        """
        storable(job_id)
        async with self.store.view(context) as tx:
            job = await tx.jobs.of_text(job_id)
            memories = await tx.memories.of_episode(job.episode_id) if job else []
            refused = job.refused if job else ()
            episode = await tx.episodes.get(job.episode_id) if job and refused else None
        if job is None:
            raise NotFound("No job has this id. Take the job_id that a store has answered with.")
        context.entry.ids.append(job.id)
        text = ""
        if episode and not passed(episode.expires_at, self.runtime.now()):
            text = visible_text(episode)
        return Extracted(
            job,
            tuple(one.id for one in memories),
            tuple(
                (one, text[one.span.start : one.span.end].strip() if one.span else "")
                for one in refused
            ),
        )

    async def extract(self, job: Job, entry: Callable[[str], AuditEntry]) -> None:
        """Extract memories passage by passage, or keep the text itself as one. The memories of a
        passage and the progress are saved in one transaction, so that a crash repeats nothing.

        Raises what the extractor raises, and `BudgetSpent`; the text still gets its vectors.
        Raises `Fenced` if another worker holds the job.
        """
        async with self.store.transaction(job.namespace, write=False) as tx:
            episode = await tx.episodes.get(job.payload["episode_id"])
        left = self._left(job, episode) if episode else []
        if episode is None or not left:
            async with self.store.transaction(job.namespace, locked=True) as tx:
                await tx.jobs.finish(job, self.runtime.now(), job.payload.get("fault"))
                if episode is not None:
                    await self._finished(tx, job)
        else:
            try:
                await self._extract(job, episode, left, entry)
            except Exception:
                if job.attempt == 1:
                    # The model may be away for long: the text has its vectors before its memories.
                    async with self.store.transaction(job.namespace, locked=True) as tx:
                        if await tx.jobs.state(job.id) is not None:  # else it was erased
                            await self._embed(tx, job)
                    self.runtime.wake()
                raise
        self.runtime.wake()

    def _left(self, job: Job, episode: Episode) -> list[tuple[int, Passage]]:
        """Return the passages that are left to do, with their numbers."""
        if episode.kept_as == TEXT_ONLY or passed(episode.expires_at, self.runtime.now()):
            return []
        chars = len(episode.text) if _verbatim(episode) else self.extractor.passage_chars
        numbered = passages(episode, chars, only=job.payload.get("turn"))
        done = job.payload.get("next", 0)
        return [(number, one) for number, one in numbered if one is not None and number > done]

    async def _extract(
        self,
        job: Job,
        episode: Episode,
        left: Sequence[tuple[int, Passage]],
        entry: Callable[[str], AuditEntry],
    ) -> None:
        """Extract the passages. The job is done with the last one."""
        payload, type_ = job.payload, _verbatim(episode)
        refused = payload.get("refused", []) if "next" in payload else []
        for number, passage in left:
            if type_:
                said = verbatim(passage, type_)
            else:
                ask, most = partial(self.extractor.extract, passage), self.extractor.call_tokens_max
                said = await self.budget.ask(job.namespace, most, ask)
            found = validate_candidates(said, passage).capped(self.thresholds.doubted_max)
            fault = {"fault": found.fault} if found.fault else {}
            unreadable = Refused(Refusal.UNREADABLE)
            more = chain(found.refused, repeat(unreadable, found.rejected - len(found.refused)))
            refused = [*refused, *map(refused_row, islice(more, REFUSED_MAX - len(refused)))]
            done = {**payload, "next": number, **fault, "refused": refused}
            progress = _Progress(payload, done, last=number == left[-1][0])
            rest: Extraction | None = found
            while rest is not None:
                rest = await self._store_memories(job, episode, rest, progress, entry(EXTRACT))
            payload = done

    async def _store_memories(
        self,
        job: Job,
        episode: Episode,
        found: Extraction,
        progress: "_Progress",
        entry: AuditEntry,
    ) -> Extraction | None:
        """Make memories of what was found in a passage, as many as one transaction may. Return the
        rest, if there is any.
        """
        entry.usage = found.usage
        # The text can change only what its caller may access, in its container.
        access_scope = ACCESS_SCOPE.validate_python(job.payload.get("reach", {})).inside(
            {episode.container}
        )

        async def plan(tx: Transaction) -> tuple[Plan, int, datetime]:
            candidates = await without_forgotten(tx, episode, found.candidates)
            settling, now = await reconcile.settling(tx), await tx.moment()
            settling = replace(settling, changes_max=self.changes_at_once)
            by_model = found.extractor != VERBATIM and not found.extractor.startswith("rules/")
            # Somebody is asked about what a model doubts, if that is the policy.
            asks = by_model and settling.policy is Policy.ASK
            doubted = self.thresholds.doubted_max
            waiting = [one for one in candidates if asks and one.confidence <= doubted]
            made = await reconcile.plan(
                tx,
                episode,
                [one for one in candidates if one not in waiting],
                extractor=found.extractor,
                now=now,
                settling=settling,
            )
            if waiting:
                made = await self._proposed(tx, made, episode, waiting, found.extractor)
            return made, len(found.candidates) - len(candidates), now

        async def write(
            tx: Transaction, planned: tuple[Plan, int, datetime]
        ) -> Sequence[Candidate]:
            made, forgotten, planned_at = planned
            now = await tx.moment()
            made = made.dated(planned_at, now)
            last, done = progress.last and not made.left, progress.done
            # This comes first: the episode may have been erased meanwhile.
            if last:
                await tx.jobs.finish(job, now, done.get("fault"), refused=done["refused"])
            else:
                # A passage that is repeated adds no memory and no citation again.
                payload = progress.before if made.left else done
                await tx.jobs.advance(job, payload, now + self.runtime.lease)
            await commit.apply(tx, made, now)
            await self.judgements.promise(tx, made, job.accessor)
            entry.ids[:] = [job.id, episode.id, *made.ids()]
            entry.counts |= made.counts() | {"rejected": found.rejected + forgotten}
            if last:
                await self._finished(tx, job)
            return made.left

        # One at a time, or each would change what the others have planned with.
        async with self._writing.setdefault(job.namespace, asyncio.Lock()):
            context = Context(entry, access_scope)
            left = await commit.apply_planned(self.store, context, plan, write)
        return Extraction(tuple(left), found.extractor) if left else None

    async def _proposed(
        self,
        tx: Transaction,
        plan: Plan,
        episode: Episode,
        waiting: Sequence[Candidate],
        extractor: str,
    ) -> Plan:
        """Return the plan with a proposal for each candidate that was not proposed before."""
        now = await tx.moment()
        memories = reconcile.proposed(episode, waiting, extractor, now)
        before = await tx.memories.get(list(memories))
        proposals = [
            Propose(
                Proposal(
                    self.runtime.new_id(PROPOSAL), ProposalKind.EXTRACT, (one.id,), (), None, now
                ),
                (one,),
                hides_words=False,
            )
            for one in memories.values()
            if one.id not in before
        ]
        return replace(plan, changes=(*plan.changes, *proposals))

    async def _finished(self, tx: Transaction, job: Job) -> None:
        """Tell that a text was read, and have its vectors made."""
        tx.webhooks.tell(WebhookKind.EXTRACTION_COMPLETED, job.id, self.runtime.now())
        await self._embed(tx, job)

    async def _embed(self, tx: Transaction, job: Job) -> None:
        if self.embeds:
            await promise_vectors(tx, self.runtime, [job.payload["episode_id"]])


def _verbatim(episode: Episode) -> MemoryType | None:
    """Return the type of the memory that keeps the text itself; None if memories are extracted."""
    return MemoryType(episode.kept_as) if episode.kept_as else None


def text_details(topic: str, container: str, source: Source) -> dict[str, str]:
    return {"topic": topic} | ({"container": container} if container else {}) | source.details()
