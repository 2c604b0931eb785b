"""The server's own key is made once, only its owner can read it, and it must be the one that the
database knows.
"""

import stat
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from recall_server.domain.errors import DatabaseUnusable, Invalid
from recall_server.integrations.keys import ServerKey
from tests.support.application import Open


def test_a_new_key_is_read_back_and_only_its_owner_can(tmp_path: Path) -> None:
    path = tmp_path / "recall.key"

    made = ServerKey.make(path)

    assert ServerKey.read(path).kid == made.kid
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [file.name for file in tmp_path.iterdir()] == ["recall.key"], "the draft is gone"


def test_who_comes_second_gets_the_key_of_who_came_first(tmp_path: Path) -> None:
    path = tmp_path / "recall.key"

    assert ServerKey.make(path).kid == ServerKey.make(path).kid


def test_what_it_signs_is_verified_with_its_public_half_and_no_other() -> None:
    key, other = (ServerKey.from_private(Ed25519PrivateKey.generate()) for _ in range(2))

    signed = key.sign({"a": 1}, "x+jwt")

    assert jwt.decode(signed, jwt.PyJWK(dict(key.public)), algorithms=["EdDSA"]) == {"a": 1}
    assert jwt.get_unverified_header(signed)["typ"] == "x+jwt"
    with pytest.raises(jwt.InvalidSignatureError):
        jwt.decode(signed, jwt.PyJWK(dict(other.public)), algorithms=["EdDSA"])


def test_derived_secrets_differ_by_purpose_and_by_key() -> None:
    key, other = (ServerKey.from_private(Ed25519PrivateKey.generate()) for _ in range(2))

    assert key.derive("a") == ServerKey.from_private(key.private).derive("a")
    assert len({key.derive("a"), key.derive("b"), other.derive("a")}) == 3


def test_the_private_half_is_not_shown_by_printing() -> None:
    key = ServerKey.from_private(Ed25519PrivateKey.generate())

    assert key.private.private_bytes_raw().hex() not in repr(key)
    assert "private" not in repr(key)


@pytest.mark.parametrize("content", [b"", b"-----BEGIN PRIVATE KEY-----\nAAAA"])
def test_a_file_without_a_key_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "recall.key"
    path.write_bytes(content)

    with pytest.raises(Invalid, match=r"recall\.key holds no private key"):
        ServerKey.read(path)


async def test_a_database_is_not_opened_with_the_key_of_another(
    open_app: Open, tmp_path: Path
) -> None:
    async with open_app(key_file=tmp_path / "right.key") as built:
        kid = built.key.kid
    ServerKey.make(tmp_path / "wrong.key")

    with pytest.raises(DatabaseUnusable, match=f"belongs to the key {kid}"):
        async with open_app(key_file=tmp_path / "wrong.key"):
            pass
    with pytest.raises(Invalid, match=r"lost\.key cannot be read"):
        async with open_app(key_file=tmp_path / "lost.key"):
            pass
    async with open_app(key_file=tmp_path / "right.key") as built:
        assert built.key.kid == kid
