"""Turns are cut into passages: related lines stay together, and no word is lost."""

import textwrap
from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recall_server.domain.episode import Span, Turn
from recall_server.domain.text.passages import PASSAGE_CHARS, passages, visible
from recall_server.domain.text.transcript import parse_turns

NOON = datetime(2026, 11, 23, 12, tzinfo=UTC)


def cut(text: str) -> list[tuple[tuple[str, ...], str]]:
    """Return the headings and the words of each passage."""
    return [
        (tuple(text[one.start : one.end] for one in found.headings), _words(text, found.span))
        for found in passages(text, parse_turns(text, NOON))
    ]


def _words(text: str, span: Span) -> str:
    return text[span.start : span.end]


def test_a_list_item_stands_by_itself_below_its_heading() -> None:
    text = "Marcus:\n- job: teacher at\n  a school\n- city: Bonn\n- allergy: nuts"

    assert cut(text) == [
        ((), "Marcus:\n- job: teacher at\n  a school"),
        (("Marcus:",), "- city: Bonn"),
        (("Marcus:",), "- allergy: nuts"),
    ]


def test_tasks_and_arrows_are_items() -> None:
    text = "Plan:\n[x] cards\n[ ] bus\n-> ask Uhl\n→ pay"

    assert [words for _, words in cut(text)] == [
        "Plan:\n[x] cards",
        "[ ] bus",
        "-> ask Uhl",
        "→ pay",
    ]


def test_a_numbered_part_is_a_heading_and_the_last_of_a_numbered_list_is_none() -> None:
    text = (
        "TOP 1: Sommerfest\n- am 19. Juni\n- Kuchen ohne Nüsse\n\n"
        "Plan\n1. X-ray of the left knee\n2. Physio, six sessions\nShe is to call if it gets hot."
    )

    assert cut(text) == [
        ((), "TOP 1: Sommerfest\n- am 19. Juni"),
        (("TOP 1: Sommerfest",), "- Kuchen ohne Nüsse"),
        ((), "Plan\n1. X-ray of the left knee"),
        (("Plan",), "2. Physio, six sessions"),
        (("Plan",), "She is to call if it gets hot."),
    ]


def test_each_entry_of_a_log_is_a_passage() -> None:
    log = "[2026-11-20 08:05:02] action=run -> exit 0\n[2026-11-20 08:13:30] lesson: restart cart"

    assert [words for _, words in cut(log)] == log.split("\n")


def test_long_lines_without_a_full_stop_are_passages_of_their_own() -> None:
    lines = [f"so {'and then the drawings ' * 6}go to {name}" for name in ("ana", "ben")]

    assert [words for _, words in cut("\n".join(lines))] == lines


def test_lines_of_different_lengths_without_punctuation_are_passages_of_their_own() -> None:
    lines = [
        "insurance is with Petplan",
        "the arthritis is in the left hip and she gets one tablet of Metacam in the morning",
        "the kennel in Otley is full for August",
        "they want to see her again in six weeks so it is the fourth of May at ten past nine",
        "no more rawhide",
    ]

    assert [words for _, words in cut("\n".join(lines))] == [
        lines[0],
        *lines[1:3],
        "\n".join(lines[3:]),
    ]


def test_chinese_and_japanese_numbered_lines_are_headings() -> None:
    text = "One.\n\n一、版本进度\n- 由赵敏负责\n- 不再支持\n\n1. リリース\n・ベータ版\n・本番"

    assert cut(text)[1:] == [
        ((), "一、版本进度\n- 由赵敏负责"),
        (("一、版本进度",), "- 不再支持"),
        ((), "1. リリース\n・ベータ版\n・本番"),
    ]


def test_prose_that_is_wrapped_at_120_characters_is_cut_between_its_sentences() -> None:
    sentence = (
        "While an export is read, the write-ahead log grows; it shrinks again afterwards, when "
        "nobody reads, which others notice by the size of its file, and by how long their own "
        "commits take; state: growing or not, and since when it is so, is told by the doctor"
    )
    text = textwrap.fill(" ".join([f"{sentence}."] * 4), 120)

    assert [words.replace("\n", " ") for _, words in cut(text)] == [f"{sentence}."] * 4


def test_headings_go_with_what_stands_below_them_until_the_next_of_their_level() -> None:
    text = (
        "# Manual\n\n## Heat\nTurn the red knob.\n\nIt is old.\n\n## Phones\n\n"
        "Vet: 0171 22\nTom: on the fridge\n\n# Other\n\nNothing."
    )

    assert cut(text) == [
        ((), "# Manual\n\n## Heat\nTurn the red knob."),
        (("# Manual", "## Heat"), "It is old."),
        (("# Manual",), "## Phones\n\nVet: 0171 22"),
        (("# Manual", "## Phones"), "Tom: on the fridge"),
        ((), "# Other\n\nNothing."),
    ]


def test_a_row_of_a_table_stands_below_the_names_of_its_columns() -> None:
    head = "| What | Owner |\n|---|---|"
    text = f"# Actions\n\n{head}\n| Move the logs | Ana |\n| Ask Ben | Ida |\n\nDone in May."

    assert cut(text) == [
        ((), f"# Actions\n\n{head}\n| Move the logs | Ana |"),
        (("# Actions", head), "| Ask Ben | Ida |"),
        (("# Actions",), "Done in May."),
    ]


def test_lines_of_a_log_are_passages_of_their_own() -> None:
    text = (
        "2026-09-03 | Acme | Ana takes 300 cups. She pays in May.\n2026-09-04 | Bex | Ida is ill.\n"
        "14:06 First alert.\n14:15 Ben restarts it."
    )

    assert [words for _, words in cut(text)] == text.split("\n")


def test_lines_that_are_each_a_sentence_are_joined_only_while_they_are_short() -> None:
    notes = [
        "The oil tank was filled in September, it holds nine hundred litres.",
        "Hot water takes a minute upstairs, so let it run for a while first.",
        "Ring Maud.",
        "She has a key.",
    ]

    assert [words for _, words in cut("\n".join(notes))] == [*notes[:1], "\n".join(notes[1:])]


def test_the_head_and_the_greeting_of_a_mail_go_with_its_first_words_and_its_subject_with_all() -> (
    None
):
    head = "To: Ben\nDate: Tue, 10 Nov 2026 16:42\nSubject: Desk"
    quoted = "> Which wood?"
    more = "It is 3 m long, and it must carry a saw, a lathe and a drill, so take the thick boards."
    text = f"From: Ana <ana@x.example>\n{head}\n\nHi Ben,\n\nash, please.\n\n{more}\n\nBest\nAna"

    assert cut(f"{text}\n\n{quoted}") == [
        ((), f"{head}\n\nHi Ben,\n\nash, please."),
        (("Subject: Desk",), f"{more}\n\nBest\nAna"),
        (("Subject: Desk",), quoted),
    ]


def test_a_line_with_a_colon_is_a_heading_of_its_turn_or_of_the_next_one() -> None:
    text = "Contacts:\n\n- Vet: 0171\n- Ann: 0172\n\nThe bin is blue."

    assert cut(text) == [
        ((), "Contacts:"),
        (("Contacts:",), "- Vet: 0171"),
        (("Contacts:",), "- Ann: 0172"),
        ((), "The bin is blue."),
    ]


def test_a_line_without_a_mark_is_a_heading_of_a_part_a_list_or_a_paragraph() -> None:
    below = "Caterer: Giulia, 62 per head\nVegan: 9"
    lists = "- Radek, not on Fridays\n- Ida"
    said = "The regulator stands at 19 degrees.\nPressure: 1.8"
    marks = (
        "2) Food",
        "Food",
        "FOOD",
        "Food and drink (new)",
        "Section 4",
        "voice memo 002 monday",
    )
    found = {
        f"{heading}\n{words}": cut(f"One.\n\n{heading}\n{words}\n\nThe end.")
        for heading in marks
        for words in (below, lists, said)
    }

    for words, passages_ in found.items():
        heading, first, last = words.split("\n")
        assert passages_[1:] == [
            ((), f"{heading}\n{first}"),
            ((heading,), last),
            ((), "The end."),
        ]


@pytest.mark.parametrize(
    "line",
    ["27 Quarry Road - seen on Sat 19", "Flat 6, Old Malthouse – no pets", "Anke - back in May"],
)
def test_a_name_with_a_remark_is_a_heading_of_the_notes_below_it(line: str) -> None:
    first, last = "asking 362k, on since May", f"garden west, {'old apple tree, ' * 6}pond"
    notes = f"{line}\n{first}\n{last}"
    lists = f"{line}\nIda - ill\nBen - late"

    assert cut(f"One.\n\n{notes}\n\nThe end.")[1:] == [
        ((), f"{line}\n{first}"),
        ((line,), last),
        ((), "The end."),
    ]
    assert not any(headings for headings, _ in cut(f"One.\n\n{lists}\n\n{line}\nfine"))


def test_a_remark_between_a_name_and_its_list_is_no_heading() -> None:
    text = "One.\n\nNan's broth\nServes 6, takes two hours\n- 1 ham hock\n- 2 leeks"

    assert cut(text)[1:] == [
        ((), "Nan's broth\nServes 6, takes two hours"),
        (("Nan's broth",), "- 1 ham hock"),
        (("Nan's broth",), "- 2 leeks"),
    ]


def test_a_line_by_itself_is_a_heading_of_the_next_paragraph() -> None:
    text = "Costs\n\nRent: 140 a year\nWater: 22 a year\n\nNobody pays in May."

    assert cut(text) == [
        ((), "Costs"),
        (("Costs",), "Rent: 140 a year"),
        (("Costs",), "Water: 22 a year"),
        ((), "Nobody pays in May."),
    ]


@pytest.mark.parametrize(
    "line",
    [
        "It rains.",
        "Is it far?",
        "We moved to Oslo",
        "Hi all",
        "Thanks",
        "Best,",
        "Milk, bread,",
        "Ana: hello",
        "- Milk",
        "3. Bread and a very long rope for the old boat",
        "food",
        "The bridge broke again. Ben knows",
        "What the neighbours said about our new hedge",
    ],
)
def test_what_says_or_lists_something_is_no_heading(line: str) -> None:
    text = f"One.\n\n{line}\n- Rent: 140 a year\n- Water: 22 a year"

    assert [headings for headings, _ in cut(text)][-2:] == [(), ()]
    assert cut(f"Food\n{text}")[-1] == ((), "- Water: 22 a year")


def test_short_lines_above_short_lines_are_no_headings() -> None:
    text = (
        "Apples\nTwo breads\nTea: green\n\n1. Ana\n2. Ben\n\nBest wishes\nAna\n\n"
        "Part 2 is here\n\nOk."
    )

    assert not any(headings for headings, _ in cut(text))


def test_headings_end_where_somebody_else_speaks() -> None:
    text = "Assistant: ## Plan\n- tea\nUser: Fine by me.\nAssistant: Good.\n"

    assert cut(text)[-2:] == [((), "Fine by me."), ((), "Good.")]


def test_what_somebody_says_is_no_heading_of_what_the_next_one_says() -> None:
    assert cut("小明: 我搬到上海了\n小红: 真的吗?\n小明: 真的")[1] == ((), "真的吗?")
    assert cut("lol\nbrb\nI moved to Graz")[0][0] == ()
    assert cut("Ana: Room for two\n\nBen: Booked: a room.\n\nAna: Ok")[1][0] == ()


def test_code_is_one_passage_blank_lines_and_all() -> None:
    code = "```python\nx = 1\n\n# no heading\n- no: item\n```"

    assert ((), code) in cut(f"Run this.\n\n{code}\n\nDone.")


def test_a_long_paragraph_is_cut_between_sentences_into_even_parts() -> None:
    sentences = [f"Dr. No met {number} herons, e.g. by the old pond." for number in range(20)]

    found = [words for _, words in cut(" ".join(sentences))]

    assert " ".join(found) == " ".join(sentences)
    assert all(len(words) <= PASSAGE_CHARS and words.endswith("pond.") for words in found)
    assert max(map(len, found)) < 2 * min(map(len, found))


@given(st.text(st.sampled_from("Ab1.!: -#`*|。é"), min_size=1, max_size=PASSAGE_CHARS))
def test_a_short_line_is_one_passage(line: str) -> None:
    whole, words = Span(0, len(line)), line.rstrip()

    assert [_words(line, one.span) for one in passages(line, [Turn(0, whole)])] == [words][
        : len(words)
    ]


@given(st.text(alphabet=st.sampled_from("Ab1.!: \n-#`*|。é"), max_size=400))
def test_every_character_of_a_turn_that_is_not_blank_is_in_one_passage(text: str) -> None:
    turns = parse_turns(text, NOON)
    found = passages(text, turns)

    for turn in turns:
        own = [one.span for one in found if one.turn == turn]
        assert [one.start for one in own] == sorted(one.start for one in own)
        assert all(a.end <= b.start for a, b in pairwise(own))
        parts = "".join(_words(text, one) for one in own)
        assert "".join(parts.split()) == "".join(_words(text, turn.span).split())
    for one in found:
        assert all(above.end <= one.span.start for above in one.headings)


def test_what_is_forgotten_or_erased_is_left_out_of_the_words() -> None:
    said = "I live in Lisbon, I am allergic to peanuts."

    assert visible(said, 100, []) == said
    assert visible(said, 100, [Span(100, 116)]) == ", I am allergic to peanuts."
    assert visible("She told ██████ of it.", 0, []) == "She told … of it."
    assert visible(said, 100, [Span(90, 120), Span(110, 200)]) == ""
