"""Erases a part of a namespace: overwrites words in place, deletes a container's texts, and deletes
all that rests on either.
"""

import asyncio
import hashlib
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any

from recall_server.domain.episode import (
    Citation,
    Episode,
    Span,
    episode_of,
    passage_id,
    turn_id,
    turn_of,
)
from recall_server.domain.erasure import Covered, Digests, ErasedText, Subject, redacted
from recall_server.domain.ids import Namespace
from recall_server.domain.search.index_entry import Findable, findable_passages
from recall_server.domain.text.passages import passages
from recall_server.services.erasure.targets import (
    EPISODES,
    MEMORIES,
    NO_WORDS,
    TURNS,
    Affected,
    Piece,
    Writes,
    spoken,
)
from recall_server.services.memory import commit, indexing
from recall_server.services.memory.ingest import EXTRACT
from recall_server.storage.driver import Row, grouped, span
from recall_server.storage.index.words import Postings, postings
from recall_server.storage.store import Transaction
from recall_server.storage.tables.registry import Table

SpokenTurns = Mapping[str, tuple[str, int]]
"""The episode and position of turns, by their ids."""


async def cited_only_by(
    tx: Transaction, memory_ids: Collection[str], gone: Collection[str]
) -> SpokenTurns:
    """Return the turns that only these memories cite, and others in quarantine, except those in
    episodes that are `gone`.
    """
    rows = await tx.erasures.citations(memory_ids)
    lost = _covered(row for row in rows if row["episode_id"] not in gone)
    rows = await tx.erasures.standing_citations_in(lost)
    still = _covered(row for row in rows if row["memory_id"] not in memory_ids)
    none = Covered(())
    found: dict[str, tuple[str, int]] = {}
    for turn in await tx.sources.turns(lost):
        episode_id, where = turn["episode_id"], span(turn)
        kept = still.get(episode_id, none).touches(where)
        if lost.get(episode_id, none).touches(where) and not kept:
            found[turn["id"]] = (episode_id, turn["position"])
    return found


def _covered(citations: Iterable[Row]) -> dict[str, Covered]:
    spans = grouped((row["episode_id"], span(row)) for row in citations)
    return {episode_id: Covered(some) for episode_id, some in spans.items()}


async def restore_turns(
    tx: Transaction, turns: SpokenTurns, new_id: Callable[[str], str], now: datetime, **payload: str
) -> None:
    for episode_id, turn in sorted(turns.values()):
        of_turn = {"episode_id": episode_id, "turn": turn, **payload}
        await tx.jobs.add(new_id("job"), EXTRACT, of_turn, now)


@dataclass(frozen=True)
class _Cut:
    """The passages of the texts: the ids of `all`, findable or not; those that are `touched` in
    words, headings or labels; their entries in the index `before` and `after`; and those whose
    entries go, `gone`.
    """

    all: list[str] = field(default_factory=list)
    touched: set[str] = field(default_factory=set)
    before: dict[str, Findable] = field(default_factory=dict)
    after: dict[str, Findable] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Redaction:
    """The changes of the erasure of `affected`, piece by piece. They were computed before, without
    a lock, and what they rest on must be unchanged when they are written.

    `left`: the entries that passages get anew, with their `lists`, found since the `moments`.
    `bare`: items that lose only their vectors. `hidden`: words that stay forgotten. `episodes`,
    `memories`: rows that are overwritten; `answers`: memories whose model is named. `again`: turns
    to extract again.
    """

    affected: Affected
    pieces: Sequence[Piece]
    passages: Sequence[str] = ()
    left: Postings = NO_WORDS
    lists: indexing.Lists | None = None
    moments: Mapping[str, datetime] = field(default_factory=dict)
    bare: Sequence[str] = ()
    hidden: Mapping[str, list[Citation]] = field(default_factory=dict)
    episodes: Sequence[Row] = ()
    memories: Sequence[Row] = ()
    answers: Sequence[str] = ()
    again: SpokenTurns = field(default_factory=dict)


async def planned(
    tx: Transaction,
    affected: Affected,
    digests: Digests,
    rows: int = sys.maxsize,
    stored: Collection[ErasedText] = (),
) -> Redaction:
    """Return what erases the targets from texts, indexes, tasks and caches: in one piece, or in
    several of about so many `rows`. `stored`: digests that need not be stored again.
    """
    if affected.nothing:
        return Redaction(affected, [Piece(texts=True)])
    turns, memories = affected.turns(), affected.memories
    known = await asyncio.to_thread(_digests, affected, turns, digests, tx.bound.owner)
    known |= await digests_given(tx, affected, digests)
    known.difference_update(stored)
    hides = await tx.erasures.hidden_by(memories)
    texts = [one async for some in indexing.some_of(tx, affected.episodes) for one in some]
    hidden = await _still_hidden(tx, affected, hides)
    subject, left = affected.subject, affected.episodes.keys() - affected.whole
    redacted_turns = await asyncio.to_thread(
        lambda: [
            row
            for one in turns
            if one["episode_id"] in left and (row := _redacted_turn(one, subject))
        ]
    )
    remain = partial(_what_remains, affected.spans, redacted_turns, hides, hidden)
    cut = await asyncio.to_thread(_cut, affected, texts, remain)
    # A piece before may have erased entries.
    gone = cut.gone & cut.after.keys() | await tx.words.entered(cut.gone)
    found = await tx.findables.found([*gone, *memories])
    words = await tx.findables.memories([*found & memories.keys()])
    words |= {i: cut.before[i] for i in gone & cut.before.keys() & found}
    again: SpokenTurns = {}
    if affected.container:
        again = await cited_only_by(tx, memories.keys(), affected.whole)
    of_hidden = await tx.words.terms_of_hidden([*memories, *gone])
    labelled: Sequence[Row] = []
    if subject:
        # Memories copy the labels of their texts.
        cited = {row["memory_id"] for row in await tx.erasures.citations_in(left)}
        labelled = await tx.erasures.memories_of((cited | affected.labelled) - memories.keys())
    remaining = {i: cut.after[i] for i in sorted(gone & cut.after.keys())}
    anew = await asyncio.to_thread(lambda: postings(remaining).written())
    last_slot = (await tx.words.statistics()).last_slot
    pieces = await asyncio.to_thread(
        lambda: Writes(
            affected, gone, remaining.keys(), known, hides, redacted_turns, words, of_hidden
        ).pieces(rows)
    )
    if len(pieces) == 1:
        # Each piece changes the lists of words, so only a single one can be computed ahead.
        (one,) = pieces
        items = [*one.memories, *one.passages]
        removal = await tx.words.removal(items, one.words, one.of_hidden)
        pieces = [replace(one, removal=removal)]
    return Redaction(
        affected,
        pieces,
        passages=cut.all,
        left=anew,
        lists=await asyncio.to_thread(indexing.lists, anew, last_slot),
        moments=await tx.words.moments(remaining.keys() & found),
        bare=await _bare(tx, affected, turns, cut, gone),
        hidden=hidden,
        episodes=await asyncio.to_thread(
            lambda: [
                _redacted_episode(affected.episodes[one][0], affected.spans.get(one, ()), subject)
                for one in sorted(left)
            ]
        ),
        memories=[{"id": row["id"], **_labels(MEMORIES, row, subject)} for row in labelled],
        answers=[row["id"] for row in labelled if subject and subject.named(row["extractor"])],
        again=again,
    )


async def write(tx: Transaction, redaction: Redaction, piece: Piece, now: datetime) -> None:
    """Erase one piece. Jobs that have read it start again, and the same words are refused from now
    on. With the last one, the rest of the texts is findable, and `again` lists the turns outside of
    the container that an erased memory rested on too. Without a target only the erase epoch moves,
    by which a row that was missed is found.
    """
    affected = redaction.affected
    if affected.nothing:
        await tx.erasures.next_epoch()
        return
    await tx.erasures.remember(piece.digests)
    items = [*piece.memories, *piece.passages]
    await tx.words.erase(items, piece.words, piece.of_hidden, piece.removal)
    await tx.vectors.remove([*items, *(redaction.bare if piece.texts else ())])
    if piece.memories:
        await tx.episodes.hide_words(redaction.hidden, now)
        await tx.erasures.remove_memories(piece.memories)
    await tx.erasures.remove_turns(piece.turns)
    await tx.erasures.redact(TURNS, piece.labels)
    if piece.texts:
        await _write_texts(tx, redaction)
        lists = redaction.lists
        await tx.words.add(redaction.left, lists and await lists.fitting(tx))
        await tx.words.backdate(redaction.moments)
        await commit.settle_ended(tx, now)
        await tx.jobs.requeue_without_space(now)
    if piece.tasks:
        await tx.erasures.remove_tasks(affected.tasks)
    await tx.erasures.fence(now)
    await tx.erasures.next_epoch()


async def _still_hidden(
    tx: Transaction, affected: Affected, hides: Iterable[Row]
) -> dict[str, list[Citation]]:
    """Return the words that the memories hide and that are not erased, by their passage: these stay
    forgotten, although nothing else cites them.
    """
    rows = [row for row in hides if not affected.touches(row["episode_id"], span(row))]
    found: dict[str, list[Citation]] = {}
    for episode in await tx.episodes.several(sorted({row["episode_id"] for row in rows})):
        cut = await asyncio.to_thread(passages, episode.text, episode.turns)
        for hidden in (span(row) for row in rows if row["episode_id"] == episode.id):
            for one in cut:
                if one.span.overlaps(hidden):
                    item_id = passage_id(episode.id, one.turn.index, one.number)
                    found.setdefault(item_id, []).append(Citation(episode.id, hidden))
                    break
    return found


def _what_remains(
    spans: Mapping[str, set[Span]],
    redacted_turns: Iterable[Row],
    hides: Iterable[Row],
    hidden: Mapping[str, Iterable[Citation]],
    episode: Episode,
) -> Episode:
    """Return a text as it is read after the erasure."""
    labels = {row["id"]: row for row in redacted_turns}
    forgotten = Counter(episode.forgotten)
    forgotten -= Counter(span(row) for row in hides if row["episode_id"] == episode.id)
    still = [one for some in hidden.values() for one in some if one.episode_id == episode.id]
    return replace(
        episode,
        text=redacted(episode.text, spans.get(episode.id, ())),
        turns=tuple(
            replace(turn, speaker=row["speaker"], session=row["session"])
            if (row := labels.get(turn_id(episode.id, turn.index)))
            else turn
            for turn in episode.turns
        ),
        forgotten=(*forgotten.elements(), *(one.span for one in still)),
    )


def _cut(
    affected: Affected, texts: Iterable[Episode], remain: Callable[[Episode], Episode]
) -> _Cut:
    cut, turns = _Cut(), {turn["id"] for turn in affected.turns()}
    for text in texts:
        for one in passages(text.text, text.turns):
            cut.all.append(passage_id(text.id, one.turn.index, one.number))
            if turn_id(text.id, one.turn.index) in turns or any(
                affected.touches(text.id, span) for span in (one.span, *one.headings)
            ):
                cut.touched.add(cut.all[-1])
        cut.before.update(findable_passages(text))
        if text.id not in affected.whole:
            cut.after.update(findable_passages(remain(text)))
    cut.gone.update(cut.touched)
    cut.gone.update(i for i, one in cut.before.items() if one != cut.after.get(i))
    return cut


async def _bare(
    tx: Transaction,
    affected: Affected,
    turns: Iterable[Row],
    cut: _Cut,
    gone: Collection[str],
) -> list[str]:
    """Return the items whose vectors were made from words that are erased too: a vector is also
    made from the turn of an item and from the one before.
    """
    near: set[str] = set()
    for turn in (turn for turn in turns if turn["episode_id"] not in affected.whole):
        near |= {turn_id(turn["episode_id"], turn["position"] + after) for after in (0, 1)}
    # A heading counts towards the passages below it, in whatever turn.
    near |= {turn_of(one) for one in gone}
    left = affected.episodes.keys() - affected.whole
    cited = await tx.erasures.citations_in(left)

    def found() -> list[str]:
        places = {
            one: Covered(span(turn) for turn in affected.episodes[one][1] if turn["id"] in near)
            for one in left
        }
        items = {one for one in cut.all if turn_of(one) in near}
        items |= {
            row["memory_id"]
            for row in cited
            if row["position"] == 0 and places[row["episode_id"]].touches(span(row))
        }
        return sorted(items - {*gone} - affected.memories.keys())

    return await asyncio.to_thread(found)


async def _write_texts(tx: Transaction, redaction: Redaction) -> None:
    whole = redaction.affected.whole
    await tx.erasures.remove_episodes(
        [row for row, _ in redaction.affected.episodes.values() if row["id"] in whole],
        [one for one in redaction.passages if episode_of(one) in whole],
    )
    await tx.erasures.redact(EPISODES, redaction.episodes)
    await tx.erasures.redact(MEMORIES, redaction.memories)
    # The copy of an answer names its model.
    await tx.erasures.drop_answers(redaction.answers)


def _redacted_turn(turn: Row, subject: Subject | None) -> dict[str, Any] | None:
    """Return the labels of a turn without the name of the subject; None if none has it."""
    labels = TURNS.labels_of(turn)
    named = {name for name, label in labels.items() if subject and subject.named(label)}
    return {"id": turn["id"], **labels, **dict.fromkeys(named)} if named else None


def _redacted_episode(row: Row, spans: Iterable[Span], subject: Subject | None) -> dict[str, Any]:
    text = redacted(row["text"], spans)
    return {
        "id": row["id"],
        "text": text,
        "content_hash": hashlib.sha256(text.encode()).hexdigest(),
        # As if no key had been given: a repeated request does not find it, and no digest of the old
        # words is left.
        "idempotency_key": row["id"],
        "request_digest": "",
        **_labels(EPISODES, row, subject),
    }


def _labels(table: Table, row: Row, subject: Subject | None) -> dict[str, Any]:
    """Return the labels of a row, without the name of the subject."""
    return {
        name: subject.without_name(label) if subject else label
        for name, label in table.labels_of(row).items()
    }


def _digests(
    affected: Affected, turns: Sequence[Row], digests: Digests, namespace: Namespace
) -> set[ErasedText]:
    found: set[ErasedText] = set()
    of_episode = grouped((turn["episode_id"], turn) for turn in turns)
    for episode_id, (row, _) in affected.episodes.items():
        text, spans = row["text"], affected.spans.get(episode_id, ())
        found |= digests.of_erased(
            namespace,
            row,
            whole=[text] if spans else (),
            quotes=[text[one.start : one.end] for one in spans],
            turns=spoken(of_episode.get(episode_id, ()), {episode_id: text}),
        )
    for memory in affected.memories.values():
        found |= digests.of_erased(namespace, memory, quotes=[memory["text"]])
    return found


async def digests_of_tasks(tx: Transaction, digests: Digests) -> set[ErasedText]:
    """Return the digests of the texts that tasks were given. Their proposals derive from those."""
    found: set[ErasedText] = set()
    async for task in tx.erasure_scan.tasks():
        found |= _digests_of_request(tx, digests, task.documents[0])
    return found


def _digests_of_request(
    tx: Transaction, digests: Digests, request: Mapping[str, Any]
) -> set[ErasedText]:
    if not request["text"]:
        return set()
    labels = {
        "topic": request["topic"],
        "container": request.get("container"),
        "agent_id": request["source"]["agent_id"],
    }
    return digests.of_erased(tx.bound.owner, labels, whole=[request["text"]])


async def digests_given(tx: Transaction, affected: Affected, digests: Digests) -> set[ErasedText]:
    """Return the digests of the texts that tasks of the container were given, stored or not."""
    found: set[ErasedText] = set()
    async for tasks in tx.erasure_scan.tasks_of(affected.tasks if affected.container else ()):
        for request in (one.documents[0] for one in tasks):
            if request.get("container") == affected.container:
                found |= _digests_of_request(tx, digests, request)
    return found


def digests_of_episodes(
    tx: Transaction, digests: Digests, episodes: Iterable[tuple[Row, Sequence[Row]]]
) -> set[ErasedText]:
    found: set[ErasedText] = set()
    for episode, turns in episodes:
        text = episode["text"]
        said = spoken(turns, {episode["id"]: text})
        found |= digests.of_erased(tx.bound.owner, episode, whole=[text], turns=said)
    return found


def digests_of_memories(
    tx: Transaction, digests: Digests, memories: Iterable[Row]
) -> set[ErasedText]:
    found: set[ErasedText] = set()
    for memory in memories:
        found |= digests.of_erased(tx.bound.owner, memory, quotes=[memory["text"]])
    return found
