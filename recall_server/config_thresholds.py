"""The settings that are thresholds, a group of `config.Settings`."""

from pydantic import Field
from pydantic_settings import BaseSettings

from recall_server.domain.thresholds import Thresholds


class ThresholdSettings(BaseSettings):
    """The defaults are those of `Thresholds`."""

    match_min: float = Field(
        Thresholds.match_min,
        gt=0,
        le=1,
        description="the least score of a memory that the words of a wish mean, to forget it or to "
        "find it said already",
    )
    correct_match_min: float = Field(
        Thresholds.correct_match_min,
        gt=0,
        le=1,
        description="the same for a correction, which shares fewer words with what it corrects",
    )
    match_coverage: float = Field(
        Thresholds.match_coverage,
        ge=0,
        le=1,
        description="how much of such a score is the share of the wish's words that the memory "
        "has; the rest is the share of the memory's words that the wish has",
    )
    doubted_max: float = Field(
        Thresholds.doubted_max,
        ge=0,
        le=1,
        description="the highest confidence of a memory that needs a review; a model's memory with "
        "no more waits for an answer if the policy is ask",
    )

    @property
    def thresholds(self) -> Thresholds:
        return Thresholds(
            self.match_min, self.correct_match_min, self.match_coverage, self.doubted_max
        )
