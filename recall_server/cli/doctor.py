"""`recall doctor`: list unsafe settings, one per line."""

import asyncio
from dataclasses import asdict
from pathlib import Path

import typer

from recall_server import doctor
from recall_server.bootstrap import open_application
from recall_server.cli.shared import AsJson, Db, fail, print_json, settings
from recall_server.config import Settings
from recall_server.domain.errors import RecallError
from recall_server.domain.findings import Finding, Level


def doctor_(db: Db = None, as_json: AsJson = False) -> None:
    """List every unsafe setting, file mode and privilege; exit with 1 if a server would
    not start.
    """
    chosen = settings(db)
    if isinstance(chosen.database, Path) and not chosen.database.exists():
        fail(f"There is no database at {chosen.database}. Name it with --db.", "DATABASE_UNUSABLE")
    findings = asyncio.run(_examined(chosen))
    if as_json:
        print_json([asdict(one) for one in findings])
    else:
        for one in findings:
            typer.echo(f"{one.level:5} {one.check:20} {one.text}")
    if doctor.fails(findings):
        raise typer.Exit(1)


async def _examined(chosen: Settings) -> list[Finding]:
    try:
        async with open_application(chosen) as built:
            return [*await doctor.examine(built), await doctor.secrets(built)]
    except RecallError as error:
        return [Finding("opening", Level.FAIL, f"{error.message} [{error.code}]")]
