"""`recall reviews`, `conflicts` and `quarantine`: show and answer what waits for a person's
decision. `recall changes`, `undo`, `recheck` and `rebuild`: list what changed in a
namespace, undo it, and derive all of it again.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import Annotated, Any

import typer

from recall_server.api import operations
from recall_server.api.operations.operation import Json
from recall_server.api.operations.reviews import LISTED_MAX
from recall_server.application import Application
from recall_server.cli.shared import (
    Answer,
    Name,
    begin,
    decided,
    echo,
    existing,
    fail,
    observed,
    print_table,
    progress,
    with_application,
)
from recall_server.cli.target import NamespaceFirst, Target, asks, with_target
from recall_server.domain.ids import Namespace
from recall_server.domain.plan import Choice, Policy
from recall_server.domain.screening import Held
from recall_server.domain.text.cleaning import visible
from recall_server.services.memory.derivation import NAMED_MAX
from recall_server.services.tasks.reviews import SUSPECTS_MAX, Verdict

# Of so many memories does `undo --dry-run` show the words.
AFFECTED_MAX = 50

reviews = typer.Typer(help="All that waits for a decision.", no_args_is_help=True)
conflicts = typer.Typer(help="Contradictions that wait for an answer.", no_args_is_help=True)
quarantine = typer.Typer(help="Turns that were held back when they came in.", no_args_is_help=True)


@reviews.command("list", cls=NamespaceFirst)
@asks(operations.reviews.list_reviews, part="reviews", limit=LISTED_MAX)
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
@with_target
async def answer_review(
    target: Target, *, id_: str, choice: str, text: str | None = None
) -> Answer:
    """Answer one question or proposal; each is answered once.

    Args:
        id_: As `list` shows it.
        choice: One of the choices that `list` shows.
        text: With merge or edit: the new text.
    """
    _require_text(choice, text, (Choice.MERGE, Verdict.EDIT))
    done = await target.ask(operations.reviews.answer_review, id=id_, choice=choice, text=text)
    undo = f" To take it back, undo {done['change_id']}." if "change_id" in done else ""
    return Answer(done, f"Answered {done['id']}.{_of_task(done)}{undo}")


def _require_text(choice: str, text: str | None, choices: Sequence[str]) -> None:
    """Fail unless the option --text is given with these choices, and with no other."""
    if bool(text) != (choice in choices):
        named = " and ".join(choices)
        fail(f"--text goes with {named}, and is needed there.", "ANSWER_UNCLEAR")


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
@asks(operations.reviews.list_conflicts, part="conflicts")
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
async def show(target: Target, *, question_id: str) -> Answer:
    """Show one question: both statements with their sources.

    Args:
        question_id: As `list` shows it.
    """
    found = (await target.ask(operations.reviews.list_conflicts))["conflicts"]
    one = next((one for one in found if one["id"] == question_id), None)
    if one is None:
        fail(
            "No open question has this id. `recall conflicts list` shows them.", "REVIEW_NOT_FOUND"
        )
    return Answer(one, partial(_show, one))


def _show(one: Json) -> None:
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
@with_target
async def resolve(target: Target, *, id_: str, choice: Choice, text: str | None = None) -> Answer:
    """Answer one question; a task continues after the last one.

    Args:
        id_: As `list` shows it.
        choice: The resolution of the two statements.
        text: With merge: the text that replaces both.
    """
    _require_text(choice, text, (Choice.MERGE,))
    done = await target.ask(operations.reviews.resolve_conflict, id=id_, choice=choice, text=text)
    return Answer(done, _of_task(done).strip() or f"Settled {id_}.")


@conflicts.command()
@with_application
async def policy(
    built: Application, name: Name, policy: Annotated[Policy | None, typer.Argument()] = None
) -> Answer:
    """Show or set the policy for contradictions of requests without one.

    Args:
        policy: The new policy; without it, show the current one.
    """
    tasks = built.services.tasks
    if policy is not None:
        await tasks.set_policy(begin(built, name, operations.reviews.SET_POLICY), policy)
    else:
        await observed(built, name, operations.reviews.GET_POLICY)
    current = await tasks.policy(name)
    said = f"{name}: {current or 'ask over A2A, decide in the background (the default)'}"
    return Answer({"namespace": name, "policy": current}, said)


@quarantine.command("list", cls=NamespaceFirst)
@asks(operations.reviews.list_quarantine, part="suspects")
def list_quarantine(
    found: Json,
    *,
    state: Held = (Held.HELD),
    limit: Annotated[int, typer.Option(min=1, max=SUSPECTS_MAX)] = 50,
    offset: Annotated[int, typer.Option(min=0)] = 0,
) -> None:
    """List turns in quarantine with their words and the reasons, newest first.

    Args:
        state: Turns that wait, or turns with a decision.
    """
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
@asks(operations.reviews.release_quarantined)
def release(done: Json) -> str:
    """Index the turn, and extract memories from it.

    Args:
        id: As `list` shows it.
    """
    return f"Released {done['id']}."


@quarantine.command(cls=NamespaceFirst)
@asks(operations.reviews.reject_quarantined)
def reject(done: Json) -> str:
    """Keep the turn hidden for good.

    Args:
        id: As `list` shows it.
    """
    return f"Rejected {done['id']}."


@asks(operations.history.list_changes)
def changes(page: Json) -> None:
    """List what jobs, tasks, imports and calls changed, newest first."""
    rows = [
        {
            "id": one["id"],
            "at": one["at"],
            "operation": one["operation"],
            "what": ", ".join(f"{count} {kind}" for kind, count in one["counts"].items()),
            "": "undone" if one["undone"] else "",
            "words": one["words"],
            "decided": "; ".join(map(decided, one["decisions"])),
        }
        for one in page["changes"]
    ]
    if not any(one["decided"] for one in rows):
        for one in rows:
            del one["decided"]
    print_table(rows, "Nothing has changed.")
    if page["next_before"] is not None:
        echo(f"There are more: --before {page['next_before']}")


@asks(operations.reviews.recheck_memories)
def recheck(done: Json) -> str:
    """Compare the believed memories with each other again, in the background."""
    return f"Queued as {done['job_id']}. `recall reviews list` shows what it finds."


@asks(operations.history.undo_change)
def undo(done: Json, *, change_id: Annotated[str, typer.Argument(metavar="CHANGE")]) -> None:
    """Take back what a task, job, import or call changed; an undo can be undone.

    Args:
        change_id: The id of a task, a job, or a change from `changes`.
        dry_run: Only say what it would do.
        with_dependents: Also undo later changes that rest on it.
    """
    verb, undid = ("would be", "would undo") if done["dry_run"] else ("are", "undone")
    memories, forgotten = len(done["memory_ids"]), len(done["forgotten_ids"])
    for one in done["undone"]:
        echo(f"{undid} {one}")
    echo(f"Memories that {verb} as before: {memories}; forgotten: {forgotten}.")
    for line in _affected(done) if done["dry_run"] else ():
        echo(line)
    echo(f"Texts of which words {verb} shown or hidden as before: {len(done['episode_ids'])}.")
    if done["change_id"] is not None:
        echo(f"To have it again, undo {done['change_id']}.")


def _affected(done: Json) -> Iterator[str]:
    """Return the memories that an undo would change, with how they begin if that can be read."""
    every = [("forgotten", one) for one in done["forgotten_ids"]]
    every += [("as before", one) for one in done["memory_ids"]]
    for becomes, one in every[:AFFECTED_MAX]:
        words = done["words"].get(one) or ""
        yield f"  {becomes}  {one}  {visible(words, lines=False)}".rstrip()
    if len(every) > AFFECTED_MAX:
        yield f"  and {len(every) - AFFECTED_MAX} more"


@with_application
async def rebuild(
    built: Application, name: Name, diff: bool = False, reextract: bool = False
) -> Answer:
    """Derive memories and the index again from the texts and the events, compare them with what
    is read, and mend what differs; after an interruption, run it again to continue. No model is
    called. Exits with 1 if something differs that it cannot mend.

    Args:
        diff: Only compare; exit with 1 on a difference.
        reextract: Read the texts with the rules of this release.
    """
    await existing(built, name)
    rebuilding = built.services.rebuild
    operation = operations.history.REBUILD_NAMESPACE
    shown: dict[str, Any] = {}
    if reextract and not diff:
        with progress("texts") as on_progress:
            done = await rebuilding.reextract(
                name, lambda: begin(built, name, operation), on_progress
            )
        shown["reextracted"] = asdict(done)
    context = begin(built, name, operation, read_only=diff)
    with progress("memories and texts derived") as on_progress:
        act = rebuilding.compare if diff else rebuilding.mend
        compared = await act(context, on_progress)
    if diff:
        await built.services.audit.note(context.entry)
        await built.services.audit.reads.flush()
    shown["compared"] = {**asdict(compared), "same": compared.same}
    failed = bool(compared.relations or compared.unmade or (diff and not compared.same))
    return Answer(shown, partial(_tell, shown, name, diff=diff), int(failed))


def _tell(shown: dict[str, Any], ns: Namespace, *, diff: bool) -> None:
    if done := shown.get("reextracted"):
        echo(
            f"{done['texts']} texts were read again: {done['added']} memories added, "
            f"{done['superseded']} superseded, {done['deprecated']} deprecated."
        )
        if done["added"] or done["superseded"] or done["deprecated"]:
            echo(f"To have the old ones again: recall undo {ns} {done['change_id']}")
    one = shown["compared"]
    if one["resumed"]:
        echo(f"Continued: {one['resumed']} memories and texts were derived before.")
    echo(f"read     {one['digest']}\nderived  {one['rebuilt']}")
    if one["untold"]:
        echo(
            f"Whether the words of {one['untold']} memories were altered cannot be told: an older "
            "release recorded no digest of them. "
            + ("`recall rebuild` records it." if diff else "It is recorded from now on.")
        )
    if one["vectors"]:
        echo(f"{one['vectors']} items have no vector yet: a job makes it, or `recall reembed`.")
    if one["same"]:
        echo(f"{one['memories']} memories and the index are as the texts and events say.")
        return
    named = len(one["different"])
    echo(
        f"{'Different' if diff else 'Mended'}: the states of {_at_most(named)} memories, "
        f"{one['items']} items and {one['words']} words of the index, {one['counts']} counts, "
        f"{one['disputes']} sides of disputes, the labels of {_at_most(len(one['labels']))} "
        f"memories, {one['restated']} relations, {one['broken']} vectors."
    )
    for memory_id in (*one["different"], *one["labels"]):
        echo(f"  {memory_id}")
    _tell_unmended(one)


def _tell_unmended(one: dict[str, Any]) -> None:
    unmade = one["unmade"]
    if again := [memory_id for memory_id in one["altered"] if memory_id not in unmade]:
        verb = "Written again" if one["repaired"] else "To be written again"
        echo(f"{verb} as their texts and events say: the rows of {len(again)} memories.")
        for memory_id in again:
            echo(f"  {memory_id}")
    if unmade:
        echo(
            f"Not as recorded: the text, type, fact or citations of {len(unmade)} memories. "
            "Restore a backup; or store what they said anew, and erase what is left of them."
        )
        for memory_id, why in unmade.items():
            echo(f"  {memory_id}  {why}")
    if one["relations"]:
        echo(
            f"Not as the events say: {_at_most(len(one['relations']))} relations. State a lost one "
            "again; one that nobody stated goes with an erasure of one of its memories."
        )
        for from_id, to_id, kind in one["relations"]:
            echo(f"  {from_id} {kind} {to_id}")


def _at_most(named: int) -> str:
    return f"{named} or more" if named >= NAMED_MAX else str(named)
