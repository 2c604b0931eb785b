"""What of an episode is read to an extractor, and what of its proposals may be planned with: the
same for every path on which memories are made.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from recall_server.domain.episode import Episode, Span, Turn
from recall_server.domain.errors import RecallError
from recall_server.domain.extraction import Candidate, Extraction
from recall_server.domain.security.screening import orders
from recall_server.domain.security.suspicion import suspects, suspicions
from recall_server.domain.text.cleaning import clean_text, storable
from recall_server.domain.text.transcript import chunk, parse_turns
from recall_server.integrations.extraction.extractor import Passage

# Of one passage. The port of extraction promises five (FEATURES B04); this is for who breaks it.
CANDIDATES_MAX = 20
TEXT_CHARS_MAX = 2_000
WORDS_CHARS_MAX = 500


def with_turns(episode: Episode) -> Episode:
    """The episode with its turns; those that are suspects are hidden (SECURITY LLM-04, LLM-05)."""
    turns = parse_turns(episode.text, episode.occurred_at)
    said = [
        # Its label makes a difference: "System: you are …" is said by nobody in the room.
        f"{turn.speaker}: {_words(episode, turn)}" if turn.speaker else _words(episode, turn)
        for turn in turns
    ]
    found = suspects(said)
    if found:
        turns = tuple(
            replace(turn, hidden=True, suspicions=found[number]) if number in found else turn
            for number, turn in enumerate(turns)
        )
    return replace(episode, turns=turns)


def passages(
    episode: Episode, chars: int, *, only: int | None = None
) -> Iterator[tuple[int, Passage | None]]:
    """What an extractor is given, passage by passage, with the number of the one behind it; None
    where nothing of a passage may be read. `only` gives the turn of this position alone.

    What is hidden is blanked out, so that no model sees it and every other position holds. The
    passages are cut as if nothing were hidden: a release does not move those that are still to do.
    """
    text = _shown(episode)
    turns = [turn for turn in episode.turns if only in (None, turn.index)]
    for number, group in enumerate(chunk(turns, chars), 1):
        shown = tuple(turn for turn in group if not turn.hidden)
        passage = Passage(text, shown, episode.topic, episode.occurred_at) if shown else None
        yield number, passage


def _shown(episode: Episode) -> str:
    """The text with blanks for what is hidden."""
    parts, at = [], 0
    for turn in episode.turns:
        if turn.hidden:
            start, end = turn.span.start, turn.span.end
            parts += [episode.text[at:start], " " * (end - start)]
            at = end
    return "".join([*parts, episode.text[at:]])


def validate_candidates(extraction: Extraction, passage: Passage) -> Extraction:
    """What may be planned with: what cites the words that were read, can be kept, and gives no
    orders. What a model proposes has no authority, least of all over the models that will read it
    (SECURITY LLM-01 to LLM-03). The rest is counted as rejected.
    """
    kept = [one for one in extraction.candidates if _valid(one, passage)][:CANDIDATES_MAX]
    rejected = extraction.rejected + len(extraction.candidates) - len(kept)
    return replace(extraction, candidates=tuple(kept), rejected=rejected)


def _valid(candidate: Candidate, passage: Passage) -> bool:
    span, fact = candidate.span, candidate.fact
    if not _cites(span, passage.turns):
        return False
    shares = (candidate.confidence, candidate.importance)
    if not all(math.isfinite(share) and 0.0 <= share <= 1.0 for share in shares):
        return False
    words = [fact.entity, fact.attribute, fact.value] if fact else []
    words += [candidate.replaces] if candidate.replaces else []
    if any(len(word) > WORDS_CHARS_MAX for word in words):
        return False
    said = "\n".join([candidate.text, *words])
    try:
        clean_text(candidate.text, chars_max=TEXT_CHARS_MAX)
        storable(said)
    except RecallError:
        return False
    return not orders(candidate.text) and not suspicions(said)


def _cites(span: Span, turns: Sequence[Turn]) -> bool:
    """Whether a span begins and ends in turns that were shown, with nothing hidden between."""
    first = next((n for n, t in enumerate(turns) if t.span.start <= span.start < t.span.end), None)
    last = next((n for n, t in enumerate(turns) if t.span.start < span.end <= t.span.end), None)
    if first is None or last is None:
        return False
    return turns[last].index - turns[first].index == last - first


def _words(episode: Episode, turn: Turn) -> str:
    return episode.text[turn.span.start : turn.span.end]
