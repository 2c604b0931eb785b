"""Stores episodes: refuses erased text, and indexes the turns that are not quarantined."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from recall_server.domain.audit import AuditEntry
from recall_server.domain.episode import Episode, Turn, turn_id
from recall_server.domain.erasure import BLOCK, Digests
from recall_server.domain.errors import ErasedContent, TextTooLong
from recall_server.domain.permissions import AccessScope
from recall_server.domain.search.index_entry import findable_passages
from recall_server.domain.task import Message
from recall_server.domain.text.transcript import parse_turns
from recall_server.integrations.redaction import Redactor
from recall_server.services.memory.passages import with_turns
from recall_server.storage.index.words import Postings, postings
from recall_server.storage.store import Transaction

_PLACEHOLDER = re.compile(r"\[secret: [^\]\n]*\]")


@dataclass(frozen=True)
class Redaction:
    """Redacts text and JSON; without a redactor, text stays as it is."""

    redactor: Redactor | None

    async def text(self, text: str, entry: AuditEntry) -> str:
        """Return the redacted text; the audit record counts the secrets."""
        if self.redactor is None or not text:
            return text
        masked, count = await self.redactor.redact(text)
        if count:
            entry.counts["masked"] = entry.counts.get("masked", 0) + count
        return masked

    async def in_place(self, text: str, entry: AuditEntry) -> str:
        """Return the text with its secrets overwritten, so that no other character moves."""
        masked = await self.text(text, entry)
        if masked == text:
            return text
        # What stands between the secrets is in both.
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

    async def message(self, message: Message, entry: AuditEntry) -> Message:
        """Return a client's message with every text in it redacted."""
        return Message(message.id, await self._object(message.document, entry))

    async def value(self, value: Any, entry: AuditEntry) -> Any:
        """Return the same JSON value with every text in it redacted."""
        if isinstance(value, str):
            return await self.text(value, entry)
        if isinstance(value, Mapping):
            return await self._object(value, entry)
        if isinstance(value, list):
            return [await self.value(one, entry) for one in value]
        return value

    async def _object(self, value: Mapping[str, Any], entry: AuditEntry) -> dict[str, Any]:
        return {name: await self.value(one, entry) for name, one in value.items()}


# A time for texts of which only the words matter.
EPOCH = datetime.fromtimestamp(0, UTC)


def prepare_episode(episode: Episode) -> tuple[Episode, Postings]:
    """Return the episode with its turns, and the postings of the passages that are not hidden."""
    prepared = with_turns(episode)
    return prepared, postings(findable_passages(prepared))


def refuse_fragments(words: Postings, passages_max: int) -> None:
    """Raise `TextTooLong` where a text falls into more passages: each has rows and a vector."""
    if words.documents > passages_max:
        raise TextTooLong(
            f"The text falls into {words.documents} passages; at most {passages_max} are taken at "
            "once. Send it in parts."
        )


async def store_episode(
    tx: Transaction,
    episode: Episode,
    words: Postings,
    digests: Digests,
    *,
    key: str | None,
    digest: str,
    scope: AccessScope,
) -> bool:
    """Store the episode and index its visible passages; False if `key` was used before. Raises
    `ErasedContent` as `refuse_erased` does.
    """
    await tx.lock()
    await refuse_erased(tx, digests, episode, scope)
    if key is None:
        # Nothing is asked of the database before all of it is written.
        await tx.episodes.add_new(episode, episode.id, digest)
    elif not await tx.episodes.add(episode, key, digest):
        return False
    await tx.words.add(words)
    await _hold(tx, episode)
    return True


async def store_planned_episode(
    tx: Transaction, episode: Episode, digests: Digests, *, key: str, scope: AccessScope
) -> None:
    """Store an episode together with its plan; `commit.apply` indexes both."""
    await refuse_erased(tx, digests, episode, scope)
    await tx.episodes.add_new(episode, key, episode.content_hash)
    await _hold(tx, episode)


async def _hold(tx: Transaction, episode: Episode) -> None:
    held = {turn_id(episode.id, t.index): t.suspicions for t in episode.turns if t.suspicions}
    await tx.quarantine.hold(episode.id, held, episode.recorded_at)


async def refuse_erased(
    tx: Transaction, digests: Digests, episode: Episode, scope: AccessScope
) -> None:
    """Raise `ErasedContent` if the text or one of its turns was erased in this access scope: what
    was said and erased beyond it is not for the writer to learn.

    Call it in the transaction that writes the text, which must hold the namespace's lock: it sees
    any erasure that committed before, and an erasure that commits later erases the text.
    """
    assert tx.bound.namespace is not None
    if scope.types is not None:
        return  # no text has a type
    text_digests = digests.of_text(tx.bound.namespace, episode.text, episode.turns)
    places = digests.places(tx.bound.namespace, scope)
    await tx.erasures.refuse(text_digests, places, ErasedContent())


async def find_erased(
    tx: Transaction, texts: Sequence[tuple[str, Sequence[Turn]]], *, digests: Digests
) -> set[int]:
    """Return the indexes of the texts, each with the turns that it is known to have, that
    `refuse_erased` would refuse.
    """
    assert tx.bound.namespace is not None
    text_digests = [
        set(digests.of_text(tx.bound.namespace, text, (*turns, *parse_turns(text, EPOCH))))
        for text, turns in texts
    ]
    gone = await tx.erasures.erased(sorted(set().union(*text_digests)))
    return {index for index, one in enumerate(text_digests) if one & gone}
