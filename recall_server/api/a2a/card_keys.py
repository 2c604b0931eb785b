"""The private keys that sign the card, out of a PEM file; several while one follows another."""

import re
from dataclasses import dataclass, field
from pathlib import Path

from a2a.types import AgentCard
from a2a.utils.signing import create_agent_card_signer
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from jwt import PyJWK
from jwt.algorithms import ECAlgorithm, OKPAlgorithm

from recall_server.domain.errors import Invalid
from recall_server.integrations.crypto.keys import thumbprint

# OpenSSL writes the curve in a block of its own beside the key, and people add certificates.
_PRIVATE = re.compile(rb"-----BEGIN ([A-Z ]*PRIVATE KEY)-----.*?-----END \1-----", re.DOTALL)


@dataclass(frozen=True)
class CardKey:
    """`public` is the JSON Web Key that verifies what the private key signs."""

    public: dict[str, str]
    private: PyJWK = field(repr=False)

    @property
    def kid(self) -> str:
        return self.public["kid"]

    def sign(self, card: AgentCard, jku: str) -> None:
        """Add a JWS over the card's canonical form (RFC 7515, RFC 8785; A2A 8.4)."""
        sign = create_agent_card_signer(
            self.private,
            {"alg": self.public["alg"], "kid": self.kid, "typ": "JOSE", "jku": jku},
        )
        sign(card)


def card_keys(path: Path) -> tuple[CardKey, ...]:
    """All keys of the file, in its order. Raises `Invalid` where one of them cannot be used."""
    try:
        blocks = [match[0] for match in _PRIVATE.finditer(path.read_bytes())]
    except OSError as error:
        raise _unusable(path, f"cannot be read ({error.strerror})") from None
    if not blocks:
        raise _unusable(path, "holds no private key in PEM")
    keys = [_key(path, block) for block in blocks]
    # A key that stands twice signs once.
    return tuple({key.kid: key for key in keys}.values())


def _key(path: Path, block: bytes) -> CardKey:
    try:
        key = load_pem_private_key(block, None)
    except TypeError:
        raise _unusable(path, "is encrypted, and no password can be asked for") from None
    except (ValueError, UnsupportedAlgorithm):
        raise _unusable(path, "holds a private key that cannot be read") from None
    if isinstance(key, Ed25519PrivateKey):
        alg = "EdDSA"
        private, public = (OKPAlgorithm.to_jwk(k, True) for k in (key, key.public_key()))
    elif isinstance(key, EllipticCurvePrivateKey) and isinstance(key.curve, SECP256R1):
        alg = "ES256"
        private, public = (ECAlgorithm.to_jwk(k, True) for k in (key, key.public_key()))
    else:
        raise _unusable(path, "holds a key of another kind than Ed25519 or EC P-256")
    shown: dict[str, str] = {**public}
    return CardKey(
        {**shown, "kid": thumbprint(shown), "alg": alg, "use": "sig"}, PyJWK(private, alg)
    )


def _unusable(path: Path, why: str) -> Invalid:
    return Invalid(
        f"RECALL_CARD_KEY_FILE: {path} {why}. "
        "Make one with 'openssl genpkey -algorithm ed25519 -out card.pem'."
    )
