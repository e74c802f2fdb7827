"""Namespaces in the JSON API."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydanube.model.names import NamespaceName, parse_namespace
from pydanube.model.policy import NamespacePolicy, NamespaceSettings
from pydanube.servers.authorization import visible_namespaces
from pydanube.servers.http.endpoints import NAMESPACE, Call, Endpoints
from pydanube.wire.native.kinds import Kind

NO_LIMITS = NamespacePolicy()

NAMESPACES = Endpoints()


@dataclass(frozen=True, slots=True, kw_only=True)
class NewNamespace:
    """The body of ``POST /namespaces``."""

    name: str
    policy: NamespacePolicy = NO_LIMITS


@NAMESPACES.add("GET", "/namespaces", Kind.LIST_NAMESPACES)
async def list_namespaces(call: Call[None]) -> dict[str, list[NamespaceName]]:
    """Return the names of all namespaces."""
    return {"namespaces": visible_namespaces(await call.broker.namespaces.names())}


@NAMESPACES.add(
    "POST", "/namespaces", Kind.CREATE_NAMESPACE, body=NewNamespace, status=201
)
async def create_namespace(call: Call[NewNamespace]) -> object:
    """Create a namespace."""
    name = parse_namespace(call.body.name)
    await call.broker.namespaces.create(name, call.body.policy)
    return {"name": name, "policy": await call.broker.namespaces.policy(name)}


@NAMESPACES.add("GET", NAMESPACE, Kind.DESCRIBE_NAMESPACE)
async def describe_namespace(call: Call[None]) -> object:
    """Return a namespace and its policy."""
    name = call.namespace
    return {"name": name, "policy": await call.broker.namespaces.policy(name)}


@NAMESPACES.add("DELETE", NAMESPACE, Kind.DELETE_NAMESPACE, status=204)
async def delete_namespace(call: Call[None]) -> None:
    """Delete a namespace, which must have no topics."""
    await call.broker.namespaces.delete(call.namespace)


@NAMESPACES.add("GET", f"{NAMESPACE}/settings", Kind.DESCRIBE_NAMESPACE)
async def namespace_settings(call: Call[None]) -> NamespaceSettings:
    """Return the settings of a namespace, for topics that have none of their own."""
    return await _settings(call)


@NAMESPACES.add(
    "PATCH",
    f"{NAMESPACE}/settings",
    Kind.CONFIGURE_NAMESPACE,
    body=NamespaceSettings,
)
async def configure_namespace(call: Call[dict[str, Any]]) -> NamespaceSettings:
    """Change the given settings of a namespace, all or none; the others stay."""
    await call.broker.namespaces.configure(call.namespace, **call.body)
    return await _settings(call)


async def _settings(call: Call[Any]) -> NamespaceSettings:
    record = (await call.broker.namespaces.find(call.namespace)).value
    return NamespaceSettings(policy=record.policy, retention=record.retention)
