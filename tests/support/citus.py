"""A stand-in for Citus on one Postgres. It keeps the same tables of distribution and refuses what
Citus is known to refuse; it spreads nothing.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from tests.support.engines import Postgres

# The arguments that this server passes, under the names of Citus.
_STAND_IN = """
CREATE SCHEMA citus_stand_in;
CREATE TABLE citus_stand_in.pg_dist_partition (
  logicalrelid regclass PRIMARY KEY, partmethod text NOT NULL, colocated text);
CREATE TABLE citus_stand_in.refused (relation text PRIMARY KEY);
CREATE TABLE citus_stand_in.truncated (relation regclass PRIMARY KEY);

CREATE FUNCTION citus_stand_in.refuse(relation regclass) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (SELECT FROM citus_stand_in.refused r WHERE r.relation = $1::text) THEN
    RAISE EXCEPTION 'the node of % does not answer', relation USING ERRCODE = 'connection_failure';
  END IF;
  IF EXISTS (SELECT FROM citus_stand_in.pg_dist_partition WHERE logicalrelid = relation) THEN
    RAISE EXCEPTION 'table "%" is already distributed', relation;
  END IF;
  IF EXISTS (SELECT FROM pg_trigger WHERE tgrelid = relation AND NOT tgisinternal) THEN
    RAISE EXCEPTION 'cannot distribute relation "%" because it has triggers', relation;
  END IF;
  IF (SELECT relforcerowsecurity FROM pg_class WHERE oid = relation) THEN
    RAISE EXCEPTION 'COPY FROM not supported with row-level security';
  END IF;
END $$;

CREATE FUNCTION citus_stand_in.create_distributed_table(
  table_name regclass, distribution_column text, colocate_with text DEFAULT 'default')
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM citus_stand_in.refuse(table_name);
  IF EXISTS (
    SELECT FROM pg_index i WHERE i.indrelid = table_name AND i.indisunique AND NOT EXISTS (
      SELECT FROM pg_attribute a WHERE a.attrelid = table_name
        AND a.attname = distribution_column AND a.attnum = ANY (i.indkey))
  ) THEN
    RAISE EXCEPTION 'a unique key of "%" lacks the distribution column', table_name;
  END IF;
  IF EXISTS (
    SELECT FROM pg_constraint c WHERE c.conrelid = table_name AND c.contype = 'f'
      AND c.confrelid <> table_name AND NOT EXISTS (
        SELECT FROM citus_stand_in.pg_dist_partition p WHERE p.logicalrelid = c.confrelid)
  ) THEN
    RAISE EXCEPTION '"%" refers to a table that is not distributed', table_name;
  END IF;
  INSERT INTO citus_stand_in.pg_dist_partition VALUES (table_name, 'h', colocate_with);
END $$;

CREATE FUNCTION citus_stand_in.create_reference_table(table_name regclass)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM citus_stand_in.refuse(table_name);
  INSERT INTO citus_stand_in.pg_dist_partition VALUES (table_name, 'n', NULL);
END $$;

CREATE FUNCTION citus_stand_in.truncate_local_data_after_distributing_table(relation regclass)
RETURNS void LANGUAGE sql AS $$
  INSERT INTO citus_stand_in.truncated VALUES (relation) ON CONFLICT DO NOTHING
$$;
"""


def show_stand_in(url: str) -> None:
    """Let its names be found. A copy of a database does not take that over."""
    name = psycopg.conninfo.conninfo_to_dict(url)["dbname"]
    with psycopg.connect(url, autocommit=True) as raw:
        raw.execute(f"ALTER DATABASE {name} SET search_path = public, citus_stand_in")


@contextmanager
def with_stand_in(postgres: Postgres, migrated: str) -> Iterator[str]:
    """Return the URL of a migrated database with the stand-in. Afterwards its roles may log in, as
    those of the whole server may: that is taken back.
    """
    with postgres.database(migrated) as url:
        with psycopg.connect(url, autocommit=True) as raw:
            raw.execute(_STAND_IN)
        show_stand_in(url)
        try:
            yield url
        finally:
            with psycopg.connect(url, autocommit=True) as raw:
                for role in ("recall_app", "recall_eraser", "recall_system"):
                    raw.execute(f"ALTER ROLE {role} NOLOGIN")
