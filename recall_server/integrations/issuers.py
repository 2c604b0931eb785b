"""Trusted identity providers, from a file of the operator, and the strict parsing of their tokens.

An issuer authenticates its users; the file maps claim values to namespaces and scopes one by one.
Nothing is taken from a token unchecked.

A JWT (RFC 7519) is parsed more strictly than the library does, before the library verifies it:
PyJWT 2.15 accepts `exp` as a string, as a fraction or as 10^30, `==` after the signature, a
duplicate claim, and any `typ`; it reads tokens of any size. All of these are refused here.
"""

import asyncio
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import jwt
import structlog
from jwt.utils import base64url_decode, base64url_encode
from pydantic import (
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    field_validator,
    model_validator,
)

from recall_server.domain.errors import AuthUnavailable, Invalid, RecallError
from recall_server.domain.ids import Namespace, namespace
from recall_server.domain.permissions import Scope, Signed
from recall_server.domain.text.cleaning import finite, no_number, unique_names, validator_message
from recall_server.integrations.webhook import Webhook, address_of

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
        object_pairs_hook=unique_names,
        parse_constant=no_number,
        parse_float=finite,
    )


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


Algorithm = Literal["EdDSA", "ES256", "PS256", "RS256"]
Text = Annotated[str, Field(min_length=1, max_length=1_024)]

OURS = "recall"
ACCESS_TOKEN = "at+jwt"  # noqa: S105  # RFC 9068
FILE_BYTES_MAX = 1_048_576


class Issuer(BaseModel):
    """One identity provider. `name` is the prefix of its users' accessors in the audit log and the
    logs.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[str, Field(pattern=r"^[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?$")]
    issuer: Text
    jwks_url: Text | None = None
    jwks_file: Path | None = None
    allow_private: bool = False
    """Whether `jwks_url` may have a private address and use plain HTTP."""
    algorithms: Annotated[tuple[Algorithm, ...], Field(min_length=1)]
    audience: Text | None = None
    """The audience of its tokens; by default this server's canonical MCP address."""
    typ: Text = ACCESS_TOKEN
    required_claims: dict[Text, Text] = Field(default_factory=dict)
    """Required claim values, which tell an access token from other tokens of the same issuer."""
    namespace_claim: Text
    namespaces: Annotated[dict[Text, str], Field(min_length=1)]
    """The namespace of each value of that claim; any other value opens none."""
    scope_claim: Text = "scope"
    scopes: Annotated[dict[Text, tuple[Scope, ...]], Field(min_length=1)]
    """Our scopes for each of its scopes; any other scope counts for none."""
    not_before: AwareDatetime | None = None
    """Tokens issued earlier are refused."""

    @field_validator("namespaces")
    @classmethod
    def _are_namespaces(cls, value: dict[str, str]) -> dict[str, str]:
        for one in value.values():
            try:
                namespace(one)
            except Invalid as error:
                raise ValueError(error.message) from None
        return value

    @field_validator("scopes")
    @classmethod
    def _are_single_scopes(cls, value: dict[str, Any]) -> dict[str, Any]:
        if any(
            not one.isascii() or not one.isprintable() or set(' "\\') & set(one) for one in value
        ):
            raise ValueError("a scope has no blanks, quotes or letters beyond ASCII (RFC 6749)")
        return value

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if (self.jwks_url is None) == (self.jwks_file is None):
            raise ValueError("give jwks_url or jwks_file, one of them")
        if self.issuer == OURS:
            raise ValueError("issuer: 'recall' is this server")
        if _short(self.typ) != ACCESS_TOKEN and not self.required_claims:
            raise ValueError(
                f"typ: other kinds than {ACCESS_TOKEN} need required_claims that tell an access "
                "token from an ID token"
            )
        return self

    def expected(self) -> Expected:
        return Expected(self.issuer, self.audience or "", self.typ, self.algorithms)

    def namespace_of(self, claims: Mapping[str, Any]) -> Namespace | None:
        """Return the namespace that these claims open, by exact match; None if there is none."""
        value = claims.get(self.namespace_claim)
        found = self.namespaces.get(value) if isinstance(value, str) else None
        return None if found is None else Namespace(found)

    def scopes_of(self, claims: Mapping[str, Any]) -> frozenset[Scope]:
        """Return our scopes for its own: blank-separated text (RFC 8693 4.2), or a list."""
        value = claims.get(self.scope_claim)
        names = value.split(" ") if isinstance(value, str) else value
        if not isinstance(names, list):
            return frozenset()
        granted = [self.scopes.get(one, ()) for one in names if isinstance(one, str)]
        return frozenset(scope for scopes in granted for scope in scopes)

    def too_old(self, issued_at: int) -> bool:
        return self.not_before is not None and issued_at < self.not_before.timestamp()

    def name_for(self, scope: Scope) -> str | None:
        """Return the issuer's scope that gives this scope of ours with the fewest others."""
        names = [one for one, ours in self.scopes.items() if scope in ours]
        return min(names, key=lambda one: (len(self.scopes[one]), one), default=None)


_FILE = TypeAdapter(list[Issuer])


def load_issuers(path: Path, canonical: str | None) -> tuple[Issuer, ...]:
    """Load the issuers of a file. `canonical` is the default audience. Raises `Invalid`, which
    names the fault and its place.
    """
    try:
        data = path.read_bytes()
        found = _FILE.validate_python(strict(data[:FILE_BYTES_MAX]))
    except OSError as error:
        raise _unusable(path, f"cannot be read ({error.strerror})") from None
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(map(str, fault["loc"]))
        raise _unusable(path, f"{where}: {validator_message(fault['msg'])}") from None
    except (ValueError, RecursionError) as error:
        raise _unusable(path, f"is not JSON ({error})") from None
    for what in ("name", "issuer"):
        if len({getattr(one, what) for one in found}) != len(found):
            raise _unusable(path, f"has two issuers with the same {what}")
    if not found:
        raise _unusable(path, "names no issuer")
    for number, one in enumerate(found):
        if one.audience is None and canonical is None:
            raise _unusable(
                path,
                f"{number}.audience: missing, and there is no RECALL_PUBLIC_URL to take its place. "
                "A token without an audience of ours is anybody's",
            )
    return tuple(
        one if one.audience else one.model_copy(update={"audience": canonical}) for one in found
    )


def _unusable(path: Path, why: str) -> Invalid:
    return Invalid(f"RECALL_ISSUERS_FILE: {path}: {why}.")


log = structlog.get_logger()

REFRESH = timedelta(minutes=10)
"""Age at which keys are fetched again in the background."""
WAIT = timedelta(minutes=20)
"""Age at which a call waits for new keys."""
LIFE = timedelta(hours=1)
"""Age at which keys are no longer used."""
COOLDOWN = timedelta(seconds=30)
"""Minimum time between two fetches."""

FETCH_S = 5.0
SET_BYTES_MAX = 65_536
KEYS_MAX = 100
RSA_BITS_MIN = 2_048
_CURVES = {"EC": ("P-256", ("ES256",)), "OKP": ("Ed25519", ("EdDSA",))}
_SECRET = frozenset({"d", "k", "p", "q", "dp", "dq", "qi", "oth"})


class KeySet:
    def __init__(self, issuer: Issuer, now: Callable[[], datetime]) -> None:
        self._issuer = issuer
        self._now = now
        self._keys: dict[str, dict[str, jwt.PyJWK]] = {}
        self._fetched_at: datetime | None = None
        self._tried_at: datetime | None = None
        self._fetching: asyncio.Task[None] | None = None
        self._web: Webhook | None = None
        if issuer.jwks_url is not None:
            place = address_of(issuer.jwks_url)
            self._web = Webhook(allowed=[place] if issuer.allow_private else [], timeout_s=FETCH_S)

    async def key(self, kid: str, alg: str) -> jwt.PyJWK:
        """Return the key of this id. Raises `NotValid` if the issuer has none for `alg`, and
        `AuthUnavailable` if that cannot be known.
        """
        age = self._age()
        if kid not in self._keys or age is None or age >= WAIT:
            await self._refresh()
        elif age >= REFRESH:
            self._begin()
        age = self._age()
        if age is None or age >= LIFE or (kid not in self._keys and self._failed()):
            raise AuthUnavailable(retry_after_s=int(COOLDOWN.total_seconds()))
        found = self._keys.get(kid, {}).get(alg)
        if found is None:
            raise NotValid("no such key")
        return found

    async def close(self) -> None:
        if self._fetching is not None:
            self._fetching.cancel()
            await asyncio.wait({self._fetching})
        if self._web is not None:
            await self._web.close()

    def _age(self) -> timedelta | None:
        return None if self._fetched_at is None else self._now() - self._fetched_at

    def _failed(self) -> bool:
        return self._tried_at != self._fetched_at

    async def _refresh(self) -> None:
        """Fetch the keys, or wait for a running fetch, unless one was tried within `COOLDOWN`."""
        self._begin()
        if self._fetching is not None:
            # A cancelled caller must not cancel the fetch for others.
            await asyncio.shield(self._fetching)

    def _begin(self) -> None:
        now = self._now()
        if self._fetching is not None and not self._fetching.done():
            return
        if self._tried_at is None or not timedelta() <= now - self._tried_at < COOLDOWN:
            self._tried_at = now
            self._fetching = asyncio.create_task(self._fetch(now))

    async def _fetch(self, now: datetime) -> None:
        try:
            self._keys = keys_of(await self._load(), self._issuer.algorithms)
        except (RecallError, OSError, ValueError, RecursionError) as error:
            why = error.code if isinstance(error, RecallError) else str(error)
            log.warning("keys_not_fetched", issuer=self._issuer.name, reason=why)
        else:
            self._fetched_at = now
            log.info("keys_fetched", issuer=self._issuer.name, keys=len(self._keys))

    async def _load(self) -> bytes:
        if self._web is None:
            assert self._issuer.jwks_file is not None
            return await asyncio.to_thread(self._issuer.jwks_file.read_bytes)
        answer = await self._web.get(self._issuer.jwks_url or "", SET_BYTES_MAX)
        if answer.status != HTTPStatus.OK:
            raise ValueError(f"the answer is {answer.status}")
        return answer.body


def keys_of(data: bytes, algorithms: tuple[str, ...]) -> dict[str, dict[str, jwt.PyJWK]]:
    """Return the keys of a JWK Set that verify one of `algorithms`; other keys are left out.

    Raises `ValueError` if the set cannot be trusted as a whole: it contains a secret, or two keys
    with the same id.
    """
    document = strict(data) if len(data) <= SET_BYTES_MAX else None
    keys = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(keys, list) or not 0 < len(keys) <= KEYS_MAX:
        raise ValueError("it is no set of keys")
    found: dict[str, dict[str, jwt.PyJWK]] = {}
    named = set()
    for one in keys:
        if not isinstance(one, dict) or one.get("kty") == "oct" or _SECRET & set(one):
            raise ValueError("a key in it is none that may be shown")
        kid = one.get("kid")
        if not isinstance(kid, str) or not 0 < len(kid) <= KID_CHARS_MAX:
            continue
        if kid in named:
            raise ValueError("two keys in it have the same name")
        named.add(kid)
        good_for = [alg for alg in _algorithms(one) if alg in algorithms]
        if good_for and one.get("use", "sig") == "sig":
            found[kid] = {alg: _key(one, alg) for alg in good_for}
    return found


def _algorithms(one: dict[str, Any]) -> tuple[str, ...]:
    kty, alg = one.get("kty"), one.get("alg")
    if kty == "RSA":
        possible: tuple[str, ...] = ("RS256", "PS256")
    else:
        curve, possible = _CURVES.get(str(kty), ("", ()))
        if one.get("crv") != curve:
            return ()
    return possible if alg is None else tuple(each for each in possible if each == alg)


def _key(one: dict[str, Any], alg: str) -> jwt.PyJWK:
    try:
        key = jwt.PyJWK(one, alg)
    except (jwt.PyJWTError, TypeError, KeyError) as error:
        raise ValueError("a key in it cannot be read") from error
    if getattr(key.key, "key_size", RSA_BITS_MIN) < RSA_BITS_MIN and one["kty"] == "RSA":
        raise ValueError("a key in it is too short")
    return key


def check_issuer(issuer: Issuer) -> None:
    """Check that the issuer's keys can be used: a readable file, or an allowed address. Raises
    `Invalid`.
    """
    try:
        if issuer.jwks_file is not None:
            keys_of(issuer.jwks_file.read_bytes(), issuer.algorithms)
        elif issuer.jwks_url is not None:
            address_of(issuer.jwks_url)
    except (RecallError, OSError, ValueError) as error:
        raise _unusable_keys(issuer, str(error)) from None
    url = issuer.jwks_url
    if url is not None and not issuer.allow_private and not url.startswith("https://"):
        raise _unusable_keys(issuer, "jwks_url must begin with https://")


def _unusable_keys(issuer: Issuer, why: str) -> Invalid:
    return Invalid(f"RECALL_ISSUERS_FILE: the keys of {issuer.name}: {why.rstrip('.')}.")
