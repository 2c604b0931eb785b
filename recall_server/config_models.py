"""The settings of the language models, and the thresholds: groups of `config.Settings`."""

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import AliasChoices, Field, SecretStr
from pydantic_settings import BaseSettings

from recall_server.domain.extraction import Role
from recall_server.domain.intents import Thresholds

ANTHROPIC_URL = "https://api.anthropic.com"


@dataclass(frozen=True)
class RoleModel:
    """The language model of a role. `named`, `key_variable`, `model_variable` and `url_variable`
    are for error messages: what has the role, and the settings that are missing or wrong.
    """

    provider: Literal["anthropic", "openai"]
    model: str | None
    url: str | None
    api_key: SecretStr | None
    deadline_s: float
    named: str
    model_variable: str
    url_variable: str
    key_variable: str


class ModelSettings(BaseSettings):
    """Each role may have a provider, model, address, key and deadline of its own. Where it has
    none, it takes that of the extractor.
    """

    extractor: Literal["auto", "rules", "anthropic", "openai"] = Field(
        "auto",
        description="what makes memories of text; auto: anthropic if there is a key; openai: any "
        "OpenAI-compatible server",
    )
    anthropic_api_key: SecretStr | None = Field(
        None,
        validation_alias=AliasChoices("ANTHROPIC_API_KEY", "anthropic_api_key"),
        description="for the extractor anthropic",
    )
    anthropic_base_url: str = Field(
        ANTHROPIC_URL,
        validation_alias=AliasChoices("ANTHROPIC_BASE_URL", "anthropic_base_url"),
        description="the address of the Messages API",
    )
    openai_api_key: SecretStr | None = Field(
        None,
        validation_alias=AliasChoices("OPENAI_API_KEY", "openai_api_key"),
        description="for the extractor openai, if its server asks for one",
    )
    openai_base_url: str | None = Field(
        None,
        validation_alias=AliasChoices("OPENAI_BASE_URL", "openai_base_url"),
        description="the address of the extractor openai, such as http://127.0.0.1:11434/v1; "
        "unset: that of OpenAI",
    )
    model: str | None = Field(
        None,
        description="the language model; unset: claude-haiku-4-5 for anthropic; openai needs one",
    )
    merge_provider: Literal["rules", "anthropic", "openai"] | None = Field(
        None, description="what merges memories; unset: what makes them"
    )
    merge_model: str | None = Field(
        None, description="the language model that merges memories; unset: that of RECALL_MODEL"
    )
    merge_url: str | None = Field(
        None, description="the address of that model; unset: that of its provider"
    )
    merge_api_key: SecretStr | None = Field(
        None, description="the key for it; unset: that of its provider, if RECALL_MERGE_URL is too"
    )
    merge_deadline_s: float | None = Field(
        None, gt=0, description="seconds for one call of it; unset: RECALL_MODEL_DEADLINE_S"
    )
    judge_provider: Literal["none", "anthropic", "openai"] | None = Field(
        None, description="what judges contradictions; unset: what makes memories, or none"
    )
    judge_model: str | None = Field(
        None,
        description="the language model that judges contradictions; unset: that of RECALL_MODEL",
    )
    judge_url: str | None = Field(
        None, description="the address of that model; unset: that of its provider"
    )
    judge_api_key: SecretStr | None = Field(
        None, description="the key for it; unset: that of its provider, if RECALL_JUDGE_URL is too"
    )
    judge_deadline_s: float | None = Field(
        None, gt=0, description="seconds for one call of it; unset: RECALL_MODEL_DEADLINE_S"
    )
    judge_confidence: float | None = Field(
        None,
        ge=0,
        le=1,
        description="how sure the language model must be to settle a dispute, such as 0.8; unset: "
        "it settles none",
    )
    model_fallback: Literal["none", "rules"] = Field(
        "none",
        description="what makes memories while the key of the language model is rejected; none: "
        "the texts wait for another key",
    )
    model_deadline_s: float = Field(60.0, gt=0, description="seconds for one call of the model")

    def model_of(self, role: Role) -> RoleModel | None:
        """Return the language model of a role; None if it has none."""

        def own(setting: str) -> Any:
            """The setting of the role; the extractor has those of all roles."""
            return None if role is Role.EXTRACT else getattr(self, f"{role}_{setting}")

        extracts = self.extractor
        if extracts == "auto":
            extracts = "rules" if self.anthropic_api_key is None else "anthropic"
        provider = own("provider") or extracts
        url: str | None
        if provider == "anthropic":
            url, key = self.anthropic_base_url, self.anthropic_api_key
        elif provider == "openai":
            url, key = self.openai_base_url, self.openai_api_key
        else:
            return None
        shared = self.model if extracts in {provider, "rules"} else None
        # The key of a provider is sent nowhere else.
        own_url, own_key = own("url"), own("api_key")
        key = own_key or (None if own_url else key)
        variable, theirs = f"RECALL_{role.upper()}", provider.upper()
        return RoleModel(
            provider,
            own("model") or shared,
            own_url or url,
            key,
            own("deadline_s") or self.model_deadline_s,
            _NAMED[role],
            "RECALL_MODEL" if role is Role.EXTRACT else f"{variable}_MODEL",
            f"{variable}_URL" if own_url else f"{theirs}_BASE_URL",
            f"{variable}_API_KEY" if own_key or own_url else f"{theirs}_API_KEY",
        )


_NAMED = {Role.EXTRACT: "extractor", Role.MERGE: "merger", Role.JUDGE: "judge"}


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
