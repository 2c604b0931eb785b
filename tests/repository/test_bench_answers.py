"""The benchmarks of answers and of currency count the hits that are shown."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from benchmarks.answers import answers, currency
from recall_server.domain.errors import Invalid

MANUAL = """# House manual
The boiler is in the cellar behind the wine rack.
- Vet: 0171 2233
- Plumber: ask at the bakery
"""
QUESTIONS = [
    {"text": "01", "question": "Where is the boiler?", "pattern": "cellar"},
    {"text": "01", "question": "What is the number of the vet?", "pattern": "0171"},
    {"text": "01", "question": "Who repairs the violin?", "pattern": "Stradivari"},
]


def write(file: Path, lines: Sequence[Mapping[str, object]]) -> None:
    file.write_text("".join(json.dumps(one) + "\n" for one in lines), encoding="utf-8")


def silent(_: str) -> None:
    pass


@pytest.mark.slow
async def test_answers_are_counted_alone_and_together_beside_the_plain_lines(
    tmp_path: Path,
) -> None:
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "01_manual.txt").write_text(MANUAL, encoding="utf-8")
    write(tmp_path / "questions.jsonl", QUESTIONS)

    report = await answers("sqlite", silent, data=tmp_path)

    for name in ("alone", "together"):
        figures = report.figures(name)
        assert figures["questions"] == 3
        assert figures["shown"] == figures["lines: shown"] == pytest.approx(200 / 3)
        assert figures["characters"]
    assert report.facts["not shown"] == "Who repairs the violin?"
    assert report.missed


@pytest.mark.slow
async def test_of_statements_that_overwrite_each_other_the_newest_counts(tmp_path: Path) -> None:
    told = [f"Ruben Holm is associated with the sport of {one}." for one in ("chess", "judo")]
    write(tmp_path / "facts-2.jsonl", [{"n": n, "text": text} for n, text in enumerate(told)])
    question = "Which sport is Ruben Holm associated with?"
    write(
        tmp_path / "questions-2.jsonl",
        [{"question": question, "answers": [answer]} for answer in ("Judo!", "chess")],
    )

    report = await currency("sqlite", silent, data=tmp_path)

    figures = report.figures("2")
    assert (figures["statements"], figures["questions"]) == (2, 2)
    assert (figures["first"], figures["among ten"]) == (50, 100)


async def test_a_question_about_a_text_that_is_not_there_is_refused(tmp_path: Path) -> None:
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "02_notes.txt").write_text(MANUAL, encoding="utf-8")
    write(tmp_path / "questions.jsonl", QUESTIONS)

    with pytest.raises(Invalid, match="not there: 01"):
        await answers("sqlite", silent, data=tmp_path)


async def test_a_folder_without_data_is_refused(tmp_path: Path) -> None:
    for benchmark in (answers, currency):
        with pytest.raises(Invalid):
            await benchmark("sqlite", silent, data=tmp_path)
