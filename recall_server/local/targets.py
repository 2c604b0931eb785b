"""The servers that a program on this machine can use: the local one, or one at an address."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

import httpx2

from recall_server.config import LOOPBACK, is_address
from recall_server.domain.errors import Invalid
from recall_server.local.starting import Local, read_token


@dataclass(frozen=True)
class LocalServer:
    """The server of an SQLite file, which is started if none runs."""

    local: Local
    restart_s: ClassVar[float] = 5.0

    def address(self) -> str:
        return f"{self.local.address()}/mcp"

    def token(self) -> str:
        return self.local.token()

    def client(self) -> httpx2.AsyncClient:
        # Loopback needs neither certificates nor proxies, and loading them takes long. No
        # connection is kept: after a server was killed, a request on a kept connection may or may
        # not have been accepted.
        limits = httpx2.Limits(max_keepalive_connections=0)
        return httpx2.AsyncClient(verify=False, trust_env=False, limits=limits)


@dataclass(frozen=True)
class RemoteServer:
    """A server at an address; its token is in a file, or was given."""

    url: httpx2.URL
    token_file: Path | None
    given: str
    restart_s: ClassVar[float] = 0.0

    @classmethod
    def checked(cls, url: str, token_file: Path | None, given: str) -> Self:
        """Return the server at this address. Raises `Invalid` if the address is invalid or there is
        no token.
        """
        if not is_address(url):
            raise Invalid("--url must be an address such as https://memory.example.com/mcp.")
        if token_file is None and not given:
            raise Invalid(
                "A server elsewhere asks for a token. Name a file with --token-file, or set "
                "RECALL_TOKEN."
            )
        found = httpx2.URL(url)
        return cls(found.copy_with(path="/mcp") if found.path == "/" else found, token_file, given)

    def address(self) -> str:
        return str(self.url)

    def token(self) -> str:
        return read_token(self.token_file) if self.token_file else self.given

    def client(self) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(verify=self.url.host not in LOOPBACK)
