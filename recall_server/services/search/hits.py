"""Hits as they are shown: what one is made of, quotes once, scores that fall. Pure."""

from collections.abc import Sequence

from recall_server.domain.query import DEFAULT_ORDER, Hit, Item, ItemKind, Scores, SearchMode

# Between passages of one message that do not stand side by side.
GAP = " … "


def hit_of(items: Sequence[Item], scores: Scores, gave_way_to: str | None = None) -> Hit:
    """One hit of a memory, or else of a message, with the passages that go with it."""
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
    """The hits with each passage quoted as a whole once: of further memories that came from it, the
    words that they cite.
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
    """The hits in their order, the first with the best of their scores."""
    ranked = sorted((hit.scores for hit in hits), key=lambda one: -one.final)
    return [
        hit._replace(scores=hit.scores._replace(score=best.score, final=best.final))
        for hit, best in zip(hits, ranked, strict=True)
    ]


def falling(hits: Sequence[Hit], mode: SearchMode) -> list[Hit]:
    """The hits, none with a better score than one above it: the order takes more into account than
    the score does. Not where a mode has a formula of its own.
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
