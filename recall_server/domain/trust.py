"""The trust in the evidence of a memory, and its corroboration by a second statement.

A person's statement is never replaced by what a program fetched or a model said. A repetition by
the same author, or in the same source, is no further evidence.
"""

import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple

from recall_server.domain.episode import Citation, Span
from recall_server.domain.memory import Memory

_FETCHERS = frozenset(
    {"tool", "tools", "function", "plugin", "web", "webpage", "website", "browser", "crawler"}
    | {"scraper", "search", "retriever", "retrieval"}
)
_MODELS = frozenset(
    {"assistant", "ai", "llm", "gpt", "chatgpt", "claude", "gemini", "copilot", "bot", "chatbot"}
    | {"agent", "model", "system"}
)
_FETCHING_AGENT = re.compile(r"(?:tool|web):", re.IGNORECASE)


class Trust(IntEnum):
    """Trust by origin, lowest first."""

    FETCHED = 0
    """The output of a tool or a web page: anybody may have written it."""
    MODEL = 1
    """An assistant's words: it may repeat this server's memories or what it fetched."""
    PERSON = 2
    """A person's words, or a text without a named speaker."""


class Witness(NamedTuple):
    """Words that support a memory, with their origin."""

    episode_id: str
    span: Span
    speaker: str | None = None
    session_id: str | None = None
    agent_id: str | None = None

    @property
    def trust(self) -> Trust:
        return trust_of(self.speaker, self.agent_id)

    @property
    def author(self) -> str:
        """The normalized author; all unknown speakers of an agent are one author."""
        agent = (self.agent_id or "").casefold()
        if self.speaker is None or _FETCHING_AGENT.match(agent):
            return agent
        return " ".join(self.speaker.casefold().split())

    @property
    def source(self) -> str:
        """The session, or the episode if there is none."""
        return self.session_id or self.episode_id


@lru_cache(1_024)
def trust_of(speaker: str | None, agent_id: str | None) -> Trust:
    """Return the trust of a speaker's label and of the submitting agent. An agent called "tool:…"
    or "web:…" fetched the whole text, whichever speaker it names.
    """
    if _FETCHING_AGENT.match(agent_id or ""):
        return Trust.FETCHED
    words = re.findall(r"[^\W\d_]{2,}", (speaker or "").casefold()) or [""]
    if _FETCHERS.intersection((words[0], words[-1])):
        return Trust.FETCHED
    # Only the last word counts: "Claude" and "AI assistant", but not "Claude Monet".
    return Trust.MODEL if words[-1] in _MODELS else Trust.PERSON


class Repetition(NamedTuple):
    """Words that state a memory again."""

    citation: Citation
    said_at: datetime
    witness: Witness


def witness(memory: Memory) -> Witness:
    """Return the first witness of a memory, from its own fields."""
    cited = memory.citation
    return Witness(
        cited.episode_id,
        cited.span,
        cited.speaker,
        memory.source.session_id,
        memory.source.agent_id,
    )


def least_trusted(witnesses: Sequence[Witness]) -> Witness:
    return min(witnesses, key=lambda one: one.trust)


def trust(witnesses: Iterable[Witness]) -> Trust:
    """Return the trust of the best of these witnesses; PERSON if there is none."""
    return max((one.trust for one in witnesses), default=Trust.PERSON)


def corroborates(new: Witness, earlier: Sequence[Witness]) -> bool:
    """True if `new` is independent evidence: by another author in another source, and trusted at
    least as much as the `earlier` ones. A model's words never are, as it may repeat this server.
    """
    return _Earlier(earlier).corroborated_by(new)


def corroborations(witnesses: Sequence[Witness]) -> int:
    """Return how many of these witnesses, in order, are independent evidence besides the first."""
    before, found = _Earlier(witnesses[:1]), 0
    for one in witnesses[1:]:
        found += before.corroborated_by(one)
        before.add(one)
    return found


class _Earlier:
    """The witnesses of a statement until now: a merge may have thousands, so each new one is not
    compared with each.
    """

    def __init__(self, witnesses: Sequence[Witness]) -> None:
        self._most = trust(witnesses)
        self._authors = {one.author for one in witnesses}
        self._sources = {one.source for one in witnesses}

    def corroborated_by(self, new: Witness) -> bool:
        apart = new.author not in self._authors and new.source not in self._sources
        return apart and new.trust is not Trust.MODEL and new.trust >= self._most

    def add(self, witness: Witness) -> None:
        self._most = max(self._most, witness.trust)
        self._authors.add(witness.author)
        self._sources.add(witness.source)
