"""The texts by which items are found, and how often a term occurs in them."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from recall_server.domain.episode import Episode, Span, turn_id
from recall_server.domain.memory import Memory
from recall_server.domain.text.passages import VisiblePassage, visible_passages

Counts = NDArray[np.int64]


class Place(NamedTuple):
    """The place of a passage: its turn, its span, and the heading above it."""

    turn_id: str
    span: Span
    heading: Span | None


class Findable(NamedTuple):
    """The text by which an item is found, its speaker, and the place of a passage."""

    text: str
    speaker: str | None = None
    place: Place | None = None


def findable_memory(memory: Memory) -> Findable:
    """Return the index entry of a memory: its own words. The words that it cites are passages."""
    return Findable(memory.searchable, memory.citation.speaker)


def findable_passages(
    episode: Episode, changed: Sequence[Span] | None = None
) -> dict[str, Findable]:
    """Return the index entries of an episode's passages, of all or of those that have `changed`:
    words, speaker, date and headings.
    """
    return {
        item_id: Findable(
            labelled(one.passage.turn.speaker, " ".join([*_day(one), one.heading, one.words])),
            one.passage.turn.speaker,
            Place(
                turn_id(episode.id, one.passage.turn.index),
                one.passage.span,
                one.passage.headings[-1] if one.passage.headings else None,
            ),
        )
        for item_id, one in visible_passages(episode, changed).items()
    }


def changed_passages(
    before: Iterable[Episode], after: Iterable[Episode]
) -> tuple[dict[str, Findable], dict[str, Findable]]:
    """Return the entries of passages that differ, as they were and as they are."""
    old, new = dict[str, Findable](), dict[str, Findable]()
    for was, now in zip(before, after, strict=True):
        less, more = Counter(was.forgotten), Counter(now.forgotten)
        turns = zip(was.turns, now.turns, strict=True)
        spans = [*(less - more), *(more - less), *(one.span for one, then in turns if one != then)]
        old |= findable_passages(was, spans)
        new |= findable_passages(now, spans)
    same = {i for i in old.keys() & new.keys() if old[i] == new[i]}
    return (
        {i: one for i, one in old.items() if i not in same},
        {i: one for i, one in new.items() if i not in same},
    )


def labelled(speaker: str | None, words: str) -> str:
    """Return words with their speaker, as in a transcript."""
    return f"{speaker}: {words}" if speaker else words


def _day(one: VisiblePassage) -> list[str]:
    """Return the day on which a passage was said, if the text says so. On LoCoMo it found 0.2
    points more of the evidence (R@10), and 0.8 among five hits. The comma: it is no day of which
    the passage speaks (`value_terms`).
    """
    said_at = one.passage.turn.said_at
    return [f"{said_at:%B}, {said_at.day} {said_at.year}"] if said_at else []


class TermPostings(NamedTuple):
    """The documents that have a term: their slots in ascending order, how often each has it, and
    the length of each in terms.
    """

    slots: NDArray[np.uint32]
    times: NDArray[np.uint16]
    lengths: NDArray[np.uint32]


class Words(NamedTuple):
    """The terms of a question in some documents: how often each document has each term, and its
    length in terms, 0 if it has none of them.
    """

    times: Mapping[str, Counts]
    lengths: Counts


def words_in(slots: Counts, postings: Mapping[str, TermPostings]) -> Words:
    """Return the words of the documents at these slots, from the postings of the terms."""
    lengths = np.zeros(len(slots), np.int64)
    times: dict[str, Counts] = {}
    # With equal types, as numpy would otherwise convert all postings.
    wanted = slots.astype(np.uint32)
    for term, of in postings.items():
        often = times[term] = np.zeros(len(slots), np.int64)
        if not len(of.slots):
            continue
        at = np.minimum(np.searchsorted(of.slots, wanted), len(of.slots) - 1)
        here = np.flatnonzero(of.slots[at] == wanted)
        found = at[here]
        often[here] = of.times[found]
        lengths[here] = of.lengths[found]
    return Words(times, lengths)
