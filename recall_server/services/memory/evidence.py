"""Evidence: the words that a statement is said to rest on, found in the texts that are kept."""

from recall_server.domain.episode import Citation, Span, episode_of
from recall_server.services.memory.beliefs import similar_items
from recall_server.services.memory.passages import visible_text
from recall_server.storage.store import Transaction

# Fewer characters stand anywhere, and prove nothing.
EVIDENCE_CHARS_MIN = 12


async def located(tx: Transaction, words: str) -> Citation | None:
    """Return where a text in the access scope of `tx` has exactly these words; None where none of
    those that are likeliest to has them.
    """
    words = words.strip()
    if len(words) < EVIDENCE_CHARS_MIN:
        return None
    found = await similar_items(tx, words)
    memories = await tx.memories.get([one for one in found if one.startswith("mem_")])
    texts = [
        memories[one].citation.episode_id if one in memories else episode_of(one)
        for one in found
        if one in memories or not one.startswith("mem_")
    ]
    for episode_id in dict.fromkeys(texts):
        if (citation := await _within(tx, episode_id, words)) is not None:
            return citation
    return None


async def stands(tx: Transaction, citation: Citation) -> bool:
    """Whether these words are still there to be cited."""
    return await _within(tx, citation.episode_id, citation.quote) is not None


async def _within(tx: Transaction, episode_id: str, words: str) -> Citation | None:
    if not await tx.episodes.page(limit=1, id_=episode_id):
        return None  # it is beyond the access scope, or nothing of it can be read
    episode = await tx.episodes.get(episode_id)
    at = visible_text(episode).find(words) if episode else -1
    return Citation(episode_id, Span(at, at + len(words)), words) if at >= 0 else None
