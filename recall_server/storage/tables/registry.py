"""The registry of tables: for each one its key, what erasures do to it, whether it is exported, and
whether row-level security guards it. The queries that follow from that are made here, so a new
table of a tenant needs its migrations, one entry, and the queries of its own.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum


class Part(StrEnum):
    """A part of a namespace that an erasure takes out by its id. Of an episode, an erasure of a
    container removes the row; one of a subject or a memory redacts it, and its turns.
    """

    MEMORY = "memory"
    EPISODE = "episode"
    TURN = "turn"
    TASK = "task"


@dataclass(frozen=True)
class Table:
    """One table.

    `key` is the primary key without the namespace. `goes_with` names, for each part whose erasure
    deletes rows of this table, the column with the id of that part; `redacted` the columns that an
    erasure of a subject or a memory overwrites instead. Where neither is given, `rest` says why
    such an erasure leaves the table alone. An erasure of the whole namespace deletes all rows,
    unless `kept` says why not.

    `columns` are exported as a part of the line `exported`, each `name` or `name:type`, unless
    `not_exported` says why the table is not; `derived` columns are made again by an import, and
    `inner` ones stay on this server.
    """

    name: str
    key: tuple[str, ...] = ("id",)
    goes_with: tuple[tuple[Part, str], ...] = ()
    redacted: tuple[str, ...] = ()
    rest: str = ""
    kept: str = ""
    # Deleted when an erasure of the namespace begins: with these rows all work for it ends.
    ends_work: bool = False
    # Which of its rows an erasure of the namespace leaves, as a condition of SQL.
    spared: str = ""
    # Rows that one transaction of a long erasure deletes. Of episodes few: texts are long.
    batch_rows: int = 1_000
    # Its rows have topics and containers: queries of callers are held to their access scope.
    scoped: bool = False
    tenant: bool = True
    exported: str = ""
    not_exported: str = ""
    columns: tuple[str, ...] = ()
    derived: tuple[str, ...] = ()
    inner: tuple[str, ...] = ()

    @property
    def fields(self) -> tuple[tuple[str, str], ...]:
        """The exported columns, each with its type: "" for what JSON has itself."""
        pairs = (column.partition(":") for column in self.columns)
        return tuple((name, type_) for name, _, type_ in pairs)


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


# An erasure of a namespace goes through them in this order. A transaction that changes a task holds
# its row, so nothing can be added to a task once its row is gone; and rows that refer to others go
# before those.
TABLES = (
    Table(
        "runs",
        goes_with=((Part.TASK, "id"),),
        ends_work=True,
        scoped=True,
        exported="task",
        columns=_words(
            "context_id state accessor created_at:time changed_at:time expires_at:time"
            " request:document work:document status:document messages:document outcome:document"
        ),
        inner=_words("version round events topic agent_id container stored_bytes"),
    ),
    Table(
        "run_events",
        key=("run_id", "seq"),
        goes_with=((Part.TASK, "run_id"),),
        ends_work=True,
        exported="task",
        columns=_words("status:document outcome:document"),
    ),
    Table(
        "push_configs",
        key=("run_id", "id"),
        goes_with=((Part.TASK, "run_id"),),
        ends_work=True,
        exported="recipient",
        columns=_words("url created_at:time"),
        inner=_words("scheme secret delivered_seq failures claimed_by claimed_until"),
    ),
    Table(
        "operations",
        rest="a job names ids; those that are under way are fenced",
        ends_work=True,
        # They go on with this erasure, or with an earlier one.
        spared="kind = 'purge' AND state IN ('queued', 'processing')",
        not_exported="the export of an episode says what is still to be done",
    ),
    Table(
        "decisions",
        key=("memory_id", "question_id"),
        goes_with=((Part.MEMORY, "memory_id"),),
        exported="memory",
        columns=_words("choice decided_by decided_at:time"),
    ),
    Table(
        "citations",
        key=("memory_id", "position"),
        goes_with=((Part.MEMORY, "memory_id"),),
        exported="memory",
        columns=_words("episode_id span_start span_end"),
    ),
    Table(
        "memories",
        goes_with=((Part.MEMORY, "id"),),
        scoped=True,
        exported="memory",
        columns=_words(
            "text type topic entity attribute value negated:bool status said_at:time"
            " valid_from:time valid_until:time recorded_at:time retired_at:time superseded_by"
            " importance confidence reinforcements access_count last_accessed_at:time session_id"
            " agent_id extractor container"
        ),
        derived=("entity_key", "attribute_key"),
    ),
    Table(
        "memory_counts",
        key=("type", "topic"),
        rest="a trigger counts down with each memory",
        not_exported="counted again by an import",
    ),
    Table(
        "quarantine",
        key=("item_id",),
        goes_with=((Part.EPISODE, "episode_id"),),
        not_exported="a hidden turn is exported as hidden; why it is stays here",
    ),
    Table(
        "turns",
        goes_with=((Part.EPISODE, "episode_id"),),
        redacted=_words("state speaker session"),
        exported="episode",
        columns=_words(
            "position span_start span_end speaker session said_at:time importance state"
            " access_count last_accessed_at:time"
        ),
        derived=("episode_id",),
    ),
    Table(
        "episodes",
        goes_with=((Part.EPISODE, "id"),),
        redacted=_words(
            "text content_hash idempotency_key request_digest topic session_id agent_id source"
            " container"
        ),
        batch_rows=20,
        scoped=True,
        exported="episode",
        columns=_words(
            "text content_hash topic name session_id agent_id group_id source source_model"
            " source_description tags:document metadata:document occurred_at:time recorded_at:time"
            " expired_at:time idempotency_key request_digest job_id container"
        ),
    ),
    Table(
        "embeddings",
        key=("model", "item_id"),
        goes_with=((Part.MEMORY, "item_id"), (Part.TURN, "item_id")),
        not_exported="made again of the texts",
    ),
    Table(
        "documents",
        key=("slot",),
        goes_with=((Part.MEMORY, "item_id"), (Part.TURN, "item_id")),
        not_exported="made again of the texts",
    ),
    Table(
        "postings",
        key=("term", "slot"),
        rest="an item is taken out of the word index by its words",
        not_exported="made again of the texts",
    ),
    Table(
        "terms",
        key=("term",),
        rest="an item is taken out of the word index by its words",
        not_exported="made again of the texts",
    ),
    Table(
        "audit_details",
        key=("record_id",),
        rest="labels of calls: without them the audit log would not say who did what",
        not_exported="an export of the audit log has them",
    ),
    Table(
        "call_counts",
        key=("accessor", "minute"),
        rest="numbers of calls",
        not_exported="only the last minutes",
    ),
    Table(
        "revoked_children",
        key=("parent", "jti"),
        rest="ids of tokens",
        not_exported="tokens open this server only",
    ),
    Table(
        "closed_containers",
        key=("erasure_id",),
        rest="the names of containers that are being erased; deleted when they are",
        not_exported="only while an erasure goes on",
    ),
    Table(
        "model_spend",
        key=("day",),
        rest="numbers of tokens of language models",
        not_exported="only the last days",
    ),
    Table(
        "namespaces",
        key=(),
        rest="settings and counts",
        kept="the name and its settings at their defaults; all counts are zero",
        not_exported="the policy is in the manifest, the counts are made again",
    ),
    Table(
        "api_tokens",
        key=("accessor",),
        rest="tokens of the namespace, whatever is erased of it",
        kept="revoked and without labels, so that a token is refused as a revoked one",
        not_exported="tokens open this server only",
    ),
    Table(
        "tool_call_records",
        rest="the audit log: ids, counts and codes, never text",
        kept="the audit log: ids, counts and codes, never text",
        exported="audit",
        columns=_words(
            "at:time door operation accessor request_id ids:document counts:document outcome code"
            " milliseconds model input_tokens output_tokens cost_usd"
        ),
        inner=_words("seq prev digest mac detail_digest"),
    ),
    Table(
        "audit_heads",
        key=(),
        rest="the last record of the audit log",
        kept="the last record of the audit log",
        not_exported="an export of the audit log has the chain",
    ),
    Table(
        "erasures",
        rest="what was erased, in numbers",
        kept="what was erased, in numbers",
        not_exported="receipts are those of the server that erased",
    ),
    Table(
        "erased",
        key=("digest",),
        rest="keyed digests, so that the same is not taken in again",
        kept="keyed digests, so that the same is not taken in again",
        not_exported="digests by the key of this server",
    ),
    Table("schema_version", key=("version",), tenant=False),
    Table("server", key=("singleton",), tenant=False),
)
BY_NAME = {table.name: table for table in TABLES}
TENANT = tuple(table.name for table in TABLES if table.tenant)
SCOPED = tuple(table.name for table in TABLES if table.scoped)
DELETED = tuple(table.name for table in TABLES if table.tenant and not table.kept)
KEPT = tuple(table.name for table in TABLES if table.kept)
ENDS_WORK = tuple(table.name for table in TABLES if table.ends_work)
# An erasure of a namespace keeps digests of their rows, which it reads before it deletes them.
DIGESTED = ("memories", "turns", "episodes")
# Of the others it deletes some rows at a time, whichever.
SOME_AT_A_TIME = tuple(name for name in DELETED if name not in {*ENDS_WORK, *DIGESTED})
# Lines that an import takes in; the others say what happened on the server that was left.
IMPORTED = ("episode", "memory")


def with_part(part: Part) -> tuple[str, ...]:
    """The tables of which rows go with a part, those that refer to others first."""
    return tuple(table.name for table in TABLES if part in dict(table.goes_with))


def queries() -> str:
    """The queries that follow from the registry, as a file of named queries."""
    return "\n".join(_erasing()) + "\n" + "\n".join(_exporting())


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
        for part, column in BY_NAME[name].goes_with:
            yield (
                f"-- query: erase_{name}_of_{part}\n"
                f"DELETE FROM {name} WHERE namespace = :namespace AND {column} IN (:ids...)"
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
            ((_, owner),) = table.goes_with
            order = (owner, "position") if "position" in table.columns else table.key
            yield (
                f"-- query: export_{table.name}_of\n{head}{read} AND {owner} IN (:ids...)\n"
                f"ORDER BY {', '.join(order)}"
            )
        if table.exported in IMPORTED:
            values = ", ".join(f":{name}" for name in names)
            yield (
                f"-- query: import_{table.name}\n"
                f"INSERT INTO {table.name} (namespace, {columns}) VALUES (:namespace, {values})"
            )
