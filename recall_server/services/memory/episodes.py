"""Episodes: stores them, refuses erased text, and indexes the turns that are not quarantined; cuts
them into passages for an extractor, and validates its candidates, in the same way on every path
that makes memories.
"""

import asyncio
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

from recall_server.domain.audit import AuditEntry
from recall_server.domain.context import Compute, Runtime
from recall_server.domain.episode import Episode, Source, Span, Turn, Utterance, texts_in, turn_id
from recall_server.domain.erasure import BLOCK, EVERYWHERE, Digests, redacted
from recall_server.domain.errors import ErasedContent, Invalid, RecallError, TextTooLong
from recall_server.domain.extraction import (
    Candidate,
    Extraction,
    Passage,
    Refusal,
    Refused,
    candidates_max,
)
from recall_server.domain.ids import Namespace
from recall_server.domain.memory import MemoryType, importance
from recall_server.domain.moments import check_times, parse_moment
from recall_server.domain.permissions import AccessScope
from recall_server.domain.screening import orders, suspects, suspicions
from recall_server.domain.search.index_entry import findable_passages
from recall_server.domain.task import Message
from recall_server.domain.text.cleaning import clean_text, storable
from recall_server.domain.text.messages import messages_in
from recall_server.domain.text.passages import chunk
from recall_server.domain.text.transcript import CHARS_OF_A_TURN, TURNS_MIN, parse_turns
from recall_server.integrations.redaction import SecretRedactor
from recall_server.services.memory.indexing import INLINE_CHARS_MAX, INLINE_MAX, Lists, lists
from recall_server.storage.driver import apart
from recall_server.storage.index.words import Postings, postings
from recall_server.storage.store import Transaction
from recall_server.storage.tables.episodes import TurnRows, turn_rows

# Extractors promise `candidates_max`; a short passage may still give this many.
CANDIDATES_MIN = 20
# The name in `extractor` of a memory that is a text as it was sent.
VERBATIM = "verbatim"
TEXT_CHARS_MAX = 2_000
WORDS_CHARS_MAX = 500


def with_turns(episode: Episode) -> Episode:
    """Return the episode with its turns, parsed from its text unless it has them. Suspect turns are
    hidden.
    """
    turns = episode.turns or parse_turns(episode.text, episode.occurred_at)
    # The label matters: no participant says "System: you are …".
    said = [
        f"{turn.speaker}: {words}" if turn.speaker else words
        for turn in turns
        for words in [episode.text[turn.span.start : turn.span.end]]
    ]
    found = suspects(said)
    if reasons := suspicions("\n".join(labels(episode.topic, episode.container, episode.source))):
        # An answer, and a model's input, shows the labels next to each turn.
        found = dict.fromkeys(range(len(turns)), tuple(f"{one}, in a label" for one in reasons))
    if found:
        turns = tuple(
            replace(turn, hidden=True, suspicions=found[number]) if number in found else turn
            for number, turn in enumerate(turns)
        )
    return replace(episode, turns=turns)


def labels(topic: str, container: str, source: Source) -> list[str]:
    """Return the labels that an answer, or a model's input, shows next to the words."""
    found = [topic, container, source.session_id, source.agent_id, *source.tags]
    return [label for label in (*found, *texts_in(source.metadata)) if label]


def passages(
    episode: Episode, chars: int, *, only: int | None = None
) -> Iterator[tuple[int, Passage | None]]:
    """Yield each passage for an extractor with the number of the next one; None in place of a
    passage with no visible turn. `only`: yield just the turn at this position.

    Hidden turns and forgotten words are blanked out, so that no model reads them and positions
    do not change. Passages are cut as if nothing were hidden: releasing a turn does not move those
    that are still to do.
    """
    text = visible_text(episode)
    turns = [turn for turn in episode.turns if only in (None, turn.index)]
    for number, group in enumerate(chunk(turns, chars), 1):
        visible = tuple(turn for turn in group if not turn.hidden)
        passage = Passage(text, visible, episode.topic, episode.occurred_at) if visible else None
        yield number, passage


def visible_text(episode: Episode) -> str:
    """Return the text with blanks in place of hidden turns and forgotten words."""
    hidden = [turn.span for turn in episode.turns if turn.hidden]
    return redacted(episode.text, [*hidden, *episode.forgotten], by=" ")


def validate_candidates(extraction: Extraction, passage: Passage) -> Extraction:
    """Return the candidates that cite visible words, can be stored and give no orders to a model;
    count the rest as rejected. A model's proposal has no authority, least of all over models that
    read it later.
    """
    kept: list[Candidate] = []
    refused: list[Refused] = []
    most = max(CANDIDATES_MIN, candidates_max(passage))
    for one in extraction.candidates:
        reason = _refusal(one, passage) or (Refusal.TOO_MANY if len(kept) == most else None)
        if reason is None:
            kept.append(one)
        else:
            refused.append(Refused(reason, one.type, one.span))
    return replace(
        extraction,
        candidates=tuple(kept),
        rejected=extraction.rejected + len(refused),
        refused=tuple(refused),
    )


async def without_forgotten(
    tx: Transaction, episode: Episode, candidates: Iterable[Candidate]
) -> list[Candidate]:
    """Return the candidates that rest on no forgotten words, as `tx` sees them: words that were
    forgotten before their extraction stay forgotten.
    """
    gone = (await tx.episodes.forgotten_words([episode.id])).get(episode.id, ())
    return [one for one in candidates if not any(map(one.span.overlaps, gone))]


def verbatim(passage: Passage, type_: MemoryType) -> Extraction:
    """Return the visible turns as candidates, word for word. Turns with only white space between
    them become one candidate.
    """
    spans: list[Span] = []
    for turn in passage.turns:
        if spans and not passage.text[spans[-1].end : turn.span.start].strip():
            spans[-1] = Span(spans[-1].start, turn.span.end)
        else:
            spans.append(turn.span)
    texts = [(passage.text[span.start : span.end], span) for span in spans]
    found = [Candidate(text, type_, span, importance=importance(text)) for text, span in texts]
    return Extraction(tuple(found), VERBATIM)


def _refusal(candidate: Candidate, passage: Passage) -> Refusal | None:
    span, fact = candidate.span, candidate.fact
    if not _cites(span, passage.turns):
        return Refusal.NO_CITATION
    shares = (candidate.confidence, candidate.importance)
    if not all(math.isfinite(share) and 0.0 <= share <= 1.0 for share in shares):
        return Refusal.BAD_NUMBER
    words = [fact.entity, fact.attribute, fact.value] if fact else []
    words += [candidate.replaces] if candidate.replaces else []
    if any(len(word) > WORDS_CHARS_MAX for word in words):
        return Refusal.TOO_LONG
    said = "\n".join([candidate.text, *words])
    try:
        clean_text(candidate.text, chars_max=TEXT_CHARS_MAX)
        storable(said)
    except RecallError:
        return Refusal.NOT_STORABLE
    gives_orders = orders(candidate.text) or suspicions(said)
    return Refusal.GIVES_ORDERS if gives_orders else None


def _cites(span: Span, turns: Sequence[Turn]) -> bool:
    """True if a span begins and ends in visible turns, with no hidden turn between."""
    first = next((n for n, t in enumerate(turns) if t.span.start <= span.start < t.span.end), None)
    last = next((n for n, t in enumerate(turns) if t.span.start < span.end <= t.span.end), None)
    if first is None or last is None:
        return False
    return turns[last].index - turns[first].index == last - first


# The messages of one text.
MESSAGES_MAX = 1_000
_PLACEHOLDER = re.compile(r"\[secret: [^\]\n]*\]")


@dataclass(frozen=True)
class Redaction:
    """Redacts text and JSON; without a redactor, text stays as it is."""

    redactor: SecretRedactor | None

    async def text(self, text: str, entry: AuditEntry) -> str:
        (masked,) = await self.parts([text], entry)
        return masked

    async def in_place(self, text: str, entry: AuditEntry) -> str:
        """Return the text with its secrets overwritten in place: no other character moves."""
        masked = await self.text(text, entry)
        if masked == text:
            return text
        # The parts between the secrets are in both texts.
        parts, at = [], 0
        *between, last = _PLACEHOLDER.split(masked)
        for part in between:
            start = text.index(part, at)
            parts += [BLOCK * (start - at), part]
            at = start + len(part)
        return "".join([*parts, BLOCK * (len(text) - len(last) - at), last])

    async def ready(self) -> None:
        """Load the rules before the first call."""
        if self.redactor is not None:
            await self.redactor.ready()

    async def parts(self, parts: Sequence[str], entry: AuditEntry) -> list[str]:
        """Return the parts of one continuous text, redacted. The audit record counts secrets."""
        if self.redactor is None or not any(parts):
            return list(parts)
        masked, count = await self.redactor.redact(parts)
        if count:
            entry.counts["masked"] = entry.counts.get("masked", 0) + count
        return masked

    async def lines(self, lines: Sequence[str], entry: AuditEntry) -> list[str]:
        """Return the lines of one text, redacted."""
        return (await self.parts([one for line in lines for one in (line, "\n")], entry))[::2]

    async def utterances(
        self, said: Sequence[Utterance], entry: AuditEntry
    ) -> tuple[Utterance, ...]:
        words = await self.lines([one.words for one in said], entry)
        labels = [label for one in said for label in (one.role, one.name or "")]
        redacted = iter(await self.lines(labels, entry))
        return tuple(
            replace(one, words=spoken, role=next(redacted), name=next(redacted) or None)
            for one, spoken in zip(said, words, strict=True)
        )

    async def labels(
        self, topic: str, container: str, source: Source, entry: AuditEntry
    ) -> tuple[str, Source]:
        """Return the topic, and the source with its labels, tags and metadata, redacted. Raises
        `Invalid` if the name of the container holds a secret: a container is found, limited and
        erased by its name, which cannot be redacted.
        """
        given = {
            name: value
            for name, value in vars(source).items()
            if value and name not in ("tags", "metadata")
        }
        lines = [topic, container, *given.values(), *source.tags]
        parts = [one for line in lines for one in (line, "\n")]
        parts += _written(source.metadata)
        masked = await self.parts(parts, entry)
        if masked == parts:
            return topic, source
        names, metadata = masked[: 2 * len(lines) : 2], iter(masked[2 * len(lines) :])
        topic, name, *labels = names
        if name != container:
            raise Invalid("The name of the container holds a secret. Name it otherwise.")
        return topic, replace(
            source,
            **dict(zip(given, labels, strict=False)),
            tags=tuple(sorted({*labels[len(given) :]})),
            metadata=_read(source.metadata, metadata),
        )

    async def message(self, message: Message, entry: AuditEntry) -> Message:
        """Return a client's message with all texts redacted, its parts as the lines of one text."""
        (id_,) = await self.lines([message.id], entry)
        document = dict(message.document)
        parts = [dict(one) for one in document.get("parts", ())]
        said = [one for one in parts if "text" in one]
        for one, text in zip(
            said, await self.lines([one["text"] for one in said], entry), strict=True
        ):
            one["text"] = text
        masked: Mapping[str, Any] = await self.value({**document, "parts": parts}, entry)
        return Message(id_, masked)

    async def value(self, value: Any, entry: AuditEntry) -> Any:
        """Return the same JSON value with every text and every name in it redacted."""
        masked = await self.parts(list(_written(value)), entry)
        return _read(value, iter(masked))


def _written(value: Any) -> Iterator[str]:
    """Yield the texts of a JSON value in reading order: each name right before its value."""
    if isinstance(value, Mapping):
        for name, one in value.items():
            yield from (name, ": ")
            yield from _written(one)
    elif isinstance(value, list):
        for one in value:
            yield from _written(one)
    else:
        yield from (value if isinstance(value, str) else "", "\n")


def _read(value: Any, written: Iterator[str]) -> Any:
    """Return a JSON value of the same shape, with the texts that `_written` yields for it."""
    if isinstance(value, Mapping):
        names = ((next(written), next(written), one) for one in value.values())
        return {name: _read(one, written) for name, _, one in names}
    if isinstance(value, list):
        return [_read(one, written) for one in value]
    text, _ = next(written), next(written)
    return text if isinstance(value, str) else value


EXPIRE_TEXT = "expire_text"
# The time of texts whose words alone matter.
EPOCH = datetime.fromtimestamp(0, UTC)


def checked_utterances(said: Sequence[Utterance], now: datetime) -> tuple[Utterance, ...]:
    """Return the checked utterances. Raises `Invalid` if there are too many, one has no words, or a
    time is in the future.
    """
    if len(said) > MESSAGES_MAX:
        raise Invalid(
            f"There are {len(said)} messages; at most {MESSAGES_MAX} are taken at once. Send "
            "them in parts with the same session_id."
        )
    checked = tuple(one.checked() for one in said)
    for one in checked:
        check_times(now, one.said_at, name="at of a message")
    return checked


async def conversation(
    text: str, now: datetime, compute: Compute, owner: Namespace
) -> tuple[Utterance, ...]:
    """Return the utterances of a conversation that is written as JSON; none for any other text. A
    time that cannot be read, or is in the future, is left out.
    """
    if not text.lstrip().startswith(("{", "[")):
        return ()
    if len(text) > INLINE_CHARS_MAX:
        return await compute(_conversation, text, now, owner=owner)
    return _conversation(text, now)


def _conversation(text: str, now: datetime) -> tuple[Utterance, ...]:
    said = messages_in(text)
    # As in any other text: the overhead of a turn must not outweigh its words.
    if len(said) > TURNS_MIN + len(text) // CHARS_OF_A_TURN:
        return ()
    try:
        return tuple(
            Utterance(one.role, one.words, one.name, _moment(one.at, now)).checked() for one in said
        )
    except Invalid:
        return ()


def _moment(written: str | None, now: datetime) -> datetime | None:
    try:
        at = parse_moment(written, "at") if written else None
        check_times(now, at)
    except Invalid:
        return None
    return at


def last_said_at(said: Iterable[Utterance]) -> datetime | None:
    return max((one.said_at for one in said if one.said_at), default=None)


async def prepared(
    episode: Episode, compute: Compute, owner: Namespace
) -> tuple[Episode, Postings]:
    """Return the episode with its turns, and the postings of the passages that are not hidden."""
    if len(episode.text) > INLINE_CHARS_MAX:
        return await compute(prepare, episode, owner=owner)
    return prepare(episode)


def prepare(episode: Episode) -> tuple[Episode, Postings]:
    """Do the work of `prepared`: about 4 µs a character."""
    with_its_turns = with_turns(episode)
    return with_its_turns, postings(findable_passages(with_its_turns)).written()


def refuse_fragments(words: Postings, passages_max: int) -> None:
    """Raise `TextTooLong` if a text has more passages: each of them costs rows and a vector."""
    if words.documents > passages_max:
        raise TextTooLong(
            f"The text falls into {words.documents} passages; at most {passages_max} are taken at "
            "once. Send it in parts."
        )


# The rows of a text with so many postings and turns are computed before its transaction, which
# others await. Turns in quarantine have no postings.
COMPUTED_FROM = 5_000


class Computed(NamedTuple):
    """Rows of a long text: the digests by which it would be refused, the rows of its turns, and the
    lists of its words.
    """

    digests: Sequence[str]
    turns: TurnRows
    lists: Lists


def is_short(episode: Episode, words: Postings) -> bool:
    """Return whether a text with these words is stored without computing anything ahead."""
    return len(words.rows) + len(episode.turns) < COMPUTED_FROM


async def computed(
    tx: Transaction, episode: Episode, words: Postings, digests: Digests
) -> Computed | None:
    """Return what can be computed ahead of storing a text with these `words`; None if it is
    short.
    """
    if is_short(episode, words):
        return None
    namespace = tx.bound.owner
    last_slot = (await tx.words.statistics()).last_slot

    def compute() -> Computed:
        of_text = list(digests.of_text(namespace, episode.text, episode.turns))
        return Computed(of_text, turn_rows(episode), lists(words, last_slot))

    return await asyncio.to_thread(compute)


async def store_episode(
    tx: Transaction,
    episode: Episode,
    words: Postings,
    digests: Digests,
    *,
    key: str | None,
    digest: str,
    scope: AccessScope,
    ahead: Computed | None = None,
) -> bool:
    """Store the episode and index its visible passages; False if `key` was used before. Raises
    `ErasedContent` as `refuse_erased` does.
    """
    await refuse_erased(tx, digests, episode, scope, ahead and ahead.digests)
    turns = ahead and ahead.turns
    if key is None:
        # All that may refuse it is asked with the wait for the lock: the rest, which then waits for
        # no answer, is written with the commit.
        await tx.episodes.take_quota(episode, episode.id, digest)
    episode = replace(episode, recorded_at=await tx.moment())
    if key is None:
        await tx.episodes.add_new(episode, episode.id, digest, turns)
    elif not await tx.episodes.add(episode, key, digest, turns):
        return False
    await tx.words.add(words, await ahead.lists.fitting(tx) if ahead else None)
    await _hold(tx, episode)
    return True


async def store_planned_episode(
    tx: Transaction,
    episode: Episode,
    digests: Digests,
    *,
    key: str,
    scope: AccessScope,
    ahead: Computed | None,
) -> None:
    """Store an episode together with its plan; `commit.apply` indexes both."""
    await refuse_erased(tx, digests, episode, scope, ahead and ahead.digests)
    await tx.episodes.take_quota(episode, key, episode.content_hash)
    episode = replace(episode, recorded_at=await tx.moment())
    await tx.episodes.add_new(episode, key, episode.content_hash, ahead and ahead.turns)
    await _hold(tx, episode)


async def promise_expiry(
    tx: Transaction, runtime: Runtime, episode_id: str, expires_at: datetime | None
) -> None:
    """Add the job that hides a text when it expires, if it does."""
    if expires_at is not None:
        job_id, payload = runtime.new_id("job"), {"episode_id": episode_id}
        await tx.jobs.add(job_id, EXPIRE_TEXT, payload, runtime.now(), due_at=expires_at)


async def _hold(tx: Transaction, episode: Episode) -> None:
    held = {turn_id(episode.id, t.index): t.suspicions for t in episode.turns if t.suspicions}
    if held:
        await tx.quarantine.hold(episode.id, held, episode.recorded_at)


async def refuse_erased(
    tx: Transaction,
    digests: Digests,
    episode: Episode,
    scope: AccessScope,
    of_text: Sequence[str] | None = None,
) -> None:
    """Raise `ErasedContent` if the text or one of its turns was erased in this access scope. The
    writer must not learn what was erased outside of it. `of_text`: its digests, if they are known.

    Call it in the transaction that writes the text, which must hold the namespace's lock: it sees
    any erasure that committed before, and an erasure that commits later erases the text.
    """
    if scope.types is not None:
        return  # texts have no type, so no erasure in this scope concerned a text
    if of_text is None:
        given = (tx.bound.owner, episode.text, episode.turns)
        of_text = await apart(len(episode.turns) > INLINE_MAX, digests.of_text, *given)
    places = digests.places(tx.bound.owner, scope)
    await tx.erasures.refuse(of_text, places, ErasedContent)


@dataclass(frozen=True)
class ErasedTexts:
    """Finds the texts that `refuse_erased` would refuse. Each text comes with its known turns."""

    digests: Digests

    def digests_of(
        self, namespace: Namespace, texts: Sequence[tuple[str, Sequence[Turn]]]
    ) -> list[set[str]]:
        """Return the digests of each of these texts. Takes long for long texts."""
        return [
            set(self.digests.of_text(namespace, text, (*turns, *parse_turns(text, EPOCH))))
            for text, turns in texts
        ]

    async def refused(
        self, tx: Transaction, digests: Sequence[set[str]], scope: AccessScope | None = None
    ) -> set[int]:
        """Return the indexes of the texts with these digests that were erased."""
        places = EVERYWHERE if scope is None else self.digests.places(tx.bound.owner, scope)
        gone = await tx.erasures.erased(sorted(set().union(*digests)), places)
        return {index for index, one in enumerate(digests) if one & gone}
