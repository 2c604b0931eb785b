"""Makes memories again that have lost their row or parts of it: from what their events keep, and
from what the rules of this release make of their texts. No model is called.
"""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from recall_server.domain import record
from recall_server.domain.episode import Episode
from recall_server.domain.erasure import BLOCK
from recall_server.domain.extraction import Candidate
from recall_server.domain.memory import importance
from recall_server.domain.memory_event import MemoryState
from recall_server.domain.namespace import Namespace
from recall_server.domain.record import Made, Remade
from recall_server.integrations.extraction.extractor import Extractor
from recall_server.services.memory import reconcile
from recall_server.services.memory.passages import passages, validate_candidates
from recall_server.storage.store import Store, Transaction
from recall_server.storage.tables.memory_events import Kept

TEXTS_AT_ONCE = 20
# Why a memory is not made again.
NOT_ADDED = "No event tells how it was added."
NOT_KEPT = (
    "The rules of this release make it of no text, and no copy of its words is kept: a model or a "
    "person worded it for an earlier release, or other rules made it."
)
TEXT_GONE = "A text that it cites is not there any more."
ERASED = "The words that it cites were erased. Erase it by its id too."
UNCITED = "It is there, without a later citation: no event keeps it and no text tells which it was."


@dataclass(frozen=True)
class Again:
    """The memories that are made again, and `why` others are not, or not wholly, by id."""

    found: Mapping[str, Remade]
    why: Mapping[str, str]


@dataclass(frozen=True)
class Records:
    """Finds what lost or altered memories were, and writes them."""

    store: Store
    rules: Extractor

    async def find(self, namespace: Namespace, ids: Collection[str]) -> dict[str, Made]:
        """Return what texts give for each of these memories: first the texts that it cites or that
        its changes brought, then all others, until nothing lacks.
        """
        made = {one: Made() for one in ids}
        if not made:
            return made
        async with self.store.transaction(namespace, write=False) as tx:
            kept = await tx.rebuilt.kept(ids)
            events = [(i, event) for i, one in kept.items() for event in one.events]
            brought = await tx.rebuilt.texts_of({event.change_id for _, event in events})
            lacking = dict((await remade(tx, made)).why)
        # By change, the memories whose citations in it only a text can tell.
        seeking: dict[str, set[str]] = {}
        for memory_id, event in events:
            if event.lacks_places:
                seeking.setdefault(event.change_id, set()).add(memory_id)
        near = {*brought, *(text for one in kept.values() for text, *_ in one.citations.values())}
        async for episodes in self._texts(namespace, near):
            far = near.isdisjoint(one.id for one in episodes)
            if not lacking or (far and NOT_KEPT not in lacking.values()):
                break
            touched: set[str] = set()
            for episode in episodes:
                candidates = await self._readings(episode)
                memories = reconcile.memories_of(episode, candidates)
                for one in lacking.keys() & memories.keys():
                    made[one].memory = memories[one]
                    touched.add(one)
                spans = {(one.span.start, one.span.end) for one in candidates}
                for change_id in brought.get(episode.id, ()):
                    for one in seeking.get(change_id, set()) & lacking.keys():
                        made[one].places.append([(episode.id, *span) for span in sorted(spans)])
                        touched.add(one)
            async with self.store.transaction(namespace, write=False) as tx:
                still = (await remade(tx, {one: made[one] for one in touched})).why
            left = {one: why for one, why in lacking.items() if one not in touched}
            lacking = {**left, **still}
        return made

    async def _texts(
        self, namespace: Namespace, first: Collection[str]
    ) -> AsyncIterator[list[Episode]]:
        """Yield all texts some at a time, these first."""
        after, left = "", sorted(first)
        while True:
            async with self.store.transaction(namespace, write=False) as tx:
                ids, left = left[:TEXTS_AT_ONCE], left[TEXTS_AT_ONCE:]
                if not ids:
                    ids = await tx.rebuilt.texts(after, TEXTS_AT_ONCE)
                    if not ids:
                        return
                    after = ids[-1]
                    ids = [one for one in ids if one not in first]
                episodes = await tx.episodes.several(ids)
            yield episodes

    async def _readings(self, episode: Episode) -> list[Candidate]:
        """Return what the rules make of a text, as it can be read now, and as it could be before
        words of it were forgotten or held back, as a whole and turn by turn.
        """
        shown = tuple(replace(turn, hidden=False) for turn in episode.turns)
        whole = replace(episode, turns=shown, forgotten=())
        found = [*(await extracted(self.rules, episode))[0]]
        if whole != episode:
            found += (await extracted(self.rules, whole))[0]
        if len(shown) > 1:
            for turn in shown:
                found += (await extracted(self.rules, whole, only=turn.index))[0]
        return found

    async def write(self, tx: Transaction, made: Mapping[str, Made]) -> Again:
        """Write these memories as they were recorded. Needs an erasing transaction, with the lock
        of the namespace.
        """
        again = await remade(tx, made)
        kept = await tx.rebuilt.kept(again.found)
        states = await tx.rebuilt.last_states(again.found)
        for memory_id, one in again.found.items():
            if kept[memory_id].row:
                await tx.rebuilt.write(memory_id, one.fields, one.citations)
            else:
                texts = await tx.episodes.several(_texts(one))
                row = self._row(kept[memory_id], one, made[memory_id], states[memory_id], texts)
                await tx.rebuilt.add(memory_id, row, one.citations)
        return again

    def _row(
        self, kept: Kept, one: Remade, made: Made, state: MemoryState, texts: Sequence[Episode]
    ) -> dict[str, Any]:
        """Return the row of a lost memory. Nobody has counted who has read it since."""
        event = next(event for event in kept.events if event.adds)
        recorded_at, text = event.rest.get("recorded_at"), one.fields["text"]
        by_rules = made.memory.importance if made.memory else importance(text)
        extractor = event.rest.get("extractor", self.rules.name)
        first = next(each for each in texts if each.id == one.citations[min(one.citations)][0])
        merged = texts if "merge" in extractor.split("/") else [first]
        tags = {tag for each in merged for tag in each.source.tags}
        return {
            **{name: value for name, value in vars(state).items() if name != "citations"},
            **one.fields,
            "recorded_at": datetime.fromisoformat(recorded_at) if recorded_at else event.at,
            "importance": event.rest.get(
                "importance", importance(text) if event.said else by_rules
            ),
            "extractor": extractor,
            "access_count": 0,
            "last_accessed_at": None,
            "session_id": first.source.session_id,
            "agent_id": first.source.agent_id,
            "tags": sorted(tags) if len(merged) > 1 else list(first.source.tags),
            "metadata": {
                name: value
                for name, value in first.source.metadata.items()
                if all(each.source.metadata.get(name) == value for each in merged)
            },
        }


async def remade(tx: Transaction, made: Mapping[str, Made]) -> Again:
    """Return what is made again of these memories, as `tx` sees them. What was erased is not."""
    kept = await tx.rebuilt.kept(made)
    states = await tx.rebuilt.last_states(made)
    found: dict[str, Remade] = {}
    why: dict[str, str] = {}
    for memory_id, by_texts in made.items():
        one = kept.setdefault(memory_id, Kept({}, {}, []))
        again = record.remade(one.row or None, one.citations, one.events, by_texts)
        if again is not None:
            found[memory_id] = again
        else:
            why[memory_id] = NOT_KEPT if any(event.adds for event in one.events) else NOT_ADDED
    ids = {text for one in found.values() for text in _texts(one)}
    texts = {one.id: one.text for one in await tx.episodes.several(sorted(ids))}
    for memory_id, again in [*found.items()]:
        if gone := _gone(again, texts, lost=not kept[memory_id].row):
            why[memory_id] = gone
            del found[memory_id]
        elif not again.whole or max(again.citations) + 1 != states[memory_id].citations:
            why[memory_id] = UNCITED
    return Again(found, why)


def _texts(one: Remade) -> list[str]:
    return sorted({episode_id for episode_id, *_ in one.citations.values()})


def _gone(one: Remade, texts: Mapping[str, str], *, lost: bool) -> str:
    """Return why the words that a memory cites are not there; "" if they are. An erasure did not
    find a memory without a row, which must not come back after it.
    """
    for episode_id, start, end in one.citations.values():
        if episode_id not in texts:
            return TEXT_GONE
        if lost and BLOCK in texts[episode_id][start:end]:
            return ERASED
    return ""


async def extracted(
    rules: Extractor, episode: Episode, *, only: int | None = None
) -> tuple[list[Candidate], str]:
    """Return what the rules make of a text, or of its turn at a position, and their name."""
    found: list[Candidate] = []
    extractor = ""
    for _, passage in passages(episode, rules.passage_chars, only=only):
        if passage is not None:
            one = validate_candidates(await rules.extract(passage), passage)
            found += one.candidates
            extractor = one.extractor
    return found, extractor
