"""Secrets at rest: sealed with a key that is not in the database, for one place in it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from recall_server.domain.errors import Invalid
from recall_server.domain.external_errors import SecretKeyMissing, SecretUnreadable

_KEY = re.compile(r"[A-Za-z0-9_-]{43}=", re.ASCII)


class Sealer:
    """Seals with the first of `keys`, and opens what any of them sealed, so that keys can change:
    put the new one first, and drop the old one when nothing is left that it sealed.

    A key is 32 random bytes in URL-safe base64 (https://github.com/fernet/spec). Raises `Invalid`
    where one is not.
    """

    def __init__(self, keys: Sequence[str]) -> None:
        stripped = [key.strip() for key in keys if key.strip()]
        # The library stops reading at the first "=", and with it at a comma that was forgotten.
        if not all(_KEY.fullmatch(key) for key in stripped):
            raise Invalid(
                "RECALL_SECRET_KEY must be 32 bytes in URL-safe base64, or several such keys "
                'separated by commas. Make one with: python -c "from cryptography.fernet import '
                'Fernet; print(Fernet.generate_key().decode())"'
            )
        self._fernet = MultiFernet([Fernet(key) for key in stripped]) if stripped else None

    def require(self) -> None:
        """Raise `SecretKeyMissing` where nothing could be sealed."""
        if self._fernet is None:
            raise SecretKeyMissing

    def seal(self, secrets: Mapping[str, str], place: Sequence[str]) -> bytes:
        """Raises `SecretKeyMissing`."""
        if self._fernet is None:
            raise SecretKeyMissing
        return self._fernet.encrypt(json.dumps([list(place), dict(secrets)]).encode())

    def open(self, sealed: bytes, place: Sequence[str]) -> dict[str, str]:
        """What was sealed for `place`. Who may write to the database but has no key cannot have a
        secret sent elsewhere by moving it to another row.

        Raises `SecretKeyMissing`, or `SecretUnreadable` where no key fits or the place is another.
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
