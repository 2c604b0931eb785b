"""The messages of webhooks: composed from the tables for each delivery, so that they hold nothing
that was erased or forgotten since.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from recall_server.domain.moments import passed
from recall_server.domain.namespace import Namespace
from recall_server.domain.webhook import WebhookKind, signed
from recall_server.storage.store import Transaction
from recall_server.storage.tables.webhooks import Registration, WebhookEvent

Json = dict[str, Any]

_CONFLICTS = {WebhookKind.CONFLICT_OPENED, WebhookKind.CONFLICT_SETTLED}


def message(kind: str, at: datetime, namespace: Namespace, data: Json) -> bytes:
    """Return the body of a delivery."""
    moment = at.astimezone(UTC).isoformat(timespec="microseconds")
    body = {"type": kind, "timestamp": moment, "namespace": namespace, "data": data}
    return json.dumps(body, separators=(",", ":")).encode()


def headers_of(secret: str, message_id: str, now: datetime, body: bytes) -> Mapping[str, str]:
    return {"Content-Type": "application/json", **signed(secret, message_id, now, body)}


def place(namespace: Namespace, webhook_id: str, url: str) -> tuple[str, ...]:
    """Return what a webhook's secret is bound to: a changed row or address makes it unreadable."""
    return namespace, webhook_id, url


async def compose(
    tx: Transaction, namespace: Namespace, one: Registration, event: WebhookEvent, now: datetime
) -> bytes | None:
    """Return the body of an event as of now; None if its subject is gone."""
    data = await _data(tx, one, event, now)
    return None if data is None else message(event.kind, event.at, namespace, data)


async def _data(
    tx: Transaction, one: Registration, event: WebhookEvent, now: datetime
) -> Json | None:
    if event.kind in _CONFLICTS:
        return await _conflict(tx, one, event.item_id, now)
    if event.kind is WebhookKind.ERASURE_COMPLETED:
        erasure = await tx.erasures.get(event.item_id)
        return {"id": erasure.id, "kind": erasure.kind} if erasure else None
    if event.kind is WebhookKind.EXTRACTION_COMPLETED:
        return await _extraction(tx, event.item_id)
    if event.kind.startswith("task."):
        return {"id": event.item_id} if await tx.tasks.get(event.item_id) else None
    return await _memory(tx, one, event, now)


async def _memory(
    tx: Transaction, one: Registration, event: WebhookEvent, now: datetime
) -> Json | None:
    happened = await tx.events.numbered(event.seq)
    if happened is None:
        return None
    texts = await _texts(tx, one, [event.item_id], now)
    superseded_by = happened.state and happened.state.superseded_by
    return {
        "id": happened.item_id,
        "change_id": happened.change_id,
        "operation": happened.operation,
        "by": happened.accessor,
        **({"text_id": happened.episode_id} if happened.episode_id else {}),
        **({"status": happened.state.status} if happened.state else {}),
        **({"superseded_by": superseded_by} if superseded_by else {}),
        **({"text": text} if (text := texts.get(event.item_id)) else {}),
    }


async def _conflict(
    tx: Transaction, one: Registration, question_id: str, now: datetime
) -> Json | None:
    sides = await tx.disputes.sides(question_id)
    texts = await _texts(tx, one, [memory_id for memory_id, _ in sides], now)
    memories = [
        {"id": memory_id, "side": side, **({"text": text} if text else {})}
        for memory_id, side in sides
        for text in [texts.get(memory_id)]
    ]
    return {"id": question_id, "memories": memories} if memories else None


async def _extraction(tx: Transaction, job_id: str) -> Json | None:
    job = await tx.jobs.of_text(job_id)
    if job is None:
        return None
    memories = await tx.memories.of_episode(job.episode_id)
    return {
        "job_id": job.id,
        "text_id": job.episode_id,
        "memories": [memory.id for memory in memories],
        **({"code": job.error_code} if job.error_code else {}),
    }


async def _texts(
    tx: Transaction, one: Registration, ids: Sequence[str], now: datetime
) -> dict[str, str]:
    """Return the texts of those memories that search finds now, if the webhook receives texts."""
    if not one.include_text:
        return {}
    found = await tx.memories.found(ids)
    return {memory.id: memory.text for memory in found if not passed(memory.expires_at, now)}
