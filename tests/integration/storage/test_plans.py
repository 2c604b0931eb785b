"""The engines run the queries of a search by keys, and never scan a namespace.

The tables have some size. The queries are sent as the server sends them, with row-level security,
and with the statistics that the engine has: SQLite has none, since nobody runs ANALYZE there.
"""

import json
import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest

from recall_server.domain.audit import AccessCount
from recall_server.domain.episode import turn_id
from recall_server.domain.ids import Namespace
from recall_server.domain.moments import Past
from recall_server.domain.permissions import FULL_ACCESS, AccessScope
from recall_server.storage.bound_connection import BoundConnection, load, parse
from recall_server.storage.driver import Document, accesses
from recall_server.storage.index.words import TRUTHS_PAGE, Statistics
from recall_server.storage.store import Store
from tests.support.engines import on_postgres
from tests.support.rows import ALICE, BOB, enter
from tests.support.runtime import NOON

# The texts are conversations of ten turns; every second turn has a memory.
TURNS = 20_000
IDS = [f"mem_{number}" for number in range(0, TURNS, 400)]
TURN_IDS = [turn_id(f"ep_{number}", number % 10) for number in range(1, TURNS // 10, 41)]
SLOTS = list(range(1, TURNS, 401))
SUCCESSORS = {"ids": IDS, "any_truth": False, "true_at": NOON, "before": NOON, "limit": 1_000}
DAY = timedelta(days=1)
LIMITED = AccessScope(topics=frozenset({"topic 1"}), agent_id="planner")
IN_ROOMS = AccessScope(containers=frozenset({"room-7", "room-8"}))
PARAMS: Mapping[str, Mapping[str, Any]] = {
    "findable_memories": {"ids": IDS},
    "placed": {"slots": SLOTS},
    "found_among": {"ids": [*IDS, *TURN_IDS]},
    "active_texts": {"ids": IDS},
    "memory_items": {"ids": IDS},
    "memories_by_id": {"ids": IDS},
    "citations": {"ids": IDS},
    "passage_items": {"ids": TURN_IDS},
    "expired_passages": {"slots": SLOTS, "limit": 1_000},
    "places_of_items": {"ids": TURN_IDS},
    "turns_said": {"ids": TURN_IDS},
    "superseded_words": {"ids": TURN_IDS},
    "superseded_words_at": {"ids": TURN_IDS},
    "successors": SUCCESSORS,
    "successors_at": SUCCESSORS,
    "memories_to_index": {"after": "mem_3", "limit": 500},
    "episodes_to_index": {"after": "ep_3", "limit": 500},
    "page_of_items": {"after": 3, "limit": 500},
    "page_of_documents": {"version": 3, "slot": 9, "limit": 500},
    "page_of_truths": {"slot": 3, "seq": 3, "limit": 500},
    "postings_behind": {"slots": Document({"quokka": TURNS - 9, "word7": 0})},
    "statistics": {"terms": ["quokka", "word7", "@ann"]},
    "items_at": {"slots": SLOTS},
    "lists_of": {
        "ids": IDS,
        "terms": ["quokka", "word7", "@ann"],
        "few": True,
        "first": 0,
        "last": 9,
    },
    "drop_empty_lists": {"terms": ["quokka", "word7", "@ann"]},
    "copy_vectors": {"ids": IDS},
    "close_lists": {"terms": ["quokka", "word7", "@ann"]},
    "memories_with_terms": {"shared": Document(dict.fromkeys(SLOTS, 2)), "limit": 20},
    "hide_documents": {"ids": IDS, "now": NOON},
    "count_accesses_of_memories": {"counts": accesses([AccessCount(id_, 2, NOON) for id_ in IDS])},
    "count_accesses_of_turns": {"counts": accesses([AccessCount(t, 2, NOON) for t in TURN_IDS])},
    "vectors_of": {"model": "hash/64", "ids": IDS},
    "vectors_at": {"model": "hash/64", "slots": [1, 2, 3]},
}
# The reads among them whose tables are joined.
YOUNG = (
    *("placed", "memory_items", "passage_items", "expired_passages", "turns_said"),
    *("superseded_words", "successors"),
)
# Steps of a plan that read no table: values that were passed in, and results of earlier steps.
HANDED_IN = re.compile(
    r"VIRTUAL TABLE|^(?:SCAN|SEARCH) "
    r"(?:\(subquery-\d+\)|cited|counted|entries|events|lists|e|c|found|forward|fresh|s|w|f)$"
)
NUMBERS = "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < :last)"
FILL = f"""
-- query: fill_episodes
INSERT INTO episodes (namespace, id, idempotency_key, request_digest, job_id, text, content_hash,
  topic, agent_id, container, occurred_at, recorded_at)
{NUMBERS}
SELECT :namespace, 'ep_' || i, i, '', '', :text, '', 'topic ' || (i % 5), 'planner',
  'room-' || (i % 100), :now, :now
FROM n WHERE i < (:last + 1) / 10

-- query: fill_turns
INSERT INTO turns (namespace, id, episode_id, position, span_start, span_end, speaker, importance,
  state)
{NUMBERS}
SELECT :namespace, 'ep_' || (i / 10) || '.' || (i % 10), 'ep_' || (i / 10), i % 10, i % 10 * 20,
  i % 10 * 20 + 20, 'Ann', 0.5, CASE WHEN i % 2 = 0 THEN 'covered' ELSE 'open' END
FROM n

-- query: fill_memories
INSERT INTO memories (namespace, id, text, type, topic, agent_id, container, status, said_at,
  valid_from, recorded_at, importance, confidence, extractor)
{NUMBERS}
SELECT :namespace, 'mem_' || i, :text, 'fact', 'topic ' || (i / 10 % 5), 'planner',
  'room-' || (i / 10 % 100), 'active', :now, :now, :now, 0.5, 0.5, ''
FROM n WHERE i % 2 = 0

-- query: fill_citations
INSERT INTO citations (namespace, memory_id, position, episode_id, span_start, span_end)
{NUMBERS}
SELECT :namespace, 'mem_' || i, 0, 'ep_' || (i / 10), i % 10 * 20 + 3, i % 10 * 20 + 9
FROM n WHERE i % 2 = 0

-- query: fill_forgotten
INSERT INTO forgotten (namespace, item_id, episode_id, span_start, span_end, forgotten_at)
{NUMBERS}
SELECT :namespace, 'mem_' || i, 'ep_' || (i / 10), 3, 9, :now FROM n WHERE i % 10 = 0

-- query: fill_documents
INSERT INTO documents (namespace, slot, item_id, turn_id, span_start, span_end, version)
{NUMBERS}
SELECT :namespace, i + 1, 'mem_' || i, NULL, NULL, NULL, i / 10 FROM n WHERE i % 2 = 0
UNION ALL
SELECT :namespace, i + 1, 'ep_' || (i / 10) || '.' || (i % 10),
  'ep_' || (i / 10) || '.' || (i % 10), i % 10 * 20, i % 10 * 20 + 20, i / 10
FROM n WHERE i % 2 = 1

-- query: fill_jobs
INSERT INTO operations (namespace, id, kind, payload, state, due_at, created_at)
{NUMBERS}
SELECT :namespace, 'job_' || i, 'extract', '{{}}', 'complete', :now, :now FROM n WHERE i < 2000

-- query: fill_memory_events
INSERT INTO memory_events (namespace, seq, change_id, operation, item_id, kind, at, reason,
  status)
{NUMBERS}
SELECT :namespace, i + 1, 'job_' || (i / 10), 'extract', 'mem_' || (i / 2 * 2), 'added', :now,
  '', 'active'
FROM n

-- query: fill_postings
INSERT INTO postings (namespace, term, slot, found)
{NUMBERS}
SELECT :namespace, 'quokka', i + 1, ';' || (i + 1) || ' 1 9' FROM n

-- query: fill_terms
INSERT INTO terms (namespace, term, documents, last_slot, found)
{NUMBERS}
SELECT :namespace, 'word' || i, 40, :last, ';' || (i + 1) || ' 1 9' FROM n WHERE i < 5000

-- query: fill_embeddings
INSERT INTO embeddings (namespace, model, item_id, vector, code, version, slot, document)
{NUMBERS}
SELECT :namespace, 'hash/64', 'mem_' || i, :vector, '', 1, i, i + 1 FROM n WHERE i % 2 = 0
"""


async def _fill(store: Store, namespace: Namespace, turns: int) -> None:
    for query in parse(FILL, store.engine):
        given = {
            "namespace": namespace,
            "last": turns - 1,
            "text": "x" * 200,
            "now": NOON,
            "vector": bytes(256),
        }
        async with store.driver.transaction(namespace=namespace, write=True) as raw:
            await raw.fetch(query.sql, {name: given[name] for name in query.parameters})


@pytest.fixture
async def filled(store: Store, database: Path | str) -> Store:
    """Fill two namespaces alike. Postgres updates the sizes of its tables by itself."""
    await enter(store, ALICE, BOB)
    for namespace in (ALICE, BOB):
        await _fill(store, namespace, TURNS)
    if isinstance(database, str):
        with psycopg.connect(database, autocommit=True) as owner:
            owner.execute("ANALYZE")
    return store


async def _plan(
    store: Store, name: str, access_scope: AccessScope, given: Mapping[str, Any] | None = None
) -> list[str]:
    """Return the steps of the engine's plan that read tables, one on each line."""
    query = load(store.engine)[name]
    async with store.driver.transaction(namespace=ALICE, write=False) as connection:
        bound = BoundConnection(connection, {name: query}, ALICE, access_scope)
        sql, params = bound.statement(name, given or {})
        if store.engine == "sqlite":
            rows = await connection.fetch(f"EXPLAIN QUERY PLAN {sql}", params)
            lines = [row["detail"] for row in rows]
            read = [line for line in lines if line.startswith(("SCAN", "SEARCH"))]
            return [line for line in read if not HANDED_IN.search(line)]
        # The cost of such tables if everything is in memory.
        await connection.fetch("SET LOCAL random_page_cost = 1.0", {})
        rows = await connection.fetch(f"EXPLAIN (FORMAT JSON) {sql}", params)
        whole = rows[0]["QUERY PLAN"]
        whole = json.loads(whole) if isinstance(whole, str) else whole
        return [_line(node) for node in _nodes(whole[0]["Plan"])]


def _nodes(plan: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    reads = plan["Node Type"] != "ModifyTable"
    if reads and ("Relation Name" in plan or "Index Name" in plan):
        yield plan
    for child in plan.get("Plans", ()):
        yield from _nodes(child)


def _line(node: Mapping[str, Any]) -> str:
    kind, table = node["Node Type"], node.get("Relation Name", "")
    return f"{kind} {table} {node.get('Index Name', '')} {node.get('Index Cond', '')}"


def _by_more_than_the_namespace(line: str) -> bool:
    """Return True if at least two parts of a key are used; a namespace row has one.
    `closed_containers` holds only containers that are being erased.
    """
    if re.search(r"\bnamespaces\b|\bclosed_containers\b|SEARCH n |Bitmap Heap Scan", line):
        return True
    return not re.match(r"SCAN|Seq Scan", line) and bool(re.search(r"\bAND\b", line))


@pytest.mark.slow
async def test_every_query_of_a_search_goes_by_the_keys(filled: Store) -> None:
    """The namespace alone is not enough: an index that is scanned for all of it does not help."""
    for name in PARAMS:
        for access_scope in (FULL_ACCESS, LIMITED, IN_ROOMS):
            plan = await _plan(filled, name, access_scope, PARAMS[name])

            assert plan, name
            assert all(map(_by_more_than_the_namespace, plan)), (name, plan)

    # The control: for a token that is limited to its agent, the whole namespace is scanned.
    plan = await _plan(filled, "slots_in_reach", AccessScope(agent_id="planner"), {"after": 0})
    assert not all(map(_by_more_than_the_namespace, plan)), plan


@on_postgres
async def test_no_query_of_a_search_multiplies_rows_before_the_tables_are_analyzed(
    store: Store,
) -> None:
    """A young database has no statistics: then a plain join may read all entries for each turn."""
    turns = TURNS // 5
    await enter(store, ALICE)
    await _fill(store, ALICE, turns)
    for name in YOUNG:
        query = load(store.engine)[name]
        async with store.driver.transaction(namespace=ALICE, write=False) as connection:
            bound = BoundConnection(connection, {name: query}, ALICE, FULL_ACCESS)
            sql, params = bound.statement(name, PARAMS[name])
            rows = await connection.fetch(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}", params)
        whole = rows[0]["QUERY PLAN"]
        whole = json.loads(whole) if isinstance(whole, str) else whole
        assert sum(map(_rows_read, _nodes(whole[0]["Plan"]))) < 5 * turns, name


def _rows_read(node: Mapping[str, Any]) -> float:
    once = node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
    return float(once * node["Actual Loops"])


async def test_when_statements_were_true_is_read_in_pages_of_entries_and_events(
    filled: Store,
) -> None:
    """One statement for a whole namespace would take longer than a statement may."""
    known = Statistics(version=TURNS, last_event=TURNS)
    everything, behind = (
        filled.autocommit(ALICE, past=Past(as_of=at)).words for at in (NOON, NOON - DAY)
    )
    documents = await everything.documents(known)
    true = await everything.true_then(documents, known)

    assert TURNS > TRUTHS_PAGE
    assert np.flatnonzero(true).tolist() == list(range(1, TURNS + 1))
    assert not (await behind.true_then(documents, known)).any()
    for slot, seq in ((0, 0), (TURNS, 0), (0, TURNS)):
        (page,) = await filled.autocommit(ALICE).bound.fetch(
            "page_of_truths", slot=slot, seq=seq, limit=500
        )
        read = page["entries"] + page["events"]
        assert read == 500 * ((slot < TURNS) + (seq < TURNS))
        assert 0 < len(page["slots"].split()) <= read


JOBS = f"""
-- query: fill_operations
INSERT INTO operations (namespace, id, kind, payload, state, due_at, created_at)
{NUMBERS}
SELECT :namespace, 'job_' || i, 'extract', '{{}}',
  CASE WHEN i % 1000 = 0 THEN 'queued' ELSE 'complete' END, :now, :now
FROM n
"""


async def test_what_waits_is_counted_without_what_is_done(
    store: Store, database: Path | str
) -> None:
    """The number of texts that were ever stored does not matter."""
    await enter(store, ALICE)
    (fill,) = parse(JOBS, store.engine)
    async with store.driver.transaction(namespace=ALICE, write=True) as raw:
        await raw.fetch(fill.sql, {"namespace": ALICE, "last": TURNS - 1, "now": NOON})
    if isinstance(database, str):
        with psycopg.connect(database, autocommit=True) as owner:
            owner.execute("ANALYZE")
    for name in ("job_counts", "all_job_counts"):
        query = load(store.engine)[name]
        mine = None if query.across else ALICE
        explain = "EXPLAIN QUERY PLAN" if store.engine == "sqlite" else "EXPLAIN"
        async with store.driver.transaction(namespace=mine, write=False) as connection:
            bound = BoundConnection(connection, {name: query}, mine)
            sql, params = bound.statement(name, {})
            rows = await connection.fetch(f"{explain} {sql}", params)
        assert "operations_open" in str([dict(row) for row in rows]), name
    async with store.transaction(ALICE, write=False) as tx:
        assert await tx.jobs.counts() == {("extract", "queued"): TURNS // 1000}
