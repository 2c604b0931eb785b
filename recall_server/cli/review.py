"""`recall conflicts` and `recall quarantine`: what waits for a person's decision."""

from typing import Annotated, Any

import typer

from recall_server.api import operations, presenters
from recall_server.application import Application
from recall_server.cli.shared import (
    AsJson,
    Name,
    begin,
    echo,
    existing,
    fail,
    observed,
    print_done,
    print_json,
    print_table,
    with_application,
)
from recall_server.domain.namespace import namespace
from recall_server.domain.plan import Choice, Policy
from recall_server.domain.security.screening import Held
from recall_server.domain.text.cleaning import visible
from recall_server.services.memory.quarantine import LISTED_MAX

QUESTIONS_MAX = 100

conflicts = typer.Typer(help="Contradictions that wait for an answer.", no_args_is_help=True)
quarantine = typer.Typer(help="Turns that were held back when they came in.", no_args_is_help=True)

Listed = Annotated[str, typer.Argument(metavar="ID", help="As `list` shows it.")]


@conflicts.command("list")
@with_application
async def list_conflicts(built: Application, name: Name, as_json: AsJson = False) -> None:
    """List the open questions, the oldest first."""
    found = await _open(built, name)
    if as_json:
        print_json(found)
        return
    rows = [
        {
            "id": one["id"],
            "task": one["task_id"],
            "known": " / ".join(side["text"] for side in one["existing"]),
            "new": one["new"]["text"],
            "recommended": one["recommended"],
        }
        for one in found
    ]
    print_table(rows, "Nothing waits for an answer.")


@conflicts.command()
@with_application
async def show(
    built: Application, name: Name, question_id: Listed, as_json: AsJson = False
) -> None:
    """Show one question: both statements with their sources."""
    one = next((one for one in await _open(built, name) if one["id"] == question_id), None)
    if one is None:
        fail("No open question has this id. `recall conflicts list` shows them.", "TASK_NOT_FOUND")
    if as_json:
        print_json(one)
        return
    echo(f"{one['entity']} · {one['attribute']}   (task {one['task_id']})")
    for title, side in [*(("known", s) for s in one["existing"]), ("new", one["new"])]:
        source = side["source"]
        echo(f"\n{title:6}{visible(side['text'], lines=False)}")
        quote = visible(source["quote"], lines=False)
        echo(f'      "{quote}"  {source["speaker"] or ""} {side["said_at"]}')
        echo(f"      confidence {side['confidence']}, strength {side['strength']}")
    echo(f"\n{one['reason']}\nrecommended: {one['recommended']}")


@conflicts.command()
@with_application
async def resolve(  # noqa: PLR0917  # options, each by its name
    built: Application,
    name: Name,
    question_id: Listed,
    choice: Annotated[
        Choice, typer.Argument(metavar="CHOICE", help="The resolution of the two statements.")
    ],
    text: Annotated[
        str | None, typer.Option(help="With merge: the text that replaces both.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Answer one question; the task continues after the last one."""
    ns = await existing(built, name)
    context = begin(built, ns, operations.conflicts.RESOLVE_CONFLICT)
    task = await built.services.tasks.resolve(context, question_id, choice, text)
    left = len(task.status.questions)
    said = f"Task {task.id}: {task.status.state}" + (f", {left} left to answer." if left else ".")
    data = {"task_id": task.id, "status": str(task.status.state), "open": left}
    print_done(data, said, as_json=as_json)


@conflicts.command()
@with_application
async def policy(
    built: Application,
    name: Name,
    policy: Annotated[
        Policy | None,
        typer.Argument(metavar="POLICY", help="How to settle them; without it, show."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show or set the policy for contradictions of requests without one."""
    tasks, ns = built.services.tasks, namespace(name)
    if policy is not None:
        await tasks.set_policy(begin(built, ns, operations.conflicts.SET_POLICY), policy)
    else:
        await observed(built, ns, operations.conflicts.GET_POLICY)
    said = await tasks.policy(ns)
    shown = f"{ns}: {said or 'ask over A2A, decide in the background (the default)'}"
    print_done({"namespace": ns, "policy": said}, shown, as_json=as_json)


async def _open(built: Application, name: str) -> list[dict[str, Any]]:
    context = begin(built, namespace(name), operations.conflicts.LIST_CONFLICTS)
    found = await built.services.tasks.questions(context, limit=QUESTIONS_MAX)
    context.entry.counts["questions"] = len(found)
    await built.services.audit.write(context.entry)
    return [presenters.open_question(one) for one in found]


@quarantine.command("list")
@with_application
async def list_quarantine(  # noqa: PLR0917  # each is an option
    built: Application,
    name: Name,
    state: Annotated[Held, typer.Option(help="Those that wait, or those with a decision.")] = (
        Held.HELD
    ),
    limit: Annotated[int, typer.Option(min=1, max=LISTED_MAX)] = 50,
    offset: Annotated[int, typer.Option(min=0)] = 0,
    as_json: AsJson = False,
) -> None:
    """List suspects with their words and the reasons, newest first."""
    ns = await existing(built, name)
    context = begin(built, ns, operations.quarantine.LIST_QUARANTINE)
    found = await built.services.quarantine.list(context, state=state, limit=limit, offset=offset)
    await built.services.audit.write(context.entry)
    if as_json:
        print_json([presenters.suspect(one) for one in found.found])
        return
    for one in found.found:
        echo(f"{one.item_id}  {one.held_at:%Y-%m-%d %H:%M}  {one.topic}")
        for reason in one.reasons:
            echo(f"  {reason}")
        speaker = f"{one.citation.speaker}: " if one.citation.speaker else ""
        echo("\n".join(f"  | {line}" for line in f"{speaker}{one.citation.quote}".splitlines()))
    shown = f"{offset + 1}-{offset + len(found.found)} of {found.total}"
    echo(f"{shown} {state}." if found.found else f"Nothing is {state}.")


@quarantine.command()
@with_application
async def release(built: Application, name: Name, item_id: Listed, as_json: AsJson = False) -> None:
    """Index the turn, and extract memories from it."""
    ns = await existing(built, name)
    context = begin(built, ns, operations.quarantine.RELEASE_QUARANTINED)
    await built.services.quarantine.release(context, item_id)
    print_done({"id": item_id, "state": "released"}, f"Released {item_id}.", as_json=as_json)


@quarantine.command()
@with_application
async def reject(built: Application, name: Name, item_id: Listed, as_json: AsJson = False) -> None:
    """Keep the turn hidden for good."""
    ns = await existing(built, name)
    context = begin(built, ns, operations.quarantine.REJECT_QUARANTINED)
    await built.services.quarantine.reject(context, item_id)
    print_done({"id": item_id, "state": "rejected"}, f"Rejected {item_id}.", as_json=as_json)
