"""An identity provider that listens on loopback, and tokens as an attacker would forge them."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key as rsa_key
from jwt.utils import base64url_encode

from tests.support.models import Reply
from tests.support.receivers import Receiver

PUBLIC_URL = "https://memory.example.com"
AUDIENCE = f"{PUBLIC_URL}/mcp"
SCOPES = {
    "read": ["memory:read"],
    "write": ["memory:read", "memory:write"],
    "all": ["memory:read", "memory:write", "memory:forget", "consolidate"],
}

Json = dict[str, Any]


@cache
def private(name: str, alg: str = "RS256") -> Any:
    """Return a key by its name: the same for the whole run, since finding an RSA key takes long."""
    if alg == "EdDSA":
        return Ed25519PrivateKey.generate()
    if alg == "ES256":
        return generate_private_key(SECP256R1())
    return rsa_key(65_537, 2_048)


def jwk(key: Any, kid: str, alg: str = "RS256", **other: Any) -> Json:
    shown = jwt.get_algorithm_by_name(alg).to_jwk(key.public_key(), as_dict=True)
    return {**shown, "kid": kid, "use": "sig", "alg": alg, **other}


def compact(header: Json | bytes, payload: Json | bytes | list[Any], key: Any, alg: str) -> str:
    """Return a JWS of exactly these bytes; without a signature if `key` is None."""
    parts = [
        base64url_encode(one if isinstance(one, bytes) else json.dumps(one).encode())
        for one in (header, payload)
    ]
    signed = b".".join(parts)
    proof = b"" if key is None else jwt.get_algorithm_by_name(alg).sign(signed, key)
    return (signed + b"." + base64url_encode(proof)).decode()


class Provider:
    """Issues tokens, and shows its keys over HTTP: those in `shown`."""

    def __init__(self, receiver: Receiver, now: datetime, name: str) -> None:
        self.receiver = receiver
        self.name = name
        self.issuer = f"https://{name}.example.com"
        self.now = int(now.timestamp())
        self.key = private(name)
        self.show([jwk(self.key, "k1")])

    def show(self, keys: list[Json]) -> None:
        self.answer(Reply(json.dumps({"keys": keys}).encode()))

    def answer(self, reply: Reply) -> None:
        self.receiver.otherwise = reply

    @property
    def fetches(self) -> int:
        return len(self.receiver.requests)

    def claims(self, **given: Any) -> Json:
        """Return the claims of a valid token; None leaves one out."""
        claims = {
            "iss": self.issuer,
            "aud": AUDIENCE,
            "sub": "ann@example.com",
            "iat": self.now,
            "exp": self.now + 3_600,
            "jti": "token-1",
            "tenant": "acme",
            "scope": "all",
        } | given
        return {name: value for name, value in claims.items() if value is not None}

    def header(self, **given: Any) -> Json:
        header = {"alg": "RS256", "kid": "k1", "typ": "at+jwt"} | given
        return {name: value for name, value in header.items() if value is not None}

    def token(self, header: Json | None = None, /, *, key: Any = None, **claims: Any) -> str:
        """Return a token that is valid except for the given claims."""
        said = self.header(**(header or {}))
        alg = said["alg"] if said.get("alg") in ("EdDSA", "ES256", "PS256", "RS256") else "RS256"
        return compact(said, self.claims(**claims), key or self.key, alg)

    def entry(self, **given: Any) -> Json:
        """Return the entry of the operator's file; None leaves a field out."""
        entry = {
            "name": self.name,
            "issuer": self.issuer,
            "jwks_url": f"http://{self.receiver.authority}/jwks",
            "allow_private": True,
            "algorithms": ["RS256"],
            "namespace_claim": "tenant",
            "namespaces": {"acme": "alice", "ACME-2": "bob", "nowhere": "nobody"},
            "scopes": SCOPES,
        } | given
        return {name: value for name, value in entry.items() if value is not None}


@asynccontextmanager
async def provider(now: datetime, name: str = "corp") -> AsyncIterator[Provider]:
    async with Receiver() as receiver:
        yield Provider(receiver, now, name)


def issuers_file(folder: Path, *entries: Mapping[str, Any]) -> Path:
    file = folder / "issuers.json"
    file.write_text(json.dumps(list(entries)))
    return file
