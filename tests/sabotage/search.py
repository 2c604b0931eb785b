"""The reads of a search, their limits, and the contents of the index."""

from tests.sabotage.breakage import Breakage
from tests.sabotage.changes import Argument, Body, Element, Forgets, Value, Without
from tests.sabotage.queries import Unfiltered, Unscoped

BREAKAGES = (
    Breakage(
        "names-of-all",
        "the namespace filter of the words and speakers that a question is compared with",
        "query:statistics",
        Unfiltered("t.namespace"),
        (
            "tests/integration/search/test_search.py::test_another_namespaces_speakers_and_words_change_no_question[sqlite]",
        ),
    ),
    Breakage(
        "occurrences-of-all",
        "the namespace filter of how often words stand in what was found",
        "query:postings_behind",
        Unfiltered("t.namespace"),
        (
            "tests/integration/search/test_search.py::test_no_query_of_a_search_reads_what_another_has_by_the_same_id[sqlite]",
        ),
    ),
    Breakage(
        "memories-placed-beyond-reach",
        "the reach of a token from the memories that are ranked",
        "query:placed",
        Unscoped("m"),
        (
            "tests/integration/search/test_search.py::test_nothing_out_of_reach_is_read_by_any_query_of_a_search",
        ),
    ),
    Breakage(
        "turns-placed-beyond-reach",
        "the reach of a token from the turns that are ranked",
        "query:placed",
        Unscoped("e"),
        (
            "tests/integration/search/test_search.py::test_nothing_out_of_reach_is_read_by_any_query_of_a_search",
        ),
    ),
    Breakage(
        "pool-beyond-reach",
        "that a search for a limited token chooses among what it reaches",
        "recall_server.storage.index.words:WordIndex.allowed",
        Forgets("flags"),
        (
            "tests/integration/search/test_search.py::test_what_is_out_of_reach_takes_no_place_in_a_search[sqlite]",
        ),
    ),
    Breakage(
        "hidden-stays-near",
        "that the search by vectors leaves out hidden items",
        "recall_server.storage.index.words:WordIndex._hide",
        Without("send", "hide_documents"),
        (
            "tests/integration/search/test_search.py::test_what_was_forgotten_takes_no_place_among_the_nearest[sqlite]",
        ),
    ),
    Breakage(
        "hidden-stays-counted",
        "that the search by words leaves out hidden items",
        "recall_server.services.memory.indexing:hide",
        Without("hide"),
        (
            "tests/integration/search/test_indexing.py::test_an_index_made_anew_is_the_one_that_was_kept[sqlite]",
        ),
    ),
    Breakage(
        "renewed-without-clearing",
        "that an index is emptied before it is built again",
        "recall_server.storage.index.words:WordIndex.begin_anew",
        Element("clear_terms"),
        (
            "tests/integration/search/test_search.py::test_an_older_index_is_made_anew_when_a_server_starts[sqlite]",
        ),
    ),
    Breakage(
        "stale-never-renewed",
        "that a server builds older indexes again before it serves",
        "recall_server.bootstrap:open_application",
        Without("indexing", "renew"),
        (
            "tests/integration/search/test_search.py::test_an_older_index_is_made_anew_when_a_server_starts[sqlite]",
        ),
    ),
    Breakage(
        "noise-takes-a-place",
        "that noise is left out before places are kept for other sources",
        "recall_server.domain.search.calibration:Calibration.noise",
        Body("return 0.0"),
        (
            "tests/integration/search/test_scores.py::test_a_text_answers_alone_where_the_others_say_nothing_of_it[sqlite]",
        ),
    ),
    Breakage(
        "evidence-of-what-is-not-shown",
        "that evidence is computed from the hits that are shown",
        "recall_server.services.search.recall:_finalized",
        Argument("evidence", 0, "candidates.best"),
        (
            "tests/integration/search/test_scores.py::test_evidence_goes_by_the_hits_that_are_shown[sqlite]",
        ),
    ),
    Breakage(
        "speakers-are-words",
        "the sign that separates speakers from words",
        "recall_server.domain.text.terms:SPEAKER",
        Value('""'),
        (
            "tests/unit/test_question.py::test_a_speakers_term_is_none_that_a_text_can_have",
            "tests/unit/test_question.py::test_who_types_the_sign_of_a_speaker_asks_for_the_word_and_the_name",
        ),
    ),
)
