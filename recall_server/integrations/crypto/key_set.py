"""The public keys of one issuer (a JWK Set, RFC 7517): fetched seldom, cached, never mixed with
those of another issuer, and never fetched more often because of a caller's tokens.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from http import HTTPStatus
from pathlib import Path
from typing import Any

import jwt
import structlog

from recall_server.domain.errors import Invalid, RecallError
from recall_server.domain.external_errors import AuthUnavailable
from recall_server.integrations.crypto.issuers import Issuer
from recall_server.integrations.crypto.jwt import KID_CHARS_MAX, NotValid
from recall_server.integrations.http.webhook import Webhook, address_of
from recall_server.integrations.llm.strict_json import strict

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
        """Fetch the keys, or wait for a running fetch, unless one was tried just now."""
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
        raise _unusable(issuer, str(error)) from None
    url = issuer.jwks_url
    if url is not None and not issuer.allow_private and not url.startswith("https://"):
        raise _unusable(issuer, "jwks_url must begin with https://")


def _unusable(issuer: Issuer, why: str) -> Invalid:
    return Invalid(f"RECALL_ISSUERS_FILE: the keys of {issuer.name}: {why.rstrip('.')}.")
