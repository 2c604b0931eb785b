"""Trust in sources, taking a source back, and quotas."""

from tests.sabotage.breakage import Breakage
from tests.sabotage.changes import Body, Forgets, Never, Without
from tests.sabotage.queries import Text

BREAKAGES = (
    Breakage(
        "everybody-trusted-alike",
        "that what a program fetched is trusted less than a person",
        "recall_server.domain.trust:trust_of",
        Never("_FETCHERS"),
        (
            "tests/security/test_trust.py::test_words_that_reach_into_what_was_fetched_are_trusted_no_more_than_that[sqlite]",
            "tests/unit/test_trust.py::test_trust_goes_by_the_speaker_and_by_the_agent",
        ),
    ),
    Breakage(
        "later-wins-whoever-says-it",
        "that a claim trusted less supersedes nothing",
        "recall_server.services.memory.reconcile:_decide",
        Forgets("trust"),
        (
            "tests/security/test_trust.py::test_words_that_reach_into_what_was_fetched_are_trusted_no_more_than_that[sqlite]",
        ),
    ),
    Breakage(
        "first-speaker-only",
        "that words of several speakers are trusted as the least of them",
        "recall_server.domain.trust:least_trusted",
        Body("return witnesses[0]"),
        (
            "tests/security/test_trust.py::test_words_that_reach_into_what_was_fetched_are_trusted_no_more_than_that[sqlite]",
        ),
    ),
    Breakage(
        "repetition-counts",
        "that one author is one witness",
        "recall_server.domain.trust:_Earlier.corroborated_by",
        Forgets("author"),
        (
            "tests/security/test_trust.py::test_a_source_that_repeats_itself_is_no_further_evidence[sqlite]",
        ),
    ),
    Breakage(
        "one-source-fills-the-answer",
        "the share of an answer that is kept for other sources",
        "recall_server.domain.search.ranking:others",
        Body("return 0"),
        (
            "tests/security/test_jamming.py::test_a_stuffed_document_has_no_more_than_its_share_of_an_answer[sqlite]",
        ),
    ),
    Breakage(
        "later-but-fetched",
        "that what a tool fetched never goes above what a person said",
        "recall_server.domain.query:Item.trust",
        Body("return 0"),
        (
            "tests/integration/search/test_current_first.py::test_what_a_tool_fetched_never_goes_above_what_a_person_said[sqlite]",
        ),
    ),
    Breakage(
        "purged-but-not-restored",
        "that a memory superseded by a lie is active again",
        "recall_server.services.erasure.purge_source:Sources._take_back",
        Without("believe"),
        (
            "tests/security/test_sources.py::test_what_came_of_a_bad_source_goes_and_what_stood_before_holds_again[sqlite-agent]",
        ),
    ),
    Breakage(
        "room-without-end",
        "that a namespace keeps no more than it may",
        "query:take_quota",
        Text("""UPDATE namespaces SET stored_bytes = stored_bytes + :bytes
WHERE namespace = :namespace AND :bytes_max IS NOT NULL
RETURNING namespace"""),
        (
            "tests/security/test_quota.py::test_what_is_written_at_once_has_the_room_only_once[sqlite]",
        ),
    ),
    Breakage(
        "spent-before-reserved",
        "that what a call may cost is reserved before it is made",
        "query:reserve_tokens",
        Text("""INSERT INTO model_spend (namespace, day, tokens)
SELECT :namespace, :day, :tokens WHERE :tokens <= :tokens_max
ON CONFLICT (namespace, day) DO UPDATE SET tokens = model_spend.tokens + excluded.tokens
WHERE model_spend.tokens <= :tokens_max
RETURNING tokens"""),
        (
            "tests/security/test_budget.py::test_who_has_used_up_a_day_waits_for_the_next_and_others_do_not[sqlite]",
        ),
    ),
)
