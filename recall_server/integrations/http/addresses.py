"""The addresses that outgoing requests may use: public ones, and those that the operator allowed.

The reserved blocks are the IANA special-purpose registries'. `ipaddress.is_global` is not used: its
answer for 6to4, NAT64 and 192.0.0.0/24 changes with the Python version.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)

from recall_server.domain.errors import Invalid

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
# It excludes loopback, link-local, unique-local and multicast, and the blocks that embed an IPv4
# address (mapped, compatible, NAT64).
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
    """Whether the address is reachable on the public internet."""
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
