"""Cursors: where a listing goes on, for the caller that was listing and for no other.

The database is not asked about them, so that any server with the same key knows them.
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
    """The kind of the things listed, the caller, and all that was asked but the size of a page."""

    kind: str
    context: Context
    query: Mapping[str, Any]

    @property
    def digest(self) -> str:
        caller = [self.context.namespace, self.context.entry.accessor or ""]
        described = [self.kind, *caller, dict(self.query)]
        return hashlib.sha256(json.dumps(described, default=str).encode()).hexdigest()


class Cursors:
    """Sealed and read with a key of 32 bytes. They hold for `LIFE`."""

    def __init__(self, secret: bytes, now: Callable[[], datetime]) -> None:
        self._fernet = Fernet(base64.urlsafe_b64encode(secret))
        self._now = now

    def sealed(self, listing: Listing, place: Sequence[str] | None) -> str | None:
        """The cursor of the page behind `place`; None where there is none."""
        if place is None:
            return None
        content = json.dumps([listing.digest, *place]).encode()
        return self._fernet.encrypt_at_time(content, int(self._now().timestamp())).decode()

    def place(self, listing: Listing, cursor: str) -> list[str]:
        """Where `listing` goes on; nowhere, on its first page, without a cursor. Raises
        `InvalidCursor`, in the same words whatever is wrong with it.
        """
        if not cursor:
            return []
        if len(cursor) > CHARS_MAX:
            raise InvalidCursor
        try:
            now = int(self._now().timestamp())
            content = self._fernet.decrypt_at_time(cursor, int(LIFE.total_seconds()), now)
            # One cursor has one spelling: base64 has several, and passes over what is none.
            exact = base64.urlsafe_b64encode(base64.urlsafe_b64decode(cursor)).decode() == cursor
        except (InvalidToken, ValueError):
            raise InvalidCursor from None
        digest, *place = map(str, json.loads(content))
        if not exact or digest != listing.digest:
            raise InvalidCursor
        return place
