"""The table registry: for each table its key, what erasures do to it, whether it is exported, and
whether row-level security guards it; and the queries that are made of that (`queries`). So a new
table of a tenant needs its migrations, one entry here, and the queries of its own.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any

from recall_server.storage.driver import Document, Row, document


class Part(StrEnum):
    """A part of a namespace that an erasure deletes by its id. An erasure of a container deletes
    the row of an episode; an erasure of a subject or a memory redacts the row and its turns.
    """

    MEMORY = "memory"
    EPISODE = "episode"
    PASSAGE = "passage"
    TASK = "task"


class Named(StrEnum):
    """How an erasure treats a row that names something erased, or the name in it."""

    DELETED = "the row is deleted"
    REDACTED = "the name is overwritten"
    FOLLOWS = "it is kept up to date with the rows that it is made of"
    REFUSED = "nothing is erased while it stands"
    ENDS = "it is deleted when the erasure ends"


@dataclass(frozen=True)
class Table:
    """One table. A row of it `holds` what is said there.

    `key` is the primary key without the namespace. `goes_with` names, for each part whose erasure
    deletes rows of this table, the columns with the id of that part, the owner last. `redacted`
    names the columns that an erasure of a subject or a memory overwrites instead. If neither is
    given, `rest` says why such an erasure leaves the table alone. An erasure of a subject reads
    `words` and `labels`: it deletes a row with the name in its `words`, and takes the name out of
    the `labels` of rows that stay. An erasure of the whole namespace deletes all rows, unless
    `kept` says why not.

    `said` are the columns that can hold what somebody said: words, labels, names, addresses.
    `named` says what the purge does with a row that names an erased subject or container and is not
    deleted with a part.

    `columns` are exported as a part of the line `exported`, each as `name` or `name:type`, unless
    `not_exported` says why the table is not exported. An import makes `derived` columns anew. All
    others stay on this server.
    """

    name: str
    holds: str
    key: tuple[str, ...] = ("id",)
    goes_with: tuple[tuple[Part, str], ...] = ()
    redacted: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    said: tuple[str, ...] = ()
    named: Named | None = None
    rest: str = ""
    kept: str = ""
    # Whether rows are deleted when an erasure of the namespace begins, to end all work for it.
    ends_work: bool = False
    # The SQL condition of the rows that an erasure of the namespace leaves.
    spared: str = ""
    # How many rows one transaction of a long erasure deletes; few of episodes, as texts are long.
    batch_rows: int = 1_000
    # A unique column: the query `add_new_…` returns no row if its value exists.
    once: str = ""
    # Whether queries of callers must be limited to their access scope: rows have a topic and a
    # container.
    scoped: bool = False
    tenant: bool = True
    # Why a distributed database keeps the table on the node that the server connects to.
    local: str = ""
    exported: str = ""
    not_exported: str = ""
    columns: tuple[str, ...] = ()
    derived: tuple[str, ...] = ()

    @cached_property
    def fields(self) -> tuple[tuple[str, str], ...]:
        """The exported columns, each with its type: "" for a type of JSON."""
        pairs = (column.partition(":") for column in self.columns)
        return tuple((name, type_) for name, _, type_ in pairs)

    def labels_of(self, row: Row) -> dict[str, Any]:
        """Return the values of `labels` of a row, with documents parsed."""
        return {
            name: document(row[name]) if name in self._documents and row[name] else row[name]
            for name in self.labels
        }

    @cached_property
    def _documents(self) -> frozenset[str]:
        return frozenset(name for name, type_ in self.fields if type_ == "document")

    def stored(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of a row as query parameters."""
        return {
            name: Document(value) if name in self._documents and value is not None else value
            for name, value in row.items()
        }


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


# An erasure of a namespace deletes in this order. Tasks come first: a transaction that changes a
# task locks its row, so nothing can be added to a task once its row is gone. Rows that refer to
# others are deleted before those.
TABLES = (
    Table(
        "runs",
        "a task of A2A: its request, its state and what came of it",
        goes_with=((Part.TASK, "id"),),
        ends_work=True,
        scoped=True,
        said=_words("context_id request work status messages outcome topic agent_id container"),
        exported="task",
        columns=_words(
            "context_id state accessor created_at:time changed_at:time expires_at:time"
            " request:document work:document status:document messages:document outcome:document"
        ),
    ),
    Table(
        "run_events",
        "what changed in a task, for the streams and pushes that tell it",
        key=("run_id", "seq"),
        goes_with=((Part.TASK, "run_id"),),
        ends_work=True,
        said=("status", "outcome"),
        exported="task",
        columns=_words("status:document outcome:document"),
    ),
    Table(
        "push_configs",
        "a receiver that a caller named for one task",
        key=("run_id", "id"),
        goes_with=((Part.TASK, "run_id"),),
        ends_work=True,
        said=("id", "url", "scheme"),
        named=Named.DELETED,
        exported="recipient",
        columns=_words("url created_at:time"),
    ),
    Table(
        "webhooks",
        "a receiver that an owner named for the namespace",
        rest="receivers of the namespace, whatever is erased of it",
        said=("url",),
        named=Named.DELETED,
        ends_work=True,
        not_exported="secrets and places of this server; `recall webhooks list` shows them",
    ),
    Table(
        "webhook_events",
        "what webhooks still have to be told",
        key=("seq",),
        goes_with=tuple((part, "item_id") for part in (Part.TASK, Part.MEMORY, Part.PASSAGE)),
        ends_work=True,
        not_exported="only until they are sent",
    ),
    Table(
        "operations",
        "a job in the background: extract, consolidate, push, purge and others",
        rest="a job names ids, and the limits of who began it; those under way are fenced",
        said=("payload",),
        named=Named.REDACTED,
        ends_work=True,
        # These jobs continue this erasure or an earlier one.
        spared="kind = 'purge' AND state IN ('queued', 'processing')",
        not_exported="the export of an episode says what is still to be done",
    ),
    Table(
        "memory_events",
        "a change of a memory or a passage: when, why, by whom, and what was before",
        key=("seq",),
        goes_with=(
            (Part.MEMORY, "item_id"),
            (Part.PASSAGE, "item_id"),
            (Part.EPISODE, "episode_id"),
        ),
        # With a name in it, the memory has it too.
        said=("answer",),
        named=Named.FOLLOWS,
        not_exported="an import begins with what it takes in",
    ),
    Table(
        "decisions",
        "an answer to a question about a memory",
        key=("memory_id", "question_id"),
        goes_with=((Part.MEMORY, "memory_id"),),
        said=("judge_reason",),
        named=Named.REDACTED,
        exported="memory",
        columns=_words("choice decided_by decided_at:time judge_reason judge_confidence"),
    ),
    Table(
        "disputes",
        "a memory on one side of a contradiction that no rule could settle",
        key=("question_id", "memory_id"),
        goes_with=((Part.MEMORY, "memory_id"),),
        exported="memory",
        columns=_words("side opened_at:time closed_at:time"),
    ),
    Table(
        "proposals",
        "a memory that waits for an approval",
        key=("id", "memory_id"),
        goes_with=((Part.MEMORY, "memory_id"),),
        exported="memory",
        columns=_words("side kind made_by opened_at:time closed_at:time choice decided_by"),
    ),
    Table(
        "relations",
        "an edge between two memories, with its reason and confidence",
        key=("from_id", "to_id", "kind"),
        goes_with=((Part.MEMORY, "to_id"), (Part.MEMORY, "from_id")),
        exported="memory",
        columns=_words("reason confidence made_by made_at:time"),
    ),
    Table(
        "citations",
        "the words that a memory rests on, as a place in a text",
        key=("memory_id", "position"),
        goes_with=((Part.MEMORY, "memory_id"),),
        exported="memory",
        columns=_words("episode_id span_start span_end"),
    ),
    Table(
        "memories",
        "a memory: its words, type, state and times",
        goes_with=((Part.MEMORY, "id"),),
        words=_words("text topic container entity attribute value"),
        labels=_words("session_id agent_id tags metadata extractor"),
        said=_words(
            "text topic container entity attribute value entity_key attribute_key value_key"
            " session_id agent_id tags metadata extractor"
        ),
        scoped=True,
        exported="memory",
        columns=_words(
            "text type topic entity attribute value negated:bool status said_at:time"
            " valid_from:time valid_until:time recorded_at:time retired_at:time superseded_by"
            " importance confidence reinforcements access_count last_accessed_at:time session_id"
            " agent_id extractor container tags:document metadata:document expires_at:time layer"
        ),
        derived=("entity_key", "attribute_key", "value_key", "stored_bytes"),
    ),
    Table(
        "subject_aliases",
        "another name of a subject: facts about it are facts about the subject",
        key=("alias_key",),
        rest="names that an owner gave; those of an erased subject go",
        said=_words("alias_key subject_key subject alias"),
        named=Named.DELETED,
        not_exported="the manifest has them",
    ),
    Table(
        "memory_counts",
        "how many active memories there are of each type and topic",
        key=("type", "topic"),
        rest="counted down with each memory",
        said=("topic",),
        named=Named.FOLLOWS,
        not_exported="counted again by an import",
    ),
    Table(
        "quarantine",
        "why a turn is hidden, and what was decided about it",
        key=("item_id",),
        goes_with=((Part.EPISODE, "episode_id"),),
        not_exported="a hidden turn is exported as hidden; why it is stays here",
    ),
    Table(
        "forgotten",
        "words that are hidden because they were forgotten",
        key=("item_id", "episode_id", "span_start", "span_end"),
        goes_with=((Part.MEMORY, "item_id"), (Part.EPISODE, "episode_id")),
        exported="episode",
        columns=_words("forgotten_at:time"),
    ),
    Table(
        "turns",
        "one speaker's words in a text, with the time when they were said",
        goes_with=((Part.EPISODE, "episode_id"),),
        labels=_words("speaker session"),
        said=_words("speaker session"),
        exported="episode",
        columns=_words(
            "position span_start span_end speaker session said_at:time importance state"
            " access_count last_accessed_at:time"
        ),
        derived=("episode_id",),
    ),
    Table(
        "episodes",
        "a text as it was sent, with its labels",
        goes_with=((Part.EPISODE, "id"),),
        redacted=_words("text content_hash idempotency_key request_digest"),
        labels=_words(
            "topic name session_id agent_id group_id source source_app source_model"
            " source_description trace_id tags metadata container"
        ),
        said=_words(
            "text idempotency_key topic name session_id agent_id group_id source source_app"
            " source_model source_description trace_id tags metadata container"
        ),
        batch_rows=20,
        once="idempotency_key",
        scoped=True,
        exported="episode",
        columns=_words(
            "text content_hash topic name session_id agent_id group_id source source_model"
            " source_description tags:document metadata:document occurred_at:time recorded_at:time"
            " expired_at:time idempotency_key request_digest job_id container source_app trace_id"
            " kept_as"
        ),
        derived=("stored_bytes",),
    ),
    Table(
        "embeddings",
        "the vector of a memory or a passage",
        key=("item_id", "document", "model"),
        goes_with=((Part.MEMORY, "item_id"), (Part.PASSAGE, "item_id")),
        not_exported="made again of the texts",
    ),
    Table(
        "rebuilt",
        "what a rebuild has derived so far: states, entries and the words of the index",
        key=("number",),
        rest="every erasure deletes all of it",
        said=("derived",),
        named=Named.DELETED,
        not_exported="made again of the texts",
    ),
    Table(
        "documents",
        "an entry of the index: a memory or a passage",
        key=("slot",),
        goes_with=((Part.MEMORY, "item_id"), (Part.PASSAGE, "item_id")),
        not_exported="made again of the texts",
    ),
    Table(
        "postings",
        "a closed list of the entries that have a word",
        key=("term", "slot"),
        rest="an item is taken out of the word index by its words",
        said=("term",),
        named=Named.FOLLOWS,
        not_exported="made again of the texts",
    ),
    Table(
        "terms",
        "a word, in how many entries it is, and the open list of them",
        key=("term",),
        rest="an item is taken out of the word index by its words",
        said=("term",),
        named=Named.FOLLOWS,
        not_exported="made again of the texts",
    ),
    Table(
        "audit_details",
        "the labels of a call, apart from its record so that they can be erased",
        key=("record_id",),
        rest="labels of calls; the chain keeps their digest",
        said=("details",),
        named=Named.DELETED,
        not_exported="an export of the audit log has them",
    ),
    Table(
        "call_counts",
        "the calls of a token in a minute, for the rate limit that servers share",
        key=("accessor", "minute"),
        rest="numbers of calls",
        not_exported="only the last minutes",
    ),
    Table(
        "revoked_children",
        "a revoked JWT that a token delegated",
        key=("parent", "jti"),
        rest="ids of tokens",
        not_exported="tokens open this server only",
    ),
    Table(
        "closed_containers",
        "a container that is being erased",
        key=("erasure_id",),
        rest="the names of containers that are being erased; deleted when they are",
        said=("container",),
        named=Named.ENDS,
        not_exported="only while an erasure goes on",
    ),
    Table(
        "model_spend",
        "the tokens of language models that were used on a day",
        key=("day",),
        rest="numbers of tokens of language models",
        not_exported="only the last days",
    ),
    Table(
        "namespaces",
        "a namespace: its policy, counts and legal hold",
        key=(),
        rest="settings and counts",
        said=("held_because",),
        named=Named.REFUSED,
        kept="the name and its settings at their defaults; all counts are zero",
        not_exported="the policy is in the manifest, the counts are made again",
    ),
    Table(
        "api_tokens",
        "a token: its hash, scopes, limits and times",
        key=("accessor",),
        rest="tokens of the namespace, whatever is erased of it",
        said=_words("label topics agent_id containers"),
        named=Named.REDACTED,
        kept="revoked and without labels, so that a token is refused as a revoked one",
        not_exported="tokens open this server only",
    ),
    Table(
        "tool_call_records",
        "a record of the audit log, in a chain of digests",
        rest="the audit log: ids, counts and codes, never text",
        kept="the audit log: ids, counts and codes, never text",
        exported="audit",
        columns=_words(
            "at:time door operation accessor request_id ids:document counts:document outcome code"
            " milliseconds model input_tokens output_tokens cost_usd"
        ),
    ),
    Table(
        "audit_heads",
        "the end of the chain of a namespace",
        key=(),
        rest="the last record of the audit log",
        kept="the last record of the audit log",
        not_exported="an export of the audit log has the chain",
    ),
    Table(
        "erasures",
        "an erasure, and its receipt",
        rest="what was erased, in numbers",
        kept="what was erased, in numbers",
        not_exported="receipts are those of the server that erased",
    ),
    Table(
        "erased",
        "a keyed digest of an erased text",
        key=("digest", "topic_digest", "container_digest", "agent_digest"),
        rest="keyed digests, so that the same is not taken in again",
        kept="keyed digests, so that the same is not taken in again",
        not_exported="digests by the key of this server",
    ),
    Table(
        "queues",
        "when the next job of a namespace is due",
        key=("pushes",),
        rest="when the next job is due",
        kept="when the next job is due, until there is none: one may be a purge",
        not_exported="jobs stay here",
        local="it is asked for the next namespace of all",
    ),
    Table(
        "schema_version",
        "a migration that was applied",
        key=("version",),
        tenant=False,
        local="migrations are run there",
    ),
    Table(
        "server",
        "the key of this database's receipts, and when all earlier tokens ended",
        key=("singleton",),
        tenant=False,
    ),
    Table("rejected_keys", "a role whose model has rejected the key", key=("role",), tenant=False),
    Table("failing_work", "background work that fails", key=("work",), tenant=False),
)
BY_NAME = {table.name: table for table in TABLES}
TENANT = tuple(table.name for table in TABLES if table.tenant)
SCOPED = tuple(table.name for table in TABLES if table.scoped)
DELETED = tuple(table.name for table in TABLES if table.tenant and not table.kept)
ENDS_WORK = tuple(table.name for table in TABLES if table.ends_work)
# An erasure of a namespace reads the rows of these before it deletes them, and keeps digests.
DIGESTED = ("memories", "turns", "episodes")
# Their rows tell the erase epoch in which they were written.
WITH_EPOCH = ("memories", "episodes")
# From the others it deletes some rows at a time, in any order.
SOME_AT_A_TIME = tuple(name for name in DELETED if name not in {*ENDS_WORK, *DIGESTED})
# Lines that an import reads; the others only record what happened on the exporting server.
IMPORTED = ("episode", "memory")


def with_part(part: Part) -> tuple[str, ...]:
    """Return the tables whose rows are deleted with a part, those that refer to others first."""
    return tuple(table.name for table in TABLES if part in dict(table.goes_with))


def queries() -> str:
    """Return the queries derived from the registry, in the form of a file of named queries."""
    return "\n".join((*_erasing(), *_redacting(), *_exporting()))


def _erasing() -> Iterator[str]:
    counts = ",\n  ".join(
        f"(SELECT count(*) FROM {name} WHERE namespace = :namespace) AS {name}" for name in DELETED
    )
    yield f"-- query: erasure_counts\n-- any scope: an erasure counts all of it\nSELECT\n  {counts}"
    for name in DELETED:
        spared = f" AND NOT ({BY_NAME[name].spared})" if BY_NAME[name].spared else ""
        yield f"-- query: erase_all_{name}\nDELETE FROM {name} WHERE namespace = :namespace{spared}"
        if name in SOME_AT_A_TIME:
            yield _erase_some(BY_NAME[name])
        for part in dict(BY_NAME[name].goes_with):
            columns = [column for of, column in BY_NAME[name].goes_with if of is part]
            named = " OR ".join(f"{column} IN (:ids...)" for column in columns)
            yield (
                f"-- query: erase_{name}_of_{part}\n"
                f"DELETE FROM {name} WHERE namespace = :namespace AND ({named})"
            )


def _erase_some(table: Table) -> str:
    key = ", ".join(table.key)
    return f"""-- query: erase_some_{table.name}
-- any scope: an erasure of the whole namespace
-- in: sqlite
DELETE FROM {table.name} WHERE namespace = :namespace AND ({key}) IN (
  SELECT {key} FROM {table.name} WHERE namespace = :namespace LIMIT :limit
) RETURNING 1 AS one
-- in: postgres
DELETE FROM {table.name} WHERE namespace = :namespace AND ctid = ANY(ARRAY(
  SELECT ctid FROM {table.name} WHERE namespace = :namespace LIMIT :limit
)) RETURNING 1 AS one"""


def _redacting() -> Iterator[str]:
    head = "-- any scope: an erasure takes all that it is asked for\n"
    for name in DIGESTED:
        table = BY_NAME[name]
        written = ", ".join(f"{column} = :{column}" for column in table.redacted + table.labels)
        row = "WHERE namespace = :namespace AND id"
        yield f"-- query: redact_{name}\n{head}UPDATE {name} SET {written} {row} = :id"


def _exporting() -> Iterator[str]:
    for table in TABLES:
        if not table.exported:
            continue
        head = "-- any scope: an export is of the whole namespace\n"
        names = (*table.key, *(name for name, _ in table.fields), *table.derived)
        columns = ", ".join(names)
        read = f"SELECT {columns} FROM {table.name} WHERE namespace = :namespace"
        if table.key == ("id",) and "position" not in table.columns:
            page = f"{read} AND id > :after ORDER BY id LIMIT :limit"
            yield f"-- query: export_{table.name}\n{head}{page}"
            yield f"-- query: export_{table.name}_by_id\n{head}{read} AND id IN (:ids...)"
        else:
            owner = table.goes_with[-1][1]
            order = (owner, "position") if "position" in table.columns else table.key
            yield (
                f"-- query: export_{table.name}_of\n{head}{read} AND {owner} IN (:ids...)\n"
                f"ORDER BY {', '.join(order)}"
            )
        if table.exported in IMPORTED:
            yield from _adding(table, names)


def _adding(table: Table, names: Sequence[str]) -> Iterator[str]:
    columns, values = ", ".join(names), ", ".join(f":{name}" for name in names)
    epoch = ""
    if table.name in WITH_EPOCH:
        # An import holds the lock of the namespace, since an erasure raises the epoch.
        columns += ", erase_epoch"
        epoch = ",\n  (SELECT erase_epoch FROM namespaces WHERE namespace = :namespace)"
    head = f"INSERT INTO {table.name} (namespace, {columns})"
    insert = f"{head}\nVALUES (:namespace, {values}{epoch})"
    if table.once:
        yield f"-- query: add_{table.name}\n{insert}"
        yield (
            f"-- query: add_new_{table.name}\n{insert}\n"
            f"ON CONFLICT (namespace, {table.once}) DO NOTHING RETURNING id"
        )
        return
    of_row = ", ".join(f"r.{name}" for name in names)
    yield (
        f"-- query: add_{table.name}\n-- in: sqlite\n{insert}\n-- in: postgres\n"
        f"{head}\nSELECT :namespace, {of_row}{epoch}\n"
        f"FROM jsonb_populate_recordset(CAST(NULL AS {table.name}), :all_rows) AS r"
    )
