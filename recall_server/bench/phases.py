"""Where a task spends its time, as the lines in the book tell it."""

from dataclasses import dataclass
from datetime import timedelta
from statistics import fmean

from recall_server.application import Application
from recall_server.domain.namespace import Namespace
from recall_server.services.memory.embedding import EMBED
from recall_server.services.tasks.transitions import CONSOLIDATE
from recall_server.storage.tables.audit import AuditRecord

ACCEPT = "send_message"
LINES_MAX = 1_000_000


@dataclass(frozen=True)
class Phases:
    """Means, in milliseconds, of the tasks of one namespace."""

    tasks: int
    accept: float
    """To read the message, wait for the writer and write the run, up to its commit."""
    wait: float
    """For that commit, and until a worker has claimed the job."""
    work: float
    """To read the run, extract, wait for the writer, plan and write, up to the commit."""
    vectors: float | None
    """Afterwards, while nobody waits for it: the vectors of what was made, if that is a job."""


async def phases(built: Application, namespace: Namespace) -> Phases:
    """What the book says of a namespace. Raises `RuntimeError` where a task there has made anything
    else than one memory: it would not be what is to be measured.
    """
    lines = await built.services.audit.newest(namespace, LINES_MAX)
    accepted = {line.ids[0]: line for line in lines if line.operation == ACCEPT}
    worked = {line.ids[0]: line for line in lines if line.operation == CONSOLIDATE}
    pairs = [(line, worked[run_id]) for run_id, line in accepted.items()]
    made = sum(work.counts.get("added", 0) for _, work in pairs)
    if made != len(pairs):
        raise RuntimeError(f"{len(pairs)} tasks have made {made} memories.")
    embedded = [line.milliseconds for line in lines if line.operation == EMBED]
    return Phases(
        tasks=len(pairs),
        accept=fmean(line.milliseconds for line, _ in pairs),
        wait=fmean(_between(line, work) for line, work in pairs),
        work=fmean(work.milliseconds for _, work in pairs),
        vectors=fmean(embedded) if embedded else None,
    )


def _between(first: AuditRecord, second: AuditRecord) -> float:
    """From the end of the one to the beginning of the other."""
    ended = first.at + timedelta(milliseconds=first.milliseconds)
    return (second.at - ended) / timedelta(milliseconds=1)
