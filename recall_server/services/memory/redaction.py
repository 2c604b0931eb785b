"""Redacts secrets before any part of a text is stored."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from recall_server.domain.audit import AuditEntry
from recall_server.domain.task import Message
from recall_server.integrations.redaction import Redactor


@dataclass(frozen=True)
class Redaction:
    """Redacts text and JSON; without a redactor, text stays as it is."""

    redactor: Redactor | None

    async def text(self, text: str, entry: AuditEntry) -> str:
        """Return the redacted text; the audit record counts the secrets."""
        if self.redactor is None or not text:
            return text
        masked, count = await self.redactor.redact(text)
        if count:
            entry.counts["masked"] = entry.counts.get("masked", 0) + count
        return masked

    async def ready(self) -> None:
        """Load the rules before the first call."""
        if self.redactor is not None:
            await self.redactor.ready()

    async def message(self, message: Message, entry: AuditEntry) -> Message:
        """Return a client's message with every text in it redacted."""
        return Message(message.id, await self._object(message.document, entry))

    async def value(self, value: Any, entry: AuditEntry) -> Any:
        """Return the same JSON value with every text in it redacted."""
        if isinstance(value, str):
            return await self.text(value, entry)
        if isinstance(value, Mapping):
            return await self._object(value, entry)
        if isinstance(value, list):
            return [await self.value(one, entry) for one in value]
        return value

    async def _object(self, value: Mapping[str, Any], entry: AuditEntry) -> dict[str, Any]:
        return {name: await self.value(one, entry) for name, one in value.items()}
