"""Cuts episodes into passages for an extractor, and validates its candidates, in the same way on
every path that makes memories.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from recall_server.domain.episode import Episode, Source, Span, Turn, texts_in
from recall_server.domain.errors import RecallError
from recall_server.domain.extraction import Candidate, Extraction, Refusal, Refused
from recall_server.domain.memory import MemoryType, importance
from recall_server.domain.security.screening import orders, suspects, suspicions
from recall_server.domain.text.cleaning import clean_text, storable
from recall_server.domain.text.transcript import chunk, parse_turns
from recall_server.integrations.extraction.extractor import Passage, candidates_max
from recall_server.storage.store import Transaction

# Extractors promise `candidates_max`; a short passage may still give this many.
CANDIDATES_MIN = 20
# The name in `extractor` of a memory that is a text as it was sent.
VERBATIM = "verbatim"
TEXT_CHARS_MAX = 2_000
WORDS_CHARS_MAX = 500


def with_turns(episode: Episode) -> Episode:
    """Return the episode with its turns, parsed from its text unless it has them. Suspect turns are
    hidden.
    """
    turns = episode.turns or parse_turns(episode.text, episode.occurred_at)
    said = [
        # The label matters: no participant says "System: you are …".
        f"{turn.speaker}: {_words(episode, turn)}" if turn.speaker else _words(episode, turn)
        for turn in turns
    ]
    found = suspects(said)
    if reasons := suspicions("\n".join(labels(episode.topic, episode.container, episode.source))):
        # An answer, and a model's input, shows the labels next to each turn.
        found = dict.fromkeys(range(len(turns)), tuple(f"{one}, in a label" for one in reasons))
    if found:
        turns = tuple(
            replace(turn, hidden=True, suspicions=found[number]) if number in found else turn
            for number, turn in enumerate(turns)
        )
    return replace(episode, turns=turns)


def labels(topic: str, container: str, source: Source) -> list[str]:
    """Return the labels that an answer, or a model's input, shows next to the words."""
    found = [topic, container, source.session_id, source.agent_id, *source.tags]
    return [label for label in (*found, *texts_in(source.metadata)) if label]


def passages(
    episode: Episode, chars: int, *, only: int | None = None
) -> Iterator[tuple[int, Passage | None]]:
    """Yield each passage for an extractor with the number of the next one; None in place of a
    passage with no visible turn. `only`: yield just the turn at this position.

    Hidden turns and forgotten words are blanked out, so that no model reads them and positions
    do not change. Passages are cut as if nothing were hidden: releasing a turn does not move those
    that are still to do.
    """
    text = visible_text(episode)
    turns = [turn for turn in episode.turns if only in (None, turn.index)]
    for number, group in enumerate(chunk(turns, chars), 1):
        visible = tuple(turn for turn in group if not turn.hidden)
        passage = Passage(text, visible, episode.topic, episode.occurred_at) if visible else None
        yield number, passage


def visible_text(episode: Episode) -> str:
    """Return the text with blanks in place of hidden turns and forgotten words."""
    spans = [turn.span for turn in episode.turns if turn.hidden] + list(episode.forgotten)
    parts, at = [], 0
    for one in sorted(spans, key=lambda span: span.start):
        start, end = max(at, one.start), max(at, one.end)
        parts += [episode.text[at:start], " " * (end - start)]
        at = end
    return "".join([*parts, episode.text[at:]])


def validate_candidates(extraction: Extraction, passage: Passage) -> Extraction:
    """Return the candidates that cite visible words, can be stored and give no orders to a model;
    count the rest as rejected. A model's proposal has no authority, least of all over models that
    read it later.
    """
    kept: list[Candidate] = []
    refused: list[Refused] = []
    most = max(CANDIDATES_MIN, candidates_max(passage))
    for one in extraction.candidates:
        reason = _refusal(one, passage) or (Refusal.TOO_MANY if len(kept) == most else None)
        if reason is None:
            kept.append(one)
        else:
            refused.append(Refused(reason, one.type, one.span))
    return replace(
        extraction,
        candidates=tuple(kept),
        rejected=extraction.rejected + len(refused),
        refused=tuple(refused),
    )


async def without_forgotten(
    tx: Transaction, episode: Episode, candidates: Iterable[Candidate]
) -> list[Candidate]:
    """Return the candidates that rest on no forgotten words, as `tx` sees them: words that were
    forgotten before their extraction stay forgotten.
    """
    gone = (await tx.episodes.forgotten_words([episode.id])).get(episode.id, ())
    return [one for one in candidates if not any(map(one.span.overlaps, gone))]


def verbatim(passage: Passage, type_: MemoryType) -> Extraction:
    """Return the visible turns as candidates, word for word. Turns with only white space between
    them become one candidate.
    """
    spans: list[Span] = []
    for turn in passage.turns:
        if spans and not passage.text[spans[-1].end : turn.span.start].strip():
            spans[-1] = Span(spans[-1].start, turn.span.end)
        else:
            spans.append(turn.span)
    texts = [(passage.text[span.start : span.end], span) for span in spans]
    found = [Candidate(text, type_, span, importance=importance(text)) for text, span in texts]
    return Extraction(tuple(found), VERBATIM)


def _refusal(candidate: Candidate, passage: Passage) -> Refusal | None:
    span, fact = candidate.span, candidate.fact
    if not _cites(span, passage.turns):
        return Refusal.NO_CITATION
    shares = (candidate.confidence, candidate.importance)
    if not all(math.isfinite(share) and 0.0 <= share <= 1.0 for share in shares):
        return Refusal.BAD_NUMBER
    words = [fact.entity, fact.attribute, fact.value] if fact else []
    words += [candidate.replaces] if candidate.replaces else []
    if any(len(word) > WORDS_CHARS_MAX for word in words):
        return Refusal.TOO_LONG
    said = "\n".join([candidate.text, *words])
    try:
        clean_text(candidate.text, chars_max=TEXT_CHARS_MAX)
        storable(said)
    except RecallError:
        return Refusal.NOT_STORABLE
    gives_orders = orders(candidate.text) or suspicions(said)
    return Refusal.GIVES_ORDERS if gives_orders else None


def _cites(span: Span, turns: Sequence[Turn]) -> bool:
    """True if a span begins and ends in visible turns, with no hidden turn between."""
    first = next((n for n, t in enumerate(turns) if t.span.start <= span.start < t.span.end), None)
    last = next((n for n, t in enumerate(turns) if t.span.start < span.end <= t.span.end), None)
    if first is None or last is None:
        return False
    return turns[last].index - turns[first].index == last - first


def _words(episode: Episode, turn: Turn) -> str:
    return episode.text[turn.span.start : turn.span.end]
