"""Which claim ended which, and where a late report belongs among the claims of one matter.

The claims about a matter make a chain: each holds from when it was said until the next one of
another value. A late report is put where it would stand if the claims had come in the order in
which they were said, so that the order of arrival does not matter.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from recall_server.domain.extraction import Candidate
from recall_server.domain.ids import derived_id
from recall_server.domain.memory import Memory, Status
from recall_server.domain.moments import passed
from recall_server.domain.plan import Add, Change, EndEarlier, Rule, Supersede
from recall_server.domain.security.trust import Repetition, trust
from recall_server.domain.similarity import Verdict, compare
from recall_server.services.memory.beliefs import Beliefs


def outdated(memory: Memory, by: Memory) -> Memory:
    """Return a claim as history that another one ended."""
    return replace(
        memory,
        status=Status.SUPERSEDED,
        superseded_by=by.id,
        retired_at=memory.recorded_at,
        valid_until=end_of(memory, by),
    )


def end_of(old: Memory, new: Memory) -> datetime:
    """Return when the older claim ceased to hold: at the start of the newer claim, if that is after
    its own start, else when the newer one was said; never before its own start.
    """
    ended = new.valid_from if new.valid_from > old.valid_from else new.said_at
    return max(ended, old.valid_from)


@dataclass(frozen=True)
class Placed:
    """The changes that put a late report in its place, and the rule. `before`: the claims that it
    ended; `duplicates`: those whose time it takes over.
    """

    changes: Sequence[Change]
    rule: Rule
    before: Sequence[Memory] = ()
    duplicates: Sequence[Memory] = ()


async def place(
    memory: Memory,
    same: Sequence[Memory],
    clashing: Sequence[Memory],
    beliefs: Beliefs,
    *,
    stored: bool,
) -> Placed | None:
    """Return the place of a late report in the chain of its matter; None if it is none, or if trust
    decides and not time.

    `same`, `clashing`: the believed claims, with witnesses loaded. `stored`: the report is a memory
    already, which takes the place of no citation.
    """
    believed = [*same, *clashing]
    if any(_verdict(memory, one) is Verdict.COMPATIBLE for one in believed):
        return None
    late = any(one.said_at > memory.said_at for one in believed)
    again = await beliefs.repetitions(clashing, memory.said_at)
    if not late and not again:
        return None
    history = await beliefs.superseded(memory)
    await beliefs.load_witnesses(history)
    again = again | await beliefs.repetitions(history, memory.said_at)
    chain = _Chain(memory, [*believed, *history], beliefs, again)
    return await chain.place(stored=stored)


def _verdict(memory: Memory, other: Memory) -> Verdict:
    return compare(Candidate(memory.text, memory.type, memory.citation.span, memory.fact), other)


@dataclass
class _Chain:
    """The claims about a matter, believed and superseded, around a late report. `again`: their
    repetitions after the report.
    """

    report: Memory
    claims: Sequence[Memory]
    beliefs: Beliefs
    again: Mapping[str, Sequence[Repetition]]
    changes: list[Change] = field(default_factory=list)

    async def place(self, *, stored: bool) -> Placed | None:
        report, mine = self.report, self.beliefs.trust(self.report)
        standing = [
            one
            for one in self.claims
            if one.said_at <= report.said_at and not passed(one.valid_until, report.said_at)
        ]
        for one in standing:
            if self._is_same(one) and self.beliefs.trust(one) >= mine:
                return self._restated(one, stored=stored)
        before = [one for one in standing if self.beliefs.trust(one) <= mine]
        later = [
            one
            for one in self.claims
            if one.said_at > report.said_at
            and (self.beliefs.trust(one) >= mine or self._is_same(one))
        ]
        aside = [one for one in self.claims if _believed(one) and one not in (*before, *later)]
        later += [again for one in before if (again := self._goes_on(one))]
        following = min(later, key=lambda one: (one.said_at, one.id), default=None)
        if following is None or (aside and self._is_same(following)):
            return None
        takes_over = self._is_same(following) and self._may_take_over(following)
        if takes_over:
            await self._take_over(following)
        else:
            self._add(outdated(report, following))
        for one in before:
            self._end(one, report)
        rule = Rule.LATE_REPORT if not takes_over else Rule.RESTATED
        return Placed(self.changes, rule, before, [following] if takes_over else [])

    def _is_same(self, one: Memory) -> bool:
        return _verdict(self.report, one) is Verdict.SAME

    def _restated(self, claim: Memory, *, stored: bool) -> Placed | None:
        """Cite the report with the claim that held then."""
        if _believed(claim):
            return None
        if stored:
            ended = replace(outdated(self.report, claim), valid_until=self.report.valid_from)
            return Placed([Add(ended, rule=Rule.RESTATED)], Rule.RESTATED)
        cited = self.beliefs.reinforce(claim, self.report)
        changes = [replace(one, superseded=True) for one in cited]
        return Placed(changes, Rule.RESTATED)

    def _goes_on(self, claim: Memory) -> Memory | None:
        """Let a claim hold again from where it was stated again after the report. None if it was
        not before it ended, or on less trusted words.
        """
        mine = self.beliefs.trust(self.report)
        found = [
            one
            for one in self.again.get(claim.id, ())
            if not passed(claim.valid_until, one.said_at) and trust([one.witness]) >= mine
        ]
        if not found:
            return None
        first, *rest = found
        again = replace(
            claim,
            id=derived_id("mem", self.report.id, claim.id, first.citation.episode_id),
            citation=first.citation,
            said_at=first.said_at,
            valid_from=first.said_at,
            recorded_at=self.report.recorded_at,
            status=Status.ACTIVE if _believed(claim) else claim.status,
            retired_at=None if _believed(claim) else self.report.recorded_at,
            reinforcements=0,
            access_count=0,
            last_accessed_at=None,
        )
        self.beliefs.set_witnesses(again, [one.witness for one in found])
        also = tuple(one.citation for one in rest)
        self._add(again, Add(again, also, Rule.RESTATED))
        return again

    def _may_take_over(self, claim: Memory) -> bool:
        """True if the report may stand for a later claim that says the same. A disputed one waits
        for an answer.
        """
        return (
            claim.status is not Status.DISPUTED
            and self.beliefs.trust(claim) <= self.beliefs.trust(self.report)
            and self.report.expires_at == claim.expires_at
        )

    async def _take_over(self, claim: Memory) -> None:
        """Let the report stand for a later claim that says the same."""
        report = self.report
        if not _believed(claim):
            report = replace(
                report,
                status=claim.status,
                superseded_by=claim.superseded_by,
                valid_until=claim.valid_until,
                retired_at=report.recorded_at,
            )
        also = tuple(await self.beliefs.tx.memories.citations([claim.id])) or (claim.citation,)
        self.beliefs.inherit_witnesses(report, [report, claim])
        self._add(report, Add(report, also, Rule.RESTATED))
        self._end(claim, report)

    def _add(self, memory: Memory, change: Add | None = None) -> None:
        (self.beliefs.add if _believed(memory) else self.beliefs.end)(memory)
        self.changes.append(change or Add(memory, rule=Rule.LATE_REPORT))

    def _end(self, claim: Memory, by: Memory) -> None:
        until = end_of(claim, by)
        if _believed(claim):
            self.beliefs.drop(claim.id)
            self.changes.append(Supersede(claim.id, by.id, until, Rule.LATER))
        elif claim.valid_until is None or until < claim.valid_until:
            self.changes.append(EndEarlier(claim.id, by.id, until))
        else:
            return
        self.beliefs.end(replace(outdated(claim, by), retired_at=claim.retired_at))


def _believed(memory: Memory) -> bool:
    return memory.retired_at is None
