"""Errors: a class for each code of the server, under one of six kinds.

`except NotFound` catches every code of that kind. A code that this release of the client does not
know gets the kind of its HTTP status.
"""

import re
from collections.abc import Iterator
from typing import Any, ClassVar

_WORD_BEGINS = re.compile(r"(?<=[a-z])(?=[A-Z])")


class RecallError(Exception):
    """The server refused a call, or could not be asked. The message says what to do next."""

    code: str = "INTERNAL_ERROR"
    # True if the server has done nothing, so that the same call may be sent again.
    untouched: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        """The code is the name of the class in capitals, unless the class states another."""
        if "code" not in vars(cls):
            cls.code = _WORD_BEGINS.sub("_", cls.__name__).upper()

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


class Stale(RecallError):
    """The data that the call rests on has changed, or its task is over."""


class LimitReached(RecallError):
    """A limit was reached."""


class Unavailable(RecallError):
    """A part that the server needs does not answer; or the server itself does not."""


class Unreachable(Unavailable):
    """There was no connection to the server; the call was not sent."""

    untouched = True


class NoAnswer(Unavailable):
    """The call was sent, and no whole answer came in time; it may have been carried out."""


class AnswerUnknown(RecallError):
    """The answer is not from recall-server: a proxy or another server is at this address."""


class SettingMissing(RecallError):
    """The environment does not say where the server is, or with which token to ask it."""


class InvalidText(Invalid): ...


class EmptyText(Invalid): ...


class InvalidCursor(Invalid): ...


class UnknownTool(Invalid): ...


class IdempotencyConflict(Invalid): ...


class ConfirmRequired(Invalid): ...


class ErasedContent(Invalid): ...


class ExportDamaged(Invalid): ...


class ExportUnsupported(Invalid): ...


class LastAdmin(Invalid): ...


class PushUrlRefused(Invalid): ...


class SecretKeyMissing(Invalid): ...


class MethodNotAllowed(Invalid): ...


class NotAcceptable(Invalid): ...


class AnswerUnclear(Invalid): ...


class MalformedBody(Invalid): ...


class UnsupportedMedia(Invalid): ...


class Unauthenticated(Denied): ...


class InsufficientScope(Denied): ...


class OutsideAccessScope(Denied):
    code = "OUT_OF_REACH"


class WouldWiden(Denied): ...


class NamespaceNotAllowed(Denied): ...


class HostNotAllowed(Denied): ...


class OriginNotAllowed(Denied): ...


class ReceiptNotFound(NotFound): ...


class MemoryNotFound(NotFound): ...


class MatchNotFound(NotFound): ...


class TaskNotFound(NotFound): ...


class TokenNotFound(NotFound): ...


class PushConfigNotFound(NotFound): ...


class WebhookNotFound(NotFound): ...


class MatchAmbiguous(Stale): ...


class MemorySuperseded(Stale): ...


class PlanOutdated(Stale): ...


class NotWaiting(Stale): ...


class TaskEnded(Stale): ...


class OnHold(Stale): ...


class ChangeNotFound(NotFound): ...


class ReviewNotFound(NotFound): ...


class NotUndoable(Stale): ...


class NotRestorable(Stale): ...


class RateLimited(LimitReached):
    untouched = True


class TooManyStreams(LimitReached): ...


class QuotaExceeded(LimitReached): ...


class TextTooLong(LimitReached): ...


class BodyTooLarge(LimitReached): ...


class HeadersTooLarge(LimitReached): ...


class UrlTooLong(LimitReached): ...


class ServerUnreachable(Unavailable): ...


class RequestTooSlow(Unavailable): ...


class Busy(Unavailable):
    untouched = True


class BeingErased(Unavailable):
    untouched = True


class DeadlineExceeded(Unavailable): ...


class AuditUnavailable(Unavailable): ...


class DatabaseUnavailable(Unavailable): ...


class StorageFull(Unavailable): ...


class QueryTimeout(Unavailable): ...


class DatabaseUnusable(Unavailable): ...


class SchemaOutdated(DatabaseUnusable): ...


class SchemaTooNew(DatabaseUnusable): ...


class NotDistributable(DatabaseUnusable): ...


class ExportBusy(Unavailable):
    untouched = True


class Unsafe(Unavailable): ...


class AuthUnavailable(Unavailable): ...


class PushWaits(Unavailable): ...


class ModelUnavailable(Unavailable): ...


class ModelKeyRejected(Unavailable): ...


class BudgetSpent(Unavailable): ...


class ModelAnswerInvalid(Unavailable): ...


class TaskFailed(Unavailable): ...


class EmbedderUnavailable(Unavailable): ...


class RerankerUnavailable(Unavailable): ...


class AuditBroken(RecallError): ...


class PushFailed(RecallError): ...


class SecretUnreadable(RecallError): ...


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
