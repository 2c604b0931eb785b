"""Texts as they were sent: lists, relabels and forgets them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple

from recall_server.domain.audit import AuditEntry
from recall_server.domain.context import Context, Runtime
from recall_server.domain.episode import Citation, Episode, Span
from recall_server.domain.errors import Invalid, NotFound
from recall_server.domain.memory_event import EventKind
from recall_server.domain.moments import check_times, passed
from recall_server.domain.task import Job
from recall_server.domain.text.cleaning import storable
from recall_server.services.memory import commit, indexing
from recall_server.services.memory.episodes import EXPIRE_TEXT, Redaction, promise_expiry
from recall_server.storage.driver import batches
from recall_server.storage.store import Store, Transaction

# How many memories one transaction forgets, or gives other labels.
AT_ONCE = 250


@dataclass(frozen=True)
class TextPage:
    """One page of texts, each with its readable words."""

    texts: Sequence[tuple[Episode, str]]
    next_offset: int | None


@dataclass(frozen=True)
class Texts:
    """Changes `at_once` memories of a text in a transaction."""

    store: Store
    runtime: Runtime
    redaction: Redaction
    at_once: int = AT_ONCE

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
        check_times(self.runtime.now(), None, expires_at)
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
            await tx.episodes.relabel(before, after, await tx.moment())
            await promise_expiry(tx, self.runtime, text_id, expires_at)
            await tx.words.relabelled((), text=text_id)
            context.entry.ids.append(text_id)
            ids = await tx.findables.memories_from(text_id)
            first, *others = [*batches(ids, self.at_once)] or [[]]
            await self._relabel(tx, context, text_id, first)
        for some in others:
            part = commit.next_part(context, self.runtime)
            async with self.store.change(part) as tx:
                await self._relabel(tx, part, text_id, some)
        self.runtime.wake()
        return after, words

    async def _relabel(
        self, tx: Transaction, context: Context, text_id: str, ids: Sequence[str]
    ) -> None:
        """Give memories of a text its labels."""
        relabelled = await tx.episodes.relabel_memories(text_id, ids, await tx.moment())
        if relabelled:
            await tx.words.relabelled(relabelled)
        context.entry.counts["relabelled"] = 1

    async def forget(self, context: Context, text_id: str) -> list[str]:
        """Forget a text and the memories that no other text states. Returns the ids of what was
        forgotten; each of them can be restored. Raises `NotFound`.
        """
        storable(text_id)
        forgotten, more = [text_id], True
        while more:
            part = commit.next_part(context, self.runtime)
            hidden = await self._forget_some(part, text_id)
            forgotten += hidden.memories
            more = not hidden.text
        self.runtime.wake()
        return forgotten

    async def _forget_some(self, context: Context, text_id: str) -> "_Hidden":
        async def plan(tx: Transaction) -> _Hidden:
            await _found(tx, text_id)
            ids = await tx.memories.of_episode_alone(text_id, self.at_once)
            return await _hidden(tx, text_id, ids, last=len(ids) < self.at_once)

        async def write(tx: Transaction, hidden: _Hidden) -> _Hidden:
            now = await tx.moment()
            await hidden.change.write(tx)
            if hidden.memories:
                await tx.memories.forget(hidden.memories, now)
            if hidden.text:
                await tx.proposals.withdraw_text(text_id, now)
                await tx.episodes.forget(text_id, hidden.text, now)
            context.entry.ids[:] = [*(one.episode_id for one in hidden.text), *hidden.memories]
            context.entry.counts["forgotten"] = len(context.entry.ids)
            return hidden

        return await commit.apply_planned(self.store, context, plan, write)

    async def expire(self, job: Job, entry: Callable[[str], AuditEntry]) -> None:
        """Hide an expired text from search and reading, with those of its memories that no longer
        lasting text supports, piece by piece. Raises `Fenced` if another worker holds the job.
        """
        more = True
        while more:
            more = await self._expire_some(job, entry(EXPIRE_TEXT))

    async def _expire_some(self, job: Job, record: AuditEntry) -> bool:
        text_id = job.payload["episode_id"]

        async def plan(tx: Transaction) -> _Hidden | None:
            now, episode = self.runtime.now(), await tx.episodes.get(text_id)
            # Its end may have been changed since.
            if episode is None or not passed(episode.expires_at, now):
                return None
            ids = await tx.memories.to_expire(text_id, now, self.at_once)
            return await _hidden(tx, text_id, ids, last=len(ids) < self.at_once)

        async def write(tx: Transaction, hidden: _Hidden | None) -> bool:
            now = await tx.moment()
            if hidden is None or hidden.text:
                await tx.jobs.finish(job, now)
            else:
                await tx.jobs.advance(job, job.payload, now + self.runtime.lease)
            if hidden is None:
                return False
            await hidden.change.write(tx)
            await tx.memories.expire(hidden.memories, now)
            await commit.settle_ended(tx, now)
            if hidden.text:
                await tx.episodes.forget(text_id, hidden.text, now, EventKind.EXPIRED)
            record.ids[:] = [*(one.episode_id for one in hidden.text), *hidden.memories]
            record.counts["expired"] = len(hidden.memories)
            return not hidden.text

        return await commit.apply_planned(self.store, Context(record), plan, write)


class _Hidden(NamedTuple):
    """The memories of a text that one transaction hides, and the words of the text: with the last
    of its memories, or none.
    """

    memories: list[str]
    text: Sequence[Citation]
    change: indexing.Prepared


async def _hidden(tx: Transaction, text_id: str, memories: list[str], *, last: bool) -> _Hidden:
    words, found = list[Citation](), await tx.findables.found(memories)
    if last and (episode := await tx.episodes.get(text_id)):
        words = [Citation(text_id, Span(0, len(episode.text)))]
    texts = [one.episode_id for one in words]
    return _Hidden(memories, words, await indexing.prepared(tx, found, (), texts, _without_words))


def _without_words(episode: Episode) -> Episode:
    return replace(episode, forgotten=(*episode.forgotten, Span(0, len(episode.text))))


async def _found(tx: Transaction, text_id: str) -> tuple[Episode, str]:
    """Return a text with its readable words. Raises `NotFound`."""
    found = await tx.episodes.page(limit=1, id_=text_id) if text_id else []
    if not found:
        raise NotFound("No text has this id. Take one from GET /v1/texts.")
    return found[0]
