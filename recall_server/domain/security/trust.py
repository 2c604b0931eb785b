"""How far what a memory rests on is trusted, and what speaks for it a second time.

A person's word is never replaced by what a program fetched or a model said (SECURITY LLM-03); who
says the same again is one witness, and not two (LLM-06).
"""

import re
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import NamedTuple

from recall_server.domain.episode import Span
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
    """Whose word it is, the least trusted first."""

    FETCHED = 0
    """The output of a tool, a page of the web: anybody may have written it."""
    MODEL = 1
    """An assistant's own words: it may have them from here, or from what it fetched."""
    PERSON = 2
    """A person's, or those of whoever handed in a text in which nobody is named."""


class Witness(NamedTuple):
    """Words that a memory rests on, with all that is known of whose they are."""

    episode_id: str
    span: Span
    speaker: str | None = None
    session_id: str | None = None
    agent_id: str | None = None

    @property
    def trust(self) -> Trust:
        """By the speaker's label, and by the agent who handed the text in: one that is called
        "tool:…" or "web:…" fetched all of it, whoever is said to speak there.
        """
        if _FETCHING_AGENT.match(self.agent_id or ""):
            return Trust.FETCHED
        words = re.findall(r"[^\W\d_]{2,}", (self.speaker or "").casefold()) or [""]
        if _FETCHERS.intersection((words[0], words[-1])):
            return Trust.FETCHED
        # By the last word alone: "Claude" and "AI assistant", but not "Claude Monet".
        return Trust.MODEL if words[-1] in _MODELS else Trust.PERSON

    @property
    def author(self) -> str:
        """Whose words they are; who is not known is one and the same."""
        agent = (self.agent_id or "").casefold()
        if self.speaker is None or _FETCHING_AGENT.match(agent):
            return agent
        return " ".join(self.speaker.casefold().split())

    @property
    def source(self) -> str:
        """Where they were said: a session, or else the text by itself."""
        return self.session_id or self.episode_id


def witness(memory: Memory) -> Witness:
    """Whose words a memory rests on first, as far as it tells by itself."""
    cited = memory.citation
    return Witness(cited.episode_id, cited.span, cited.speaker, memory.session_id, memory.agent_id)


def least(witnesses: Sequence[Witness]) -> Witness:
    """Of words that several speak, those of the least trusted of them."""
    return min(witnesses, key=lambda one: one.trust)


def trust(witnesses: Iterable[Witness]) -> Trust:
    """How far what rests on all of these is trusted: as far as the best of them."""
    return max((one.trust for one in witnesses), default=Trust.PERSON)


def corroborates(new: Witness, known: Sequence[Witness]) -> bool:
    """Whether `new` is evidence besides the `known`: another author in another place, as trusted as
    they are. What a model says is none, as it may have heard it from us.
    """
    return (
        new.trust is not Trust.MODEL
        and new.trust >= trust(known)
        and all(new.author != one.author and new.source != one.source for one in known)
    )


def corroborations(witnesses: Sequence[Witness]) -> int:
    """How many of these, in their order, are evidence besides the first."""
    return sum(corroborates(one, witnesses[:place]) for place, one in enumerate(witnesses) if place)
