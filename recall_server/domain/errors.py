"""Every error that reaches a caller: six kinds, each class with one stable code.

A class's docstring is its default message and names the next step. Protocols map kind and code in
`api/problems.py`; TROUBLESHOOTING.md has a heading for each code.
"""

from __future__ import annotations

import re
from typing import ClassVar

_WORD_BEGINS = re.compile(r"(?<=[a-z])(?=[A-Z])")


class RecallError(Exception):
    """Something went wrong. Ask the operator, naming the reference in this reply."""

    code: ClassVar[str] = "INTERNAL_ERROR"
    # The id of the failed request in the audit log; None if it got no record.
    request_id: str | None = None
    # Whether a retry alone will not help.
    permanent: bool = False

    def __init_subclass__(cls, *, own_code: bool = True) -> None:
        """The code is the name of the class in capitals, unless the class states another; without
        `own_code` it is that of the class above.
        """
        if own_code and "code" not in vars(cls):
            cls.code = _WORD_BEGINS.sub("_", cls.__name__).upper()

    def __init__(
        self,
        message: str | None = None,
        *,
        retry_after_s: float | None = None,
        permanent: bool = False,
    ) -> None:
        """`retry_after_s`: the wait that the other side asked for, if it did. `permanent`: this one
        is, although its class is not.
        """
        super().__init__(message or " ".join((type(self).__doc__ or "").split()))
        self.retry_after_s = retry_after_s
        self.permanent = self.permanent or permanent

    @property
    def message(self) -> str:
        return str(self.args[0])


class Invalid(RecallError):
    """An argument is not acceptable. Correct it and send the call again."""

    code = "INVALID_ARGUMENT"


class Denied(RecallError):
    """This token may not do that. Ask the operator for one that may."""

    code = "FORBIDDEN"


class NotFound(RecallError):
    """There is no such thing in this namespace. List what there is, then use an id from it."""


class NamespaceNotFound(NotFound, own_code=False):
    """There is no such namespace. `recall tokens list` shows those that have tokens; `recall
    create-token` makes one.
    """


class Stale(RecallError):
    """The data under this call has changed meanwhile. Read again and repeat."""


class PlanOutdated(Stale):
    """The memories under this plan have changed. Make a new plan with dry_run and apply that
    one.
    """


class NotWaiting(Stale):
    """Nothing waits for this answer. Get the task, or list the reviews, to see what does."""


class TaskEnded(Stale):
    """The task has ended; nothing about it can be changed. Start a new one."""


class LimitReached(RecallError):
    """A limit was reached. Send less, or wait and send it again."""


class RateLimited(LimitReached):
    """Too many calls in too short a time. Wait as long as Retry-After says, then go on."""

    def __init__(self, message: str | None = None, *, retry_after_s: int, limit: int) -> None:
        """`limit`: calls allowed per minute."""
        super().__init__(message, retry_after_s=retry_after_s)
        self.limit = limit


class TooManyStreams(LimitReached):
    """Too many streams are open at once. Close one, or poll the task instead."""


class QuotaExceeded(LimitReached):
    """This namespace keeps as many bytes as it may. What is stored can be read, exported and
    erased; ask the operator for a larger quota.
    """

    permanent = True


class Unavailable(RecallError):
    """A part the server needs does not answer. Send the call again in a few seconds."""


class ServerUnreachable(Unavailable):
    """The recall server does not answer. Start it, or correct its address and the token."""


class InvalidText(Invalid):
    """The text holds a character that cannot be stored. Remove NUL and unpaired surrogates."""


class EmptyText(Invalid):
    """The text is empty. Send at least one visible character."""


class TextTooLong(LimitReached):
    """The text is too long. Send it in parts under the limit."""


class InvalidCursor(Invalid):
    """This is no cursor of this list, or no longer one. Begin again at the first page."""


class UnknownTool(Invalid):
    """There is no tool of this name. List the tools and use one of them."""


class IdempotencyConflict(Invalid):
    """This idempotency key was used with other content. Use a new key for new content."""


class ConfirmRequired(Invalid):
    """This erases everything and cannot be undone. Send confirm with exactly DELETE MY DATA."""


class ErasedContent(Invalid):
    """This text, or a part of it, was erased here and is not taken again. The operator can allow
    it with `recall erase-allow`.
    """


class OnHold(Stale):
    """This namespace is on hold: nothing of it may be erased until the operator lifts that."""


class NotRestorable(Stale):
    """This memory cannot be restored: it is not a forgotten one, or was forgotten too long ago."""


class ChangeNotFound(NotFound):
    """There is no change with this id. `recall changes` and GET /v1/changes list them."""


class ReviewNotFound(NotFound):
    """Nothing that waits for this answer has this id. GET /v1/reviews and `recall reviews list`
    show what waits, and the choices of each.
    """


class NotUndoable(Stale):
    """This change cannot be taken back."""


class ReceiptNotFound(NotFound):
    """There is no receipt with this id and secret. Each can be fetched once."""


class ExportDamaged(Invalid):
    """The export cannot be read as it is. Fetch the file again, or make a new export."""


class ExportUnsupported(Invalid):
    """This is no export that this release takes in. Use the release that it was made with."""


class MemoryNotFound(NotFound):
    """No active memory has this id. Take an id from a list or a search of memories."""


class MatchNotFound(NotFound):
    """No memory matches these words well enough. Send the memory_id of the one that is meant, or
    more of its words; dry_run shows what comes close.
    """


class MatchAmbiguous(Stale):
    """Any of several memories may be meant by these words. Send the memory_id of the right one."""


class MemorySuperseded(Stale):
    """This memory was superseded. Correct the one that took its place: its history names it."""


class TaskNotFound(NotFound):
    """No task has this id. List the tasks, or hand the text in again."""


class TokenNotFound(NotFound):
    """No token has this accessor. `recall tokens list` shows those there are."""


class Unauthenticated(Denied):
    """A bearer token is needed. Make one with `recall create-token NAMESPACE`."""


class InsufficientScope(Denied):
    """This token may not do that. Ask the operator for one with the scope that is named."""

    def __init__(self, scope: str) -> None:
        """`scope`: the scope that the operation needs."""
        super().__init__(
            f"This needs the scope {scope}, which the token does not have. Ask the operator for "
            "one that has it."
        )
        self.scope = scope


class OutsideAccessScope(Denied):
    """This token is limited to a part of the namespace. Stay within it, or ask for a wider one."""

    code = "OUT_OF_REACH"


class WouldWiden(Denied):
    """A token can issue only what it may do itself. Ask for less, or have the operator issue it."""


class NamespaceNotAllowed(Denied):
    """This identity opens no memory here. Ask the operator to add it to RECALL_ISSUERS_FILE."""


class LastAdmin(Invalid):
    """This is the last token with the scope admin. Make another first, or let the operator force
    it.
    """


class Busy(Unavailable):
    """The server has more to do than it can. Wait as long as Retry-After says, then go on."""


class BeingErased(Unavailable):
    """This namespace is being erased. Wait until its receipt says done, then begin anew."""


class DeadlineExceeded(Unavailable):
    """The call took too long and was stopped. Send it again, or ask for less at once."""


class AuditUnavailable(Unavailable):
    """Reads cannot be recorded in the audit log just now, so they are refused. Send the call again
    in a few seconds; `recall doctor` names what is wrong with the database.
    """


class DatabaseUnavailable(Unavailable):
    """The database does not answer. Send the call again in a few seconds."""


class Deadlocked(DatabaseUnavailable, own_code=False):
    """Each of two changes waited for the other, and this one was taken back. Send it again."""


class StorageFull(DatabaseUnavailable):
    """The disk of the database is full. Nothing of this call was stored; stored data is intact.
    Send it again when the operator has freed space.
    """


class QueryTimeout(DatabaseUnavailable):
    """The database took too long and was stopped. Send the call again, or ask for less at once."""


class DatabaseUnusable(Unavailable):
    """The database cannot be used as it is. Read the sentence and repair what it names."""


class SchemaOutdated(DatabaseUnusable):
    """The database has the tables of an older release. `recall migrate` brings them up to date, and
    so does the start of a server or worker.
    """

    def __init__(self, version: int, wanted: int) -> None:
        super().__init__(
            f"The database has schema version {version}, and this release needs {wanted}. Run "
            "`recall migrate`, or start the server."
        )


class SchemaTooNew(DatabaseUnusable):
    """The database has the tables of a newer release. Use a release that is at least as new."""

    def __init__(self, version: int, wanted: int) -> None:
        super().__init__(
            f"The database has schema version {version}; this release knows {wanted}. Start a "
            "release that is at least as new."
        )


class NotDistributable(DatabaseUnusable):
    """The database cannot be spread over several nodes. The sentence says what is in the way."""


class ExportBusy(Unavailable):
    """An export is being made already. Wait until it is done, then ask again."""


class Unsafe(Unavailable):
    """Something here is unsafe. Repair what the sentence names; `recall doctor` shows all of it."""


class AuditBroken(RecallError):
    """The audit log is not as it was written. Keep a copy as it is, and find out who changed it."""

    def __init__(self, namespace: str, seq: int, why: str, *, to: int | None = None) -> None:
        """`seq`: the first bad record; with `to`, one of the records `seq` to `to` is bad."""
        super().__init__(f"Record {seq} of the audit log of {namespace}: {why}.")
        self.seq = seq
        self.to = to or seq


class PushUrlRefused(Invalid):
    """Nothing is sent to this URL. Give one that begins with https:// and names a public host that
    the server can look up.
    """


class SecretKeyMissing(Invalid):
    """This server has no key to encrypt secrets. Have the operator set RECALL_SECRET_KEY. A webhook
    needs it, and so does a push configuration with a token or credentials.
    """


class PushConfigNotFound(NotFound):
    """This task has no push configuration of this id. List those it has."""


class WebhookNotFound(NotFound):
    """This namespace has no webhook of this id. List those it has."""


class AuthUnavailable(Unavailable):
    """The issuer of this token cannot be asked for its keys at the moment. Wait as long as
    Retry-After says, then send the call again.
    """


class PushWaits(Unavailable):
    """A delivery to this receiver is under way, or it pauses after a failure. It is tried again
    later.
    """


class ModelUnavailable(Unavailable):
    """The language model does not answer. The text is kept and searchable, and is tried again."""


class ModelKeyRejected(ModelUnavailable):
    """The language model's service rejects the key of this server. The text is kept and searchable.
    Ask the operator for a key that it takes.
    """

    permanent = True

    def __init__(self, status: int) -> None:
        """`status`: 401 or 403, of HTTP."""
        super().__init__(
            f"The language model's service rejects the key of this server (HTTP {status}). The "
            "text is kept and searchable. Ask the operator for a key that it takes."
        )
        self.status = status


class BudgetSpent(ModelUnavailable):
    """This namespace has used the language model as much as it may today. The text is kept and
    searchable, and memories are made of it tomorrow.
    """


class ModelAnswerInvalid(Unavailable):
    """The language model's answer could not be used. The text is kept and searchable."""


class TaskFailed(Unavailable):
    """The task did not succeed. Start it again; ask the operator if it fails again."""


class EmbedderUnavailable(Unavailable):
    """The embedder does not answer. Search goes on by keywords and says so."""


class RerankerUnavailable(Unavailable):
    """The re-ranker does not answer. The order of the hits stays as it was, and says so."""


class PushFailed(RecallError):
    """The receiver of a push did not take it. It is tried again, and given up in the end."""


class SecretUnreadable(RecallError):
    """A stored secret cannot be opened. Put back the key in RECALL_SECRET_KEY that sealed it."""
