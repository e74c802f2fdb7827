"""Namespaces in the JSON API."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.routing import Route

from pydanube.model.names import parse_namespace
from pydanube.model.policy import NamespacePolicy
from pydanube.servers.http.answers import answering, body_of, created, done

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from starlette.requests import Request

    from pydanube.broker.broker import Broker
    from pydanube.model.names import NamespaceName


NO_LIMITS = NamespacePolicy()


@dataclass(frozen=True, slots=True, kw_only=True)
class NewNamespace:
    """What ``POST /namespaces`` takes."""

    name: str
    policy: NamespacePolicy = NO_LIMITS


class NamespaceApi:
    """The endpoints; each says what it answers."""

    def __init__(self, broker: Callable[[], Broker]) -> None:
        self._broker = broker

    def routes(self) -> Iterator[Route]:
        """Where they are."""
        for path, method, call in (
            ("/namespaces", "GET", self.list),
            ("/namespaces", "POST", self.create),
            ("/namespaces/{namespace}", "GET", self.describe),
            ("/namespaces/{namespace}", "DELETE", self.delete),
            ("/namespaces/{namespace}/policy", "GET", self.policy),
            ("/namespaces/{namespace}/policy", "PUT", self.set_policy),
        ):
            yield Route(path, answering(call), methods=[method])

    async def list(self, _: Request) -> object:
        """The names."""
        return {"namespaces": await self._broker().namespaces.names()}

    async def create(self, request: Request) -> object:
        """The new namespace."""
        body = await body_of(request, NewNamespace)
        name = parse_namespace(body.name)
        await self._broker().namespaces.create(name, body.policy)
        return created(await self._described(name))

    async def describe(self, request: Request) -> object:
        """A namespace and its limits."""
        return await self._described(_namespace_of(request))

    async def delete(self, request: Request) -> object:
        """Nothing, if the namespace had no topics."""
        await self._broker().namespaces.delete(_namespace_of(request))
        return done()

    async def policy(self, request: Request) -> object:
        """The limits."""
        return await self._broker().namespaces.policy(_namespace_of(request))

    async def set_policy(self, request: Request) -> object:
        """The limits that hold from now on; what is left out is no limit."""
        policy = await body_of(request, NamespacePolicy)
        await self._broker().namespaces.set_policy(_namespace_of(request), policy)
        return policy

    async def _described(self, name: NamespaceName) -> object:
        return {"name": name, "policy": await self._broker().namespaces.policy(name)}


def _namespace_of(request: Request) -> NamespaceName:
    return parse_namespace(request.path_params["namespace"])
