"""The server's key, which signs and from which other secrets are derived; and what is sealed with
secrets: credentials of receivers, and cursors, which any server with the same key can read.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Self

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from jwt.algorithms import OKPAlgorithm
from jwt.utils import base64url_encode

from recall_server.domain.context import Context
from recall_server.domain.errors import Invalid, InvalidCursor, SecretKeyMissing, SecretUnreadable

ALG = "EdDSA"
Jwk = Mapping[str, str]


@dataclass(frozen=True)
class ServerKey:
    """An Ed25519 key; `public` is the JSON Web Key that verifies its signatures."""

    public: Jwk
    private: Ed25519PrivateKey = field(repr=False)

    @classmethod
    def from_private(cls, private: Ed25519PrivateKey) -> Self:
        jwk: dict[str, str] = dict(OKPAlgorithm.to_jwk(private.public_key(), as_dict=True))
        return cls({**jwk, "kid": thumbprint(jwk), "alg": ALG, "use": "sig"}, private)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the key of a PEM file. Raises `Invalid` if there is no usable one."""
        try:
            key = load_pem_private_key(path.read_bytes(), None)
        except OSError as error:
            raise _unusable(path, f"cannot be read ({error.strerror})") from None
        except (TypeError, ValueError, UnsupportedAlgorithm):
            raise _unusable(path, "holds no private key in PEM without a password") from None
        if not isinstance(key, Ed25519PrivateKey):
            raise _unusable(path, "holds a key of another kind than Ed25519")
        return cls.from_private(key)

    @classmethod
    def make(cls, path: Path) -> Self:
        """Create a key in a new file that only its owner can read; return the existing one if
        another process was first.
        """
        key = Ed25519PrivateKey.generate()
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        # Linked into place when complete, so that no process reads half of it.
        draft = path.with_name(f"{path.name}.{os.getpid()}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                os.write(file, pem)
                os.fsync(file)
            finally:
                os.close(file)
            try:
                os.link(draft, path)
            except FileExistsError:
                return cls.read(path)
            finally:
                draft.unlink()
        except OSError as error:
            raise _unusable(path, f"cannot be made ({error.strerror})") from None
        return cls.from_private(key)

    @property
    def kid(self) -> str:
        """The key id (RFC 7638)."""
        return self.public["kid"]

    def sign(self, claims: Mapping[str, Any], typ: str) -> str:
        """Return a JWS of `claims` (RFC 7515). `typ` is its type, so that it cannot be used as
        another one (RFC 8725 3.11).
        """
        headers = {"kid": self.kid, "typ": typ}
        return jwt.encode(dict(claims), self.private, algorithm=ALG, headers=headers)

    def derive(self, purpose: str) -> bytes:
        """Return 32 secret bytes for one purpose, always the same for the same key (RFC 5869)."""
        secret = self.private.private_bytes_raw()
        return HKDF(SHA256(), 32, b"recall-server", purpose.encode()).derive(secret)


def verified(signed: str, public: Jwk, typ: str) -> dict[str, Any]:
    """Return the claims of a JWS of type `typ` that `public` verifies. Raises `Invalid`."""
    try:
        if jwt.get_unverified_header(signed).get("typ") != typ:
            raise Invalid(f"This is not a {typ}.")
        key = jwt.PyJWK({**public}, ALG)
        claims: dict[str, Any] = jwt.decode(
            signed, key, algorithms=[ALG], options={"verify_aud": False, "verify_iat": False}
        )
    except jwt.PyJWTError:
        raise Invalid(
            "The signature does not hold: it was changed, or another key has made it."
        ) from None
    return claims


def thumbprint(public: Jwk) -> str:
    """Return the RFC 7638 thumbprint, which is the same wherever the key is used."""
    required = {name: public[name] for name in ("kty", "crv", "x", "y") if name in public}
    canonical = json.dumps(required, sort_keys=True, separators=(",", ":"))
    return base64url_encode(hashlib.sha256(canonical.encode()).digest()).decode()


def _unusable(path: Path, why: str) -> Invalid:
    return Invalid(
        f"RECALL_KEY_FILE: {path} {why}. Put back the file that this server was set up with."
    )


_KEY = re.compile(r"[A-Za-z0-9_-]{43}=", re.ASCII)


class Sealer:
    """Seals with the first of `keys` and opens with any, so that keys can be rotated: put the new
    one first, and drop the old one when nothing is sealed with it any more.

    A key is 32 random bytes in URL-safe base64 (https://github.com/fernet/spec). Raises `Invalid`
    on any other.
    """

    def __init__(self, keys: Sequence[str]) -> None:
        stripped = [key.strip() for key in keys if key.strip()]
        # The library stops at the first "=", and so would not notice a missing comma.
        if not all(_KEY.fullmatch(key) for key in stripped):
            raise Invalid(
                "RECALL_SECRET_KEY must be 32 bytes in URL-safe base64, or several such keys "
                'separated by commas. Make one with: python -c "from cryptography.fernet import '
                'Fernet; print(Fernet.generate_key().decode())"'
            )
        self._fernet = MultiFernet([Fernet(key) for key in stripped]) if stripped else None

    def require(self) -> None:
        """Raise `SecretKeyMissing` if there is no key."""
        if self._fernet is None:
            raise SecretKeyMissing

    def seal(self, secrets: Mapping[str, str], place: Sequence[str]) -> bytes:
        """Encrypt `secrets` for `place`. Raises `SecretKeyMissing`."""
        if self._fernet is None:
            raise SecretKeyMissing
        return self._fernet.encrypt(json.dumps([list(place), dict(secrets)]).encode())

    def open(self, sealed: bytes, place: Sequence[str]) -> dict[str, str]:
        """Decrypt what was sealed for `place`. A secret that was moved to another row does not
        open, so write access to the database alone cannot redirect it.

        Raises `SecretKeyMissing`, or `SecretUnreadable` if no key fits or the place differs.
        """
        if self._fernet is None:
            raise SecretKeyMissing
        try:
            where, secrets = json.loads(self._fernet.decrypt(bytes(sealed)))
        except InvalidToken:
            raise SecretUnreadable from None
        if where != list(place):
            raise SecretUnreadable
        return dict(secrets)


# The purpose for which the key of cursors is derived.
CURSORS = "cursors"
CURSOR_LIFE = timedelta(hours=1)
CURSOR_CHARS_MAX = 2_048


@dataclass(frozen=True)
class Listing:
    """A listing that a cursor is bound to: its kind, the caller, and the query without the page
    size.
    """

    kind: str
    context: Context
    query: Mapping[str, Any]

    @property
    def digest(self) -> str:
        caller = [self.context.namespace, self.context.entry.accessor or ""]
        described = [self.kind, *caller, dict(self.query)]
        return hashlib.sha256(json.dumps(described, default=str).encode()).hexdigest()


class Cursors:
    """Seals and reads cursors with a key of 32 bytes. A cursor is valid for `CURSOR_LIFE`."""

    def __init__(self, secret: bytes, now: Callable[[], datetime]) -> None:
        self._fernet = Fernet(base64.urlsafe_b64encode(secret))
        self._now = now

    def sealed(self, listing: Listing, place: Sequence[str] | None) -> str | None:
        """Return the cursor of the page after `place`; None if there is no such page."""
        if place is None:
            return None
        content = json.dumps([listing.digest, *place]).encode()
        return self._fernet.encrypt_at_time(content, int(self._now().timestamp())).decode()

    def place(self, listing: Listing, cursor: str) -> list[str]:
        """Return the place where `listing` continues; an empty list without a cursor, for the first
        page. Raises `InvalidCursor`, in the same words whatever is wrong.
        """
        if not cursor:
            return []
        if len(cursor) > CURSOR_CHARS_MAX:
            raise InvalidCursor
        try:
            now = int(self._now().timestamp())
            content = self._fernet.decrypt_at_time(cursor, int(CURSOR_LIFE.total_seconds()), now)
            # Accept one spelling only: base64 has several, and skips foreign characters.
            exact = base64.urlsafe_b64encode(base64.urlsafe_b64decode(cursor)).decode() == cursor
        except (InvalidToken, ValueError):
            raise InvalidCursor from None
        digest, *place = map(str, json.loads(content))
        if not exact or digest != listing.digest:
            raise InvalidCursor
        return place
