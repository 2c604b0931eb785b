"""The tables of texts: episodes and their turns; and passages and memories as search shows them."""

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from recall_server.domain.episode import Citation, Episode, Source, Span, Turn, episode_of, turn_id
from recall_server.domain.errors import DatabaseUnusable, Stale
from recall_server.domain.memory import MemoryType, Status, importance
from recall_server.domain.memory_event import EventKind
from recall_server.domain.permissions import LATEST
from recall_server.domain.query import Item, ItemKind, Said
from recall_server.domain.search.index_entry import labelled
from recall_server.domain.text.passages import visible
from recall_server.storage.bound_connection import BoundTable
from recall_server.storage.driver import (
    Document,
    Row,
    apart,
    cited,
    document,
    grouped,
    moment,
    moment_or_none,
    reader,
    span,
)
from recall_server.storage.tables.access import bytes_of, label_bytes, return_quota, take_quota

# Preparing the turns of a longer text delays other callers noticeably.
INLINE_CHARS_MAX = 16_000
# More turns are read in a thread: thousands take a tenth of a second.
INLINE_MAX = 500


@dataclass(frozen=True)
class Receipt:
    """The answer to the request that first used an idempotency key."""

    episode_id: str
    job_id: str
    request_digest: str


_receipt = reader(Receipt, episode_id="id")


def intact(row: Row) -> str:
    """Return the text of an episode. Raises `DatabaseUnusable` if it differs from what was written,
    which a database does not notice for a text without an index.
    """
    text = str(row["text"])
    if hashlib.sha256(text.encode()).hexdigest() != row["content_hash"]:
        raise DatabaseUnusable(
            f"The text of {row['id']} is not as it was written: the disk or another program has "
            "changed it. Restore it from a backup, or erase it."
        )
    return text


TurnRows = Document
"""The rows of the turns of a text, as a query parameter."""


class Episodes(BoundTable):
    """Append-only: an episode is added once, and its text never changes."""

    async def add(
        self, episode: Episode, key: str, digest: str, turns: TurnRows | None = None
    ) -> bool:
        """Write the episode and its turns, whose rows may be known. Return False, and write
        nothing, if `key` was used before. Raises `QuotaExceeded`.
        """
        row = _row(episode, key, digest)
        if not await self._bound.fetch("add_new_episodes", **row):
            return False
        await take_quota(self._bound, row["stored_bytes"])
        await self._add_turns(episode, turns)
        return True

    async def take_quota(self, episode: Episode, key: str, digest: str) -> None:
        """Take the bytes of an episode from the quota, for `add_new`. Raises `QuotaExceeded` here
        or later (see `Connection.expect`).
        """
        await take_quota(self._bound, _row(episode, key, digest)["stored_bytes"])

    async def add_new(
        self, episode: Episode, key: str, digest: str, turns: TurnRows | None = None
    ) -> None:
        """`add` with a `key` that should be new, after `take_quota`: raises `Stale` if it was used
        (see `Connection.expect`). The id of the episode, as its key, is new.
        """
        row = _row(episode, key, digest)
        if key == episode.id:
            await self._bound.send("add_new_episodes", **row)
        else:
            await self._bound.expect("add_new_episodes", Stale, **row)
        await self._add_turns(episode, turns)

    @property
    def _then(self) -> str:
        """The suffix of the query names: "_at" when reading what was known at a past moment."""
        return "_at" if self._bound.past.known_at else ""

    async def _add_turns(self, episode: Episode, rows: TurnRows | None) -> None:
        self._bound.note(episode.id, EventKind.ADDED, episode.recorded_at, episode_id=episode.id)
        if rows is None:
            rows = await apart(len(episode.text) > INLINE_CHARS_MAX, turn_rows, episode)
        await self._bound.send("add_turns_of_text", episode_id=episode.id, turns=rows)

    async def relabel(self, before: Episode, after: Episode, now: datetime) -> None:
        """Give a text the tags, the metadata and the expiry of `after`. Raises `QuotaExceeded`,
        also if its memories could not have them.
        """
        labels = labels_of(after.source)
        more = bytes_of(labels.values()) - bytes_of(labels_of(before.source).values())
        given = {"id": after.id, "expires_at": after.expires_at, **labels}
        await self._bound.expect("relabel_episode", Stale, **given, more=more)
        (kept,) = await self._bound.fetch("labels_of_memories", id=after.id)
        copied = int(kept["memories"]) * label_bytes(_row(after, "", "")) - int(kept["bytes"])
        if more + copied > 0:
            await take_quota(self._bound, more + copied)
            await return_quota(self._bound, copied)
        else:
            await return_quota(self._bound, -more)
        self._bound.note(after.id, EventKind.RELABELLED, now, episode_id=after.id)

    async def relabel_memories(
        self, episode_id: str, ids: Sequence[str], now: datetime
    ) -> list[str]:
        """Give memories of a text its labels and its expiry. Return the ids of those that had
        others.
        """
        given = {"id": episode_id, "ids": ids, "never": LATEST}
        rows = await self._bound.fetch("memories_to_relabel", **given)
        (text,) = await self._bound.fetch("labels_of_episode", id=episode_id) or [{}]
        labels = {name: one and Document(document(one)) for name, one in text.items()}
        alike = grouped((label_bytes({**row, **labels}), row["id"]) for row in rows)
        self._bound.note_each((row["id"] for row in rows), EventKind.RELABELLED, now)
        for size, some in alike.items():
            await self._bound.send("relabel_memories", id=episode_id, ids=some, stored_bytes=size)
        more = sum(size * len(some) for size, some in alike.items())
        more -= sum(row["stored_bytes"] for row in rows)
        if more > 0:
            await take_quota(self._bound, more)
        else:
            await return_quota(self._bound, -more)
        return [row["id"] for row in rows]

    async def first_in(self, container: str) -> bool:
        """Return whether a container has exactly one episode."""
        rows = await self._bound.fetch("episodes_in_container", container=container, limit=2)
        return len(rows) == 1

    async def receipt(self, key: str) -> Receipt | None:
        """Return the answer to the request that used `key`, if there was one."""
        return await self._first(_receipt, "episode_by_key", idempotency_key=key)

    async def get(self, episode_id: str) -> Episode | None:
        found = await self.several([episode_id])
        return found[0] if found else None

    async def several(self, episode_ids: Sequence[str]) -> list[Episode]:
        """Return those of these episodes that exist, in the order of their ids."""
        rows = await self._bound.fetch("episodes_by_id", ids=list(episode_ids))
        if not rows:
            return []
        said = await self._bound.fetch("turns_of_episodes", ids=list(episode_ids))
        turns = await apart(len(said) > INLINE_MAX, _turns, said)
        forgotten = await self.forgotten_words(episode_ids)
        return [
            _episode({**row, "turns": turns.get(row["id"]), "forgotten": forgotten.get(row["id"])})
            for row in rows
        ]

    async def page(
        self,
        *,
        limit: int,
        offset: int = 0,
        id_: str = "",
        session_id: str = "",
        topic: str = "",
    ) -> list[tuple[Episode, str]]:
        """Return readable texts, newest first, without their turns, each with its words that are
        neither forgotten nor hidden. "" stands for any.
        """
        rows = await self._bound.fetch(
            "page_of_texts",
            limit=limit,
            offset=offset,
            id=id_,
            session_id=session_id,
            topic=topic,
        )
        ids = [row["id"] for row in rows]
        forgotten = await self.forgotten_words(ids)
        hidden = await self.hidden_words(ids)
        found = []
        for row in rows:
            unread = (*forgotten.get(row["id"], ()), *hidden.get(row["id"], ()))
            one = _episode({**row, "turns": None, "forgotten": unread})
            found.append((one, visible(one.text, 0, unread)))
        return found

    async def hidden_words(self, episode_ids: Collection[str]) -> dict[str, list[Span]]:
        """Return the spans of the hidden turns of these episodes."""
        return _spans(await self._by_ids("hidden_words", episode_ids))

    async def forgotten_words(self, episode_ids: Collection[str]) -> dict[str, list[Span]]:
        """Return the spans of the forgotten words of these episodes."""
        return _spans(await self._by_ids(f"forgotten_words{self._then}", episode_ids))

    async def forget(
        self,
        item_id: str,
        words: Collection[Citation],
        now: datetime,
        kind: EventKind = EventKind.FORGOTTEN,
    ) -> None:
        """Hide these words from search and readers until the item is restored."""
        await self.hide_words({item_id: words}, now)
        episode_id = episode_of(item_id)
        # Events of a memory are noted by the table of memories.
        if any(one.episode_id == episode_id for one in words):
            self._bound.note(item_id, kind, now, episode_id=episode_id)

    async def hide_words(self, words: Mapping[str, Iterable[Citation]], now: datetime) -> None:
        """`forget` items as a part of another change, which notes the event."""
        await self._bound.many(
            "forget_words",
            [
                {"item_id": item_id, "now": now, **cited(one)}
                for item_id, of_item in words.items()
                for one in of_item
            ],
        )

    async def remember(self, item_id: str, now: datetime) -> None:
        """Undo `forget`."""
        await self.show_words([item_id])
        if not item_id.startswith("mem_"):
            self._bound.note(item_id, EventKind.RESTORED, now, episode_id=episode_of(item_id))

    async def show_words(self, item_ids: Sequence[str]) -> None:
        """Undo `hide_words`."""
        if item_ids:
            await self._bound.send("remember_words", item_ids=list(item_ids))

    async def undone(
        self, item_id: str, change_id: str, episode_id: str, now: datetime, *, hides: bool | None
    ) -> None:
        """Note that a change of a text, turn or passage was undone. `hides`: True if that hides its
        words, False if it shows them, None if it does neither.
        """
        self._bound.note(
            item_id, EventKind.UNDONE, now, episode_id=episode_id, reason=change_id, hides=hides
        )

    async def forgotten_at(self, passage_id: str) -> datetime | None:
        """Return when a passage was forgotten; None if it is not."""
        rows = await self._bound.fetch(
            "forgotten_passage", id=passage_id, episode_id=episode_of(passage_id)
        )
        return moment(rows[0]["forgotten_at"]) if rows else None

    async def show(self, item_id: str, now: datetime) -> None:
        """Let search find a hidden turn."""
        await self._bound.send("open_turns", ids=[item_id])
        self._bound.note(item_id, EventKind.RELEASED, now, episode_id=episode_of(item_id))

    async def expired(self, slots: Sequence[int], limit: int) -> list[Item]:
        """Return passages with entries at these slots whose text has expired, at most `limit`, with
        the words that could be read before.
        """
        rows = await self._bound.fetch("expired_passages", slots=list(slots), limit=limit)
        texts = (row["episode_id"] for row in rows)
        forgotten = _spans(await self._by_ids("forgotten_besides", texts))
        found = [_item(row, forgotten.get(row["episode_id"], ()), None) for row in rows]
        return [one._replace(expired=True) for one in found if one.quote]

    async def said(self, ids: Sequence[str]) -> dict[str, Said]:
        """Return the readable words of those of these turns that have any, by id."""
        rows = await self._by_ids("turns_said", ids)
        forgotten = await self.forgotten_in(rows)
        found = {}
        for row in rows:
            spans = forgotten.get(row["episode_id"], ())
            if words := visible(row["text"], row["span_start"], spans):
                found[row["id"]] = Said(row["id"], labelled(row["speaker"], words))
        return found

    async def forgotten_in(self, rows: Sequence[Row]) -> dict[str, list[Span]]:
        """Return the forgotten words of the episodes of these rows that have any."""
        ids = {row["episode_id"] for row in rows if row["has_forgotten"]}
        if self._then and await self._bound.touched("memory_was_forgotten"):
            # At that moment other words may have been forgotten which were restored since.
            ids = {row["episode_id"] for row in rows}
        return await self.forgotten_words(ids) if ids else {}


def true_at(items: Iterable[Item], at: datetime | None) -> list[Item]:
    """Return those items that were true then, as they were true; with None, all as they are."""
    if at is None:
        return list(items)
    return [then for one in items if (then := one.as_of(at)) is not None]


# The columns of a source that have other names than its fields.
_NAMED = {
    "client": "source",
    "app": "source_app",
    "model": "source_model",
    "description": "source_description",
}
_source = reader(Source, **_NAMED)
# `turns` and `forgotten` come from other tables.
_episode = reader(Episode, text=intact, source=_source, expires_at="expired_at")


def _row(episode: Episode, key: str, digest: str) -> dict[str, Any]:
    fields = vars(episode)
    names = ("id", "job_id", "text", "content_hash", "topic", "kept_as", "container")
    row = {
        **{name: fields[name] for name in (*names, "occurred_at", "recorded_at")},
        **{_NAMED.get(name, name): label for name, label in vars(episode.source).items()},
        **labels_of(episode.source),
        "idempotency_key": key,
        "request_digest": digest,
        "expired_at": episode.expires_at,
    }
    return row | {"stored_bytes": bytes_of(row.values())}


def labels_of(source: Source) -> dict[str, Any]:
    """Return the columns of the tags and the metadata."""
    return {
        "tags": Document(list(source.tags)) if source.tags else None,
        "metadata": Document(source.metadata) if source.metadata else None,
    }


def turn_rows(episode: Episode) -> TurnRows:
    return Document.written(
        [
            [
                turn_id(episode.id, turn.index),
                turn.index,
                turn.span.start,
                turn.span.end,
                turn.speaker,
                turn.session,
                turn.said_at and turn.said_at.isoformat(timespec="microseconds"),
                importance(episode.text[turn.span.start : turn.span.end]),
                "hidden" if turn.hidden else "open",
            ]
            for turn in episode.turns
        ]
    )


def tags(row: Row) -> tuple[str, ...]:
    return tuple(document(row["tags"]) or ())


def metadata(row: Row) -> Mapping[str, Any]:
    found: Mapping[str, Any] = document(row["metadata"]) or {}
    return found


_turn = reader(
    Turn,
    index="position",
    span=span,
    hidden=lambda row: row["state"] == "hidden",
    suspicions=lambda _: (),
)


def _turns(rows: Iterable[Row]) -> dict[str, list[Turn]]:
    """Return the turns of each text, by its id."""
    return grouped((row["episode_id"], _turn(row)) for row in rows)


def _spans(rows: Iterable[Row]) -> dict[str, list[Span]]:
    return grouped((row["episode_id"], span(row)) for row in rows)


def passages_of(
    rows: Sequence[Row], forgotten: Mapping[str, Sequence[Span]], superseded: Sequence[Row]
) -> dict[str, Item]:
    """Return the passages of rows by id, without the forgotten words of their episodes."""
    last: dict[str, Row] = {}
    said_at = {row["id"]: moment(row["said_at"] or row["occurred_at"]) for row in rows}
    for one in superseded:
        # Words that were said again after the end hold again, unless they never held.
        until, began, said = moment(one["until"]), one["began"], said_at.get(one["id"])
        if said and (said <= until or (began and until <= moment(began))):
            last[one["id"]] = one
    return {
        row["id"]: _item(row, forgotten.get(row["episode_id"], ()), last.get(row["id"]))
        for row in rows
    }


def _item(row: Row, spans: Sequence[Span], superseded: Row | None) -> Item:
    said_at = moment_or_none(row["said_at"])
    words = visible(row["text"], row["span_start"], spans)
    if row["heading"]:
        heading = visible(row["heading"], row["heading_start"], spans)
        words = f"{heading}\n{words}" if heading else words
    return Item(
        id=row["id"],
        kind=ItemKind.PASSAGE,
        text=labelled(row["speaker"], words),
        topic=row["topic"],
        recorded_at=moment(row["recorded_at"]),
        valid_from=said_at or moment(row["occurred_at"]),
        citation=Citation(row["episode_id"], span(row), words, row["speaker"], said_at),
        quote=words,
        importance=row["importance"],
        access_count=row["access_count"],
        container=row["container"],
        tags=tags(row),
        metadata=metadata(row),
        superseded_by=superseded["superseded_by"] if superseded else None,
        valid_until=moment_or_none(superseded["until"]) if superseded else None,
        expires_at=moment_or_none(row["expired_at"]),
        agent_id=row["agent_id"],
    )


def memory_item(row: Row, forgotten: Sequence[Span]) -> Item:
    """Return the memory of a row, without the forgotten words of its episode."""
    cited = span(row)
    return Item(
        id=row["id"],
        kind=ItemKind.MEMORY,
        text=row["text"],
        topic=row["topic"],
        recorded_at=moment(row["recorded_at"]),
        valid_from=moment(row["valid_from"]),
        citation=Citation(
            row["episode_id"],
            cited,
            visible(row["cited"], cited.start, forgotten),
            row["speaker"],
            moment(row["said_at"]),
        ),
        quote=visible(row["quote"] or "", row["quote_start"] or 0, forgotten),
        importance=row["importance"],
        access_count=row["access_count"],
        type=MemoryType(row["type"]),
        attribute=row["attribute"],
        container=row["container"],
        tags=tags(row),
        metadata=metadata(row),
        superseded_by=row["superseded_by"],
        valid_until=moment_or_none(row["valid_until"]),
        expires_at=moment_or_none(row["expires_at"]),
        agent_id=row["agent_id"],
        disputed=row["status"] == Status.DISPUTED,
        unreconciled=bool(row["unreconciled"]),
    )
