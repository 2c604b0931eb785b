"""Shown text does not act on a terminal, and data stays exact."""

import json

import pytest

from recall_server.domain.text.cleaning import plain_json, visible

HOSTILE = "a\x1b[2Jb\x9b31m\x07\u202egnp.exe\u2066\u2028x\U000e0041\u200b\x7f\r"


def test_what_acts_on_a_terminal_or_hides_is_spelled_out() -> None:
    shown = visible(HOSTILE)

    assert shown.isascii()
    assert shown.isprintable()
    assert r"\x1b[2J" in shown
    assert r"\u202e" in shown
    assert r"\U000e0041" in shown


@pytest.mark.parametrize("text", ["Ana\n\tlives", "família 👨‍👩‍👧", "שלום", "می‌کنم", "C:\\new"])
def test_ordinary_text_is_shown_as_it_is(text: str) -> None:
    assert visible(text) == text


def test_on_one_line_a_text_cannot_begin_another() -> None:
    assert visible("a\nforged\tb\r", lines=False) == r"a\nforged\tb\r"


def test_json_is_exact_and_still_obeys_nobody() -> None:
    document = json.dumps({"text": HOSTILE}, ensure_ascii=False)

    assert plain_json(document).isascii()
    assert plain_json(document).isprintable()
    assert json.loads(plain_json(document)) == {"text": HOSTILE}
