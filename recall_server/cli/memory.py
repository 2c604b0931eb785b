"""Commands for people: add, ask, search, list, show, forget and restore memories, and set aliases
of subjects, here or on a server. `recall timeline`: draw the values of an attribute over time, in
the terminal or as SVG.
"""

import sys
from collections.abc import Iterator
from datetime import datetime
from functools import partial
from html import escape
from pathlib import Path
from typing import Annotated, Any

import typer

from recall_server.api import operations
from recall_server.api.operations.memories import InTime
from recall_server.api.operations.operation import Json
from recall_server.cli.shared import (
    Answer,
    AsJson,
    decided,
    echo,
    fail,
    paragraph,
    print_json,
    print_table,
    unused,
    waiting,
    written,
)
from recall_server.cli.target import NamespaceFirst, Target, asks, with_target
from recall_server.domain.attributes import Interval
from recall_server.domain.errors import Invalid
from recall_server.domain.memory import MemoryType
from recall_server.domain.moments import check_times, parse_moment, past, utc_now
from recall_server.domain.task import JobState

LIMIT_MAX = 50
ASKED_MAX = 5


def _words(text: str) -> str:
    """Return a text as it was given; for `-` that of standard input."""
    if text != "-":
        if not text.strip():
            fail("TEXT is empty. Give the words, or - to read standard input.", "EMPTY_TEXT")
        return text
    try:
        read = sys.stdin.buffer.read().decode()
    except UnicodeDecodeError:
        fail("Standard input is not UTF-8. Convert the text first.", "INVALID_TEXT")
    if not read.strip():
        fail("TEXT is -, and standard input is empty. Send the words there.", "EMPTY_TEXT")
    return read


def _said_at(value: str) -> str:
    """Return when a text was said, if it can be: the operation has another name for it."""
    try:
        if value:
            check_times(utc_now(), parse_moment(value, "--said-at"), name="--said-at")
    except Invalid as error:
        fail(error.message, error.code)
    return value


@partial(with_target, creates=True)
async def add(
    target: Target,
    *,
    text: Annotated[str, typer.Argument(callback=_words)],
    topic: str = "general",
    container: Annotated[str, typer.Option(show_default=False)] = "",
    tag: list[str] | None = None,
    said_at: Annotated[str, typer.Option(show_default="now", callback=_said_at)] = "",
    type_: MemoryType | None = None,
    as_json: AsJson = False,
) -> None:
    """Store a text, and show the memories that are made of it. Where nothing
    was stored yet, the text begins the database of the local server.

    Args:
        text: The text; - reads standard input.
        topic: A context label.
        container: The container to put it in.
        tag: A label for it; repeatable.
        said_at: A date, or a time with its zone.
        type_: Keep the text word for word, as a memory of this type.
    """
    stored = await target.ask(
        operations.memories.store_memory,
        text=text,
        topic=topic,
        container=container,
        tags=tag or [],
        occurred_at=said_at,
        type=type_,
        infer=type_ is None,
    )
    with waiting("Making memories of it"):
        job = await target.made_of(stored["job_id"])
    masked = stored.get("masked", 0)
    if as_json:
        print_json(job | ({"masked": masked} if masked else {}))
        return
    if held := job["held_turns"]:
        turns = "1 turn reads" if held == 1 else f"{held} turns read"
        echo(
            f"Stored, but {turns} like an order to a model: search finds no such turn until "
            "somebody releases it. See `recall quarantine list`."
        )
    elif job["state"] == JobState.COMPLETE and not job["memory_ids"]:
        echo("Stored. It states nothing new that is kept as a memory; search finds its words.")
    elif job["memory_ids"]:
        echo("Stored.")
    else:
        echo(f"Stored. Memories are not made of it yet: job {job['job_id']} is {job['state']}.")
    for memory_id in job["memory_ids"]:
        await _print_new(target, memory_id)
    if masked:
        secrets = "1 secret in it is" if masked == 1 else f"{masked} secrets in it are"
        echo(
            f"{secrets} masked and not kept here: keep what you need of that elsewhere. "
            "RECALL_MASK_SECRETS=false turns masking off."
        )


_ASKED = {"query", *InTime.model_fields}


@asks(
    operations.search.search_memories,
    without=operations.search.SearchContainers.model_fields.keys() - _ASKED,
    limit=ASKED_MAX,
    explain=True,
)
def ask(found: Json, *, query: Annotated[str, typer.Argument(metavar="QUESTION")]) -> None:
    """Show what is remembered about a question: the best few, with who said it and when.

    Args:
        query: What you want to know.
    """
    if not found["results"]:
        echo("Nothing is remembered of that.")
    elif found["weak_evidence"]:
        echo("The answer is likely not among what is remembered. The nearest is:")
    for hit in found["results"]:
        paragraph(hit["text"], "- ")
        paragraph(_standing(hit) + _source(hit))
        _print_around(hit)


@asks(operations.search.search_memories, without={"container"}, explain=True)
def search(
    found: Json,
    *,
    containers: Annotated[list[str] | None, typer.Option("--container")] = None,
    limit: Annotated[int, typer.Option(min=1, max=LIMIT_MAX)] = 10,
) -> None:
    """Search a namespace; the best hits come first.

    Args:
        query: The question, or words.
        containers: Only this container; '' means in no container; repeatable.
    """
    for hit in found["results"]:
        echo(f"{hit['scores']['final']:.3f}  {_heading(hit)}")
        paragraph(hit["text"])
        paragraph(f"{_standing(hit)}from {_source(hit)}")
        _print_around(hit)
    if not found["results"]:
        echo("Nothing is found.")
    else:
        weak = " (weak: the answer is likely not there)" if found["weak_evidence"] else ""
        echo(f"evidence {found['evidence']:.2f}{weak}", err=True)
    if found["degraded"]:
        echo(found["degraded"], err=True)


@asks(operations.memories.inspect_memories, without={"cursor"})
def list_(page: Json) -> None:
    """List the active memories, newest first."""
    for memory in page["memories"]:
        _print_memory(memory)
    if not page["memories"]:
        total = page["total"]
        echo(f"No more: {total} in all." if total else "There are no memories here.")
    elif page["has_more"]:
        echo(f"{page['total']} in all; more with --offset {page['next_offset']}.", err=True)


@asks(operations.contents.get_memory_stats, by_status=True)
def stats(found: Json) -> None:
    """Count the memories of each type and in each state."""
    for title, counts in (("type", found["by_type"]), ("state", found["by_status"])):
        shown = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
        echo(f"{title:6}{shown or 'none'}")
    waiting = found["pending_extractions"]
    if waiting:
        echo(f"{waiting} texts wait for extraction.")


@asks(operations.contents.list_texts)
def texts(page: Json) -> None:
    """List texts as they were sent, the one said last first."""
    for text in page["texts"]:
        labels = [text[one] for one in ("topic", "container", "session_id", "app", "group_id")]
        shown = " ".join(filter(None, [*labels, *text["tags"]]))
        echo(f"{text['id']}  {text['said_at'][:10]}  {shown}")
        paragraph(text["text"] if text["whole"] else f"{text['text']} …")
    if not page["texts"]:
        echo("There are no texts here.")
    elif page["next_offset"] is not None:
        echo(f"More with --offset {page['next_offset']}.", err=True)


@asks(operations.memories.get_memory_history)
def show(found: Json) -> None:
    """Show a memory: what it replaced and what replaced it, the words it rests on, what became of
    it and by whom.

    Args:
        memory_id: The id of a memory, or of a passage from a search.
    """
    for memory in found["memories"]:
        _print_memory(memory)
        until = f" until {memory['valid_until']}" if memory["valid_until"] else ""
        paragraph(f"{memory['status']}, true from {memory['valid_from']}{until}")
        paragraph(f"from {_source(memory)}")
        for one in memory["events"]:
            paragraph(_event(one))
        for one in memory["decisions"]:
            paragraph(decided(one))


@asks(operations.intents.update_memory, without={"type", "confidence", "review"})
def edit(done: Json, *, text: Annotated[str, typer.Argument(callback=_words)]) -> str:
    """Change a memory by hand: a new version takes its place. A token needs memory:admin for it.

    Args:
        memory_id: The id of a memory, or of a passage from a search.
        text: The new text; - reads standard input.
        dry_run: Show what would change.
    """
    if done["dry_run"] and done["changes"]:
        changes = [f"{one['change']}: {one['text']}" for one in done["changes"]]
        return "\n".join(["Nothing is changed. Without --dry-run:", *changes])
    new = [one["memory_id"] for one in done["changes"] if one["change"] == "added"]
    made = f" The new version is {new[0]}." if any(new) else ""
    undo = f" To take it back, undo {done['change_id']}." if "change_id" in done else ""
    return f"{done['message']}{made}{undo}"


@asks(operations.memories.delete_memory, without={"erase"})
def forget(done: Json) -> str:
    """Forget a memory or a passage: it is no longer found, unless it is restored.

    Args:
        memory_id: The id of a memory, or of a passage from a search.
    """
    return f"{done['deleted']} is forgotten. `recall restore` takes that back."


@asks(operations.memories.restore_memory)
def restore(done: Json) -> str:
    """Restore a forgotten memory within RECALL_FORGET_DAYS.

    Args:
        memory_id: The id of what was forgotten.
    """
    return f"{done['restored']} is remembered again."


def _event(one: Json) -> str:
    rule = f" ({one['rule']})" if one["rule"] else ""
    by = f" by {one['by']}" if one["by"] else ""
    change = f", {one['operation']} {one['change']}" if one["change"] else ""
    return f"{one['at']}  {one['event']}{rule}{by}{change}"


def _print_memory(memory: Json) -> None:
    echo(_heading(memory))
    paragraph(memory["text"])


async def _print_new(target: Target, memory_id: str) -> None:
    """Print a new memory, and what it took the place of."""
    history = await target.ask(operations.memories.get_memory_history, memory_id=memory_id)
    for memory in history["memories"]:
        if memory["id"] == memory_id:
            _print_memory(memory)
    for memory in history["memories"]:
        if memory["superseded_by"] == memory_id:
            paragraph(f"takes the place of: {memory['text']}")


def _heading(item: Json) -> str:
    """Return the id of a memory or hit, when it was said (else stored), its type and place."""
    where = f"{item['topic']} in {item['container']}" if item.get("container") else item["topic"]
    mark = "  unreconciled" if item.get("unreconciled") else ""
    mark += "  expired" if item.get("expired") or item.get("status") == "expired" else ""
    return f"{item['id']}  {_date(item)}  {item['type']}  {where}{mark}"


def _date(item: Json) -> str:
    """Return the day on which an item was said; if that is not known, on which it was stored."""
    return str(item["source"]["said_at"] or item["created_at"])[:10]


def _print_around(hit: Json) -> None:
    for said in hit.get("around", ()):
        paragraph(said, "    … ")


def _standing(hit: Json) -> str:
    """Return why a hit may not be what holds now; nothing for another."""
    if hit.get("superseded_by"):
        return f"superseded, true until {hit['valid_until'][:10]}: "
    return "disputed: " if hit.get("disputed_with") else ""


def _source(item: dict[str, Any]) -> str:
    """Return the words that an item rests on, unless its text has them, with their speaker and
    time, and the id of the text that they are from.
    """
    source = item["source"]
    said = [source["speaker"], _date(item), source["episode_id"]]
    words = item.get("quote") or source["quote"] or ""
    quote = f'"{words}"  ' if words not in item["text"] else ""
    return quote + ", ".join(part for part in said if part)


aliases = typer.Typer(
    help="Names that stand for one person or thing in a namespace.", no_args_is_help=True
)


@aliases.command("list", cls=NamespaceFirst)
@asks(operations.memories.list_aliases, part="aliases")
def list_aliases(found: Json) -> None:
    """List the aliases of a namespace, and the subject of each."""
    print_table(found["aliases"], "No aliases yet.")


@aliases.command("set", cls=NamespaceFirst)
@asks(operations.memories.set_aliases, part="aliases")
def set_aliases(found: Json, *, aliases: Annotated[list[str], typer.Option("--alias")]) -> None:
    """Set the aliases of a subject, in place of those that it had: facts about them are facts about
    it from now on.

    Args:
        subject: The name to go by.
        aliases: Another name; repeatable.
    """
    print_table(found["aliases"], "No aliases.")


@aliases.command("remove", cls=NamespaceFirst)
@asks(operations.memories.remove_alias)
def remove_alias(done: Json) -> str:
    """Remove an alias: it is a subject of its own again.

    Args:
        alias: The name, as `list` shows it.
    """
    return f"{done['removed']} is a subject of its own again."


LABEL_CHARS = 24
BAR_CHARS = 54
TRUE, KNOWN = "━", "┄"
_ROW, _LEFT, _WIDTH = 44, 190, 560


@with_target
async def timeline(
    target: Target,
    *,
    entity: str,
    attribute: str,
    svg: Annotated[Path | None, typer.Option(metavar="FILE")] = None,
    as_of: Annotated[str, typer.Option(show_default=False)] = "",
    known_at: Annotated[str, typer.Option(show_default=False)] = "",
) -> Answer:
    """Show the values of an attribute: when each was true, and when it was known here.

    Args:
        entity: Whose attribute, such as user.
        attribute: The attribute, such as lives_in.
        svg: Write a drawing to this new file.
        as_of: What was true then: a date, or a time with its zone.
        known_at: What was known here then.
    """
    unused(svg)
    now = utc_now()
    moment = past(as_of, known_at, now)
    found = await target.ask(
        operations.memories.get_timeline,
        entity=entity,
        attribute=attribute,
        as_of=as_of,
        known_at=known_at,
    )
    if svg is not None:
        with written(svg) as file:
            file.write(drawing(found, moment.known_at or now).encode())

    def said() -> None:
        for line in drawn(found, moment.known_at or now) if svg is None else ():
            echo(line)

    return Answer(found, said)


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
