"""The tables of webhooks: where the events of a namespace are sent, and those that wait."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from recall_server.domain.permissions import Bearer
from recall_server.domain.webhook import WebhookKind
from recall_server.storage.bound_connection import BoundTable
from recall_server.storage.driver import Document, Row, document, moment, moment_or_none
from recall_server.storage.tables.jobs import PUSH


@dataclass(frozen=True)
class Registration:
    """A webhook: what it is told of, and where. `secret` is sealed. It is told what lies behind
    `delivered_seq`, until it is dead; `failures` are those since the last delivery, and
    `error_code` that of the last one. It ends with the token that registered it, its `bearer`.
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
    """An event that waits. Of a memory, `seq` is that of its memory event."""

    seq: int
    kind: WebhookKind
    item_id: str
    at: datetime


class Webhooks(BoundTable):
    """The events are written with what happened, and sent by one job for each webhook."""

    async def add(self, new: Registration) -> Registration:
        """Write it, to be told of what happens from now on; returns it as it now is."""
        rows = await self._bound.fetch(
            "add_webhook",
            id=new.id,
            url=new.url,
            kinds=Document(list(new.kinds)),
            include_text=int(new.include_text),
            secret=new.secret,
            now=new.created_at,
            accessor=new.bearer and new.bearer.name,
            token_ends_at=new.bearer and new.bearer.until,
        )
        return _registration(rows[0])

    async def get(self, webhook_id: str) -> Registration | None:
        rows = await self._bound.fetch("webhook", id=webhook_id)
        return _registration(rows[0]) if rows else None

    async def all(self) -> list[Registration]:
        """Those of the namespace, the oldest first."""
        return [_registration(row) for row in await self._bound.fetch("webhooks")]

    async def remove(self, webhook_id: str) -> bool:
        """False where there is none."""
        return await self._bound.touched("remove_webhook", id=webhook_id)

    async def remove_of(self, tokens: Sequence[str]) -> int:
        """Remove those that these tokens have registered; how many there were."""
        return len(await self._bound.fetch("remove_webhooks_of", tokens=list(tokens)))

    def tell(self, kind: WebhookKind, item_id: str, at: datetime) -> None:
        """Have the webhooks told of it with this transaction: see `BoundConnection.tell`."""
        self._bound.tell(kind, item_id, at)

    async def keep(self, events: Sequence[WebhookEvent], now: datetime) -> None:
        """Keep those of these events that a webhook is told of, and queue what sends them."""
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
        """The first event that it is still to be told of."""
        rows = await self._bound.fetch(
            "next_webhook_event", after=one.delivered_seq, kinds=list(one.kinds)
        )
        return _event(rows[0]) if rows else None

    async def pending(self, one: Registration, limit: int) -> int:
        """How many events wait for it; counted up to `limit`."""
        rows = await self._bound.fetch(
            "pending_webhook_events", after=one.delivered_seq, kinds=list(one.kinds), limit=limit
        )
        return int(rows[0]["events"])

    async def delivered(self, webhook_id: str, seq: int, at: datetime | None) -> bool:
        """It has been told, or None: there was nothing left to tell. False where it was before, or
        is gone.
        """
        return await self._bound.touched(
            "webhook_delivered", id=webhook_id, seq=seq, delivered_at=at
        )

    async def failed(self, webhook_id: str, code: str, *, dead: bool) -> None:
        """It was not told, and if it is `dead`, will not be."""
        await self._bound.send("webhook_failed", id=webhook_id, code=code, dead=int(dead))

    async def revive(self, webhook_id: str) -> None:
        """Tell a dead one of what happens from now on."""
        await self._bound.send("revive_webhook", id=webhook_id)

    async def drop_sent(self) -> None:
        """Drop the events that no webhook is still to be told of."""
        await self._bound.send("drop_sent_webhook_events")


def _registration(row: Row) -> Registration:
    return Registration(
        id=row["id"],
        url=row["url"],
        kinds=tuple(map(WebhookKind, document(row["kinds"]))),
        include_text=bool(row["include_text"]),
        secret=bytes(row["secret"]),
        created_at=moment(row["created_at"]),
        bearer=row["accessor"]
        and Bearer(
            row["accessor"], moment(row["created_at"]), moment_or_none(row["token_ends_at"])
        ),
        active=row["state"] == "active",
        error_code=row["error_code"],
        failures=row["failures"],
        delivered_seq=row["delivered_seq"],
        delivered_at=moment_or_none(row["delivered_at"]),
    )


def _event(row: Row) -> WebhookEvent:
    return WebhookEvent(row["seq"], WebhookKind(row["kind"]), row["item_id"], moment(row["at"]))
