"""Sends requests to addresses that callers name: public ones only, resolved once, checked, and
connected to as checked. No redirects, cookies, proxies or kept connections.
"""

from __future__ import annotations

import asyncio
import math
import re
import socket
import ssl
import threading
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Hashable,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from http import HTTPStatus
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import Any

import httpcore2
import httpx2

from recall_server.domain.errors import Invalid, PushFailed, PushUrlRefused
from recall_server.domain.fairness import FairSemaphore

Address = IPv4Address | IPv6Address

_RESERVED = tuple(
    map(
        IPv4Network,
        (
            "0.0.0.0/8",
            "10.0.0.0/8",
            "100.64.0.0/10",
            "127.0.0.0/8",
            "168.63.129.16/32",  # Azure's own services: a public address that answers inside only
            "169.254.0.0/16",
            "172.16.0.0/12",
            "192.0.0.0/24",
            "192.0.2.0/24",
            "192.88.99.0/24",
            "192.168.0.0/16",
            "198.18.0.0/15",
            "198.51.100.0/24",
            "203.0.113.0/24",
            "224.0.0.0/4",
            "240.0.0.0/4",
        ),
    )
)
# This block excludes loopback, link-local, unique-local and multicast addresses, and those that
# embed an IPv4 address (mapped, compatible, NAT64).
_UNICAST = IPv6Network("2000::/3")
_RESERVED_UNICAST = tuple(
    map(
        IPv6Network,
        (
            "2001::/23",  # protocol assignments, Teredo among them
            "2001:db8::/32",
            "2002::/16",  # 6to4
            "3fff::/20",
        ),
    )
)

_PORT = re.compile(r"(.+):([0-9]{1,5})", re.ASCII)
_NAME = re.compile(r"[a-z0-9._-]{1,253}|\[[0-9a-f:.]{2,45}\]", re.ASCII)


def is_public(address: Address) -> bool:
    if isinstance(address, IPv4Address):
        return not any(address in block for block in _RESERVED)
    return (
        address.scope_id is None
        and address in _UNICAST
        and not any(address in block for block in _RESERVED_UNICAST)
    )


class Exempt:
    """Addresses that are allowed although they are not public, or do not use TLS: hosts,
    `host:port` or CIDR blocks. An IPv6 host is in brackets. Raises `Invalid` on anything else.
    """

    def __init__(self, entries: Sequence[str]) -> None:
        self._blocks: list[IPv4Network | IPv6Network] = []
        self._ports: dict[str, set[int] | None] = {}
        for entry in filter(None, (entry.strip().lower() for entry in entries)):
            if "/" in entry:
                self._blocks.append(_block(entry))
            else:
                self._add_host(entry)

    def _add_host(self, entry: str) -> None:
        with_port = _PORT.fullmatch(entry)
        name = with_port[1] if with_port else entry
        if not _NAME.fullmatch(name):
            raise _malformed(entry)
        if with_port is None:
            self._ports[name] = None
        elif (ports := self._ports.setdefault(name, set())) is not None:
            ports.add(int(with_port[2]))

    def host(self, host: str, port: int) -> bool:
        """Whether the host is listed, by itself or with this port."""
        if host not in self._ports:
            return False
        ports = self._ports[host]
        return ports is None or port in ports

    def addresses(self, addresses: Collection[Address]) -> bool:
        """Whether every address is in a listed block."""
        return all(any(address in block for block in self._blocks) for address in addresses)


def _block(entry: str) -> IPv4Network | IPv6Network:
    try:
        return ip_network(entry, strict=False)
    except ValueError:
        raise _malformed(entry) from None


def _malformed(entry: str) -> Invalid:
    return Invalid(
        f"RECALL_PUSH_ALLOWED_HOSTS: {entry!r} is neither a host, nor host:port, nor a CIDR block."
    )


def parsed(text: str) -> Address | None:
    """Parse an IP address; None if `text` is a name."""
    try:
        return ip_address(text)
    except ValueError:
        return None


# The bytes that a receiver may send before the body of its answer. The event loop parses them:
# 100,000 bytes of empty headers, or interim answers without end, would keep it.
HEAD_BYTES_MAX = 16_384
# Bytes that are parsed in one step of the event loop.
READ_BYTES_MAX = 16_384


class _Bounded(httpcore2.AsyncNetworkBackend):
    """Connections that fail once `bytes_max` have been read from them."""

    def __init__(self, bytes_max: int) -> None:
        self._network = httpcore2.AnyIOBackend()
        self._bytes_max = bytes_max

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  # the signature of the library
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        stream = await self._network.connect_tcp(
            host, port, timeout=timeout, local_address=local_address, socket_options=socket_options
        )
        return _BoundedStream(stream, self._bytes_max)


class _BoundedStream(httpcore2.AsyncNetworkStream):
    def __init__(self, stream: httpcore2.AsyncNetworkStream, bytes_max: int) -> None:
        self._stream = stream
        self._left = bytes_max

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        if not self._left:
            raise httpcore2.ReadError("the receiver sends too much")
        read = await self._stream.read(min(max_bytes, self._left, READ_BYTES_MAX), timeout)
        self._left -= len(read)
        return read

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> httpcore2.AsyncNetworkStream:
        stream = await self._stream.start_tls(ssl_context, server_hostname, timeout)
        return _BoundedStream(stream, self._left)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
"""Resolves a host; raises `OSError` if there is none."""

URL_CHARS_MAX = 2_048
# The only ports without an exemption: others may be services that do not expect HTTP.
PORTS = frozenset({443, 8443})
ADDRESSES_MAX = 3
# The longest pause that a receiver may ask for.
PAUSE_MAX = timedelta(minutes=30)

# A subset of RFC 3986, parsed only here: two parsers of one URL may find two hosts. No userinfo, no
# escapes in the host, no backslash, no fragment.
_URL = re.compile(
    r"(?P<scheme>https?)://"
    r"(?P<host>[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?|\[[0-9A-Fa-f:.]{2,45}\])"
    r"(?::(?P<port>[1-9][0-9]{0,4}))?"
    r"(?P<target>(?:[/?][\x21\x22\x24-\x5b\x5d-\x7e]*)?)",
    re.ASCII,
)
# Some resolvers read 2130706433, 0x7f.1, 127.1 and 0177.0.0.1 as 127.0.0.1.
_NUMBER = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)", re.ASCII)


@dataclass(frozen=True)
class Answer:
    """A receiver's answer; `retry_after_s` is the wait it asked for, in seconds."""

    status: int
    retry_after_s: float | None = None
    body: bytes = field(default=b"", repr=False)

    @property
    def taken(self) -> bool:
        return HTTPStatus.OK <= self.status < HTTPStatus.MULTIPLE_CHOICES


@dataclass(frozen=True)
class _Request:
    """`read_max`: bytes of the answer's body to read; 0 leaves it unread. `before` is awaited after
    connecting to the receiver and before anything is sent.
    """

    method: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    read_max: int = 0
    before: Callable[[], Awaitable[None]] | None = None


@dataclass(frozen=True)
class _Target:
    scheme: str
    host: str
    port: int
    path: str
    authority: str

    @property
    def name(self) -> str:
        return self.host.strip("[]")


class Webhook:
    """Sends requests, each within `timeout_s` from the lookup to the end of the answer.

    At most `lookups` names are looked up at once, of one tenant at most `tenant_lookups`, each
    within `lookup_s`: a name server that does not answer delays only its own tenant. The hosts
    `allowed` may be private or use plain HTTP: see `Exempt`. `tls` verifies certificates; by
    default the system's trust store.
    """

    def __init__(
        self,
        *,
        allowed: Sequence[str] = (),
        timeout_s: float = 15.0,
        lookup_s: float = 5.0,
        lookups: int = 8,
        tenant_lookups: int = 2,
        resolve: Resolver | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.timeout_s = timeout_s
        self._lookup_s = lookup_s
        self._slots = FairSemaphore(lookups, per_key=min(tenant_lookups, max(1, lookups - 1)))
        self._lookups: set[asyncio.Future[Sequence[str]]] = set()
        self._exempt = Exempt(allowed)
        self._resolve = resolve or _resolved
        self._tls = tls

    async def check_url(self, url: str, *, tenant: Hashable = None) -> None:
        """Raise `PushUrlRefused` if `url`, as its name resolves now, is not allowed.

        An unknown name and a private one get the same message: the answer must not reveal internal
        names.
        """
        target = _target(url)
        try:
            async with asyncio.timeout(self.timeout_s):
                await self._addresses(target, tenant)
        except (OSError, UnicodeError):  # a TimeoutError is an OSError
            raise PushUrlRefused from None

    async def post(
        self,
        url: str,
        body: bytes,
        headers: Mapping[str, str],
        *,
        tenant: Hashable = None,
        before: Callable[[], Awaitable[None]] | None = None,
    ) -> Answer:
        """Send `body` and return the answer, whatever its status; its body is not read. `before` is
        awaited right before sending: if it raises, the error is passed on and nothing was sent.

        Raises `PushUrlRefused` if the name now resolves to a forbidden address, and `PushFailed` if
        there is no answer.
        """
        return await self._exchange(url, _Request("POST", headers, body, before=before), tenant)

    async def get(self, url: str, bytes_max: int) -> Answer:
        """Return the answer of `url`, with the body if the status is 200. Raises as `post` does,
        and `PushFailed` on a body of more than `bytes_max`.
        """
        return await self._exchange(url, _Request("GET", read_max=bytes_max))

    async def _exchange(self, url: str, request: _Request, tenant: Hashable = None) -> Answer:
        target = _target(url)
        try:
            async with asyncio.timeout(self.timeout_s):
                addresses = await self._addresses(target, tenant)
                return await self._send(target, addresses[:ADDRESSES_MAX], request)
        except TimeoutError:
            raise PushFailed("The receiver did not answer in time.") from None
        except (OSError, UnicodeError) as error:
            raise PushFailed("The receiver's name cannot be looked up.") from error
        except _FAILURES as error:
            raise PushFailed("The receiver cannot be reached or does not speak HTTP.") from error

    async def close(self) -> None:
        for lookup in self._lookups:
            lookup.cancel()

    async def _trusting(self) -> ssl.SSLContext:
        # On first use: reading the system's certificates takes longer than the rest of a start, and
        # too long for the event loop.
        if self._tls is None:
            self._tls = await asyncio.to_thread(httpx2.create_ssl_context, trust_env=False)
        return self._tls

    async def _looked_up(self, target: _Target, tenant: Hashable) -> Sequence[str]:
        async with asyncio.timeout(self._lookup_s):
            await self._slots.acquire(tenant)
            lookup = asyncio.ensure_future(self._resolve(target.name, target.port))
            self._lookups.add(lookup)

            def over(_: object) -> None:
                self._lookups.discard(lookup)
                self._slots.release(tenant)
                if not lookup.cancelled():
                    lookup.exception()  # nobody may be waiting for it any more

            # The lookup holds its slot until it has ended, even if its caller has given up.
            lookup.add_done_callback(over)
            return await asyncio.shield(lookup)

    async def _addresses(self, target: _Target, tenant: Hashable) -> Sequence[Address]:
        """Return all addresses of the host; each of them is allowed. Raises `PushUrlRefused`."""
        literal = parsed(target.name)
        if literal is not None:
            found = [literal]
        else:
            resolved = await self._looked_up(target, tenant)
            found = [address for address in map(parsed, resolved) if address is not None]
        if not found:
            raise OSError("no address")
        if self._exempt.host(target.host, target.port) or self._exempt.addresses(found):
            return found
        if target.scheme != "https":
            raise PushUrlRefused("The URL must begin with https://.")
        if target.port not in PORTS:
            raise PushUrlRefused("The URL may name no port but 443 and 8443.")
        if not all(map(is_public, found)):
            raise PushUrlRefused
        return found

    async def _send(
        self, target: _Target, addresses: Sequence[Address], request: _Request
    ) -> Answer:
        for address in addresses[:-1]:
            try:
                return await self._sent_to(address, target, request)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout):
                continue  # nothing was sent; the host has more addresses
        return await self._sent_to(addresses[-1], target, request)

    async def _sent_to(self, address: Address, target: _Target, asked: _Request) -> Answer:
        headers: list[tuple[bytes | str, bytes | str]] = [
            ("Host", target.authority),
            ("User-Agent", "recall-server"),
            ("Accept-Encoding", "identity"),
            *([("Content-Length", str(len(asked.body)))] if asked.body is not None else []),
            *asked.headers.items(),
        ]
        extensions = {
            # The certificate must match the name, whatever the address.
            "sni_hostname": target.name,
            "timeout": {"connect": self.timeout_s / ADDRESSES_MAX},
            **({"trace": _awaiting(asked.before)} if asked.before else {}),
        }
        url = httpcore2.URL(
            scheme=target.scheme.encode(),
            host=str(address).encode(),
            port=target.port,
            target=target.path.encode(),
        )
        # Twice the body: its chunks have lengths. Not a client, which would follow redirects, keep
        # cookies and read the environment. No connection is kept: the next one to the same address
        # may be for another name, with another certificate.
        network = _Bounded(HEAD_BYTES_MAX + 2 * asked.read_max)
        async with (
            httpcore2.AsyncConnectionPool(
                await self._trusting(), max_keepalive_connections=0, network_backend=network
            ) as connections,
            connections.stream(
                asked.method, url, headers=headers, content=asked.body, extensions=extensions
            ) as response,
        ):
            body = b""
            if asked.read_max and response.status == HTTPStatus.OK:
                async for part in response.aiter_stream():
                    body += part
                    if len(body) > asked.read_max:
                        raise PushFailed("The answer is too long.")
        return Answer(response.status, _pause_asked(response.headers), body)


_FAILURES = (
    httpcore2.NetworkError,
    httpcore2.ProtocolError,
    httpcore2.TimeoutException,
    httpcore2.UnsupportedProtocol,
)


def pause(pauses: Sequence[timedelta], failures: int, error: Exception) -> timedelta:
    """Return how long to wait before sending to a failed receiver again, after `failures` earlier
    failures: our back-off, or longer if the receiver asks for it, up to `PAUSE_MAX`.
    """
    grown = pauses[min(failures, len(pauses) - 1)]
    asked = error.retry_after_s if isinstance(error, PushFailed) else None
    return max(grown, timedelta(seconds=min(asked or 0.0, PAUSE_MAX.total_seconds())))


def address_of(url: str) -> str:
    """Return the host and port of a URL, as `Exempt` takes them. Raises `PushUrlRefused`."""
    target = _target(url)
    return f"{target.host}:{target.port}"


def _target(url: str) -> _Target:
    match = _URL.fullmatch(url) if len(url) <= URL_CHARS_MAX else None
    if match is None:
        raise PushUrlRefused(
            f"This is not a URL that can be used: https://HOST/PATH, at most {URL_CHARS_MAX} "
            "characters, percent-encoded, without user name, password and fragment."
        )
    host = match["host"].lower()
    bare = host.strip("[]")
    if (host.startswith("[") or _NUMBER.fullmatch(host)) and parsed(bare) is None:
        raise PushUrlRefused("The host is a number. Write it as a name.")
    port = int(match["port"] or (443 if match["scheme"] == "https" else 80))
    if port > 65_535:
        raise PushUrlRefused("There is no such port.")
    path = match["target"]
    return _Target(
        scheme=match["scheme"],
        host=host,
        port=port,
        path=path if path.startswith("/") else f"/{path}",
        authority=f"{host}:{match['port']}" if match["port"] else host,
    )


def _awaiting(before: Callable[[], Awaitable[None]]) -> Callable[[str, Any], Awaitable[None]]:
    async def trace(event: str, _: Any) -> None:
        if event.endswith("send_request_headers.started"):
            await before()

    return trace


async def _resolved(host: str, port: int) -> Sequence[str]:
    """Look a name up in a thread of its own: it may take minutes and cannot be cancelled."""
    loop = asyncio.get_running_loop()
    found: asyncio.Future[Sequence[str]] = loop.create_future()

    def done(addresses: Sequence[str], error: OSError | UnicodeError | None) -> None:
        if found.done():
            return
        if error is not None:
            found.set_exception(error)
        else:
            found.set_result(addresses)

    def look_up() -> None:
        addresses: Sequence[str] = ()
        failure: OSError | UnicodeError | None = None
        try:
            infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            addresses = list(dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in infos))
        except (OSError, UnicodeError) as error:
            failure = error
        with suppress(RuntimeError):  # the process has stopped meanwhile
            loop.call_soon_threadsafe(done, addresses, failure)

    # A daemon thread: the process does not wait for it at its end, as it would for a pool's.
    threading.Thread(target=look_up, name="lookup", daemon=True).start()
    return await found


def _pause_asked(headers: Sequence[tuple[bytes, bytes]]) -> float | None:
    """Parse `Retry-After` as a number of seconds; a date is ignored."""
    asked = [value for name, value in headers if name.lower() == b"retry-after"]
    try:
        seconds = float(b", ".join(asked))
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) and seconds > 0 else None
