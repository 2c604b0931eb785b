"""Reading and forgetting texts as they were handed in."""

from collections.abc import Sequence
from dataclasses import dataclass

from recall_server.domain.context import Context, Runtime
from recall_server.domain.episode import Citation, Episode, Span
from recall_server.domain.errors import NotFound
from recall_server.domain.text.cleaning import storable
from recall_server.services.memory import indexing
from recall_server.storage.store import Store


@dataclass(frozen=True)
class TextPage:
    """One page of texts, each with the words of it that can be read."""

    texts: Sequence[tuple[Episode, str]]
    next_offset: int | None


@dataclass(frozen=True)
class Texts:
    """Texts, whatever memories are made of them."""

    store: Store
    runtime: Runtime

    async def page(
        self, context: Context, *, session_id: str, topic: str, limit: int, offset: int
    ) -> TextPage:
        """One page of the texts, what was said last first."""
        for label in (session_id, topic):
            storable(label)
        async with self.store.view(context) as tx:
            found = await tx.episodes.page(
                limit=limit + 1, offset=offset, session_id=session_id, topic=topic
            )
        shown = found[:limit]
        context.entry.counts["texts"] = len(shown)
        return TextPage(shown, offset + limit if len(found) > limit else None)

    async def forget(self, context: Context, text_id: str) -> list[str]:
        """Neither find nor show a text, and the memories that no other text states. Returns the ids
        of what was forgotten, each of which can be restored. Raises `NotFound`.
        """
        storable(text_id)
        async with self.store.change(context) as tx:
            await tx.lock()
            now, found = self.runtime.now(), await tx.episodes.page(limit=1, id_=text_id)
            if not text_id or not found:
                raise NotFound("No text has this id. Take one from GET /v1/texts.")
            [(episode, _)] = found
            memories = []
            for memory in await tx.memories.of_episode(text_id):
                words = await tx.memories.citations([memory.id])
                if {one.episode_id for one in words} == {text_id}:
                    memories.append(memory.id)
            await indexing.hide(tx, memories)
            for memory_id in memories:
                await tx.memories.forget(memory_id, now)
            whole = Citation(text_id, Span(0, len(episode.text)))
            await indexing.forget_words(tx, text_id, [whole], now)
            forgotten = [text_id, *memories]
            context.entry.ids += forgotten
            context.entry.counts["forgotten"] = len(forgotten)
        self.runtime.wake()
        return forgotten
