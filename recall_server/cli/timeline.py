"""`recall timeline`: draw the values of an attribute over time, in the terminal or as SVG, from the
data of the operation's answer.
"""

from collections.abc import Iterator
from datetime import datetime
from html import escape
from pathlib import Path
from typing import Annotated

import typer

from recall_server.api import operations
from recall_server.api.operations.operation import Json
from recall_server.cli.shared import (
    AsJson,
    AsOf,
    KnownAt,
    echo,
    print_json,
    unused,
    written,
)
from recall_server.cli.target import Target, with_target
from recall_server.domain.moments import past, utc_now
from recall_server.domain.timeline import Interval

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
    dates = f"{scale.first:%Y-%m-%d}".ljust(BAR_CHARS - 10) + f"{scale.last:%Y-%m-%d}"
    yield f"{'':{LABEL_CHARS}} {dates}"
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
    for x, moment in ((_LEFT, scale.first), (_LEFT + _WIDTH - 70, scale.last)):
        parts.append(f'<text x="{x}" y="{height - 8}">{moment:%Y-%m-%d}</text>')
    title = escape(f"{found['attribute']} of {found['entity']}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_LEFT + _WIDTH + 20} {height}" '
        f'font-family="sans-serif" font-size="13"><title>{title}</title>{"".join(parts)}</svg>\n'
    )


class _Scale:
    """The time from the first beginning to the last end, on a number of places."""

    def __init__(self, found: Json, now: datetime, places: int) -> None:
        intervals = [_interval(one[side]) for one in found["values"] for side in ("true", "known")]
        self.first = min((one.start for one in intervals), default=now)
        self.last = max((one.until(now) for one in intervals), default=now)
        self._now = now
        self._places = places
        self._seconds = (self.last - self.first).total_seconds() or 1.0

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
