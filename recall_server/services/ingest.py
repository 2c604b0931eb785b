"""Remember: keep what was said, at once. Extract: make memories of it, later."""

import asyncio
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from pydantic import TypeAdapter

from recall_server.domain.erasure import Digests
from recall_server.domain.errors import ErasedContent, IdempotencyConflict, Unavailable
from recall_server.domain.ids import new_id
from recall_server.domain.model import (
    AuditEntry,
    Candidate,
    Episode,
    Extraction,
    Job,
    Namespace,
    Source,
)
from recall_server.domain.plan import Plan, Policy, Settling
from recall_server.domain.rights import EVERYTHING, Reach
from recall_server.domain.screening import orders
from recall_server.domain.text import clean_label, clean_text
from recall_server.domain.transcript import chunk, parse_turns
from recall_server.providers.embedding import Embedder
from recall_server.providers.extraction import Extractor, Passage
from recall_server.services import commit, reconcile
from recall_server.storage.episodes import spoken, turn_id
from recall_server.storage.index import Postings, postings
from recall_server.storage.store import Store, Transaction

EXTRACT = "extract"
EMBED = "embed"

_REACH = TypeAdapter(Reach)

TOPIC_CHARS_MAX = 128
LABEL_CHARS_MAX = 256
# Reading a longer text takes long enough for other callers to notice.
INLINE_CHARS_MAX = 16_000
# Where only the words of a text matter, and not when they were said.
EPOCH = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True)
class Submission:
    """What a caller hands in to be remembered."""

    text: str
    topic: str
    idempotency_key: str | None = None
    source: Source = field(default_factory=Source)

    def digest(self) -> str:
        """What makes two submissions the same, besides their key."""
        body = [self.text, self.topic, self.source.session_id, self.source.agent_id]
        return hashlib.sha256(json.dumps(body).encode()).hexdigest()


@dataclass(frozen=True)
class Accepted:
    """The answer to a submission; `cached` where its key was used before for the same."""

    episode_id: str
    job_id: str
    cached: bool


@dataclass(frozen=True)
class Ingest:
    """Both halves of taking something in."""

    store: Store
    extractor: Extractor
    embedder: Embedder | None
    now: Callable[[], datetime]
    chance: Callable[[int], bytes]
    text_chars_max: int
    lease: timedelta
    wake: Callable[[], None]
    digests: Digests

    async def remember(
        self,
        namespace: Namespace,
        submission: Submission,
        *,
        reach: Reach = EVERYTHING,
        entry: AuditEntry,
    ) -> Accepted:
        """Keep the text, make it findable by its words, and promise to extract memories from it:
        one transaction, no model, no embedding (FEATURES B01-B03, B20, B21).

        Raises `Invalid` on unacceptable text and labels, `IdempotencyConflict` where the key was
        used for something else, `ErasedContent` where the text was erased here, `OutOfReach`.
        """
        submission = _signed(self._checked(submission), reach)
        entry.details |= {"topic": submission.topic} | submission.source.told()
        confined = reach.confined(submission.topic)
        limit = {} if confined.everything else {"reach": _REACH.dump_python(confined, mode="json")}
        episode = self._episode(submission)
        key = submission.idempotency_key or episode.id
        digest = submission.digest()
        if len(submission.text) > INLINE_CHARS_MAX:
            episode, words = await asyncio.to_thread(read, episode)
        else:
            episode, words = read(episode)
        async with self.store.transaction(namespace, entry=entry) as tx:
            if await keep(tx, episode, words, self.digests, key=key, digest=digest):
                await tx.jobs.add(
                    episode.job_id,
                    EXTRACT,
                    {"episode_id": episode.id, **limit},
                    episode.recorded_at,
                )
                accepted = Accepted(episode.id, episode.job_id, cached=False)
            else:
                before = await tx.episodes.receipt(key)
                assert before is not None
                if before.request_digest != digest:
                    raise IdempotencyConflict
                accepted = Accepted(before.episode_id, before.job_id, cached=True)
            entry.ids += [accepted.episode_id, accepted.job_id]
            entry.counts["queued"] = int(not accepted.cached)
        self.wake()
        return accepted

    def _checked(self, submission: Submission) -> Submission:
        return Submission(
            clean_text(submission.text, chars_max=self.text_chars_max),
            clean_label(submission.topic, "topic", chars_max=TOPIC_CHARS_MAX),
            _label_or_none(submission.idempotency_key, "idempotency_key"),
            checked_source(submission.source),
        )

    def _episode(self, submission: Submission) -> Episode:
        now = self.now()
        return Episode(
            id=new_id("ep", now, self.chance(10)),
            text=submission.text,
            topic=submission.topic,
            occurred_at=now,
            recorded_at=now,
            content_hash=hashlib.sha256(submission.text.encode()).hexdigest(),
            job_id=new_id("job", now, self.chance(10)),
            source=submission.source,
        )

    async def extract(self, job: Job, entry: Callable[[str], AuditEntry]) -> None:
        """Work through an episode, passage by passage, each with its memories in one transaction
        and the place reached in the same (FEATURES B04, B07): a crash repeats nothing.

        Raises what the extractor raises; the text stays findable by its words. Raises `Fenced`
        where the job has changed hands.
        """
        async with self.store.transaction(job.namespace, write=False) as tx:
            episode = await tx.episodes.get(job.payload["episode_id"])
        passages = chunk(episode.turns, self.extractor.passage_chars) if episode else []
        for number in range(job.payload.get("next", 0), len(passages)):
            assert episode is not None
            extraction = await self.extractor.extract(
                Passage(episode.text, passages[number], episode.topic, episode.occurred_at)
            )
            await self._take_in(job, episode, extraction, number + 1, entry(EXTRACT))
        await self._finish(job, episode)

    async def _take_in(
        self, job: Job, episode: Episode, found: Extraction, reached: int, entry: AuditEntry
    ) -> None:
        entry.usage = found.usage
        usable = sound(found)
        # Who handed the text in can change no more by it than they reach.
        reach = _REACH.validate_python(job.payload.get("reach", {}))
        async with self.store.transaction(job.namespace, reach=reach, entry=entry) as tx:
            await tx.lock()
            now = self.now()
            # First, as what the job was about may have been erased meanwhile.
            progress = {**job.payload, "next": reached}
            await tx.jobs.advance(job, progress, now + self.lease)
            policy = await tx.access.policy() or Policy.DECIDE
            plan = await reconcile.plan(
                tx,
                episode,
                usable,
                extractor=found.extractor,
                now=now,
                # Nobody is there to be asked.
                settling=Settling(Policy.DECIDE if policy is Policy.ASK else policy),
            )
            await commit.apply(tx, plan, now)
            entry.ids += [job.id, episode.id, *plan.ids()]
            entry.counts |= plan.counts() | {
                "rejected": found.rejected + len(found.candidates) - len(usable)
            }

    async def _finish(self, job: Job, episode: Episode | None) -> None:
        async with self.store.transaction(job.namespace) as tx:
            await tx.lock()
            await tx.jobs.finish(job, self.now())
            if episode is not None and self.embedder is not None:
                await tx.jobs.add(
                    new_id("job", self.now(), self.chance(10)),
                    EMBED,
                    {"episode_id": episode.id},
                    self.now(),
                )
        self.wake()

    async def embed(self, job: Job, entry: Callable[[str], AuditEntry]) -> None:
        """Give vectors to an episode's memories and to those turns that no memory cites.

        Raises `EmbedderUnavailable`; what lacks a vector is still found by its words.
        """
        if self.embedder is None:
            raise Unavailable("No embedder is configured.")
        async with self.store.transaction(job.namespace, write=False) as tx:
            texts = await _findable(tx, job.payload["episode_id"])
        ids = list(texts)
        vectors = await self.embedder.embed([texts[i] for i in ids])
        line = entry(EMBED)
        async with self.store.transaction(job.namespace, entry=line) as tx:
            await tx.lock()
            still = set(await _findable(tx, job.payload["episode_id"]))
            await tx.vectors.put(
                self.embedder.model,
                {i: v for i, v in zip(ids, vectors, strict=True) if i in still},
            )
            await tx.jobs.finish(job, self.now())
            line.ids.append(job.id)
            line.counts["embedded"] = len(still)


async def keep(
    tx: Transaction, episode: Episode, words: Postings, digests: Digests, *, key: str, digest: str
) -> bool:
    """Append the episode and make it findable by its words; False where `key` was used before.
    Raises `ErasedContent`.
    """
    await tx.lock()
    await refuse_erased(tx, digests, episode)
    added = await tx.episodes.add(episode, key, digest)
    if added:
        await tx.words.add(words)
    return added


async def keep_planned(
    tx: Transaction, episode: Episode, words: Postings, digests: Digests, *, key: str, plan: Plan
) -> dict[str, str]:
    """`keep` an episode whose plan is made already: those of its turns that the plan's memories
    speak for are never found by themselves. The text of its other turns, by their ids.
    """
    cited = [one.span for one in plan.citations() if one.episode_id == episode.id]
    turns = {turn_id(episode.id, turn.index): turn.span for turn in episode.turns}
    covered = {i for i, turn in turns.items() if any(turn.overlaps(span) for span in cited)}
    await refuse_erased(tx, digests, episode)
    await tx.episodes.add(episode, key, episode.content_hash, covered=covered)
    await tx.words.add(words.without(covered))
    return {i: episode.text[turn.start : turn.end] for i, turn in turns.items() if i not in covered}


async def refuse_erased(tx: Transaction, digests: Digests, episode: Episode) -> None:
    """Raise `ErasedContent` where the text, or one of its turns, was erased in this namespace. In
    the transaction that would write it, which must hold the namespace's lock: an erasure that
    commits before it is seen, and one that commits after it erases it.
    """
    assert tx.handle.namespace is not None
    if await tx.erasures.among(digests.of_episode(tx.handle.namespace, episode)):
        raise ErasedContent


async def erased_among(tx: Transaction, digests: Digests, texts: Sequence[str]) -> set[int]:
    """The places of those texts that `refuse_erased` would refuse."""
    assert tx.handle.namespace is not None
    of = [
        set(digests.of_text(tx.handle.namespace, text, parse_turns(text, EPOCH))) for text in texts
    ]
    gone = await tx.erasures.among(sorted(set().union(*of)))
    return {place for place, known in enumerate(of) if known & gone}


def sound(extraction: Extraction) -> list[Candidate]:
    """What may be planned with. What a model proposes has no authority, least of all over the
    models that will read it.
    """
    return [candidate for candidate in extraction.candidates if not orders(candidate.text)]


def read(episode: Episode) -> tuple[Episode, Postings]:
    """The episode with its turns, and the words by which they are found."""
    read = replace(episode, turns=parse_turns(episode.text, episode.occurred_at))
    return read, postings({turn_id(read.id, t.index): spoken(read.text, t) for t in read.turns})


async def _findable(tx: Transaction, episode_id: str) -> dict[str, str]:
    """Item id to the text of its vector, for all that search finds of an episode.

    A turn goes without its speaker: the name would draw it to every question that names them.
    """
    memories = await tx.memories.of_episode(episode_id)
    turns = await tx.episodes.open_turns(episode_id)
    found = {memory.id: memory.searchable for memory in memories}
    return found | {turn.id: turn.citation.quote for turn in turns if turn.citation}


def checked_source(source: Source) -> Source:
    """Raises `Invalid` on labels that cannot be kept."""
    return Source(
        _label_or_none(source.session_id, "session_id"),
        _label_or_none(source.agent_id, "agent_id"),
        source.client,
    )


def _signed(submission: Submission, reach: Reach) -> Submission:
    """The submission in the name of the agent that the reach is limited to."""
    source = submission.source
    agent = reach.writer(submission.topic, source.agent_id)
    return replace(submission, source=replace(source, agent_id=agent))


def _label_or_none(text: str | None, name: str) -> str | None:
    return clean_label(text, name, chars_max=LABEL_CHARS_MAX) if text else None
