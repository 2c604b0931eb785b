"""Open reviews are answered from the command line."""

import json
import re

import pytest

from recall_server.application import Application
from recall_server.domain.context import Context
from recall_server.domain.intents import Intent
from recall_server.services.memory.ingest import Submission
from recall_server.services.memory.intents import Wish
from tests.support.audit import ALICE, Database, enter, inside, line, recall
from tests.support.cli import recall as cli

pytestmark = pytest.mark.usefixtures("clean_environment")


async def _proposed(built: Application) -> None:
    await enter(built, ALICE)
    said = Wish(Intent.REMEMBER, Submission("The boat is blue.", "home"))
    await built.services.intents.submit(Context(line(built)), said)
    for intent, text in (
        (Intent.REMEMBER, "Ana lives in Porto."),
        (Intent.FORGET, "The boat is blue."),
    ):
        wish = Wish(intent, Submission(text, "home"), review=True)
        await built.services.intents.submit(Context(line(built)), wish)


def test_proposals_are_listed_with_their_words_and_answered(database: Database) -> None:
    inside(database, _proposed)
    shown = recall(database, "reviews", "list", "alice")
    listed = json.loads(
        recall(database, "reviews", "list", "alice", "--kind", "proposal", "--json").out
    )
    ids = {one["about"]["proposes"]: one["id"] for one in listed}
    edited = recall(
        database, "reviews", "answer", "alice", ids["remember"], "edit", "--text", "Ana is in Faro."
    )
    accepted = recall(database, "reviews", "answer", "alice", ids["forget"], "accept", "--json")
    left = recall(database, "reviews", "list", "alice")
    kept = recall(database, "list", "alice", "--json").out

    assert "new      Ana lives in Porto." in shown.out, shown.err
    assert "forget   The boat is blue." in shown.out
    assert edited.out.startswith("Answered prop_"), edited.err
    assert json.loads(accepted.out)["kind"] == "proposal"
    assert left.out.strip() == "Nothing waits for a decision."
    assert "Ana is in Faro." in kept
    assert "boat" not in kept


def test_changes_and_an_undo_that_is_tried_show_the_words_of_memories(url: str) -> None:
    cli("create-token", "alice", "--db", url)
    for text in ("I live in Porto.", "I live in Lisbon now."):
        cli("add", "alice", text, "--db", url)
    listed = cli("changes", "alice", "--db", url).out.splitlines()
    change = listed[1].split()[0]
    tried = cli("undo", "alice", change, "--dry-run", "--db", url).out
    done = cli("undo", "alice", change, "--db", url).out

    assert listed[1].endswith("The user lives in Lisbon now.")
    assert listed[2].endswith("The user lives in Porto.")
    assert re.search(r"  forgotten  mem_\w+  The user lives in Lisbon now\.\n", tried)
    assert re.search(r"  as before  mem_\w+  The user lives in Porto\.\n", tried)
    assert "mem_" not in done
