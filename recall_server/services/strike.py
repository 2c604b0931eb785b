"""What an erasure of less than everything reaches, and how it is taken out: words are overwritten
in place, and all that rests on them goes.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from recall_server.domain.erasure import (
    QUOTE_TERMS_MIN,
    Digests,
    Subject,
    overlap,
    struck,
    telling,
)
from recall_server.domain.model import Namespace, Span, Status
from recall_server.domain.transcript import parse_turns
from recall_server.services import finding
from recall_server.storage.driver import Row
from recall_server.storage.rows import span
from recall_server.storage.store import Transaction

_LABELS = ("topic", "container", "session_id", "agent_id", "source")

_WORDS_OF_MEMORY = ("text", "topic", "container", "entity", "attribute", "value")


@dataclass
class Affected:
    """What is to go: rows of memories by id, spans of episodes, whole tasks. `subject` is whose
    name goes from labels too.
    """

    subject: Subject | None = None
    memories: dict[str, Row] = field(default_factory=dict)
    spans: dict[str, set[Span]] = field(default_factory=dict)
    episodes: dict[str, tuple[Row, list[Row]]] = field(default_factory=dict)
    runs: list[str] = field(default_factory=list)

    def add(self, episode_id: str, where: Span) -> None:
        self.spans.setdefault(episode_id, set()).add(where)

    def touches(self, episode_id: str, where: Span) -> bool:
        return any(overlap(where, one) for one in self.spans.get(episode_id, ()))

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

    def counts(self) -> dict[str, int]:
        return {
            "memories": len(self.memories),
            "episodes": len(self.episodes),
            "spans": sum(len(spans) for spans in self.spans.values()),
            "turns": len(self.turns()),
            "runs": len(self.runs),
        }


async def of_item(tx: Transaction, item_id: str) -> Affected | None:
    """What erasing one memory, or one turn, reaches; None where there is neither."""
    affected = Affected()
    affected.memories = {row["id"]: row for row in await tx.erasures.memories_of([item_id])}
    if affected.memories:
        await _add_citations(tx, affected)
    elif turn := await tx.erasures.turn(item_id):
        affected.add(turn["episode_id"], span(turn))
    else:
        return None
    await _follow(tx, affected)
    return affected


async def of_subject(tx: Transaction, subject: Subject) -> Affected:
    """What erasing somebody reaches. Reads all of the namespace: no index knows every name."""
    affected = Affected(subject)
    async for row in tx.erasures.memories():
        if subject.named(*(row[name] for name in _WORDS_OF_MEMORY)):
            affected.memories[row["id"]] = row
    await _add_citations(tx, affected)
    async for episode, turns in tx.erasures.episodes():
        text = episode["text"]
        for turn in turns:
            said = text[turn["span_start"] : turn["span_end"]]
            if subject.named(turn["speaker"], said):
                affected.add(episode["id"], span(turn))
        for where in subject.places(text):
            affected.add(episode["id"], where)
        sessions = [turn["session"] for turn in turns]
        if subject.named(*(episode[label] for label in _LABELS), *sessions):
            affected.episodes[episode["id"]] = (episode, turns)
    await _follow(tx, affected)
    return affected


async def _add_citations(tx: Transaction, affected: Affected) -> None:
    for row in await tx.erasures.citations(affected.memories):
        affected.add(row["episode_id"], span(row))


async def _follow(tx: Transaction, affected: Affected) -> None:
    """Find what rests on the words that go: other memories, and tasks that hold any of it."""
    for episode, turns in await tx.erasures.episodes_of(affected.spans):
        affected.episodes[episode["id"]] = (episode, turns)
    others = {
        row["memory_id"]
        for row in await tx.erasures.citations_in(affected.spans)
        if affected.touches(row["episode_id"], span(row))
    } - set(affected.memories)
    affected.memories |= {row["id"]: row for row in await tx.erasures.memories_of(others)}
    holds = _holder(affected)
    affected.runs = [run async for run, kept in tx.erasures.runs() if holds(kept)]


def _holder(affected: Affected) -> Callable[[Any], bool]:
    """Whether a document holds, anywhere in it, an id, a text or words that go."""
    words = {text for text in affected.quotes() if telling(text, QUOTE_TERMS_MIN)}
    words |= {row["text"] for row in affected.memories.values()}
    ids = set(affected.memories)

    def holds(value: Any) -> bool:
        if isinstance(value, str):
            return (
                value in ids
                or any(text in value for text in words)
                or (affected.subject is not None and affected.subject.named(value))
            )
        if isinstance(value, Mapping):
            return any(holds(key) or holds(one) for key, one in value.items())
        return isinstance(value, Sequence) and any(holds(one) for one in value)

    return holds


async def apply(tx: Transaction, affected: Affected, digests: Digests, now: datetime) -> None:
    """Take it out: of texts, indexes, tasks and caches; what was read of it by a job under way is
    worth nothing, and the same words are not taken again.
    """
    assert tx.handle.namespace is not None
    turns = affected.turns()
    await tx.erasures.remember(_digests(affected, turns, digests, tx.handle.namespace))
    still = await _hide(tx, affected, turns)
    await tx.erasures.remove_vectors([*affected.memories, *await _around(tx, affected)])
    await tx.erasures.remove_memories(sorted(affected.memories))
    await tx.erasures.strike_turns([_struck_turn(turn, affected.subject) for turn in turns])
    await tx.erasures.strike_episodes(
        [
            _struck_episode(row, affected.spans.get(row["id"], ()), affected.subject)
            for row, _ in affected.episodes.values()
        ]
    )
    await finding.show(tx, still)
    await tx.erasures.remove_runs(affected.runs)
    await tx.erasures.fence(now)
    await tx.erasures.next_epoch()


async def _hide(tx: Transaction, affected: Affected, turns: Sequence[Row]) -> set[str]:
    """Take out of the word index what was put in, while the words are there to tell. The memories
    that stay, and were found by words that go too: they are to be shown again.
    """
    still = await tx.findables.resting_on([turn["id"] for turn in turns]) - set(affected.memories)
    gone = {row["id"] for row in affected.memories.values() if row["status"] == Status.ACTIVE}
    gone |= {turn["id"] for turn in turns if turn["state"] == "open"}
    await finding.hide(tx, gone | still)
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
        **{label: kept(row[label]) for label in _LABELS},
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


async def digests_of_all(tx: Transaction, digests: Digests, namespace: Namespace) -> set[str]:
    """The digests of all texts of the namespace: episodes, turns, memories, what tasks were given
    and what they proposed is made of those.
    """
    found: set[str] = set()
    async for episode, turns in tx.erasures.episodes():
        spoken = _spoken(turns, {episode["id"]: episode["text"]})
        found |= digests.kept(namespace, whole=[episode["text"]], turns=spoken)
    async for memory in tx.erasures.memories():
        found |= digests.kept(namespace, quotes=[memory["text"]])
    async for _, (request, *_) in tx.erasures.runs():
        if request["text"]:
            found |= digests.kept(namespace, whole=[request["text"]])
    return found


def digests_to_allow(digests: Digests, namespace: Namespace, text: str, now: datetime) -> list[str]:
    """The digests under which a text would be refused, as a whole, by its turns, by its lines."""
    turns = {text[turn.span.start : turn.span.end] for turn in parse_turns(text, now)}
    return sorted(
        {digests.of(namespace, one) for one in {text, *turns, *text.splitlines()} if one.strip()}
    )
