"""Rows that somebody changes behind the server are named by `recall rebuild`, and written again if
the texts and events say how.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from recall_server.application import Application
from recall_server.domain.context import Context
from recall_server.domain.episode import Source
from recall_server.domain.plan import Policy, RelationKind
from recall_server.services.memory.ingest import Submission
from tests.support.audit import ALICE, Database, enter, inside, line, recall, rows_of
from tests.support.conversation import drained, memories
from tests.support.databases import Filled

pytestmark = pytest.mark.usefixtures("clean_environment")

TEXTS = ("User: I live in Porto.", "User: I like figs.", "User: I am allergic to peanuts.")
BY_HAND = "The boat is called Nell."


async def _lived(built: Application) -> None:
    """Store texts of one memory each, the last of which gets other words by hand."""
    await enter(built, ALICE)
    for text in (*TEXTS, "User: I own a boat."):
        await built.services.ingest.remember(Context(line(built)), Submission(text, "life"))
    await drained(built)
    ids = {one.text: one.id for one in await memories(built)}
    await built.services.intents.update(
        Context(line(built)),
        _of(ids, "boat"),
        text=BY_HAND,
        type_=None,
        confidence=None,
        dry_run=False,
    )
    await built.services.intents.relate(
        Context(line(built)), _of(ids, "Porto"), RelationKind.EXTENDS, _of(ids, "figs"), 0.5
    )
    await drained(built)


def _undisputed(database: Database, _: Path) -> None:
    inside(database, _lived)


def _alter(database: Database, *statements: str) -> None:
    rows_of(database, *statements, write=True)


def _ids(database: Database) -> dict[str, str]:
    listed = json.loads(recall(database, "list", "alice", "--json").out)
    return {one["text"]: one["id"] for one in listed["memories"]}


def _of(ids: dict[str, str], word: str) -> str:
    return next(i for text, i in ids.items() if word in text)


def _rebuilt(database: Database, *options: str) -> tuple[int, dict[str, Any]]:
    said = recall(database, "rebuild", "alice", *options, "--json")
    return said.code, json.loads(said.out)["compared"]


OTHER_CITATION = """
DELETE FROM citations WHERE memory_id = '{home}';
INSERT INTO citations (namespace, memory_id, position, episode_id, span_start, span_end)
SELECT namespace, '{home}', 0, id, 0, 4 FROM episodes WHERE text LIKE '%Porto%'
"""


@pytest.mark.parametrize(
    "statements",
    [
        "UPDATE memories SET text = 'The user lives in Rome.' WHERE id = '{home}'",
        "UPDATE memories SET value = 'Rome', value_key = 'rome' WHERE id = '{home}'",
        "UPDATE memories SET type = 'decision' WHERE id = '{home}'",
        "UPDATE memories SET topic = 'work' WHERE id = '{home}'",
        OTHER_CITATION,
    ],
)
def test_altered_words_are_named_and_written_again_as_their_text_says(
    filled: Filled, statements: str
) -> None:
    database = filled(_undisputed)
    before, whole = recall(database, "list", "alice", "--json").out, _rebuilt(database, "--diff")
    home = _of(_ids(database), "Porto")
    _alter(database, *statements.format(home=home).split(";"))
    code, seen = _rebuilt(database, "--diff")
    told = recall(database, "rebuild", "alice", "--diff").out
    mended_code, mended = _rebuilt(database)

    assert (whole[0], whole[1]["same"], whole[1]["altered"]) == (0, True, [])
    assert (code, seen["same"], seen["altered"]) == (1, False, [home])
    assert "To be written again as their texts and events say: the rows of 1 memories." in told
    assert (mended_code, mended["repaired"]) == (0, [home])
    assert _rebuilt(database, "--diff") == whole
    assert recall(database, "list", "alice", "--json").out == before


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE memories SET text = 'The user sold the boat.' WHERE id = '{boat}'",
        "UPDATE memories SET said_at = recorded_at, layer = 'schema' WHERE id = '{boat}'",
        "DELETE FROM citations WHERE memory_id = '{boat}'",
    ],
)
def test_altered_words_of_a_person_or_a_model_are_written_again_as_they_were(
    filled: Filled, statement: str
) -> None:
    """No rule makes them of a text: they were named, and were gone."""
    database = filled(_undisputed)
    before, whole = recall(database, "list", "alice", "--json").out, _rebuilt(database, "--diff")
    boat = _of(_ids(database), "boat")
    _alter(database, statement.format(boat=boat))
    seen = _rebuilt(database, "--diff")
    code, mended = _rebuilt(database)

    assert (seen[0], seen[1]["altered"]) == (1, [boat])
    assert (code, mended["repaired"]) == (0, [boat])
    assert _rebuilt(database, "--diff") == whole
    assert recall(database, "list", "alice", "--json").out == before


def test_what_no_text_says_is_named_until_it_is_as_it_was(filled: Filled) -> None:
    database = filled(_undisputed)
    whole = _rebuilt(database, "--diff")
    boat = _of(_ids(database), "boat")
    # As if a model had worded it.
    swap = (
        "UPDATE memory_events SET digest = replace(digest, '{}.', '{}.')"
        f" WHERE item_id = '{boat}'"
    )
    _alter(database, swap.format("1", "1.0"))
    code, mended = _rebuilt(database)
    told = recall(database, "rebuild", "alice")
    again, still = _rebuilt(database, "--diff")
    _alter(database, swap.format("1.0", "1"))
    recall(database, "rebuild", "alice")

    assert (code, mended["altered"], mended["repaired"]) == (1, [boat], [])
    assert "Restore a backup" in told.out
    assert f"  {boat}" in told.out
    assert (again, still["altered"]) == (1, [boat])
    assert _rebuilt(database, "--diff") == whole


def test_lost_counts_relations_and_keys_are_made_again(filled: Filled) -> None:
    database = filled(_undisputed)
    whole = _rebuilt(database, "--diff")
    ids = _ids(database)
    home, figs = (_of(ids, word) for word in ("Porto", "figs"))
    _alter(
        database,
        "UPDATE memory_counts SET memories = memories + 4",
        f"DELETE FROM relations WHERE from_id = '{home}'",
        f"UPDATE memories SET entity_key = 'nobody' WHERE id = '{figs}'",
    )
    code, seen = _rebuilt(database, "--diff")
    left_code, left = _rebuilt(database)

    assert whole[0] == 0
    assert (code, seen["different"], seen["altered"]) == (1, [figs], [])
    assert seen["counts"] > 0
    assert (seen["restated"], seen["relations"]) == (1, [])
    assert (left_code, left["relations"]) == (0, [])
    assert _rebuilt(database, "--diff") == whole


@pytest.mark.parametrize("lost", [True, False])
def test_a_relation_of_an_earlier_release_is_named(filled: Filled, lost: bool) -> None:
    database = filled(_undisputed)
    ids = _ids(database)
    home, figs = (_of(ids, word) for word in ("Porto", "figs"))
    gone = [f"DELETE FROM relations WHERE from_id = '{home}'"] if lost else []
    _alter(database, "UPDATE memory_events SET answer = NULL", *gone)
    code, left = _rebuilt(database)

    assert (code, left["relations"]) == (int(lost), [[home, figs, "extends"]] * lost)


async def _argued(built: Application) -> None:
    """Store two values of which nobody says which holds, and a text with labels."""
    await enter(built, ALICE)
    await built.services.tasks.set_policy(Context(line(built)), Policy.ASK)
    labels = Source(session_id="s1", agent_id="a1", tags=("home",), metadata={"by": "hand"})
    for text in ("User: I live in Porto.", "User: I live in Faro.", "User: I like figs."):
        submission = Submission(text, "life", source=labels)
        await built.services.ingest.remember(Context(line(built)), submission)
    await drained(built)


def _disputed(database: Database, _: Path) -> None:
    inside(database, _argued)


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("DELETE FROM disputes", "disputes"),
        ("UPDATE disputes SET closed_at = opened_at", "disputes"),
        ("UPDATE disputes SET side = 'new'", "disputes"),
        ("UPDATE memories SET tags = NULL, session_id = 's2'", "labels"),
        ('UPDATE memories SET metadata = \'{"by": "nobody"}\'', "labels"),
    ],
)
def test_disputes_and_labels_are_made_again(filled: Filled, statement: str, named: str) -> None:
    database = filled(_disputed)
    waiting, whole = (
        recall(database, "reviews", "alice", "--json").out,
        _rebuilt(database, "--diff"),
    )
    listed = recall(database, "list", "alice", "--json").out
    _alter(database, statement)
    seen = _rebuilt(database, "--diff")
    told = recall(database, "rebuild", "alice").out

    assert (whole[0], whole[1][named]) == (0, type(whole[1][named])())
    assert (seen[0], seen[1]["same"]) == (1, False)
    assert seen[1][named]
    assert named in told
    assert _rebuilt(database, "--diff") == whole
    assert recall(database, "reviews", "alice", "--json").out == waiting
    assert recall(database, "list", "alice", "--json").out == listed


def test_of_an_older_release_it_cannot_tell_until_it_has_recorded_them(filled: Filled) -> None:
    database = filled(_undisputed)
    home = _of(_ids(database), "Porto")
    _alter(database, "UPDATE memory_events SET digest = NULL WHERE digest IS NOT NULL")
    first = recall(database, "rebuild", "alice", "--diff")
    recorded = recall(database, "rebuild", "alice")
    after = _rebuilt(database, "--diff")[1]
    _alter(database, f"UPDATE memories SET text = 'Sold.' WHERE id = '{home}'")
    seen = _rebuilt(database, "--diff")[1]

    assert first.code == 0
    assert "cannot be told: an older release recorded no digest of them." in first.out
    assert "It is recorded from now on." in recorded.out
    assert (after["untold"], after["same"]) == (0, True)
    assert seen["altered"] == [home]
