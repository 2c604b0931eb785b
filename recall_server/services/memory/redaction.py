"""Secrets are written over before anything is kept of a text: memory must not become the place
where keys are found (FEATURES I18).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from recall_server.domain.audit import AuditEntry
from recall_server.domain.task import Message
from recall_server.integrations.redaction import Redactor


@dataclass(frozen=True)
class Redaction:
    """The one way in which text is made fit to keep; without a redactor it is kept as it is."""

    redactor: Redactor | None

    async def text(self, text: str, entry: AuditEntry) -> str:
        """The text to keep; the line in the book counts what was masked in it."""
        if self.redactor is None or not text:
            return text
        masked, count = await self.redactor.redact(text)
        if count:
            entry.counts["masked"] = entry.counts.get("masked", 0) + count
        return masked

    async def ready(self) -> None:
        """Load what takes long, before anybody waits for it."""
        if self.redactor is not None:
            await self.redactor.ready()

    async def message(self, message: Message, entry: AuditEntry) -> Message:
        """What is kept of a client's words, as its protocol spells them."""
        return Message(message.id, await self._within(message.document, entry))

    async def value(self, value: Any, entry: AuditEntry) -> Any:
        """The same JSON value, with every text in it masked."""
        if isinstance(value, str):
            return await self.text(value, entry)
        if isinstance(value, Mapping):
            return await self._within(value, entry)
        if isinstance(value, list):
            return [await self.value(one, entry) for one in value]
        return value

    async def _within(self, value: Mapping[str, Any], entry: AuditEntry) -> dict[str, Any]:
        return {name: await self.value(one, entry) for name, one in value.items()}
