"""Append-only files of the operator, which a restore of the database does not reset."""

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from recall_server.domain.errors import Unavailable


@dataclass(frozen=True)
class AppendedFile:
    """A file that only its owner can read; `setting` is the name of the setting that holds its
    path.
    """

    path: Path
    setting: str

    def append(self, text: bytes) -> None:
        """Append all of `text` and sync it to disk. Raises `Unavailable` if that is not certain."""
        try:
            file = os.open(
                self.path,
                os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK,
                0o600,
            )
            try:
                if not stat.S_ISREG(os.fstat(file).st_mode):
                    raise Unavailable(f"{self.setting}: {self.path} is not a file.")
                # One call, so that the appends of two processes do not mix.
                if os.write(file, text) != len(text):
                    raise Unavailable(f"{self.setting}: the disk is full.")
                os.fsync(file)
            finally:
                os.close(file)
        except OSError as error:
            raise Unavailable(
                f"{self.setting}: {self.path} cannot be written ({error.strerror})."
            ) from None
