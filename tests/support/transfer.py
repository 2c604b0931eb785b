"""A namespace with everything that an export must carry, and its export and import."""

import hashlib
import io
import json
from datetime import timedelta
from typing import Any

from recall_server.application import Application
from recall_server.domain.audit import AuditEntry
from recall_server.domain.context import Context
from recall_server.domain.export_format import Episode, Memory, written
from recall_server.domain.ids import Namespace
from recall_server.domain.plan import Choice, Decision, Policy, Resolution
from recall_server.domain.query import Query
from recall_server.domain.task import Mode, Request
from recall_server.services.memory.ingest import Submission
from recall_server.services.tasks.consolidate import Consolidate
from recall_server.services.transfer import Account
from recall_server.services.transfer.importing import Report
from recall_server.storage.tables.tasks import PushConfig
from tests.support.conversation import ALICE, contradicted, drained, enter
from tests.support.runtime import NOON

BOB = Namespace("bob")
SAID = (
    "--- 8 May 2023 ---\nCaroline: I live in Lisbon.\nMel: Lovely, I live in Ghent.",
    "--- 9 July 2023 ---\nCaroline: I live in Porto.\nMel: My favourite colour is teal.",
    "User: I prefer tabs.\nUser: I prefer tabs.",
    "User: The café is called \u202eevil\u202c \x1b[31mred\x1b[0m \u2028 \U0001f9e0 e\u0301 \x7f.",
    "User: My sister is called Ana. We decided to use Postgres for the store.",
)
# One text is in a container.
ROOMS = {2: "projects/tabs"}
TELLING = {"audit", "task", "recipient"}

Json = dict[str, Any]


def line_of(
    application: Application, namespace: Namespace, operation: str, *, read_only: bool = False
) -> AuditEntry:
    audit = application.services.audit
    return audit.begin(namespace, operation, "test", "acc_test", read_only=read_only)


async def lived(application: Application, namespace: Namespace = ALICE) -> None:
    """Give the namespace memories in every state, open and hidden turns, a text that waits,
    decisions, a dispute, tasks, and a webhook.
    """
    await enter(application, namespace)
    services = application.services
    for number, text in enumerate(SAID):
        await services.ingest.remember(
            Context(line_of(application, namespace, "store_memory")),
            Submission(text, "life", f"said-{number}", container=ROOMS.get(number, "")),
        )
    await drained(application)
    clock = application.runtime.now
    clock.pass_(timedelta(hours=1))  # type: ignore[attr-defined]
    searched = line_of(application, namespace, "search_memories", read_only=True)
    found = await services.recall.search(Context(searched), Query("Which colours?", mmr_lambda=1.0))
    await services.audit.note(searched)
    await services.audit.reads.flush()
    turn = next(hit.item.id for hit in found.hits if hit.item.id.startswith("ep_"))
    memory = next(hit.item.id for hit in found.hits if hit.item.id.startswith("mem_"))
    for item in (turn, memory):
        await services.recall.forget(
            Context(line_of(application, namespace, "delete_memory")), item
        )
    async with application.store.transaction(namespace) as tx:
        kept = (await tx.memories.page(limit=1, offset=0, type_="", topic=""))[0]
        made = Resolution("q_" + "0" * 26, Choice.KEEP_BOTH, "acc_" + "0" * 26, NOON)
        await tx.decisions.add(Decision(made, (kept.id,)))
    await contradicted(application, namespace)
    await drained(application)
    await services.tasks.set_policy(
        Context(line_of(application, namespace, "set_policy")), Policy.ASK
    )
    await _task(application, services.consolidate, namespace)
    await services.ingest.remember(
        Context(line_of(application, namespace, "store_memory")),
        Submission("User: This waits to be read.", "later"),
    )


async def _task(application: Application, consolidate: Consolidate, namespace: Namespace) -> None:
    """Make a task that asks, one that is done, and a webhook."""
    for text in ("Caroline: I live in Faro.", "User: I own a piano."):
        task = await consolidate.start(
            Context(line_of(application, namespace, "consolidate")),
            Request(Mode.INGEST, "home", text),
        )
        await drained(application)
    async with application.store.transaction(namespace) as tx:
        url = "https://user:secretcanary@hooks.example.com/in?token=secretcanary"
        await tx.pushes.put(PushConfig(task.id, "mine", url, "Bearer", b"sealed", 0, NOON))


async def exported(
    application: Application, namespace: Namespace = ALICE, *, subject: str | None = None
) -> bytes:
    entry = line_of(application, namespace, "export_namespace")
    pieces = application.services.export.stream(Context(entry), subject=subject)
    return b"".join([piece async for piece in pieces])


async def taken_in(application: Application, file: bytes, namespace: Namespace = ALICE) -> Report:
    return await application.services.importing.take(
        namespace,
        io.BytesIO(file),
        entry=lambda: line_of(application, namespace, "import_namespace"),
    )


def records(file: bytes, *kinds: str) -> list[Json]:
    found = [json.loads(line) for line in file.splitlines()]
    return [one for one in found if not kinds or one["kind"] in kinds]


def carried(file: bytes) -> list[bytes]:
    """Return the lines that an import takes in."""
    return [line for line in file.splitlines() if json.loads(line)["kind"] in ("episode", "memory")]


def sealed(*lines: bytes | Json) -> bytes:
    """Return these lines as a whole export, with the end that belongs to them."""
    account = Account()
    file = b""
    for one in lines:
        line = one if isinstance(one, bytes) else written(one)
        account.add(json.loads(line)["kind"], line)
        file += line
    return file + written(account.end())


def many(count: int) -> bytes:
    """Return an export of one episode and `count` memories that rest on it."""
    text = "User: I have many favourites."
    moment = "2026-03-01T12:00:00.000000+00:00"
    episode: Json = {
        **dict.fromkeys(Episode.model_fields),
        "container": "",
        "kind": "episode",
        "id": "ep_" + "0" * 26,
        "text": text,
        "topic": "life",
        "occurred_at": moment,
        "recorded_at": moment,
        "idempotency_key": "many",
        "request_digest": "0" * 64,
        "job_id": "job_" + "0" * 26,
        "turns": [],
        "forgotten": [],
        "content_hash": hashlib.sha256(text.encode()).hexdigest(),
    }
    memory = {
        **dict.fromkeys(Memory.model_fields),
        "container": "",
        "kind": "memory",
        "type": "fact",
        "layer": "semantic",
        "topic": "life",
        "negated": False,
        "status": "active",
        "said_at": moment,
        "valid_from": moment,
        "recorded_at": moment,
        "importance": 0.5,
        "confidence": 0.8,
        "reinforcements": 0,
        "access_count": 0,
        "extractor": "test",
        "decisions": [],
        "disputes": [],
        "relations": [],
        "proposals": [],
        "citations": [{"episode_id": episode["id"], "start": 0, "end": 9}],
    }
    manifest = {
        "kind": "manifest",
        "format": "recall-export",
        "version": 1,
        "namespace": "alice",
        "made_at": moment,
        "engine": "sqlite",
        "schema_version": 6,
        "server": "test",
        "subject": None,
        "conflict_policy": None,
    }
    memories = (
        {**memory, "id": f"mem_{number:026}", "text": f"Favourite {number % 97} is teal."}
        for number in range(count)
    )
    return sealed(manifest, episode, *memories)
