"""The queries derived from the table registry: for erasing, redacting, exporting and importing."""

from collections.abc import Iterator

from recall_server.storage.tables.registry import (
    BY_NAME,
    COUNTED,
    DELETED,
    DIGESTED,
    IMPORTED,
    SOME_AT_A_TIME,
    TABLES,
    WITH_EPOCH,
    Table,
)


def queries() -> str:
    """Return the queries derived from the registry, in the form of a file of named queries."""
    return "\n".join((*_erasing(), *_redacting(), *_exporting(), *map(_count_accesses, COUNTED)))


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
            values = ", ".join(f":{name}" for name in names)
            if table.name in WITH_EPOCH:
                # An import holds the lock of the namespace, since an erasure raises the epoch.
                columns += ", erase_epoch"
                values += ",\n  (SELECT erase_epoch FROM namespaces WHERE namespace = :namespace)"
            insert = (
                f"INSERT INTO {table.name} (namespace, {columns})\nVALUES (:namespace, {values})"
            )
            yield f"-- query: add_{table.name}\n{insert}"
            if table.once:
                yield (
                    f"-- query: add_new_{table.name}\n{insert}\n"
                    f"ON CONFLICT (namespace, {table.once}) DO NOTHING RETURNING id"
                )


def _count_accesses(name: str) -> str:
    return f"""-- query: count_accesses_of_{name}
-- any scope: of rows that a caller was shown
-- in: sqlite
-- The namespace comes from the counts, so that each row is looked up by its key: without
-- statistics SQLite would scan all rows of the namespace.
WITH counted AS MATERIALIZED (
  SELECT :namespace AS counted_namespace, value ->> 0 AS counted_id, value ->> 1 AS times,
    value ->> 2 AS last
  FROM json_each(:counts)
)
UPDATE {name} SET access_count = access_count + times,
  last_accessed_at = max(COALESCE(last_accessed_at, ''), last)
FROM counted
WHERE namespace = counted_namespace AND id = counted_id
-- in: postgres
-- Rows that another transaction has locked are skipped and lose these accesses, so that there is no
-- deadlock.
UPDATE {name} SET access_count = access_count + times,
  last_accessed_at = GREATEST(last_accessed_at, last)
FROM (
  SELECT known.id AS counted_id, (c.value ->> 1)::bigint AS times,
    (c.value ->> 2)::timestamptz AS last
  FROM jsonb_array_elements(:counts) c CROSS JOIN LATERAL (
    SELECT id FROM {name} WHERE namespace = :namespace AND id = c.value ->> 0
    LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED
  ) AS known
) AS counted
WHERE namespace = :namespace AND id = counted_id"""
