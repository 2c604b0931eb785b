"""Intents: remember, correct or forget something immediately, by rules, and report the decision."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from recall_server.domain.context import Context
from recall_server.domain.episode import Citation, Episode, Source, Span, episode_of
from recall_server.domain.errors import (
    Invalid,
    LimitReached,
    MatchAmbiguous,
    MatchNotFound,
    MemoryNotFound,
    MemorySuperseded,
    NotWaiting,
    OutsideAccessScope,
    Stale,
)
from recall_server.domain.extraction import Candidate, Extraction, Extractor
from recall_server.domain.ids import PROPOSAL, container, derived_id
from recall_server.domain.intents import (
    Intent,
    Match,
    Thresholds,
    forgets_all,
    intended,
    matches,
    may_forget,
    meant,
    statement,
)
from recall_server.domain.memory import BELIEVED, Memory, MemoryType, Status, chain
from recall_server.domain.permissions import AccessScope
from recall_server.domain.plan import (
    BY_HAND,
    Add,
    Dispute,
    Forget,
    Plan,
    Proposal,
    ProposalKind,
    Propose,
    Reason,
    Relation,
    RelationKind,
)
from recall_server.domain.similarity import Verdict, compare
from recall_server.domain.text.cleaning import clean_text, not_too_long, storable
from recall_server.domain.text.terms import terms
from recall_server.services.memory import commit, reconcile
from recall_server.services.memory.beliefs import similar_items
from recall_server.services.memory.episodes import (
    EPOCH,
    TEXT_CHARS_MAX,
    VERBATIM,
    passages,
    promise_expiry,
    store_episode,
    validate_candidates,
    verbatim,
    visible_text,
    with_turns,
)
from recall_server.services.memory.indexing import promise_vectors
from recall_server.services.memory.ingest import Ingest, Submission
from recall_server.services.memory.reconcile import Corrected
from recall_server.storage.store import Store, Transaction

# How many memories are scored against a statement, and how many of them a report shows.
SCORED_MAX = 50
CONSIDERED_MAX = 5
NAMED_MAX = 5
# A memory with this many relations, in either direction, gets no more.
RELATIONS_MAX = 100
GENERAL = "general"


@dataclass(frozen=True)
class Wish:
    """A caller's wish. Without a topic or a container, a correction takes those of the memory.

    `memory_id`: the memory that is meant; without it, the words decide.
    `by_hand`: keep it word for word, and replace even what is trusted more.
    `review`: it waits until somebody accepts it.
    `edits`: the proposal that it replaces with better words.
    `evidence`: words that it is said to rest on; they are cited if a text has them.
    """

    intent: Intent
    submission: Submission
    memory_id: str = ""
    type: MemoryType | None = None
    confidence: float | None = None
    dry_run: bool = False
    by_hand: bool = False
    review: bool = False
    edits: str = ""
    evidence: str = ""
    needs_review: bool = False


@dataclass(frozen=True)
class Report:
    """The decision, or with `dry_run` the one that would be made; the plan names the rules.

    `considered`: the memories that came near.
    `unclear`: the memories that match equally well, if there are several.
    `change_id`: the id by which this can be undone.
    `held`: the words are in quarantine.
    `masked`: how many secrets in the words were written over.
    `not_forgotten`: the words begin like a request to forget, and were remembered all the same.
    """

    intent: Intent
    plan: Plan
    thresholds: Thresholds
    considered: tuple[Match, ...] = ()
    unclear: tuple[str, ...] = ()
    episode_id: str | None = None
    change_id: str | None = None
    dry_run: bool = False
    held: bool = False
    masked: int = 0
    not_forgotten: bool = False


@dataclass(frozen=True)
class Related:
    """A relation that was stated, and the id of the dispute that it opened, if any."""

    relation: Relation
    question_id: str | None = None


@dataclass(frozen=True)
class Target:
    """The memory that is meant, if it is clear, and the memories that came near."""

    memory: Memory | None
    considered: tuple[Match, ...] = ()
    unclear: tuple[str, ...] = field(default=())


@dataclass(frozen=True)
class Intents:
    """Changes memory at the wish of a caller, in one transaction, without a model."""

    store: Store
    ingest: Ingest
    rules: Extractor
    embeds: bool

    async def submit(self, context: Context, wish: Wish) -> Report:
        """Do what is wished, or in a dry run report what would be done. The words of a statement to
        remember are stored as a text; the words of a request to forget are not.

        Raises what `Ingest.remember` raises, `MemoryNotFound`, `MemorySuperseded`, and, unless it
        is a dry run, `MatchNotFound` and `MatchAmbiguous`.
        """
        not_too_long(len(wish.submission.text), TEXT_CHARS_MAX)
        text = await self.ingest.redaction.text(wish.submission.text, context.entry)
        wish = replace(wish, submission=replace(wish.submission, text=text))
        auto = wish.intent is Intent.AUTO
        intent = intended(wish.intent, text, wish.memory_id)
        context.entry.details["intent"] = str(intent)
        if wish.dry_run:
            context.entry.counts["dry_run"] = 1
        target = await self._target(context, wish, intent)
        if auto and intent is Intent.CORRECT and target.memory is None:
            intent = Intent.REMEMBER
        if intent is not Intent.REMEMBER and target.memory is None:
            if wish.dry_run:
                report = Report(intent, Plan(), self.ingest.thresholds, target.considered)
                return replace(report, unclear=target.unclear, dry_run=True)
            if not target.unclear:
                raise MatchNotFound
            raise MatchAmbiguous(
                f"Any of these memories may be meant: {', '.join(target.unclear)}. A call is about "
                "one: send the memory_id of it, or more of its words; dry_run shows theirs."
            )
        if intent is Intent.FORGET:
            return await self._forget(context, wish, target)
        report = await self._state(context, replace(wish, intent=intent), target)
        return replace(report, not_forgotten=auto and may_forget(text))

    async def update(
        self,
        context: Context,
        memory_id: str,
        *,
        text: str,
        type_: MemoryType | None,
        confidence: float | None,
        dry_run: bool,
        review: bool = False,
    ) -> Report:
        """Replace a memory with a new version, word for word; what is not given stays as it was.
        Raises what `submit` raises, and `Invalid` if nothing is given.
        """
        if not text and type_ is None and confidence is None:
            raise Invalid("Nothing is to be different. Send text, type or confidence.")
        storable(memory_id)
        tx = self.store.autocommit(context.namespace, access_scope=context.scope)
        memory = await _believed(
            tx, (await tx.memories.get([memory_id])).get(memory_id), Intent.CORRECT
        )
        wish = Wish(
            Intent.CORRECT,
            Submission(
                text or memory.text,
                memory.topic,
                # The new version is the word of the caller, not of the original source.
                source=Source(tags=memory.source.tags, metadata=memory.source.metadata),
                expires_at=memory.expires_at,
            ),
            memory_id,
            type_ or memory.type,
            memory.confidence if confidence is None else confidence,
            dry_run,
            by_hand=True,
            review=review,
        )
        return await self.submit(context, wish)

    async def _target(self, context: Context, wish: Wish, intent: Intent) -> Target:
        """Find the memory that is meant. Raises `MemoryNotFound`, `MemorySuperseded`."""
        scope = context.scope
        if wish.submission.container:
            scope = scope.inside({container(wish.submission.container)})
        tx = self.store.autocommit(context.namespace, access_scope=scope)
        if wish.memory_id:
            if intent is Intent.REMEMBER:
                raise Invalid("memory_id is of what is to be corrected or forgotten. Leave it out.")
            storable(wish.memory_id)
            memory = (await tx.memories.get([wish.memory_id])).get(wish.memory_id)
            memory = await _believed(tx, memory, intent)
            return Target(memory, (Match(memory, 1.0),))
        clean_text(wish.submission.text, chars_max=TEXT_CHARS_MAX)
        text = statement(intent, wish.submission.text)
        draft = with_turns(Episode("", text, GENERAL, EPOCH, EPOCH, "", ""))
        found = matches(
            intent,
            text,
            (await self._said(draft, wish)).candidates,
            await tx.memories.with_terms(await tx.words.shared(terms(text)), SCORED_MAX),
            self.ingest.thresholds.match_coverage,
            aliases=await tx.aliases.all(),
        )
        near = tuple(one for one in found[:CONSIDERED_MAX] if one.score)
        if intent is Intent.FORGET and forgets_all(wish.submission.text):
            return Target(None, near, tuple(one.memory.id for one in near))
        best = meant(intent, found, self.ingest.thresholds)
        return Target(
            best[0].memory if len(best) == 1 else None,
            near,
            tuple(one.memory.id for one in best[:NAMED_MAX]) if len(best) > 1 else (),
        )

    async def _forget(self, context: Context, wish: Wish, target: Target) -> Report:
        assert target.memory is not None
        memory = target.memory
        plan = Plan((Forget(memory.id),))
        if wish.review and not wish.dry_run:
            plan = self._proposed(context, ProposalKind.FORGET, (), memory)
        report = Report(
            Intent.FORGET, plan, self.ingest.thresholds, target.considered, dry_run=wish.dry_run
        )
        if wish.dry_run:
            return report
        if wish.review:
            async with self.store.change(context) as tx:
                if waits := await tx.proposals.forgetting(memory.id):
                    # Else one caller could fill the table with it: it brings no text that counts.
                    return replace(report, plan=Plan((Propose(waits, ()),)))
                await commit.apply(tx, plan, await tx.moment())
                context.entry.counts |= plan.counts()
                context.entry.ids += plan.ids()
            self.ingest.runtime.wake()
            return replace(report, change_id=context.entry.change)

        async def write(tx: Transaction, made: commit.Forgotten) -> None:
            await made.write(tx, await tx.moment())
            await self._embed(tx, {one.episode_id for one in made.words})
            context.entry.counts |= plan.counts()
            context.entry.ids[:] = plan.ids()

        async def planned(tx: Transaction) -> commit.Forgotten:
            return await commit.forgotten(tx, memory.id)

        await commit.apply_planned(self.store, context, planned, write)
        self.ingest.runtime.wake()
        return replace(report, change_id=context.entry.change)

    async def _state(self, context: Context, wish: Wish, target: Target) -> Report:
        """Remember the statement; if it is a correction, it replaces the target."""
        corrected = target.memory if wish.intent is Intent.CORRECT else None
        wish, evidence = await self._with_evidence(context, wish)
        submission = _placed(wish, corrected)
        _, episode, words = await self.ingest.prepared(context, submission)
        said = await self._said(episode, wish)
        if corrected:
            said = replace(said, candidates=_correcting(said.candidates, corrected, wish.type))
        _refuse_types(context.scope, said.candidates)
        # The text can change only what its caller may access, in its container.
        scope = context.scope.inside({episode.container})

        async def plan(tx: Transaction) -> tuple[Plan, datetime]:
            settling, wrong = await reconcile.settling(tx), corrected
            if wrong:
                # The memory may have changed since it was found.
                (wrong,) = await tx.memories.active([wrong.id]) or (None,)
                if wrong is None:
                    raise Stale
            now = await tx.moment()
            if wish.review and said.candidates and not wish.dry_run:
                kind = ProposalKind.UPDATE if wish.by_hand else ProposalKind(wish.intent)
                new = reconcile.proposed(episode, said.candidates, said.extractor, now)
                made = self._proposed(context, kind, new.values(), wrong)
            else:
                made = await reconcile.plan(
                    tx,
                    episode,
                    said.candidates,
                    extractor=said.extractor,
                    now=now,
                    settling=settling,
                    new=True,
                    corrected=Corrected(wrong, wish.by_hand) if wrong else None,
                )
            if evidence and await _within(tx, evidence.episode_id, evidence.quote):
                made = _citing(made, evidence)
            return made, now

        async def write(tx: Transaction, planned: tuple[Plan, datetime]) -> Plan:
            made, planned_at = planned
            now = await tx.moment()
            made = made.dated(planned_at, now)
            await store_episode(
                tx,
                episode,
                words,
                self.ingest.digests,
                key=None,
                digest=submission.digest(),
                scope=context.scope,
            )
            await promise_expiry(tx, self.ingest.runtime, episode.id, episode.expires_at)
            if wish.edits and not await tx.proposals.edit(wish.edits, context.entry.by, now):
                raise NotWaiting
            context.entry.ids.append(episode.id)
            await self.ingest.judgements.apply(tx, made, now, context.entry)
            await self._embed(tx, {episode.id})
            return made

        held = not said.candidates and any(turn.hidden for turn in episode.turns)
        masked = context.entry.counts.get("masked", 0)
        report = Report(
            *(wish.intent, Plan(), self.ingest.thresholds, target.considered),
            held=held,
            masked=masked,
        )
        placed = Context(context.entry, scope)
        if wish.dry_run:
            async with self.store.view(placed) as tx:
                done, _ = await plan(tx)
            return replace(report, plan=done, dry_run=True)
        few = len(said.candidates) <= commit.PLANNED_INSIDE_MAX
        done = await commit.apply_planned(self.store, placed, plan, write, inside=few)
        self.ingest.runtime.wake()
        change_id = context.entry.change
        return replace(report, plan=done, episode_id=episode.id, change_id=change_id)

    async def _with_evidence(self, context: Context, wish: Wish) -> tuple[Wish, Citation | None]:
        """Return the wish, and the citation of its evidence. Evidence that no text has is kept in
        the metadata, marked as unverified.
        """
        if not wish.evidence:
            return wish, None
        words = await self.ingest.redaction.text(wish.evidence, context.entry)
        tx = self.store.autocommit(context.namespace, access_scope=context.scope)
        found = await located(tx, words)
        if found is not None:
            return wish, found
        source = wish.submission.source
        said = {"evidence": words, "evidence_verified": False}
        source = replace(source, metadata={**source.metadata, **said})
        return replace(wish, submission=replace(wish.submission, source=source)), None

    def _proposed(
        self, context: Context, kind: ProposalKind, new: Collection[Memory], target: Memory | None
    ) -> Plan:
        """Return the plan that lets a change wait until somebody accepts it."""
        proposal = Proposal(
            self.ingest.runtime.new_id(PROPOSAL),
            kind,
            tuple(one.id for one in new),
            (target.id,) if target else (),
            context.entry.accessor,
            self.ingest.runtime.now(),
        )
        return Plan((Propose(proposal, tuple(new)),))

    async def _said(self, episode: Episode, wish: Wish) -> Extraction:
        """Return what the rules extract from a text. If it is entered by hand, or the rules find
        nothing, return the text itself. Turns in quarantine are not read.
        """
        found: list[Candidate] = []
        extractor = self.rules.name
        for _, passage in passages(episode, self.rules.passage_chars):
            if passage is None:
                continue
            read = validate_candidates(await self.rules.extract(passage), passage).candidates
            if wish.by_hand or not read:
                type_, fact = wish.type or MemoryType.FACT, read[0].fact if len(read) == 1 else None
                kept = validate_candidates(verbatim(passage, type_), passage).candidates
                read, extractor = tuple(replace(one, fact=fact) for one in kept), VERBATIM
            found += read
        if wish.type is not None:
            found = [replace(one, type=wish.type) for one in found]
        if wish.confidence is not None:
            found = [replace(one, confidence=wish.confidence) for one in found]
        if wish.needs_review:
            most = self.ingest.thresholds.doubted_max
            found = [replace(one, needs_review=True).capped(most) for one in found]
        return Extraction(tuple(found), extractor)

    async def _embed(self, tx: Transaction, episode_ids: set[str]) -> None:
        if self.embeds:
            await promise_vectors(tx, self.ingest.runtime, episode_ids)

    async def relate(
        self, context: Context, from_id: str, kind: RelationKind, to_id: str, confidence: float
    ) -> Related:
        """State what one memory is to another. A relation that exists stays as it is. A
        contradiction of two believed memories opens a dispute, unless one between them is open or
        somebody stated the contradiction before. Raises `Invalid`, `LimitReached`, and
        `MemoryNotFound` if one of them is not in the access scope.
        """
        if kind not in BY_HAND:
            raise Invalid("What supersedes what follows from a correction. Submit one instead.")
        if from_id == to_id:
            raise Invalid("A memory has no relation to itself. Name two.")
        for one in (from_id, to_id):
            storable(one)
        async with self.store.change(context) as tx:
            found = await tx.memories.found([from_id, to_id])
            if len(found) < 2:
                raise MemoryNotFound
            stated = await tx.relations.of_memories([from_id], limit=RELATIONS_MAX)
            if len(stated) == RELATIONS_MAX:
                raise LimitReached(
                    f"A memory may have {RELATIONS_MAX} relations. State what matters most of it."
                )
            now = await tx.moment()
            by = context.entry.accessor
            made = Relation(from_id, to_id, kind, Reason.HAND, now, confidence, by)
            standing = [one for one in stated if (one.kind, one.to_id) == (kind, to_id)]
            dispute = await _contradiction(tx, found, stated, made)
            plan = Plan((dispute,) if dispute else (), relations=(made,))
            await commit.apply(tx, plan, now)
            await self.ingest.judgements.promise(tx, plan, context.entry.began_by)
            context.entry.ids += [from_id, to_id]
            context.entry.counts |= plan.counts() | {"related": len(plan.relations)}
            if dispute:
                context.entry.ids.append(dispute.question_id)
        if dispute:
            self.ingest.runtime.wake()
        return Related(standing[0] if standing else made, dispute.question_id if dispute else None)


async def _contradiction(
    tx: Transaction, sides: Sequence[Memory], stated: Sequence[Relation], made: Relation
) -> Dispute | None:
    """Return the dispute that a stated contradiction opens, if any. Its new side is what was said
    later, as in every dispute.
    """
    if made.kind is not RelationKind.CONTRADICTS:
        return None
    ends = {made.from_id, made.to_id}
    before = (one for one in stated if one.kind is made.kind and one.reason is Reason.HAND)
    if any({one.from_id, one.to_id} == ends for one in before):
        return None
    if any(one.status not in BELIEVED for one in sides):
        return None
    asked = (await tx.disputes.others([made.from_id])).get(made.from_id, ())
    if made.to_id in asked:
        return None
    older, newer = sorted(sides, key=lambda one: (one.said_at, one.id))
    question_id = derived_id("q", newer.id, older.id, made.made_at.isoformat())
    return Dispute(question_id, newer.id, (older.id,))


def _placed(wish: Wish, corrected: Memory | None) -> Submission:
    """Return the submission with only its statement as text, and with its topic and container."""
    text = statement(wish.intent, wish.submission.text)
    if corrected is None:
        topic = wish.submission.topic or GENERAL
        return replace(wish.submission, text=text, topic=topic)
    return replace(
        wish.submission,
        text=text or corrected.text,
        topic=wish.submission.topic or corrected.topic,
        container=corrected.container,
    )


def _citing(plan: Plan, evidence: Citation) -> Plan:
    """Return the plan, in which each added memory also cites the evidence."""
    changes = [
        replace(one, also=(*one.also, evidence)) if isinstance(one, Add) else one
        for one in plan.changes
    ]
    return replace(plan, changes=tuple(changes))


def _correcting(
    said: Sequence[Candidate], corrected: Memory, type_: MemoryType | None
) -> tuple[Candidate, ...]:
    """Return the candidates with the correction first: one about the fact of the memory, if any.
    Without a fact of its own it is of the type of the memory, unless the caller named one.
    """
    about = [one for one in said if compare(one, corrected) is not Verdict.COMPATIBLE] or said[:1]
    first, rest = about[:1], [one for one in said if one not in about[:1]]
    if type_ is None:
        first = [one if one.fact else replace(one, type=corrected.type) for one in first]
    return (*first, *rest)


def _refuse_types(scope: AccessScope, said: Sequence[Candidate]) -> None:
    """Raise `OutsideAccessScope` if a memory would be of a type that the token may not see."""
    if scope.types is not None and not {one.type for one in said} <= scope.types:
        allowed = ", ".join(sorted(scope.types))
        raise OutsideAccessScope(f"This token may write these types only: {allowed}. Send type.")


async def _believed(tx: Transaction, memory: Memory | None, intent: Intent) -> Memory:
    """Return the memory, if it can be corrected or forgotten. Raises `MemoryNotFound`, and
    `MemorySuperseded`, which names the memory that holds now.
    """
    if memory is not None and memory.status in BELIEVED:
        return memory
    if memory is None or memory.status is not Status.SUPERSEDED:
        raise MemoryNotFound
    if intent is Intent.FORGET:
        return memory
    by = memory.superseded_by
    *_, current = chain(by, await tx.memories.successors({by} if by else ())) or [memory.id]
    holds = (await tx.memories.get([current])).get(current)
    if holds is None or holds.status not in BELIEVED:
        raise MemorySuperseded
    raise MemorySuperseded(f"This memory was superseded. {current} holds now: correct that one.")


# Fewer characters occur anywhere and prove nothing.
EVIDENCE_CHARS_MIN = 12


async def located(tx: Transaction, words: str) -> Citation | None:
    """Return the citation of exactly these words in a text in the access scope of `tx`; None if
    none of the most similar texts has them.
    """
    words = words.strip()
    if len(words) < EVIDENCE_CHARS_MIN:
        return None
    found = await similar_items(tx, words)
    memories = await tx.memories.get([one for one in found if one.startswith("mem_")])
    texts = [
        memories[one].citation.episode_id if one in memories else episode_of(one)
        for one in found
        if one in memories or not one.startswith("mem_")
    ]
    for episode_id in dict.fromkeys(texts):
        if (citation := await _within(tx, episode_id, words)) is not None:
            return citation
    return None


async def _within(tx: Transaction, episode_id: str, words: str) -> Citation | None:
    if not await tx.episodes.page(limit=1, id_=episode_id):
        return None  # outside of the access scope, or hidden entirely
    episode = await tx.episodes.get(episode_id)
    at = visible_text(episode).find(words) if episode else -1
    return Citation(episode_id, Span(at, at + len(words)), words) if at >= 0 else None
