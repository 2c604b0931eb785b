"""The benchmark of growth copies the original faithfully, and its checks are right."""

from pathlib import Path

import pytest

from benchmarks.databases import multiply
from benchmarks.fill import tenant
from benchmarks.measure import Measured
from benchmarks.scale import Scale, recall_of_vectors
from benchmarks.texts import Texts
from recall_server.bootstrap import open_application
from recall_server.domain.context import Context
from recall_server.domain.ids import Namespace
from recall_server.domain.query import Query
from tests.support.application import settings_for
from tests.support.runtime import Clock

ONE, COPY = Namespace("one"), Namespace("one-1")


def silent(_: str) -> None:
    pass


async def test_neighbours_are_namespaces_like_the_one_they_are_copies_of(
    database: Path | str, clock: Clock
) -> None:
    async with open_application(settings_for(database), now=clock) as built:
        await tenant(built, ONE, Texts(1).statements(30))
    multiply(database, ONE, 2, silent)
    async with open_application(settings_for(database), now=clock) as built:
        found = []
        for namespace in (ONE, COPY):
            entry = built.services.audit.begin(
                namespace, "search_memories", "test", None, read_only=True
            )
            query = Query("Who likes chess in Berlin?")
            answer = await built.services.recall.search(Context(entry), query)
            found.append([(hit.item.text, hit.scores.final) for hit in answer.hits])

    assert found[0]
    assert found[0] == found[1]


async def test_where_all_vectors_are_compared_all_of_the_nearest_are_found(
    database: Path | str,
) -> None:
    async with open_application(settings_for(database)) as built:
        await tenant(built, ONE, Texts(1).statements(60))
        assert await recall_of_vectors(built, ONE, seed=1) == 1.0


def measured(milliseconds: float, name: str) -> Measured:
    return Measured(name, 1.0, [milliseconds / 1000])


@pytest.mark.parametrize(("slowest", "met"), [(19.0, True), (21.0, False)])
def test_a_hundredfold_may_take_twice_as_long(slowest: float, met: bool) -> None:
    scale = Scale(
        engine="sqlite",
        sizes=(1_000, 10_000, 100_000),
        sweep=(measured(10.0, "small"), measured(12.0, "middle"), measured(slowest, "large")),
        recall={1_000: 1.0, 10_000: 1.0, 100_000: 0.99},
        resident_mb=350.0,
        cold_start_s=2.0,
        empty_start_s=1.0,
        alone=measured(10.0, "alone"),
        beside=measured(11.0, "beside"),
    )

    report = scale.report()

    assert report.missed == ([] if met else ["large: p50 x small"])
    assert len(report.checks) == 7
    assert report.figures("large")["p50 x small"] == pytest.approx(slowest / 10)
