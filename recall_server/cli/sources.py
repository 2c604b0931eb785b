"""`recall purge-source`: remove everything that a bad source caused."""

from collections.abc import Iterable
from typing import Annotated, Any

import typer

from recall_server.api import operations
from recall_server.application import Application
from recall_server.cli.erase import Name, namespace_or_fail
from recall_server.cli.shared import PROTOCOL, AsJson, Db, echo, fail, in_application, print_json
from recall_server.domain.context import Context
from recall_server.domain.errors import Invalid
from recall_server.domain.memory import Memory
from recall_server.services.erasure.purge_source import BadSource, Purged


def purge_source(  # noqa: PLR0917  # typer reads them as options
    name: Name,
    agent: Annotated[str, typer.Option(help="Texts of this agent.")] = "",
    session: Annotated[str, typer.Option(help="Texts of this session.")] = "",
    episode: Annotated[str, typer.Option(help="One text.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would change.")] = (False),
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    db: Db = None,
    as_json: AsJson = False,
) -> None:
    """Remove what a bad source caused, and restore what it had replaced."""
    ns = namespace_or_fail(name)
    try:
        source = BadSource(agent, session, episode)
    except Invalid as error:
        fail(error.message, error.code)
    if not (yes or dry_run):
        typed = typer.prompt(
            f"This removes what came of it from {ns}; --dry-run shows what. Type the namespace",
            err=True,
        )
        if typed != ns:
            fail("That is not the namespace; nothing was removed.", "CONFIRM_REQUIRED")

    async def act(built: Application) -> None:
        entry = built.services.audit.begin(ns, operations.erasure.PURGE_SOURCE.name, PROTOCOL, None)
        found = await built.services.sources.purge(Context(entry), source, dry_run=dry_run)
        if as_json:
            print_json(_shown(found, dry_run=dry_run))
            return
        for title, ones in (
            ("removed", found.removed),
            ("kept, without it", found.kept),
            ("restored", found.restored),
        ):
            for one in ones.values():
                echo(f"{title}  {one.id}  {one.text}")
        counts = found.counts().items()
        summary = ", ".join(
            f"{number} {what.replace('_', ' ')}" for what, number in counts if number
        )
        typer.echo(
            f"{'Would be' if dry_run else 'Done'}: {summary}." if summary else "Nothing came of it."
        )

    in_application(db, act)


def _shown(found: Purged, *, dry_run: bool) -> dict[str, Any]:
    return {
        "dry_run": dry_run,
        "counts": found.counts(),
        "episode_ids": found.episodes,
        "removed": _memories(found.removed.values()),
        "kept": _memories(found.kept.values()),
        "restored": _memories(found.restored.values()),
        "task_ids": found.runs,
        "asked_again": found.asked_again,
    }


def _memories(ones: Iterable[Memory]) -> list[dict[str, str]]:
    return [{"id": one.id, "text": one.text, "status": str(one.status)} for one in ones]
