"""The tables of webhooks: where the events of a namespace are sent, and the events that wait."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from recall_server.domain.permissions import Bearer
from recall_server.domain.webhook import WebhookKind
from recall_server.storage.bound_connection import BoundTable
from recall_server.storage.driver import Document, bearer, reader, registered_by
from recall_server.storage.tables.jobs import PUSH


@dataclass(frozen=True)
class Registration:
    """A webhook: which events are sent to it, and where. `secret` is encrypted. Events after
    `delivered_seq` are still to be sent, unless it is dead. `failures` counts those since the last
    delivery, and `error_code` is that of the last failure. It ends with the token that registered
    it, its `bearer`.
    """

    id: str
    url: str
    kinds: tuple[WebhookKind, ...]
    include_text: bool
    secret: bytes = field(repr=False)
    created_at: datetime
    bearer: Bearer | None = None
    active: bool = True
    error_code: str | None = None
    failures: int = 0
    delivered_seq: int = 0
    delivered_at: datetime | None = None


@dataclass(frozen=True)
class WebhookEvent:
    """An event to be sent. For an event of a memory, `seq` is that of its memory event."""

    seq: int
    kind: WebhookKind
    item_id: str
    at: datetime


class Webhooks(BoundTable):
    """The events are written in the transaction that causes them, and sent by one job for each
    webhook.
    """

    async def add(self, new: Registration) -> Registration:
        """Register a webhook for events from now on. Return it as stored."""
        given = vars(new) | registered_by(new.bearer) | {"kinds": Document(list(new.kinds))}
        given["include_text"] = int(new.include_text)
        rows = await self._bound.fetch("add_webhook", **given)
        return _registration(rows[0])

    async def get(self, webhook_id: str) -> Registration | None:
        return await self._first(_registration, "webhook", id=webhook_id)

    async def all(self) -> list[Registration]:
        """Return the webhooks of the namespace, the oldest first."""
        return await self._all(_registration, "webhooks")

    async def remove(self, webhook_id: str) -> bool:
        """Remove a webhook. Return False if there is none."""
        return await self._bound.touched("remove_webhook", id=webhook_id)

    async def remove_of(self, tokens: Sequence[str]) -> int:
        """Remove the webhooks that these tokens have registered. Return how many."""
        return len(await self._bound.fetch("remove_webhooks_of", tokens=list(tokens)))

    def tell(self, kind: WebhookKind, item_id: str, at: datetime) -> None:
        """Notify the webhooks if this transaction commits: see `BoundConnection.tell`."""
        self._bound.tell(kind, item_id, at)

    async def keep(self, events: Sequence[WebhookEvent], now: datetime) -> None:
        """Store those of these events that a webhook wants, and queue the jobs that send them."""
        if not events:
            return
        rows = [
            [one.seq, one.kind, one.item_id, one.at.isoformat(timespec="microseconds")]
            for one in events
        ]
        await self._bound.send("keep_webhook_events", events=Document(rows))
        kinds = sorted({one.kind for one in events})
        if await self._bound.touched("promise_webhooks", kind=PUSH, kinds=kinds, now=now):
            self._bound.note_due(now, pushes=True)

    async def next(self, one: Registration) -> WebhookEvent | None:
        """Return the first event that is still to be sent to a webhook."""
        wanted = {"after": one.delivered_seq, "kinds": list(one.kinds)}
        return await self._first(reader(WebhookEvent), "next_webhook_event", **wanted)

    async def pending(self, one: Registration, limit: int) -> int:
        """Return how many events wait for a webhook, counted up to `limit`."""
        wanted = {"after": one.delivered_seq, "kinds": list(one.kinds), "limit": limit}
        return await self._int("events", "pending_webhook_events", **wanted)

    async def delivered(self, webhook_id: str, seq: int, at: datetime | None) -> bool:
        """Note that events up to `seq` were delivered at `at`; None: there was nothing to send.
        Return False if that was noted before, or the webhook is gone.
        """
        return await self._bound.touched(
            "webhook_delivered", id=webhook_id, seq=seq, delivered_at=at
        )

    async def failed(self, webhook_id: str, code: str, *, dead: bool) -> None:
        """Note a failed delivery. A `dead` webhook gets no further events."""
        await self._bound.send("webhook_failed", id=webhook_id, code=code, dead=int(dead))

    async def revive(self, webhook_id: str) -> None:
        """Make a dead webhook active again, for events from now on."""
        await self._bound.send("revive_webhook", id=webhook_id)

    async def drop_sent(self) -> None:
        """Delete the events that no webhook waits for."""
        await self._bound.send("drop_sent_webhook_events")


_registration = reader(Registration, bearer=bearer, active=lambda row: row["state"] == "active")
