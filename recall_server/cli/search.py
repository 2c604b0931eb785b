"""`recall search`: search as an agent would."""

from typing import Annotated

import typer

from recall_server.api import operations, presenters
from recall_server.application import Application
from recall_server.cli.shared import (
    PROTOCOL,
    AsJson,
    Db,
    echo,
    existing,
    in_application,
    print_json,
)
from recall_server.domain.context import Context
from recall_server.domain.query import Query, SearchMode

LIMIT_MAX = 50


def search(  # noqa: PLR0917  # options, each by its name
    name: Annotated[str, typer.Argument(metavar="NAMESPACE", help="The namespace.")],
    query: Annotated[str, typer.Argument(metavar="QUERY", help="The question, or words.")],
    container: Annotated[
        list[str] | None,
        typer.Option(help="Only this container, '' for what is in none; repeatable."),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=LIMIT_MAX)] = 10,
    mode: Annotated[SearchMode, typer.Option()] = SearchMode.HYBRID,
    db: Db = None,
    as_json: AsJson = False,
) -> None:
    """Search a namespace; the best hits come first."""

    async def act(built: Application) -> None:
        ns = await existing(built, name)
        entry = built.services.audit.begin(
            ns, operations.search.SEARCH_MEMORIES.name, PROTOCOL, None, read_only=True
        )
        containers = frozenset(container) if container else None
        asked = Query(query, limit=limit, mode=mode, containers=containers)
        found = await built.services.recall.search(Context(entry), asked, cite=as_json)
        await built.services.audit.note(entry)
        # What is shown is in the audit log before.
        await built.services.audit.reads.flush()
        if as_json:
            print_json(presenters.found(found, explain=True))
            return
        for hit in found.hits:
            item = hit.item
            where = f"{item.topic} in {item.container}" if item.container else item.topic
            echo(f"{hit.scores.final:.3f}  {item.recorded_at:%Y-%m-%d}  {where}")
            echo("\n".join(f"  | {line}" for line in item.text.splitlines()))
        if not found.hits:
            echo("Nothing is found.")
        if found.degraded:
            echo(found.degraded, err=True)

    in_application(db, act)
