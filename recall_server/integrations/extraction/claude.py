"""Extraction by Claude: builds the request from a passage and reads memories from the answer.

This module imports `anthropic`, which takes a second or two: import it only if a key is set.
"""

from __future__ import annotations

import json
import secrets
from typing import Unpack

from recall_server.domain.extraction import Extraction
from recall_server.integrations.extraction.claude_answer import OUTPUT, entries_of, read_entries
from recall_server.integrations.extraction.extractor import Passage
from recall_server.integrations.llm.claude_api import CALL_TOKENS_MAX, ClaudeApi, Connection, Prompt

# About a thousand tokens: seldom more than five memories; the prompt is twice as long.
PASSAGE_CHARS = 4_000


class ClaudeExtractor:
    """The port `Extractor` over the Messages API; `ClaudeApi` describes failures and retries."""

    def __init__(
        self, *, prompt: Prompt, attributes: str, **connection: Unpack[Connection]
    ) -> None:
        self._prompt = prompt
        self._attributes = attributes
        self._claude = ClaudeApi(**connection)

    @property
    def call_tokens_max(self) -> int:
        """Upper bound of the tokens of one call, for the budget; extractors without it are free."""
        return CALL_TOKENS_MAX

    @property
    def name(self) -> str:
        return f"anthropic/{self._claude.model}/{self._prompt.version}"

    @property
    def passage_chars(self) -> int:
        return PASSAGE_CHARS

    async def extract(self, passage: Passage) -> Extraction:
        """Propose memories; a passage without turns costs no call."""
        if not passage.turns:
            return Extraction(candidates=(), extractor=self.name)
        system, user = self._prompt.fill(
            attributes=self._attributes,
            date=f"{passage.occurred_at:%A, %Y-%m-%d}",
            nonce=secrets.token_hex(8),
            passage=_as_data(passage),
        )
        answer = await self._claude.ask(system, user, OUTPUT)
        candidates, rejected = read_entries(entries_of(answer.content), passage)
        return Extraction(candidates, self.name, rejected, answer.usage)

    async def close(self) -> None:
        await self._claude.close()


def _as_data(passage: Passage) -> str:
    """Return all text of others, with topic and speakers, as one JSON document."""
    turns = [
        {
            "turn": turn.index,
            "speaker": turn.speaker,
            "said_at": turn.said_at and turn.said_at.isoformat(timespec="minutes"),
            "text": passage.text[turn.span.start : turn.span.end],
        }
        for turn in passage.turns
    ]
    return json.dumps({"topic": passage.topic, "turns": turns}, ensure_ascii=False)
