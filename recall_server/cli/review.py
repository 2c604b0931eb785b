"""`recall reviews`, `conflicts` and `quarantine`: what waits for a person's decision."""

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
from recall_server.domain.task import Task
from recall_server.domain.text.cleaning import visible
from recall_server.services.memory.quarantine import LISTED_MAX
from recall_server.services.tasks.reviews import CONTRADICTIONS, OPERATOR, ReviewKind

QUESTIONS_MAX = 100

reviews = typer.Typer(help="All that waits for a decision.", no_args_is_help=True)
conflicts = typer.Typer(help="Contradictions that wait for an answer.", no_args_is_help=True)
quarantine = typer.Typer(help="Turns that were held back when they came in.", no_args_is_help=True)

Listed = Annotated[str, typer.Argument(metavar="ID", help="As `list` shows it.")]


@reviews.command("list")
@with_application
async def list_reviews(
    built: Application,
    name: Name,
    kind: Annotated[ReviewKind | None, typer.Option(help="Only those of this kind.")] = None,
    as_json: AsJson = False,
) -> None:
    """List questions of tasks, disputes, proposals and quarantined turns, the oldest first."""
    ns = await existing(built, name)
    context = begin(built, ns, operations.reviews.LIST_REVIEWS)
    kinds = set(ReviewKind) if kind is None else {kind}
    found = await built.services.reviews.waiting(context, kinds, limit=QUESTIONS_MAX)
    await built.services.audit.write(context.entry)
    shown = [presenters.review(one) for one in found]
    if as_json:
        print_json(shown)
        return
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


@reviews.command("answer")
@with_application
async def answer_review(  # noqa: PLR0917  # options, each by its name
    built: Application,
    name: Name,
    review_id: Listed,
    choice: Annotated[
        str, typer.Argument(metavar="CHOICE", help="One of those that `list` shows.")
    ],
    text: Annotated[
        str | None,
        typer.Option(help="With merge or edit: the text in the place of what there is."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Answer what waits, once."""
    ns = await existing(built, name)
    given = operations.reviews.AnswerReview.parse(
        {"id": review_id, "choice": choice, "text": text}, "recall reviews answer"
    )
    operation = operations.reviews.decided_as(given, OPERATOR)
    done = await built.services.reviews.answer(
        begin(built, ns, operation), given.id, given.decision, given.text
    )
    said = f"Answered {done.id}." + _of_task(done.task)
    print_done(presenters.answered(done), said, as_json=as_json)


def _sides(about: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """The sides of a contradiction or a proposal, the new one last; of a quarantined turn none."""
    if "proposes" in about:
        ends = "forget" if about["proposes"] == "forget" else "existing"
        targets = [(ends, one) for one in about["targets"]]
        return [*targets, *(("new", one) for one in about["new"])]
    if "new" not in about:
        return []
    return [*(("existing", one) for one in about["existing"]), ("new", about["new"])]


def _of_task(task: Task | None) -> str:
    if task is None:
        return ""
    left = len(task.status.questions)
    return f" Task {task.id}: {task.status.state}" + (f", {left} left to answer." if left else ".")


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
            "task": one["task_id"] or "",
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
    asked_by = f"   (task {one['task_id']})" if one["task_id"] else ""
    echo(f"{one['entity']} · {one['attribute']}{asked_by}")
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
    """Answer one question; a task continues after the last one."""
    ns = await existing(built, name)
    context = begin(built, ns, operations.reviews.RESOLVE_CONFLICT)
    done = await built.services.reviews.answer(context, question_id, choice, text)
    data = operations.reviews.resolved(done)
    print_done(data, _of_task(done.task).strip() or f"Settled {done.id}.", as_json=as_json)


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
        await tasks.set_policy(begin(built, ns, operations.reviews.SET_POLICY), policy)
    else:
        await observed(built, ns, operations.reviews.GET_POLICY)
    said = await tasks.policy(ns)
    shown = f"{ns}: {said or 'ask over A2A, decide in the background (the default)'}"
    print_done({"namespace": ns, "policy": said}, shown, as_json=as_json)


async def _open(built: Application, name: str) -> list[dict[str, Any]]:
    context = begin(built, namespace(name), operations.reviews.LIST_CONFLICTS)
    found = await built.services.reviews.waiting(context, CONTRADICTIONS, limit=QUESTIONS_MAX)
    await built.services.audit.write(context.entry)
    return [presenters.conflict(one) for one in found]


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
