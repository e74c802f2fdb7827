"""The settings of a metadata store in ZooKeeper."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Annotated, ClassVar
from urllib.parse import urlsplit

from msgspec import Meta

from pydanube.model.errors import InvalidConfig
from pydanube.model.extras import require
from pydanube.security.addresses import host_in_url
from pydanube_broker.metadata.remote_config import RemoteStoreConfig

if TYPE_CHECKING:
    from pydanube_broker.metadata.store import SharedStore

DEFAULT_PORT = 2181


class ZookeeperConfig(RemoteStoreConfig, frozen=True, kw_only=True):
    """Settings of a metadata store in ZooKeeper."""

    KIND: ClassVar[str] = "zookeeper"
    SERVICE: ClassVar[str] = "ZooKeeper"
    EXAMPLE: ClassVar[str] = f"127.0.0.1:{DEFAULT_PORT}"

    endpoints: str = ""
    """The members of ZooKeeper, separated by commas, as HOST:PORT. The broker uses one
    of them at a time, and another one if that does not answer."""
    user: str = ""
    """The user for digest authentication. Only this user may then use the nodes of
    the cluster. Empty: everybody who reaches ZooKeeper may use them."""
    tls: bool = False
    """Connect with TLS."""
    session_ttl_s: Annotated[int, Meta(ge=1, le=600)] = 10
    """The time after which ZooKeeper ends the session of a broker that it has not heard
    of; ZooKeeper allows 4 to 40 s by default. A broker stops when it cannot reach
    ZooKeeper for that time.  When a broker was killed, its successor waits for that
    time."""

    def __post_init__(self) -> None:
        RemoteStoreConfig.__post_init__(self)
        parse_endpoints(self.endpoints)
        if not self.tls and (self.ca_file or self.certificate_file):
            raise InvalidConfig(
                "tls: expected true, because ca_file or certificate_file is set"
            )
        if ":" in self.user:
            raise InvalidConfig(
                f"user: expected a name without a colon, got {self.user!r}"
            )

    def open_store(self) -> AbstractAsyncContextManager[SharedStore]:
        """Open the store."""
        require(self.KIND, f"the setting metadata.kind: {self.KIND}")
        # An extra.
        from pydanube_zookeeper.store import open_zookeeper  # noqa: PLC0415

        return open_zookeeper(self)


def parse_endpoints(text: str) -> tuple[str, ...]:
    """
    Return the endpoints in *text*, separated by commas, as HOST:PORT.

    Raises:
        InvalidConfig: One of them is not an address.
    """
    return tuple(_parse(part.strip()) for part in text.split(",") if part.strip())


def _parse(text: str) -> str:
    try:
        parts = urlsplit(f"//{text}")
        host, port = parts.hostname, parts.port or DEFAULT_PORT
    except ValueError:
        parts, host, port = urlsplit(""), None, 0
    is_more = "/" in text or parts.query or parts.fragment or parts.username is not None
    if not host or is_more:
        raise InvalidConfig(
            "endpoints: expected HOST:PORT of each member, separated by commas, got "
            f"{text!r}"
        )
    return f"{host_in_url(host)}:{port}"
