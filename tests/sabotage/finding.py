"""What a search reads, for whom, and what its index holds."""

from tests.sabotage.breakage import Breakage

BREAKAGES = (
    Breakage(
        "names-of-all",
        "the namespace filter of the words and speakers that a question is compared with",
        "recall_server/storage/sql/index.sql",
        "LEFT JOIN terms t ON t.namespace = n.namespace\n  AND t.term",
        "LEFT JOIN terms t ON t.namespace <> ''\n  AND t.term",
        (
            "tests/services/test_search.py::test_another_namespaces_speakers_and_words_change_no_question[sqlite]",
        ),
    ),
    Breakage(
        "occurrences-of-all",
        "the namespace filter of how often words stand in what was found",
        "recall_server/storage/sql/index.sql",
        "  WHERE p.namespace = :namespace AND p.term = w.key AND p.slot > w.value) AS found\n",
        "  WHERE (p.namespace <> '') AND p.term = w.key AND p.slot > w.value) AS found\n",
        (
            "tests/services/test_search.py::test_no_query_of_a_search_reads_what_another_has_by_the_same_id[sqlite]",
        ),
    ),
    Breakage(
        "memories-placed-beyond-reach",
        "the reach of a token from the memories that are ranked",
        "recall_server/storage/sql/findable.sql",
        "    AND (:any_topic OR m.topic IN (:topics...)) AND (:any_type OR m.type IN (:types...))\n"
        "    AND (:any_agent OR m.agent_id = :agent)\n",
        "    AND (TRUE OR m.topic IN (:topics...) OR m.type IN (:types...) OR m.agent_id = :agent)\n",
        (
            "tests/services/test_search.py::test_nothing_out_of_reach_is_read_by_any_query_of_a_search",
        ),
    ),
    Breakage(
        "turns-placed-beyond-reach",
        "the reach of a token from the turns that are ranked",
        "recall_server/storage/sql/findable.sql",
        "  AND (:any_topic OR e.topic IN (:topics...)) AND :any_type\n"
        "  AND (:any_agent OR e.agent_id = :agent)",
        "  AND (:any_topic OR e.topic IN (:topics...) OR :any_type OR e.agent_id = :agent OR TRUE)",
        (
            "tests/services/test_search.py::test_nothing_out_of_reach_is_read_by_any_query_of_a_search",
        ),
    ),
    Breakage(
        "pool-beyond-reach",
        "that a search for a limited token chooses among what it reaches",
        "recall_server/storage/index/words.py",
        "        return flags & documents.findable\n",
        "        return documents.findable\n",
        (
            "tests/services/test_search.py::test_what_is_out_of_reach_takes_no_place_in_a_search[sqlite]",
        ),
    ),
    Breakage(
        "hidden-stays-near",
        "that what is hidden leaves the search by vectors",
        "recall_server/storage/index/words.py",
        '        await self._handle.send("remove_documents", ids=list(removed.ids))\n',
        "",
        (
            "tests/services/test_search.py::test_what_was_forgotten_takes_no_place_among_the_nearest[sqlite]",
        ),
    ),
    Breakage(
        "hidden-stays-counted",
        "that what is hidden leaves the search by words",
        "recall_server/services/memory/indexing.py",
        "        await tx.words.remove(postings(found))\n",
        "        pass\n",
        (
            "tests/services/test_finding.py::test_an_index_made_anew_is_the_one_that_was_kept[sqlite]",
        ),
    ),
    Breakage(
        "renewed-without-clearing",
        "that an index is empty before it is made anew",
        "recall_server/storage/index/words.py",
        'for query in ("clear_documents", "clear_postings", "clear_terms"):',
        'for query in ("clear_documents", "clear_postings"):',
        (
            "tests/services/test_search.py::test_an_older_index_is_made_anew_when_a_server_starts[sqlite]",
        ),
    ),
    Breakage(
        "stale-never-renewed",
        "that a server makes older indexes anew before it serves",
        "recall_server/bootstrap.py",
        "        await finding.renew(store)\n",
        "",
        (
            "tests/services/test_search.py::test_an_older_index_is_made_anew_when_a_server_starts[sqlite]",
        ),
    ),
    Breakage(
        "speakers-are-words",
        "the sign that tells who spoke from what was said",
        "recall_server/domain/text/terms.py",
        'f"{SPEAKER}{word}"[:TERM_CHARS_MAX]',
        "word[:TERM_CHARS_MAX]",
        (
            "tests/domain/test_question.py::test_a_speakers_term_is_none_that_a_text_can_have",
            "tests/domain/test_question.py::test_who_types_the_sign_of_a_speaker_asks_for_the_word_and_the_name",
        ),
    ),
)
