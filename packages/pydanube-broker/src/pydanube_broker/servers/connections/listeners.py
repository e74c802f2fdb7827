"""
The seam for listeners of other packages: more protocols that clients can speak.

A listener has a group of the broker's settings, and its connections have the broker's
TLS, identities, permissions, quotas and limits.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from pkgutil import resolve_name
from typing import Any, TypeAlias

from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.metrics import Sample
from pydanube_broker.broker.broker import Broker
from pydanube_broker.metadata.store import MetadataStore
from pydanube_broker.servers.connections.authentication import Authenticator
from pydanube_broker.servers.connections.connections import ConnectionCounts
from pydanube_broker.servers.connections.process_sockets import ProcessGroup
from pydanube_broker.servers.settings.addresses import binding
from pydanube_broker.servers.settings.listener_config import ListenerConfig
from pydanube_broker.servers.settings.tls import ServerTls


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerParts:
    """The parts of a broker that a listener uses."""

    broker: Broker
    store: MetadataStore
    """The metadata, of which a listener may have prefixes of its own."""
    host: str
    """The address to listen on."""
    own_port: int | None = None
    """A further port for this process alone, if the broker has several processes: it
    shares the port of the settings with the others, by ``SO_REUSEPORT``."""
    address: str = ""
    """The host and port that other brokers of the cluster tell clients; empty if the
    broker is in none."""
    tls: ServerTls | None
    """TLS for its connections; None: they are not encrypted."""
    authenticator: Authenticator
    """It tells who clients are, by their credentials."""
    counts: ConnectionCounts
    """The open connections and their limit, which the listener keeps."""
    idle_timeout_s: float
    """The time without an answer of the other machine after which TCP gives up."""
    wall_clock_us: Callable[[], int]
    processes: ProcessGroup | None = None
    """The processes of the broker, if it has several: all share the port of the
    listener, and each serves a part of the topics."""


async def _no_samples() -> Iterable[Sample]:
    return ()


def _no_problems() -> Sequence[str]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerState:
    """The port and the metrics of an open listener."""

    port: int
    samples: Callable[[], Awaitable[Iterable[Sample]]] = _no_samples
    """Return the current values of its metrics, and do not hold other tasks."""
    problems: Callable[[], Sequence[str]] = _no_problems
    """Return descriptions of present problems, for everybody who reaches /readyz."""


OpenFunction: TypeAlias = (
    "Callable[[Any, ListenerParts], AbstractAsyncContextManager[ListenerState]]"
)
"""
A function that serves clients at the port of the settings, during the body.

Its first parameter are the settings, of the type that names the function.  The body
ends before the broker drains, and the listener then disconnects its clients.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenListener:
    """A listener that accepts connections."""

    config: ListenerConfig
    state: ListenerState

    def url(self, host: str, *, is_encrypted: bool) -> str:
        """Return the URL of clients; *host* is as in URLs."""
        return self.config.url(host, self.state.port, is_encrypted=is_encrypted)


@asynccontextmanager
async def accepting(
    factory: Callable[[], asyncio.BaseProtocol],
    host: str,
    port: int,
    *,
    name: str,
    flag: str,
    own_port: int | None = None,
    is_shared: bool = False,
) -> AsyncIterator[int]:
    """
    Accept connections on *host* and *port* (0: any free port); yields the port.

    If *is_shared*, or with *own_port*, other processes may accept at *port*, too; no
    other accepts at *own_port*.  Errors contain *name*, the name of the protocol, and
    *flag*, the option for the port.

    Raises:
        InvalidConfig: The address is not available.
    """
    loop = asyncio.get_running_loop()
    with ExitStack() as listeners:
        bound = port
        with binding(host, port, name, flag):
            for each in [port] if own_port is None else [own_port, port]:
                listener = await loop.create_server(
                    factory,
                    host,
                    each,
                    backlog=1024,
                    reuse_port=is_shared or own_port is not None,
                )
                listeners.callback(listener.close)
                bound = listener.sockets[0].getsockname()[1]
        yield bound


@asynccontextmanager
async def serving_listener(
    config: ListenerConfig, parts: ListenerParts
) -> AsyncIterator[OpenListener]:
    """
    Serve clients at the port of *config* during the body.

    Raises:
        InvalidConfig: The port cannot be used.
    """
    # Imported only here, so that brokers without the listener start faster.
    function: OpenFunction = resolve_name(config.OPEN)
    async with function(config, parts) as state:
        yield OpenListener(config=config, state=state)
