"""`recall reviews`, `conflicts` and `quarantine`: show and answer what waits for a person's
decision.
"""

from typing import Annotated

import typer

from recall_server.api import operations
from recall_server.api.operations.operation import Json
from recall_server.api.operations.reviews import LISTED_MAX
from recall_server.application import Application
from recall_server.cli.shared import (
    AsJson,
    Name,
    begin,
    echo,
    fail,
    observed,
    print_done,
    print_json,
    print_table,
    with_application,
)
from recall_server.cli.target import NamespaceFirst, Target, asks, with_target
from recall_server.domain.ids import namespace
from recall_server.domain.plan import Choice, Policy
from recall_server.domain.security.screening import Held
from recall_server.domain.text.cleaning import visible
from recall_server.services.tasks.reviews import SUSPECTS_MAX

reviews = typer.Typer(help="All that waits for a decision.", no_args_is_help=True)
conflicts = typer.Typer(help="Contradictions that wait for an answer.", no_args_is_help=True)
quarantine = typer.Typer(help="Turns that were held back when they came in.", no_args_is_help=True)

Listed = Annotated[str, typer.Argument(metavar="ID", help="As `list` shows it.")]


@reviews.command("list", cls=NamespaceFirst)
@asks(operations.reviews.LIST_REVIEWS, part="reviews", limit=LISTED_MAX)
def list_reviews(page: Json) -> None:
    """List questions of tasks, disputes, proposals and quarantined turns, the oldest first."""
    shown = page["reviews"]
    for one in shown:
        echo(f"{one['id']}  {one['kind']}  since {one['asked_at']}")
        about = one["about"]
        for title, side in _sides(about):
            echo(f"  {title:9}{visible(side['text'], lines=False)}")
        for line in about["source"]["quote"].splitlines() if "source" in about else ():
            echo(f"  | {line}")
        echo(f"  answer with {', '.join(one['choices'])}")
    if not shown:
        echo("Nothing waits for a decision.")


@reviews.command("answer", cls=NamespaceFirst)
@asks(operations.reviews.ANSWER_REVIEW)
def answer_review(
    done: Json,
    *,
    id_: Listed,
    choice: Annotated[
        str, typer.Argument(metavar="CHOICE", help="One of the choices that `list` shows.")
    ],
    text: Annotated[
        str | None,
        typer.Option(help="With merge or edit: the new text."),
    ] = None,
) -> str:
    """Answer one question or proposal; each is answered once."""
    undo = f" To take it back, undo {done['change_id']}." if "change_id" in done else ""
    return f"Answered {done['id']}.{_of_task(done)}{undo}"


def _sides(about: Json) -> list[tuple[str, Json]]:
    """Return the sides of a contradiction or a proposal, the new one last; a quarantined turn has
    none.
    """
    if "proposes" in about:
        ends = "forget" if about["proposes"] == "forget" else "existing"
        targets = [(ends, one) for one in about["targets"]]
        return [*targets, *(("new", one) for one in about["new"])]
    if "new" not in about:
        return []
    return [*(("existing", one) for one in about["existing"]), ("new", about["new"])]


def _of_task(done: Json) -> str:
    """Return the result of the task that asked, from the data of an answer."""
    if done.get("task_id") is None:
        return ""
    left = f", {done['open']} left to answer" if done["open"] else ""
    return f" Task {done['task_id']}: {done['status']}{left}."


@conflicts.command("list", cls=NamespaceFirst)
@asks(operations.reviews.LIST_CONFLICTS, part="conflicts")
def list_conflicts(found: Json) -> None:
    """List the open questions, the oldest first."""
    rows = [
        {
            "id": one["id"],
            "task": one["task_id"] or "",
            "known": " / ".join(side["text"] for side in one["existing"]),
            "new": one["new"]["text"],
            "recommended": one["recommended"],
        }
        for one in found["conflicts"]
    ]
    print_table(rows, "Nothing waits for an answer.")


@conflicts.command(cls=NamespaceFirst)
@with_target
async def show(target: Target, *, question_id: Listed, as_json: AsJson = False) -> None:
    """Show one question: both statements with their sources."""
    found = (await target.ask(operations.reviews.LIST_CONFLICTS))["conflicts"]
    one = next((one for one in found if one["id"] == question_id), None)
    if one is None:
        fail(
            "No open question has this id. `recall conflicts list` shows them.", "REVIEW_NOT_FOUND"
        )
    if as_json:
        print_json(one)
        return
    asked_by = f"   (task {one['task_id']})" if one["task_id"] else ""
    echo(f"{one['entity']} · {one['attribute']}{asked_by}")
    for title, side in [*(("known", s) for s in one["existing"]), ("new", one["new"])]:
        source = side["source"]
        echo(f"\n{title:6}{visible(side['text'], lines=False)}")
        quote = visible(source["quote"], lines=False)
        echo(f'      "{quote}"  {source["speaker"] or ""} {side["said_at"]}')
        echo(f"      confidence {side['confidence']}, strength {side['strength']}")
    echo(f"\n{one['reason']}\nrecommended: {one['recommended']}")


@conflicts.command(cls=NamespaceFirst)
@asks(operations.reviews.RESOLVE_CONFLICT)
def resolve(
    done: Json,
    *,
    id_: Listed,
    choice: Annotated[
        Choice, typer.Argument(metavar="CHOICE", help="The resolution of the two statements.")
    ],
    text: Annotated[
        str | None, typer.Option(help="With merge: the text that replaces both.")
    ] = None,
) -> str:
    """Answer one question; a task continues after the last one."""
    return _of_task(done).strip() or f"Settled {id_}."


@conflicts.command()
@with_application
async def policy(
    built: Application,
    name: Name,
    policy: Annotated[
        Policy | None,
        typer.Argument(metavar="POLICY", help="The new policy; without it, show the current one."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show or set the policy for contradictions of requests without one."""
    tasks, ns = built.services.tasks, namespace(name)
    if policy is not None:
        await tasks.set_policy(begin(built, ns, operations.reviews.SET_POLICY), policy)
    else:
        await observed(built, ns, operations.reviews.GET_POLICY)
    said = await tasks.policy(ns)
    shown = f"{ns}: {said or 'ask over A2A, decide in the background (the default)'}"
    print_done({"namespace": ns, "policy": said}, shown, as_json=as_json)


@quarantine.command("list", cls=NamespaceFirst)
@asks(operations.reviews.LIST_QUARANTINE, part="suspects")
def list_quarantine(
    found: Json,
    *,
    state: Annotated[Held, typer.Option(help="Turns that wait, or turns with a decision.")] = (
        Held.HELD
    ),
    limit: Annotated[int, typer.Option(min=1, max=SUSPECTS_MAX)] = 50,
    offset: Annotated[int, typer.Option(min=0)] = 0,
) -> None:
    """List turns in quarantine with their words and the reasons, newest first."""
    suspects = found["suspects"]
    for one in suspects:
        echo(f"{one['id']}  {one['held_at'][:16].replace('T', ' ')}  {one['topic']}")
        for reason in one["reasons"]:
            echo(f"  {reason}")
        source = one["source"]
        speaker = f"{source['speaker']}: " if source["speaker"] else ""
        echo("\n".join(f"  | {line}" for line in f"{speaker}{source['quote']}".splitlines()))
    shown = f"{offset + 1}-{offset + len(suspects)} of {found['total']}"
    echo(f"{shown} {state}." if suspects else f"Nothing is {state}.")


@quarantine.command(cls=NamespaceFirst)
@asks(operations.reviews.RELEASE_QUARANTINED)
def release(_: Json, *, id_: Listed) -> str:
    """Index the turn, and extract memories from it."""
    return f"Released {id_}."


@quarantine.command(cls=NamespaceFirst)
@asks(operations.reviews.REJECT_QUARANTINED)
def reject(_: Json, *, id_: Listed) -> str:
    """Keep the turn hidden for good."""
    return f"Rejected {id_}."
