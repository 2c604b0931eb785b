"""The client for programs without an event loop; made of `_async_client.py` by unasync.py."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Self, TypeVar, Unpack
from uuid import uuid4

import httpx2
from pydantic import BaseModel

from recall_client._arguments import (
    Consolidate,
    DelegateToken,
    Grounded,
    InspectMemories,
    InTime,
    IssueToken,
    ListTexts,
    Moment,
    ProposeChange,
    ReadAudit,
    SearchMemories,
    StoreMemory,
    SubmitMemory,
)
from recall_client._calls import (
    RETRIES,
    TIMEOUT_S,
    Call,
    call,
    connection,
    from_environment,
    job_waits,
    not_sent,
    parsed,
    refused,
    task_event,
    wait_before_next,
)
from recall_client.errors import NoAnswer, TaskEnded
from recall_client.models import (
    Aliases,
    AliasRemoved,
    AuditRecords,
    ChangePage,
    Conflicts,
    Consolidation,
    ContextBlock,
    Decided,
    Deleted,
    Erased,
    Forgotten,
    GroundedAnswer,
    Job,
    Memory,
    MemoryPage,
    NewToken,
    NewWebhook,
    PushConfigs,
    Receipt,
    Relation,
    Resolved,
    Restored,
    ReviewAnswered,
    Reviews,
    Revoked,
    SearchResult,
    Snapshot,
    Stats,
    Status,
    Stored,
    Submitted,
    Suspects,
    Task,
    TaskEvent,
    Text,
    TextPage,
    Timeline,
    Token,
    Tokens,
    Undone,
    WebhookRemoved,
    Webhooks,
    WebhookTested,
    Whoami,
)

T = TypeVar("T", bound=BaseModel)


class RecallClient:
    """One server, called with one token. Each method is an operation, with the name that it has
    over MCP, HTTP and in the audit log; an argument that is None is not given.

    Every method raises `RecallError`: see `recall_client.errors`. If the server is busy or does not
    answer, the client sends a call again, at most `retries` times, unless the call could change
    something twice.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout_s: float = TIMEOUT_S,
        retries: int = RETRIES,
        http: httpx2.Client | None = None,
    ) -> None:
        """`http`: a client of your own, with its own address, headers and timeout."""
        self.url = url
        self._retries = retries
        self._http = http or httpx2.Client(**connection(url, token, timeout_s))

    @classmethod
    def from_env(cls, *, timeout_s: float = TIMEOUT_S, retries: int = RETRIES) -> Self:
        """Make a client from RECALL_URL (http://127.0.0.1:8000 if unset) and RECALL_TOKEN or
        RECALL_TOKEN_FILE. Raises `SettingMissing`.
        """
        url, token = from_environment()
        return cls(url, token, timeout_s=timeout_s, retries=retries)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _ask(self, model: type[T], operation: str, /, **given: Any) -> T:
        return parsed(model, (self._send(call(operation, given))).content)

    def _send(self, request: Call, *, stream: bool = False) -> httpx2.Response:
        """Return the answer, if it is a success; unread if it is to be streamed."""
        attempt = 0
        while True:
            try:
                response = self._http.send(self._built(request), stream=stream)
                if response.is_success:
                    return response
                response.read()
                response.close()
                error = refused(response)
            except httpx2.TransportError as fault:
                error = not_sent(fault, self.url)
            wait_s = wait_before_next(error, attempt, self._retries, repeatable=request.repeatable)
            time.sleep(wait_s)
            attempt += 1

    def _built(self, request: Call) -> httpx2.Request:
        return self._http.build_request(
            request.method,
            request.path,
            json=request.body,
            params=request.query,
            headers=request.headers,
        )

    @contextmanager
    def _stream(self, operation: str, /, **given: Any) -> Iterator[httpx2.Response]:
        response = self._send(call(operation, given), stream=True)
        try:
            yield response
        except httpx2.TransportError as fault:
            raise not_sent(fault, self.url) from fault
        finally:
            response.close()

    # Texts and memories

    def store_memory(self, text: str | None = None, **given: Unpack[StoreMemory]) -> Stored:
        """Store a text; memories are made of it in the background: see `wait_for_job`.

        Without an idempotency key the text gets one of its own, so that a retry stores nothing
        twice.
        """
        given["idempotency_key"] = given.get("idempotency_key") or uuid4().hex
        return self._ask(Stored, "store_memory", text=text, **given)

    def wait_for_job(self, job_id: str, *, within_s: float = 60.0) -> Job:
        """Return the job of a text when it has ended. Raises `NoAnswer` after `within_s`."""
        until = time.monotonic() + within_s
        for wait_s in job_waits():
            job = self.get_job(job_id)
            if job.ended:
                return job
            if time.monotonic() + wait_s > until:
                raise NoAnswer(
                    f"The job {job_id} is {job.state} after {within_s:g} seconds. Ask again later."
                )
            time.sleep(wait_s)
        raise AssertionError

    def search_memories(self, query: str, **given: Unpack[SearchMemories]) -> SearchResult:
        """Find what is remembered about a question, best first."""
        return self._ask(SearchResult, "search_memories", query=query, **given)

    def inspect_memories(self, **given: Unpack[InspectMemories]) -> MemoryPage:
        """Return one page of the active memories, newest first."""
        return self._ask(MemoryPage, "inspect_memories", **given)

    def get_memory(self, memory_id: str, **given: Unpack[InTime]) -> Memory:
        """Return one memory, with the words that it cites."""
        return self._ask(Memory, "get_memory", memory_id=memory_id, **given)

    def get_memory_history(self, memory_id: str, **given: Unpack[InTime]) -> MemoryPage:
        """Return what a memory replaced and what replaced it, oldest first."""
        return self._ask(MemoryPage, "get_memory_history", memory_id=memory_id, **given)

    def get_timeline(self, entity: str, attribute: str, **given: Unpack[InTime]) -> Timeline:
        """Return the values of an attribute over time."""
        return self._ask(Timeline, "get_timeline", entity=entity, attribute=attribute, **given)

    def get_context(self, message: str, **given: Unpack[Grounded]) -> ContextBlock:
        """Return a block for the prompt of what is known about a message, or why there is none."""
        return self._ask(ContextBlock, "get_context", message=message, **given)

    def answer_question(self, query: str, **given: Unpack[Grounded]) -> GroundedAnswer:
        """Answer a question with what is known, and name the memories that support the answer."""
        return self._ask(GroundedAnswer, "answer_question", query=query, **given)

    def get_snapshot(self, user_id: str, **given: Unpack[InTime]) -> Snapshot:
        """Sum up what is in no container; `user_id` is the namespace of the token."""
        return self._ask(Snapshot, "get_snapshot", user_id=user_id, **given)

    def submit_memory(self, text: str | None = None, **given: Unpack[SubmitMemory]) -> Submitted:
        """Remember, correct or forget something at once; the answer says what was decided.
        With `review` it waits until somebody accepts it.
        """
        return self._ask(Submitted, "submit_memory", text=text, **given)

    def propose_change(self, text: str | None = None, **given: Unpack[ProposeChange]) -> Submitted:
        """Propose to remember, correct or forget something: it waits until somebody accepts it."""
        return self._ask(Submitted, "propose_change", text=text, **given)

    def update_memory(
        self,
        memory_id: str,
        *,
        text: str | None = None,
        type: str | None = None,
        confidence: float | None = None,
        dry_run: bool | None = None,
        review: bool | None = None,
    ) -> Submitted:
        """Change a memory by hand: a new version takes its place."""
        given = {
            "memory_id": memory_id,
            "text": text,
            "type": type,
            "confidence": confidence,
            "dry_run": dry_run,
            "review": review,
        }
        return self._ask(Submitted, "update_memory", **given)

    def relate_memories(
        self, from_id: str, relation: str, to_id: str, *, confidence: float | None = None
    ) -> Relation:
        """State what one memory is to another."""
        given = {"from_id": from_id, "relation": relation, "to_id": to_id, "confidence": confidence}
        return self._ask(Relation, "relate_memories", **given)

    def delete_memory(self, memory_id: str, *, erase: bool | None = None) -> Deleted:
        """Forget a memory or a passage; with `erase` destroy it."""
        return self._ask(Deleted, "delete_memory", memory_id=memory_id, erase=erase)

    def restore_memory(self, memory_id: str) -> Restored:
        """Restore a forgotten memory or passage, within RECALL_FORGET_DAYS."""
        return self._ask(Restored, "restore_memory", memory_id=memory_id)

    def list_changes(self, *, before: int | None = None) -> ChangePage:
        """List what stores, tasks, imports and calls changed, newest first."""
        return self._ask(ChangePage, "list_changes", before=before)

    def undo_change(
        self,
        change_id: str,
        *,
        dry_run: bool | None = None,
        with_dependents: bool | None = None,
    ) -> Undone:
        """Undo a change exactly, unless later changes rest on it."""
        given = {"dry_run": dry_run, "with_dependents": with_dependents}
        return self._ask(Undone, "undo_change", change_id=change_id, **given)

    def get_memory_stats(self, *, by_status: bool | None = None, **given: Unpack[InTime]) -> Stats:
        """Count the memories of each type, and the texts that wait for extraction."""
        return self._ask(Stats, "get_memory_stats", by_status=by_status, **given)

    def get_status(self) -> Status:
        """Return the status of the server, with the counts of the namespace."""
        return self._ask(Status, "get_status")

    def get_job(self, job_id: str) -> Job:
        """Return the state of the job of a stored text, and the memories that were made of it."""
        return self._ask(Job, "get_job", job_id=job_id)

    def list_texts(self, **given: Unpack[ListTexts]) -> TextPage:
        """Return one page of the texts as they were stored; the one that was said last is first."""
        return self._ask(TextPage, "list_texts", **given)

    def update_text(
        self,
        text_id: str,
        *,
        tags: Sequence[str] | None = None,
        metadata: Mapping[str, Any] | None = None,
        expires_at: Moment | None = None,
    ) -> Text:
        """Change the labels or the end of a text; `expires_at` "never" removes its end."""
        given = {
            "text_id": text_id,
            "tags": tags,
            "metadata": metadata,
            "expires_at": expires_at,
        }
        return self._ask(Text, "update_text", **given)

    def forget_text(self, text_id: str) -> Forgotten:
        """Forget a text, and the memories that no other text states; each can be restored."""
        return self._ask(Forgotten, "forget_text", text_id=text_id)

    def export_namespace(self, *, subject: str | None = None) -> Iterator[str]:
        """Yield the lines of an export, which is not complete if this raises."""
        with self._stream("export_namespace", subject=subject) as response:
            for line in response.iter_lines():
                yield line

    # Erasure

    def erase(
        self,
        *,
        confirm: str | None = None,
        memory_id: str | None = None,
        subject: str | None = None,
        container: str | None = None,
        dry_run: bool | None = None,
    ) -> Erased:
        """Destroy a memory, a subject, a container, or with `confirm` everything."""
        given = {
            "confirm": confirm,
            "memory_id": memory_id,
            "subject": subject,
            "container": container,
            "dry_run": dry_run,
        }
        return self._ask(Erased, "erase", **given)

    def collect_receipt(
        self, receipt_id: str, secret: str, *, acknowledge: bool | None = None
    ) -> Receipt:
        """Collect the receipt of an erasure. The final one is given until it is acknowledged."""
        given = {"receipt_id": receipt_id, "secret": secret, "acknowledge": acknowledge}
        return self._ask(Receipt, "collect_receipt", **given)

    # Consolidation

    def consolidate_memories(self, **given: Unpack[Consolidate]) -> Consolidation:
        """Merge similar memories of a topic, take in a text under a policy, or apply a plan.

        The task may still be working when this returns: see `status`, and `subscribe_to_task`.
        """
        return self._ask(Consolidation, "consolidate_memories", **given)

    def create_task(self, input: Mapping[str, Any], *, skill: str = "consolidate_memories") -> Task:
        """Start a task, without waiting for it. `input`: as `consolidate_memories` takes."""
        return self._ask(Task, "create_task", skill=skill, input=input)

    def get_task(self, task_id: str) -> Consolidation:
        """Get a task: its state, its questions, and its result."""
        return self._ask(Consolidation, "get_task", task_id=task_id)

    def resume_task(
        self,
        task_id: str,
        *,
        resolution: str | Sequence[Any] | None = None,
        resolutions: str | Sequence[Any] | None = None,
    ) -> Task:
        """Answer the questions of a task: one resolution for all, or resolutions one by one."""
        return self._ask(
            Task, "resume_task", task_id=task_id, resolution=resolution, resolutions=resolutions
        )

    def cancel_task(self, task_id: str) -> None:
        """Cancel a task."""
        self._send(call("cancel_task", {"task_id": task_id}))

    def subscribe_to_task(self, task_id: str) -> Iterator[TaskEvent]:
        """Yield the events of a task until it ends or asks; for one that has ended, its state."""
        try:
            with self._stream("subscribe_to_task", task_id=task_id) as response:
                for event in httpx2.EventSource(response, max_event_size=None):
                    yield (told := task_event(event.data))
                    if told.idle:
                        return
        except TaskEnded:
            task = self.get_task(task_id)
            yield TaskEvent(task_id=task_id, state=task.status, message=task.message)

    def list_push_configs(self, task_id: str) -> PushConfigs:
        """List the push configurations of a task."""
        return self._ask(PushConfigs, "list_push_configs", task_id=task_id)

    def recheck_memories(self) -> Stored:
        """Compare the believed memories with each other again, in the background."""
        return self._ask(Stored, "recheck_memories")

    def list_reviews(self, *, kind: str | None = None, limit: int | None = None) -> Reviews:
        """List what waits for a decision, the oldest first."""
        return self._ask(Reviews, "list_reviews", kind=kind, limit=limit)

    def answer_review(self, id: str, choice: str, *, text: str | None = None) -> ReviewAnswered:
        """Answer what waits for a decision; `text` goes with the choices merge and edit."""
        return self._ask(ReviewAnswered, "answer_review", id=id, choice=choice, text=text)

    def list_conflicts(self) -> Conflicts:
        """List the questions that wait for an answer, the oldest first."""
        return self._ask(Conflicts, "list_conflicts")

    def resolve_conflict(self, id: str, choice: str, *, text: str | None = None) -> Resolved:
        """Answer one question; `text` goes with the choice merge."""
        return self._ask(Resolved, "resolve_conflict", id=id, choice=choice, text=text)

    # Aliases

    def list_aliases(self) -> Aliases:
        """List the names that stand for one person or thing."""
        return self._ask(Aliases, "list_aliases")

    def set_aliases(self, subject: str, aliases: Sequence[str]) -> Aliases:
        """Set the aliases of a subject: facts about them are facts about it from now on."""
        return self._ask(Aliases, "set_aliases", subject=subject, aliases=aliases)

    def remove_alias(self, alias: str) -> AliasRemoved:
        """Remove an alias: it is a subject of its own again."""
        return self._ask(AliasRemoved, "remove_alias", alias=alias)

    # Webhooks

    def add_webhook(
        self, url: str, *, kinds: Sequence[str] | None = None, include_text: bool | None = None
    ) -> NewWebhook:
        """Register a URL that gets events of the namespace, of these kinds or all."""
        return self._ask(NewWebhook, "add_webhook", url=url, kinds=kinds, include_text=include_text)

    def list_webhooks(self) -> Webhooks:
        """List the webhooks of the namespace, and whether each accepts its events."""
        return self._ask(Webhooks, "list_webhooks")

    def remove_webhook(self, webhook_id: str) -> WebhookRemoved:
        """Remove a webhook: it gets no more events."""
        return self._ask(WebhookRemoved, "remove_webhook", webhook_id=webhook_id)

    def test_webhook(self, webhook_id: str) -> WebhookTested:
        """Send an event without data; a dead webhook that accepts it gets events again."""
        return self._ask(WebhookTested, "test_webhook", webhook_id=webhook_id)

    # Tokens

    def whoami(self) -> Whoami:
        """Return what this token may do."""
        return self._ask(Whoami, "whoami")

    def list_tokens(self) -> Tokens:
        """List the tokens of the namespace; for a limited token, those that it could issue."""
        return self._ask(Tokens, "list_tokens")

    def issue_token(self, **given: Unpack[IssueToken]) -> NewToken:
        """Issue a token that may do no more than the one that asks."""
        return self._ask(NewToken, "issue_token", **given)

    def delegate_token(self, **given: Unpack[DelegateToken]) -> NewToken:
        """Make a child of the token that asks, for a sub-agent."""
        return self._ask(NewToken, "delegate_token", **given)

    def show_token(self, accessor: str) -> Token:
        """Return what a token may do, and when it was last used."""
        return self._ask(Token, "show_token", accessor=accessor)

    def rotate_token(self, accessor: str, *, overlap_s: float | None = None) -> NewToken:
        """Issue a token in the place of another, which ends after `overlap_s` seconds."""
        return self._ask(NewToken, "rotate_token", accessor=accessor, overlap_s=overlap_s)

    def revoke_token(self, accessor: str, *, children_only: bool | None = None) -> Revoked:
        """Revoke a token and all that it issued."""
        return self._ask(Revoked, "revoke_token", accessor=accessor, children_only=children_only)

    def revoke_own_child(self, jti: str) -> Revoked:
        """Revoke a child of the token that asks."""
        return self._ask(Revoked, "revoke_own_child", jti=jti)

    def revoke_child(self, accessor: str, jti: str) -> Revoked:
        """Revoke a child of any token of the namespace."""
        return self._ask(Revoked, "revoke_child", accessor=accessor, jti=jti)

    # Administration

    def read_audit(self, **given: Unpack[ReadAudit]) -> AuditRecords:
        """Return one page of the audit log, newest first."""
        return self._ask(AuditRecords, "read_audit", **given)

    def list_quarantine(
        self, *, state: str | None = None, limit: int | None = None, offset: int | None = None
    ) -> Suspects:
        """List texts that were held back, with the reasons."""
        return self._ask(Suspects, "list_quarantine", state=state, limit=limit, offset=offset)

    def release_quarantined(self, id: str) -> Decided:
        """Let a text be found, and make memories of it."""
        return self._ask(Decided, "release_quarantined", id=id)

    def reject_quarantined(self, id: str) -> Decided:
        """Keep a text hidden for good."""
        return self._ask(Decided, "reject_quarantined", id=id)
