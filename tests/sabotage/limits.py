"""What ends in time, and who waits for whom: queries, snapshots, long bodies, crowds."""

from tests.sabotage.breakage import Breakage

BREAKAGES = (
    Breakage(
        "queries-without-end",
        "that SQLite stops a query when its time is over",
        "recall_server/storage/sqlite/driver.py",
        "read = partial(raw.read, within_s=self._limits.query_s)",
        "read = partial(raw.read, within_s=300 * self._limits.query_s)",
        (
            "tests/faults/test_slow_queries.py::test_a_query_that_would_not_end_is_stopped_and_leaves_a_sound_connection[sqlite-in a transaction]",
        ),
    ),
    Breakage(
        "gone-and-gone-on",
        "that nobody goes on with a query whose caller has gone",
        "recall_server/storage/sqlite/thread.py",
        "(self.unwanted or time.monotonic() > self._ends)",
        "time.monotonic() > self._ends",
        (
            "tests/faults/test_slow_queries.py::test_a_query_whose_caller_has_gone_is_not_gone_on_with[sqlite-in a transaction]",
        ),
    ),
    Breakage(
        "snapshots-without-end",
        "that a snapshot is let go when it has lasted too long",
        "recall_server/storage/sqlite/driver.py",
        "self._limits.snapshot_s, reader.end_with, self._limits.snapshot_over",
        "86_400, reader.end_with, self._limits.snapshot_over",
        ("tests/faults/test_journal.py::test_a_snapshot_that_is_held_too_long_is_let_go[sqlite]",),
    ),
    Breakage(
        "standby-asked",
        "that of several hosts the one that takes writes is asked",
        "recall_server/storage/postgres/driver.py",
        '"target_session_attrs": "read-write"',
        '"target_session_attrs": "any"',
        (
            "tests/faults/test_standby.py::test_a_standby_that_lags_is_asked_nothing_and_alone_it_is_refused",
        ),
    ),
    Breakage(
        "cancelled-and-told-otherwise",
        "that who is cancelled while a commit fails is cancelled",
        "recall_server/storage/run_uncancelled.py",
        "    if cancelled:\n",
        "    if cancelled and task.exception() is None:\n",
        (
            "tests/storage/test_to_the_end.py::test_who_is_cancelled_meanwhile_is_cancelled_after_it_whatever_came_of_it[it fails]",
        ),
    ),
    Breakage(
        "stopped-and-told-otherwise",
        "that who is cancelled on Postgres is cancelled, whatever psycopg makes of it",
        "recall_server/storage/run_uncancelled.py",
        "        if task and task is asyncio.current_task() and task.cancelling() > before:\n",
        "        if task is None:\n",
        ("tests/storage/test_to_the_end.py::test_a_failure_that_is_made_of_a_cancellation_is_one",),
    ),
    Breakage(
        "any-number-of-values",
        "that a request of A2A has so many values",
        "recall_server/api/a2a/checks.py",
        "if count > VALUES_MAX:",
        "if count < 0:",
        (
            "tests/security/test_blockers.py::test_what_takes_long_does_not_hold_up_the_others[sqlite-many values in a data part]",
        ),
    ),
    Breakage(
        "crowds-go-on",
        "that one's crowd gives way to the single call of another",
        "recall_server/storage/store.py",
        "            await self.turns.yield_to_others(namespace)\n",
        "            pass\n",
        (
            "tests/storage/test_giving_way.py::test_a_transaction_of_a_crowd_waits_for_the_single_call_of_another",
        ),
    ),
)
