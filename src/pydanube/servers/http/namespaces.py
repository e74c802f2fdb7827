"""Namespaces in the JSON API."""

from __future__ import annotations

from dataclasses import dataclass

from pydanube.model.names import NamespaceName, parse_namespace
from pydanube.model.policy import NamespacePolicy, Retention
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


@NAMESPACES.add("GET", f"{NAMESPACE}/policy", Kind.DESCRIBE_NAMESPACE)
async def namespace_policy(call: Call[None]) -> NamespacePolicy:
    """Return the policy of a namespace."""
    return await call.broker.namespaces.policy(call.namespace)


@NAMESPACES.add(
    "PUT", f"{NAMESPACE}/policy", Kind.SET_NAMESPACE_POLICY, body=NamespacePolicy
)
async def set_namespace_policy(call: Call[NamespacePolicy]) -> NamespacePolicy:
    """Set the policy of a namespace; limits that are left out are removed."""
    await call.broker.namespaces.set_policy(call.namespace, call.body)
    return call.body


@NAMESPACES.add("GET", f"{NAMESPACE}/retention", Kind.DESCRIBE_NAMESPACE)
async def namespace_retention(call: Call[None]) -> Retention:
    """Return the retention of a namespace's topics that have none of their own."""
    return (await call.broker.namespaces.find(call.namespace)).value.retention


@NAMESPACES.add(
    "PUT",
    f"{NAMESPACE}/retention",
    Kind.SET_NAMESPACE_RETENTION,
    body=Retention,
)
async def set_namespace_retention(call: Call[Retention]) -> Retention:
    """Set the retention of a namespace's topics that have none of their own."""
    await call.broker.namespaces.set_retention(call.namespace, call.body)
    return call.body
