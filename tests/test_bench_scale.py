"""The scales of size: what they fill, copy and compare is what they say."""

from pathlib import Path

import pytest

from recall_server.bench.databases import multiply
from recall_server.bench.load import Measured
from recall_server.bench.nearest import recall_of_vectors
from recall_server.bench.scale import Scale, tenant
from recall_server.bench.scale_report import targets
from recall_server.bootstrap import open_application
from recall_server.domain.namespace import Namespace
from recall_server.domain.query import Query
from tests.conftest import Clock, settings_for

ONE, COPY = Namespace("one"), Namespace("one-1")


def silent(_: str) -> None:
    pass


async def test_neighbours_are_namespaces_like_the_one_they_are_copies_of(
    database: Path | str, clock: Clock
) -> None:
    async with open_application(settings_for(database), now=clock) as built:
        await tenant(built, ONE, 30, silent)
    multiply(database, ONE, 2, silent)
    async with open_application(settings_for(database), now=clock) as built:
        found = []
        for namespace in (ONE, COPY):
            entry = built.services.audit.begin(namespace, "search_memories", "test", None)
            query = Query("Who likes chess in Berlin?")
            answer = await built.services.recall.search(namespace, query, entry=entry)
            found.append([(hit.item.text, hit.scores.final) for hit in answer.hits])

    assert found[0]
    assert found[0] == found[1]


async def test_where_all_vectors_are_compared_all_of_the_nearest_are_found(
    database: Path | str,
) -> None:
    async with open_application(settings_for(database)) as built:
        await tenant(built, ONE, 60, silent)
        assert await recall_of_vectors(built, ONE, seed=1) == 1.0


def measured(milliseconds: float) -> Measured:
    return Measured("search", "socket", 1, 1.0, [milliseconds / 1000])


@pytest.mark.parametrize(("slowest", "met"), [(29.0, True), (31.0, False)])
def test_a_hundredfold_may_take_three_times_as_long(slowest: float, met: bool) -> None:
    scale = Scale(
        engine="sqlite",
        sizes=(1_000, 10_000, 100_000),
        sweep=(measured(10.0), measured(12.0), measured(slowest)),
        recall={1_000: 1.0, 10_000: 1.0, 100_000: 0.99},
        resident_mb=350.0,
        cold_start_s=2.0,
        empty_start_s=1.0,
        neighbours=10,
        alone=measured(10.0),
        beside=measured(11.0),
    )

    missed = [target.name for target in targets(scale) if not target.met]
    assert missed == ([] if met else ["search, x search"])
    assert len(list(targets(scale))) == 7
