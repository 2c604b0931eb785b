"""`recall reembed`: create the missing vectors."""

from contextlib import nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from typing import Annotated

import typer

from recall_server.application import Application
from recall_server.cli.shared import (
    PROTOCOL,
    AsJson,
    Db,
    existing,
    in_application,
    print_json,
    progress,
)
from recall_server.domain.errors import Invalid
from recall_server.domain.namespace import Namespace


@dataclass(frozen=True)
class Done:
    """The result for one namespace."""

    namespace: Namespace
    embedded: int
    dropped: int


def reembed(
    name: Annotated[
        str | None,
        typer.Option(
            "--namespace", metavar="NAMESPACE", help="Only this namespace.", show_default="all"
        ),
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
