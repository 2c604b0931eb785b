"""`recall changes`, `recall undo` and `recall rebuild`: list what changed in a namespace, undo it,
and derive all of it again. `recall timeline`: draw the values of an attribute over time, in the
terminal or as SVG, from the data of the operation's answer.
"""

from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime
from html import escape
from pathlib import Path
from typing import Annotated, Any

import typer

from recall_server.api import operations
from recall_server.api.operations.operation import Json
from recall_server.application import Application
from recall_server.cli.shared import (
    AsJson,
    AsOf,
    KnownAt,
    Name,
    begin,
    decided,
    echo,
    existing,
    print_json,
    print_table,
    progress,
    unused,
    with_application,
    written,
)
from recall_server.cli.target import Target, asks, with_target
from recall_server.domain.attributes import Interval
from recall_server.domain.ids import Namespace
from recall_server.domain.moments import past, utc_now
from recall_server.services.memory.derivation import NAMED_MAX


@asks(operations.changes.LIST_CHANGES)
def changes(page: Json) -> None:
    """List what jobs, tasks, imports and calls changed, newest first."""
    rows = [
        {
            "id": one["id"],
            "at": one["at"],
            "operation": one["operation"],
            "what": ", ".join(f"{count} {kind}" for kind, count in one["counts"].items()),
            "": "undone" if one["undone"] else "",
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


@asks(operations.reviews.RECHECK_MEMORIES)
def recheck(done: Json) -> str:
    """Compare the believed memories with each other again, in the background."""
    return f"Queued as {done['job_id']}. `recall reviews list` shows what it finds."


@asks(operations.changes.UNDO_CHANGE)
def undo(
    done: Json,
    *,
    change_id: Annotated[
        str,
        typer.Argument(
            metavar="CHANGE", help="The id of a task, a job, or a change from `changes`."
        ),
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what it would do.")] = False,
    with_dependents: Annotated[
        bool, typer.Option("--with-dependents", help="Also undo later changes that rest on it.")
    ] = False,
) -> None:
    """Take back what a task, job, import or call changed; an undo can be undone."""
    verb = "would be" if dry_run else "are"
    memories, forgotten = len(done["memory_ids"]), len(done["forgotten_ids"])
    for one in done["undone"]:
        echo(f"{'would undo' if dry_run else 'undone'} {one}")
    echo(f"Memories that {verb} as before: {memories}; forgotten: {forgotten}.")
    echo(f"Texts of which words {verb} shown or hidden as before: {len(done['episode_ids'])}.")
    if done["change_id"] is not None:
        echo(f"To have it again, undo {done['change_id']}.")


@with_application
async def rebuild(
    built: Application,
    name: Name,
    diff: Annotated[
        bool, typer.Option("--diff", help="Only compare; exit with 1 on a difference.")
    ] = False,
    reextract: Annotated[
        bool, typer.Option("--reextract", help="Read the texts with the rules of this release.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Derive memories and the index again from the texts and the events, compare them with what
    is read, and mend what differs; after an interruption, run it again to continue. No model is
    called. Exits with 1 if something differs that it cannot mend.
    """
    ns = await existing(built, name)
    rebuilding = built.services.rebuild
    operation = operations.changes.REBUILD_NAMESPACE
    shown: dict[str, Any] = {}
    if reextract and not diff:
        with progress("texts") as on_progress:
            done = await rebuilding.reextract(ns, lambda: begin(built, ns, operation), on_progress)
        shown["reextracted"] = asdict(done)
    context = begin(built, ns, operation, read_only=diff)
    with progress("memories and texts derived") as on_progress:
        act = rebuilding.compare if diff else rebuilding.mend
        compared = await act(context, on_progress)
    if diff:
        await built.services.audit.note(context.entry)
        await built.services.audit.reads.flush()
    shown["compared"] = {**asdict(compared), "same": compared.same}
    if as_json:
        print_json(shown)
    else:
        _tell(shown, ns, diff=diff)
    if compared.relations or compared.unmade or (diff and not compared.same):
        raise typer.Exit(1)


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


LABEL_CHARS = 24
BAR_CHARS = 54
TRUE, KNOWN = "━", "┄"
_ROW, _LEFT, _WIDTH = 44, 190, 560


@with_target
async def timeline(
    target: Target,
    *,
    entity: Annotated[str, typer.Argument(metavar="ENTITY", help="Whose attribute, such as user.")],
    attribute: Annotated[
        str, typer.Argument(metavar="ATTRIBUTE", help="The attribute, such as lives_in.")
    ],
    svg: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a drawing to this new file.")
    ] = None,
    as_of: AsOf = "",
    known_at: KnownAt = "",
    as_json: AsJson = False,
) -> None:
    """Show the values of an attribute: when each was true, and when it was known here."""
    unused(svg)
    now = utc_now()
    moment = past(as_of, known_at, now)
    found = await target.ask(
        operations.memories.GET_TIMELINE,
        entity=entity,
        attribute=attribute,
        as_of=as_of,
        known_at=known_at,
    )
    if svg is not None:
        with written(svg) as file:
            file.write(drawing(found, moment.known_at or now).encode())
    if as_json:
        print_json(found)
    elif svg is None:
        for line in drawn(found, moment.known_at or now):
            echo(line)


def drawn(found: Json, now: datetime) -> Iterator[str]:
    """Return the lines of a drawing, of at most 80 characters."""
    if not found["values"]:
        yield "Nothing was said of it."
        return
    scale = _Scale(found, now, BAR_CHARS)
    for memory in found["values"]:
        value = _value(memory)
        label = value if len(value) <= LABEL_CHARS else f"{value[: LABEL_CHARS - 1]}…"
        for name, mark, interval in (
            (label, TRUE, _interval(memory["true"])),
            ("  known", KNOWN, _interval(memory["known"])),
        ):
            start, end = scale.places(interval)
            bar = " " * start + mark * max(1, end - start) + ("→" if interval.end is None else "")
            yield f"{name:{LABEL_CHARS}} {bar}"
    first, last = scale.ends
    yield f"{'':{LABEL_CHARS}} {first}{last:>{BAR_CHARS - len(first)}}"
    for gap in found["gaps"]:
        yield f"gap      {_days(_interval(gap))}: nothing is known to have been true"
    values = {memory["id"]: _value(memory) for memory in found["values"]}
    for overlap in found["overlaps"]:
        both = " and ".join(values[memory_id] for memory_id in overlap["memory_ids"])
        yield f"overlap  {_days(_interval(overlap))}: {both}"[:80]
    if found["cut"]:
        yield "There is more, and older."


def drawing(found: Json, now: datetime) -> str:
    """Return the same drawing as an SVG document."""
    scale, parts = _Scale(found, now, _WIDTH), []
    for row, memory in enumerate(found["values"]):
        y = 30 + row * _ROW
        parts.append(f'<text x="10" y="{y + 5}">{escape(_value(memory)[:LABEL_CHARS])}')
        parts.append("</text>")
        for offset, color, interval in (
            (-7, "#2b6cb0", _interval(memory["true"])),
            (6, "#cbd5e0", _interval(memory["known"])),
        ):
            start, end = scale.places(interval)
            title = f"{'true' if offset < 0 else 'known'} {_days(interval)}"
            parts.append(
                f'<rect x="{_LEFT + start}" y="{y + offset}" width="{max(2, end - start)}" '
                f'height="8" fill="{color}"><title>{title}</title></rect>'
            )
    height = 40 + len(found["values"]) * _ROW
    for x, side, date in zip((_LEFT, _LEFT + _WIDTH), ("start", "end"), scale.ends, strict=True):
        parts.append(f'<text x="{x}" y="{height - 8}" text-anchor="{side}">{date}</text>')
    title = escape(f"{found['attribute']} of {found['entity']}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_LEFT + _WIDTH + 20} {height}" '
        f'font-family="sans-serif" font-size="13"><title>{title}</title>{"".join(parts)}</svg>\n'
    )


class _Scale:
    def __init__(self, found: Json, now: datetime, places: int) -> None:
        intervals = [_interval(one[side]) for one in found["values"] for side in ("true", "known")]
        self.first = min((one.start for one in intervals), default=now)
        self.last = max((one.until(now) for one in intervals), default=now)
        self._now = now
        self._places = places
        self._seconds = (self.last - self.first).total_seconds() or 1.0

    @property
    def ends(self) -> tuple[str, str]:
        """The dates at the ends; the times within one day."""
        known = "%Y-%m-%dT%H:%M:%SZ" if self.first.date() == self.last.date() else "%Y-%m-%d"
        return f"{self.first:{known}}", f"{self.last:{known}}"

    def places(self, interval: Interval) -> tuple[int, int]:
        start, end = interval.start, interval.until(self._now)
        one, other = (
            round((at - self.first).total_seconds() / self._seconds * (self._places - 1))
            for at in (start, end)
        )
        return one, other


def _value(memory: Json) -> str:
    return f"not {memory['value']}" if memory["negated"] else str(memory["value"])


def _interval(one: Json) -> Interval:
    until = one["until"]
    return Interval(datetime.fromisoformat(one["from"]), until and datetime.fromisoformat(until))


def _days(interval: Interval) -> str:
    return f"{interval.start:%Y-%m-%d} to {f'{interval.end:%Y-%m-%d}' if interval.end else 'now'}"
