"""The active memories about a matter, as the plan so far would leave them, with witnesses; which
claim ended which, and where a late report belongs among the claims of one matter; and the aliases
of subjects, by which claims about several names are about one matter.

The claims about a matter make a chain: each holds from when it was said until the next one of
another value. A late report is put where it would stand if the claims had come in the order in
which they were said, so that the order of arrival does not matter.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import islice, product

from recall_server.domain.attributes import (
    NAMESPACE_ALIASES_MAX,
    Alias,
    SubjectAliases,
    is_single_valued,
    normal_attribute,
    normal_entity,
    normal_value,
)
from recall_server.domain.context import Context
from recall_server.domain.erasure import SUBJECT_CHARS_MAX, Subject
from recall_server.domain.errors import Invalid, LimitReached, NamespaceNotFound, NotFound
from recall_server.domain.extraction import Candidate
from recall_server.domain.ids import derived_id
from recall_server.domain.memory import Fact, Memory, Status
from recall_server.domain.moments import passed
from recall_server.domain.plan import Add, Change, EndEarlier, Reinforce, Rule, Supersede
from recall_server.domain.screening import orders, suspicions
from recall_server.domain.search.ranking import bm25_weights
from recall_server.domain.similarity import Verdict, compare, same_statement
from recall_server.domain.text.cleaning import clean_label
from recall_server.domain.text.terms import terms
from recall_server.domain.trust import Repetition, Trust, Witness, corroborates, trust
from recall_server.services.memory.episodes import Redaction
from recall_server.storage.store import Store, Transaction
from recall_server.storage.tables.memories import RELATED_MAX

# How many citations a memory gets by repetition. Each repetition is compared with all of them, and
# forgetting the memory hides all of them.
CITED_MAX = 100
SIMILAR_LOOKED_AT = 8
# The same statement uses the same rare words. Only the rarest terms, with this many postings
# together, are looked up, as each planned memory asks for them.
SIMILAR_POSTINGS = 500
# Shorter statements say the same only if they have the same terms. Longer ones are compared with
# the last `FUZZY_MAX` planned memories.
FUZZY_TERMS_MIN = 9
FUZZY_MAX = 20

FactKey = tuple[str, str, str]
"""An entity with an attribute or a value, as they are compared."""


def fact_keys(fact: Fact | None) -> tuple[FactKey, ...]:
    """By what a fact is found: facts without a common one do not affect each other."""
    if fact is None:
        return ()
    entity = normal_entity(fact.entity)
    return ((entity, normal_attribute(fact.attribute), ""), (entity, "", normal_value(fact.value)))


@dataclass
class Beliefs:
    """The active memories as the plan so far would leave them."""

    tx: Transaction
    _added: dict[str, Memory] = field(default_factory=dict)
    # `_added` by words, and by entity with attribute or value: a long text plans thousands.
    _by_words: dict[frozenset[str], list[Memory]] = field(default_factory=dict)
    _by_fact: dict[FactKey, list[Memory]] = field(default_factory=dict)
    _dropped: set[str] = field(default_factory=set)
    _witnesses: dict[str, list[Witness]] = field(default_factory=dict)
    _read: dict[FactKey, list[Memory]] = field(default_factory=dict)
    # What the plan so far adds as superseded or supersedes, by entity and attribute.
    _ended: dict[FactKey, dict[str, Memory]] = field(default_factory=dict)
    _aliases: SubjectAliases | None = None

    def add(self, memory: Memory) -> None:
        self._added[memory.id] = memory
        self._by_words.setdefault(frozenset(terms(memory.text)), []).append(memory)
        for key in fact_keys(memory.fact):
            self._by_fact.setdefault(key, []).append(memory)

    def drop(self, memory_id: str) -> None:
        self._dropped.add(memory_id)
        self._added.pop(memory_id, None)

    def end(self, memory: Memory) -> None:
        """Note a memory as the plan leaves it superseded."""
        for key in fact_keys(memory.fact)[:1]:
            self._ended.setdefault(key, {})[memory.id] = memory

    def set_witnesses(self, memory: Memory, witnesses: Sequence[Witness]) -> None:
        self._witnesses[memory.id] = list(witnesses)

    def inherit_witnesses(self, memory: Memory, on: Sequence[Memory]) -> None:
        """Give a planned memory all witnesses of the memories `on`."""
        self._witnesses[memory.id] = [one for other in on for one in self._witnesses[other.id]]

    async def load_witnesses(self, memories: Sequence[Memory]) -> None:
        """Load the witnesses of these memories, for `trust` and `reinforce`."""
        wanted = [one.id for one in memories if one.id not in self._witnesses]
        if wanted:
            self._witnesses |= await self.tx.memories.witnesses(wanted)

    def trust(self, memory: Memory) -> Trust:
        return trust(self._witnesses[memory.id])

    def reinforce(self, other: Memory, said: Memory) -> list[Reinforce]:
        """Return the change if `other` was `said` again; none if it already cites these words. It
        gets no further citations once it has `CITED_MAX`.
        """
        (new,) = self._witnesses[said.id]
        before = self._witnesses[other.id]
        if any((one.episode_id, one.span) == (new.episode_id, new.span) for one in before):
            return []
        if len(before) >= CITED_MAX:
            # It still lasts as long as the last repetition.
            return [Reinforce(other.id, None, counts=False, until=said.expires_at)]
        self._witnesses[other.id] = [*before, new]
        counts = corroborates(new, before)
        return [Reinforce(other.id, said.citation, counts, said.expires_at)]

    async def related(self, candidate: Candidate) -> list[Memory]:
        """Return memories of the same subject that the candidate's fact may affect."""
        fact = candidate.fact
        if fact is None:
            return []
        # For a multi-valued attribute only the same value matters, as different values agree. For
        # a single-valued one the same value is looked up too: it may be older than the memories
        # that are read of the attribute.
        single = is_single_valued(fact.attribute) and not fact.negated
        keys = [(fact.attribute, ""), ("", fact.value)] if single else [("", fact.value)]
        if candidate.correction and candidate.replaces is not None:
            # `replaces` may name a value that is stored under another attribute.
            keys.append(("", candidate.replaces))
        stored: dict[str, Memory] = {}
        planned: dict[str, Memory] = {}
        for name, (attribute, value) in product(await self._names(fact.entity), keys):
            found = await self._stored(name, attribute, value)
            stored |= {memory.id: memory for memory in found}
            key = name, normal_attribute(attribute), normal_value(value)
            found = self._by_fact.get(key, [])[-RELATED_MAX:]
            planned |= {memory.id: memory for memory in found if memory.id in self._added}
        before = sorted(stored.values(), key=lambda one: (one.recorded_at, one.id))
        return [one for one in (*before, *planned.values()) if one.id not in self._dropped]

    async def superseded(self, memory: Memory) -> list[Memory]:
        """Return the superseded memories that say the same as a memory or contradict it, of the
        newest `RELATED_MAX` about the attribute of its fact, and those that the plan ends.
        """
        fact = memory.fact
        if fact is None:
            return []
        candidate = stated(memory)
        names = await self._names(fact.entity)
        stored, _ = await self.tx.memories.of_fact(names, fact.attribute, RELATED_MAX)
        found = {one.id: one for one in stored if one.status is Status.SUPERSEDED}
        for name in names:
            found |= self._ended.get((name, normal_attribute(fact.attribute), ""), {})
        return [
            one
            for one in found.values()
            if one.id != memory.id
            and one.valid_until != one.valid_from
            and compare(candidate, one) is not Verdict.COMPATIBLE
        ]

    async def repetitions(
        self, memories: Sequence[Memory], after: datetime
    ) -> dict[str, list[Repetition]]:
        """Return where these memories were stated again after a moment, in the order of time."""
        several = [one.id for one in memories if len(self._witnesses[one.id]) > 1]
        cited = await self.tx.memories.repetitions(several) if several else []
        found: dict[str, list[Repetition]] = {}
        for memory_id, one in cited:
            if one.said_at > after:
                found.setdefault(memory_id, []).append(one)
        return found

    async def _names(self, entity: str) -> Collection[str]:
        """Return the normal names of the subject that an entity is."""
        if self._aliases is None:
            self._aliases = await self.tx.aliases.all()
        return self._aliases.names(entity)

    async def _stored(self, entity: str, attribute: str, value: str) -> list[Memory]:
        """Return the stored memories of an entity with this attribute, or else this value. Each
        key is read once.
        """
        key = entity, attribute, value
        if key not in self._read:
            tables = self.tx.memories
            self._read[key] = await (
                tables.about(entity, attribute) if attribute else tables.of_value(entity, value)
            )
        return self._read[key]

    async def similar_statement(self, memory: Memory) -> list[Memory]:
        """Return a memory that says the same in nearly the same words; a list of one or none."""
        pool = await similar_items(self.tx, memory.text)
        texts = await self.tx.memories.texts(pool) if pool else {}
        for item_id in pool:
            active = item_id in texts and item_id not in self._dropped
            if active and same_statement(memory.text, texts[item_id]):
                return list(await self.tx.memories.active([item_id]))
        words = frozenset(terms(memory.text))
        planned = self._by_words.get(words, [])[-RELATED_MAX:]
        if len(words) >= FUZZY_TERMS_MIN:
            planned = [*planned, *islice(reversed(self._added.values()), FUZZY_MAX)]
        same = (one for one in planned if same_statement(memory.text, one.text))
        return [one for one in same if one.id in self._added][:1]


async def similar_items(tx: Transaction, text: str) -> list[str]:
    """Return the ids of the memories and passages that share the most rare words with a text."""
    statistics = await tx.words.statistics(terms(text))
    frequencies = statistics.frequencies
    weights = bm25_weights(
        {term: frequencies[term] for term in _rarest(frequencies, SIMILAR_POSTINGS)},
        statistics.documents,
    )
    return await tx.words.similar(weights, statistics.average_length, SIMILAR_LOOKED_AT)


def _rarest(frequencies: Mapping[str, int], postings: int) -> list[str]:
    """Return the rarest terms with at most `postings` postings together, but at least one term."""
    chosen: list[str] = []
    for term in sorted(frequencies, key=lambda term: (frequencies[term], term)):
        postings -= frequencies[term]
        if chosen and postings < 0:
            break
        chosen.append(term)
    return chosen


def stated(memory: Memory) -> Candidate:
    return Candidate(memory.text, memory.type, memory.citation.span, memory.fact)


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
    if any(compare(stated(memory), one) is Verdict.COMPATIBLE for one in believed):
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
        return compare(stated(self.report), one) is Verdict.SAME

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


@dataclass(frozen=True)
class Aliases:
    """The aliases of namespaces. They change no fact: from then on facts about all names of a
    subject are looked up and compared as facts about one.
    """

    store: Store
    redaction: Redaction

    async def all(self, context: Context) -> Sequence[Alias]:
        async with self.store.view(context) as tx:
            found = (await tx.aliases.all()).all
        context.entry.counts["aliases"] = len(found)
        return found

    async def set(self, context: Context, subject: str, aliases: Sequence[str]) -> Sequence[Alias]:
        """Make these names the aliases of a subject, in place of those that it had. Return them.
        Raises `Invalid`, `LimitReached`, `NamespaceNotFound` and `QuotaExceeded`.
        """
        names = [checked_alias(one) for one in (subject, *aliases)]
        subject, *aliases = [await self.redaction.text(one, context.entry) for one in names]
        async with self.store.change(context) as tx:
            if not await tx.exports.exists():
                raise NamespaceNotFound
            found = await set_aliases(tx, subject, aliases)
            context.entry.counts["aliases"] = len(found)
        return found

    async def remove(self, context: Context, alias: str) -> None:
        """Remove an alias: it is a subject of its own again. Raises `NotFound`."""
        alias = clean_label(alias, "alias", chars_max=SUBJECT_CHARS_MAX)
        async with self.store.change(context) as tx:
            if not await tx.aliases.remove([alias]):
                raise NotFound("No alias has this name. List the aliases.")
            context.entry.counts["aliases"] = 1


async def set_aliases(tx: Transaction, subject: str, aliases: Sequence[str]) -> Sequence[Alias]:
    """Replace the aliases of a subject. Return them. Raises `Invalid` and `LimitReached`."""
    named = {normal_entity(one): one for one in aliases}
    named.pop(normal_entity(subject), None)
    known = await tx.aliases.all()
    if known.taken(subject, named.values()):
        raise Invalid(
            "A name is the alias of one subject only, and a subject is no alias. List the aliases, "
            "and remove the name where it stands."
        )
    old, new = known.aliases(subject), [Alias(subject, named[key]) for key in sorted(named)]
    if len(known.all) - len(old) + len(new) > NAMESPACE_ALIASES_MAX:
        raise LimitReached(
            f"A namespace may have {NAMESPACE_ALIASES_MAX} aliases. Remove some of them."
        )
    await tx.aliases.remove(one.alias for one in old)
    await tx.aliases.add(new)
    return new


def checked_alias(name: str) -> str:
    """Return a name that an erasure would find, and that is no instruction. Raises `Invalid`."""
    name = Subject(clean_label(name, "A name", chars_max=SUBJECT_CHARS_MAX)).name
    if orders(name) or suspicions(name):
        raise Invalid("A name reads like an instruction. Send the name alone.")
    return name
