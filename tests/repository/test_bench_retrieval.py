"""The benchmark of retrieval counts what was found."""

import io
import json
import math
from datetime import UTC, datetime
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.report import Report, show, write_json
from benchmarks.retrieval import Options, agreement, disagreement, rankings, retrieval
from benchmarks.retrieval_data import Doc, Session, read
from benchmarks.retrieval_metrics import auc, estimates, measures, weak_share
from recall_server.domain.errors import Invalid
from recall_server.domain.query import SearchMode
from recall_server.domain.text.transcript import parse_turns

AT = datetime(2023, 5, 8, 13, 56, tzinfo=UTC)

DOCS = [
    ("one", "D1:1", "Ana", "I adopted a greyhound\n\nfrom the shelter yesterday."),
    ("one", "D1:2", "Ben", "Lovely! We went kayaking on the Danube."),
    ("one", "D1:3", "Ana", "Note: my sister plays the oboe."),
    ("one", "D1:4", "Ben", "Mine collects stamps."),
    ("two", "D1:1", "Eva", "My telescope arrived from Jena."),
    ("two", "D1:2", "Tom", "I bake sourdough every Sunday."),
]
QUESTIONS = [
    ("q1", "one", "Who plays the oboe?", ["D1:3"], "single-hop"),
    ("q2", "one", "Where did Ben go kayaking?", ["D1:2", "D1:4"], "multi-hop"),
    ("q3", "two", "What does Tom bake?", ["D1:2"], "single-hop"),
    ("q4", "two", "Who plays the oboe?", ["D1:1"], "adversarial"),
    ("q5", "two", "What is the meaning of it?", [], "open-domain"),
]


def doc(corpus: str, id_: str, speaker: str, text: str) -> dict[str, object]:
    return {
        "corpus": corpus,
        "id": id_,
        "text": text,
        "timestamp": "2023-05-08T13:56:00",
        "speaker": speaker,
        "session": "session_1",
        "turn": int(id_[3:]) - 1,
    }


def question(id_: str, corpus: str, text: str, gold: list[str], kind: str) -> dict[str, object]:
    return {"id": id_, "corpus": corpus, "text": text, "gold": gold, "category": kind, "answer": 1}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "docs.jsonl", [doc(*one) for one in DOCS])
    write(tmp_path / "queries.jsonl", [question(*one) for one in QUESTIONS])
    return tmp_path


def write(file: Path, lines: list[dict[str, object]]) -> None:
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))


def silent(_: str) -> None:
    pass


def test_in_a_transcript_each_doc_is_one_turn_with_its_speaker_and_its_date() -> None:
    session = Session("one", "session_1", tuple(map(doc_of, DOCS[:4])))

    turns = parse_turns(session.text, datetime(2026, 1, 1, tzinfo=UTC))

    places = session.places(session.text)
    assert [turn.speaker for turn in turns] == ["Ana", "Ben", "Ana", "Ben"]
    assert {turn.said_at for turn in turns} == {AT}
    assert all(turn.span.overlaps(span) for turn, (span, _) in zip(turns, places, strict=True))
    assert [id_ for _, id_ in places] == [f"D1:{n}" for n in (1, 2, 3, 4)]


def doc_of(given: tuple[str, str, str, str]) -> Doc:
    corpus, id_, speaker, text = given
    return Doc(corpus, id_, text, AT, speaker, "session_1", caption="a dog")


def test_a_transcript_that_was_stored_with_other_lines_is_refused() -> None:
    session = Session("one", "session_1", tuple(map(doc_of, DOCS[:4])))

    with pytest.raises(Invalid, match="line by line"):
        session.places(session.text.replace("\n", " "))


def test_the_measures_are_the_usual_ones() -> None:
    ranked = ["a", "x", "b", *(f"y{n}" for n in range(9)), "c"]

    found = measures(ranked, ["a", "b", "c", "never"])

    ideal = sum(1 / math.log2(rank + 1) for rank in (1, 2, 3, 4))
    assert found == {
        "R@5": 0.5,
        "R@10": 0.5,
        "R@20": 0.75,
        "hit@10": 1.0,
        "NDCG@10": pytest.approx((1 + 1 / math.log2(4)) / ideal),
        "MRR": 1.0,
    }
    assert set(measures(["x"], ["a"]).values()) == {0.0}
    assert measures([*"xyzabcdefgh"], ["h"])["hit@10"] == 0.0


def test_an_interval_holds_its_mean_and_is_the_same_in_each_run() -> None:
    values = [{"m": float(n % 3 == 0)} for n in range(200)]

    one = estimates(values)["m"]

    assert one == estimates(values)["m"]
    assert one.mean == pytest.approx(67 / 200)
    assert one.low < one.mean < one.high
    assert one.high - one.low < 0.15


def test_the_area_counts_pairs_with_more_evidence_for_the_answerable_question() -> None:
    assert auc([0.9, 0.8], [0.1, 0.8]) == pytest.approx(0.875)
    assert auc([0.1], [0.9]) == 0.0
    assert weak_share([0.1, 0.2, 0.8, 0.9]) == 0.5


def test_elsewhere_a_question_is_asked_of_the_people_there(folder: Path) -> None:
    asked = read(folder).elsewhere()

    assert [(one.id, one.corpus, one.text) for one in asked] == [
        ("q1", "two", "Who plays the oboe?"),
        ("q2", "two", "Where did Tom go kayaking?"),
        ("q3", "one", "What does Ben bake?"),
    ]
    assert not any(one.gold for one in asked)


@pytest.mark.slow
async def test_an_evidence_is_found_again_in_its_own_corpus(folder: Path) -> None:
    progress: list[str] = []

    done = await retrieval("sqlite", Options(folder, profile=SearchMode.KEYWORD), progress.append)

    by_id = {answer.question.id: answer for answer in done.answers}
    assert by_id["q1"].ranked[0][0] == "D1:3"
    assert by_id["q2"].ranked[0][0] == "D1:2"
    assert by_id["q3"].ranked[0][0] == "D1:2"
    assert by_id["q4"].ranked == ()
    stored = done.stored
    assert (stored["docs"], stored["turns"]) == (6, 6)
    assert not any(stored[f"docs {what}"] for what in ("without a turn", "hidden"))
    assert stored["passages"] >= stored["turns"]
    assert "sqlite: session 2 of 2" in progress
    report = done.report()
    assert report.figures("answerable")["questions"] == 3
    assert [json.loads(line)["id"] for line in rankings([done])] == ["q1", "q2", "q3", "q4", "q5"]
    unanswerable = {
        row.name: row.figures for row in report.rows if row.group == "without an answer"
    }
    assert unanswerable["adversarial"]["questions"] == 1
    assert unanswerable["asked of another corpus"]["questions"] == 3
    for figures in unanswerable.values():
        assert (figures["AUC"], figures["weak %"]) == (1.0, 100.0)
        assert figures["weak % of answerable"] == 0.0
    assert_printed(report, folder / "figures.json")


def assert_printed(report: Report, file: Path) -> None:
    """The printed table has the figures of the written file."""
    console = Console(record=True, width=200, file=io.StringIO())
    show(report, console)
    write_json([report], file)

    text = console.export_text()
    (written,) = json.loads(file.read_text())
    for row in written["rows"]:
        assert row["name"] in text
        assert all(str(value) in text for value in row["figures"].values() if type(value) is str)


@pytest.mark.slow
async def test_turns_beside_a_hit_are_delivered_with_it(folder: Path) -> None:
    options = Options(folder, profile=SearchMode.KEYWORD, neighbours=2)

    done = await retrieval("sqlite", options, silent)

    first = done.answers[0]
    assert [hit.docs for hit in first.found] == [("D1:3",)]
    assert first.delivered == {"D1:1", "D1:2", "D1:3", "D1:4"}
    assert done.delivered().mean == 1.0


@pytest.mark.slow
async def test_two_runs_answer_alike(folder: Path) -> None:
    one = await retrieval("sqlite", Options(folder), silent)
    other = await retrieval("sqlite", Options(folder), silent)
    third = await retrieval("sqlite", Options(folder, profile=SearchMode.VECTOR), silent)

    assert disagreement(one, other) == []
    assert disagreement(one, third) != []
    assert not agreement(one, other).missed
    assert agreement(one, third).missed


def test_data_that_cannot_be_used_is_named_by_its_line(folder: Path) -> None:
    with pytest.raises(Invalid, match=r"docs.jsonl cannot be read"):
        read(folder / "nowhere")

    write(folder / "queries.jsonl", [question(*QUESTIONS[0]), {"id": "q2"}])
    with pytest.raises(Invalid, match=r"queries.jsonl, line 2: corpus: Field required"):
        read(folder)

    write(folder / "queries.jsonl", [question("q1", "one", "Who?", ["D9:9"], "single-hop")])
    with pytest.raises(Invalid, match="q1 names a doc"):
        read(folder)
