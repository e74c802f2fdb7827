"""Calls of gRPC in a world: each one is a step, before which the brokers may change."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from pydanube.model.names import TopicName
from pydanube_broker.broker.broker import Broker
from pydanube_broker.servers.grpc.call_rules import CALL_RULES
from pydanube_broker.servers.grpc.forwarding import Forwarding, Owners
from pydanube_broker.servers.grpc.peer_channels import PeerFiles, open_peer_channels
from pydanube_broker.servers.grpc.server import open_listener
from pydanube_broker.servers.grpc.services import Service
from pydanube_broker.testing import MemoryBroker
from support.fakes.grpc_calls import Caller, connected
from support.worlds.broker import WorldBroker
from support.worlds.secured import needs_of_targets

LISTENER = "admin"


async def permit(memory: MemoryBroker, method: str, request: Any) -> None:
    """Let a world do what it does before *request*, such as granting permissions."""
    if isinstance(memory, WorldBroker):
        rule = CALL_RULES[method]
        named = rule.native_request(request)
        targets = list(needs_of_targets(rule.targets, request))
        await memory.before_call(rule.kind, named, targets)


def brokers_of(memory: MemoryBroker) -> list[Broker]:
    """Return the brokers that run."""
    if isinstance(memory, WorldBroker):
        return [each.broker for each in memory.servers]
    return [memory.broker]


@asynccontextmanager
async def calling(
    memory: MemoryBroker,
    method: str,
    request: Any,
    services_of: Callable[[Broker], Sequence[Service]],
) -> AsyncIterator[tuple[Broker, Caller]]:
    """
    Connect to one of the brokers for a call of *method* with *request*.

    No broker ends during the body.  A call that is for another broker is forwarded.
    """
    await permit(memory, method, request)
    async with AsyncExitStack() as stack:
        if isinstance(memory, WorldBroker):
            stack.enter_context(memory.held())
            server = await memory.find_server()
        else:
            server = memory.server
        channels = await stack.enter_async_context(open_peer_channels(PeerFiles()))
        ports: dict[str, int] = {}
        for broker in brokers_of(memory):
            listener = await stack.enter_async_context(
                open_listener("127.0.0.1", 0, name="administrators", flag="-")
            )
            ports[broker.broker_id] = listener.port
            await stack.enter_async_context(
                listener.serving(
                    services_of(broker),
                    broker,
                    authenticator=server.authenticator,
                    forwarding=_forwarding(broker, ports, channels),
                )
            )
        port = ports[server.broker.broker_id]
        yield server.broker, await stack.enter_async_context(connected(port))


def _forwarding(broker: Broker, ports: dict[str, int], channels: Any) -> Any:
    if broker.shards is None:
        return None

    async def find(topic: TopicName) -> dict[str, str]:
        for address in (await broker.topics.find_addresses(topic)).values():
            for broker_id, port in ports.items():
                if f"//{broker_id}:" in address:
                    return {LISTENER: f"http://127.0.0.1:{port}"}
        return {}

    return Forwarding(Owners(find, list), listener=LISTENER, channels=channels)
