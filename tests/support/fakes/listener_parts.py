"""The parts of a broker in this process that listeners of plug-ins use."""

from __future__ import annotations

from pydanube_broker.servers.connections.authentication import Authenticator
from pydanube_broker.servers.connections.connections import ConnectionCounts
from pydanube_broker.servers.connections.listeners import ListenerParts
from pydanube_broker.servers.settings.config import ListenConfig
from pydanube_broker.servers.settings.security_config import SecurityConfig


def listener_parts(broker, listener, *, store=None, address=""):
    """Return the parts of *broker* for the listener of that name."""
    return ListenerParts(
        broker=broker,
        store=store or broker.store,
        host="127.0.0.1",
        address=address,
        tls=None,
        authenticator=Authenticator(SecurityConfig()),
        counts=ConnectionCounts(listener=listener),
        idle_timeout_s=ListenConfig().idle_timeout_s,
        wall_clock_us=broker.wall_clock_us,
    )
