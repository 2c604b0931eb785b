"""Judging by a language model: builds the request from the two sides of a contradiction, and reads
the answer as untrusted input.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from recall_server.domain.errors import ModelAnswerInvalid
from recall_server.domain.memory import Memory
from recall_server.domain.plan import Choice, Question
from recall_server.domain.security.screening import orders
from recall_server.integrations.extraction.extractor import REASON_CHARS_MAX, Judge, Judgement
from recall_server.integrations.llm import Line, ModelRole, json_object

# As much as a merge sends at most.
SIDES_CHARS_MAX = 20_000


class Side(StrEnum):
    """The choices of a model."""

    NEWER = "newer"
    OLDER = "older"
    KEEP_BOTH = "keep_both"
    UNSURE = "unsure"


OUTPUT = json_object(
    {
        "reason": {"type": "string"},
        "choice": {"type": "string", "enum": [side.value for side in Side]},
        "confidence": {"type": "number"},
    }
)


class ModelJudge(ModelRole, Judge):
    """The port `Judge` over a language model."""

    role = "judge"

    async def judge(self, question: Question) -> Judgement:
        sides = _sides_as_data(question)
        if len(sides) > SIDES_CHARS_MAX:
            return Judgement(None, self.name, refused="The statements are too long to be sent.")
        said, usage = await self._ask(Said, OUTPUT, sides=sides)
        if isinstance(said, ModelAnswerInvalid):
            return Judgement(None, self.name, usage=usage, refused=said.message)
        if found := orders(said.reason):
            return Judgement(None, self.name, usage=usage, refused=f"Its reason {found[0]}.")
        choice = _choice(said.choice, question)
        return Judgement(choice, self.name, said.reason, said.confidence, usage)


class Said(BaseModel):
    """An answer, without characters that cannot be stored."""

    model_config = ConfigDict(strict=True, extra="forbid")

    reason: Annotated[Line, Field(min_length=1, max_length=REASON_CHARS_MAX)]
    choice: Annotated[Side, Field(strict=False)]
    confidence: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


def _new_is_newer(question: Question) -> bool:
    """True if nothing that the new statement contradicts was said later."""
    return question.new.said_at >= max(one.said_at for one in question.existing)


def _choice(side: Side, question: Question) -> Choice | None:
    match side:
        case Side.KEEP_BOTH:
            return Choice.KEEP_BOTH
        case Side.UNSURE:
            return None
        case _:
            new = (side is Side.NEWER) is _new_is_newer(question)
            return Choice.KEEP_NEW if new else Choice.KEEP_EXISTING


def _sides_as_data(question: Question) -> str:
    """Return all text of others as one JSON document."""
    existing = sorted(question.existing, key=lambda one: (one.said_at, one.id))
    sides: list[Sequence[Memory]] = [existing, [question.new]]
    if not _new_is_newer(question):
        sides.reverse()
    older, newer = ([_as_data(one) for one in side] for side in sides)
    document = {"older": older, "newer": newer, "doubt": question.reason}
    return json.dumps(document, ensure_ascii=False)


def _as_data(memory: Memory) -> dict[str, object]:
    return {
        "text": memory.text,
        "words": memory.citation.quote,
        "speaker": memory.citation.speaker,
        "said_at": memory.said_at.isoformat(timespec="minutes"),
        "true_from": f"{memory.valid_from:%Y-%m-%d}",
        "fact": memory.fact and asdict(memory.fact),
    }
