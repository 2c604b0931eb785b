"""Exports a namespace, or what it knows about one person, as JSON Lines; `importing` reads them."""

import asyncio
import hashlib
from collections import Counter
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from typing import Any

from recall_server.domain.attributes import SubjectAliases
from recall_server.domain.context import Context
from recall_server.domain.episode import turn_id
from recall_server.domain.erasure import SUBJECT_CHARS_MAX, Subject
from recall_server.domain.errors import ExportBusy, Stale
from recall_server.domain.export_format import FORMAT, VERSION, Record, spelled, written
from recall_server.domain.ids import Namespace
from recall_server.domain.text.cleaning import clean_label
from recall_server.services.audit import ReadLog
from recall_server.services.auth import EXPORTS, OpenAnswers, require_standing
from recall_server.storage.store import Store, Transaction
from recall_server.storage.tables.export import Records

OPERATION = "export_namespace"
# How often a waiting export checks whether it is its turn.
LOOK_S = 0.1


class Account:
    """Counts of the lines written so far by kind, and their SHA-256."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._digest = hashlib.sha256()

    def add(self, kind: str, line: bytes) -> None:
        self.counts[kind] += 1
        self._digest.update(line)

    def end(self) -> Record:
        return {"kind": "end", "counts": dict(self.counts), "sha256": self._digest.hexdigest()}

    def lines(self, records: Iterable[Record]) -> bytes:
        """Return the records as lines, and count them."""
        lines = []
        for record in records:
            lines.append(written(record))
            self.add(record["kind"], lines[-1])
        return b"".join(lines)


class Reader:
    """The reader of one export. `waited_s`: how long the export has waited for it in total.
    `limit`: the timeout of the piece that is being sent, if any.
    """

    def __init__(self) -> None:
        self.limit: asyncio.Timeout | None = None
        self.ended = False
        self._waited_s = 0.0
        self._since: float | None = None

    @property
    def waited_s(self) -> float:
        return self._waited_s + (0.0 if self._since is None else _seconds() - self._since)

    @contextmanager
    def taking(self) -> Iterator[None]:
        self._since = _seconds()
        try:
            yield
        finally:
            self._waited_s, self._since = self.waited_s, None

    def end(self) -> None:
        """End the export, in the middle of a piece if necessary."""
        if not self.ended and self.limit is not None:
            self.limit.reschedule(_seconds())
        self.ended = True


@dataclass(frozen=True)
class Export:
    """Streams what a namespace holds. `server` is the id of the server's key.

    At most `at_once` exports run, one per namespace, as each holds a connection. A further one
    waits for `wait_s`; meanwhile exports that have waited for their reader for `reader_s` in total
    are ended.
    """

    store: Store
    reads: ReadLog
    now: Callable[[], datetime]
    server: str
    schema_version: int
    at_once: int
    reader_s: float
    wait_s: float
    answers: OpenAnswers
    _open: dict[Namespace, Reader] = field(default_factory=dict)

    async def stream(
        self, context: Context, *, subject: str | None = None, reader: Reader | None = None
    ) -> AsyncGenerator[bytes, None]:
        """Yield all lines, a few whole ones at a time, in one snapshot, taken when the first is
        asked for; the audit record is written before it. `subject`: only what concerns the person
        with this name. Memory use does not grow with the namespace, except, with `subject`, by the
        ids of what was found.

        The caller must close it (`aclosing`). Raises `NamespaceNotFound`, and `ExportBusy` while
        another export of the namespace runs, or too many others do; in the middle `ExportBusy` if
        it must give way to others, `Unauthenticated` if the caller's token has ended, and `Stale`
        if something was erased, which the snapshot still has.
        """
        person = None if subject is None else Person(subject)
        reader = reader or Reader()
        async with self._turn(context, reader):
            # So that the export has the records of all reads that this process has answered.
            await self.reads.flush(context.namespace)
            async with self.store.transaction(context.namespace, entry=context.entry):
                pass
            account = Account()
            async with self.store.snapshot(context.namespace) as tx:
                began = await tx.words.statistics()
                async for records in self._records(tx, context.namespace, person):
                    with reader.taking():
                        yield account.lines(records)
                    if reader.ended:
                        raise ExportBusy
                    await require_standing(self.store, self.now(), context.entry)
                    now = await self.store.autocommit(context.namespace).words.statistics()
                    # The numbers of a namespace that was erased begin anew.
                    if now.erase_epoch != began.erase_epoch or now.last_event < began.last_event:
                        raise Stale(
                            "Something was erased meanwhile, which this export would have. Repeat "
                            "it."
                        )
            yield written(account.end())

    @asynccontextmanager
    async def _turn(self, context: Context, reader: Reader) -> AsyncIterator[None]:
        namespace = context.namespace
        until = _seconds() + self.wait_s
        while namespace in self._open or len(self._open) >= self.at_once:
            if namespace in self._open or _seconds() > until:
                raise ExportBusy
            slowest = max(self._open.values(), key=lambda one: one.waited_s)
            if slowest.waited_s >= self.reader_s:
                slowest.end()
            await asyncio.sleep(LOOK_S)
        self._open[namespace] = reader
        try:
            with self.answers.counted(EXPORTS, namespace, context.entry.bearer):
                yield
        finally:
            del self._open[namespace]

    async def _records(
        self, tx: Transaction, namespace: Namespace, person: "Person | None"
    ) -> AsyncIterator[Sequence[Record]]:
        aliases = await tx.aliases.all()
        if person is not None:
            person.aliases = aliases
        manifest = {
            "kind": "manifest",
            "format": FORMAT,
            "version": VERSION,
            "namespace": namespace,
            "made_at": spelled(self.now()),
            "engine": self.store.engine,
            "schema_version": self.schema_version,
            "server": self.server,
            "subject": person and person.name,
            "conflict_policy": await tx.access.policy(),
            "aliases": [
                {"subject": subject, "aliases": [one.alias for one in some]}
                for subject, some in groupby(aliases.all, lambda one: one.subject)
                if person is None or person.is_(subject)
            ],
        }
        yield [manifest]
        async for records in _whole(tx) if person is None else _concerning(tx, person):
            yield records


async def _whole(tx: Transaction) -> AsyncIterator[Records]:
    held = tx.exports
    for pages in (held.episodes(), held.memories(), held.tasks(), held.recipients(), held.audit()):
        async for records in pages:
            yield records


class Person:
    """The person that an export is about. Raises `Invalid` if it is no name. Facts about an alias,
    and what somebody of that name said, are about the person; other texts, if the name is in them.
    """

    aliases = SubjectAliases()

    def __init__(self, name: str) -> None:
        self.name = clean_label(name, "subject", chars_max=SUBJECT_CHARS_MAX)
        self._subject = Subject(self.name)

    def is_(self, name: str | None) -> bool:
        subject = self.aliases.subject
        return name is not None and subject(name) == subject(self.name)

    def named_in(self, text: str | None) -> bool:
        """Return whether a text names the person, as an erasure of the person would find it."""
        return text is not None and bool(self._subject.places(text))

    def concerned(self, memory: Record) -> bool:
        return self.is_(memory["entity"]) or any(
            self.named_in(memory[name]) for name in ("text", "entity", "value")
        )


def _seconds() -> float:
    return asyncio.get_running_loop().time()


async def _concerning(tx: Transaction, person: Person) -> AsyncIterator[Records]:
    """Yield the turns that the person said, that name them, or that a memory about them rests on;
    the memories about them; and the audit records about any of these.
    """
    found: set[str] = set()
    cited: dict[str, list[tuple[int, int]]] = {}
    async for memories in tx.exports.memories():
        for memory in filter(person.concerned, memories):
            found.add(memory["id"])
            for one in memory["citations"]:
                cited.setdefault(one["episode_id"], []).append((one["start"], one["end"]))
    async for episodes in tx.exports.episodes():
        excerpts = await asyncio.to_thread(_excerpts, episodes, person, cited)
        for excerpt in excerpts:
            found |= {excerpt["episode_id"], turn_id(excerpt["episode_id"], excerpt["position"])}
        yield excerpts
    async for memories in tx.exports.memories():
        yield [memory for memory in memories if memory["id"] in found]
    async for lines in tx.exports.audit():
        yield [line for line in lines if not found.isdisjoint(line["ids"])]


def _excerpts(
    episodes: Records, person: Person, cited: Mapping[str, Sequence[tuple[int, int]]]
) -> list[dict[str, Any]]:
    found = []
    for episode in episodes:
        places = cited.get(episode["id"], ())
        for turn in episode["turns"]:
            start, end = turn["start"], turn["end"]
            text = episode["text"][start:end]
            if (
                person.is_(turn["speaker"])
                or person.named_in(turn["speaker"])
                or person.named_in(text)
                or any(first < end and start < last for first, last in places)
            ):
                excerpt = {name: turn[name] for name in ("position", "said_at", "speaker")}
                excerpt |= {name: episode[name] for name in ("topic", "recorded_at")}
                found.append(
                    {"kind": "excerpt", "episode_id": episode["id"], **excerpt, "text": text}
                )
    return found
