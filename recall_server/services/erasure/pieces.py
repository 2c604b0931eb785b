"""The rows that an erasure concerns, and the pieces in which it is written."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from recall_server.domain.episode import Span
from recall_server.domain.erasure import Covered, ErasedText, Subject
from recall_server.domain.ids import NONE
from recall_server.domain.search.index_entry import Findable
from recall_server.storage.driver import Row, batches, span
from recall_server.storage.index.words import Postings, postings


@dataclass
class Affected:
    """All that one transaction erases.

    `memories`, `spans`, `tasks`: rows of memories by id, spans of episodes, ids of whole tasks.
    `container`, `whole`: a container, and its episodes, which are deleted with their turns.
    `subject`: its name is erased from labels too; `labelled`: the memories with it in a label.
    `last`: nothing is left after these.
    `batch`: the ids from which the others were found.
    """

    subject: Subject | None = None
    container: str = NONE
    labelled: set[str] = field(default_factory=set)
    memories: dict[str, Row] = field(default_factory=dict)
    spans: dict[str, set[Span]] = field(default_factory=dict)
    episodes: dict[str, tuple[Row, list[Row]]] = field(default_factory=dict)
    whole: set[str] = field(default_factory=set)
    tasks: list[str] = field(default_factory=list)
    last: bool = True
    batch: set[str] = field(default_factory=set)
    # Derived from the others.
    _covered: dict[str, Covered] = field(default_factory=dict)
    _turns: list[Row] | None = None

    def take(self, episode: Row, turns: list[Row]) -> None:
        self.whole.add(episode["id"])
        self.episodes[episode["id"]] = (episode, turns)
        self.add(episode["id"], Span(0, len(episode["text"])))

    def add(self, episode_id: str, where: Span) -> None:
        self.spans.setdefault(episode_id, set()).add(where)
        self._covered.pop(episode_id, None)
        self._turns = None

    def touches(self, episode_id: str, where: Span) -> bool:
        if episode_id not in self._covered:
            self._covered[episode_id] = Covered(self.spans.get(episode_id, ()))
        return episode_id in self.whole or self._covered[episode_id].touches(where)

    def turns(self) -> list[Row]:
        """Return the turns whose words or labels are erased. The first call may take long."""
        if self._turns is None:
            named = self.subject.named if self.subject else lambda *_: False
            self._turns = [
                turn
                for episode, turns in self.episodes.values()
                for turn in turns
                if self.touches(episode["id"], span(turn))
                or named(turn["speaker"], turn["session"])
            ]
        return self._turns

    def quotes(self) -> set[str]:
        return {
            self.episodes[episode_id][0]["text"][one.start : one.end]
            for episode_id, spans in self.spans.items()
            for one in spans
        }

    def said(self) -> list[str]:
        """Return the words of each turn that is deleted with its episode."""
        texts = {one: self.episodes[one][0]["text"] for one in self.whole}
        return spoken((turn for one in texts for turn in self.episodes[one][1]), texts)

    @property
    def nothing(self) -> bool:
        """True if no row is erased or redacted, so no index, cache or job has read one."""
        return not (self.memories or self.labelled or self.episodes or self.tasks)

    def counts(self) -> dict[str, int]:
        return {
            "memories": len(self.memories),
            "episodes": len(self.episodes),
            "spans": sum(len(spans) for spans in self.spans.values()),
            "turns": len(self.turns()),
            "runs": len(self.tasks),
        }


def spoken(turns: Iterable[Row], texts: Mapping[str, str]) -> list[str]:
    return [texts[turn["episode_id"]][turn["span_start"] : turn["span_end"]] for turn in turns]


NO_WORDS = postings({})


@dataclass(frozen=True)
class Piece:
    """The changes of one transaction of an erasure: the `memories` and `passages` that it takes out
    of the index, with the `words` of those that search finds, and the terms `of_hidden` entries;
    the `digests` that it stores; the ids of the `turns` that it deletes before their text; the
    turns that it overwrites (`labels`). `texts`: it erases the words of the texts, and all that is
    not in another piece.
    """

    memories: Sequence[str] = ()
    passages: Sequence[str] = ()
    digests: Sequence[ErasedText] = ()
    turns: Sequence[str] = ()
    labels: Sequence[Row] = ()
    words: Postings = NO_WORDS
    of_hidden: Collection[str] = ()
    texts: bool = False

    @property
    def rows(self) -> int:
        """How many rows of texts and memories it erases."""
        return len(self.memories) + len(self.turns)


@dataclass(frozen=True)
class Writes:
    """All changes of an erasure, before they are cut into pieces.

    `gone`: the passages that lose their entries, of which `remaining` get new ones. `known`: the
    digests. `hides`: the words that the memories hide. `labels`: turns that are overwritten.
    `words`: the entries of all items that search finds. `of_hidden`: the terms of hidden entries.
    """

    affected: Affected
    gone: Collection[str]
    remaining: Collection[str]
    known: Collection[ErasedText]
    hides: Sequence[Row]
    labels: Sequence[Row]
    words: Mapping[str, Findable]
    of_hidden: Mapping[str, Sequence[str]]

    def pieces(self, rows: int) -> list[Piece]:
        """Return one piece, or some of about so many rows: passages of which nothing is left,
        memories, digests, turns of texts that are deleted, the texts, and turns with the name of
        a subject. After each of them, a search for the targets finds the rest.
        """
        affected = self.affected
        # From their ends, so that what is left is cut into the same passages.
        turns = [
            turn["id"]
            for one in sorted(affected.whole)
            for turn in sorted(affected.episodes[one][1], key=lambda turn: -int(turn["position"]))
        ]
        if len(affected.memories) + len(self.gone) + len(turns) + len(self.labels) <= rows:
            whole = self._piece(affected.memories, self.gone, self.known, self.labels)
            return [replace(whole, texts=True)]
        # Those by which words are found, and those that hide words that others may still read.
        kept = affected.batch
        if not affected.container:
            kept = kept | {row["item_id"] for row in self.hides}
        memories = sorted(affected.memories.keys() - kept)
        passages = sorted({*self.gone} - {*self.remaining})
        # While a passage is in the index, what it hides stays as the index has it.
        early = [self._piece((), some) for some in batches(passages, rows)]
        early += [self._piece(some) for some in batches(memories, rows)]
        early += [Piece(digests=some) for some in batches(sorted(self.known), rows)]
        # The last ones go with their text.
        early += [Piece(turns=some) for some in batches(turns, rows)][
            : max(0, len(turns) - 1) // rows
        ]
        rest = affected.memories.keys() - {*memories}, {*self.gone} - {*passages}
        # With some of the turns, so that fewer are left if others go on only after a crash.
        texts = self._piece(*rest, labels=self.labels[:rows])
        later = [Piece(labels=some) for some in batches(self.labels[rows:], rows)]
        return [*early, replace(texts, texts=True), *later]

    def _piece(
        self,
        memories: Iterable[str],
        passages: Iterable[str] = (),
        digests: Iterable[ErasedText] = (),
        labels: Sequence[Row] = (),
    ) -> Piece:
        items = sorted(memories), sorted(passages)
        words = {i: self.words[i] for some in items for i in some if i in self.words}
        hidden = {term for some in items for i in some for term in self.of_hidden.get(i, ())}
        return Piece(
            *items,
            sorted(digests),
            labels=labels,
            words=postings(words).counted(),
            of_hidden=hidden,
        )
