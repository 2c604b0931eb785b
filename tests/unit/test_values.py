"""The kinds of values that a question asks for, and those that a text has."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recall_server.domain.text.terms import VALUE, asked_values, speaker_terms, terms, value_terms


@pytest.mark.parametrize(
    ("question", "kind"),
    [
        ("What is the doctor's phone number?", "phone"),
        ("Wie lautet die Nummer vom Café?", "phone"),
        ("Quel est le numéro de téléphone d'Ana ?", "phone"),
        ("Which e-mail goes on the invoice?", "mail"),
        ("会社のメールは？", "mail"),
        ("How much did the desk cost?", "money"),
        ("Was hat das gekostet?", "money"),
        ("¿Cuánto cuesta el hotel?", "money"),
        ("房租多少钱？", "money"),
        ("What time does it start?", "clock"),
        ("Um wie viel Uhr geht es los?", "clock"),
        ("会議は何時？", "clock"),
        ("What number do I call when my child is ill?", "phone"),
        ("When is the wedding?", "day"),
        ("So when do we meet?", "day"),
        ("Wann ist die Feier?", "day"),
        ("Quando é a festa?", "day"),
    ],
)
def test_a_question_asks_for_a_kind_of_value(question: str, kind: str) -> None:
    assert asked_values(question) == {VALUE + kind}


@pytest.mark.parametrize("question", ["Who is the doctor?", "What did he say when he called?"])
def test_most_questions_ask_for_none(question: str) -> None:
    assert asked_values(question) == frozenset()


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("Dr. Falk, Mill Lane, 01632 960 418", ["phone"]),
        ("WhatsApp +995 555 31 42 07.", ["phone"]),
        ("Write to ana@x.example.", ["mail"]),
        ("It is £7,420 plus VAT.", ["money"]),
        ("38 Euro pro Person", ["money"]),
        ("We meet at 7 pm.", ["clock"]),
        ("ab 11:30 Uhr", ["clock"]),
        ("明日の3時に会う", ["clock"]),
        ("We paid 4,140 of 12 000 000 to 6 markets, INC-2291, 1.23.4, it may 300.", []),
        ("On 2026-10-13 it rained.", ["day"]),
        ("Date: Saturday 12 September 2026", ["day"]),
        ("wegen Papas 70. am 9. Mai", ["day"]),
        ("Feb 3rd or 10/12/2024", ["day"]),
        ("3月2日", ["day"]),
    ],
)
def test_a_text_has_kinds_of_values(text: str, kinds: list[str]) -> None:
    assert value_terms(text) == [VALUE + kind for kind in kinds]


@given(st.text())
def test_a_kind_is_no_word_and_no_speaker(text: str) -> None:
    assert not any(term.startswith(VALUE) for term in [*terms(text), *speaker_terms(text)])


@pytest.mark.perf
@pytest.mark.parametrize("part", ["1 ", "1(", "a@", "1.", "$", "12:"])
def test_a_long_text_takes_linear_time(part: str) -> None:
    started = time.process_time()

    value_terms(part * 50_000)
    asked_values(part * 50_000)

    assert time.process_time() - started < 2
