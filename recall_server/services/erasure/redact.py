"""How an erasure of less than everything takes out what it reaches: words are overwritten in place,
a container's texts are removed, and all that rests on them goes.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from recall_server.domain.containers import NONE
from recall_server.domain.episode import Span
from recall_server.domain.erasure import Digests, Subject, overlap, struck
from recall_server.domain.memory import Status
from recall_server.domain.namespace import Namespace
from recall_server.domain.text.transcript import parse_turns
from recall_server.services.erasure.restore_turns import SpokenTurns, reopen, spoken_for_by
from recall_server.services.memory import indexing
from recall_server.storage.driver import Row
from recall_server.storage.rows import span
from recall_server.storage.store import Transaction

LABELS = ("topic", "container", "session_id", "agent_id", "source")


@dataclass
class Affected:
    """What is to go: rows of memories by id, spans of episodes, whole tasks; and of a `container`
    `whole` episodes with their turns. `subject` is whose name goes from labels too.
    """

    subject: Subject | None = None
    container: str = NONE
    memories: dict[str, Row] = field(default_factory=dict)
    spans: dict[str, set[Span]] = field(default_factory=dict)
    episodes: dict[str, tuple[Row, list[Row]]] = field(default_factory=dict)
    whole: set[str] = field(default_factory=set)
    runs: list[str] = field(default_factory=list)

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
        """The turns whose words, or whose speaker, are among what goes."""
        named = self.subject.named if self.subject else lambda *_: False
        return [
            turn
            for episode, turns in self.episodes.values()
            for turn in turns
            if self.touches(episode["id"], span(turn)) or named(turn["speaker"], turn["session"])
        ]

    def quotes(self) -> set[str]:
        """The words that are struck out."""
        return {
            self.episodes[episode_id][0]["text"][one.start : one.end]
            for episode_id, spans in self.spans.items()
            for one in spans
        }

    def said(self) -> list[str]:
        """What was said in each of the turns that go with their episodes."""
        texts = {one: self.episodes[one][0]["text"] for one in self.whole}
        return _spoken((turn for one in texts for turn in self.episodes[one][1]), texts)

    def counts(self) -> dict[str, int]:
        return {
            "memories": len(self.memories),
            "episodes": len(self.episodes),
            "spans": sum(len(spans) for spans in self.spans.values()),
            "turns": len(self.turns()),
            "runs": len(self.runs),
        }


async def apply(
    tx: Transaction, affected: Affected, digests: Digests, now: datetime
) -> SpokenTurns:
    """Take it out: of texts, indexes, tasks and caches; what was read of it by a job under way is
    worth nothing, and the same words are not taken again. The turns that are to be read again: of
    texts that stay while a memory goes which rested on a container's too.
    """
    assert tx.handle.namespace is not None
    turns = affected.turns()
    known = _digests(affected, turns, digests, tx.handle.namespace)
    await tx.erasures.remember(known | await _digests_given(tx, affected, digests))
    still = await _hide(tx, affected, turns)
    left: SpokenTurns = {}
    if affected.container:
        left = await spoken_for_by(tx, affected.memories.keys(), affected.whole)
    await tx.erasures.remove_vectors([*affected.memories, *await _around(tx, affected)])
    await tx.erasures.remove_memories(sorted(affected.memories))
    await _strike_texts(tx, affected, turns)
    await indexing.show(tx, still)
    await reopen(tx, left)
    await tx.erasures.remove_runs(affected.runs)
    await tx.erasures.fence(now)
    await tx.erasures.next_epoch()
    return left


async def _strike_texts(tx: Transaction, affected: Affected, turns: Sequence[Row]) -> None:
    whole = affected.whole
    await tx.erasures.remove_episodes(
        [row for row, _ in affected.episodes.values() if row["id"] in whole],
        [turn["id"] for turn in turns if turn["episode_id"] in whole],
    )
    await tx.erasures.strike_turns(
        [_struck_turn(one, affected.subject) for one in turns if one["episode_id"] not in whole]
    )
    await tx.erasures.strike_episodes(
        [
            _struck_episode(row, affected.spans.get(row["id"], ()), affected.subject)
            for row, _ in affected.episodes.values()
            if row["id"] not in whole
        ]
    )


async def _hide(tx: Transaction, affected: Affected, turns: Sequence[Row]) -> set[str]:
    """Take out of the word index what was put in, while the words are there to tell. The memories
    that stay, and were found by words that go too: they are to be shown again.
    """
    still = await tx.findables.resting_on([turn["id"] for turn in turns]) - set(affected.memories)
    gone = {row["id"] for row in affected.memories.values() if row["status"] == Status.ACTIVE}
    gone |= {turn["id"] for turn in turns if turn["state"] == "open"}
    await indexing.hide(tx, gone | still)
    return still


async def _around(tx: Transaction, affected: Affected) -> set[str]:
    """All that is found of the episodes: a vector is made of the words around an item too."""
    turns = {turn["id"] for _, of_one in affected.episodes.values() for turn in of_one}
    return turns | await tx.findables.resting_on(turns)


def _struck_turn(turn: Row, subject: Subject | None) -> dict[str, Any]:
    def kept(label: str | None) -> str | None:
        return None if subject and subject.named(label) else label

    return {
        "id": turn["id"],
        "speaker": kept(turn["speaker"]),
        "session": kept(turn["session"]),
    }


def _struck_episode(row: Row, spans: Iterable[Span], subject: Subject | None) -> dict[str, Any]:
    def kept(label: str | None) -> str | None:
        return struck(label, subject.places(label)) if subject and label else label

    text = struck(row["text"], spans)
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
    return digests.kept(
        namespace,
        whole=[texts[episode_id] for episode_id in affected.spans],
        quotes={*affected.quotes(), *(row["text"] for row in affected.memories.values())},
        turns=_spoken(turns, texts),
    )


def _spoken(turns: Iterable[Row], texts: Mapping[str, str]) -> list[str]:
    return [texts[turn["episode_id"]][turn["span_start"] : turn["span_end"]] for turn in turns]


async def digests_of_all(tx: Transaction, digests: Digests) -> set[str]:
    """The digests of all texts of the namespace: episodes, turns, memories, what tasks were given
    and what they proposed is made of those.
    """
    found = await digests_of_tasks(tx, digests)
    async for episode, turns in tx.erasures.episodes():
        found |= digests_of_episodes(tx, digests, [(episode, turns)])
    async for memory in tx.erasures.memories():
        found |= digests_of_memories(tx, digests, [memory])
    return found


async def digests_of_tasks(tx: Transaction, digests: Digests) -> set[str]:
    """Those of the texts that tasks were given."""
    found: set[str] = set()
    async for task in tx.looking.runs():
        if text := task.documents[0]["text"]:
            found |= digests.kept(_namespace(tx), whole=[text])
    return found


async def _digests_given(tx: Transaction, affected: Affected, digests: Digests) -> set[str]:
    """Those of the texts that tasks of the container were given, whatever became of these."""
    found: set[str] = set()
    async for task in tx.looking.runs_of(affected.runs if affected.container else ()):
        request = task.documents[0]
        if request["text"] and request.get("container") == affected.container:
            found |= digests.kept(_namespace(tx), whole=[request["text"]])
    return found


def digests_of_episodes(
    tx: Transaction, digests: Digests, episodes: Iterable[tuple[Row, Sequence[Row]]]
) -> set[str]:
    """Those of episodes, and of their turns."""
    found: set[str] = set()
    for episode, turns in episodes:
        spoken = _spoken(turns, {episode["id"]: episode["text"]})
        found |= digests.kept(_namespace(tx), whole=[episode["text"]], turns=spoken)
    return found


def digests_of_memories(tx: Transaction, digests: Digests, memories: Iterable[Row]) -> set[str]:
    return digests.kept(_namespace(tx), quotes=[memory["text"] for memory in memories])


def _namespace(tx: Transaction) -> Namespace:
    assert tx.handle.namespace is not None
    return tx.handle.namespace


def digests_to_allow(digests: Digests, namespace: Namespace, text: str, now: datetime) -> list[str]:
    """The digests under which a text would be refused, as a whole, by its turns, by its lines."""
    turns = {text[turn.span.start : turn.span.end] for turn in parse_turns(text, now)}
    return sorted(
        {digests.of(namespace, one) for one in {text, *turns, *text.splitlines()} if one.strip()}
    )
