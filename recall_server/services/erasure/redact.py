"""Erases a part of a namespace: overwrites words in place, deletes a container's texts, and deletes
all that rests on either.
"""

import asyncio
import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from recall_server.domain.episode import Citation, Episode, Span, episode_of, passage_id, turn_id
from recall_server.domain.erasure import Covered, Digests, ErasedText, Subject, redacted
from recall_server.domain.ids import NONE, Namespace
from recall_server.domain.text.passages import passages
from recall_server.services.memory import commit, indexing
from recall_server.services.memory.ingest import EXTRACT
from recall_server.storage.driver import Row, grouped, span
from recall_server.storage.store import Transaction
from recall_server.storage.tables import registry
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


EPISODES, TURNS, MEMORIES = (registry.BY_NAME[name] for name in ("episodes", "turns", "memories"))


@dataclass
class Affected:
    """All that one transaction erases.

    `memories`, `spans`, `tasks`: rows of memories by id, spans of episodes, ids of whole tasks.
    `container`, `whole`: a container, and its episodes, which are deleted with their turns.
    `subject`: its name is erased from labels too; `labelled`: the memories with it in a label.
    `last`: nothing is left after these.
    `batch`: the ids from which the others were found.
    """

    subject: Subject | None = None
    container: str = NONE
    labelled: set[str] = field(default_factory=set)
    memories: dict[str, Row] = field(default_factory=dict)
    spans: dict[str, set[Span]] = field(default_factory=dict)
    episodes: dict[str, tuple[Row, list[Row]]] = field(default_factory=dict)
    whole: set[str] = field(default_factory=set)
    tasks: list[str] = field(default_factory=list)
    last: bool = True
    batch: set[str] = field(default_factory=set)
    # Derived from the others.
    _covered: dict[str, Covered] = field(default_factory=dict)
    _turns: list[Row] | None = None

    def take(self, episode: Row, turns: list[Row]) -> None:
        self.whole.add(episode["id"])
        self.episodes[episode["id"]] = (episode, turns)
        self.add(episode["id"], Span(0, len(episode["text"])))

    def add(self, episode_id: str, where: Span) -> None:
        self.spans.setdefault(episode_id, set()).add(where)
        self._covered.pop(episode_id, None)
        self._turns = None

    def touches(self, episode_id: str, where: Span) -> bool:
        if episode_id not in self._covered:
            self._covered[episode_id] = Covered(self.spans.get(episode_id, ()))
        return episode_id in self.whole or self._covered[episode_id].touches(where)

    def turns(self) -> list[Row]:
        """Return the turns whose words or labels are erased. The first call may take long."""
        if self._turns is None:
            named = self.subject.named if self.subject else lambda *_: False
            self._turns = [
                turn
                for episode, turns in self.episodes.values()
                for turn in turns
                if self.touches(episode["id"], span(turn))
                or named(turn["speaker"], turn["session"])
            ]
        return self._turns

    def quotes(self) -> set[str]:
        return {
            self.episodes[episode_id][0]["text"][one.start : one.end]
            for episode_id, spans in self.spans.items()
            for one in spans
        }

    def said(self) -> list[str]:
        """Return the words of each turn that is deleted with its episode."""
        texts = {one: self.episodes[one][0]["text"] for one in self.whole}
        return _spoken((turn for one in texts for turn in self.episodes[one][1]), texts)

    @property
    def nothing(self) -> bool:
        """True if no row is erased or redacted, so no index, cache or job has read one."""
        return not (self.memories or self.labelled or self.episodes or self.tasks)

    def counts(self) -> dict[str, int]:
        return {
            "memories": len(self.memories),
            "episodes": len(self.episodes),
            "spans": sum(len(spans) for spans in self.spans.values()),
            "turns": len(self.turns()),
            "runs": len(self.tasks),
        }


async def apply(
    tx: Transaction, affected: Affected, digests: Digests, now: datetime
) -> SpokenTurns:
    """Erase the targets from texts, indexes, tasks and caches. Jobs that have read them start
    again, and the same words are refused from now on. The rest of the texts stays findable.

    Returns the turns to extract again: those outside of the container that an erased memory rested
    on too. Without a target only the erase epoch moves, by which a row that was missed is found.
    """
    if affected.nothing:
        await tx.erasures.next_epoch()
        return {}
    turns = affected.turns()
    known = await asyncio.to_thread(_digests, affected, turns, digests, _namespace(tx))
    await tx.erasures.remember(known | await _digests_given(tx, affected, digests))
    passages, touched = await _passages(tx, affected)
    # This comes before the words are erased: the index needs them to find an item's entries.
    await indexing.erase_memories(tx, affected.memories)
    left: SpokenTurns = {}
    if affected.container:
        left = await cited_only_by(tx, affected.memories.keys(), affected.whole)
    # A vector is also made from the words around an item.
    resting = await tx.findables.memories_of_episodes(affected.episodes)
    await tx.vectors.remove({*affected.memories, *passages, *resting})

    still_hidden = await _still_hidden(tx, affected)

    async def remove() -> None:
        # The words that a memory hides are hidden until then: the index has not counted them.
        await tx.erasures.remove_memories(affected.memories)
        await tx.episodes.hide_words(still_hidden, now)
        await _redact_texts(tx, affected, turns, passages)

    await indexing.erase_passages(tx, affected.episodes, touched, remove)
    await commit.settle_ended(tx, now)
    await tx.erasures.remove_tasks(affected.tasks)
    await tx.erasures.fence(now)
    await tx.jobs.requeue_without_space(now)
    await tx.erasures.next_epoch()
    return left


async def _still_hidden(tx: Transaction, affected: Affected) -> dict[str, list[Citation]]:
    """Return the words that the memories hide and that are not erased, by their passage: these stay
    forgotten, although nothing else cites them.
    """
    rows = [
        row
        for row in await tx.erasures.hidden_by(affected.memories)
        if not affected.touches(row["episode_id"], span(row))
    ]
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


async def _passages(tx: Transaction, affected: Affected) -> tuple[list[str], set[str]]:
    """Return the ids of all passages of the episodes, findable or not, and of those whose words,
    headings or labels are erased.
    """
    found, touched = list[str](), set[str]()
    turns = {turn["id"] for turn in affected.turns()}
    async for episodes in indexing.some_of(tx, affected.episodes):
        more, some = await asyncio.to_thread(_touched, affected, episodes, turns)
        found += more
        touched |= some
    return found, touched


def _touched(
    affected: Affected, episodes: Iterable[Episode], turns: Collection[str]
) -> tuple[list[str], set[str]]:
    found, touched = list[str](), set[str]()
    for episode in episodes:
        for one in passages(episode.text, episode.turns):
            found.append(passage_id(episode.id, one.turn.index, one.number))
            if turn_id(episode.id, one.turn.index) in turns or any(
                affected.touches(episode.id, span) for span in (one.span, *one.headings)
            ):
                touched.add(found[-1])
    return found, touched


async def _redact_texts(
    tx: Transaction, affected: Affected, turns: Sequence[Row], passages: Iterable[str]
) -> None:
    whole = affected.whole
    await tx.erasures.remove_episodes(
        [row for row, _ in affected.episodes.values() if row["id"] in whole],
        [one for one in passages if episode_of(one) in whole],
    )
    subject, left = affected.subject, affected.episodes.keys() - whole
    await tx.erasures.redact(
        TURNS, [_redacted_turn(one, subject) for one in turns if one["episode_id"] in left]
    )
    episodes = [affected.episodes[one][0] for one in sorted(left)]

    spans = affected.spans
    rows = await asyncio.to_thread(
        lambda: [_redacted_episode(one, spans.get(one["id"], ()), subject) for one in episodes]
    )
    await tx.erasures.redact(EPISODES, rows)
    if subject:
        # Memories copy the labels of their texts.
        cited = {row["memory_id"] for row in await tx.erasures.citations_in(left)}
        memories = await tx.erasures.memories_of(
            (cited | affected.labelled) - affected.memories.keys()
        )
        await tx.erasures.redact(
            MEMORIES, [{"id": row["id"], **_labels(MEMORIES, row, subject)} for row in memories]
        )
        # The copy of an answer names its model.
        await tx.erasures.drop_answers(
            [row["id"] for row in memories if subject.named(row["extractor"])]
        )


def _redacted_turn(turn: Row, subject: Subject | None) -> dict[str, Any]:
    labels = TURNS.labels_of(turn)
    named = {name for name, label in labels.items() if subject and subject.named(label)}
    return {"id": turn["id"], **labels, **dict.fromkeys(named)}


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
            turns=_spoken(of_episode.get(episode_id, ()), {episode_id: text}),
        )
    for memory in affected.memories.values():
        found |= digests.of_erased(namespace, memory, quotes=[memory["text"]])
    return found


def _spoken(turns: Iterable[Row], texts: Mapping[str, str]) -> list[str]:
    return [texts[turn["episode_id"]][turn["span_start"] : turn["span_end"]] for turn in turns]


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
    return digests.of_erased(_namespace(tx), labels, whole=[request["text"]])


async def _digests_given(tx: Transaction, affected: Affected, digests: Digests) -> set[ErasedText]:
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
        spoken = _spoken(turns, {episode["id"]: episode["text"]})
        found |= digests.of_erased(_namespace(tx), episode, whole=[episode["text"]], turns=spoken)
    return found


def digests_of_memories(
    tx: Transaction, digests: Digests, memories: Iterable[Row]
) -> set[ErasedText]:
    found: set[ErasedText] = set()
    for memory in memories:
        found |= digests.of_erased(_namespace(tx), memory, quotes=[memory["text"]])
    return found


def _namespace(tx: Transaction) -> Namespace:
    assert tx.bound.namespace is not None
    return tx.bound.namespace
