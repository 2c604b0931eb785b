"""`recall conflicts`: answer the questions that tasks ask."""

from typing import Annotated, Any

import typer

from recall_server.api import operations, task_presenters
from recall_server.application import Application
from recall_server.cli.shared import (
    PROTOCOL,
    AsJson,
    Db,
    echo,
    existing,
    fail,
    in_application,
    print_json,
    print_table,
)
from recall_server.domain.context import Context
from recall_server.domain.namespace import namespace
from recall_server.domain.plan import Choice, Policy
from recall_server.domain.text.cleaning import visible

LISTED_MAX = 100

app = typer.Typer(help="Contradictions that wait for an answer.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAMESPACE", help="The namespace.")]
QuestionId = Annotated[str, typer.Argument(metavar="ID", help="As `list` shows it.")]


@app.command("list")
def list_(name: Name, db: Db = None, as_json: AsJson = False) -> None:
    """List the open questions, the oldest first."""

    async def act(built: Application) -> None:
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

    in_application(db, act)


@app.command()
def show(name: Name, question_id: QuestionId, db: Db = None, as_json: AsJson = False) -> None:
    """Show one question: both statements with their sources."""

    async def act(built: Application) -> None:
        found = [one for one in await _open(built, name) if one["id"] == question_id]
        if not found:
            fail(
                "No open question has this id. `recall conflicts list` shows them.",
                "TASK_NOT_FOUND",
            )
        if as_json:
            print_json(found[0])
            return
        one = found[0]
        echo(f"{one['entity']} · {one['attribute']}   (task {one['task_id']})")
        for title, side in [*(("known", s) for s in one["existing"]), ("new", one["new"])]:
            source = side["source"]
            echo(f"\n{title:6}{visible(side['text'], lines=False)}")
            quote = visible(source["quote"], lines=False)
            echo(f'      "{quote}"  {source["speaker"] or ""} {side["said_at"]}')
            echo(f"      confidence {side['confidence']}, strength {side['strength']}")
        echo(f"\n{one['reason']}\nrecommended: {one['recommended']}")

    in_application(db, act)


@app.command()
def resolve(
    name: Name,
    question_id: QuestionId,
    choice: Annotated[
        Choice, typer.Argument(metavar="CHOICE", help="The resolution of the two statements.")
    ],
    text: Annotated[
        str | None, typer.Option(help="With merge: the text that replaces both.")
    ] = None,
    db: Db = None,
) -> None:
    """Answer one question; the task continues after the last one."""

    async def act(built: Application) -> None:
        services, ns = built.services, await existing(built, name)
        entry = services.audit.begin(ns, operations.conflicts.RESOLVE_CONFLICT.name, PROTOCOL, None)
        task = await services.tasks.resolve(Context(entry), question_id, choice, text)
        left = len(task.status.questions)
        echo(
            f"Task {task.id}: {task.status.state}" + (f", {left} left to answer." if left else ".")
        )

    in_application(db, act)


@app.command()
def policy(
    name: Name,
    policy: Annotated[
        Policy | None,
        typer.Argument(metavar="POLICY", help="How to settle them; without it, show."),
    ] = None,
    db: Db = None,
) -> None:
    """Show or set the policy for contradictions of requests without one."""

    async def act(built: Application) -> None:
        tasks, ns = built.services.tasks, namespace(name)
        if policy is not None:
            entry = built.services.audit.begin(
                ns, operations.conflicts.SET_POLICY.name, PROTOCOL, None
            )
            await tasks.set_policy(Context(entry), policy)
        else:
            await built.services.audit.observed(ns, operations.conflicts.GET_POLICY.name, PROTOCOL)
        said = await tasks.policy(ns)
        echo(f"{ns}: {said or 'ask over A2A, decide in the background (the default)'}")

    in_application(db, act)


async def _open(built: Application, name: str) -> list[dict[str, Any]]:
    ns = namespace(name)
    found = await built.services.tasks.questions(ns, limit=LISTED_MAX)
    await built.services.audit.observed(
        ns, operations.conflicts.LIST_CONFLICTS.name, PROTOCOL, questions=len(found)
    )
    return [task_presenters.open_question(one) for one in found]
