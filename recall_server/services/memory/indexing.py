"""The index of items: adds items, takes them out, and rebuilds it."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from recall_server.domain.episode import Citation, Episode, episode_of
from recall_server.domain.memory_event import EventKind
from recall_server.domain.search.index_entry import Findable, findable_passages
from recall_server.storage.index.words import Postings, postings
from recall_server.storage.store import Store, Transaction

# Work on more items or turns than this runs in a thread: other callers would notice the delay.
INLINE_MAX = 50
INLINE_CHARS_MAX = 4_000
# How many texts are held in memory at a time.
TEXTS_AT_ONCE = 20


async def show(tx: Transaction, ids: Collection[str]) -> None:
    """Let search find items by their words, and by their vectors if they have any. The items must
    be stored already and not be found yet.
    """
    found = await read(tx, ids)
    await tx.words.add(await _postings(found))
    await tx.vectors.copy(list(found))


async def show_new(
    tx: Transaction, found: Mapping[str, Findable], others: Postings | None = None
) -> None:
    """Like `show`, for new items, given as `found`, together with the postings `others`."""
    made = await _postings(found)
    if others:
        made = made.joined(others)
        if made.documents > INLINE_MAX:
            made = await asyncio.to_thread(made.written)
    await tx.words.add(made)


async def _postings(found: Mapping[str, Findable]) -> Postings:
    if len(found) > INLINE_MAX:
        return await asyncio.to_thread(lambda: postings(found).written())
    return postings(found)


async def hide(tx: Transaction, ids: Collection[str]) -> None:
    """Hide items from search, from now on. Their words must still be readable unchanged: they tell
    which terms lose an item.
    """
    found = await read(tx, await tx.findables.found(ids))
    if found:
        await tx.words.hide(await _postings(found))


async def erase_memories(tx: Transaction, ids: Collection[str]) -> None:
    """Take memories out of the index, with all their earlier entries. Their words must still be
    readable.
    """
    found = await tx.findables.memories(await tx.findables.found(ids))
    await tx.words.erase(ids, await _postings(found))
    await tx.vectors.remove(ids)


async def erase_passages(
    tx: Transaction,
    episode_ids: Collection[str],
    touched: Collection[str],
    change: Callable[[], Awaitable[None]],
) -> None:
    """Make a `change` that erases words of these texts. Passages that it changes, and those in
    `touched`, lose all earlier entries; what is left of them gets a new entry with the earlier
    moments. Other passages stay as they are.
    """
    before = await of_episodes(tx, episode_ids)
    found = await tx.findables.found(before)
    moments = await tx.words.moments(found)

    async def erase(ids: Collection[str]) -> None:
        await tx.words.erase(ids, await _postings({i: before[i] for i in ids if i in found}))

    # This comes before the change, which needs the old words to find the entries.
    await erase(touched)
    await change()
    after = await of_episodes(tx, episode_ids)
    changed = {i for i in before if i not in touched and before[i] != after.get(i)}
    await erase(changed)
    left = {i: after[i] for i in sorted((changed | {*touched}) & after.keys())}
    await tx.words.add(await _postings(left))
    await tx.words.backdate({i: moments[i] for i in left if i in moments})


async def read(tx: Transaction, ids: Collection[str]) -> dict[str, Findable]:
    """Return the index entries of items: memories in any state, and readable passages."""
    found = await tx.findables.memories(ids)
    passages = set(ids) - found.keys()
    if passages:
        texts = await of_episodes(tx, map(episode_of, passages))
        found |= {item_id: one for item_id, one in texts.items() if item_id in passages}
    return found


async def of_episodes(tx: Transaction, episode_ids: Iterable[str]) -> dict[str, Findable]:
    """Return the index entries of the passages of these episodes."""
    found: dict[str, Findable] = {}
    wanted = sorted(set(episode_ids))
    for first in range(0, len(wanted), TEXTS_AT_ONCE):
        found |= await _passages_of(
            await tx.episodes.several(wanted[first : first + TEXTS_AT_ONCE])
        )
    return found


async def _passages_of(episodes: Sequence[Episode]) -> dict[str, Findable]:
    if sum(len(one.text) for one in episodes) > INLINE_CHARS_MAX:
        return await asyncio.to_thread(_passages, episodes)
    return _passages(episodes)


def _passages(episodes: Iterable[Episode]) -> dict[str, Findable]:
    found: dict[str, Findable] = {}
    for one in episodes:
        found |= findable_passages(one)
    return found


async def reread(
    tx: Transaction, episode_ids: Collection[str], change: Callable[[], Awaitable[None]]
) -> None:
    """Make a `change` of what can be read of these texts, and index their passages accordingly.
    Passages that it changes get new entries, without vectors until a job has made them.
    """
    before = await of_episodes(tx, episode_ids)
    await change()
    after = await of_episodes(tx, episode_ids)
    others = {i for i in before.keys() | after.keys() if before.get(i) != after.get(i)}
    gone = await tx.findables.found(others)
    await tx.words.hide(await _postings({i: before[i] for i in sorted(gone)}))
    await tx.words.add(await _postings({i: after[i] for i in sorted(others & after.keys())}))


@dataclass(frozen=True)
class Prepared:
    """A change of the index, computed before the transaction that writes it. `memories`: those of
    the shown items that have their earlier vectors again.
    """

    hidden: Postings
    shown: Postings
    memories: Sequence[str]

    async def write(self, tx: Transaction) -> None:
        await tx.words.hide(self.hidden)
        await tx.words.add(self.shown)
        await tx.vectors.copy(self.memories)


async def prepared(
    tx: Transaction,
    hidden: Collection[str],
    shown: Collection[str],
    episode_ids: Collection[str],
    change: Callable[[Episode], Episode],
) -> Prepared:
    """Compute what hides and shows these memories, and what of the index differs after a `change`
    of what can be read of these texts.
    """
    gone, come = await tx.findables.memories(hidden), await tx.findables.memories(shown)
    wanted = sorted(episode_ids)
    for first in range(0, len(wanted), TEXTS_AT_ONCE):
        episodes = await tx.episodes.several(wanted[first : first + TEXTS_AT_ONCE])
        before = await _passages_of(episodes)
        after = await _passages_of([change(one) for one in episodes])
        others = {i for i in before.keys() | after.keys() if before.get(i) != after.get(i)}
        gone |= {i: before[i] for i in sorted(await tx.findables.found(others))}
        come |= {i: after[i] for i in sorted(others & after.keys())}
    return Prepared(await _postings(gone), await _postings(come), sorted(shown))


async def replace(tx: Transaction, ids: Collection[str]) -> None:
    """Make the entries of these items anew, with the moments since which they were found. The
    counts of entries stay as they are.
    """
    found = await read(tx, ids)
    kept = await tx.findables.found(ids)
    await tx.words.replace(ids, len(kept), await _postings(found))
    await tx.words.take_places(found)
    # Those of memories whose entries are lost.
    await tx.words.backdate(await tx.rebuilt.found_since(found.keys() - kept))
    await tx.vectors.move(list(found))


async def forget_words(
    tx: Transaction,
    item_id: str,
    words: Collection[Citation],
    now: datetime,
    kind: EventKind = EventKind.FORGOTTEN,
) -> None:
    """Hide these words from search and reading until the item is restored."""

    async def forget() -> None:
        await tx.episodes.forget(item_id, words, now, kind)

    await reread(tx, {one.episode_id for one in words}, forget)


async def renew(store: Store) -> None:
    """Rebuild the word indexes that an older release made, each in one transaction: search uses the
    old one until the commit. Several replicas may call this at the same time.
    """
    for namespace in await store.autocommit(None).words.stale():
        async with store.transaction(namespace) as tx:
            await tx.lock()
            await renew_within(tx)


async def renew_within(tx: Transaction) -> None:
    """Rebuild the word index of a namespace, if it was marked as stale."""
    if await tx.words.begin_anew():
        async for memories, episodes in tx.findables.to_index():
            found = await tx.findables.memories(memories)
            found |= await of_episodes(tx, episodes)
            await tx.words.add(await _postings(found))
            await tx.words.take_places(found)
            await tx.vectors.move(list(found))
