"""Parses a JWT (RFC 7519) more strictly than the library does, before the library verifies it.

PyJWT 2.15 accepts `exp` as a string, as a fraction or as 10^30, `==` after the signature, a
duplicate claim, and any `typ`; it reads tokens of any size. All of these are refused here.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import jwt
from jwt.utils import base64url_decode, base64url_encode

from recall_server.domain.permissions import Signed

# Opening brackets, wherever they are: an upper bound of the depth.
OPENERS_MAX = 512


def strict(data: bytes) -> Any:
    """Parse `data`. Raises `ValueError` on another encoding than UTF-8, a duplicate name in an
    object, numbers that are not finite, and deep nesting.
    """
    if data.count(b"[") + data.count(b"{") > OPENERS_MAX:
        raise ValueError("it is nested too deep")
    return json.loads(
        data.decode("utf-8"),
        object_pairs_hook=_once,
        parse_constant=_no_number,
        parse_float=_finite,
    )


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name occurs twice")
    return found


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is not a number")


def _finite(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError("a number is not finite")
    return number


LEEWAY = timedelta(seconds=30)
"""The tolerated difference between the signer's clock and ours."""

LIFE_MAX = timedelta(hours=24)
TOKEN_CHARS_MAX = 8_192
KID_CHARS_MAX = 256
TEXT_CHARS_MAX = 1_024

# Headers that contain or locate a key are not accepted, nor are `crit` and `b64`.
_HEADERS = frozenset({"alg", "kid", "typ", "x5t", "x5t#S256"})
_SHAPE = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+", re.ASCII)
_SECONDS_MAX = 253_402_300_799  # the year 9999


class NotValid(Exception):
    """A refused token. The reason is for the log, never for the caller."""


@dataclass(frozen=True)
class Jwt:
    """The content of a token, not yet verified."""

    text: str = field(repr=False)
    alg: str
    kid: str
    typ: str
    claims: Mapping[str, Any] = field(repr=False)

    @property
    def issuer(self) -> str:
        return str(self.claims["iss"])

    @property
    def subject(self) -> str:
        return str(self.claims["sub"])

    @property
    def signed(self) -> Signed:
        return Signed(self.issuer, self.kid, self.alg, self.seconds("iat"), self.jti)

    @property
    def jti(self) -> str | None:
        """The token's id among those of its issuer, if it has one."""
        return self.claims.get("jti")

    def seconds(self, claim: str) -> int:
        """Return a time claim, in seconds since 1970."""
        return int(self.claims[claim])


@dataclass(frozen=True)
class Expected:
    """The requirements of a token: made by `issuer` for `audience` alone, of the type `typ` (RFC
    8725 3.11), signed with one of `algorithms`.
    """

    issuer: str
    audience: str
    typ: str
    algorithms: Sequence[str]


def read(token: str) -> Jwt:
    """Parse a token. Raises `NotValid` if it is malformed."""
    if len(token) > TOKEN_CHARS_MAX or not _SHAPE.fullmatch(token):
        raise NotValid("malformed")
    parts = token.split(".")
    try:
        decoded = [base64url_decode(part) for part in parts]
        header, claims = strict(decoded[0]), strict(decoded[1])
    except (ValueError, RecursionError):
        raise NotValid("malformed") from None
    # A signature has exactly one encoding: leftover base64 bits must be zero.
    if [base64url_encode(each).decode() for each in decoded] != parts:
        raise NotValid("malformed")
    if not isinstance(header, dict) or not isinstance(claims, dict) or not set(header) <= _HEADERS:
        raise NotValid("header")
    alg, kid, typ = (header.get(name) for name in ("alg", "kid", "typ"))
    if not (_text(alg, 16) and _text(kid, KID_CHARS_MAX) and _text(typ, 64)):
        raise NotValid("header")
    _check_kinds(claims)
    return Jwt(token, str(alg), str(kid), _short(str(typ)), claims)


def check(token: Jwt, expected: Expected, now: datetime) -> None:
    """Check the claims and times of a token. Raises `NotValid`."""
    if token.issuer != expected.issuer:
        raise NotValid("issuer")
    if token.typ != _short(expected.typ):
        raise NotValid("typ")
    if token.alg not in expected.algorithms:
        raise NotValid("alg")
    audience = token.claims["aud"]
    if isinstance(audience, list) and len(audience) == 1:
        audience = audience[0]  # RFC 9068 allows text or a list
    if audience != expected.audience:
        raise NotValid("audience")
    _check_time(token, now)


def prove(token: Jwt, key: jwt.PyJWK, expected: Expected) -> None:
    """Check that `key` signed the token. Raises `NotValid`."""
    try:
        jwt.decode(
            token.text,
            key,
            algorithms=[token.alg],
            audience=expected.audience,
            issuer=expected.issuer,
            # These checks would use another clock than the rest of the server.
            options={"verify_exp": False, "verify_nbf": False, "verify_iat": False},
        )
    except jwt.PyJWTError as error:
        raise NotValid(type(error).__name__) from None


def _check_time(token: Jwt, now: datetime) -> None:
    at, leeway = now.timestamp(), LEEWAY.total_seconds()
    if token.seconds("exp") <= at - leeway:
        raise NotValid("expired")
    if token.seconds("iat") > at + leeway:
        raise NotValid("issued in the future")
    if "nbf" in token.claims and token.seconds("nbf") > at + leeway:
        raise NotValid("not yet")
    if not 0 < token.seconds("exp") - token.seconds("iat") <= LIFE_MAX.total_seconds():
        raise NotValid("life")


def _check_kinds(claims: Mapping[str, Any]) -> None:
    """Check that required claims are present and of the right type; a boolean is no number."""
    for name in ("exp", "iat", *({"nbf"} & set(claims))):
        value = claims.get(name)
        if type(value) is not int or not 0 <= value <= _SECONDS_MAX:
            raise NotValid(name)
    for name in ("iss", "sub", *({"jti"} & set(claims))):
        if not _text(claims.get(name), TEXT_CHARS_MAX):
            raise NotValid(name)
    audience = claims.get("aud")
    listed = audience if isinstance(audience, list) else [audience]
    if not listed or not all(_text(one, TEXT_CHARS_MAX) for one in listed):
        raise NotValid("audience")


def _text(value: object, chars_max: int) -> bool:
    """Whether a value is text that can be stored, looked up and displayed."""
    return isinstance(value, str) and 0 < len(value) <= chars_max and value.isprintable()


def _short(typ: str) -> str:
    """Normalize a type: RFC 7515 4.1.9 lets `application/` be omitted and ignores case."""
    return typ.lower().removeprefix("application/")
