"""Erase a part of a namespace: words are overwritten in place, a container's texts are deleted, and
so is all that rests on either.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from recall_server.domain.containers import NONE
from recall_server.domain.episode import Span
from recall_server.domain.erasure import Digests, Subject, overlap, redacted
from recall_server.domain.memory import Status
from recall_server.domain.namespace import Namespace
from recall_server.domain.text.transcript import parse_turns
from recall_server.services.erasure.restore_turns import SpokenTurns, cited_only_by, show_turns
from recall_server.services.memory import indexing
from recall_server.storage.driver import Row
from recall_server.storage.rows import span
from recall_server.storage.store import Transaction

LABELS = ("topic", "container", "session_id", "agent_id", "source")


@dataclass
class Affected:
    """All that one transaction erases: rows of memories by id, spans of episodes, whole tasks; of a
    `container` `whole` episodes with their turns; the name of `subject` from labels too.
    `last`: nothing is left after these. `batch`: the ids from which the others were found.
    """

    subject: Subject | None = None
    container: str = NONE
    memories: dict[str, Row] = field(default_factory=dict)
    spans: dict[str, set[Span]] = field(default_factory=dict)
    episodes: dict[str, tuple[Row, list[Row]]] = field(default_factory=dict)
    whole: set[str] = field(default_factory=set)
    tasks: list[str] = field(default_factory=list)
    last: bool = True
    batch: set[str] = field(default_factory=set)

    def take(self, episode: Row, turns: list[Row]) -> None:
        """All of an episode."""
        self.whole.add(episode["id"])
        self.episodes[episode["id"]] = (episode, turns)
        self.add(episode["id"], Span(0, len(episode["text"])))

    def add(self, episode_id: str, where: Span) -> None:
        self.spans.setdefault(episode_id, set()).add(where)

    def touches(self, episode_id: str, where: Span) -> bool:
        return episode_id in self.whole or any(
            overlap(where, one) for one in self.spans.get(episode_id, ())
        )

    def turns(self) -> list[Row]:
        """The turns whose words or speaker are erased."""
        named = self.subject.named if self.subject else lambda *_: False
        return [
            turn
            for episode, turns in self.episodes.values()
            for turn in turns
            if self.touches(episode["id"], span(turn)) or named(turn["speaker"], turn["session"])
        ]

    def quotes(self) -> set[str]:
        """The words that are erased."""
        return {
            self.episodes[episode_id][0]["text"][one.start : one.end]
            for episode_id, spans in self.spans.items()
            for one in spans
        }

    def said(self) -> list[str]:
        """The words of each turn that is deleted with its episode."""
        texts = {one: self.episodes[one][0]["text"] for one in self.whole}
        return _spoken((turn for one in texts for turn in self.episodes[one][1]), texts)

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
    """Erase the targets from texts, indexes, tasks and caches. Jobs that have read of them begin
    anew, and the same words are not taken in again.

    Returns the turns that are to be read again: those of texts that stay, where a memory is erased
    that rested on texts of the container too.
    """
    assert tx.handle.namespace is not None
    turns = affected.turns()
    known = _digests(affected, turns, digests, tx.handle.namespace)
    await tx.erasures.remember(known | await _digests_given(tx, affected, digests))
    still = await _hide(tx, affected, turns)
    left: SpokenTurns = {}
    if affected.container:
        left = await cited_only_by(tx, affected.memories.keys(), affected.whole)
    await tx.erasures.remove_vectors([*affected.memories, *await _around(tx, affected)])
    await tx.erasures.remove_memories(affected.memories)
    await _redact_texts(tx, affected, turns)
    await indexing.show(tx, still)
    await show_turns(tx, left)
    await tx.erasures.remove_tasks(affected.tasks)
    await tx.erasures.fence(now)
    await tx.erasures.next_epoch()
    return left


async def _redact_texts(tx: Transaction, affected: Affected, turns: Sequence[Row]) -> None:
    whole = affected.whole
    await tx.erasures.remove_episodes(
        [row for row, _ in affected.episodes.values() if row["id"] in whole],
        [turn["id"] for turn in turns if turn["episode_id"] in whole],
    )
    await tx.erasures.redact_turns(
        [_redacted_turn(one, affected.subject) for one in turns if one["episode_id"] not in whole]
    )
    await tx.erasures.redact_episodes(
        [
            _redacted_episode(row, affected.spans.get(row["id"], ()), affected.subject)
            for row, _ in affected.episodes.values()
            if row["id"] not in whole
        ]
    )


async def _hide(tx: Transaction, affected: Affected, turns: Sequence[Row]) -> set[str]:
    """Take all of it out of the word index, as long as the words are there. Returns the memories
    that stay, and were found by erased words too: they are to be shown again.
    """
    still = await tx.findables.resting_on([turn["id"] for turn in turns]) - set(affected.memories)
    gone = {row["id"] for row in affected.memories.values() if row["status"] == Status.ACTIVE}
    gone |= {turn["id"] for turn in turns if turn["state"] == "open"}
    await indexing.hide(tx, gone | still)
    return still


async def _around(tx: Transaction, affected: Affected) -> set[str]:
    """All items of the episodes: a vector is made of the words around an item too."""
    turns = {turn["id"] for _, of_one in affected.episodes.values() for turn in of_one}
    return turns | await tx.findables.resting_on(turns)


def _redacted_turn(turn: Row, subject: Subject | None) -> dict[str, Any]:
    def kept(label: str | None) -> str | None:
        return None if subject and subject.named(label) else label

    return {
        "id": turn["id"],
        "speaker": kept(turn["speaker"]),
        "session": kept(turn["session"]),
    }


def _redacted_episode(row: Row, spans: Iterable[Span], subject: Subject | None) -> dict[str, Any]:
    def kept(label: str | None) -> str | None:
        return redacted(label, subject.places(label)) if subject and label else label

    text = redacted(row["text"], spans)
    return {
        "id": row["id"],
        "text": text,
        "content_hash": hashlib.sha256(text.encode()).hexdigest(),
        **{label: kept(row[label]) for label in LABELS},
    }


def _digests(
    affected: Affected, turns: Sequence[Row], digests: Digests, namespace: Namespace
) -> set[str]:
    texts = {row["id"]: row["text"] for row, _ in affected.episodes.values()}
    return digests.of_erased(
        namespace,
        whole=[texts[episode_id] for episode_id in affected.spans],
        quotes={*affected.quotes(), *(row["text"] for row in affected.memories.values())},
        turns=_spoken(turns, texts),
    )


def _spoken(turns: Iterable[Row], texts: Mapping[str, str]) -> list[str]:
    return [texts[turn["episode_id"]][turn["span_start"] : turn["span_end"]] for turn in turns]


async def digests_of_all(tx: Transaction, digests: Digests) -> set[str]:
    """The digests of all texts of the namespace: of episodes, turns, memories, and of those that
    tasks were given.
    """
    found = await digests_of_tasks(tx, digests)
    async for episodes in tx.erasure_scan.pages("episodes"):
        found |= digests_of_episodes(tx, digests, await tx.erasures.with_turns(episodes))
    async for memories in tx.erasure_scan.pages("memories"):
        found |= digests_of_memories(tx, digests, memories)
    return found


async def digests_of_tasks(tx: Transaction, digests: Digests) -> set[str]:
    """The digests of the texts that tasks were given. Their proposals are made of those."""
    found: set[str] = set()
    async for task in tx.erasure_scan.tasks():
        if text := task.documents[0]["text"]:
            found |= digests.of_erased(_namespace(tx), whole=[text])
    return found


async def _digests_given(tx: Transaction, affected: Affected, digests: Digests) -> set[str]:
    """The digests of the texts that tasks of the container were given, whatever became of these."""
    found: set[str] = set()
    async for task in tx.erasure_scan.tasks_of(affected.tasks if affected.container else ()):
        request = task.documents[0]
        if request["text"] and request.get("container") == affected.container:
            found |= digests.of_erased(_namespace(tx), whole=[request["text"]])
    return found


def digests_of_episodes(
    tx: Transaction, digests: Digests, episodes: Iterable[tuple[Row, Sequence[Row]]]
) -> set[str]:
    """The digests of episodes, and of their turns."""
    found: set[str] = set()
    for episode, turns in episodes:
        spoken = _spoken(turns, {episode["id"]: episode["text"]})
        found |= digests.of_erased(_namespace(tx), whole=[episode["text"]], turns=spoken)
    return found


def digests_of_memories(tx: Transaction, digests: Digests, memories: Iterable[Row]) -> set[str]:
    return digests.of_erased(_namespace(tx), quotes=[memory["text"] for memory in memories])


def _namespace(tx: Transaction) -> Namespace:
    assert tx.handle.namespace is not None
    return tx.handle.namespace


def digests_to_allow(digests: Digests, namespace: Namespace, text: str, now: datetime) -> list[str]:
    """The digests by which a text would be refused: of all of it, of its turns, of its lines."""
    turns = {text[turn.span.start : turn.span.end] for turn in parse_turns(text, now)}
    return sorted(
        {digests.of(namespace, one) for one in {text, *turns, *text.splitlines()} if one.strip()}
    )
