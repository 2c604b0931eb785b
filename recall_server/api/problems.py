"""Errors as HTTP answers: problem details (RFC 9457) with our code."""

from http import HTTPStatus

from starlette.responses import JSONResponse

from recall_server.domain.errors import (
    Busy,
    Denied,
    Invalid,
    LimitReached,
    NotFound,
    RecallError,
    Stale,
    Unauthenticated,
    Unavailable,
)

MEDIA_TYPE = "application/problem+json"
DOCS_PATH = "/docs"

_STATUS = (
    (Unauthenticated, HTTPStatus.UNAUTHORIZED),
    (Invalid, HTTPStatus.BAD_REQUEST),
    (Denied, HTTPStatus.FORBIDDEN),
    (NotFound, HTTPStatus.NOT_FOUND),
    (Stale, HTTPStatus.CONFLICT),
    (LimitReached, HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
    (Unavailable, HTTPStatus.SERVICE_UNAVAILABLE),
)


# The codes whose kind does not give the status.
_STATUS_OF_CODE = {
    "HOST_NOT_ALLOWED": HTTPStatus.MISDIRECTED_REQUEST,
    "UNSUPPORTED_MEDIA": HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    "METHOD_NOT_ALLOWED": HTTPStatus.METHOD_NOT_ALLOWED,
    "NOT_ACCEPTABLE": HTTPStatus.NOT_ACCEPTABLE,
    "RATE_LIMITED": HTTPStatus.TOO_MANY_REQUESTS,
    "QUOTA_EXCEEDED": HTTPStatus.INSUFFICIENT_STORAGE,
    "TOO_MANY_STREAMS": HTTPStatus.TOO_MANY_REQUESTS,
    "HEADERS_TOO_LARGE": HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
    "URL_TOO_LONG": HTTPStatus.REQUEST_URI_TOO_LONG,
    "REQUEST_TOO_SLOW": HTTPStatus.REQUEST_TIMEOUT,
    "STORAGE_FULL": HTTPStatus.INSUFFICIENT_STORAGE,
}


class HostNotAllowed(Denied):
    """This server does not answer to that host name. Add it to RECALL_ALLOWED_HOSTS."""


class OriginNotAllowed(Denied):
    """Web pages of that origin may not call. Add it to RECALL_ALLOWED_ORIGINS."""


class MalformedBody(Invalid):
    """The body is not acceptable JSON. Send UTF-8 JSON without a byte order mark."""


class UnsupportedMedia(Invalid):
    """The body must be JSON as it is. Send 'Content-Type: application/json', not compressed."""


class BodyTooLarge(LimitReached):
    """The body is too large. Send the text in parts."""


class HeadersTooLarge(LimitReached):
    """The request has too many headers, or too long ones. Send fewer."""


class UrlTooLong(LimitReached):
    """The URL is too long. Send long texts in the body."""


class OutOfMemory(Busy, own_code=False):
    """The server has no memory for this just now. Send less at once, or wait as long as Retry-After
    says.
    """


class MethodNotAllowed(Invalid):
    """This path takes another method."""


class NotAcceptable(Invalid):
    """Answers at this path are JSON. Send 'Accept: application/json', or no Accept header."""


class Problem(JSONResponse):
    media_type = MEDIA_TYPE


def status_of(kind: type[RecallError]) -> HTTPStatus:
    return _STATUS_OF_CODE.get(kind.code) or next(
        (status for general, status in _STATUS if issubclass(kind, general)),
        HTTPStatus.INTERNAL_SERVER_ERROR,
    )


def problem(error: RecallError, headers: dict[str, str] | None = None) -> Problem:
    """Return an error as a problem. `type` leads to the code on the page of this server; `instance`
    is the id of the request in the audit log, if the request has one.
    """
    kind = type(error)
    status = status_of(kind)
    details = {
        "type": f"{DOCS_PATH}#{error.code}",
        # The first sentence of its default message.
        "title": " ".join((kind.__doc__ or "").split()).split(". ")[0].removesuffix(".") + ".",
        "status": status.value,
        "detail": error.message,
        "code": error.code,
    }
    if error.request_id is not None:
        details["instance"] = error.request_id
    return Problem(details, status, headers={**(headers or {}), "Cache-Control": "no-store"})
