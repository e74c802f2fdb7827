"""The addresses of the broker for clients."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydanube.model.errors import InvalidConfig
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.security.addresses import host_in_url, is_loopback
from pydanube_broker.servers.settings.config import BrokerConfig, ListenConfig

ALL_ADDRESSES = {"", "0.0.0.0", "::"}  # noqa: S104  # Compared, not bound.


@dataclass(frozen=True, slots=True, kw_only=True)
class Addresses:
    """The broker's URLs, with scheme and port as some clients require."""

    broker_url: str
    """The URL that identifies the broker."""
    connect_url: str
    """The URL to connect to, which differs only if there is a proxy in between."""


def addresses_of(
    host: str,
    port: int,
    *,
    advertised_url: str,
    connect_url: str,
    scheme: str = "http",
) -> Addresses:
    """Return the addresses of a broker that listens on *host* and *port*."""
    broker_url = advertised_url or url_of(host, port, scheme)
    return Addresses(broker_url=broker_url, connect_url=connect_url or broker_url)


def url_of(host: str, port: int, scheme: str = "http") -> str:
    """
    Return the URL of a broker that listens on *host* and *port*.

    If the broker listens on all addresses, the URL has the machine's name.
    """
    if host in ALL_ADDRESSES:
        host = socket.gethostname()
    return f"{scheme}://{host_in_url(host)}:{port}"


def http_hosts_of(listens: ListenConfig) -> list[str]:
    """Return the host names that requests to the HTTP port may have."""
    urls = (listens.advertised_url, listens.connect_url)
    return [
        *(name.strip() for name in listens.http_hosts.split(",")),
        *(urlsplit(url).hostname or "" for url in urls),
        listens.host,
        socket.gethostname(),
    ]


def addresses_text(
    *,
    stream_url: str,
    grpc_url: str,
    admin_url: str,
    http_url: str,
    listener_urls: Mapping[str, str],
    data_dir: Path,
) -> str:
    """Return the text with the addresses of a broker that is ready."""
    listeners = "".join(f"  {name:<8}  {url}\n" for name, url in listener_urls.items())
    return (
        f"pydanube broker is ready\n"
        f"  stream    {stream_url}\n"
        f"  grpc      {grpc_url}\n"
        f"  admin     {admin_url}\n"
        f"{listeners}"
        f"  http      {http_url}\n"
        f"  data      {data_dir.absolute()}\n"
        f"  console   danube console --url {stream_url}\n"
    )


@contextmanager
def binding(host: str, port: int, name: str, flag: str) -> Iterator[None]:
    """
    Explain why the body cannot listen on a port for *name*, which *flag* sets.

    Raises:
        InvalidConfig: The address is not available.
    """
    try:
        yield
    except OSError as error:
        raise InvalidConfig(
            f"cannot listen on {host}:{port} for {name}: {error.strerror or error}; "
            f"choose another with {flag} or in the configuration file"
        ) from error


def check_exposure(config: BrokerConfig) -> None:
    """
    Raise if strangers on other machines could do everything.

    Raises:
        InvalidConfig: The broker is to listen on an address of other networks, clients
            need no credentials, and the settings do not accept that.
    """
    if (
        config.security.enabled
        or config.tls.client_certificates == "required"
        or config.listen.insecure
        or is_loopback(config.listen.host)
    ):
        return
    raise InvalidConfig(
        f"listen.host is {config.listen.host!r}, so other machines can reach the "
        "broker, and its clients need no credentials: enable security "
        "(security.enabled, see docs/guide/security.md), or accept with --insecure "
        "that everybody who reaches the ports can do everything"
    )


def peer_text(peername: Any) -> str:
    """Return the address of a client for the log, given its ``peername``."""
    match peername:
        case (str() as host, int() as port, *_):
            return f"{host_in_url(host)}:{port}"
        case _:
            return str(peername or "this process")


def address_of(peername: Any) -> str:
    """Return the address of a client without its port, given its ``peername``."""
    match peername:
        case (str() as host, int(), *_):
            return host
        case _:
            return str(peername or "this process")
