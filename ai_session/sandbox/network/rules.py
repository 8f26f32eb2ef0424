"""Which names, ports and addresses a box may reach. An empty list allows nothing. No I/O."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable

from ai_session.errors import ConfigInvalid

SSH_PORT = 22
"""The one port whose traffic need not be TLS, if the list of ports includes it."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_HOST = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(?:\.{_LABEL})*\Z")
_NUMERIC = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)\Z")
"""A name that ends in a number: some resolvers read ``127.1``, ``0x7f.1`` and ``2130706433`` as addresses."""

_TRANSLATED = ipaddress.ip_network("64:ff9b::/96")
_REFUSED = tuple(
    ipaddress.ip_network(network)
    for network in (
        "::/96",  # IPv4-compatible
        "::ffff:0:0/96",  # IPv4-mapped
        "64:ff9b:1::/48",  # translation inside one's own network
        "2001::/32",  # Teredo
        "2002::/16",  # 6to4
        "192.88.99.0/24",
        "192.0.0.0/24",  # protocols, and a cloud's metadata
        "fec0::/10",  # site-local
        "168.63.129.16/32",  # metadata of a cloud, at a public address
    )
)


def is_address(name: str) -> bool:
    """Report whether some program could read ``name`` as an address."""
    return _NUMERIC.match(name) is not None


class Refused(Exception):
    """A connection that is not allowed. The message says why and fits in a header line."""


class NetworkRules:
    """The names (``pypi.org``), suffixes (``*.pypi.org``, without ``pypi.org`` itself) and ports that may be reached.

    Addresses that are not public are never reached, whatever name resolves to them, unless ``private`` (addresses or
    networks) includes them. The constructor raises ConfigInvalid for an invalid name, suffix, address or port.
    """

    def __init__(self, domains: Iterable[str], ports: Iterable[int] = (80, 443), private: Iterable[str] = ()) -> None:
        names = [domain.strip().lower().removesuffix(".") for domain in domains]
        for name in names:
            if not name.isascii() or not _HOST.match(name.removeprefix("*.")):
                raise ConfigInvalid(
                    f"not a domain: {name!r}", suggestion="write pypi.org or *.pypi.org; other alphabets as xn--…"
                )
        self._exact = frozenset(name for name in names if not name.startswith("*."))
        self._suffixes = tuple(name[1:] for name in names if name.startswith("*."))
        self._ports = frozenset(ports)
        if not all(0 < port < 65536 for port in self._ports):
            raise ConfigInvalid("a port is 1 to 65535", suggestion="write ports = [80, 443]")
        try:
            self._private = tuple(ipaddress.ip_network(network) for network in private)
        except ValueError as error:
            raise ConfigInvalid(str(error), suggestion="write an address or a network: 10.1.2.0/24") from None

    def name(self, host: str, port: int) -> str:
        """Return ``host`` in the form in which it is compared: lower case, without a final dot.

        Raises Refused if it is not a plain host name, is an address in disguise, or the port is not listed.
        """
        name = host.lower().removesuffix(".")
        if not host.isascii() or not _HOST.match(name):
            raise Refused("not a plain host name")
        if is_address(name) and name not in self._exact:
            raise Refused(f"{name} is an address, not a name")
        if port not in self._ports:
            raise Refused(f"port {port} is not allowed")
        return name

    def lists(self, name: str) -> bool:
        """Report whether a name, as ``name`` returns it, is listed."""
        return name in self._exact or (bool(self._suffixes) and name.endswith(self._suffixes))

    def reachable(self, address: str) -> bool:
        """Report whether an address to which an allowed name resolves may be dialled."""
        ip: Address = ipaddress.ip_address(address.partition("%")[0])
        if any(ip in network for network in self._private):
            return True
        if ip in _TRANSLATED:
            return self.reachable(str(ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)))
        ordinary = ip.is_global and not (ip.is_multicast or ip.is_reserved or ip.is_link_local)
        return ordinary and not any(ip in network for network in _REFUSED)
