"""Lists, relabels and forgets texts as they were sent."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from recall_server.domain.context import Context, Runtime
from recall_server.domain.episode import Citation, Episode, Span
from recall_server.domain.errors import Invalid, NotFound
from recall_server.domain.moments import not_passed
from recall_server.domain.text.cleaning import storable
from recall_server.services.memory import indexing
from recall_server.services.memory.episodes import Redaction, promise_expiry
from recall_server.storage.store import Store, Transaction


@dataclass(frozen=True)
class TextPage:
    """One page of texts, each with its readable words."""

    texts: Sequence[tuple[Episode, str]]
    next_offset: int | None


@dataclass(frozen=True)
class Texts:
    """Lists, relabels and forgets texts."""

    store: Store
    runtime: Runtime
    redaction: Redaction

    async def page(self, context: Context, *, limit: int, offset: int, **labels: str) -> TextPage:
        """Return one page of the texts with these labels (session_id, topic), the latest said
        first.
        """
        for label in labels.values():
            storable(label)
        async with self.store.view(context) as tx:
            found = await tx.episodes.page(limit=limit + 1, offset=offset, **labels)
        shown = found[:limit]
        context.entry.counts["texts"] = len(shown)
        return TextPage(shown, offset + limit if len(found) > limit else None)

    async def update(
        self,
        context: Context,
        text_id: str,
        *,
        tags: Sequence[str] | None,
        metadata: Mapping[str, Any] | None,
        expires_at: datetime | None,
        forever: bool,
    ) -> tuple[Episode, str]:
        """Change the tags, the metadata or the expiry of a text and of its memories. What is None
        stays; `forever` removes the expiry. Returns the text with its readable words. Raises
        `Invalid`, `NotFound`, `QuotaExceeded`.
        """
        storable(text_id)
        if tags is None and metadata is None and expires_at is None and not forever:
            raise Invalid("Nothing is to be different. Send tags, metadata or expires_at.")
        now = self.runtime.now()
        if expires_at is not None:
            not_passed(expires_at, "expires_at", now)
        async with self.store.change(context) as tx:
            before, words = await _found(tx, text_id)
            source = before.source
            given = replace(
                source,
                tags=source.tags if tags is None else tuple(tags),
                metadata=source.metadata if metadata is None else metadata,
            ).checked()
            _, given = await self.redaction.labels(
                before.topic, before.container, given, context.entry
            )
            ends = None if forever else expires_at or before.expires_at
            after = replace(
                before,
                source=replace(source, tags=given.tags, metadata=given.metadata),
                expires_at=ends,
            )
            memories = await tx.episodes.relabel(before, after, await tx.moment())
            passages = await indexing.of_episodes(tx, [text_id])
            await tx.words.relabelled([*memories, *passages])
            await promise_expiry(tx, self.runtime, text_id, expires_at)
            context.entry.ids.append(text_id)
            context.entry.counts["relabelled"] = 1
        self.runtime.wake()
        return after, words

    async def forget(self, context: Context, text_id: str) -> list[str]:
        """Forget a text and the memories that no other text states. Returns the ids of what was
        forgotten; each of them can be restored. Raises `NotFound`.
        """
        storable(text_id)
        async with self.store.change(context) as tx:
            episode, _ = await _found(tx, text_id)
            now = await tx.moment()
            memories = []
            for memory in await tx.memories.of_episode(text_id):
                words = await tx.memories.citations([memory.id])
                if {one.episode_id for one in words} == {text_id}:
                    memories.append(memory.id)
            await indexing.hide(tx, memories)
            for memory_id in memories:
                await tx.memories.forget(memory_id, now)
            await tx.proposals.withdraw_text(text_id, now)
            whole = Citation(text_id, Span(0, len(episode.text)))
            await indexing.forget_words(tx, text_id, [whole], now)
            forgotten = [text_id, *memories]
            context.entry.ids += forgotten
            context.entry.counts["forgotten"] = len(forgotten)
        self.runtime.wake()
        return forgotten


async def _found(tx: Transaction, text_id: str) -> tuple[Episode, str]:
    """Return a text with its readable words. Raises `NotFound`."""
    found = await tx.episodes.page(limit=1, id_=text_id) if text_id else []
    if not found:
        raise NotFound("No text has this id. Take one from GET /v1/texts.")
    return found[0]
