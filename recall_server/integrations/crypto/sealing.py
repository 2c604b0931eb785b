"""Encrypts stored secrets with a key that is not in the database, bound to their row."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from recall_server.domain.errors import Invalid
from recall_server.domain.external_errors import SecretKeyMissing, SecretUnreadable

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
