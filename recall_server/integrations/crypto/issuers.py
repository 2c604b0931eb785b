"""Trusted identity providers: a file of the operator, read and checked at the start.

An issuer authenticates its users; the file maps claim values to namespaces and scopes one by one.
Nothing is taken from a token unchecked.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import jwt
import structlog
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
from recall_server.domain.namespace import Namespace, namespace
from recall_server.domain.permissions import Scope
from recall_server.domain.text.cleaning import validator_message
from recall_server.integrations.crypto.jwt import KID_CHARS_MAX, Expected, NotValid, strict
from recall_server.integrations.webhook import Webhook, address_of

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
        if self.typ.lower().removeprefix("application/") != ACCESS_TOKEN and (
            not self.required_claims
        ):
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


def load(path: Path, canonical: str | None) -> tuple[Issuer, ...]:
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
    """The keys of `issuer`, by key id and algorithm."""

    def __init__(self, issuer: Issuer, now: Callable[[], datetime]) -> None:
        self._issuer = issuer
        self._now = now
        self._keys: dict[str, dict[str, jwt.PyJWK]] = {}
        self._fetched_at: datetime | None = None
        self._tried_at: datetime | None = None
        self._fetching: asyncio.Task[None] | None = None
        self._web: Webhook | None = None
        self._load: Callable[[], Awaitable[bytes]] = self._fetched
        if issuer.jwks_file is not None:
            self._load = _contents(issuer.jwks_file)
        elif issuer.jwks_url is not None:
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
        """Whether the last fetch failed."""
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

    async def _fetched(self) -> bytes:
        assert self._web is not None
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


def _contents(path: Path) -> Callable[[], Awaitable[bytes]]:
    async def load() -> bytes:
        return await asyncio.to_thread(path.read_bytes)

    return load


def check(issuer: Issuer) -> None:
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
