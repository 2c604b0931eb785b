"""Memories of which somebody deletes rows behind the server are made again by `recall rebuild`."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from recall_server.api.app import create_app
from recall_server.application import Application
from recall_server.domain.context import Context
from recall_server.domain.episode import Source
from recall_server.domain.intents import Intent
from recall_server.domain.memory import MemoryType
from recall_server.domain.permissions import OPERATOR
from recall_server.domain.plan import Policy, RelationKind
from recall_server.services.memory.ingest import Submission
from recall_server.services.memory.intents import Wish
from tests.support.audit import ALICE, Database, enter, inside, line, recall, rows_of
from tests.support.conversation import drained, memories
from tests.support.databases import Filled
from tests.support.server import Running

pytestmark = pytest.mark.usefixtures("clean_environment")

LABELS = Source(session_id="s1", agent_id="a1", tags=("home",), metadata={"by": "hand"})
ROWS = ("citations", "relations", "disputes", "proposals", "decisions", "memories")
OF = {"relations": "from_id", "memories": "id"}


def _lives(disputed: bool = False) -> Callable[[Application], Any]:
    async def lived(built: Application) -> None:
        """Let memories become all that they can."""
        services = built.services
        await enter(built, ALICE)

        async def tell(*texts: str, topic: str = "life") -> None:
            for text in texts:
                given = Submission(text, topic, source=LABELS)
                await services.ingest.remember(Context(line(built)), given)
            await drained(built)

        await tell("User: I live in Porto.", "User: I live in Faro now. I like figs.")
        # Three texts say the same.
        await tell("User: I like figs. Yes.", "User: Hm. I like figs.", "Ann: I own a boat.")
        await tell("Ann: I like tea.")
        ids = {one.text: one.id for one in await memories(built)}
        await services.intents.update(
            Context(line(built)),
            _of(ids, "boat"),
            text="Nell, afloat at last.",
            type_=None,
            confidence=None,
            dry_run=False,
        )
        chosen = Wish(
            Intent.REMEMBER, Submission("I work at Initech.", "work"), type=MemoryType.CORE
        )
        await services.intents.submit(Context(line(built)), chosen)
        ids = {one.text: one.id for one in await memories(built)}
        await services.intents.relate(
            Context(line(built)), _of(ids, "Faro"), RelationKind.EXTENDS, _of(ids, "figs"), 0.5
        )
        await services.recall.forget(Context(line(built)), _of(ids, "tea"))
        if disputed:
            await services.tasks.set_policy(Context(line(built)), Policy.ASK)
            await tell("User: I live in Rome.")
        await drained(built)

    return lived


def _undisputed(database: Database, _: Path) -> None:
    inside(database, _lives())


def _disputed(database: Database, _: Path) -> None:
    inside(database, _lives(disputed=True))


def _of(ids: dict[str, str], word: str) -> str:
    return next(i for text, i in ids.items() if word in text)


def _without(database: Database, statements: list[str]) -> None:
    rows_of(database, *statements, write=True)


def _rows(database: Database, sql: str) -> list[Any]:
    return [tuple(dict(row).values()) for row in rows_of(database, sql)]


def _every_id(database: Database) -> list[str]:
    return [one for (one,) in _rows(database, "SELECT id FROM memories ORDER BY id")]


def _told(database: Database, ids: list[str]) -> list[str]:
    """Return what a user is told: searches, lists, histories, the timeline and what waits."""
    paths = [
        *("/v1/memories", "/v1/texts", "/v1/stats", "/v1/reviews"),
        "/v1/timeline?entity=user&attribute=lives_in",
        *(f"/v1/memories/{one}/history" for one in ids),
    ]

    async def ask(built: Application) -> list[httpx2.Response]:
        # Without a socket.
        transport = httpx2.ASGITransport(create_app(built))
        headers = {"Authorization": f"Bearer {await Running(built, '').token()}"}
        async with httpx2.AsyncClient(
            transport=transport, base_url="http://localhost", headers=headers
        ) as http:
            found = [
                await http.post("/v1/search", json={"query": query, "reinforce": False})
                for query in ("where do I live", "figs and the boat")
            ]
            return [*found, *[await http.get(path) for path in paths]]

    # These go by the time of the question.
    return [
        re.sub(r'"(?:final|recency|score)":[0-9.e-]+', "", one.raise_for_status().text)
        for one in inside(database, ask)
    ]


def _rebuilt(database: Database, *options: str) -> tuple[int, dict[str, Any]]:
    said = recall(database, "rebuild", "alice", *options, "--json")
    return said.code, json.loads(said.out)["compared"]


@pytest.mark.parametrize("disputed", [False, True])
@pytest.mark.parametrize("also", [(), ("embeddings", "documents")])
def test_lost_memories_are_made_again_with_all_that_they_had(
    filled: Filled, also: tuple[str, ...], disputed: bool
) -> None:
    database = filled(_disputed if disputed else _undisputed)
    ids, rows = _every_id(database), "SELECT * FROM {} ORDER BY 1, 2, 3"
    before, whole = _told(database, ids), _rebuilt(database, "--diff")
    kept = {name: _rows(database, rows.format(name)) for name in ("citations", "relations")}
    lost = [
        *(f"DELETE FROM {name} WHERE {OF.get(name, 'memory_id')} <> ''" for name in ROWS[:3]),
        *(f"DELETE FROM {name} WHERE substr(item_id, 1, 4) = 'mem_'" for name in also),
        "DELETE FROM memories",
    ]
    _without(database, lost)
    empty = recall(database, "list", "alice", "--json").out
    code, seen = _rebuilt(database, "--diff")
    told = recall(database, "rebuild", "alice", "--diff").out
    mended_code, mended = _rebuilt(database)

    assert (whole[0], len(ids)) == (0, 8 if disputed else 7)
    assert json.loads(empty)["memories"] == []
    assert (code, sorted(seen["altered"]), seen["unmade"]) == (1, ids, {})
    assert f"To be written again as their texts and events say: the rows of {len(ids)}" in told
    assert (mended_code, sorted(mended["repaired"]), mended["unmade"]) == (0, ids, {})
    assert _rebuilt(database, "--diff") == whole
    assert {name: _rows(database, rows.format(name)) for name in kept} == kept
    assert _told(database, ids) == before


def test_one_of_each_is_made_again_alone(filled: Filled) -> None:
    database = filled(_undisputed)
    ids = _every_id(database)
    before, whole = _told(database, ids), _rebuilt(database, "--diff")
    for lost in ids:
        _without(
            database,
            [f"DELETE FROM {name} WHERE {OF.get(name, 'memory_id')} = '{lost}'" for name in ROWS],
        )
        mended = _rebuilt(database)
        assert (mended[0], mended[1]["repaired"]) == (0, [lost])
    assert _rebuilt(database, "--diff") == whole
    assert _told(database, ids) == before


def test_a_lost_citation_is_made_again(filled: Filled) -> None:
    database = filled(_undisputed)
    ids = _every_id(database)
    before, whole = _told(database, ids), _rebuilt(database, "--diff")
    cited = "SELECT memory_id, position FROM citations ORDER BY 1, 2"
    citations = _rows(database, cited)
    for memory_id, position in citations:
        _without(
            database,
            [f"DELETE FROM citations WHERE memory_id = '{memory_id}' AND position = {position}"],
        )
        mended = _rebuilt(database)
        assert (mended[0], mended[1]["repaired"]) == (0, [memory_id]), position
    assert max(position for _, position in citations) >= 2
    assert _rows(database, cited) == citations
    assert _rebuilt(database, "--diff") == whole
    assert _told(database, ids) == before


@pytest.mark.parametrize(
    "altered",
    [
        "DELETE FROM relations WHERE from_id <> ''",
        "UPDATE relations SET confidence = 0.25",
        "UPDATE relations SET reason = 'merge', made_by = 'nobody'",
    ],
)
def test_relations_are_as_they_were_stated(filled: Filled, altered: str) -> None:
    database = filled(_disputed)
    whole, rows = _rebuilt(database, "--diff"), _rows(database, "SELECT * FROM relations")
    _without(database, [altered])
    code, seen = _rebuilt(database, "--diff")
    mended = _rebuilt(database)

    assert (code, seen["restated"], seen["relations"]) == (1, len(rows), [])
    assert mended[0] == 0
    assert len(rows) >= 2
    assert sorted(_rows(database, "SELECT * FROM relations")) == sorted(rows)
    assert _rebuilt(database, "--diff") == whole


def test_what_cannot_be_made_again_is_named_with_the_reason(filled: Filled) -> None:
    database = filled(_undisputed)
    ids = {text: one for one, text in _rows(database, "SELECT id, text FROM memories")}
    by_hand, figs = _of(ids, "Nell"), _of(ids, "figs")
    _without(
        database,
        [
            # As an earlier release left it, for which a model worded it.
            f"UPDATE memory_events SET answer = NULL WHERE item_id = '{by_hand}'",
            f"DELETE FROM memory_events WHERE item_id = '{figs}' AND kind = 'added'",
            *(
                f"DELETE FROM {name} WHERE {OF.get(name, 'memory_id')} IN ('{by_hand}', '{figs}')"
                for name in ROWS
            ),
        ],
    )
    code, seen = _rebuilt(database, "--diff")
    told = recall(database, "rebuild", "alice")

    assert (code, {*seen["unmade"]}) == (1, {by_hand, figs}), str(seen)
    assert "no copy of its words is kept" in seen["unmade"][by_hand]
    assert "No event tells how it was added" in seen["unmade"][figs]
    assert told.code == 1
    assert re.search(rf"{by_hand}  The rules of this release", told.out)
    assert {by_hand, figs}.isdisjoint(_every_id(database))


@pytest.mark.parametrize("subject", ["figs", "Faro", "Nell", "Ann"])
def test_what_was_erased_meanwhile_does_not_come_back(filled: Filled, subject: str) -> None:
    """The erasure finds no memory, since its row is lost; but its text, and what is kept of it."""
    database = filled(_undisputed)
    lose = [f"DELETE FROM {name} WHERE {OF.get(name, 'memory_id')} <> ''" for name in ROWS]
    _without(database, lose)
    erased = recall(database, "erase", "alice", "--subject", subject, "--yes")
    recall(database, "rebuild", "alice")
    again = _rebuilt(database)

    assert erased.code == 0, erased.err
    told = json.dumps(_told(database, _every_id(database)))
    assert subject not in told
    assert f"mem_{subject}" not in json.dumps(again)
    kept = _rows(database, "SELECT answer FROM memory_events WHERE answer IS NOT NULL")
    assert subject not in json.dumps(kept)


def test_what_is_left_of_a_lost_memory_can_be_erased(filled: Filled) -> None:
    """Its words were erased meanwhile, as a passage of the text: it does not come back."""
    database = filled(_undisputed)
    ids = {text: one for one, text in _rows(database, "SELECT id, text FROM memories")}
    nell = _of(ids, "Nell")
    (text,) = _rows(database, f"SELECT episode_id FROM citations WHERE memory_id = '{nell}'")
    _without(
        database,
        [f"DELETE FROM {name} WHERE {OF.get(name, 'memory_id')} = '{nell}'" for name in ROWS],
    )
    passage = recall(database, "erase", "alice", "--memory", f"{text[0]}.0", "--yes")
    code, named = _rebuilt(database)
    erased = recall(database, "erase", "alice", "--memory", nell, "--yes")
    again = recall(database, "erase", "alice", "--memory", nell, "--yes")

    assert (passage.code, erased.code) == (0, 0), (passage.err, erased.err)
    assert code == 1
    assert named["unmade"] == {nell: "The words that it cites were erased. Erase it by its id too."}
    assert again.code == 2
    assert _rebuilt(database, "--diff")[1]["same"]
    kept = _rows(database, f"SELECT * FROM memory_events WHERE item_id = '{nell}'")
    assert kept == []


async def _undo_last(built: Application) -> None:
    page = await built.services.changes.page(Context(line(built)), None)
    await built.services.changes.undo(
        Context(line(built)),
        page.changes[0].id,
        rights=OPERATOR,
        dry_run=False,
        with_dependents=False,
    )


@pytest.mark.parametrize("undone", [1, 2])
def test_citations_that_a_change_took_back_stay_so(database: Database, undone: int) -> None:
    async def lived(built: Application) -> None:
        await enter(built, ALICE)
        for text in ("User: I like figs.", "Ann: hello.", "User: I like figs, really."):
            given = Submission(text, "life")
            await built.services.ingest.remember(Context(line(built)), given)
            await drained(built)
        for _ in range(undone):
            await _undo_last(built)

    inside(database, lived)
    whole = _rebuilt(database, "--diff")
    citations = _rows(database, "SELECT * FROM citations ORDER BY memory_id, position")
    _without(database, ["DELETE FROM citations", "DELETE FROM memories"])
    mended = _rebuilt(database)

    assert mended[0] == 0, mended
    assert _rows(database, "SELECT * FROM citations ORDER BY memory_id, position") == citations
    assert _rebuilt(database, "--diff") == whole
