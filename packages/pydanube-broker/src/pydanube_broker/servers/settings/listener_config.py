"""The settings of listeners of plug-ins, which also say how they are opened."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

from pydanube.model.metrics import Metric
from pydanube.security.addresses import host_in_url


class ListenerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a listener, which is open if it has a port."""

    NAME: ClassVar[str]
    """The section of its settings, the label of its metrics, and its entry point."""
    TITLE: ClassVar[str]
    """The protocol, for people, such as ``MQTT 3.1.1 and 5``."""
    OPEN: ClassVar[str]
    """The function that opens it, as ``module:name``; see ``OpenFunction``."""
    SCHEMES: ClassVar[tuple[str, str]]
    """The schemes of its URLs, without and with TLS."""
    USUAL_PORT: ClassVar[int]
    """The port of the protocol, for people; listeners have no port by default."""
    METRICS: ClassVar[Sequence[Metric]] = ()
    """The metrics of which it has samples."""
    SERVES_CLUSTERS: ClassVar[bool] = False
    """Whether it finds topics that other brokers of a cluster serve."""

    SERVES_PROCESSES: ClassVar[bool] = False
    """Whether it finds topics that other processes of the broker serve; one that serves
    clusters does."""

    port: Annotated[int, Meta(ge=0, le=65_535)] | None = None
    """The port; 0 chooses a free one. Without it, the broker has no such listener."""

    def url(self, host: str, port: int, *, is_encrypted: bool) -> str:
        """Return the URL of clients; *host* is as in URLs."""
        return f"{self.SCHEMES[is_encrypted]}://{host}:{port}"

    def address(self, host: str, port: int) -> str:
        """
        Return the host and port at which clients find what this broker serves.

        *host* and *port* are those that it listens on, as other machines reach them.
        """
        return f"{host_in_url(host)}:{port}"
