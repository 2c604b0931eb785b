"""What search finds by words: showing items to it, hiding them from it, and making it anew."""

import asyncio
from collections.abc import Collection, Mapping

from recall_server.domain.search.index_entry import Findable
from recall_server.storage.index.words import Postings, postings
from recall_server.storage.store import Store, Transaction

# Reading the words of more takes long enough for other callers to notice.
INLINE_MAX = 50


async def show(tx: Transaction, ids: Collection[str]) -> None:
    """Let search find items by their words. They are written already, and are not found yet."""
    await tx.words.add(await _postings(await tx.findables.of(ids)))


async def show_again(tx: Transaction, ids: Collection[str]) -> None:
    """`show` what was found before: also by the vectors that are kept of it."""
    await show(tx, ids)
    await tx.vectors.link(list(ids))


async def show_new(tx: Transaction, found: Mapping[str, Findable], others: Postings) -> None:
    """`show` what is just being written, by what is known of it; and `others` with it."""
    made = await _postings(found)
    await tx.words.add(
        Postings(made.ids + others.ids, made.rows + others.rows, made.words + others.words)
    )


async def _postings(found: Mapping[str, Findable]) -> Postings:
    if len(found) > INLINE_MAX:
        return await asyncio.to_thread(postings, found)
    return postings(found)


async def hide(tx: Transaction, ids: Collection[str]) -> None:
    """Undo `show`, as long as the words are there to tell."""
    found = await tx.findables.of(ids)
    if found:
        await tx.words.remove(postings(found))


async def renew(store: Store) -> None:
    """Make those word indexes anew that an older release has made: each in one transaction, so that
    search finds by the old one until the new one is there. Replicas may do so at once.
    """
    for namespace in await store.autocommit(None).words.stale():
        async with store.transaction(namespace) as tx:
            await tx.lock()
            if await tx.words.begin_anew():
                async for ids in tx.findables.pages():
                    await show_again(tx, ids)
