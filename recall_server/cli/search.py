"""`recall search`, and `recall reembed`, which creates the missing vectors."""

from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
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
    progress,
    reading,
)
from recall_server.domain.errors import Invalid
from recall_server.domain.memory import MemoryType
from recall_server.domain.moments import past
from recall_server.domain.namespace import Namespace
from recall_server.domain.permissions import FULL_ACCESS
from recall_server.domain.query import SearchMode

LIMIT_MAX = 50


def search(  # noqa: PLR0917  # options, each by its name
    name: Annotated[str, typer.Argument(metavar="NAMESPACE", help="The namespace.")],
    query: Annotated[str, typer.Argument(metavar="QUERY", help="The question, or words.")],
    container: Annotated[
        list[str] | None,
        typer.Option(help="Only this container, '' for what is in none; repeatable."),
    ] = None,
    tag: Annotated[
        list[str] | None, typer.Option(help="Only what has this tag; repeatable: all of them.")
    ] = None,
    topic: Annotated[str, typer.Option(help="Only this topic.", show_default=False)] = "",
    type_: Annotated[
        MemoryType | None, typer.Option("--type", help="Only memories of this type.")
    ] = None,
    metadata: Annotated[
        str, typer.Option(metavar="JSON", help="Only what has these values.", show_default=False)
    ] = "",
    said_after: Annotated[
        str, typer.Option(help="A date, or a time with its zone.", show_default=False)
    ] = "",
    said_before: Annotated[str, typer.Option(help="The same.", show_default=False)] = "",
    as_of: Annotated[
        str, typer.Option(help="What was true at a moment of the past.", show_default=False)
    ] = "",
    known_at: Annotated[
        str, typer.Option(help="What was known here at a moment of the past.", show_default=False)
    ] = "",
    limit: Annotated[int, typer.Option(min=1, max=LIMIT_MAX)] = 10,
    mode: Annotated[SearchMode, typer.Option()] = SearchMode.HYBRID,
    db: Db = None,
    as_json: AsJson = False,
) -> None:
    """Search a namespace; the best hits come first."""

    async def act(built: Application) -> None:
        given = operations.search.SearchContainers.parse(
            {
                "query": query,
                "containers": container or None,
                "tags": tag or [],
                "topic": topic,
                "type": type_,
                "metadata": metadata,
                "said_after": said_after,
                "said_before": said_before,
                "as_of": as_of,
                "known_at": known_at,
                "limit": limit,
                "mode": mode,
            },
            "recall search",
        )
        ns = await existing(built, name)
        async with reading(built, ns, operations.search.SEARCH_MEMORIES) as context:
            asked = replace(context, scope=given.narrowed(FULL_ACCESS))
            then = past(as_of, known_at, context.entry.started_at)
            found = await built.services.recall.search(asked, given.to_query(then), cite=as_json)
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


@dataclass(frozen=True)
class Done:
    """The result for one namespace."""

    namespace: Namespace
    embedded: int
    dropped: int


def reembed(
    name: Annotated[
        str | None,
        typer.Option("--namespace", metavar="NAMESPACE", help="Only this one.", show_default="all"),
    ] = None,
    drop_old: Annotated[
        bool,
        typer.Option("--drop-old", help="Then delete the vectors of all other models."),
    ] = False,
    db: Db = None,
    as_json: AsJson = False,
) -> None:
    """After a change of RECALL_EMBEDDER: create the missing vectors, beside a running server. After
    an interruption, run it again to continue.
    """

    async def act(built: Application) -> None:
        if built.embedder is None:
            raise Invalid("There is no embedder. Choose one with RECALL_EMBEDDER.")
        await built.embedder.load()
        done = [await _renewed(built, one, drop=drop_old) for one in await _chosen(built, name)]
        model = built.embedder.model
        if as_json:
            print_json({"model": model, "namespaces": [asdict(one) for one in done]})
            return
        for one in done:
            if one.embedded or one.dropped:
                typer.echo(f"{one.namespace}: {_summary(one.embedded, one.dropped)}")
        embedded, dropped = (sum(one.embedded for one in done), sum(one.dropped for one in done))
        typer.echo(f"In all, of {model}: {_summary(embedded, dropped)}")

    in_application(db, act)


async def _chosen(built: Application, name: str | None) -> list[Namespace]:
    if name is not None:
        return [await existing(built, name)]
    async with built.store.transaction(None, write=False) as tx:
        return await tx.erasures.namespaces()


async def _renewed(built: Application, one: Namespace, *, drop: bool) -> Done:
    embedding, begin = built.services.embedding, built.services.audit.begin
    entry = partial(begin, one, protocol=PROTOCOL, accessor=None)
    lacking = await embedding.lacking(one)
    shown = progress(f"of {lacking} vectors in {one}") if lacking else nullcontext(lambda _: None)
    with shown as on_progress:
        embedded = await embedding.reembed(one, entry=entry, on_progress=on_progress)
    dropped = await embedding.drop_others(one, entry=entry) if drop else 0
    return Done(one, embedded, dropped)


def _summary(embedded: int, dropped: int) -> str:
    return f"{embedded} vectors made" + (f", {dropped} of other models deleted" if dropped else "")
