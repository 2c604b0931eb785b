"""Data beyond the scope of a limited token changes no byte of any answer. The test asks every
operation of the registry with each kind of limit, in two namespaces that differ only beyond the
scope.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from recall_server.api.app import create_app
from recall_server.api.operations import OPERATIONS, tasks
from recall_server.bootstrap import open_application
from recall_server.integrations.embeddings import StaticEmbedder
from recall_server.server import bound, listening
from tests.support.application import settings_for
from tests.support.length import at_full_length, has_full_length
from tests.support.reranking import Scripted
from tests.support.runtime import Clock
from tests.support.scope_worlds import (
    LIMITS,
    Limit,
    Step,
    answers,
    furnished,
    http,
    reads,
    steps,
    tool,
)
from tests.support.server import Running

# Only an operator's command line has the others.
ASKED = {one.name for one in OPERATIONS if one.http or one.mcp or one.a2a}
# A token without a limit gets different answers to these reads in the two namespaces.
TELLING = {
    *("inspect_memories", "get_memory", "get_memory_history", "get_job", "get_memory_stats"),
    *(
        "list_conflicts",
        "list_reviews",
        "list_tokens",
        "show_token",
        "list_quarantine",
        "export_namespace",
    ),
}
# The condition of a query is the same text for each limit; the requests take some ten seconds.
ON_SQLITE = LIMITS[at_full_length(0, otherwise=1) : at_full_length(len(LIMITS), otherwise=2)]
ON_POSTGRES = LIMITS[: at_full_length(len(LIMITS), otherwise=1)]


def test_every_operation_of_the_registry_is_asked() -> None:
    for limit in LIMITS:
        assert {step.operation for step in steps(limit)} == ASKED


@has_full_length
@pytest.mark.slow
@pytest.mark.parametrize(
    ("database", "limit"),
    [
        pytest.param(engine, limit, id=f"{engine}-{limit.name}")
        for engine, limits in (("sqlite", ON_SQLITE), ("postgres", ON_POSTGRES))
        for limit in limits
    ],
    indirect=["database"],
)
async def test_a_limited_token_gets_the_same_bytes_whatever_lies_beyond(
    running: Running, clock: Clock, limit: Limit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The positive control: a token without a limit asks the same afterwards."""
    monkeypatch.setattr(tasks, "WAIT_S", 0.0)  # No worker runs, so nothing is waited for.
    limited, whole = [], []
    for name in ("poor", "rich"):
        world = await furnished(running, clock, limit, name, full=name == "rich")
        token = await running.token(name, limit.rights())
        limited.append(await answers(running, world, token, steps(limit)))
        whole.append(await answers(running, world, await running.token(name), reads(limit)))

    compared, told = Counter[str](), Counter[str]()
    for number, ((name, poor), (_, rich)) in enumerate(zip(*limited, strict=True)):
        assert poor == rich, (number, name)
        compared[name] += 1
    for (name, poor), (_, rich) in zip(*whole, strict=True):
        told[name] += poor != rich
    for name in sorted(compared):
        print(f"{limit.name:9} {name:24} same {compared[name]:3}   differs unlimited {told[name]}")
    print(f"{limit.name}: {compared.total()} requests of {len(compared)} operations")
    assert {name for name in told if told[name]} >= TELLING


@has_full_length
@pytest.mark.parametrize("limit", ON_SQLITE, ids=lambda limit: limit.name)
async def test_words_that_are_compared_and_hits_that_are_ranked_again_tell_of_nothing_beyond(
    tmp_path: Path, clock: Clock, limit: Limit
) -> None:
    """Words that no text has are compared by their vectors, and a re-ranker reads turns around."""
    reranker = Scripted("heron")
    async with (
        open_application(
            settings_for(tmp_path / "recall.db", port=0),
            embedder=StaticEmbedder(),
            reranker=reranker,
            now=clock,
        ) as built,
        listening(create_app(built), built.settings, bound(built.settings)) as address,
    ):
        running, found, ranked = Running(built, address), [], []
        for name in ("poor", "rich"):
            world = await furnished(running, clock, limit, name, full=name == "rich")
            reranker.asked.clear()
            token = await running.token(name, limit.rights())
            found.append(await answers(running, world, token, _misspelled()))
            ranked.append([(look.text, passages) for look, passages in reranker.asked])

    assert found[0] == found[1]
    assert ranked[0] == ranked[1]
    assert ranked[0]


def _misspelled() -> Iterator[Step]:
    """Return searches for words that no text has."""
    for query in (
        *("Where does Anne liv?", "wich brid is prefered", "heronn ottr", "favourite bird of Bea"),
        *("What did Okonkwo say about the merging?", "zyntroxes", "mergers of plants", "Lisboa"),
    ):
        for mode in ("hybrid", "keyword", "recall", "vector"):
            yield tool("search_memories", query=query, mode=mode, explain=True, limit=10)
        yield http("search_memories", "POST", "/v1/search", {"query": query, "neighbours": 2})
        yield http("get_context", "POST", "/v1/context", {"message": query})
