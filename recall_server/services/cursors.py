"""Cursors: where a listing continues, usable only by the caller that began it.

They are not stored: any server with the same key can read them.
"""

import base64
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from cryptography.fernet import Fernet, InvalidToken

from recall_server.domain.context import Context
from recall_server.domain.errors import InvalidCursor

# The purpose for which their key is derived.
PURPOSE = "cursors"
LIFE = timedelta(hours=1)
CHARS_MAX = 2_048


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
    """Seals and reads cursors with a key of 32 bytes. A cursor is valid for `LIFE`."""

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
        if len(cursor) > CHARS_MAX:
            raise InvalidCursor
        try:
            now = int(self._now().timestamp())
            content = self._fernet.decrypt_at_time(cursor, int(LIFE.total_seconds()), now)
            # Accept one spelling only: base64 has several, and skips foreign characters.
            exact = base64.urlsafe_b64encode(base64.urlsafe_b64decode(cursor)).decode() == cursor
        except (InvalidToken, ValueError):
            raise InvalidCursor from None
        digest, *place = map(str, json.loads(content))
        if not exact or digest != listing.digest:
            raise InvalidCursor
        return place
