"""The table of erasures: what was erased, in numbers; the digests of what must not come back; and
deleting and redacting rows. Which tables are concerned is in the table registry.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

from recall_server.domain.erasure import BLOCK, Kind, Stage
from recall_server.domain.namespace import Namespace
from recall_server.storage.bound_connection import BoundConnection
from recall_server.storage.driver import Document, Row
from recall_server.storage.rows import document, moment, moment_or_none
from recall_server.storage.tables import registry
from recall_server.storage.tables.registry import Part
from recall_server.storage.tables.usage import return_quota

# The job that goes on where the call for an erasure ends.
PURGE = "purge"
# Stands for the token where an erasure was asked for without one.
OPERATOR = "operator"
# Until a namespace is erased, no token opens it, whenever it was made.
NEVER = datetime.max.replace(tzinfo=UTC, hour=0)


@dataclass(frozen=True)
class Erasure:
    """One erasure and how far it has come; `claims` are those of its receipt."""

    namespace: Namespace
    id: str
    kind: Kind
    requested_at: datetime
    stage: Stage
    claims: Mapping[str, Any]
    left_behind: str
    purged_at: datetime | None
    secret_hash: str | None = field(repr=False)
    receipt: str = field(repr=False)
    sealed: str | None = field(repr=False)


class Hold(NamedTuple):
    """Since when nothing of a namespace may be destroyed, and why."""

    namespace: Namespace
    at: datetime
    because: str


class Erasures:
    """Deleting and redacting take a transaction that may erase."""

    def __init__(self, handle: BoundConnection) -> None:
        self._handle = handle

    async def begin(
        self, erasure_id: str, kind: Kind, by: str, claims: Mapping[str, Any], now: datetime
    ) -> None:
        """From here on, and until it has ended, words may be redacted."""
        await self._handle.send(
            "begin_erasure",
            id=erasure_id,
            kind=kind,
            requested_by=by,
            now=now,
            claims=Document(dict(claims)),
        )

    async def settle(
        self,
        erasure_id: str,
        claims: Mapping[str, Any],
        receipt: str,
        secret_hash: str,
        *,
        sealed: str,
        stage: Stage,
    ) -> None:
        """All is done that one transaction can do; `sealed` is for the ledger, `stage` how far it
        has come.
        """
        await self._handle.send(
            "settle_erasure",
            id=erasure_id,
            claims=Document(dict(claims)),
            receipt=receipt,
            secret_hash=secret_hash,
            sealed=sealed,
            state=stage,
        )

    async def known(self, ids: Sequence[str]) -> set[str]:
        """The ids among these that are here; on a connection for all namespaces."""
        return {row["id"] for row in await self._handle.fetch("known_erasures", ids=list(ids))}

    async def hold(self) -> Hold | None:
        """The hold that stands over this namespace."""
        rows = await self._handle.fetch("hold")
        return _hold(rows[0]) if rows else None

    async def set_hold(self, hold: Hold | None) -> bool:
        """Place it, or lift the one that stands; False where there is no such namespace."""
        at, because = (hold.at, hold.because) if hold else (None, None)
        return bool(await self._handle.fetch("set_hold", at=at, because=because))

    async def holds(self) -> list[Hold]:
        """All that stand; on a handle for all namespaces."""
        return [_hold(row) for row in await self._handle.fetch("holds")]

    async def begin_purge(self, erasure_id: str) -> None:
        await self._handle.send("begin_purge", id=erasure_id)

    async def end_purge(
        self, erasure_id: str, left_behind: str, receipt: str, now: datetime
    ) -> bool:
        """False where it was done before."""
        return bool(
            await self._handle.fetch(
                "end_purge", id=erasure_id, left_behind=left_behind, receipt=receipt, now=now
            )
        )

    async def get(self, erasure_id: str) -> Erasure | None:
        rows = await self._handle.fetch("erasure", id=erasure_id)
        return _erasure(rows[0]) if rows else None

    async def find(self, erasure_id: str) -> Erasure | None:
        """The erasure of this id in any namespace; on a handle for all."""
        rows = await self._handle.fetch("erasure_by_id", id=erasure_id)
        return _erasure(rows[0]) if rows else None

    async def unpurged(self) -> list[Erasure]:
        """All that still wait for a purge; on a handle for all namespaces."""
        return [_erasure(row) for row in await self._handle.fetch("unpurged_erasures")]

    async def namespaces(self) -> list[Namespace]:
        """All there are; on a handle for all."""
        rows = await self._handle.fetch("names_of_namespaces")
        return [Namespace(row["namespace"]) for row in rows]

    async def collect(self, erasure_id: str, secret_hash: str, now: datetime) -> bool:
        """Use up the secret; False where it was used, or there is more to come."""
        return bool(
            await self._handle.fetch(
                "collect_receipt", id=erasure_id, secret_hash=secret_hash, now=now
            )
        )

    async def remember(self, digests: Iterable[str]) -> None:
        """Texts of these digests are not taken again."""
        await self._handle.send("add_erased", digests=sorted(digests))

    async def among(self, digests: Sequence[str]) -> set[str]:
        """The digests among these whose text was erased."""
        rows = await self._handle.fetch("erased_among", digests=list(digests))
        return {row["digest"] for row in rows}

    async def refuse(self, digests: Sequence[str], otherwise: Exception) -> None:
        """Where a text of these digests was erased, `otherwise` is raised here or later, and
        nothing of the transaction holds (see `Connection.expect`).
        """
        await self._handle.expect("none_erased", otherwise, digests=list(digests))

    async def allow(self, digests: Sequence[str]) -> int:
        """Take texts of these digests again; how many were refused so far."""
        return len(await self._handle.fetch("allow_erased", digests=list(digests)))

    async def counts(self) -> dict[str, int]:
        """How many rows the namespace has in each table that its erasure deletes from."""
        (row,) = await self._handle.fetch("erasure_counts")
        return {table: int(row[table]) for table in registry.DELETED}

    async def close_namespace(self, now: datetime) -> int:
        """End all work for the namespace and let no token in until it is erased; how many tokens
        were revoked.
        """
        for table in registry.ENDS_WORK:
            await self._handle.send(f"erase_all_{table}")
        return await self._revoke(now, until=NEVER)

    async def erase_some(self, table: str, limit: int) -> int:
        """Delete rows of one of `SOME_AT_A_TIME`; how many, and 0 when none are left."""
        return len(await self._handle.fetch(f"erase_some_{table}", limit=limit))

    async def erase_rest(self, now: datetime) -> int:
        """Delete all that the namespace has left but the jobs that purge, and let in the tokens
        that are made from now on; how many tokens were revoked.
        """
        for table in registry.DELETED:
            await self._handle.send(f"erase_all_{table}")
        return await self._revoke(now, until=now)

    async def _revoke(self, now: datetime, *, until: datetime) -> int:
        await self._handle.send("reset_namespace", until=until)
        await self._handle.send("unlabel_tokens")
        revoked = await self._handle.fetch("revoke_all_tokens", now=now)
        await self.next_epoch()
        return len(revoked)

    async def close_container(self, erasure_id: str, container: str) -> None:
        """Let no caller find anything of a container until its erasure ends."""
        await self._handle.send("close_container", id=erasure_id, container=container)

    async def end_erasing(self, erasure_id: str) -> None:
        """Nothing is left of what was to be erased, but in files."""
        await self._handle.send("open_container", id=erasure_id)
        await self._handle.send("end_erasing", id=erasure_id)

    async def namespace_is_erased(self) -> bool:
        """Whether the whole namespace is being erased."""
        return bool(await self._handle.fetch("erasure_under_way"))

    async def first_memories(self, limit: int) -> Sequence[Row]:
        return await self._handle.fetch("memories_to_erase", after="", limit=limit)

    async def first_episodes(self, limit: int) -> list[tuple[Row, list[Row]]]:
        """Each with its turns."""
        rows = await self._handle.fetch("episodes_to_erase", after="", limit=limit)
        return await self.with_turns(rows)

    async def remove(self, part: Part, ids: Iterable[str]) -> None:
        """Delete the rows of all tables that go with these memories, episodes, turns or tasks."""
        wanted = sorted(ids)
        if wanted:
            for table in registry.with_part(part):
                await self._handle.send(f"erase_{table}_of_{part}", ids=wanted)

    async def next_epoch(self) -> None:
        """Make all caches of this namespace's vectors drop what they hold."""
        await self._handle.fetch("next_erase_epoch")

    async def fence(self, now: datetime) -> None:
        """Take the namespace's jobs from their workers, to be begun again."""
        await self._handle.send("fence_jobs", now=now, purge=PURGE)

    async def episodes_of(self, ids: Iterable[str]) -> list[tuple[Row, list[Row]]]:
        """These episodes, each with its turns."""
        rows = await self._handle.fetch("episodes_to_erase_by_id", ids=sorted(ids))
        return await self.with_turns(rows)

    async def with_turns(self, episodes: Sequence[Row]) -> list[tuple[Row, list[Row]]]:
        """Each with its turns."""
        ids = [row["id"] for row in episodes]
        turns: dict[str, list[Row]] = {}
        for turn in await self._handle.fetch("turns_of_episodes", ids=ids):
            turns.setdefault(turn["episode_id"], []).append(turn)
        return [(row, turns.get(row["id"], [])) for row in episodes]

    async def turn(self, turn_id: str) -> Row | None:
        rows = await self._handle.fetch("turn_by_id", id=turn_id)
        return rows[0] if rows else None

    async def memories_of(self, ids: Iterable[str]) -> Sequence[Row]:
        """These memories, in any state."""
        return await self._handle.fetch("memories_to_erase_by_id", ids=sorted(ids))

    async def citations(self, ids: Iterable[str]) -> Sequence[Row]:
        """All citations of these memories."""
        return await self._handle.fetch("citations", ids=sorted(ids))

    async def citations_in(self, episode_ids: Iterable[str]) -> Sequence[Row]:
        """All citations of these episodes."""
        return await self._handle.fetch("citations_of_episodes", ids=sorted(episode_ids))

    async def remove_tasks(self, ids: Iterable[str]) -> None:
        """Tasks with all that goes with them, and the quota that they take."""
        wanted = sorted(ids)
        rows = await self._handle.fetch("stored_bytes_of_runs", ids=wanted)
        await return_quota(self._handle, sum(row["stored_bytes"] for row in rows))
        await self.remove(Part.TASK, wanted)

    async def remove_memories(self, ids: Iterable[str]) -> None:
        """Memories with all that goes with them, and the links to them."""
        wanted = sorted(ids)
        await self._handle.send("unlink_memories", ids=wanted)
        await self.remove(Part.MEMORY, wanted)

    async def remove_episodes(self, episodes: Sequence[Row], turn_ids: Iterable[str]) -> None:
        """Episodes with all of their turns. No memory may rest on them any longer."""
        await self.remove(Part.TURN, turn_ids)
        await self.remove(Part.EPISODE, [row["id"] for row in episodes])
        await return_quota(self._handle, sum(kept_bytes(row["text"]) for row in episodes))

    async def remove_vectors(self, ids: Iterable[str]) -> None:
        """The vectors of items that stay."""
        await self._handle.send("erase_embeddings_of_memory", ids=sorted(ids))

    async def redact_turns(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Hide turns for good: `id`, and what stays of `speaker`, `session`."""
        await self._handle.many("redact_turn", rows)

    async def redact_episodes(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write redacted texts and labels over those that were there."""
        await self._handle.many("redact_episode", rows)


def kept_bytes(text: str) -> int:
    """How many bytes of the quota a text takes at least: a redacted character took one or more."""
    return len(text.replace(BLOCK, "x").encode("utf-8", "surrogatepass"))


def _hold(row: Row) -> Hold:
    return Hold(Namespace(row["namespace"]), moment(row["held_at"]), row["held_because"])


def _erasure(row: Row) -> Erasure:
    return Erasure(
        namespace=Namespace(row["namespace"]),
        id=row["id"],
        kind=Kind(row["kind"]),
        requested_at=moment(row["requested_at"]),
        stage=Stage(row["state"]),
        claims=document(row["claims"]),
        left_behind=row["left_behind"],
        purged_at=moment_or_none(row["purged_at"]),
        secret_hash=row["secret_hash"],
        receipt=row["receipt"],
        sealed=row["sealed"],
    )
