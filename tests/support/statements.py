"""Statements of sources that are trusted differently."""

import re
from collections.abc import Iterator

from recall_server.application import Application
from recall_server.domain.episode import Source, Span
from recall_server.domain.extraction import Candidate, Extraction, Passage
from recall_server.domain.memory import Fact, Memory, MemoryType
from recall_server.services.memory.ingest import Submission
from tests.support.conversation import context, drained, memories

STATED = re.compile(
    r"(?P<who>[A-Z]\w+) (?:lives in (?P<city>\w+)|moved from (?P<old>\w+) to (?P<new>\w+))"
)


class Stating:
    """Proposes a memory of each statement word for word, whoever says it; as `over`, it cites the
    whole passage.
    """

    name = "stating/1"
    passage_chars = 1_000
    call_tokens_max = 0

    def __init__(self, *, over: bool = False) -> None:
        self.over = over

    async def extract(self, passage: Passage) -> Extraction:
        return Extraction(tuple(self._found(passage)), self.name)

    def _found(self, passage: Passage) -> Iterator[Candidate]:
        first, last = passage.turns[0].span, passage.turns[-1].span
        for found in STATED.finditer(passage.text):
            city = found["city"] or found["new"]
            yield Candidate(
                f"{found['who']} lives in {city}.",
                MemoryType.FACT,
                Span(first.start, last.end) if self.over else Span(*found.span()),
                Fact(found["who"], "lives_in", city),
                correction=found["old"] is not None,
                replaces=found["old"],
            )

    async def close(self) -> None:
        """Do nothing: nothing is open."""


async def tell(
    application: Application, text: str, *, session: str | None = None, agent: str | None = None
) -> str:
    source = Source(session, agent)
    accepted = await application.services.ingest.remember(
        context(application), Submission(text, "life", source=source)
    )
    await drained(application)
    return accepted.episode_id


async def cities(application: Application) -> dict[str, Memory]:
    return {one.fact.value: one for one in await memories(application) if one.fact}
