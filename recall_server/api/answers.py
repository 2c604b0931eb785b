"""Answers to plain requests: data, and errors with the HTTP status of their kind."""

from http import HTTPStatus

from starlette.responses import JSONResponse

from recall_server.api.presenters import Json, failed, ok
from recall_server.domain.errors import (
    Denied,
    Invalid,
    LimitReached,
    NotFound,
    RecallError,
    Stale,
    Unauthenticated,
    Unavailable,
)

_STATUS = (
    (Unauthenticated, HTTPStatus.UNAUTHORIZED),
    (Invalid, HTTPStatus.BAD_REQUEST),
    (Denied, HTTPStatus.FORBIDDEN),
    (NotFound, HTTPStatus.NOT_FOUND),
    (Stale, HTTPStatus.CONFLICT),
    (LimitReached, HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
    (Unavailable, HTTPStatus.SERVICE_UNAVAILABLE),
)


# Codes of our own whose kind does not tell the status.
_STATUS_OF_CODE = {
    "HOST_NOT_ALLOWED": HTTPStatus.MISDIRECTED_REQUEST,
    "UNSUPPORTED_MEDIA": HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    "METHOD_NOT_ALLOWED": HTTPStatus.METHOD_NOT_ALLOWED,
    "RATE_LIMITED": HTTPStatus.TOO_MANY_REQUESTS,
    "QUOTA_EXCEEDED": HTTPStatus.INSUFFICIENT_STORAGE,
    "TOO_MANY_STREAMS": HTTPStatus.TOO_MANY_REQUESTS,
    "HEADERS_TOO_LARGE": HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
    "URL_TOO_LONG": HTTPStatus.REQUEST_URI_TOO_LONG,
    "REQUEST_TOO_SLOW": HTTPStatus.REQUEST_TIMEOUT,
    "STORAGE_FULL": HTTPStatus.INSUFFICIENT_STORAGE,
}


class MethodNotAllowed(Invalid):
    """This endpoint takes POST only; it keeps no session and no stream."""

    code = "METHOD_NOT_ALLOWED"


def answer(data: Json, status: int = 200) -> JSONResponse:
    """Data as the answer to a plain request; it is the caller's, and nobody on the way keeps it."""
    return JSONResponse(ok(data), status, headers={"Cache-Control": "no-store"})


def http_error(error: RecallError, headers: dict[str, str] | None = None) -> JSONResponse:
    status = _STATUS_OF_CODE.get(error.code) or next(
        (status for kind, status in _STATUS if isinstance(error, kind)),
        HTTPStatus.INTERNAL_SERVER_ERROR,
    )
    return JSONResponse(
        failed(error), status, headers={**(headers or {}), "Cache-Control": "no-store"}
    )
