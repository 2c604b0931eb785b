"""A judge of contradictions that needs no language model."""

from dataclasses import dataclass, field

from recall_server.domain.extraction import Judge, Judgement, Usage
from recall_server.domain.plan import Choice, Question

BY = "scripted/large/judge/1"


@dataclass
class ScriptedJudge(Judge):
    """A judge that gives the same choice each time, or `by_turns` each of some."""

    choice: Choice | None = None
    confidence: float = 0.9
    by_turns: tuple[Choice | None, ...] = ()
    asked: list[Question] = field(default_factory=list)
    reason: str = "So it reads."
    name: str = BY
    call_tokens_max: int = 1_000

    async def judge(self, question: Question) -> Judgement:
        self.asked.append(question)
        turns = self.by_turns or (self.choice,)
        choice = turns[(len(self.asked) - 1) % len(turns)]
        return Judgement(choice, self.name, self.reason, self.confidence, Usage("large", 100, 10))

    async def close(self) -> None: ...
