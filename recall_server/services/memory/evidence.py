"""Evidence: finds the words that a statement is said to rest on in the stored texts."""

from recall_server.domain.episode import Citation, Span, episode_of
from recall_server.services.memory.beliefs import similar_items
from recall_server.services.memory.passages import visible_text
from recall_server.storage.store import Transaction

# Fewer characters occur anywhere and prove nothing.
EVIDENCE_CHARS_MIN = 12


async def located(tx: Transaction, words: str) -> Citation | None:
    """Return the citation of exactly these words in a text in the access scope of `tx`; None if
    none of the most similar texts has them.
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
    """True if these words can still be cited."""
    return await _within(tx, citation.episode_id, citation.quote) is not None


async def _within(tx: Transaction, episode_id: str, words: str) -> Citation | None:
    if not await tx.episodes.page(limit=1, id_=episode_id):
        return None  # outside of the access scope, or hidden entirely
    episode = await tx.episodes.get(episode_id)
    at = visible_text(episode).find(words) if episode else -1
    return Citation(episode_id, Span(at, at + len(words)), words) if at >= 0 else None
