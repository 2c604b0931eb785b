"""Errors: a class for each code of the server, under one of six kinds.

`except NotFound` catches every code of that kind. A code that this release of the client does not
know gets the kind of its HTTP status.
"""

from collections.abc import Iterator
from typing import Any, ClassVar


class RecallError(Exception):
    """The server refused a call, or could not be asked. The message says what to do next."""

    code: str = "INTERNAL_ERROR"
    # True if the server has done nothing, so that the same call may be sent again.
    untouched: ClassVar[bool] = False

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        status: int | None = None,
        request_id: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        """`status`: that of HTTP; None if there was no answer. `request_id`: that of the request in
        the audit log of the server.
        """
        super().__init__(message)
        self.message = message
        self.code = code or type(self).code
        self.status = status
        self.request_id = request_id
        self.retry_after_s = retry_after_s

    def __str__(self) -> str:
        named = f", request {self.request_id}" if self.request_id else ""
        return f"{self.message} [{self.code}{named}]"


class Invalid(RecallError):
    """An argument is not acceptable."""

    code = "INVALID_ARGUMENT"


class Denied(RecallError):
    """The token may not do that."""

    code = "FORBIDDEN"


class NotFound(RecallError):
    """There is no such thing in the namespace."""

    code = "NOT_FOUND"


class Stale(RecallError):
    """The data that the call rests on has changed, or its task is over."""

    code = "STALE"


class LimitReached(RecallError):
    """A limit was reached."""

    code = "LIMIT_REACHED"


class Unavailable(RecallError):
    """A part that the server needs does not answer; or the server itself does not."""

    code = "UNAVAILABLE"


class Unreachable(Unavailable):
    """There was no connection to the server; the call was not sent."""

    code = "UNREACHABLE"
    untouched = True


class NoAnswer(Unavailable):
    """The call was sent, and no whole answer came in time; it may have been carried out."""

    code = "NO_ANSWER"


class AnswerUnknown(RecallError):
    """The answer is not from recall-server: a proxy or another server is at this address."""

    code = "ANSWER_UNKNOWN"


class SettingMissing(RecallError):
    """The environment does not say where the server is, or with which token to ask it."""

    code = "SETTING_MISSING"


class InvalidText(Invalid):
    code = "INVALID_TEXT"


class EmptyText(Invalid):
    code = "EMPTY_TEXT"


class InvalidCursor(Invalid):
    code = "INVALID_CURSOR"


class UnknownTool(Invalid):
    code = "UNKNOWN_TOOL"


class IdempotencyConflict(Invalid):
    code = "IDEMPOTENCY_CONFLICT"


class ConfirmRequired(Invalid):
    code = "CONFIRM_REQUIRED"


class ErasedContent(Invalid):
    code = "ERASED_CONTENT"


class ExportDamaged(Invalid):
    code = "EXPORT_DAMAGED"


class ExportUnsupported(Invalid):
    code = "EXPORT_UNSUPPORTED"


class LastAdmin(Invalid):
    code = "LAST_ADMIN"


class PushUrlRefused(Invalid):
    code = "PUSH_URL_REFUSED"


class SecretKeyMissing(Invalid):
    code = "SECRET_KEY_MISSING"


class MethodNotAllowed(Invalid):
    code = "METHOD_NOT_ALLOWED"


class NotAcceptable(Invalid):
    code = "NOT_ACCEPTABLE"


class AnswerUnclear(Invalid):
    code = "ANSWER_UNCLEAR"


class MalformedBody(Invalid):
    code = "MALFORMED_BODY"


class UnsupportedMedia(Invalid):
    code = "UNSUPPORTED_MEDIA"


class Unauthenticated(Denied):
    code = "UNAUTHENTICATED"


class InsufficientScope(Denied):
    code = "INSUFFICIENT_SCOPE"


class OutsideAccessScope(Denied):
    code = "OUT_OF_REACH"


class WouldWiden(Denied):
    code = "WOULD_WIDEN"


class NamespaceNotAllowed(Denied):
    code = "NAMESPACE_NOT_ALLOWED"


class HostNotAllowed(Denied):
    code = "HOST_NOT_ALLOWED"


class OriginNotAllowed(Denied):
    code = "ORIGIN_NOT_ALLOWED"


class ReceiptNotFound(NotFound):
    code = "RECEIPT_NOT_FOUND"


class MemoryNotFound(NotFound):
    code = "MEMORY_NOT_FOUND"


class MatchNotFound(NotFound):
    code = "MATCH_NOT_FOUND"


class TaskNotFound(NotFound):
    code = "TASK_NOT_FOUND"


class TokenNotFound(NotFound):
    code = "TOKEN_NOT_FOUND"


class PushConfigNotFound(NotFound):
    code = "PUSH_CONFIG_NOT_FOUND"


class WebhookNotFound(NotFound):
    code = "WEBHOOK_NOT_FOUND"


class MatchAmbiguous(Stale):
    code = "MATCH_AMBIGUOUS"


class MemorySuperseded(Stale):
    code = "MEMORY_SUPERSEDED"


class PlanOutdated(Stale):
    code = "PLAN_OUTDATED"


class NotWaiting(Stale):
    code = "NOT_WAITING"


class TaskEnded(Stale):
    code = "TASK_ENDED"


class OnHold(Stale):
    code = "ON_HOLD"


class ChangeNotFound(NotFound):
    code = "CHANGE_NOT_FOUND"


class ReviewNotFound(NotFound):
    code = "REVIEW_NOT_FOUND"


class NotUndoable(Stale):
    code = "NOT_UNDOABLE"


class NotRestorable(Stale):
    code = "NOT_RESTORABLE"


class RateLimited(LimitReached):
    code = "RATE_LIMITED"
    untouched = True


class TooManyStreams(LimitReached):
    code = "TOO_MANY_STREAMS"


class QuotaExceeded(LimitReached):
    code = "QUOTA_EXCEEDED"


class TextTooLong(LimitReached):
    code = "TEXT_TOO_LONG"


class BodyTooLarge(LimitReached):
    code = "BODY_TOO_LARGE"


class HeadersTooLarge(LimitReached):
    code = "HEADERS_TOO_LARGE"


class UrlTooLong(LimitReached):
    code = "URL_TOO_LONG"


class ServerUnreachable(Unavailable):
    code = "SERVER_UNREACHABLE"


class RequestTooSlow(Unavailable):
    code = "REQUEST_TOO_SLOW"


class Busy(Unavailable):
    code = "BUSY"
    untouched = True


class BeingErased(Unavailable):
    code = "BEING_ERASED"
    untouched = True


class DeadlineExceeded(Unavailable):
    code = "DEADLINE_EXCEEDED"


class AuditUnavailable(Unavailable):
    code = "AUDIT_UNAVAILABLE"


class DatabaseUnavailable(Unavailable):
    code = "DATABASE_UNAVAILABLE"


class StorageFull(Unavailable):
    code = "STORAGE_FULL"


class QueryTimeout(Unavailable):
    code = "QUERY_TIMEOUT"


class DatabaseUnusable(Unavailable):
    code = "DATABASE_UNUSABLE"


class SchemaOutdated(DatabaseUnusable):
    code = "SCHEMA_OUTDATED"


class SchemaTooNew(DatabaseUnusable):
    code = "SCHEMA_TOO_NEW"


class NotDistributable(DatabaseUnusable):
    code = "NOT_DISTRIBUTABLE"


class ExportBusy(Unavailable):
    code = "EXPORT_BUSY"
    untouched = True


class Unsafe(Unavailable):
    code = "UNSAFE"


class AuthUnavailable(Unavailable):
    code = "AUTH_UNAVAILABLE"


class PushWaits(Unavailable):
    code = "PUSH_WAITS"


class ModelUnavailable(Unavailable):
    code = "MODEL_UNAVAILABLE"


class ModelKeyRejected(Unavailable):
    code = "MODEL_KEY_REJECTED"


class BudgetSpent(Unavailable):
    code = "BUDGET_SPENT"


class ModelAnswerInvalid(Unavailable):
    code = "MODEL_ANSWER_INVALID"


class TaskFailed(Unavailable):
    code = "TASK_FAILED"


class EmbedderUnavailable(Unavailable):
    code = "EMBEDDER_UNAVAILABLE"


class RerankerUnavailable(Unavailable):
    code = "RERANKER_UNAVAILABLE"


class AuditBroken(RecallError):
    code = "AUDIT_BROKEN"


class PushFailed(RecallError):
    code = "PUSH_FAILED"


class SecretUnreadable(RecallError):
    code = "SECRET_UNREADABLE"


_OF_STATUS = {
    401: Denied,
    403: Denied,
    404: NotFound,
    409: Stale,
    413: LimitReached,
    429: RateLimited,
    503: Unavailable,
}


def _classes(kind: type[RecallError]) -> Iterator[type[RecallError]]:
    yield kind
    for narrower in kind.__subclasses__():
        yield from _classes(narrower)


BY_CODE = {kind.code: kind for kind in _classes(RecallError)}


def _of_a2a(error: dict[str, Any]) -> dict[str, Any]:
    """Return the error of a route of A2A in the form of the other routes."""
    details = [one for one in error.get("details") or () if isinstance(one, dict)]
    named = ((one.get("metadata") or {}).get("code") or one.get("reason") for one in details)
    code = next(named, None)
    return {"code": code, "detail": error.get("message")}


def refusal(
    status: int, problem: Any, retry_after: str | None, request_id: str | None
) -> RecallError:
    """Return the error of an answer. `problem`: its body, if it is JSON (RFC 9457)."""
    wait = float(retry_after) if retry_after and retry_after.isdecimal() else None
    if isinstance(problem, dict) and isinstance(problem.get("error"), dict):
        problem = _of_a2a(problem["error"])
    code = problem.get("code") if isinstance(problem, dict) else None
    if not isinstance(code, str):
        return (Unavailable if status >= 500 else AnswerUnknown)(
            f"The answer is HTTP {status} and no problem of recall-server. See whether the address "
            "is right, and what stands between.",
            status=status,
            retry_after_s=wait,
        )
    by_status = Invalid if 400 <= status < 500 else RecallError
    kind = BY_CODE.get(code) or _OF_STATUS.get(status, by_status)
    return kind(
        str(problem.get("detail") or problem.get("title")),
        code=code,
        status=status,
        request_id=problem.get("instance") or request_id,
        retry_after_s=wait,
    )
