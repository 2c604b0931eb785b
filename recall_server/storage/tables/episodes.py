"""The tables of texts as they were said: episodes and their turns."""

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from recall_server.domain.audit import AccessCount
from recall_server.domain.episode import Citation, Episode, Source, Span, Turn
from recall_server.domain.errors import DatabaseUnusable, Stale
from recall_server.domain.importance import importance
from recall_server.domain.query import Item, ItemKind, Said
from recall_server.domain.search.index_entry import labelled
from recall_server.storage.bound_connection import BoundConnection
from recall_server.storage.driver import Row
from recall_server.storage.rows import accesses, moment, moment_or_none, span
from recall_server.storage.tables.usage import take_quota


@dataclass(frozen=True)
class Receipt:
    """The answer to the request that first used an idempotency key."""

    episode_id: str
    job_id: str
    request_digest: str


# Past the end of any episode.
WHOLE = 2**31 - 1


def intact(row: Row) -> str:
    """The text of an episode. Raises `DatabaseUnusable` where it is not as it was written, which
    no database notices of a text that stands in no index.
    """
    text = str(row["text"])
    if hashlib.sha256(text.encode()).hexdigest() != row["content_hash"]:
        raise DatabaseUnusable(
            f"The text of {row['id']} is not as it was written: the disk or another program has "
            "changed it. Restore it from a backup, or erase it."
        )
    return text


def _state(turn: Turn, *, covered: bool) -> str:
    if turn.hidden:
        return "hidden"
    return "covered" if covered else "open"


def turn_id(episode_id: str, position: int) -> str:
    return f"{episode_id}.{position}"


def episode_of(turn_id: str) -> str:
    """The id of the episode that a turn is of."""
    return turn_id.rpartition(".")[0]


class Episodes:
    """Append-only: an episode is added once and never changed."""

    def __init__(self, handle: BoundConnection) -> None:
        self._handle = handle

    async def add(
        self, episode: Episode, key: str, digest: str, *, covered: Collection[str] = ()
    ) -> bool:
        """Write the episode and its turns; those with `covered` ids are cited by memories. False
        where `key` was used before (nothing written). Raises `QuotaExceeded`.
        """
        if not await self._handle.fetch("add_episode", **_row(episode, key, digest)):
            return False
        await take_quota(self._handle, episode.text)
        await self._add_turns(episode, covered)
        return True

    async def add_new(
        self, episode: Episode, key: str, digest: str, *, covered: Collection[str]
    ) -> None:
        """`add` where `key` cannot have been used: raises `Stale` where it was (see
        `Connection.expect`).
        """
        await self._handle.expect("add_episode", Stale(), **_row(episode, key, digest))
        await take_quota(self._handle, episode.text)
        await self._add_turns(episode, covered)

    async def _add_turns(self, episode: Episode, covered: Collection[str]) -> None:
        await self._handle.many(
            "add_turn",
            [
                {
                    "id": turn_id(episode.id, turn.index),
                    "episode_id": episode.id,
                    "position": turn.index,
                    "span_start": turn.span.start,
                    "span_end": turn.span.end,
                    "speaker": turn.speaker,
                    "session": turn.session,
                    "said_at": turn.said_at,
                    "importance": importance(episode.text[turn.span.start : turn.span.end]),
                    "state": _state(turn, covered=turn_id(episode.id, turn.index) in covered),
                }
                for turn in episode.turns
            ],
        )

    async def first_in(self, container: str) -> bool:
        """Whether there is but one episode in a container."""
        rows = await self._handle.fetch("episodes_in_container", container=container, limit=2)
        return len(rows) == 1

    async def receipt(self, key: str) -> Receipt | None:
        """The answer to the request that used `key`, if there was one."""
        rows = await self._handle.fetch("episode_by_key", idempotency_key=key)
        return (
            Receipt(rows[0]["id"], rows[0]["job_id"], rows[0]["request_digest"]) if rows else None
        )

    async def get(self, episode_id: str) -> Episode | None:
        rows = await self._handle.fetch("episode", id=episode_id)
        if not rows:
            return None
        turns = await self._handle.fetch("turns_of_episode", episode_id=episode_id)
        row = rows[0]
        return Episode(
            id=row["id"],
            text=intact(row),
            topic=row["topic"],
            occurred_at=moment(row["occurred_at"]),
            recorded_at=moment(row["recorded_at"]),
            content_hash=row["content_hash"],
            job_id=row["job_id"],
            source=Source(row["session_id"], row["agent_id"], row["source"]),
            turns=tuple(_turn(turn) for turn in turns),
            container=row["container"],
        )

    async def open_turns(self, episode_id: str) -> list[Item]:
        """All turns of an episode that search still finds by themselves."""
        return await self.open_at(Citation(episode_id, Span(0, WHOLE)))

    async def open_at(self, citation: Citation) -> list[Item]:
        """The turns that a citation touches and that search still finds by themselves."""
        rows = await self._handle.fetch(
            "open_turns_at",
            episode_id=citation.episode_id,
            span_start=citation.span.start,
            span_end=citation.span.end,
        )
        return [_item(row) for row in rows]

    async def close(self, ids: Sequence[str], state: Literal["covered", "hidden"]) -> None:
        """Take open turns out of search: a memory covers them, or a caller hid them."""
        await self._handle.many("set_turn_state", [{"id": i, "state": state} for i in ids])

    async def show(self, item_id: str) -> bool:
        """Let search find a hidden turn; False where it is not hidden."""
        return bool(await self._handle.fetch("open_turn", id=item_id))

    async def items(self, ids: Sequence[str]) -> list[Item]:
        """The open turns among `ids`, as ranking needs them."""
        return [_item(row) for row in await self._handle.fetch("turn_items", ids=list(ids))]

    async def said(self, ids: Sequence[str]) -> dict[str, Said]:
        """The words of those of these turns, by id: not where they are hidden, or a memory rests
        on it that is not believed any more.
        """
        rows = await self._handle.fetch("turns_said", ids=sorted(set(ids))) if ids else []
        return {row["id"]: Said(row["id"], labelled(row["speaker"], row["text"])) for row in rows}

    async def count_accesses(self, counts: Sequence[AccessCount]) -> None:
        """Add to the accesses of each, but of those that are being changed just now."""
        if counts:
            await self._handle.send("count_accesses_of_turns", counts=accesses(counts))


def _row(episode: Episode, key: str, digest: str) -> dict[str, Any]:
    return {
        "id": episode.id,
        "idempotency_key": key,
        "request_digest": digest,
        "job_id": episode.job_id,
        "text": episode.text,
        "content_hash": episode.content_hash,
        "topic": episode.topic,
        "session_id": episode.source.session_id,
        "agent_id": episode.source.agent_id,
        "source": episode.source.client,
        "occurred_at": episode.occurred_at,
        "recorded_at": episode.recorded_at,
        "container": episode.container,
    }


def _turn(row: Row) -> Turn:
    return Turn(
        index=row["position"],
        span=span(row),
        speaker=row["speaker"],
        session=row["session"],
        said_at=moment_or_none(row["said_at"]),
        hidden=row["state"] == "hidden",
    )


def _item(row: Row) -> Item:
    said_at = moment_or_none(row["said_at"])
    return Item(
        id=row["id"],
        kind=ItemKind.TURN,
        text=labelled(row["speaker"], row["text"]),
        topic=row["topic"],
        recorded_at=moment(row["recorded_at"]),
        valid_from=said_at or moment(row["occurred_at"]),
        citation=Citation(row["episode_id"], span(row), row["text"], row["speaker"], said_at),
        importance=row["importance"],
        access_count=row["access_count"],
        container=row["container"],
    )
