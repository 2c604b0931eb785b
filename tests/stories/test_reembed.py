"""`recall reembed` as an operator runs it: next to a server, killed, and run again."""

import json
from pathlib import Path

import pytest

from tests.support.audit import recall as recalled
from tests.support.length import has_full_length, on_both_at_full_length
from tests.support.logs import real_logs
from tests.support.processes import Database, Process, Server, new_token, recall, until
from tests.support.stored import opened, select
from tests.support.transfer import many

MEMORIES = 2_000


@on_both_at_full_length
@has_full_length
@pytest.mark.slow
async def test_killed_beside_a_server_it_is_completed_by_running_it_again(
    database: Database, tmp_path: Path
) -> None:
    file = tmp_path / "many.jsonl"
    file.write_bytes(many(MEMORIES))
    await new_token(database, "alice")
    await new_token(database, "bob")
    await recall(database, "import", str(file), "--into", "alice")
    async with opened(database) as store, Server(database, worker_jobs=0):

        async def vectors() -> int:
            return int((await select(store, "SELECT count(*) AS n FROM embeddings"))[0]["n"])

        async def begun() -> bool:
            return await vectors() > 200

        async with Process(database, "reembed", "--drop-old") as process:
            await until(begun, 60, "some vectors are made")
            await process.kill()
        some = await vectors()
        second = json.loads(await recall(database, "reembed", "--json"))
        whole = await vectors()

    assert 200 < some < MEMORIES
    assert second["namespaces"] == [
        {"namespace": "alice", "embedded": MEMORIES - some, "dropped": 0},
        {"namespace": "bob", "embedded": 0, "dropped": 0},
    ]
    assert second["model"].startswith("wordllama/256/")
    assert whole == MEMORIES


def test_what_cannot_be_done_is_said(database: Database) -> None:
    with real_logs():
        recalled(database, "create-token", "alice")
        none = recalled(database, "reembed")
        nobody = recalled(database, "reembed", "--namespace", "nobody", recall_embedder="wordllama")
        alice = recalled(database, "reembed", "--namespace", "alice", recall_embedder="wordllama")

    assert none.code == 2
    assert "RECALL_EMBEDDER" in none.err
    assert nobody.code == 2
    assert "no such namespace" in nobody.err
    assert alice.code == 0


def test_the_doctor_says_what_has_no_vector(database: Database) -> None:
    with real_logs():
        recalled(database, "create-token", "alice")
        recalled(database, "add", "alice", "The harbour ferry leaves at noon.")
        lacking = recalled(database, "doctor", recall_embedder="wordllama")
        recalled(database, "reembed", recall_embedder="wordllama")
        complete = recalled(database, "doctor", recall_embedder="wordllama")

    assert "warn  vectors" in lacking.out
    assert "recall reembed" in lacking.out
    assert "ok    vectors" in complete.out
