"""What erasing means, without a database: which words name somebody, how words are struck out, and
by which digests an erased text is known again.
"""

import hashlib
import hmac
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

from recall_server.domain.episode import Episode, Span, Turn
from recall_server.domain.errors import Invalid
from recall_server.domain.namespace import Namespace
from recall_server.domain.text.terms import folded, terms, unspaced

BLOCK = "\u2588"
CONFIRMATION = "DELETE MY DATA"
SUBJECT_CHARS_MAX = 128
# Shorter utterances ("Sounds good, thanks!") are anybody's: to refuse them would refuse whole
# conversations that have nothing to do with what was erased.
TURN_TERMS_MIN = 3
QUOTE_TERMS_MIN = 2

# A word of any script, with the marks that Python's word class tears off.
_WORD = re.compile(r"[^\W_][^\W_\u0300-\u036f]*[\u0300-\u036f]*(?:[^\W_]+[\u0300-\u036f]*)*")


class Kind(StrEnum):
    """What was asked to be erased."""

    NAMESPACE = "namespace"
    CONTAINER = "container"
    SUBJECT = "subject"
    MEMORY = "memory"


class Stage(StrEnum):
    """How far an erasure has come. `ERASING`: of a large namespace or container, which is being
    emptied; that of anything else is seen inside its own transaction only.
    """

    ERASING = "erasing"
    LOGICAL = "logical"
    PURGING = "purging"
    DONE = "done"


@dataclass(frozen=True)
class Subject:
    """Somebody, or something, by name: found as whole words, folded as the index folds them.
    Raises `Invalid` where the name has no word in it.
    """

    name: str

    def __post_init__(self) -> None:
        if not self._words or len(self.name) > SUBJECT_CHARS_MAX:
            raise Invalid(f"A subject is a name of 1 to {SUBJECT_CHARS_MAX} characters.")

    @cached_property
    def _words(self) -> tuple[str, ...]:
        return tuple(folded(match[0]) for match in _WORD.finditer(self.name))

    @property
    def key(self) -> str:
        """The name in one spelling."""
        return " ".join(self._words)

    def named(self, *texts: str | None) -> bool:
        """Whether any of these names the subject."""
        return any(text and self.places(text) for text in texts)

    def places(self, text: str) -> list[Span]:
        """Where `text` names the subject."""
        found = list(_WORD.finditer(text))
        words = [folded(match[0]) for match in found]
        size = len(self._words)
        places = [
            Span(found[i].start(), found[i + size - 1].end())
            for i in range(len(words) - size + 1)
            if tuple(words[i : i + size]) == self._words
        ]
        if size == 1 and unspaced(self._words[0]):
            # Scripts without spaces: a name stands in the midst of what looks like one word.
            places += [
                Span(match.start(), match.end())
                for match in re.finditer(re.escape(self.name.strip()), text)
            ]
        return places


def struck(text: str, spans: Iterable[Span]) -> str:
    """`text` with the words at `spans` overwritten, of the same length: other spans stay right."""
    for span in spans:
        text = text[: span.start] + BLOCK * (span.end - span.start) + text[span.end :]
    return text


def overlap(one: Span, other: Span) -> bool:
    return one.start < other.end and other.start < one.end


def telling(text: str, terms_min: int) -> bool:
    """Whether `text` says enough to be known again by itself."""
    return len(set(terms(text))) >= terms_min


@dataclass(frozen=True)
class Digests:
    """Keyed digests of texts, the same for the same words of the same namespace: case, width and
    blanks do not count. They tell nothing to whom does not have the key.
    """

    key: bytes = field(repr=False)

    def of(self, namespace: Namespace, text: str) -> str:
        normal = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
        said = f"{namespace}\x00{' '.join(normal.split())}"
        return hmac.new(self.key, said.encode(), hashlib.sha256).hexdigest()

    def of_episode(self, namespace: Namespace, episode: Episode) -> list[str]:
        """The digests under which an episode is refused: of its text, and of each turn."""
        return self.of_text(namespace, episode.text, episode.turns)

    def of_text(self, namespace: Namespace, text: str, turns: Iterable[Turn]) -> list[str]:
        """The same, of a text that is no episode yet."""
        parts = {text[turn.span.start : turn.span.end] for turn in turns}
        return sorted({self.of(namespace, part) for part in {text, *parts}})

    def kept(
        self,
        namespace: Namespace,
        *,
        whole: Sequence[str] = (),
        quotes: Iterable[str] = (),
        turns: Iterable[str] = (),
    ) -> set[str]:
        """The digests to remember of erased texts; short quotes and turns are passed over."""
        texts = {
            *whole,
            *(quote for quote in quotes if telling(quote, QUOTE_TERMS_MIN)),
            *(turn for turn in turns if telling(turn, TURN_TERMS_MIN)),
        }
        return {self.of(namespace, text) for text in texts}
