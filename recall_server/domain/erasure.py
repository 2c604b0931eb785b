"""The rules of erasing, without a database: which words name a subject, how words are redacted, and
the digests by which an erased text is recognized.
"""

import hmac
import json
import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any, NamedTuple

from recall_server.domain.episode import Span, Turn, texts_in
from recall_server.domain.errors import Invalid
from recall_server.domain.ids import Namespace
from recall_server.domain.permissions import AccessScope
from recall_server.domain.text.terms import folded, terms, unspaced

BLOCK = "\u2588"
CONFIRMATION = "DELETE MY DATA"
SUBJECT_CHARS_MAX = 128
# The digest of a label is short, as it is only looked up together with that of a text.
LABEL_DIGEST_CHARS = 16
# Anybody says shorter utterances ("Sounds good, thanks!"): refusing them would refuse whole
# conversations that have nothing to do with the erased text.
TURN_TERMS_MIN = 3
QUOTE_TERMS_MIN = 2

# Characters that no reader sees, and that a name may hold: joiners, hyphens that show only at the
# end of a line, marks of direction, selectors, fillers, tags.
_UNSEEN = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e0fff"
)
_UNSEEN_RUN = re.compile(f"[{_UNSEEN}]+")
# Characters that belong to the letter before them: combining marks, parts of a Hangul syllable.
_JOINING = "\u0300-\u036f\u1161-\u11ff\u3099\u309a\uff9e\uff9f"
# The pieces of a text that are folded by themselves: ASCII, what nobody sees, and one letter.
_PIECE = re.compile(
    f"[\x00-\x7f]+(?![{_JOINING}])|(?P<unseen>[{_UNSEEN}]+)|.[{_JOINING}]*", re.DOTALL
)
# A word of any script, with the combining marks that Python's word class excludes.
_WORD = re.compile(r"[^\W_]++(?:[\u0300-\u036f]++[^\W_]*+)*+")


class Kind(StrEnum):
    NAMESPACE = "namespace"
    CONTAINER = "container"
    SUBJECT = "subject"
    MEMORY = "memory"


class Stage(StrEnum):
    """The state of an erasure. `ERASING` is visible only if it takes several transactions.
    `LOGICAL`: no row is left, but files may still hold what was erased.
    """

    ERASING = "erasing"
    LOGICAL = "logical"
    PURGING = "purging"
    DONE = "done"


def as_read(value: object) -> str:
    """Fold a text, or the JSON of a document, as the index does, without the characters that nobody
    sees.
    """
    # Not as Python shows it, with an escape in place of what nobody sees.
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=list)
    return text.lower() if text.isascii() else folded(_UNSEEN_RUN.sub("", text))


@dataclass(frozen=True)
class Subject:
    """A person or a thing by name, matched as whole words, folded as the index folds them. Raises
    `Invalid` if the name has no word in it or is longer than `SUBJECT_CHARS_MAX`.
    """

    name: str

    def __post_init__(self) -> None:
        if not self._words or len(self.name) > SUBJECT_CHARS_MAX:
            raise Invalid(f"A subject is a name of 1 to {SUBJECT_CHARS_MAX} characters.")

    @cached_property
    def _words(self) -> tuple[str, ...]:
        return tuple(match[0] for match in _WORD.finditer(as_read(self.name)))

    @property
    def key(self) -> str:
        """The name in its normalized spelling."""
        return " ".join(self._words)

    def named(self, *values: Any) -> bool:
        """True if any of these texts and JSON documents names the subject."""
        return any(map(self.places, texts_in(values)))

    def may_be_in(self, read: str) -> bool:
        """False if a text or JSON document, `as_read`, cannot name the subject: a quick check."""
        return self._words[0] in read

    def without_name(self, value: Any) -> Any:
        """Return a text or JSON document with the name overwritten wherever it occurs."""
        match value:
            case str():
                return redacted(value, self.places(value))
            case list():
                return [self.without_name(one) for one in value]
            case dict():
                return {
                    self.without_name(key): self.without_name(one) for key, one in value.items()
                }
        return value

    def places(self, text: str) -> list[Span]:
        """Return the spans at which `text` names the subject."""
        # Most texts do not, and finding all their words takes many times as long.
        if not self.may_be_in(as_read(text)):
            return []
        if text.isascii():
            return self._in(text.lower())
        # Characters that nobody sees may be within the name, or between it and another word.
        joints = ("", " ") if _UNSEEN_RUN.search(text) else ("",)
        return [place for joint in joints for place in self._in_any(text, joint)]

    def _in_any(self, text: str, joint: str) -> Iterator[Span]:
        """Yield the spans at which a text of any script names the subject, if `joint` is read for
        the characters that nobody sees.
        """
        parts, starts, ends = list[str](), list[int](), list[int]()
        for piece in _PIECE.finditer(text):
            start, end = piece.span()
            if piece[0].isascii():
                parts.append(piece[0].lower())
                starts += range(start, end)
                ends += range(start + 1, end + 1)
            else:
                part = joint if piece["unseen"] else folded(piece[0])
                parts.append(part)
                starts += [start] * len(part)
                ends += [end] * len(part)
        for place in self._in("".join(parts)):
            yield Span(starts[place.start], ends[place.end - 1])

    def _in(self, read: str) -> list[Span]:
        """Return the spans at which a folded text names the subject."""
        size, first = len(self._words), self._words[0]
        if size == 1 and unspaced(first):
            # In scripts without spaces a name may be a part of what looks like one word.
            return [Span(*match.span()) for match in re.finditer(re.escape(first), read)]
        found = list(_WORD.finditer(read))
        words = [match[0] for match in found]
        return [
            Span(found[i].start(), found[i + size - 1].end())
            for i in range(len(words) - size + 1)
            if words[i] == first and tuple(words[i : i + size]) == self._words
        ]


def redacted(text: str, spans: Iterable[Span], *, by: str = BLOCK) -> str:
    """Return `text` with the `spans` overwritten. Its length stays, so other spans stay valid."""
    pieces, done = list[str](), 0
    for span in apart(spans):
        pieces += [text[done : span.start], by * (span.end - span.start)]
        done = span.end
    return "".join((*pieces, text[done:]))


def apart(spans: Iterable[Span]) -> list[Span]:
    """Return the spans in order, with one in place of those that overlap."""
    found = list[Span]()
    for span in sorted(spans, key=lambda span: (span.start, span.end)):
        if found and span.start < found[-1].end:
            found[-1] = Span(found[-1].start, max(found[-1].end, span.end))
        else:
            found.append(span)
    return found


class Covered:
    """The parts of a text that spans cover. A look-up takes logarithmic time."""

    def __init__(self, spans: Iterable[Span]) -> None:
        found = apart(spans)
        self._starts, self._ends = [one.start for one in found], [one.end for one in found]

    def touches(self, where: Span) -> bool:
        first = bisect_right(self._ends, where.start)
        return first < len(self._starts) and self._starts[first] < where.end


def distinctive(text: str, terms_min: int) -> bool:
    """True if `text` has enough distinct terms to be recognized by itself."""
    return len(set(terms(text))) >= terms_min


# The labels of an erased text, in the order of `ErasedText`.
LABELS = ("topic", "container", "agent_id")


class ErasedText(NamedTuple):
    """The keyed digests of an erased text, and of the labels that it had."""

    digest: str
    topic: str
    container: str
    agent: str


class ErasedPlaces(NamedTuple):
    """The digests of the labels that a text must have; None: any."""

    topics: Sequence[str] | None = None
    containers: Sequence[str] | None = None
    agents: Sequence[str] | None = None


EVERYWHERE = ErasedPlaces()


@dataclass(frozen=True)
class Digests:
    """Keyed digests of texts, equal for the same words in the same namespace: case, width and white
    space do not count. Without the key they say nothing about the texts.
    """

    key: bytes = field(repr=False)

    def digest(self, namespace: Namespace, text: str) -> str:
        normal = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
        keyed = f"{namespace}\x00{' '.join(normal.split())}"
        return hmac.digest(self.key, keyed.encode(), "sha256").hex()

    def place(self, namespace: Namespace, label: str, value: str | None) -> str:
        """Return the digest of a label of an erased text, such as its topic."""
        return self.exact(namespace, label, value or "")[:LABEL_DIGEST_CHARS]

    def places(self, namespace: Namespace, scope: AccessScope) -> ErasedPlaces:
        """Return the digests of the labels that texts in an access scope have."""
        agents = None if scope.agent_id is None else [scope.agent_id]
        given = {"topic": scope.topics, "container": scope.containers, "agent": agents}
        return ErasedPlaces(
            *(
                None if values is None else [self.place(namespace, label, one) for one in values]
                for label, values in given.items()
            )
        )

    def exact(self, namespace: Namespace, *parts: str) -> str:
        """Return the digest of texts in which every character counts."""
        keyed = json.dumps([namespace, *parts])
        return hmac.digest(self.key, keyed.encode(), "sha256").hex()

    def of_text(self, namespace: Namespace, text: str, turns: Iterable[Turn]) -> list[str]:
        """Return the digests by which a text is refused: of the whole text and of each turn."""
        parts = {text[turn.span.start : turn.span.end] for turn in turns}
        return sorted({self.digest(namespace, part) for part in {text, *parts}})

    def of_erased(
        self,
        namespace: Namespace,
        labels: Mapping[str, Any],
        *,
        whole: Sequence[str] = (),
        quotes: Iterable[str] = (),
        turns: Iterable[str] = (),
    ) -> set[ErasedText]:
        """Return the digests to keep of erased texts with these labels. Short quotes and turns get
        none.
        """
        texts = {
            *whole,
            *(quote for quote in quotes if distinctive(quote, QUOTE_TERMS_MIN)),
            *(turn for turn in turns if distinctive(turn, TURN_TERMS_MIN)),
        }
        place = [
            self.place(namespace, label, labels[column])
            for label, column in zip(ErasedText._fields[1:], LABELS, strict=True)
        ]
        return {ErasedText(self.digest(namespace, text), *place) for text in texts}
