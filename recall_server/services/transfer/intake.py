"""Prepares lines of an export for an import: masks, screens and limits them like texts that come
through a protocol.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from pydantic import BaseModel

from recall_server.domain import export_format
from recall_server.domain.audit import AuditEntry
from recall_server.domain.episode import Episode, Source, Span, Turn, turn_id
from recall_server.domain.errors import RecallError
from recall_server.domain.extraction import REASON_CHARS_MAX
from recall_server.domain.ids import container, is_ours
from recall_server.domain.screening import orders, suspicions
from recall_server.domain.text.cleaning import clean_label, not_too_long
from recall_server.services.memory.episodes import (
    TEXT_CHARS_MAX,
    WORDS_CHARS_MAX,
    Redaction,
    labels,
    with_turns,
)
from recall_server.services.memory.ingest import TOPIC_CHARS_MAX
from recall_server.storage.tables import registry

# Stands for a decider on another server whose name may be any words.
ELSEWHERE = "import"
# The provider, the model, and the version of the prompt.
_JUDGE = re.compile(r"[\w.:@+-]+(?:/[\w.:@+-]+)*/judge/\d+", re.ASCII)
UNFIT = "no protocol takes its labels, or so much"
ORDERS = "it reads as an order to a model"
Line = export_format.Episode | export_format.Memory
P = TypeVar("P", bound=BaseModel)


@dataclass(frozen=True)
class Prepared:
    """A line as it is imported. `held`: its turns that go into quarantine, with the reasons.
    `unfit`: why it is left out, if it is.
    """

    line: Line
    held: Mapping[str, Sequence[str]] = field(default_factory=dict)
    unfit: str = ""


async def masked(line: Line, redaction: Redaction, entry: AuditEntry) -> Line:
    """Return the line without secrets. No other character of a text moves, so spans stay valid."""
    entry_of = registry.BY_NAME["episodes" if line.kind == "episode" else "memories"]
    names = {*entry_of.said} & type(line).model_fields.keys() - {"text"}
    changed: dict[str, Any] = {
        name: value
        for name in sorted(names)
        if (before := getattr(line, name))
        and (value := await redaction.value(before, entry)) != before
    }
    if isinstance(line, export_format.Memory):
        decisions = [
            one.model_copy(
                update={
                    "judge_reason": one.judge_reason
                    and await redaction.text(one.judge_reason, entry)
                }
            )
            for one in line.decisions
        ]
        changed |= {"text": await redaction.text(line.text, entry), "decisions": decisions}
        return line.model_copy(update=changed)
    text = await redaction.in_place(line.text, entry)
    turns = [
        turn.model_copy(
            update={
                "speaker": turn.speaker and await redaction.text(turn.speaker, entry),
                "session": turn.session and await redaction.text(turn.session, entry),
            }
        )
        for turn in line.turns
    ]
    if text != line.text or changed:
        # The old digest of the request would confirm a guessed secret.
        content_hash = hashlib.sha256(text.encode()).hexdigest()
        changed |= {"text": text, "content_hash": content_hash, "request_digest": ""}
    return line.model_copy(update={**changed, "turns": turns})


def prepared(line: Line) -> Prepared:
    """Screen a masked line as the intake of texts does. Takes long for a long line."""
    if not _fits(line):
        return Prepared(line, unfit=UNFIT)
    if isinstance(line, export_format.Memory):
        words = (line.text, line.entity, line.attribute, line.value)
        beside = labels(line.topic, line.container, _source(line))
        said = "\n".join(filter(None, (*words, *beside)))
        bad = orders(line.text) or suspicions(said)
        made: dict[str, Any] = {
            "decisions": [_decided(one) for one in line.decisions],
            "relations": [_by(one, "made_by") for one in line.relations],
            "proposals": [_by(one, "made_by", "decided_by") for one in line.proposals],
        }
        return Prepared(line.model_copy(update=made), {}, ORDERS if bad else "")
    return _screened(_known(line))


def as_read(line: export_format.Episode) -> Episode:
    """Return the text of a line as it is read once it is stored."""
    turns = (
        Turn(
            one.position,
            Span(one.start, one.end),
            one.speaker,
            one.session,
            one.said_at,
            hidden=one.state == "hidden",
        )
        for one in line.turns
    )
    return Episode(
        line.id,
        line.text,
        line.topic,
        line.occurred_at,
        line.recorded_at,
        "",
        "",
        _source(line),
        tuple(turns),
        container=line.container,
        forgotten=tuple(Span(one.start, one.end) for one in line.forgotten),
    )


def _by(part: P, *names: str) -> P:
    """Return a part of a line with `ELSEWHERE` for deciders whose name may be any words."""
    given = {name: getattr(part, name) for name in names}
    return part.model_copy(
        update={name: ELSEWHERE for name, by in given.items() if by and not is_ours(by)}
    )


def _decided(one: export_format.Decided) -> export_format.Decided:
    """Return a decision on another server: of a language model, with a name as judges have, and a
    reason that a judge here would give.
    """
    is_model = one.judge_confidence is not None and _JUDGE.fullmatch(one.decided_by) is not None
    read = re.sub(r"[\W_]+", " ", one.decided_by)
    words = " ".join((one.judge_reason or "").split())
    given = 0 < len(words) <= REASON_CHARS_MAX and not orders(words)
    one = one.model_copy(update={"judge_reason": words if given else None})
    return one if is_model and not orders(read) else _by(one, "decided_by")


def _screened(line: export_format.Episode) -> Prepared:
    turns = with_turns(as_read(line)).turns if line.turns else ()
    found = {one.index: one.suspicions for one in turns if one.suspicions}
    held = {turn_id(line.id, position): reasons for position, reasons in found.items()}
    hidden = [
        one.model_copy(update={"state": "hidden"}) if one.position in found else one
        for one in line.turns
    ]
    return Prepared(line.model_copy(update={"turns": hidden}), held)


def _known(line: export_format.Episode) -> export_format.Episode:
    """Return the line without an unknown error code, which may be any words."""
    waits = line.extraction
    if waits is None or waits.error_code in {None, *_codes(RecallError)}:
        return line
    return line.model_copy(update={"extraction": waits.model_copy(update={"error_code": None})})


def _codes(kind: type[RecallError]) -> Iterator[str]:
    yield kind.code
    for narrower in kind.__subclasses__():
        yield from _codes(narrower)


def _fits(line: Line) -> bool:
    """True if a protocol would accept its labels, and a memory may have this length."""
    try:
        clean_label(line.topic, "topic", chars_max=TOPIC_CHARS_MAX)
        container(line.container)
        _source(line).checked()
        if isinstance(line, export_format.Memory):
            not_too_long(len(line.text), TEXT_CHARS_MAX)
            for words in filter(None, (line.entity, line.attribute, line.value)):
                not_too_long(len(words), WORDS_CHARS_MAX)
    except RecallError:
        return False
    return True


def _source(line: Line) -> Source:
    source = Source(
        session_id=line.session_id,
        agent_id=line.agent_id,
        tags=tuple(line.tags or ()),
        metadata=line.metadata or {},
    )
    if isinstance(line, export_format.Memory):
        return source
    return replace(
        source,
        app=line.source_app,
        model=line.source_model,
        description=line.source_description,
        name=line.name,
        group_id=line.group_id,
        trace_id=line.trace_id,
    )
