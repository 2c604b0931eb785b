"""Exports and imports as an operator runs them: files, pipes, kills and full disks."""

import asyncio
import json
import os
import resource
import stat
import subprocess
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner

from recall_server.cli.commands import app
from recall_server.domain.context import Context
from recall_server.services.memory.ingest import Submission
from tests.support.application import Open
from tests.support.conversation import ALICE, enter
from tests.support.forked import completed
from tests.support.length import has_full_length, on_both_at_full_length
from tests.support.logs import real_logs
from tests.support.processes import Database, Process, environment, new_token, ran, recall, until
from tests.support.stored import opened, select
from tests.support.transfer import carried, line_of, lived, many, records

MEMORIES = 2_000


def said(
    database: Database, *command: str, given: bytes = b"", file_bytes_max: int | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run `recall COMMAND`. No file of its may become larger than `file_bytes_max`."""
    limited = None
    if file_bytes_max is not None:
        limits = (file_bytes_max, file_bytes_max)
        limited = partial(resource.setrlimit, resource.RLIMIT_FSIZE, limits)
    return completed(
        command, environment(database, {"embedder": "none"}), 60, given=given, first=limited
    )


def files(out: Path) -> list[str]:
    """Return the names of the finished and unfinished files with this name."""
    return [path.name for path in out.parent.glob(f"{out.name}*")]


async def filled(open_app: Open) -> None:
    async with open_app() as built:
        await lived(built)


@on_both_at_full_length
@has_full_length
async def test_a_file_gets_its_name_when_it_is_whole_and_is_its_owners_alone(
    open_app: Open, database: Database, tmp_path: Path
) -> None:
    await filled(open_app)
    out = tmp_path / "alice.jsonl"
    await recall(database, "export", "alice", "--out", str(out))
    printed = (await recall(database, "export", "alice")).encode()
    piped = said(database, "import", "-", "--into", "bob", "--json", given=printed)
    again = await recall(database, "import", str(out), "--into", "bob")

    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert files(out) == ["alice.jsonl"]
    assert carried(out.read_bytes()) == carried(printed)
    report = json.loads(piped.stdout)
    assert report["new"] == len(carried(printed)) > 0
    assert again.startswith("0 new ")


@on_both_at_full_length
@has_full_length
async def test_a_full_disk_leaves_no_file_and_says_so(
    open_app: Open, database: Database, tmp_path: Path
) -> None:
    """The export is larger than the database. With enough space it is written."""
    async with open_app(embedder=None) as built:
        await enter(built)
        submission = Submission("\U0001f9e0\u200d" * 120_000, "life")
        await built.services.ingest.remember(
            Context(line_of(built, ALICE, "store_memory")), submission
        )
    out = tmp_path / "alice.jsonl"
    full = said(database, "export", "alice", "--out", str(out), file_bytes_max=1_800_000)
    left = files(out)
    await recall(database, "export", "alice", "--out", str(out))

    assert full.returncode == 2
    assert b"alice.jsonl cannot be written (File too large)" in full.stderr
    assert b"Traceback" not in full.stderr
    assert left == []
    assert out.stat().st_size > 1_800_000


async def test_an_export_replaces_a_file_only_where_that_is_asked_for_and_when_it_is_whole(
    open_app: Open, database: Database, tmp_path: Path
) -> None:
    await filled(open_app)
    out = tmp_path / "alice.jsonl"
    out.write_text("the last good one", encoding="utf-8")
    export = ("export", "alice", "--out", str(out))
    refused = said(database, *export)
    failed = said(database, *export, "--force", file_bytes_max=1_000)
    left = out.read_text(encoding="utf-8")
    done = said(database, *export, "--force")

    assert refused.returncode == failed.returncode == 2
    assert b"alice.jsonl exists and is not overwritten" in refused.stderr
    assert b"--force" in refused.stderr
    assert left == "the last good one"
    assert done.returncode == 0, done.stderr
    assert records(out.read_bytes())[-1]["kind"] == "end"
    assert files(out) == ["alice.jsonl"]


@on_both_at_full_length
@has_full_length
@pytest.mark.slow
async def test_a_killed_export_leaves_no_file_of_that_name(
    database: Database, tmp_path: Path
) -> None:
    (tmp_path / "many.jsonl").write_bytes(many(MEMORIES))
    await recall(database, "import", str(tmp_path / "many.jsonl"), "--into", "alice")
    out, part = tmp_path / "alice.jsonl", tmp_path / "alice.jsonl.part"
    async with Process(database, "export", "alice", "--out", str(out)) as process:
        while not part.exists():  # Another process writes the file.
            assert process.alive, process.log()
            await asyncio.sleep(0.001)
        await process.kill()
    killed = out.exists()
    code, _, errors = await ran(database, "export", "alice", "--out", str(out))
    part.unlink()
    await recall(database, "export", "alice", "--out", str(out))

    assert not killed
    assert code == 2
    assert "alice.jsonl.part exists" in errors
    assert records(out.read_bytes())[-1]["counts"]["memory"] == MEMORIES


@pytest.mark.slow
async def test_a_killed_import_is_completed_by_running_it_again(
    database: Database, tmp_path: Path
) -> None:
    """Everything is stored once, and a further import adds nothing."""
    file = tmp_path / "many.jsonl"
    file.write_bytes(many(MEMORIES))
    await new_token(database, "alice")
    command = ("import", str(file), "--into", "alice", "--json")
    async with opened(database) as store:

        async def begun() -> bool:
            rows = await select(store, "SELECT count(*) AS n FROM memories")
            return bool(rows[0]["n"] > 400)

        async with Process(database, *command, embedder="none") as process:
            await until(begun, 60, "some is taken in")
            await process.kill()
        rows = await select(store, "SELECT count(*) AS n FROM memories")
        second = json.loads(await recall(database, *command))
        third = json.loads(await recall(database, *command))
        words = await select(store, "SELECT documents FROM namespaces")
    out = await recall(database, "export", "alice")

    assert 400 < rows[0]["n"] < MEMORIES
    assert second["new"] + second["known"] == MEMORIES + 1
    assert second["known"] == rows[0]["n"] + 1
    assert (third["new"], third["known"], third["conflicts"]) == (0, MEMORIES + 1, 0)
    assert [row["documents"] for row in words] == [MEMORIES]
    exported, imported = carried(out.encode()), carried(file.read_bytes())
    assert list(map(json.loads, exported)) == list(map(json.loads, imported))


@on_both_at_full_length
@has_full_length
async def test_nothing_of_a_damaged_file_is_taken_in_and_of_a_pipe_what_came_before(
    open_app: Open, database: Database, tmp_path: Path
) -> None:
    await filled(open_app)
    whole = (await recall(database, "export", "alice")).encode()
    cut = whole[: len(whole) // 2]
    file = tmp_path / "cut.jsonl"
    file.write_bytes(cut)
    code, _, of_file = await ran(database, "import", str(file), "--into", "bob")
    _, _, of_bob = await ran(database, "export", "bob")
    from_pipe = said(database, "import", "-", "--into", "bob", given=cut)
    repaired = said(database, "import", "-", "--into", "bob", given=whole)

    assert code == from_pipe.returncode == 2
    assert "EXPORT_DAMAGED" in of_file
    assert f"Line {len(cut.splitlines())} " in of_file
    assert "NOT_FOUND" in of_bob  # The import made no namespace either.
    assert repaired.returncode == 0, repaired.stderr


def test_mistakes_are_one_line(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment(database, {"embedder": "none"}).items():
        monkeypatch.setenv(name, value)

    def ended(*command: str) -> tuple[int, str]:
        with real_logs():
            done = CliRunner().invoke(app, command)
        return done.exit_code, done.stderr

    assert ended("create-token", "alice")[0] == 0
    wrong = (
        (("export",), "Name the namespace"),
        (("export", "nobody"), "NOT_FOUND"),
        (("export", "Not A Name"), "INVALID_ARGUMENT"),
        (("export", "alice", "--out", str(tmp_path / "no" / "where")), "cannot be written"),
        (("import", str(tmp_path / "none"), "--into", "alice"), "cannot be read"),
        (("import", os.devnull, "--into", "alice"), "EXPORT_DAMAGED"),
    )
    for command, words in wrong:
        code, said_ = ended(*command)
        assert code == 2
        assert words in said_
        assert said_.count("\n") == 1, said_


def test_the_form_is_printed_without_a_database() -> None:
    done = CliRunner().invoke(app, ["export", "--schema"])

    assert json.loads(done.stdout)["discriminator"]["propertyName"] == "kind"
