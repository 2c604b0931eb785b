"""Import: lines of an export become a namespace again.

The imported lines are the only progress that is kept. Each line is imported once, so a repeated
import continues where an interrupted one ended.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO, Protocol

from recall_server.domain.audit import AuditEntry
from recall_server.domain.context import Runtime
from recall_server.domain.episode import Citation, Span, Turn
from recall_server.domain.errors import (
    BeingErased,
    ExportDamaged,
    ExportUnsupported,
    Invalid,
    LimitReached,
    TextTooLong,
)
from recall_server.domain.export_format import FORMAT, ORDER, VERSION, End, Episode, Line, Manifest
from recall_server.domain.export_format import Memory as MemoryLine
from recall_server.domain.export_format import read as read_line
from recall_server.domain.ids import Namespace
from recall_server.domain.memory import BELIEVED, FINDABLE, Status
from recall_server.domain.search.index_entry import Findable, findable_passages
from recall_server.services.memory import beliefs, commit, indexing, reconcile
from recall_server.services.memory.commit import Judgements
from recall_server.services.memory.episodes import Redaction, promise_expiry
from recall_server.services.memory.indexing import promise_lacking
from recall_server.services.transfer import Account, intake
from recall_server.storage.driver import batches
from recall_server.storage.index.words import Postings, postings
from recall_server.storage.store import Store, Transaction

OPERATION = "import_namespace"
# One transaction imports at most this many lines, or bytes of them: all writers wait on SQLite.
BATCH_LINES = 100
BATCH_BYTES = 250_000
# One transaction settles so many memories with what was known before.
RECONCILED_AT_ONCE = 25
NAMED_MAX = 100


class Refusals(Protocol):
    """Finds the texts that must not be imported."""

    def digests_of(
        self, namespace: Namespace, texts: Sequence[tuple[str, Sequence[Turn]]]
    ) -> Sequence[set[str]]:
        """Return digests of each of these texts, given with their turns."""

    async def refused(self, tx: Transaction, digests: Sequence[set[str]]) -> set[int]:
        """Return the indexes of the texts with these digests that are refused, as `tx` sees it."""


# The fields of a line that never change after its import. The others may have changed since.
_FIXED_OF_EPISODE = {"text", "content_hash", "topic", "container", "occurred_at", "recorded_at"}
_FIXED_OF_MEMORY = {
    *("text", "type", "topic", "entity", "attribute", "value", "negated", "said_at", "valid_from"),
    *("recorded_at", "extractor", "container"),
}


# From this schema version on, an episode says which of its words are forgotten.
FORGOTTEN_WORDS_SCHEMA = 24


@dataclass(frozen=True)
class Numbered:
    """A line of the file that is to be imported, with its number and size."""

    number: int
    bytes: int
    line: Episode | MemoryLine
    # Turns that go into quarantine, with the reasons.
    held: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def fixed(self) -> dict[str, Any]:
        names = _FIXED_OF_EPISODE if isinstance(self.line, Episode) else _FIXED_OF_MEMORY
        return self.line.model_dump(mode="json", include=names)

    def same_as(self, known: Mapping[str, Any]) -> bool:
        return all(known[name] == value for name, value in self.fixed.items())


@dataclass
class Report:
    """The counts of an import from a file of this `schema` version.

    `new`, `known`: lines that were imported, and that were here already, by kind.
    `skipped`: lines that are never imported: tasks, recipients and audit records belong to their
    own server.
    `conflicts`: lines whose id, or idempotency key, is used for something else here.
    `refused`: texts that were erased here. `orphans`: memories whose words are not here.
    `unfit`: lines that no protocol would accept. `held`: turns that went into quarantine.
    `left_out`: the first lines that could not be imported: number, id and reason.
    `taken_ids`: the ids in the file that other episodes have here.
    """

    schema: int
    new: Counter[str] = field(default_factory=Counter)
    known: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    conflicts: int = 0
    refused: int = 0
    orphans: int = 0
    unfit: int = 0
    held: int = 0
    left_out: list[tuple[int, str, str]] = field(default_factory=list)
    taken_ids: set[str] = field(default_factory=set)

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
            "unfit": self.unfit,
            "quarantined": self.held,
        }


@dataclass(frozen=True)
class _Computed:
    """Parts of a batch that are computed before the transaction, which others await: the digests
    by which its lines would be refused; the passages of its texts, by the id of the text; and the
    words of these, with their lists.
    """

    digests: Sequence[set[str]]
    passages: Mapping[str, Mapping[str, Findable]]
    words: Postings
    lists: indexing.Lists

    async def index(self, tx: Transaction, texts: Sequence[str]) -> None:
        """Add the passages of these texts of the batch to the index."""
        if not texts:
            return
        if len(texts) == len(self.passages):
            await tx.words.add(self.words, await self.lists.fitting(tx))
            return
        some = [self.passages[one] for one in texts]
        await tx.words.add(await asyncio.to_thread(_words, some))


@dataclass(frozen=True)
class Import:
    """Imports exports, each text as if it came through a protocol. `model`: the model of the
    vectors, if there are any. `refusals`: finds the texts that must not come back.
    """

    store: Store
    runtime: Runtime
    model: str | None
    text_chars_max: int
    text_passages_max: int
    line_bytes_max: int
    refusals: Refusals
    redaction: Redaction
    judgements: Judgements

    def check(self, file: BinaryIO) -> Manifest:
        """Read the whole file without writing; return its manifest. Raises what `lines` does."""
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
        """Import an export into a namespace, which is created if it is new, each batch in one
        transaction with its audit record. `on_progress` gets the number of lines read.

        A line that is here with the same content is left as it is; one that is here with other
        content is left too, and reported. Raises `ExportDamaged` or `ExportUnsupported`, naming the
        line, or `LimitReached`: lines imported before that stay, and are known the next time.
        """
        first, lines = entry(), self.lines(file)
        manifest = next(lines)
        assert isinstance(manifest, Manifest)
        report, believed, disputes = Report(manifest.schema_version), set[str](), set[str]()
        async with self.store.transaction(namespace, entry=first) as tx:
            if await tx.erasures.namespace_is_erased():
                raise BeingErased
            known = await tx.exports.exists()
            if not known:
                await tx.access.add_namespace(self.runtime.now())
                # The policy of an existing namespace is for its owner to set.
                await tx.access.set_policy(manifest.conflict_policy)
            await self._aliases(tx, manifest, report, first)
        for batch in _batches(lines, report):
            line = entry()
            line.part_of = first.id
            await self._write(namespace, batch, report, line)
            new = _that_may_contradict(batch) if known else []
            believed.update(new)
            for some in batches(new, RECONCILED_AT_ONCE):
                line = entry()
                line.part_of = first.id
                await self._reconcile(namespace, some, believed, line)
            disputes |= _open_disputes(batch)
            on_progress(batch[-1].number)
        async with self.store.transaction(namespace, locked=True) as tx:
            await commit.settle_ended(tx, await tx.moment())
            # Only now: a side may have come with a later batch.
            await self.judgements.promise_each(tx, sorted(disputes), first.began_by)
        await promise_lacking(self.store, self.runtime, namespace, self.model)
        self.runtime.wake()
        return report

    def lines(self, file: BinaryIO) -> "Iterator[Manifest | Numbered | Line]":
        """Yield the lines in order, from the manifest to the last before the end. Raises
        `ExportDamaged`, `ExportUnsupported`, `LimitReached` and `TextTooLong`.
        """
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
                if line.model_dump() != account.end():
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
                "The file is about one person, and not of a whole namespace. Import an export that "
                "was made without --subject."
            )
        if isinstance(line, Episode | MemoryLine) and len(line.text) > self.text_chars_max:
            raise TextTooLong(
                f"The text of line {number} has {len(line.text)} characters; at most "
                f"{self.text_chars_max} are taken. Raise RECALL_TEXT_CHARS_MAX if the file is "
                "yours."
            )
        return line

    async def _aliases(
        self, tx: Transaction, manifest: Manifest, report: Report, entry: AuditEntry
    ) -> None:
        """Import the aliases of subjects that have none here."""
        await tx.lock()
        for one in manifest.aliases:
            given = [await self.redaction.text(name, entry) for name in (one.subject, *one.aliases)]
            known = (await tx.aliases.all()).aliases(given[0])
            try:
                names = [beliefs.checked_alias(name) for name in given]
                if not known:
                    await beliefs.set_aliases(tx, names[0], names[1:])
            except (Invalid, LimitReached):
                report.conflicts += 1

    async def _write(
        self, namespace: Namespace, batch: Sequence[Numbered], report: Report, line: AuditEntry
    ) -> None:
        """Import a batch."""
        before = report.new.total()
        batch = await self._prepared(batch, report, line)
        ahead = await self._computed(namespace, batch)
        async with self.store.transaction(namespace, entry=line, locked=True) as tx:
            # Every imported text passes this check.
            refused = await self.refusals.refused(tx, ahead.digests)
            report.refused += len(refused)
            for place in refused:
                report.leave_out(batch[place], "it was erased")
            left = [one for place, one in enumerate(batch) if place not in refused]
            episodes = [(one, one.line) for one in left if isinstance(one.line, Episode)]
            memories = [(one, one.line) for one in left if isinstance(one.line, MemoryLine)]
            added = [
                *await self._episodes(tx, episodes, report),
                *await self._memories(tx, memories, report),
            ]
            ids = set(added)
            new = [one for one in left if one.line.id in ids]
            for one in new:
                await tx.quarantine.hold(one.line.id, one.held, await tx.moment())
                report.held += len(one.held)
            marked = report.schema >= FORGOTTEN_WORDS_SCHEMA
            await self._index(tx, [one.line for one in new], ahead, marked=marked)
            line.ids += added
            line.counts["new"] = report.new.total() - before

    async def _reconcile(
        self, namespace: Namespace, ids: Sequence[str], believed: set[str], line: AuditEntry
    ) -> None:
        """Settle imported memories that contradict what was known here before. `believed`: the
        memories of the file so far that may contradict others; among each other they stay as they
        are.
        """
        async with self.store.transaction(namespace, entry=line, locked=True) as tx:
            settling, now = await reconcile.settling(tx), await tx.moment()
            for memory in await tx.memories.active(ids):
                if memory.status is Status.ACTIVE:
                    plan = await reconcile.arrived(tx, memory, believed, now, settling)
                    await self.judgements.apply(tx, plan, now, line)

    async def _prepared(
        self, batch: Sequence[Numbered], report: Report, entry: AuditEntry
    ) -> list[Numbered]:
        """Return the lines as they are imported, without those that are unfit."""
        lines = [await intake.masked(one.line, self.redaction, entry) for one in batch]
        made = await asyncio.to_thread(lambda: [intake.prepared(one) for one in lines])
        taken = []
        for one, ready in zip(batch, made, strict=True):
            if ready.unfit:
                report.unfit += 1
                report.leave_out(one, ready.unfit)
            else:
                taken.append(replace(one, line=ready.line, held=ready.held))
        return taken

    async def _computed(self, namespace: Namespace, batch: Sequence[Numbered]) -> "_Computed":
        tables = self.store.autocommit(namespace)
        last_slot = (await tables.words.statistics()).last_slot

        def compute() -> _Computed:
            lines = [one.line for one in batch]
            read = {one.id: intake.as_read(one) for one in lines if isinstance(one, Episode)}
            # With their turns: a text does not show which of them were messages.
            texts = [(one.text, read[one.id].turns if one.id in read else ()) for one in lines]
            digests = self.refusals.digests_of(namespace, texts)
            passages = {one: findable_passages(text) for one, text in read.items()}
            words = _words(passages.values())
            return _Computed(digests, passages, words, indexing.lists(words, last_slot))

        return await asyncio.to_thread(compute)

    async def _index(
        self,
        tx: Transaction,
        lines: Sequence[Episode | MemoryLine],
        ahead: "_Computed",
        *,
        marked: bool,
    ) -> None:
        """Let search find these lines. `marked`: the texts say which of their words are forgotten;
        those of older releases do not.
        """
        texts = [line.id for line in lines if isinstance(line, Episode)]
        memories = [line for line in lines if isinstance(line, MemoryLine)]
        forgotten = [line for line in memories if line.status is Status.FORGOTTEN]
        found = [line.id for line in memories if line.status in FINDABLE]
        for episode_id in texts:
            count = len(ahead.passages[episode_id])
            if count > self.text_passages_max:
                raise TextTooLong(
                    f"The text {episode_id} falls into {count} passages; at most "
                    f"{self.text_passages_max} are taken. Raise RECALL_TEXT_PASSAGES_MAX if the "
                    "file is yours."
                )
        await ahead.index(tx, texts)
        if found:
            await indexing.show(tx, found)
        for line in () if marked else forgotten:
            words = [Citation(one.episode_id, Span(one.start, one.end)) for one in line.citations]
            assert line.retired_at is not None
            await (await commit.forgotten(tx, line.id, words)).write(tx, line.retired_at)

    async def _episodes(
        self, tx: Transaction, batch: Sequence[tuple[Numbered, Episode]], report: Report
    ) -> list[str]:
        known = await tx.exports.episodes_of(line.id for _, line in batch)
        keys = await tx.exports.keys_taken(line.idempotency_key for _, line in batch)
        added = []
        for one, line in batch:
            if line.id in known and one.same_as(known[line.id]):
                report.known["episode"] += 1
            elif line.id in known or keys.get(line.idempotency_key, line.id) != line.id:
                report.conflicts += 1
                report.leave_out(one, "another episode has its id or its idempotency key here")
                report.taken_ids.add(line.id)
            else:
                keys[line.idempotency_key] = line.id
                await tx.exports.add_episode(line, await tx.moment())
                await promise_expiry(tx, self.runtime, line.id, line.expired_at)
                report.new["episode"] += 1
                added.append(line.id)
        return added

    async def _memories(
        self, tx: Transaction, batch: Sequence[tuple[Numbered, MemoryLine]], report: Report
    ) -> list[str]:
        known = await tx.exports.memories_of(line.id for _, line in batch)
        sources = {cited.episode_id for _, line in batch for cited in line.citations}
        sources -= report.taken_ids
        chars = await tx.exports.lengths(sources)
        hidden = await tx.episodes.hidden_words(sources)
        added = []
        for one, line in batch:
            if line.id in known:
                if one.same_as(known[line.id]):
                    report.known["memory"] += 1
                else:
                    report.conflicts += 1
                    report.leave_out(one, "another memory has its id here")
            elif any(cited.end > chars.get(cited.episode_id, 0) for cited in line.citations):
                report.orphans += 1
                report.leave_out(one, "the words that it rests on are not here")
            elif any(
                Span(cited.start, cited.end).overlaps(where)
                for cited in line.citations
                for where in hidden.get(cited.episode_id, ())
            ):
                report.unfit += 1
                report.leave_out(one, "the words that it rests on are in quarantine")
            else:
                await tx.exports.add_memory(line, await tx.moment())
                report.new["memory"] += 1
                added.append(line.id)
        return added


def _words(passages: Iterable[Mapping[str, Findable]]) -> Postings:
    """Return the words of the passages of some texts."""
    return postings({item_id: one for of in passages for item_id, one in of.items()}).written()


def _damaged(number: int, what: str) -> ExportDamaged:
    return ExportDamaged(
        f"Line {number} of the export: {what}. Fetch the file again, or make a new export; what "
        "was taken in before this line stays, and is known the next time."
    )


def _supported(raw: bytes) -> None:
    """Raise `ExportUnsupported` unless this is the first line of an export of this version."""
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
    """Return the key by which the lines of a kind are sorted."""
    match line.kind:
        case "recipient":
            return f"{line.task_id} {line.id}"
        case "excerpt":
            return f"{line.episode_id} {line.position:010}"
        case "manifest" | "end":
            return ""
        case _:
            return line.id


def _open_disputes(batch: Sequence[Numbered]) -> set[str]:
    """Return the disputes that wait for an answer in an export."""
    return {
        dispute.question_id
        for one in batch
        if isinstance(one.line, MemoryLine)
        for dispute in one.line.disputes
        if dispute.closed_at is None
    }


def _that_may_contradict(batch: Sequence[Numbered]) -> list[str]:
    """Return the believed memories of a batch that have a fact."""
    return [
        one.line.id
        for one in batch
        if isinstance(one.line, MemoryLine) and one.line.entity and one.line.status in BELIEVED
    ]


def _batches(
    lines: "Iterator[Manifest | Numbered | Line]", report: Report
) -> Iterator[list[Numbered]]:
    batch: list[Numbered] = []
    size = 0
    for one in lines:
        if not isinstance(one, Numbered):
            report.skipped[one.kind] += 1
            continue
        if batch and (len(batch) == BATCH_LINES or size + one.bytes > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(one)
        size += one.bytes
    if batch:
        yield batch
