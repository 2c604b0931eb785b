"""Reviews: everything that waits for somebody's decision, in one list; each is answered once. An
accepted proposal is reconciled like any other statement; a turn that was held back on arrival is
released or rejected.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from functools import partial

from recall_server.domain.audit import AuditEntry
from recall_server.domain.context import Context, Runtime
from recall_server.domain.episode import Citation, Episode, episode_of, turn_id
from recall_server.domain.errors import Invalid, NotWaiting, ReviewNotFound, Stale
from recall_server.domain.ids import is_proposal
from recall_server.domain.intents import Intent
from recall_server.domain.memory import BELIEVED, FINDABLE, Memory, Status
from recall_server.domain.permissions import OPERATOR, Rights
from recall_server.domain.plan import Add, Choice, Forget, Plan, Proposal, ProposalKind, Question
from recall_server.domain.screening import Held, Place, Suspect
from recall_server.domain.task import AnswerUnclear, Task, resolutions
from recall_server.domain.text.cleaning import storable
from recall_server.services.memory import commit, indexing, reconcile
from recall_server.services.memory.commit import question_of
from recall_server.services.memory.episodes import Redaction
from recall_server.services.memory.indexing import promise_vectors
from recall_server.services.memory.ingest import EXTRACT, Submission
from recall_server.services.memory.intents import Intents, Wish
from recall_server.services.memory.reconcile import SIDES_MAX
from recall_server.services.tasks import Tasks
from recall_server.storage.store import Store, Transaction

# How many proposals or disputes are read at once; some of them may be outside of the access scope.
PAGE = 100
SUSPECTS_MAX = 100
"""Suspects on one page."""
_WAITING = frozenset({Status.FORGOTTEN, Status.QUARANTINED})


@dataclass(frozen=True)
class Suspects:
    """One page of turns in this state, and the number of all of them."""

    found: tuple[Suspect, ...]
    total: int
    next_offset: int | None


@dataclass(frozen=True)
class Quarantine:
    """Turns that were held back on arrival, until a person releases or rejects them."""

    store: Store
    runtime: Runtime

    async def list(self, context: Context, *, state: Held, limit: int, offset: int) -> Suspects:
        """Return the turns in this state with their words and the reasons, newest first."""
        async with self.store.transaction(context.namespace, write=False) as tx:
            found = await tx.quarantine.page(state, limit=limit, offset=offset)
            total = await tx.quarantine.count(state)
        context.entry.counts["suspects"] = len(found)
        reached = offset + len(found)
        return Suspects(tuple(found), total, reached if found and reached < total else None)

    async def release(self, context: Context, item_id: str) -> None:
        """Index the turn and enqueue its extraction. Idempotent. Raises `ReviewNotFound`; `Stale`
        if it was rejected.
        """
        job_id = self.runtime.new_id("job")
        # Releasing the turn and extracting its memories are one change.
        context.entry.part_of = job_id
        released = partial(_released, item_id)

        async def plan(tx: Transaction) -> indexing.Prepared:
            place = await tx.quarantine.place(item_id)
            if place is None:
                raise ReviewNotFound
            if place.decided.state is not Held.HELD:
                _same(place, Held.RELEASED)
            return await indexing.prepared(tx, (), (), [episode_of(item_id)], released)

        async def write(tx: Transaction, index: indexing.Prepared) -> None:
            now = await tx.moment()
            context.entry.ids.clear()
            place = await self._decide(tx, item_id, Held.RELEASED, now, context.entry)
            if place is not None:
                await tx.episodes.show(item_id, now)
                await index.write(tx)
                payload = {"episode_id": place.episode_id, "turn": place.position}
                await tx.jobs.add(job_id, EXTRACT, payload, now, context.entry.began_by)

        storable(item_id)
        made = await commit.planned(self.store, context.namespace, plan)
        await commit.written(self.store, context, made, plan, write)
        self.runtime.wake()

    async def reject(self, context: Context, item_id: str) -> None:
        """Keep the turn hidden. Idempotent. Raises `ReviewNotFound`; `Stale` if it was
        released: undo the release instead.
        """
        async with self.store.transaction(
            context.namespace, entry=context.entry, locked=True
        ) as tx:
            await self._decide(tx, item_id, Held.REJECTED, await tx.moment(), context.entry)

    async def _decide(
        self, tx: Transaction, item_id: str, state: Held, now: datetime, entry: AuditEntry
    ) -> Place | None:
        """Store the decision and return the place of the turn; None if it was made before."""
        storable(item_id)
        by = entry.by
        decided = await tx.quarantine.decide(item_id, state, by, now)
        place = await tx.quarantine.place(item_id)
        if place is None:
            raise ReviewNotFound
        _same(place, state)
        entry.ids += [item_id, place.episode_id]
        entry.counts[str(state)] = int(decided)
        return place if decided else None


@dataclass(frozen=True)
class Proposed:
    """A proposal with the memories that it would add, and those it would replace or forget."""

    proposal: Proposal
    new: tuple[Memory, ...]
    targets: tuple[Memory, ...]


async def _plans(tx: Transaction, proposed: Proposed, now: datetime) -> Sequence[Plan]:
    """Return the memories that are proposed, reconciled with what is known now, one plan each."""
    corrected = proposed.targets[0] if proposed.targets else None
    settling = await reconcile.settling(tx)
    first, *others = proposed.new
    plans = [await reconcile.restored(tx, first, now, settling, corrected)]
    return [*plans, *[await reconcile.restored(tx, one, now, settling) for one in others]]


async def _read(tx: Transaction, proposal_id: str) -> Proposed:
    """Return the proposal, if it is wholly in the access scope. Raises `ReviewNotFound`."""
    proposal = await tx.proposals.get(proposal_id)
    known = {}
    if proposal is not None:
        known = await tx.memories.get([*proposal.new, *proposal.targets])
    proposed = _proposed(proposal, known) if proposal else None
    if proposed is None:
        raise ReviewNotFound
    return proposed


def _proposed(proposal: Proposal, known: dict[str, Memory]) -> Proposed | None:
    """Return the proposal with its memories; None if one is outside of the access scope."""
    if not known.keys() >= {*proposal.new, *proposal.targets}:
        return None
    new = tuple(known[one] for one in proposal.new)
    return Proposed(proposal, new, tuple(known[one] for one in proposal.targets))


def _is_open(proposed: Proposed) -> bool:
    """True if it can be accepted: nobody has answered, and its targets are still there."""
    proposal = proposed.proposal
    standing = FINDABLE if proposal.kind is ProposalKind.FORGET else BELIEVED
    return (
        proposal.closed_at is None
        and proposal.whole
        and all(one.status in _WAITING for one in proposed.new)
        and all(one.status in standing for one in proposed.targets)
    )


def _require(proposed: Proposed, rights: Rights) -> None:
    """Raise `NotWaiting` if the proposal can no longer be accepted, and `InsufficientScope` if the
    rights do not allow its change.
    """
    proposal = proposed.proposal
    rights.require(proposal.kind.scope, whole_namespace=False)
    if proposal.closed_at is not None and proposal.decided_by:
        raise NotWaiting(
            f"{proposal.decided_by} has answered it at {proposal.closed_at:%Y-%m-%dT%H:%M:%SZ}. "
            "List what still waits."
        )
    if not _is_open(proposed):
        raise NotWaiting("Nothing is left to ask: a side of it is gone. List what still waits.")


class ReviewKind(StrEnum):
    """The kinds: a question of a paused task, a dispute, a proposal, or a turn in quarantine."""

    QUESTION = "question"
    DISPUTE = "dispute"
    PROPOSAL = "proposal"
    QUARANTINE = "quarantine"


CONTRADICTIONS = frozenset({ReviewKind.QUESTION, ReviewKind.DISPUTE})


class Verdict(StrEnum):
    """The answers to a proposal (accept, edit, reject) and to a turn in quarantine (release,
    reject).
    """

    ACCEPT = "accept"
    EDIT = "edit"
    RELEASE = "release"
    REJECT = "reject"


@dataclass(frozen=True)
class Review:
    """One thing that waits: a question, with its task if one asks it, a proposal, or a suspect."""

    id: str
    kind: ReviewKind
    asked_at: datetime
    question: Question | None = None
    task: Task | None = None
    suspect: Suspect | None = None
    proposed: Proposed | None = None

    @property
    def choices(self) -> tuple[str, ...]:
        if self.proposed is not None:
            edit = (Verdict.EDIT,) if self.proposed.new else ()
            return (Verdict.ACCEPT, *edit, Verdict.REJECT)
        return (Verdict.RELEASE, Verdict.REJECT) if self.suspect else tuple(Choice)


@dataclass(frozen=True)
class Answered:
    """A review that was answered. A task goes on once none of its questions is open. `change_id`:
    the id by which the answer to a dispute, or an accepted proposal, can be undone.
    """

    id: str
    kind: ReviewKind
    task: Task | None = None
    change_id: str | None = None


@dataclass(frozen=True)
class Reviews:
    """Lists what waits, and passes each answer to the service that keeps it."""

    store: Store
    runtime: Runtime
    tasks: Tasks
    quarantine: Quarantine
    intents: Intents
    redaction: Redaction
    embeds: bool

    async def waiting(
        self, context: Context, kinds: Collection[ReviewKind], *, limit: int
    ) -> list[Review]:
        """Return what waits of these kinds, at most `limit`, oldest first. A caller who may not see
        one side of a dispute or proposal sees none of it.
        """
        found: list[Review] = []
        if ReviewKind.QUESTION in kinds:
            found += [
                Review(
                    one.question.id, ReviewKind.QUESTION, one.task.status.at, one.question, one.task
                )
                for one in await self.tasks.questions(context, limit=limit)
            ]
        if ReviewKind.DISPUTE in kinds:
            found += await self._disputes(context, limit)
        if ReviewKind.PROPOSAL in kinds:
            found += [
                Review(one.proposal.id, ReviewKind.PROPOSAL, one.proposal.opened_at, proposed=one)
                for one in await self._proposals(context, limit)
            ]
        if ReviewKind.QUARANTINE in kinds:
            held = await self.quarantine.list(context, state=Held.HELD, limit=limit, offset=0)
            found += [
                Review(one.item_id, ReviewKind.QUARANTINE, one.held_at, suspect=one)
                for one in held.found
            ]
        context.entry.counts["reviews"] = len(found)
        return sorted(found, key=lambda one: (one.asked_at, one.id))[:limit]

    async def _disputes(self, context: Context, limit: int) -> list[Review]:
        """Return the open disputes with all sides in the access scope, oldest first."""
        found: list[Review] = []
        offset = 0
        async with self.store.view(context) as tx:
            while page := await tx.disputes.page(limit=PAGE, offset=offset):
                offset += PAGE
                # One read for the whole page: most sides may be outside of the access scope.
                sides = {one for dispute in page for one in (dispute.new, *dispute.existing)}
                known = await tx.memories.get(sorted(sides))
                for dispute in page:
                    question = await question_of(tx, dispute, known)
                    if question is not None:
                        shown = replace(question, existing=question.existing[:SIDES_MAX])
                        at = dispute.opened_at
                        found.append(Review(question.id, ReviewKind.DISPUTE, at, shown))
                    if len(found) == limit:
                        return found
        return found

    async def answer(
        self,
        context: Context,
        review_id: str,
        choice: Choice | Verdict,
        text: str | None = None,
        rights: Rights = OPERATOR,
    ) -> Answered:
        """Answer one review by its id; `text` goes with merge and edit. An answer to a proposal
        needs the `rights` to make its change. Raises `ReviewNotFound` if nothing with this id waits
        for this caller, `NotWaiting` if it was answered before, and `AnswerUnclear` if the answer
        is not acceptable.
        """
        storable(review_id)
        if is_proposal(review_id):
            if text is not None and choice is not Verdict.EDIT:
                raise AnswerUnclear("text goes with edit. Leave it out, or choose that.")
            if choice is Verdict.EDIT:
                await self._edit(context, rights, review_id, text or "")
            elif choice is Verdict.ACCEPT:
                await self._accept(context, rights, review_id)
            elif choice is Verdict.REJECT:
                await self._reject(context, rights, review_id)
            else:
                raise AnswerUnclear("A proposal is answered with accept, edit or reject.")
            change = None if choice is Verdict.REJECT else context.entry.change
            return Answered(review_id, ReviewKind.PROPOSAL, change_id=change)
        if choice in (Verdict.ACCEPT, Verdict.EDIT):
            raise ReviewNotFound
        if isinstance(choice, Verdict):
            decide = (
                self.quarantine.release if choice is Verdict.RELEASE else self.quarantine.reject
            )
            await decide(context, review_id)
            return Answered(review_id, ReviewKind.QUARANTINE)
        disputes = self.store.autocommit(context.namespace).disputes
        if await disputes.sides(review_id) and await self._settle(context, review_id, choice, text):
            change = context.entry.change
            return Answered(review_id, ReviewKind.DISPUTE, change_id=change)
        task = await self.tasks.resolve(context, review_id, choice, text)
        return Answered(review_id, ReviewKind.QUESTION, task)

    async def _proposals(self, context: Context, limit: int) -> list[Proposed]:
        """Return the open proposals that are wholly in the access scope, oldest first."""
        found: list[Proposed] = []
        offset = 0
        async with self.store.view(context) as tx:
            while page := await tx.proposals.page(limit=PAGE, offset=offset):
                offset += PAGE
                ids = {one for proposal in page for one in (*proposal.new, *proposal.targets)}
                known = await tx.memories.get(sorted(ids))
                read = [_proposed(proposal, known) for proposal in page]
                found += [one for one in read if one is not None and _is_open(one)]
                if len(found) >= limit:
                    break
        return found[:limit]

    async def _accept(self, context: Context, rights: Rights, proposal_id: str) -> None:
        """Make the change that is proposed. Raises `ReviewNotFound` if this caller can see no
        proposal with this id, `NotWaiting` if it was answered before or its target is gone, and
        `InsufficientScope`.
        """
        async with self.store.view(context) as tx:
            proposed = await _read(tx, proposal_id)
        if proposed.proposal.kind is ProposalKind.FORGET:
            await self._forget(context, rights, proposal_id)
        else:
            async with self.store.change(context) as tx:
                now = await tx.moment()
                proposed = await self._closed(tx, context, rights, proposal_id, Verdict.ACCEPT)
                for plan in await _plans(tx, proposed, now):
                    await self.intents.ingest.judgements.apply(tx, plan, now, context.entry)
                ids = [one.id for one in (*proposed.new, *proposed.targets)]
                await self._embed(tx, await tx.memories.citations(ids))
        self.runtime.wake()

    async def _forget(self, context: Context, rights: Rights, proposal_id: str) -> None:
        """Forget what is proposed to be forgotten: its words may be in a hundred long texts, which
        are read before others wait.
        """

        async def plan(tx: Transaction) -> commit.Forgotten:
            proposed = await _read(tx, proposal_id)
            _require(proposed, rights)
            (target,) = proposed.targets
            return await commit.forgotten(tx, target.id)

        async def write(tx: Transaction, made: commit.Forgotten) -> None:
            now = await tx.moment()
            await self._closed(tx, context, rights, proposal_id, Verdict.ACCEPT)
            await made.write(tx, now)
            await self._embed(tx, made.words)
            change = Plan((Forget(made.item_id),))
            context.entry.ids += change.ids()
            context.entry.counts |= change.counts()

        await commit.apply_planned(self.store, context, plan, write)

    async def _reject(self, context: Context, rights: Rights, proposal_id: str) -> None:
        """Close the proposal: the memories it would have added stay hidden. Raises what `_accept`
        raises.
        """
        async with self.store.change(context) as tx:
            await self._closed(tx, context, rights, proposal_id, Verdict.REJECT)
            context.entry.counts["rejected"] = 1

    async def _closed(
        self, tx: Transaction, context: Context, rights: Rights, proposal_id: str, choice: Verdict
    ) -> Proposed:
        """Close the proposal, and return it as it was."""
        proposed = await _read(tx, proposal_id)
        _require(proposed, rights)
        await tx.proposals.close(proposal_id, choice, context.entry.by, await tx.moment())
        context.entry.ids[:] = [proposal_id]
        return proposed

    async def _embed(self, tx: Transaction, words: Sequence[Citation]) -> None:
        if self.embeds:
            await promise_vectors(tx, self.runtime, {one.episode_id for one in words})

    async def _edit(self, context: Context, rights: Rights, proposal_id: str, text: str) -> None:
        """Make the change with other words than those proposed; they count as the caller's own.
        Raises what `_accept` raises, and `Invalid` if the text is empty or the proposal adds
        nothing.
        """
        async with self.store.view(context) as tx:
            proposed = await _read(tx, proposal_id)
        _require(proposed, rights)
        if not proposed.new:
            raise Invalid("Only what is to be remembered can be edited. Accept or reject this one.")
        if not text.strip():
            raise Invalid("edit needs text: the words that take the place of those proposed.")
        memory = proposed.new[0]
        target = proposed.targets[0].id if proposed.targets else ""
        await self.intents.submit(
            context,
            Wish(
                Intent.CORRECT if target else Intent.REMEMBER,
                Submission(text, memory.topic, container=memory.container),
                target,
                memory.type,
                by_hand=bool(target),
                edits=proposal_id,
            ),
        )

    async def _settle(
        self, context: Context, dispute_id: str, choice: Choice, text: str | None
    ) -> bool:
        """Settle a dispute; False if a side is outside of the caller's access scope."""
        if text is not None:
            text = await self.redaction.text(text, context.entry)
        async with self.store.change(context) as tx:
            dispute, now = await tx.disputes.get(dispute_id), await tx.moment()
            ids = [one for one, _ in await tx.disputes.sides(dispute_id)]
            known = await tx.memories.get(ids)
            if set(ids) - known.keys():
                return False
            question = await question_of(tx, dispute, known) if dispute else None
            if question is None:
                raise await _not_waiting(tx, dispute_id)
            given = {"id": dispute_id, "choice": choice} | ({"text": text} if text else {})
            by = context.entry.by
            (resolution,) = resolutions([given], [question], by=by, at=now)
            plan = await reconcile.answered(tx, question, resolution, now)
            await commit.apply(tx, plan, now)
            context.entry.ids += plan.ids()
            context.entry.counts |= plan.counts()
            added = [one.memory for one in plan.changes if isinstance(one, Add)]
            if self.embeds:
                texts = (memory.citation.episode_id for memory in added)
                await promise_vectors(tx, self.runtime, texts)
        self.runtime.wake()
        return True


async def _not_waiting(tx: Transaction, dispute_id: str) -> NotWaiting:
    answer = (await tx.decisions.answers([dispute_id])).get(dispute_id)
    if answer is None:
        return NotWaiting("Nothing is left to ask: a side of it is gone. List what still waits.")
    at = f"{answer.decided_at:%Y-%m-%dT%H:%M:%SZ}"
    why = f" {answer.reason}" if answer.reason else ""
    return NotWaiting(
        f"{answer.decided_by} has answered it at {at}: {answer.choice}.{why} List what still waits."
    )


def _same(place: Place, state: Held) -> None:
    """Raise `Stale` if another decision was made."""
    before = place.decided
    if before.state is not state:
        raise Stale(
            f"{before.by} has {before.state} it at {before.at:%Y-%m-%dT%H:%M:%SZ}; it is "
            "decided about once. List what is still held."
        )


def _released(item_id: str, episode: Episode) -> Episode:
    """Return a text as it is once this turn is released."""
    return replace(
        episode,
        turns=tuple(
            replace(one, hidden=one.hidden and turn_id(episode.id, one.index) != item_id)
            for one in episode.turns
        ),
    )
