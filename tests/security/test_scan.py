"""Erased data is nowhere: not in a file, a journal, an index or a log of the database."""

import asyncio
import base64
import json
import random
import sys
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest

from recall_server.domain.context import Context
from recall_server.domain.episode import Source
from recall_server.domain.errors import Invalid
from recall_server.domain.memory import Fact
from recall_server.domain.task import Mode, Request
from recall_server.services.erasure.leak_scan import LeakPatterns, scan
from recall_server.services.memory.ingest import Submission
from tests.support.application import Open
from tests.support.conversation import ALICE, context, drained, enter, remember
from tests.support.engines import on_postgres
from tests.support.erasure import candidate, erase_all, select
from tests.support.extractors import Scripted
from tests.support.processes import until
from tests.support.runtime import NOON
from tests.support.stored import left_of, without_removed_log
from tests.support.vector_scan import scan_vectors

# So many that Postgres removes old ones rather than use them again.
SEGMENTS = 8
WITHIN_S = 30.0


def canaries(*stores: str) -> dict[str, str]:
    """Make a word for each store. It is random, so that nothing compresses it, and it is one term
    of the index.
    """
    # Other words for each test, since several use one Postgres.
    rng = random.Random(f"20260301 {stores}")
    letters = "abcdefghijklmnopqrstuvwxyz234567"
    return {store: "".join(rng.choices(letters, k=24)) for store in stores}


@pytest.mark.parametrize(
    "disguise",
    [
        lambda word: word.encode(),
        lambda word: word[9:17].encode(),
        lambda word: word.upper().encode(),
        lambda word: word.encode("utf-16-le"),
        lambda word: word.encode("utf-16-be"),
        lambda word: word[::-1].encode(),
        lambda word: word.encode().hex().encode(),
        lambda word: "".join(f"%{b:02X}" for b in word.encode()).encode(),
        lambda word: "".join(f"\\u{ord(c):04x}" for c in word).encode(),
        lambda word: base64.b64encode(word.encode()),
        lambda word: base64.b64encode(b"x" + word.encode() + b"y"),
        lambda word: base64.b64encode(b"xx" + word.encode() + b"yyy"),
    ],
)
def test_a_word_is_found_in_every_disguise(disguise: object) -> None:
    (word,) = canaries("one").values()
    hidden = disguise(word)  # type: ignore[operator]

    assert LeakPatterns.compile([word]).find(b"\x00" * 100 + hidden + b"\xff" * 100)
    assert not LeakPatterns.compile([word]).find(b"\x00" * 100 + b"something else" + b"\xff" * 100)


def test_a_word_beyond_ascii_is_found_as_json_and_url_spell_it() -> None:
    needles = LeakPatterns.compile(["Ærøskøbing-Straße"])

    for text in (json.dumps("Ærøskøbing-Straße"), "ÆRØSKØBING-STRASSE", quote("Straße-øøø")):
        assert bool(needles.find(text.encode())) == ("øøø" not in text and "%" not in text)


@pytest.mark.parametrize("before", [b"", b"x", b"xx"])
@pytest.mark.parametrize("after", [b"", b"y", b"yy"])
def test_the_shortest_word_is_found_in_base64_whatever_stands_around(
    before: bytes, after: bytes
) -> None:
    needles = LeakPatterns.compile(["Zanzibar"])

    assert needles.find(b"-" * 9 + base64.b64encode(before + b"Zanzibar" + after) + b"-" * 9)
    assert not needles.find(b"-" * 9 + base64.b64encode(before + b"Portugal" + after) + b"-" * 9)


def test_a_word_too_short_to_tell_is_refused() -> None:
    with pytest.raises(Invalid):
        LeakPatterns.compile(["tea"])


async def test_no_fragment_is_left_after_erasure_and_purge(open_app: Open) -> None:
    """The control: before the erasure, each canary is found."""
    words = canaries(
        "text", "topic", "session", "agent", "client", "key", "speaker", "memory", "entity",
        "value", "retired", "run", "label",
    )  # fmt: skip
    said = f"{words['speaker'].title()}: I keep {words['text']} at home in the big green box."
    fact = Fact(words["entity"], "lives_in", words["value"])
    extractor = Scripted(
        keep=candidate(f"It is about {words['memory']}", "I keep", said, fact),
        box=candidate(
            "later", "big green box", said, Fact(words["entity"], "lives_in", words["retired"])
        ),
    )
    async with open_app(extractor=extractor) as application:
        issued = application.services.audit.begin(ALICE, "create_token", "test", None)
        await application.services.access.issue(Context(issued), label=words["label"])
        source = Source(words["session"], words["agent"], words["client"])
        submission = Submission(said, words["topic"], words["key"], source)
        await application.services.ingest.remember(context(application), submission)
        await application.services.consolidate.start(
            context(application),
            Request(Mode.INGEST, "life", text=f"Ben: {words['run']} is a word."),
        )
        await drained(application)
        control = await scan(application.store, list(words.values()), [])
        seen = {place.word for place in control.places}
        assert [store for number, store in enumerate(words) if number not in seen] == []

        erased = await erase_all(application)
        between = await scan(application.store, list(words.values()), [])
        await drained(application)
        after = await left_of(application.store, list(words.values()))
        async with application.store.transaction(ALICE, write=False) as tx:
            erasure = await tx.erasures.get(erased.id)

    assert between.places  # Deleting alone does not remove the bytes.
    assert after.places == []
    assert (after.files > 0, after.bytes > 10_000, after.unreadable) == (True, True, [])
    assert erasure is not None
    assert (erasure.stage, erasure.left_behind, erasure.purged_at) == ("done", "", NOON)


async def test_no_part_of_a_vector_is_left_after_erasure_and_purge(open_app: Open) -> None:
    """A vector shows what was said. The control: before the erasure, each vector is found."""
    async with open_app() as application:
        await enter(application)
        for text in ("Ben: I keep a quokka.", "Ann: I live in Lisbon near the river."):
            await application.services.ingest.remember(
                context(application), Submission(text, "life")
            )
        await drained(application)
        kept = await select(application.store, "SELECT vector FROM embeddings")
        vectors = [bytes(row["vector"]) for row in kept]
        control = await scan_vectors(application.store, vectors)
        await erase_all(application)
        await drained(application)
        after = without_removed_log(await scan_vectors(application.store, vectors))

    assert len(vectors) > 1
    assert {place.word for place in control.places} == set(range(len(vectors)))
    assert {place.form for place in control.places} == {"vector"}
    assert after.places == []


async def test_a_deleted_file_that_is_held_open_is_searched(open_app: Open, tmp_path: Path) -> None:
    """The bytes of a deleted file stay on the disk until it is closed."""
    (word,) = canaries("held").values()
    async with open_app() as application:
        await enter(application)
        with (tmp_path / "old").open("wb") as held:
            held.write(b"." * 100 + word.encode())
            held.flush()
            (tmp_path / "old").unlink()
            found = await scan(application.store, [word], [])
        after = await scan(application.store, [word], [])

    assert {place.word for place in found.places} == {0}
    assert all(place.where.startswith("/proc/") for place in found.places)
    assert all(place.where.endswith(f"({tmp_path}/old, deleted)") for place in found.places)
    assert (after.places, after.unreadable) == ([], [])


async def test_another_process_that_holds_the_database_open_is_looked_at(
    open_app: Open, tmp_path: Path
) -> None:
    """On SQLite this is any process that has the file open, and no other."""
    (word,) = canaries("other").values()
    script = (
        "import os, sys; held = [open(path, 'rb') for path in sys.argv[3:]];"
        "gone = open(sys.argv[1], 'w+b'); gone.write(sys.argv[2][::-1].encode()); gone.flush();"
        "os.unlink(sys.argv[1]); print(1, flush=True); sys.stdin.read()"
    )
    async with open_app() as application:
        await enter(application)
        (first, *_) = await application.store.driver.files()
        database = first / "PG_VERSION" if first.is_dir() else first
        for opened, expected in (([str(database)], {0}), ([], set())):
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-c", script, str(tmp_path / "gone"), word[::-1], *opened),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
            assert process.stdout is not None
            await process.stdout.readline()
            found = await scan(application.store, [word], [])
            await process.communicate(b"")
            assert {place.word for place in found.places} == expected


async def test_a_file_beside_the_database_is_searched_too(open_app: Open, tmp_path: Path) -> None:
    (word,) = canaries("log").values()
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "old.log").write_bytes(b"." * 5_000_000 + word.encode())
    async with open_app() as application:
        await enter(application)
        found = await scan(application.store, [word], [folder])

    assert {place.where for place in found.places} == {str(folder / "old.log")}
    assert {place.at for place in found.places if place.at == 5_000_000}


async def test_rows_are_searched_where_files_cannot_be_read(
    open_app: Open, database: Path | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if isinstance(database, Path):
        return  # On SQLite, the file is the database.
    (word,) = canaries("row").values()

    async def unreadable() -> list[Path]:
        return []

    async with open_app() as application:
        await enter(application)
        submission = Submission(f"Ben: {word} it is.", "life")
        await application.services.ingest.remember(context(application), submission)
        monkeypatch.setattr(application.store.driver, "files", unreadable)
        before = await scan(application.store, [word], [])
        await erase_all(application)
        after = await scan(application.store, [word], [])

    assert {place.where for place in before.places} >= {"table episodes", "table terms"}
    assert (after.places, after.rows > 0) == ([], True)


@on_postgres
async def test_the_process_that_purges_holds_no_removed_segment_of_the_log_open(
    open_app: Open, database: str
) -> None:
    """Control: an idle connection of it does, before the purge."""
    (word,) = canaries("segment").values()

    async with (
        open_app() as application,
        await psycopg.AsyncConnection.connect(database, autocommit=True) as raw,
    ):
        await enter(application)
        await remember(application, f"User: I like {word}.")

        async def held() -> bool:
            ours = await raw.execute(
                "SELECT pid FROM pg_stat_activity"
                " WHERE datname = current_database() AND application_name = 'recall-server'"
            )
            folders = tuple([f"/proc/{pid}/fd/" for (pid,) in await ours.fetchall()])
            places = (await scan(application.store, [word], [])).places
            return any(one.where.startswith(folders) for one in places)

        async def closed() -> bool:
            return not await held()

        for _ in range(SEGMENTS):
            await raw.execute("SELECT pg_logical_emit_message(false, 'test', 'next')")
            await raw.execute("SELECT pg_switch_wal()")
        await raw.execute("CHECKPOINT")
        before = await held()
        await application.store.purge()
        await until(closed, WITHIN_S, "the segment is closed")

    assert before
