"""A socket that listens, and lets go of the event loop while no file handle is to be had."""

import errno
import socket
from typing import Any

# As asyncio has it: it tries again a second later.
_SHORT = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


class Listener(socket.socket):
    """Says once that it cannot accept, and then that no connection waits to be accepted.

    asyncio goes on asking after the first, 2,048 times, and logs each; those who are connected
    already would wait for seconds (https://github.com/python/cpython/issues/151615).
    """

    _short = False

    def accept(self) -> tuple[socket.socket, Any]:
        """Raises `OSError`, `BlockingIOError` among them."""
        if self._short:
            self._short = False
            raise BlockingIOError
        try:
            return super().accept()
        except OSError as error:
            self._short = error.errno in _SHORT
            raise
