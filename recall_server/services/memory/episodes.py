"""Stores episodes: refuses erased text, and indexes the turns that are not quarantined."""

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

# A time for texts of which only the words matter.
EPOCH = datetime.fromtimestamp(0, UTC)


def prepare_episode(episode: Episode) -> tuple[Episode, Postings]:
    """Return the episode with its turns, and the postings of the turns that are not hidden."""
    prepared = with_turns(episode)
    visible = [turn for turn in prepared.turns if not turn.hidden]
    return prepared, postings(
        {
            turn_id(prepared.id, turn.index): Findable(
                "", turn.speaker, prepared.text[turn.span.start : turn.span.end]
            )
            for turn in visible
        }
    )


async def store_episode(
    tx: Transaction, episode: Episode, words: Postings, digests: Digests, *, key: str, digest: str
) -> bool:
    """Store the episode and index its visible turns; False if `key` was used before. Raises
    `ErasedContent`.
    """
    await tx.lock()
    await refuse_erased(tx, digests, episode)
    added = await tx.episodes.add(episode, key, digest)
    if added:
        await tx.words.add(words)
        await _hold(tx, episode)
    return added


async def store_planned_episode(
    tx: Transaction, episode: Episode, digests: Digests, *, key: str, plan: Plan
) -> tuple[set[str], set[str]]:
    """Store an episode together with its plan; turns that the plan's memories cover are not
    indexed. Return the ids of these, and of the turns to index (by `commit.apply`).
    """
    cited = [one.span for one in plan.citations() if one.episode_id == episode.id]
    visible = {turn_id(episode.id, t.index): t.span for t in episode.turns if not t.hidden}
    covered = {i for i, turn in visible.items() if any(turn.overlaps(span) for span in cited)}
    await refuse_erased(tx, digests, episode)
    await tx.tasks.hand_over(episode.job_id)
    await tx.episodes.add_new(episode, key, episode.content_hash, covered=covered)
    await _hold(tx, episode)
    return covered, visible.keys() - covered


async def _hold(tx: Transaction, episode: Episode) -> None:
    held = {turn_id(episode.id, t.index): t.suspicions for t in episode.turns if t.suspicions}
    await tx.quarantine.hold(episode.id, held, episode.recorded_at)


async def refuse_erased(tx: Transaction, digests: Digests, episode: Episode) -> None:
    """Raise `ErasedContent` if the text or one of its turns was erased in this namespace.

    Call it in the transaction that writes the text, which must hold the namespace's lock: it sees
    any erasure that committed before, and an erasure that commits later erases the text.
    """
    assert tx.handle.namespace is not None
    text_digests = digests.of_episode(tx.handle.namespace, episode)
    await tx.erasures.refuse(text_digests, ErasedContent())


async def find_erased(tx: Transaction, texts: Sequence[str], *, digests: Digests) -> set[int]:
    """Return the indexes of the texts that `refuse_erased` would refuse."""
    assert tx.handle.namespace is not None
    text_digests = [
        set(digests.of_text(tx.handle.namespace, text, parse_turns(text, EPOCH))) for text in texts
    ]
    gone = await tx.erasures.among(sorted(set().union(*text_digests)))
    return {index for index, one in enumerate(text_digests) if one & gone}
