"""The table of jobs: queued in the transaction of their cause, leased to one worker at a time, and
fenced against earlier holders.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from recall_server.domain.episode import Span
from recall_server.domain.extraction import Refusal, Refused
from recall_server.domain.ids import Namespace
from recall_server.domain.memory import MemoryType
from recall_server.domain.task import Job, JobProgress, JobState, TextJob
from recall_server.storage.bound_connection import BoundTable
from recall_server.storage.driver import Document, document, moment_or_none, reader

PUSH = "push"
"""The kind of a delivery of a push."""
TOKEN_REVOKED = "TOKEN_REVOKED"  # noqa: S105  # why a job was given up

# Namespaces read in one look for jobs; the first one nearly always has a due job.
LOOK_ROWS = 20


RefusedRow = list[Any]
"""A refused candidate in the payload of a job: the reason, the type, the start and the end."""


class Fenced(Exception):
    """The job was given to another worker meanwhile; the transaction must be rolled back."""


class Jobs(BoundTable):
    """Only the holder of the newest attempt may change a job: for all others `advance` and `finish`
    raise `Fenced`, and their transaction is rolled back (see `Connection.expect`).
    """

    async def add(
        self,
        job_id: str,
        kind: str,
        payload: Mapping[str, Any],
        now: datetime,
        accessor: str | None = None,
        *,
        due_at: datetime | None = None,
        again: bool = False,
    ) -> None:
        """Queue a job, to be done now or at `due_at`. `accessor`: the token with which it ends
        (`Bearer.name`). `again`: the id may be that of an earlier job; one that is queued or
        running stays as it is.
        """
        due_at = due_at or now
        await self._bound.send(
            "add_job_again" if again else "add_job",
            id=job_id,
            kind=kind,
            payload=Document(dict(payload)),
            due_at=due_at,
            now=now,
            accessor=accessor,
        )
        self._bound.note_due(due_at, pushes=kind == PUSH)

    async def add_each(
        self, kind: str, payloads: Mapping[str, Mapping[str, Any]], now: datetime
    ) -> None:
        """Queue jobs of one kind, given by their ids, to be done now."""
        if payloads:
            jobs = Document(list(payloads.items()))
            await self._bound.send("add_jobs", kind=kind, jobs=jobs, now=now)
            self._bound.note_due(now, pushes=kind == PUSH)

    async def write_due(self) -> None:
        """Have workers look for the jobs that this transaction queues. Call it last, since its lock
        should be held only during the commit.
        """
        for pushes, due_at in sorted(self._bound.due.items()):
            await self._bound.send("advance_queue", pushes=int(pushes), due_at=due_at)

    async def claim(
        self,
        after: str,
        now: datetime,
        lease_until: datetime,
        holder: int | None = None,
        *,
        pushes: bool = False,
        full: Collection[Namespace] = (),
    ) -> Job | None:
        """Lease the first due job of the first namespace after `after` (then from the beginning,
        without those in `full`) until `lease_until`, or until `holder` is known to be gone. Return
        None if no job is due. With `pushes` only deliveries of pushes are claimed, without it all
        other kinds. Needs a connection for all namespaces.
        """
        passed = list(full)
        while rows := await self._bound.fetch(
            "due_queues", after=after, now=now, pushes=int(pushes), but=passed, limit=LOOK_ROWS
        ):
            for row in rows:
                owner = row["namespace"]
                claimed = await self._bound.fetch(
                    "claim_job",
                    owner=owner,
                    now=now,
                    lease_until=lease_until,
                    holder=holder,
                    pushes=int(pushes),
                )
                if not claimed or not claimed[0]["more"]:
                    await self._defer(owner, int(pushes))
                if claimed:
                    return _job(claimed[0])
                passed.append(owner)
        return None

    async def any_due(
        self, now: datetime, *, pushes: bool, full: Collection[Namespace] = ()
    ) -> bool:
        """Return whether `claim` may find a job. Needs a connection for all namespaces."""
        return bool(
            await self._bound.fetch(
                "due_queues", after="", now=now, pushes=int(pushes), but=list(full), limit=1
            )
        )

    async def _defer(self, owner: str, pushes: int) -> None:
        """Set a queue without a due job to its next due time, or remove it if it is empty."""
        # In two statements: the second one sees the jobs that an earlier holder of the lock added.
        queue = {"owner": owner, "pushes": pushes}
        found = await self._bound.fetch_each({"lock_queue": queue, "next_due": queue})
        if not found["lock_queue"]:
            return
        due_at = moment_or_none(found["next_due"][0]["due_at"])
        if due_at is None:
            await self._bound.send("remove_queue", owner=owner, pushes=pushes)
        else:
            await self._bound.send("defer_queue", owner=owner, pushes=pushes, due_at=due_at)

    async def repair_queues(self) -> None:
        """Make the queues of all namespaces as early as their first jobs. Needs a connection for
        all namespaces.
        """
        await self._bound.send("repair_queues")

    async def holders(self, *, but: int) -> Sequence[int]:
        """Return the holders of running jobs, except one. Needs a connection for all namespaces."""
        return await self._column("holder", "job_holders", but=but)

    async def end_leases(self, holder: int, now: datetime) -> None:
        """Make the jobs of a holder that is gone due now, except those that have failed before.
        Needs a connection for all namespaces.
        """
        await self._bound.send("end_leases", holder=holder, now=now)
        await self.repair_queues()

    async def advance(self, job: Job, payload: Mapping[str, Any], lease_until: datetime) -> None:
        """Store how far the job has come, and extend its lease."""
        await self._bound.expect(
            "advance_job",
            Fenced,
            id=job.id,
            attempt=job.attempt,
            payload=Document(dict(payload)),
            lease_until=lease_until,
        )

    async def finish(
        self,
        job: Job,
        now: datetime,
        code: str | None = None,
        refused: Sequence[RefusedRow] = (),
    ) -> None:
        """Complete the job. `code`: why it was done only in part or by a fallback. `refused` is
        told by `of_text`.
        """
        await self._bound.expect(
            "finish_job",
            Fenced,
            id=job.id,
            attempt=job.attempt,
            now=now,
            code=code,
            refused=Document(refused).text if refused else None,
        )

    async def release(self, job: Job, due_at: datetime, code: str | None, *, failed: bool) -> bool:
        """Put the job back into the queue, due at `due_at`. `failed` counts as its failure. Return
        False if it was given to another worker.
        """
        self._bound.note_due(due_at, pushes=job.kind == PUSH)
        return await self._bound.touched(
            "release_job",
            id=job.id,
            attempt=job.attempt,
            due_at=due_at,
            code=code,
            failed=int(failed),
        )

    async def bury(self, job: Job, code: str, now: datetime) -> bool:
        """Give the job up, with the reason. Return False if it was given to another worker."""
        return await self._bound.touched(
            "bury_job", id=job.id, attempt=job.attempt, code=code, now=now
        )

    async def end_of(self, tokens: Sequence[str], code: str, now: datetime) -> int:
        """Give up the jobs that end with these tokens, with the reason. Return how many."""
        given = {"tokens": list(tokens), "code": code, "now": now}
        ended = await self._bound.fetch("end_jobs_of", **given)
        # A job that was given up or done by the rules is done again once there is a key.
        return len(ended) + len(await self._bound.fetch("end_jobs_without_key_of", **given))

    async def take_over(self, job_id: str, now: datetime, accessor: str | None) -> None:
        """Queue a job for another token, if it was given up because its own was revoked."""
        if await self._bound.touched(
            "take_job_over", id=job_id, code=TOKEN_REVOKED, now=now, accessor=accessor
        ):
            self._bound.note_due(now, pushes=False)

    async def requeue_without_key(self, kind: str, now: datetime) -> None:
        """Queue for now the jobs that wait, were given up or were done by a fallback because the
        key of a language model was rejected. Needs a connection for all namespaces.
        """
        await self._bound.send("requeue_jobs_without_key", kind=kind, now=now)
        await self.repair_queues()

    async def requeue_without_space(self, now: datetime) -> None:
        """Queue for now the jobs of this namespace that were given up because its quota had no
        space; or those of all namespaces.
        """
        if self._bound.namespace is None:
            await self._bound.send("requeue_all_jobs_without_space", now=now)
            await self.repair_queues()
        else:
            await self._bound.send("requeue_jobs_without_space", now=now)
            self._bound.note_due(now, pushes=False)

    async def counts(self) -> dict[tuple[str, JobState], int]:
        """Return how many jobs of each kind are queued, running, given up or to be done again, of
        the namespace or of all. With a limited access scope, only jobs about its texts count.
        """
        query = "all_job_counts" if self._bound.namespace is None else "job_counts"
        if not self._bound.access_scope.everything:
            query = "job_counts_in_reach"
        rows = await self._bound.fetch(query)
        return {(row["kind"], JobState(row["state"])): int(row["jobs"]) for row in rows}

    async def oldest_due(self, now: datetime) -> datetime | None:
        """Return since when the job that has waited longest is due; None if none is due."""
        rows = await self._bound.fetch("oldest_due", now=now)
        return moment_or_none(rows[0]["due_at"])

    async def ended(self, before: datetime, after: str, limit: int) -> tuple[list[str], str | None]:
        """Look at `limit` jobs after `after`. Return those that ended before `before`, and the last
        job looked at (None if no more follow).
        """
        rows = await self._bound.fetch("ended_jobs", before=before, after=after, limit=limit)
        last = rows[-1]["id"] if len(rows) == limit else None
        return [row["id"] for row in rows if row["ended"]], last

    async def remove(self, ids: Sequence[str]) -> None:
        """Delete jobs that have ended."""
        await self._bound.send("remove_jobs", ids=list(ids))

    async def state(self, job_id: str) -> JobState | None:
        return await self._first(lambda row: JobState(row["state"]), "job", id=job_id)

    async def of_text(self, job_id: str) -> TextJob | None:
        """Return a job about a text that is within the access scope."""
        return await self._first(_text_job, "job_of_text", id=job_id)

    async def of_run(self, run_id: str, kind: str) -> list[JobProgress]:
        """Return the jobs that are the pages of one piece of work, the first page first."""
        return await self._all(_progress, "jobs_of_run", run_id=run_id, kind=kind)


_job = reader(Job)


def refused_row(one: Refused) -> RefusedRow:
    """Return a refused candidate as it is kept in the payload of a job."""
    span = (one.span.start, one.span.end) if one.span else (None, None)
    return [str(one.reason), one.type and str(one.type), *span]


def _refused(reason: str, type_: str | None, start: int | None, end: int | None) -> Refused:
    span = None if start is None or end is None else Span(start, end)
    return Refused(Refusal(reason), MemoryType(type_) if type_ else None, span)


_text_job = reader(
    TextJob,
    attempts="attempt",
    refused=lambda row: tuple(_refused(*one) for one in document(row["refused"]) or ()),
)
_progress = reader(JobProgress, attempts="attempt")
