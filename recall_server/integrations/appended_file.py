"""Files of the operator's to which lines are appended, and that no database takes back."""

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from recall_server.domain.errors import Unavailable


@dataclass(frozen=True)
class AppendedFile:
    """Made so that its owner alone reads it; `setting` is the name under which it was given."""

    path: Path
    setting: str

    def append(self, text: bytes) -> None:
        """Add all of it, to the disk. Raises `Unavailable` where that is not certain."""
        try:
            file = os.open(
                self.path,
                os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK,
                0o600,
            )
            try:
                if not stat.S_ISREG(os.fstat(file).st_mode):
                    raise Unavailable(f"{self.setting}: {self.path} is not a file.")
                # One call, so that what another process appends is before or after it.
                if os.write(file, text) != len(text):
                    raise Unavailable(f"{self.setting}: the disk is full.")
                os.fsync(file)
            finally:
                os.close(file)
        except OSError as error:
            raise Unavailable(
                f"{self.setting}: {self.path} cannot be written ({error.strerror})."
            ) from None
