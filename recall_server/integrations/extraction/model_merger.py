"""Merging by a language model: builds the request from memories, and reads the answer as untrusted
input, which may neither lose nor make up a number, a name, a date or a denial.
"""

from __future__ import annotations

import asyncio
import json
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from recall_server.domain.context import Compute
from recall_server.domain.errors import ModelAnswerInvalid
from recall_server.domain.memory import Memory
from recall_server.domain.security.screening import orders
from recall_server.domain.similarity import negations
from recall_server.domain.text.terms import terms
from recall_server.integrations.extraction.extractor import MERGED_CHARS_MAX, Merged, Merger
from recall_server.integrations.extraction.rules.merge import NAME as RULES
from recall_server.integrations.extraction.rules.merge import all_said
from recall_server.integrations.llm import Line, ModelApi, ModelRole, Prompt, json_object

OUTPUT = json_object({"text": {"type": "string"}})


class ModelMerger(ModelRole, Merger):
    """The port `Merger` over a language model.

    If one memory says what all others do, or the texts are too long, the rules decide without a
    call. An unusable answer is no error here.
    """

    role = "merge"

    def __init__(
        self, api: ModelApi, *, prompt: Prompt, compute: Compute = asyncio.to_thread
    ) -> None:
        super().__init__(api, prompt=prompt)
        self._compute = compute

    async def merge(self, memories: Sequence[Memory]) -> Merged | None:
        said = await all_said(memories, self._compute)
        if len(said.sources) < 2:
            return None if said.text is None else Merged(said.text, RULES)
        documents = _memories_as_data(said.sources)
        answer, usage = await self._ask(Proposal, OUTPUT, memories=documents)
        if isinstance(answer, ModelAnswerInvalid):
            refused = ["is not there"]
        else:
            refused = objections(answer.text, said.sources)
            if not refused:
                return Merged(answer.text, self.name, usage)
        return None if said.text is None else Merged(said.text, RULES, usage, tuple(refused))

    async def preview(self, memories: Sequence[Memory]) -> Merged | None:
        said = await all_said(memories, self._compute)
        if len(said.sources) < 2:
            return None if said.text is None else Merged(said.text, RULES)
        texts = " ".join(memory.text for memory in said.sources)
        draft = f"To be written by {self.name} from: {texts}"
        return Merged(draft[:MERGED_CHARS_MAX], self.name, draft=True)


def _memories_as_data(memories: Sequence[Memory]) -> str:
    """Return all text of others as one JSON document."""
    documents = [
        {
            "text": memory.text,
            "said_at": f"{memory.said_at:%Y-%m-%d}",
            "fact": memory.fact and asdict(memory.fact),
        }
        for memory in memories
    ]
    return json.dumps({"memories": documents}, ensure_ascii=False)


class Proposal(BaseModel):
    """The text of an answer, without characters that cannot be stored."""

    model_config = ConfigDict(strict=True, extra="forbid")

    text: Annotated[Line, Field(min_length=1, max_length=MERGED_CHARS_MAX)]


def objections(text: str, memories: Sequence[Memory]) -> list[str]:
    """Return why `text` may not replace `memories`, each reason as the end of a sentence.

    Numbers (with sign, currency, per cent, am or pm), and all words of names, dates and
    identifiers, are in both or in neither; values of facts are not lost; it denies something if and
    only if they do. This is a signal, not a proof: other words may still have changed.
    """
    said = " ".join(memory.text for memory in memories)
    words, said_terms = frozenset(terms(text)), frozenset(terms(said))
    figures, said_figures = frozenset(_figures(text)), frozenset(_figures(said))
    denials = [negations(memory.text) > 0 for memory in memories]
    checks = (
        ("loses a number", said_figures <= figures),
        ("makes up a number", figures <= said_figures),
        ("loses a name or a date", _names(said) <= words),
        ("makes up a name or a date", _names(_OPENING.sub(" ", text)) <= said_terms),
        ("loses the value of a fact", all(_values(memory) <= words for memory in memories)),
        ("denies what was not denied, or the reverse", (negations(text) > 0) == any(denials)),
    )
    return [*orders(text), *(reason for reason, kept in checks if not kept)]


# Bounded: a run of signs without a number would be read again from each of them.
_SIGN = r"(?:[-−±~≈=<>≤≥+#$€£¥₹]|(?<=[~≈=<>≤≥$€£¥₹])\s){0,8}"
_FIGURE = re.compile(
    rf"(?:(?<!\w){_SIGN})?\d+(?:[.,:/-]\d+)*(?:\s?[%‰°€£¥₹$]|\s?[ap]\.?m\b)?", re.IGNORECASE
)
_GROUPING = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")


def _figures(text: str) -> Iterator[str]:
    """Yield the numbers of a text in one form: "1,200" is "1200", "9:30 p.m." is "9:30pm"."""
    plain = _GROUPING.sub("", unicodedata.normalize("NFKC", text))
    for found in _FIGURE.finditer(plain):
        yield re.sub(r"\s|(?<=[ap])\.", "", found[0].casefold())


_OPENING = re.compile(r"(?:^|(?<=[.!?…;:]\s))\W*\w+")
_TIME = re.compile(
    r"\b(?:(?:mon|tues|wednes|thurs|fri|satur|sun)days?|january|february|april|june|july|august"
    r"|september|october|november|december)\b",
    re.IGNORECASE,
)
_IDENTIFIER = re.compile(r"[^\W\d]\d|\d[^\W\d]|\w[._@/\\=+&:]\w")


def _names(text: str) -> frozenset[str]:
    """Return the terms of all words that have a capital, name a day or a month ("may" and "march"
    need the capital), or are identifiers: "v2", "snake_case", "node.js".
    """
    chunks = (
        chunk
        for chunk in text.split()
        if chunk != chunk.lower() or _TIME.search(chunk) or _IDENTIFIER.search(chunk)
    )
    # Capitalized function words give terms only if they stand alone.
    return frozenset(terms(" ".join(chunks))).intersection(terms(text))


def _values(memory: Memory) -> frozenset[str]:
    """Return the terms of a fact's value that are also in the memory's text."""
    value = memory.fact.value if memory.fact else ""
    return frozenset(terms(value)).intersection(terms(memory.text))
