"""Hits as they are shown: joins the items of a hit, quotes each passage once, and keeps scores
falling. Pure.
"""

from collections.abc import Sequence

from recall_server.domain.query import DEFAULT_ORDER, Hit, Item, ItemKind, Scores, SearchMode

# Separates passages of one message that are not adjacent.
GAP = " … "


def hit_of(items: Sequence[Item], scores: Scores, gave_way_to: str | None = None) -> Hit:
    """Return one hit: a memory, or else a message, with the passages that belong to it."""
    passages = [item for item in items if item.kind is ItemKind.PASSAGE]
    memory = next((item for item in items if item.kind is ItemKind.MEMORY), None)
    if memory is None:
        first, *more = passages
        text = GAP.join([first.text, *(one.citation.quote for one in more)])
        return Hit(first, scores, text, gave_way_to=gave_way_to)
    cited = memory.citation.span
    more = [one for one in passages if not one.citation.span.overlaps(cited)]
    quotes = [memory.quote, *(one.citation.quote for one in more)]
    return Hit(memory, scores, memory.text, GAP.join(filter(None, quotes)), gave_way_to)


def quoted_once(hits: Sequence[Hit]) -> list[Hit]:
    """Return the hits with each passage quoted in full only once: further memories from the same
    passage quote just the words that they cite.
    """
    seen: set[tuple[str, str]] = set()
    found = []
    for hit in hits:
        cited, quote = hit.item.citation, hit.quote
        passage = (cited.episode_id, hit.item.quote)
        if quote and passage in seen:
            hit = hit._replace(quote=quote.replace(hit.item.quote, cited.quote, 1))  # noqa: PLW2901
        seen.add(passage)
        found.append(hit)
    return found


def exchanged(hits: Sequence[Hit]) -> list[Hit]:
    """Return the hits in the same order, with their scores sorted so that the first is the best."""
    ranked = sorted((hit.scores for hit in hits), key=lambda one: -one.final)
    return [
        hit._replace(scores=hit.scores._replace(score=best.score, final=best.final))
        for hit, best in zip(hits, ranked, strict=True)
    ]


def falling(hits: Sequence[Hit], mode: SearchMode) -> list[Hit]:
    """Return the hits with no score above that of an earlier hit, as the order takes more into
    account than the score. Modes with a score formula of their own stay as they are.
    """
    if mode not in DEFAULT_ORDER:
        return list(hits)
    found: list[Hit] = []
    for hit in hits:
        if found and found[-1].scores.score < hit.scores.score:
            scores = hit.scores._replace(score=found[-1].scores.score)
            hit = hit._replace(scores=scores)  # noqa: PLW2901
        found.append(hit)
    return found
