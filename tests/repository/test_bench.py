"""The texts of the benchmarks do not contradict each other, since a paused task would distort the
measurement.
"""

from datetime import UTC, datetime

import pytest
from typer.testing import CliRunner

from benchmarks.__main__ import app
from benchmarks.history import history
from benchmarks.past import past
from benchmarks.texts import Texts
from recall_server.domain.extraction import Passage
from recall_server.domain.text.transcript import parse_turns
from recall_server.integrations.rules import RulesExtractor

NOW = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.mark.slow
async def test_each_fact_is_one_memory_of_somebody_of_its_own() -> None:
    texts = Texts(1)
    about: list[str] = []
    for _ in range(400):
        text = texts.fact()
        found = await RulesExtractor().extract(
            Passage(text, parse_turns(text, NOW), "general", NOW)
        )
        (candidate,) = found.candidates
        assert candidate.fact is not None
        about.append(candidate.fact.entity)

    assert len(set(about)) == 400


def test_the_same_seed_gives_the_same_texts() -> None:
    one, other = Texts(7), Texts(7)

    assert [one.fact() for _ in range(20)] == [other.fact() for _ in range(20)]


async def test_the_benchmarks_of_the_past_run_on_few_memories() -> None:
    searched = await past("sqlite", silent, memories=20, versions=3, searches=10)
    changed = await history("sqlite", silent, memories=10, versions=3)

    assert {row.name for row in searched.rows} >= {"known_at", "as_of", "both"}
    assert {row.name for row in changed.rows} == {"compare", "mend", "undo", "undo of that"}


def silent(_: str) -> None:
    pass


def test_the_benchmarks_list_their_options_and_refuse_a_part_that_is_none() -> None:
    runner = CliRunner()

    assert runner.invoke(app, ["--help"]).exit_code == 0
    refused = runner.invoke(app, ["retrieval", "--data", ".", "--ablate", "luck"])
    assert refused.exit_code == 2
    assert "luck is none of" in refused.output
