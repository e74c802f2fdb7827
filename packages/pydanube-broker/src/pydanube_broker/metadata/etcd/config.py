"""The settings of a metadata store in etcd."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, ClassVar
from urllib.parse import urlsplit

import msgspec

from pydanube.model.errors import InvalidConfig
from pydanube.model.extras import require
from pydanube.security.addresses import host_in_url
from pydanube_broker.metadata.remote_config import RemoteStoreConfig

if TYPE_CHECKING:
    from pydanube_broker.metadata.store import SharedStore

DEFAULT_PORT = 2379


class EtcdConfig(RemoteStoreConfig, frozen=True, kw_only=True):
    """Settings of a metadata store in etcd."""

    KIND: ClassVar[str] = "etcd"
    SERVICE: ClassVar[str] = "etcd"
    EXAMPLE: ClassVar[str] = f"http://127.0.0.1:{DEFAULT_PORT}"

    endpoints: str = ""
    """The members of etcd, separated by commas, as http://HOST:PORT or, with TLS,
    https://HOST:PORT. The broker uses one of them at a time, and another one if that
    does not answer."""

    def __post_init__(self) -> None:
        endpoints = parse_endpoints(self.endpoints)
        RemoteStoreConfig.__post_init__(self)
        has_plain = any(not each.is_secure for each in endpoints)
        if has_plain and (self.ca_file or self.certificate_file):
            raise InvalidConfig(
                "endpoints: expected https:// for all endpoints, because ca_file or "
                f"certificate_file is set, got {self.endpoints!r}"
            )

    def open_store(self) -> AbstractAsyncContextManager[SharedStore]:
        """Open the store."""
        require(self.KIND, f"the setting metadata.kind: {self.KIND}")
        # An extra.
        from pydanube_broker.metadata.etcd.store import open_etcd  # noqa: PLC0415

        return open_etcd(self)


class Endpoint(msgspec.Struct, frozen=True):
    """The address of a member of etcd."""

    address: str
    """HOST:PORT"""
    is_secure: bool

    def __str__(self) -> str:
        return f"{'https' if self.is_secure else 'http'}://{self.address}"


def parse_endpoints(text: str) -> tuple[Endpoint, ...]:
    """
    Return the endpoints in *text*, separated by commas.

    Raises:
        InvalidConfig: One of them is not an address.
    """
    return tuple(_parse(part.strip()) for part in text.split(",") if part.strip())


def _parse(text: str) -> Endpoint:
    url = text if "://" in text else f"http://{text}"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or DEFAULT_PORT
    except ValueError:
        parts, host, port = urlsplit(""), None, 0
    is_whole = not (parts.path.strip("/") or parts.query or parts.username)
    if parts.scheme not in {"http", "https"} or not host or not is_whole:
        raise InvalidConfig(
            "endpoints: expected http://HOST:PORT or https://HOST:PORT, separated by "
            f"commas, got {text!r}"
        )
    return Endpoint(f"{host_in_url(host)}:{port}", parts.scheme == "https")
