"""Terms: which words find which texts, for any text that can be typed, pasted or forged."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recall_server.domain.text.terms import (
    FOLDED_FREE_CHARS,
    FOLDED_MAX,
    TERM_CHARS_MAX,
    TERMS_DISTINCT_MAX,
    term_counts,
    terms,
)

EXAMPLES = settings(max_examples=100, deadline=None)  # The test machine may be busy.

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=200)
"""Every code point, lone surrogates, NUL, marks and unassigned ones included."""

SPICY = st.text(
    st.sampled_from("aZ09éß猫ไทย한\u0300\u093f\u200d\ud800\x00 .,'\u2019@+#%-_:&\n"), max_size=60
)


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("c++", "She writes C++, not C#."),
        ("C#", "She writes c# all day"),
        ("node.js", "Runs on Node.js!"),
        ("node", "Runs on Node.js!"),
        ("user@example.com", "mail to USER@example.com."),
        ("example.com", "mail to user@example.com"),
        ("v2.1", "since V2.1, it works"),
        ("50%", "50% off"),
        ("50", "50% off"),
        ("1200", "costs $1,200"),
        ("Atlas", "Project Atlas, at last"),
        ("alice", "Alice's team"),
        ("users", "the users' wishes"),
        ("OBrien", "Ms O\u2019Brien called"),
        ("running", "he runs"),
        ("cafe", "the Café"),
        ("ISTANBUL", "İstanbul"),
        ("strasse", "Hauptstraße Straße"),
        ("\uff46\uff55\uff4c\uff4c", "full width"),
        ("fine", "a ﬁne ligature"),
        ("cooperate", "we co\u00adoperate"),
        ("東京", "昨日は東京に行った"),
        ("한국", "한국어를"),
        ("ไทย", "ภาษาไทย"),
        ("हिन्दी", "वह हिन्दी बोलता है"),
        ("snake", "the snake_case name"),
        ("10:30", "at 10:30 sharp"),
        ("When did he fall?", "FELL in the bathroom"),
        ("the child", "three children"),
        ("Where does she live?", "Ana lives in Lisbon"),
        ("our neighbour", "all the neighbours"),
        ("Which licence?", "License: Apache-2.0"),
        ("February", "Thu 12 Feb"),
    ],
)
def test_a_question_finds_the_text_that_says_it(question: str, text: str) -> None:
    assert set(terms(question)) & set(terms(text))


def test_a_joined_token_is_found_as_a_whole_and_by_its_parts() -> None:
    assert terms("user@example.com") == ["user@example.com", "user", "exampl", "com"]
    assert terms("C++") == ["c++", "c"]
    assert terms("v2.1") == ["v2.1", "v2", "1"]


def test_the_whole_token_tells_c_plus_plus_from_c() -> None:
    assert "c++" not in terms("plain C")


def test_stop_words_go_unless_there_is_nothing_else() -> None:
    assert terms("The cat and the hat") == ["cat", "hat"]
    assert terms("I don't know what it's about") == ["know"]
    assert terms("who") == ["who"]
    assert terms("To be, or not to be") == ["to", "be", "or", "not", "to", "be"]


def test_names_and_months_that_look_like_stop_words_stay() -> None:
    assert terms("Will is in the US in May") == ["will", "us", "may"]


def test_scripts_without_spaces_give_overlapping_pairs_and_their_ideographs() -> None:
    assert terms("東京都2024猫") == ["東京", "京都", "東", "京", "都", "2024", "猫"]
    assert terms("橘猫") == ["橘猫", "橘", "猫"]
    assert terms("ひかり") == ["ひか", "かり"]


def test_a_mark_inside_a_word_does_not_tear_it() -> None:
    assert terms("हिन्दी") == ["हिन्दी"]


def test_query_syntax_is_only_characters() -> None:
    assert terms('"cat" OR (dog) NEAR/3 * : ^ -bird') == ["cat", "dog", "near", "3", "bird"]


def test_composed_and_decomposed_text_give_the_same_terms() -> None:
    assert terms("Zoë é が ộ") == terms("Zoe\u0308 e\u0301 か\u3099 o\u0323\u0302")


def test_a_long_term_is_cut_and_still_found() -> None:
    blob = "x1" * 5_000

    assert terms(blob) == [blob[:TERM_CHARS_MAX]]
    assert terms(f"see {blob} there") == ["see", blob[:TERM_CHARS_MAX]]


def test_counts_are_of_the_terms_and_the_length_is_their_number() -> None:
    assert term_counts("Cats and cats, and a dog") == ({"cat": 2, "dog": 1}, 3)
    assert term_counts("") == ({}, 0)


def test_a_text_has_a_bounded_number_of_distinct_terms_but_its_whole_length() -> None:
    counts, length = term_counts(" ".join(f"w{i}" for i in range(TERMS_DISTINCT_MAX + 10)))

    assert len(counts) == TERMS_DISTINCT_MAX
    assert "w0" in counts
    assert length == TERMS_DISTINCT_MAX + 10


@pytest.mark.parametrize(
    "unit", ["a\u0300\u0316", "\u0300\u0316", "a.", "a'", "1,000", "c+++", "'", "@a@", "ก\u0e33"]
)
def test_a_forged_text_takes_no_longer_than_its_length(unit: str) -> None:
    # Quadratic work on any of these would take minutes. `normalize` alone takes it with many marks
    # on one letter.
    terms(unit * (100_000 // len(unit)))


def test_a_text_of_ligatures_has_no_more_terms_than_its_length_allows() -> None:
    """One letter folds to 18. A text that a person writes is not cut."""
    assert terms("\ufdfa") == terms("صلى الله عليه وسلم")
    length = 8_192
    most = (FOLDED_MAX * length + FOLDED_FREE_CHARS) / 4
    assert len(terms("\ufdfa" * length)) <= most


def test_threads_do_not_disturb_each_other() -> None:
    texts = [
        " ".join(f"running{chr(97 + i)}ed jumping{chr(97 + j)}s" for j in range(26))
        for i in range(26)
    ]
    alone = [terms(text) for text in texts]

    with ThreadPoolExecutor(8) as threads:
        together = list(threads.map(terms, texts * 4))

    assert together == alone * 4


@EXAMPLES
@given(st.one_of(ANY_TEXT, SPICY))
def test_every_term_of_any_text_can_be_stored_on_both_engines(text: str) -> None:
    for term in terms(text):
        assert 1 <= len(term) <= TERM_CHARS_MAX
        assert "\x00" not in term
        assert not any(c.isspace() for c in term)
        term.encode("utf-8")


@EXAMPLES
@given(st.one_of(ANY_TEXT, SPICY), st.one_of(ANY_TEXT, SPICY))
def test_a_text_is_found_by_its_own_words_whatever_stands_around_them(a: str, b: str) -> None:
    both = terms(f"{a}\n{b}")

    # A part with only stop words is dropped once the other part has more than that.
    assert both == terms(a) + terms(b) or both in (terms(a), terms(b))


@EXAMPLES
@given(st.one_of(ANY_TEXT, SPICY))
def test_terms_do_not_depend_on_case_or_on_what_was_asked_before(text: str) -> None:
    assert terms(text) == terms(text)
    if text.isascii():
        assert terms(text.upper()) == terms(text.lower())


@EXAMPLES
@given(st.one_of(ANY_TEXT, SPICY))
def test_counts_add_up_to_the_length(text: str) -> None:
    counts, length = term_counts(text)

    assert sum(counts.values()) == length == len(terms(text))
