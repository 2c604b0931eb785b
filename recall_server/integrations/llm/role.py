"""A role of a language model: what its extractor, its merger and its judge have in common."""

from typing import ClassVar

from recall_server.integrations.llm.model_api import CALL_TOKENS_MAX, ModelApi
from recall_server.integrations.llm.prompts import Prompt


class ModelRole:
    """A language model with the prompt of one role."""

    role: ClassVar[str] = ""
    """The part of the name that tells the role; extraction has none."""

    def __init__(self, api: ModelApi, *, prompt: Prompt) -> None:
        self._api = api
        self._prompt = prompt

    @property
    def name(self) -> str:
        parts = (self._api.vendor, self._api.model, self.role, str(self._prompt.version))
        return "/".join(filter(None, parts))

    @property
    def call_tokens_max(self) -> int:
        return CALL_TOKENS_MAX

    async def close(self) -> None:
        await self._api.close()
