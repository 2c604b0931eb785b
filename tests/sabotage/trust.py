"""Whose word counts for how much, taking it back, and what a namespace may use."""

from tests.sabotage.breakage import Breakage

BREAKAGES = (
    Breakage(
        "everybody-trusted-alike",
        "that what a program fetched is trusted less than a person",
        "recall_server/domain/security/trust.py",
        "        if _FETCHERS.intersection((words[0], words[-1])):\n            return Trust.FETCHED\n",
        "",
        (
            "tests/security/test_trust.py::test_words_that_reach_into_what_was_fetched_are_trusted_no_more_than_that[sqlite]",
            "tests/domain/test_trust.py::test_trust_goes_by_the_speaker_and_by_the_agent",
        ),
    ),
    Breakage(
        "later-wins-whoever-says-it",
        "that a claim trusted less supersedes nothing",
        "recall_server/services/memory/reconcile.py",
        "one not in newer and known.trust(one) <= mine]",
        "one not in newer]",
        (
            "tests/security/test_trust.py::test_words_that_reach_into_what_was_fetched_are_trusted_no_more_than_that[sqlite]",
        ),
    ),
    Breakage(
        "first-speaker-only",
        "that words of several speakers are trusted as the least of them",
        "recall_server/domain/security/trust.py",
        "    return min(witnesses, key=lambda one: one.trust)\n",
        "    return witnesses[0]\n",
        (
            "tests/security/test_trust.py::test_words_that_reach_into_what_was_fetched_are_trusted_no_more_than_that[sqlite]",
        ),
    ),
    Breakage(
        "repetition-counts",
        "that one author is one witness",
        "recall_server/domain/security/trust.py",
        "new.author != one.author and new.source != one.source",
        "new.source != one.source",
        (
            "tests/security/test_trust.py::test_a_source_that_repeats_itself_is_no_further_evidence[sqlite]",
        ),
    ),
    Breakage(
        "one-source-fills-the-answer",
        "the share of an answer that is for others",
        "recall_server/domain/search/source_limit.py",
        "    return round(limit * SHARE)\n",
        "    return round(limit * SHARE * 0)\n",
        (
            "tests/security/test_jamming.py::test_a_stuffed_document_has_no_more_than_its_share_of_an_answer[sqlite]",
        ),
    ),
    Breakage(
        "purged-but-not-restored",
        "that what gave way to a lie holds again",
        "recall_server/services/erasure/purge_source.py",
        "        await tx.sources.believe(list(found.restored))\n",
        "",
        (
            "tests/security/test_sources.py::test_what_came_of_a_bad_source_goes_and_what_stood_before_holds_again[sqlite-agent]",
        ),
    ),
    Breakage(
        "room-without-end",
        "that a namespace keeps no more than it may",
        "recall_server/storage/sql/limits.sql",
        "stored_bytes + :bytes <= :bytes_max",
        "(stored_bytes + :bytes <= :bytes_max OR TRUE)",
        (
            "tests/security/test_quota.py::test_what_is_written_at_once_has_the_room_only_once[sqlite]",
        ),
    ),
    Breakage(
        "spent-before-reserved",
        "that what a call may cost is reserved before it is made",
        "recall_server/storage/sql/limits.sql",
        "WHERE model_spend.tokens + excluded.tokens <= :tokens_max",
        "WHERE model_spend.tokens <= :tokens_max",
        (
            "tests/security/test_budget.py::test_who_has_used_up_a_day_waits_for_the_next_and_others_do_not[sqlite]",
        ),
    ),
)
