"""An export holds all data of a namespace and nothing else, and an import restores it."""

import asyncio
import io
import json
import re
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from recall_server.application import Application
from recall_server.bootstrap import open_application
from recall_server.domain import export_format
from recall_server.domain.context import Context
from recall_server.domain.episode import Turn
from recall_server.domain.errors import (
    ExportBusy,
    ExportDamaged,
    ExportUnsupported,
    Invalid,
    LimitReached,
    NotFound,
)
from recall_server.domain.ids import Namespace
from recall_server.domain.query import Query, SearchMode
from recall_server.services.memory.ingest import Submission
from recall_server.storage.store import Transaction
from recall_server.storage.tables import registry
from tests.support.application import Open, settings_for
from tests.support.conversation import ALICE, drained, enter, memories, remember
from tests.support.databases import Filled
from tests.support.engines import Postgres
from tests.support.length import has_full_length, on_both_at_full_length
from tests.support.models import HashEmbedder
from tests.support.processes import Database
from tests.support.runtime import Clock, RandomBytes
from tests.support.transfer import (
    BOB,
    SAID,
    TELLING,
    Json,
    carried,
    exported,
    line_of,
    lived,
    many,
    records,
    sealed,
    taken_in,
)

QUESTIONS = ("Where does Caroline live?", "favourite colour", "café", "tabs", "Postgres store")


@asynccontextmanager
async def opened(database: Database, clock: Clock, *, drawn: int = 0) -> AsyncIterator[Application]:
    random_bytes = RandomBytes(drawn)
    async with open_application(
        settings_for(database), embedder=HashEmbedder(), now=clock, random_bytes=random_bytes
    ) as built:
        yield built


def _fill(database: Database, folder: Path) -> None:
    async def act() -> None:
        async with opened(database, Clock()) as built:
            await lived(built)
            (folder / "alice.jsonl").write_bytes(await exported(built))

    asyncio.run(act())


@pytest.fixture
async def kept(
    filled_database: Database, clock: Clock, tmp_path: Path
) -> AsyncIterator[tuple[Application, bytes]]:
    """Yield an application in which Alice has lived, and her export."""
    clock.pass_(timedelta(hours=2))
    async with opened(filled_database, clock, drawn=1_000_000) as built:
        yield built, (tmp_path / "alice.jsonl").read_bytes()


@pytest.fixture
def filled_database(filled: Filled) -> Database:
    return filled(_fill)


async def answers(built: Application) -> list[list[tuple[str, float]]]:
    """Return ids and scores for all questions in all modes."""
    found = []
    for text in QUESTIONS:
        for mode in SearchMode:
            entry = line_of(built, ALICE, "search_memories")
            hits = (await built.services.recall.search(Context(entry), Query(text, mode=mode))).hits
            found.append([(hit.item.id, round(hit.scores.final, 6)) for hit in hits])
    return found


def _ids(answers: list[list[tuple[str, float]]]) -> list[list[str]]:
    return [sorted(item_id for item_id, _ in hits) for hits in answers]


async def test_a_round_trip_over_both_engines_changes_no_byte_and_no_answer(
    tmp_path: Path, postgres: Postgres, migrated: str, clock: Clock
) -> None:
    with postgres.database(migrated) as url:
        async with (
            opened(tmp_path / "first.db", clock) as first,
            opened(url, clock) as second,
            opened(tmp_path / "third.db", clock) as third,
        ):
            await lived(first)
            one = await exported(first)
            report = await taken_in(second, one)
            two = await exported(second)
            await taken_in(third, two)
            three = await exported(third)
            for built in (first, second, third):
                await drained(built)
            told = [await answers(built) for built in (first, second, third)]

    kinds = {one["kind"] for one in records(one)}
    assert kinds == {"manifest", "episode", "memory", "task", "recipient", "audit", "end"}
    states = {m["status"] for m in records(one, "memory")}
    assert states == {"active", "disputed", "superseded", "forgotten"}
    assert any(m["disputes"] and m["relations"] for m in records(one, "memory"))
    states = {turn["state"] for e in records(one, "episode") for turn in e["turns"]}
    assert states == {"open", "hidden"}
    assert any(m["decisions"] for m in records(one, "memory"))
    assert any(m["access_count"] for m in records(one, "memory"))
    assert any(e["extraction"] for e in records(one, "episode"))
    assert carried(one) == carried(two) == carried(three)
    assert report.new.total() == len(carried(one))
    assert set(report.skipped) == TELLING
    # An import computes vectors again. The first namespace still has some from before words next
    # to them were forgotten.
    assert _ids(told[0]) == _ids(told[1])
    assert told[1] == told[2]
    assert all(told[0][:1])


async def test_every_text_is_exact_and_no_character_of_it_steers_a_terminal(
    open_app: Open,
) -> None:
    async with open_app() as built:
        await lived(built)
        file = await exported(built)

    assert {e["text"] for e in records(file, "episode")} >= set(SAID)
    assert re.fullmatch(rb"[\n -~]+", file)


async def test_it_has_all_of_the_namespace_and_nothing_of_another(open_app: Open) -> None:
    """The data of the other namespaces is in their own exports."""
    async with open_app() as built:
        await lived(built)
        other = Namespace("alice2")
        for name in (BOB, other):
            await enter(built, name)
            await built.services.ingest.remember(
                Context(line_of(built, name, "store_memory")),
                Submission("User: My favourite word is bobcanary.", "bobcanary", "bobcanary"),
            )
        await drained(built)
        alices, bobs = await exported(built), await exported(built, BOB)

    assert b"bobcanary" not in alices
    assert b"secretcanary" not in alices  # The secret of her webhook is left out.
    assert b"https://hooks.example.com/in" in alices
    assert bobs.count(b"bobcanary") > 2
    assert {e["kind"] for e in records(bobs)} >= {"episode", "memory", "audit"}


async def test_it_is_of_one_moment_while_writes_go_on(open_app: Open) -> None:
    """The next export has the writes."""
    async with open_app() as built:
        await lived(built)
        before = carried(await exported(built))
        entry = line_of(built, ALICE, "export_namespace")
        async with aclosing(built.services.export.stream(Context(entry))) as pieces:
            file = await anext(pieces)
            await built.services.ingest.remember(
                Context(line_of(built, ALICE, "store_memory")),
                Submission("--- 1 May 2024 ---\nCaroline: I live in Braga.", "life"),
            )
            await drained(built)
            file += b"".join([piece async for piece in pieces])
        after = carried(await exported(built))

    assert carried(file) == before
    assert after != before
    assert records(file)[-1]["kind"] == "end"


async def test_a_namespace_is_exported_once_at_a_time_and_again_afterwards(
    open_app: Open,
) -> None:
    """A second export at the same time is refused."""
    async with open_app() as built:
        for name in (ALICE, BOB):
            await enter(built, name)
        first = built.services.export.stream(Context(line_of(built, ALICE, "export_namespace")))
        await anext(first)
        with pytest.raises(ExportBusy):
            await exported(built)
        others = await exported(built, BOB)
        await first.aclose()  # A reader that disconnects does not end the other exports.
        whole = await exported(built)

    assert records(whole)[-1]["kind"] == records(others)[-1]["kind"] == "end"


async def test_each_export_and_import_leaves_its_line_and_a_stranger_none(open_app: Open) -> None:
    async with open_app() as built:
        await enter(built)
        file = await exported(built)
        await taken_in(built, file, BOB)
        with pytest.raises(NotFound):
            await exported(built, Namespace("nobody"))
        mine = await built.services.audit.newest(ALICE, 5)
        bobs = await built.services.audit.newest(BOB, 5)

    assert sorted(one.operation for one in mine) == ["create_token", "export_namespace"]
    assert "export_namespace" in {one["operation"] for one in records(file, "audit")}
    assert [one.operation for one in bobs] == ["import_namespace"]


async def test_what_concerns_one_person_is_all_that_is_told_of_them(open_app: Open) -> None:
    """GDPR, article 15: the export has neither what others said nor what is remembered of them."""
    async with open_app() as built:
        await lived(built)
        file = await exported(built, subject="caroline")
        mels = await exported(built, subject="Mel")
        nobodys = await exported(built, subject="Nobody")

    said = [one["text"] for one in records(file, "excerpt")]
    assert any("Lisbon" in text for text in said)
    assert any("Porto" in text for text in said)
    assert b"Ghent" not in file
    assert b"Ghent" in mels
    about = {one["id"] for one in records(file, "memory")}
    assert {one["status"] for one in records(file, "memory")} >= {"superseded", "active"}
    touched = {i for one in records(file, "audit") for i in one["ids"]}
    assert touched & about
    assert records(nobodys, "excerpt", "memory", "audit") == []
    assert records(file)[-1]["counts"]["excerpt"] == len(said)


async def test_what_concerns_one_person_is_found_however_the_name_is_written(
    open_app: Open,
) -> None:
    """An export about a person finds what an erasure of the person would. Before, a soft hyphen or
    an accent in the name kept a turn back.
    """
    async with open_app() as built:
        await enter(built)
        await remember(
            built, "Ben: My rent goes to Zebe\u00addee.\nBen: And the rest to Z\u00e9bedee."
        )
        await remember(built, "Ben: Zebedeeson gets nothing.")
        await drained(built)
        file = await exported(built, subject="Zebedee")

    said = [one["text"] for one in records(file, "excerpt")]
    assert [text for text in said if "rent" in text or "rest" in text] == said
    assert len(said) == 2


async def test_what_concerns_one_person_is_not_taken_in(open_app: Open) -> None:
    async with open_app() as built:
        await lived(built)
        file = await exported(built, subject="Caroline")
        with pytest.raises(ExportUnsupported, match="one person"):
            await taken_in(built, file, BOB)


async def test_taking_it_in_twice_changes_nothing(open_app: Open) -> None:
    async with open_app() as built:
        await lived(built)
        file = await exported(built)
        first = await taken_in(built, file, BOB)
        once = carried(await exported(built, BOB))
        second = await taken_in(built, file, BOB)
        at_home = await taken_in(built, file)
        twice = carried(await exported(built, BOB))
        async with built.store.transaction(BOB, write=False) as tx:
            words = await tx.words.statistics()
        async with built.store.transaction(ALICE, write=False) as tx:
            alices = await tx.words.statistics()

    assert once == twice == carried(file)
    assert first.new.total() == second.known.total() == at_home.known.total() == len(once)
    assert second.new.total() == second.conflicts == at_home.new.total() == 0
    assert (words.documents, words.words) == (alices.documents, alices.words)


async def test_what_is_left_after_an_erasure_can_be_taken_in_elsewhere(open_app: Open) -> None:
    async with open_app() as built:
        await lived(built)
        (memory, *_) = await memories(built)
        entry = line_of(built, ALICE, "erase_memory")
        await built.services.erase.memory(Context(entry), memory.id)
        file = await exported(built)
        assert "" in [one["request_digest"] for one in records(file, "episode")]

        await enter(built, BOB)
        report = await taken_in(built, file, BOB)

        assert (report.refused, report.orphans, report.left_out) == (0, 0, [])
        assert report.new["episode"] == len(records(file, "episode"))


async def test_what_has_become_of_a_memory_since_is_not_undone_by_its_export(
    open_app: Open,
) -> None:
    async with open_app() as built:
        await lived(built)
        file = await exported(built)
        active = next(m for m in records(file, "memory") if m["status"] == "active")
        await built.services.recall.forget(
            Context(line_of(built, ALICE, "delete_memory")), active["id"]
        )
        report = await taken_in(built, file)
        now = {m["id"]: m for m in records(await exported(built), "memory")}

    assert (report.new.total(), report.conflicts) == (0, 0)
    assert now[active["id"]]["status"] == "forgotten"


async def test_another_content_under_the_same_id_is_told_of_and_never_overwritten(
    open_app: Open,
) -> None:
    async with open_app() as built:
        await lived(built)
        file = await exported(built)
        manifest, *lines = [one for one in records(file) if one["kind"] != "end"]
        changed = [_changed(one) for one in lines]
        report = await taken_in(built, sealed(manifest, *changed))
        after = carried(await exported(built))

    episodes, memories = records(file, "episode"), records(file, "memory")
    assert report.conflicts == len(episodes) + len(memories)
    assert {reason for _, _, reason in report.left_out} == {
        "another episode has its id or its idempotency key here",
        "another memory has its id here",
    }
    assert after == carried(file)


def _changed(record: Json) -> Json:
    if record["kind"] == "episode":
        return {**record, "topic": "another"}
    return {**record, "text": "Another text."} if record["kind"] == "memory" else record


async def test_what_must_not_come_back_is_kept_out_with_all_that_rests_on_it(
    open_app: Open,
) -> None:
    """The import passes every text through this check before it writes."""
    seen: list[str] = []

    class Porto:
        """Refuses every text with this word."""

        def digests_of(
            self, _: Namespace, texts: Sequence[tuple[str, Sequence[Turn]]]
        ) -> list[set[str]]:
            seen.extend(text for text, _ in texts)
            return [{text} for text, _ in texts]

        async def refused(self, _: Transaction, digests: Sequence[set[str]]) -> set[int]:
            return {place for place, (text,) in enumerate(digests) if "Porto" in text}

    async with open_app() as built:
        await lived(built)
        file = await exported(built)
        built.services = replace(
            built.services, importing=replace(built.services.importing, refusals=Porto())
        )
        report = await taken_in(built, file, BOB)
        bobs = await exported(built, BOB)

    texts = {one["text"] for one in records(file, "episode", "memory")}
    assert set(seen) == texts
    assert report.refused == sum(
        "Porto" in one["text"] for one in records(file, "episode", "memory")
    )
    assert report.orphans > 0  # Mel said it in the same text.
    assert b"Porto" in file
    assert b"Porto" not in b"".join(carried(bobs))
    assert b"Lisbon" in b"".join(carried(bobs))


async def test_a_file_of_another_namespace_goes_where_the_operator_says_and_nowhere_else(
    open_app: Open,
) -> None:
    async with open_app() as built:
        await lived(built)
        file = await exported(built)
        before = carried(file)
        await taken_in(built, file, BOB)
        manifest = records(await exported(built, BOB))[0]
        still = carried(await exported(built))

    assert manifest["namespace"] == "bob"
    assert manifest["conflict_policy"] == "ask"
    assert still == before


async def test_vectors_are_promised_until_they_are_there_and_then_no_more(open_app: Open) -> None:
    async with open_app() as built:
        await lived(built)
        await drained(built)
        file = await exported(built)
        for _ in range(2):  # The second import finds the jobs of the first.
            await taken_in(built, file, BOB)
        async with built.store.transaction(BOB, write=False) as tx:
            waiting = await tx.jobs.counts()
        await drained(built)
        await taken_in(built, file, BOB)
        async with built.store.transaction(BOB, write=False) as tx:
            done = await tx.jobs.counts()
        entry = line_of(built, BOB, "search_memories")
        question = Query("favourite colour", mode=SearchMode.VECTOR)
        found = await built.services.recall.search(Context(entry), question)

    episodes = len(records(file, "episode"))
    assert 0 < sum(waiting.values()) <= episodes
    assert done == {}
    assert found.hits


Damage = Callable[[list[bytes]], bytes]


def _lines(change: Callable[[list[bytes]], Any]) -> Damage:
    def damage(lines: list[bytes]) -> bytes:
        change(lines)
        return b"".join(lines)

    return damage


def _line(number: int, change: Callable[[Json], Any]) -> Damage:
    """Change the record of a line (counted from 1), and adjust the rest of the file to it."""

    def damage(lines: list[bytes]) -> bytes:
        record = json.loads(lines[number - 1])
        change(record)
        raw = json.dumps(record, ensure_ascii=True).encode() + b"\n"
        return sealed(*lines[: number - 1], raw, *lines[number:-1])

    return damage


DAMAGES: dict[str, tuple[Damage, type[Exception], str]] = {
    "not JSON": (_lines(lambda x: x.__setitem__(3, b"{\n")), ExportDamaged, "Line 4 "),
    "not UTF-8": (_lines(lambda x: x.__setitem__(3, b'{"\xff"}\n')), ExportDamaged, "Line 4 "),
    "cut in a line": (lambda x: b"".join(x[:4])[:-9], ExportDamaged, "Line 4 "),
    "cut between lines": (lambda x: b"".join(x[:4]), ExportDamaged, "Line 5 .*cut off"),
    "reordered": (_lines(lambda x: x.insert(2, x.pop(3))), ExportDamaged, "Line 4 .*its place"),
    "repeated": (_lines(lambda x: x.insert(3, x[2])), ExportDamaged, "Line 4 .*twice"),
    "one left out": (_lines(lambda x: x.pop(3)), ExportDamaged, "Line .*not those"),
    "more behind the end": (_lines(lambda x: x.append(x[2])), ExportDamaged, "Line .*behind"),
    "another text": (
        _line(3, lambda r: r.update(text=r["text"] + ".")),
        ExportDamaged,
        "Line 3 .*content_hash",
    ),
    "a byte of a memory": (
        lambda x: b"".join(x).replace(b"Caroline lives in Porto", b"Caroline lives in Parto"),
        ExportDamaged,
        "Line .*not those that were written",
    ),
    "an unknown field": (_line(3, lambda r: r.update(extra=1)), ExportDamaged, "Line 3 .*extra"),
    "a field missing": (_line(3, lambda r: r.pop("topic")), ExportDamaged, "Line 3 .*topic"),
    "an unknown kind": (
        lambda x: b"".join([*x[:2], b'{"kind":"spell"}\n', *x[2:]]),
        ExportDamaged,
        "Line 3 ",
    ),
    "an id of another grammar": (
        _line(3, lambda r: r.update(id="../../etc/passwd")),
        ExportDamaged,
        "Line 3 .*id",
    ),
    "a NUL": (
        _line(3, lambda r: r.update(name="a\x00b")),
        ExportDamaged,
        "Line 3 .*name.*NUL",
    ),
    "half a surrogate pair": (
        _line(3, lambda r: r.update(name="\ud800")),
        ExportDamaged,
        "Line 3 ",
    ),
    "a topic that steers a terminal": (
        _line(3, lambda r: r.update(topic="\x1b[2J")),
        ExportDamaged,
        "Line 3 .*topic",
    ),
    "a turn beyond the text": (
        _line(3, lambda r: r["turns"][0].update(end=9_999)),
        ExportDamaged,
        "Line 3 .*turn",
    ),
    "no number": (
        lambda x: b"".join(x).replace(b'"importance":0.', b'"importance":NaN,"x":0.', 1),
        ExportDamaged,
        "Line 2 .*importance|Line 2 ",
    ),
    "too long a line": (
        lambda x: b"".join([*x[:2], b" " * 20_000_000 + b"\n", *x[2:]]),
        LimitReached,
        "Line 3 .*RECALL_IMPORT_LINE_BYTES_MAX",
    ),
    "of a later version": (
        _line(1, lambda r: r.update(version=2)),
        ExportUnsupported,
        "another version",
    ),
    "something else": (lambda _: b"PK\x03\x04\n", ExportUnsupported, "does not begin"),
    "nothing": (lambda _: b"", ExportDamaged, "Line 1 "),
}


@pytest.mark.parametrize("damage", DAMAGES)
async def test_what_is_damaged_is_named_by_its_line_and_writes_nothing_of_itself(
    kept: tuple[Application, bytes], damage: str
) -> None:
    """The positive control: the undamaged file is imported."""
    built, file = kept
    change, kind, said = DAMAGES[damage]
    broken = change(file.splitlines(keepends=True))
    with pytest.raises(kind, match=f"(?s){said}") as caught:
        built.services.importing.check(io.BytesIO(broken))
    with pytest.raises(kind):
        await taken_in(built, broken, BOB)
    report = await taken_in(built, file, BOB)
    whole = carried(await exported(built, BOB))

    assert broken != file
    assert isinstance(caught.value, Invalid | LimitReached)
    assert report.conflicts == 0
    assert whole == carried(file)


async def test_a_memory_must_rest_on_words_that_are_there(open_app: Open) -> None:
    async with open_app() as built:
        await lived(built)
        file = await exported(built)
        manifest, memory = records(file)[0], records(file, "memory")[0]
        report = await taken_in(built, sealed(manifest, memory), BOB)

    assert report.orphans == 1
    assert report.new.total() == 0


LINES: dict[str, type[BaseModel]] = {
    "episodes": export_format.Episode,
    "memories": export_format.Memory,
    "runs": export_format.Task,
    "push_configs": export_format.Recipient,
    "tool_call_records": export_format.Audit,
}


@pytest.mark.parametrize("table", LINES)
def test_every_exported_column_has_a_field_in_its_line(table: str) -> None:
    """`test_schema` checks that the registry has every column."""
    columns = {name for name, _ in registry.BY_NAME[table].fields}
    fields = LINES[table].model_fields.items()
    assert columns <= {field.alias or name for name, field in fields}


@pytest.mark.parametrize("table", registry.TENANT)
def test_every_table_is_exported_or_says_why_not(table: str) -> None:
    entry = registry.BY_NAME[table]
    assert bool(entry.exported) != bool(entry.not_exported)


def test_the_form_is_told_as_a_json_schema() -> None:
    schema = export_format.schema()

    kinds = {
        one["properties"]["kind"]["const"]
        for one in schema["$defs"].values()
        if "kind" in one.get("properties", {})
    }
    assert kinds == set(export_format.ORDER)


@on_both_at_full_length
@has_full_length
@pytest.mark.slow
async def test_memory_does_not_grow_with_what_is_carried(open_app: Open) -> None:
    """Four times as many lines take no more memory, in an export or an import."""
    peaks = {}
    async with open_app() as built:
        for name, count in (("small", 400), ("large", 1_600)):
            namespace, file = Namespace(name), many(count)
            await enter(built, namespace)
            with _traced() as taking:
                await taken_in(built, file, namespace)
            with _traced() as giving:
                await _counted(built, namespace)
            peaks[name] = [*taking, *giving]

    print(peaks)
    for small, large in zip(peaks["small"], peaks["large"], strict=True):
        assert large < 1.5 * small


async def _counted(built: Application, namespace: Namespace) -> None:
    entry = line_of(built, namespace, "export_namespace")
    lines = 0
    async for piece in built.services.export.stream(Context(entry)):
        lines += piece.count(b"\n")
    assert lines > 400


@contextmanager
def _traced() -> Iterator[list[int]]:
    """Yield a list that holds, at the end, the largest number of bytes in use."""
    peak: list[int] = []
    tracemalloc.start()
    try:
        yield peak
        peak.append(tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()
