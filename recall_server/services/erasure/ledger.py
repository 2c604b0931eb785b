"""The ledger: a file outside of the database with all erasures, so that no backup undoes one.

Each erasure is a line with its id in the clear and the request sealed, because the name in it must
be destroyed. The line is made with the erasure and written to the file before its purge: an erasure
is done when the file has it. A database that does not know all erasures of the file is an older
one.
"""

import asyncio
import base64
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography.fernet import Fernet, InvalidToken

from recall_server.domain.erasure import Kind
from recall_server.domain.errors import DatabaseUnusable, Unavailable
from recall_server.domain.ids import Namespace
from recall_server.domain.permissions import ACCESS_SCOPE, FULL_ACCESS, AccessScope
from recall_server.integrations.audit_files import AppendedFile
from recall_server.storage.store import Store

# The purpose for which the key is derived.
PURPOSE = "ledger"
SETTING = "RECALL_ERASURE_FILE"
_LINE = re.compile(r"(ers_[0-9a-z]{1,64}) [A-Za-z0-9_=-]+", re.ASCII)


@dataclass(frozen=True)
class Noted:
    """An erasure as it was asked for. `what`: the id of a memory, a subject or a container.
    `scope`: the access scope of the caller.
    """

    id: str
    namespace: Namespace
    kind: Kind
    what: str
    scope: AccessScope = FULL_ACCESS


class Ledger:
    """Seals requests with a key of 32 bytes, and notes them in the file at `path`, if any."""

    def __init__(self, secret: bytes, path: Path | None) -> None:
        self._fernet = Fernet(base64.urlsafe_b64encode(secret))
        self._path = path

    def sealed(self, noted: Noted) -> str:
        scope = ACCESS_SCOPE.dump_python(noted.scope, mode="json")
        document = json.dumps([noted.id, noted.namespace, noted.kind, noted.what, scope])
        return f"{noted.id} {self._fernet.encrypt(document.encode()).decode()}"

    def opened(self, line: str) -> Noted:
        """Return the erasure of a line. Raises `DatabaseUnusable` if it cannot be read."""
        erasure_id, _, sealed = line.partition(" ")
        try:
            # Lines of older releases have no scope.
            id_, namespace, kind, what, *scope = json.loads(self._fernet.decrypt(sealed))
        except (InvalidToken, ValueError):
            id_, namespace, kind, what, scope = "", "", "", "", []
        if id_ != erasure_id:
            raise DatabaseUnusable(
                f"{self._path}: the line of {erasure_id} was changed, or another server has "
                f"written it. Point {SETTING} at the file that this server has written."
            )
        asked = map(ACCESS_SCOPE.validate_python, scope)
        return Noted(id_, Namespace(namespace), Kind(kind), what, *asked)

    async def note(self, lines: Sequence[str]) -> None:
        """Append the lines that the file does not have. Raises `Unavailable` if it is not certain
        that they are written.
        """
        if self._path is None:
            return
        known = await asyncio.to_thread(self._lines)
        new = [line for line in lines if line.partition(" ")[0] not in known]
        if new:
            # Begin with a line break: a full disk may have cut the last line off.
            text = "".join(f"\n{line}" for line in new) + "\n"
            await asyncio.to_thread(AppendedFile(self._path, SETTING).append, text.encode())

    async def unknown(self, store: Store) -> list[Noted]:
        """Return the erasures that the database does not know, in the order of the file. Raises
        `DatabaseUnusable` if the line of one cannot be read.
        """
        lines = await asyncio.to_thread(self._lines)
        if not lines:
            return []
        known = await store.autocommit(None).erasures.known(list(lines))
        return [self.opened(line) for id_, line in lines.items() if id_ not in known]

    async def require(self, store: Store) -> None:
        """Raise `DatabaseUnusable` if the database is from before an erasure."""
        unknown = await self.unknown(store)
        if unknown:
            raise DatabaseUnusable(
                f"{self._path} names {len(unknown)} erasures that the database does not know of, "
                f"such as {unknown[0].id}: it was restored from a backup, and holds again what was "
                "erased. Erase it again with `recall restore-backup`, which records that it was "
                "meant, or with `recall erase-again`."
            )

    def _lines(self) -> dict[str, str]:
        """Return the lines of the file by the ids of their erasures."""
        if self._path is None:
            return {}
        try:
            text = self._path.read_text("ascii", "replace")
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise Unavailable(
                f"{SETTING}: {self._path} cannot be read ({error.strerror})."
            ) from None
        found = (_LINE.fullmatch(line.strip()) for line in text.splitlines())
        return {match[1]: match[0] for match in found if match}
