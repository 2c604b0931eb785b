"""Data sets of conversations and questions about them, read from a folder."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from recall_server.domain.episode import Span
from recall_server.domain.errors import Invalid

DOCS, QUESTIONS = "docs.jsonl", "queries.jsonl"
# The category of questions about what was never said: finding nothing is right.
UNANSWERABLE = frozenset({"adversarial"})

SENTENCE_MIN = 20

_Line = TypeVar("_Line")


@dataclass(frozen=True)
class Doc:
    """One turn of one speaker; `id` is unique within its corpus."""

    corpus: str
    id: str
    text: str
    timestamp: datetime
    speaker: str
    session: str
    caption: str | None = None

    @property
    def sentences(self) -> list[str]:
        """Return the sentences that say something; for a doc of only short ones, all of it."""
        text = " ".join(self.text.split())
        said = [one for one in re.split(r"(?<=[.!?])\s+", text) if len(one) >= SENTENCE_MIN]
        return said or [text]

    @property
    def line(self) -> str:
        """Return the line of a transcript; a line break in it would make another turn."""
        picture = f"[image: {self.caption}]" if self.caption else ""
        return " ".join(f"{self.speaker}: {self.text} {picture}".split())


@dataclass(frozen=True)
class Question:
    """A question, and the docs that hold its answer."""

    id: str
    corpus: str
    text: str
    gold: tuple[str, ...]
    category: str

    @property
    def counts(self) -> bool:
        """True if there is an answer to be found."""
        return bool(self.gold) and self.category not in UNANSWERABLE


@dataclass(frozen=True)
class Session:
    """The docs of one sitting, in order."""

    corpus: str
    id: str
    docs: tuple[Doc, ...]

    @property
    def text(self) -> str:
        """Return the session as a transcript: a heading with its date, then a line for each doc."""
        at = self.docs[0].timestamp
        return "\n".join([f"{at.day} {at:%B %Y %I:%M %p}", *(doc.line for doc in self.docs)])

    def places(self, text: str) -> list[tuple[Span, str]]:
        """Return the place of each doc in the transcript as it was stored, where some may be
        redacted.

        Raises `Invalid` if the transcript has other lines.
        """
        lines = text.split("\n")
        if len(lines) != len(self.docs) + 1:
            raise Invalid(f"{self.corpus} {self.id} was not stored line by line.")
        places, start = [], len(lines[0]) + 1
        for doc, line in zip(self.docs, lines[1:], strict=True):
            places.append((Span(start, start + len(line)), doc.id))
            start += len(line) + 1
        return places


@dataclass(frozen=True)
class DataSet:
    """Conversations, and questions about them."""

    sessions: tuple[Session, ...]
    questions: tuple[Question, ...]

    @property
    def corpora(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(session.corpus for session in self.sessions))

    @property
    def after(self) -> datetime:
        """A day after everything was said."""
        said = (doc.timestamp for session in self.sessions for doc in session.docs)
        return max(at.replace(tzinfo=at.tzinfo or UTC) for at in said) + timedelta(days=1)

    @cached_property
    def _docs(self) -> Mapping[tuple[str, str], Doc]:
        return {(doc.corpus, doc.id): doc for one in self.sessions for doc in one.docs}

    def said_in(self, corpus: str, docs: Collection[str], text: str) -> frozenset[str]:
        """Return the docs of which a sentence is in the text."""
        plain = " ".join(text.split())
        return frozenset(
            one for one in docs if any(said in plain for said in self._docs[corpus, one].sentences)
        )

    def elsewhere(self) -> tuple[Question, ...]:
        """Return the questions with an answer for the corpus after theirs, with the names of its
        people in place of their own: their answer was never said there. With only one corpus there
        are none.
        """
        corpora = self.corpora
        if len(corpora) < 2:
            return ()
        people = {
            corpus: sorted({d.speaker for s in self.sessions if s.corpus == corpus for d in s.docs})
            for corpus in corpora
        }
        following = dict(zip(corpora, (*corpora[1:], corpora[0]), strict=True))
        moved = []
        for one in self.questions:
            other = following[one.corpus]
            names = dict(zip(people[one.corpus], people[other], strict=False))
            if one.counts:
                text = _renamed(one.text, names)
                moved.append(replace(one, corpus=other, gold=(), text=text))
        return tuple(moved)


def _renamed(text: str, names: Mapping[str, str]) -> str:
    if not names:
        return text
    known = re.compile("|".join(map(re.escape, sorted(names, key=len, reverse=True))))
    return known.sub(lambda match: names[match[0]], text)


def read(folder: Path) -> DataSet:
    """Read the data set of a folder with `docs.jsonl` and `queries.jsonl`. Raises `Invalid`."""
    docs = read_lines(folder / DOCS, TypeAdapter(Doc))
    questions = read_lines(folder / QUESTIONS, TypeAdapter(Question))
    sessions = tuple(
        Session(corpus, session, tuple(group))
        for (corpus, session), group in groupby(docs, key=lambda doc: (doc.corpus, doc.session))
    )
    known = {(doc.corpus, doc.id) for doc in docs}
    for question in questions:
        if any((question.corpus, doc) not in known for doc in question.gold):
            raise Invalid(f"{question.id} names a doc as its evidence that {DOCS} does not have.")
    return DataSet(sessions, tuple(questions))


def read_lines(file: Path, adapter: TypeAdapter[_Line]) -> Sequence[_Line]:
    """Yield every line of a file; there is at least one."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise Invalid(f"{file} cannot be read: {error.strerror}.") from None
    found = []
    for number, line in enumerate(lines, 1):
        try:
            found.append(adapter.validate_json(line))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise Invalid(f"{file}, line {number}: {where or 'JSON'}: {first['msg']}.") from None
    if not found:
        raise Invalid(f"{file} is empty.")
    return found
