"""How an episode is kept: never what was erased, found by the words of what is not held back."""

from collections.abc import Sequence
from datetime import UTC, datetime

from recall_server.domain.episode import Episode
from recall_server.domain.erasure import Digests
from recall_server.domain.errors import ErasedContent
from recall_server.domain.plan import Plan
from recall_server.domain.search.index_entry import Findable
from recall_server.domain.text.transcript import parse_turns
from recall_server.services.memory.passages import with_turns
from recall_server.storage.index.words import Postings, postings
from recall_server.storage.store import Transaction
from recall_server.storage.tables.episodes import turn_id

# Where only the words of a text matter, and not when they were said.
EPOCH = datetime.fromtimestamp(0, UTC)


def read(episode: Episode) -> tuple[Episode, Postings]:
    """The episode with its turns, and the words by which those are found that are not hidden."""
    read = with_turns(episode)
    shown = [turn for turn in read.turns if not turn.hidden]
    return read, postings(
        {
            turn_id(read.id, turn.index): Findable(
                "", turn.speaker, read.text[turn.span.start : turn.span.end]
            )
            for turn in shown
        }
    )


async def keep(
    tx: Transaction, episode: Episode, words: Postings, digests: Digests, *, key: str, digest: str
) -> bool:
    """Append the episode and make it findable by its words, but for what is held back; False where
    `key` was used before. Raises `ErasedContent`.
    """
    await tx.lock()
    await refuse_erased(tx, digests, episode)
    await tx.closing()
    added = await tx.episodes.add(episode, key, digest)
    if added:
        await tx.words.add(words)
        await _hold(tx, episode)
    return added


async def store_planned_episode(
    tx: Transaction, episode: Episode, digests: Digests, *, key: str, plan: Plan
) -> tuple[set[str], set[str]]:
    """`keep` an episode whose plan is made already: those of its turns that the plan's memories
    speak for are never found by themselves. The ids of these, and of the turns that are to be found
    (by `commit.apply`).
    """
    cited = [one.span for one in plan.citations() if one.episode_id == episode.id]
    shown = {turn_id(episode.id, t.index): t.span for t in episode.turns if not t.hidden}
    covered = {i for i, turn in shown.items() if any(turn.overlaps(span) for span in cited)}
    await refuse_erased(tx, digests, episode)
    await tx.tasks.hand_over(episode.job_id)
    await tx.episodes.add_new(episode, key, episode.content_hash, covered=covered)
    await _hold(tx, episode)
    return covered, shown.keys() - covered


async def _hold(tx: Transaction, episode: Episode) -> None:
    held = {turn_id(episode.id, t.index): t.suspicions for t in episode.turns if t.suspicions}
    await tx.quarantine.hold(episode.id, held, episode.recorded_at)


async def refuse_erased(tx: Transaction, digests: Digests, episode: Episode) -> None:
    """Raise `ErasedContent`, here or before anything holds, where the text, or one of its turns,
    was erased in this namespace. In the transaction that would write it, which must hold the
    namespace's lock: an erasure that commits before it is seen, and one that commits after it
    erases it.
    """
    assert tx.handle.namespace is not None
    known = digests.of_episode(tx.handle.namespace, episode)
    await tx.erasures.refuse(known, ErasedContent())


async def find_erased(tx: Transaction, texts: Sequence[str], *, digests: Digests) -> set[int]:
    """The places of those texts that `refuse_erased` would refuse."""
    assert tx.handle.namespace is not None
    of = [
        set(digests.of_text(tx.handle.namespace, text, parse_turns(text, EPOCH))) for text in texts
    ]
    gone = await tx.erasures.among(sorted(set().union(*of)))
    return {place for place, known in enumerate(of) if known & gone}
