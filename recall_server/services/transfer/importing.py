"""Import: lines of an export become a namespace again, as often as it takes.

What has been taken in is the only progress that is kept: each line is taken in once, so whatever
ended an import, the next one goes on where it ended.
"""

import json
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, BinaryIO, Literal, TypeVar

from recall_server.domain.audit import AuditEntry
from recall_server.domain.errors import (
    BeingErased,
    ExportDamaged,
    ExportUnsupported,
    LimitReached,
    TextTooLong,
)
from recall_server.domain.export_format import FORMAT, ORDER, VERSION, End, Episode, Line, Manifest
from recall_server.domain.export_format import Memory as MemoryLine
from recall_server.domain.export_format import read as read_line
from recall_server.domain.ids import derived_id
from recall_server.domain.memory import Status
from recall_server.domain.namespace import Namespace
from recall_server.services.memory import indexing
from recall_server.services.memory.embedding import EMBED
from recall_server.services.transfer.export import Account
from recall_server.storage.store import Store, Transaction
from recall_server.storage.tables.episodes import turn_id

OPERATION = "import_namespace"
# What one transaction takes in: as many lines, or as many bytes of them.
BATCH_LINES = 200
BATCH_BYTES = 2_000_000
NAMED_MAX = 100

Refused = Callable[[Transaction, Sequence[str]], Awaitable[set[int]]]
"""Which of these texts must not be taken in, by their places, as seen in this transaction."""

# What never changes of a line once it is here. What has become of it since is for the namespace
# that it has become part of.
_FIXED_OF_EPISODE = {"text", "content_hash", "topic", "container", "occurred_at", "recorded_at"}
_FIXED_OF_MEMORY = {
    *("text", "type", "topic", "entity", "attribute", "value", "negated", "said_at", "valid_from"),
    *("recorded_at", "extractor", "container"),
}


@dataclass(frozen=True)
class Numbered:
    """A line of the file that is to be taken in."""

    number: int
    bytes: int
    line: Episode | MemoryLine

    @property
    def fixed(self) -> dict[str, Any]:
        names = _FIXED_OF_EPISODE if isinstance(self.line, Episode) else _FIXED_OF_MEMORY
        return self.line.model_dump(mode="json", include=names)

    def same_as(self, known: Mapping[str, Any]) -> bool:
        return all(known[name] == value for name, value in self.fixed.items())


@dataclass
class Report:
    """What became of the lines, by kind. `told` are those that an export tells and no import takes
    in: tasks, recipients and the book are those of the server that they happened on. `left_out`
    names the first of those that could not be taken in: line, id, reason.
    """

    new: Counter[str] = field(default_factory=Counter)
    known: Counter[str] = field(default_factory=Counter)
    told: Counter[str] = field(default_factory=Counter)
    conflicts: int = 0
    refused: int = 0
    orphans: int = 0
    left_out: list[tuple[int, str, str]] = field(default_factory=list)

    def leave_out(self, one: Numbered, reason: str) -> None:
        if len(self.left_out) < NAMED_MAX:
            self.left_out.append((one.number, one.line.id, reason))

    def counts(self) -> dict[str, int]:
        return {
            "new": self.new.total(),
            "known": self.known.total(),
            "conflicts": self.conflicts,
            "refused": self.refused,
            "orphans": self.orphans,
        }


@dataclass(frozen=True)
class Import:
    """Takes exports in. `model` is that of the vectors, if there are any; `refused` keeps out what
    must not come back.
    """

    store: Store
    now: Callable[[], datetime]
    model: str | None
    text_chars_max: int
    line_bytes_max: int
    wake: Callable[[], None]
    refused: Refused

    def check(self, file: BinaryIO) -> Manifest:
        """Read all of it, and write nothing. Raises as `take` does."""
        lines = self.lines(file)
        manifest = next(lines)
        assert isinstance(manifest, Manifest)
        for _ in lines:
            pass
        return manifest

    async def take(
        self,
        namespace: Namespace,
        file: BinaryIO,
        *,
        entry: Callable[[], AuditEntry],
        on_progress: Callable[[int], None] = lambda _: None,
    ) -> Report:
        """Take an export into a namespace, which is made where it is new; each batch in one
        transaction, with its line in the book. `told` hears how many lines have been read.

        What is there with the same content is left as it is; what is there with another is told of
        and left too. Raises `ExportDamaged` or `ExportUnsupported`, naming the line, or
        `LimitReached`: what was taken in before stays, and is known the next time.
        """
        report, strangers = Report(), set[str]()
        lines = self.lines(file)
        manifest = next(lines)
        assert isinstance(manifest, Manifest)
        async with self.store.transaction(namespace, entry=entry()) as tx:
            if await tx.erasures.under_way():
                raise BeingErased
            await tx.portable.make(self.now())
            if manifest.conflict_policy and await tx.access.policy() is None:
                await tx.access.set_policy(manifest.conflict_policy)
        for batch in _batches(lines, report):
            await self._write(namespace, batch, report, strangers, entry)
            on_progress(batch[-1].number)
        await self._promise_vectors(namespace)
        self.wake()
        return report

    def lines(self, file: BinaryIO) -> "Iterator[Manifest | Numbered | Line]":
        """The lines in order, from the manifest to the last before the end."""
        account, last, number, line = Account(), (-1, ""), 0, None
        while raw := file.readline(self.line_bytes_max + 1):
            number += 1
            if isinstance(line, End):
                raise _damaged(number, "it stands behind the end")
            line = self._line(raw, number)
            place = (ORDER.index(line.kind), _key(line))
            if place <= last or (number == 1) != isinstance(line, Manifest):
                raise _damaged(number, "it is not in its place, or stands twice")
            last = place
            if isinstance(line, End):
                if not account.closed_by(line.counts, line.sha256):
                    raise _damaged(number, "the lines before it are not those that were written")
                continue
            account.add(line.kind, raw)
            if isinstance(line, Episode | MemoryLine):
                yield Numbered(number, len(raw), line)
            else:
                yield line
        if not isinstance(line, End):
            raise _damaged(number + 1, "the file ends before it: it was cut off")

    def _line(self, raw: bytes, number: int) -> Line:
        if len(raw) > self.line_bytes_max:
            raise LimitReached(
                f"Line {number} has more than {self.line_bytes_max} bytes. Raise "
                "RECALL_IMPORT_LINE_BYTES_MAX if the file is yours."
            )
        if number == 1:
            _supported(raw)
        try:
            line = read_line(raw)
        except ValueError as error:
            raise _damaged(number, str(error)) from None
        if isinstance(line, Manifest) and line.subject is not None:
            raise ExportUnsupported(
                "The file tells what concerns one person, and is not whole. Take in an export that "
                "was made without --subject."
            )
        if isinstance(line, Episode | MemoryLine) and len(line.text) > self.text_chars_max:
            raise TextTooLong(
                f"The text of line {number} has {len(line.text)} characters; at most "
                f"{self.text_chars_max} are taken. Raise RECALL_TEXT_CHARS_MAX if the file is "
                "yours."
            )
        return line

    async def _write(
        self,
        namespace: Namespace,
        batch: Sequence[Numbered],
        report: Report,
        strangers: set[str],
        entry: Callable[[], AuditEntry],
    ) -> None:
        """`strangers`: the episodes of the file whose ids others have here."""
        line, before = entry(), report.new.total()
        async with self.store.transaction(namespace, entry=line) as tx:
            await tx.lock()
            # The one place that every text passes on its way in.
            refused = await self.refused(tx, [one.line.text for one in batch])
            report.refused += len(refused)
            for place in refused:
                report.leave_out(batch[place], "it was erased")
            left = [one for place, one in enumerate(batch) if place not in refused]
            added = [
                *await self._episodes(tx, _only(left, Episode), report, strangers),
                *await self._memories(tx, _only(left, MemoryLine), report, strangers),
            ]
            await indexing.show(tx, _found([one.line for one in left], set(added)))
            line.ids += added
            line.counts["new"] = report.new.total() - before

    async def _episodes(
        self, tx: Transaction, batch: Sequence[Numbered], report: Report, strangers: set[str]
    ) -> list[str]:
        lines = [one.line for one in batch if isinstance(one.line, Episode)]
        known = await tx.portable.episodes_of(line.id for line in lines)
        keys = await tx.portable.keys_taken(line.idempotency_key for line in lines)
        added = []
        for one, line in zip(batch, lines, strict=True):
            if line.id in known and one.same_as(known[line.id]):
                report.known["episode"] += 1
            elif line.id in known or keys.get(line.idempotency_key, line.id) != line.id:
                report.conflicts += 1
                report.leave_out(one, "another episode has its id or its idempotency key here")
                strangers.add(line.id)
            else:
                keys[line.idempotency_key] = line.id
                await tx.portable.add_episode(line, self.now())
                report.new["episode"] += 1
                added.append(line.id)
        return added

    async def _memories(
        self, tx: Transaction, batch: Sequence[Numbered], report: Report, strangers: set[str]
    ) -> list[str]:
        lines = [one.line for one in batch if isinstance(one.line, MemoryLine)]
        known = await tx.portable.memories_of(line.id for line in lines)
        sources = {cited.episode_id for line in lines for cited in line.citations}
        chars = await tx.portable.lengths(sources - strangers)
        added = []
        for one, line in zip(batch, lines, strict=True):
            if line.id in known:
                if one.same_as(known[line.id]):
                    report.known["memory"] += 1
                else:
                    report.conflicts += 1
                    report.leave_out(one, "another memory has its id here")
            elif any(cited.end > chars.get(cited.episode_id, 0) for cited in line.citations):
                report.orphans += 1
                report.leave_out(one, "the words that it rests on are not here")
            else:
                await tx.portable.add_memory(line)
                report.new["memory"] += 1
                added.append(line.id)
        return added

    async def _promise_vectors(self, namespace: Namespace) -> None:
        """A job for each episode of which something is found by its words alone."""
        if self.model is None:
            return
        kinds: tuple[Literal["memories", "turns"], ...] = ("memories", "turns")
        for what in kinds:
            after, more = "", True
            while more:
                async with self.store.transaction(namespace) as tx:
                    bare, after = await tx.portable.without_vectors(what, self.model, after)
                    for episode_id in sorted(bare):
                        job_id = derived_id("job", episode_id, EMBED, self.model)
                        payload = {"episode_id": episode_id}
                        await tx.portable.promise(job_id, EMBED, payload, self.now())
                more = bool(after)


def _damaged(number: int, what: str) -> ExportDamaged:
    return ExportDamaged(
        f"Line {number} of the export: {what}. Fetch the file again, or make a new export; what "
        "was taken in before this line stays, and is known the next time."
    )


def _supported(raw: bytes) -> None:
    """Raise `ExportUnsupported` on the first line of something else, or of another version."""
    try:
        head = json.loads(raw)
    except (ValueError, RecursionError):
        head = None
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        raise ExportUnsupported("The file does not begin as an export of recall-server does.")
    if head.get("version") != VERSION:
        raise ExportUnsupported(
            f"The export is of another version than {VERSION}. Use a release that knows it."
        )


def _key(line: Line) -> str:
    """By what the lines of a kind are sorted."""
    match line.kind:
        case "recipient":
            return f"{line.task_id} {line.id}"
        case "excerpt":
            return f"{line.episode_id} {line.position:010}"
        case "manifest" | "end":
            return ""
        case _:
            return line.id


def _batches(
    lines: "Iterator[Manifest | Numbered | Line]", report: Report
) -> Iterator[list[Numbered]]:
    batch: list[Numbered] = []
    size = 0
    for one in lines:
        if not isinstance(one, Numbered):
            report.told[one.kind] += 1
            continue
        if batch and (len(batch) == BATCH_LINES or size + one.bytes > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(one)
        size += one.bytes
    if batch:
        yield batch


T = TypeVar("T", Episode, MemoryLine)


def _only(batch: Iterable[Numbered], kind: type[T]) -> list[Numbered]:
    return [one for one in batch if isinstance(one.line, kind)]


def _found(lines: Iterable[Episode | MemoryLine], added: Collection[str]) -> list[str]:
    """The ids of what search finds of those lines that were added."""
    found = []
    for line in lines:
        if line.id not in added:
            continue
        if isinstance(line, Episode):
            found += [turn_id(line.id, one.position) for one in line.turns if one.state == "open"]
        elif line.status is Status.ACTIVE:
            found.append(line.id)
    return found
