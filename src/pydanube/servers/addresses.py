"""What clients are told about where the broker is."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from pydanube.servers.config import ListenConfig

EVERYWHERE = {"", "0.0.0.0", "::"}  # noqa: S104  # Looked for, not listened on.


@dataclass(frozen=True, slots=True, kw_only=True)
class Addresses:
    """URLs with a scheme and a port: some clients understand nothing less."""

    broker_url: str
    """Which broker it is."""
    connect_url: str
    """Where clients connect; another one only if there is a proxy in between."""

    @property
    def is_behind_proxy(self) -> bool:
        """Whether clients have to tell a proxy which broker they mean."""
        return self.broker_url != self.connect_url


def addresses_of(
    host: str, port: int, *, advertised_url: str, connect_url: str
) -> Addresses:
    """What clients are told of a broker that listens on *host* and *port*."""
    broker_url = advertised_url or url_of(host, port)
    return Addresses(broker_url=broker_url, connect_url=connect_url or broker_url)


def url_of(host: str, port: int) -> str:
    """
    Where others reach us if we listen on *host* and *port*.

    If that is every address it is the machine's name, by which other machines
    usually find it.
    """
    if host in EVERYWHERE:
        host = socket.gethostname()
    return f"http://{in_url(host)}:{port}"


def http_hosts_of(listens: ListenConfig) -> list[str]:
    """Return the names with which requests to the HTTP port may name the broker."""
    urls = (listens.advertised_url, listens.connect_url)
    return [
        *(name.strip() for name in listens.http_hosts.split(",")),
        *(urlsplit(url).hostname or "" for url in urls),
        listens.host,
        socket.gethostname(),
    ]


def in_url(host: str) -> str:
    """*host* as it stands in a URL."""
    return f"[{host}]" if ":" in host else host
