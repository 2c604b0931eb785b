"""An audit log of real records, and attacks on it by the owner of the database."""

import asyncio
import json
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg

from recall_server.application import Application
from recall_server.bootstrap import open_application
from recall_server.domain import audit
from recall_server.domain.audit import AuditEntry, Head
from recall_server.domain.context import Context
from recall_server.domain.ids import Namespace
from recall_server.domain.moments import utc_now
from recall_server.services.audit.verification import PURPOSE
from recall_server.storage import driver_for
from recall_server.storage.driver import Row
from tests.support.application import settings_for
from tests.support.cli import Said, invoked
from tests.support.engines import KEY_FILE

ALICE, BOB = Namespace("alice"), Namespace("bob")
TRIGGERS = (
    "tool_call_records_are_append_only",
    "tool_call_records_are_chained",
    "tool_call_records_are_kept",
)

# Statements that make the database refuse audit records, and accept them again.
REFUSE = {
    "sqlite": "CREATE TRIGGER refuse BEFORE INSERT ON tool_call_records "
    "BEGIN SELECT RAISE(ABORT, 'canary'); END",
    "postgres": "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
    "$$ BEGIN RAISE EXCEPTION 'canary'; END $$; "
    "CREATE TRIGGER refuse BEFORE INSERT ON tool_call_records "
    "FOR EACH ROW EXECUTE FUNCTION refuse()",
}
ALLOW = {
    "sqlite": "DROP TRIGGER refuse",
    "postgres": "DROP TRIGGER refuse ON tool_call_records",
}
Database = Path | str
Record = dict[str, Any]


def inside(
    database: Database,
    act: Callable[[Application], Any],
    *,
    now: Callable[[], datetime] = utc_now,
    **given: object,
) -> Any:
    """Return the result of `act` in an application of its own."""

    async def open_and_act() -> Any:
        chosen = settings_for(database, embedder="none", **given)
        async with open_application(chosen, now=now) as built:
            return await act(built)

    return asyncio.run(open_and_act())


def rows_of(database: Database, *statements: str, write: bool = False) -> list[Row]:
    """Return Alice's rows of the last statement. No application is opened: that takes longer."""

    async def asked() -> list[Row]:
        driver = driver_for(database)
        await driver.open()
        try:
            async with driver.transaction(namespace=ALICE, write=write, erasing=write) as raw:
                return [list(await raw.fetch(sql, {})) for sql in statements][-1]
        finally:
            await driver.close()

    return asyncio.run(asked())


def line(
    built: Application, namespace: Namespace = ALICE, operation: str = "store_memory"
) -> AuditEntry:
    entry = built.services.audit.begin(namespace, operation, "test", "acc_test")
    entry.ids.append("ep_1")
    entry.counts["queued"] = 1
    entry.details["topic"] = "home"
    return entry


async def enter(built: Application, *names: Namespace) -> None:
    for name in names:
        entry = built.services.audit.begin(name, "create_token", "test", None)
        await built.services.access.issue(Context(entry), label=f"laptop of {name}")


def fill(
    database: Database,
    records: int = 10,
    *names: Namespace,
    now: Callable[[], datetime] = utc_now,
) -> None:
    """Fill audit logs with so many records each."""

    async def act(built: Application) -> None:
        await enter(built, *(names or (ALICE,)))
        await more(built, records - 1, *names)

    inside(database, act, now=now)


async def more(built: Application, records: int, *names: Namespace) -> None:
    for name in names or (ALICE,):
        for _ in range(records):
            await built.services.audit.write(line(built, name))


def as_owner(database: Database, *statements: str) -> None:
    """Run SQL as the owner of the database: no trigger, grant or policy prevents it."""
    if isinstance(database, Path):
        with closing(sqlite3.connect(database)) as raw:
            for trigger in TRIGGERS:
                raw.execute(f"DROP TRIGGER IF EXISTS {trigger}")
            for statement in statements:
                raw.execute(statement)
            raw.commit()
        return
    with psycopg.connect(database) as raw_pg:
        for statement in statements:
            raw_pg.execute(statement)


def exported(database: Database, namespace: Namespace = ALICE) -> list[Record]:
    async def act(built: Application) -> list[Record]:
        async with built.store.transaction(namespace, write=False) as tx:
            return await tx.audit.chained(0, 10_000)

    found: list[Record] = inside(database, act)
    return found


def rebuilt(records: list[Record], seq: int, key: bytes) -> list[Record]:
    """Return the audit log with record `seq` changed, and all later records sealed again with
    `key`.
    """
    head, made = Head(0, audit.START.digest), []
    for record in records:
        changed = {**record}
        if record["seq"] >= seq:
            changed["prev"] = head.digest
            changed["code"] = "INNOCENT" if record["seq"] == seq else record["code"]
            changed["digest"] = audit.digest(changed)
            changed["mac"] = audit.mac(key, changed["digest"])
        head = Head(changed["seq"], changed["digest"])
        made.append(changed)
    return made


def rebuild(database: Database, seq: int, key: bytes) -> None:
    """Change the database in the same way, head included."""
    statements = []
    records = rebuilt(exported(database), seq, key)
    for one in records[seq - 1 :]:
        code = "NULL" if one["code"] is None else f"'{one['code']}'"
        statements.append(
            f"UPDATE tool_call_records SET prev = '{one['prev']}', digest = '{one['digest']}', "
            f"mac = '{one['mac']}', code = {code} "
            f"WHERE namespace = 'alice' AND seq = {one['seq']}"
        )
    last = records[-1]
    as_owner(database, *statements, moved(last["seq"], last["digest"]))


def truncate(database: Database, after: int) -> None:
    """Cut off the end and put the head back, as in a database of yesterday."""
    digest = exported(database)[after - 1]["digest"]
    as_owner(
        database,
        "DELETE FROM audit_details WHERE namespace = 'alice' AND record_id IN "
        f"(SELECT id FROM tool_call_records WHERE namespace = 'alice' AND seq > {after})",
        f"DELETE FROM tool_call_records WHERE namespace = 'alice' AND seq > {after}",
        moved(after, digest),
    )


def moved(seq: int, digest: str) -> str:
    return f"UPDATE audit_heads SET seq = {seq}, digest = '{digest}' WHERE namespace = 'alice'"


def stolen(database: Database) -> bytes:
    """Return the key of the audit log, as a thief of the server's key has it."""

    async def act(built: Application) -> bytes:
        return built.key.derive(PURPOSE)

    key: bytes = inside(database, act)
    return key


def parsed(path: Path) -> list[Record]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def written(path: Path, lines: list[Record]) -> Path:
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
    return path


def recall(database: Database | None, *command: object, **settings: object) -> Said:
    env = {"RECALL_EMBEDDER": "none", **{k.upper(): str(v) for k, v in settings.items()}}
    if isinstance(database, str):
        env |= {"RECALL_DB_URL": database, "RECALL_KEY_FILE": str(KEY_FILE)}
    elif database is not None:
        env |= {"RECALL_DB_PATH": str(database)}
    return invoked(command, env)


def named(said: Said, seq: int, namespace: str = "alice") -> bool:
    """True if the command exits with 1 and names this record."""
    found = re.search(r"Record (\d+) of the audit log of (\S+): .*\[AUDIT_BROKEN\]", said.err)
    assert said.code != 1 or found, said.err
    return bool(said.code == 1 and found and (int(found[1]), found[2]) == (seq, namespace))


def export(database: Database, path: Path, namespace: str = "alice") -> Path:
    path.unlink(missing_ok=True)
    assert recall(database, "audit", "export", namespace, "--out", path).code in (0, 1)
    return path


def vouch(database: Database, path: Path) -> Path:
    said = recall(database, "audit", "checkpoint", recall_checkpoint_file=path)
    assert said.code == 0, said.err
    return path


def public(path: Path) -> Path:
    """Write the public key of a first export to a file, which the operator keeps apart."""
    return written(path.with_suffix(".jwk"), [parsed(path)[0]["key"]])
