"""The endpoints of the Iceberg catalog, which have paths of their own and only read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pydanube.model.errors import BrokerError, InvalidRequest
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.names import NamespaceName, TopicName, parse_namespace
from pydanube.security.principals import ANONYMOUS, Principal
from pydanube.wire.native.kinds import Kind
from pydanube_broker.broker.broker import Broker
from pydanube_broker.operations.authorization import Caller, authorized, is_checked
from pydanube_broker.servers.connections.errors import as_broker_error
from pydanube_broker.servers.http.responses import json_response


@dataclass(frozen=True, slots=True)
class Call:
    """A request to an endpoint."""

    broker: Broker
    path: dict[str, str]
    """The parameters in the path."""
    query: dict[str, str]

    @property
    def namespace(self) -> NamespaceName:
        """The namespace in the path."""
        return parse_namespace(self.path["namespace"])

    @property
    def topic(self) -> TopicName:
        """The topic in the path."""
        return TopicName.parse(f"/{self.path['namespace']}/{self.path['topic']}")


Handler = Callable[[Call], Awaitable[object]]
"""Returns the value for the response; None for one without content."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A method of a path, and the operation whose permission it needs."""

    method: str
    path: str
    operation: Kind
    handler: Handler
    status: int

    def route(
        self,
        broker: Callable[[], Broker],
        on_error: Callable[[BrokerError], Response],
    ) -> Route:
        """
        Return the route that serves the endpoint for *broker*.

        *on_error* returns the response to a request that failed.
        """

        async def respond(request: Request) -> Response:
            query = dict(request.query_params)
            try:
                call = Call(broker(), request.path_params, query)
                value = await self._carry_out(request, call)
            except Exception as error:  # noqa: BLE001  # The client gets it.
                doing = f"{request.method} {request.url.path}"
                return on_error(as_broker_error(error, doing))
            if value is None:
                return Response(status_code=self.status)
            return json_response(value, self.status)

        return Route(self.path, respond, methods=[self.method])

    async def _carry_out(self, request: Request, call: Call) -> object:
        if not is_checked(call.broker):
            return await self.handler(call)
        caller = caller_of(request, call.broker)
        named = self._native_request(call)
        async with authorized(caller, self.operation, named, call.query or None):
            return await self.handler(call)

    def _native_request(self, call: Call) -> Any:
        """Return a native request that names the same things as *call*."""
        body = self.operation.body
        assert body is not None
        names = dict(call.path)
        if "topic" in names:
            names["topic"] = f"/{names['namespace']}/{names['topic']}"
        known = body.DESCRIPTOR.fields_by_name
        return body(**{name: value for name, value in names.items() if name in known})


class Endpoints(list[Endpoint]):
    """The endpoints of one interface."""

    def add(
        self, method: str, path: str, operation: Kind, *, status: int = 200
    ) -> Callable[[Handler], Handler]:
        """Return a decorator that adds its function as an endpoint."""

        def add(handler: Handler) -> Handler:
            self.append(Endpoint(method, path, operation, handler, status))
            return handler

        return add


def caller_of(request: Request, broker: Broker) -> Caller:
    """Return the client of *request* as the one that makes it."""
    address = request.client
    at = "?" if address is None else f"{address.host}:{address.port}"
    return Caller(broker, principal_of(request), at, "http")


def principal_of(request: Request) -> Principal:
    """Return the principal that the credentials of *request* prove."""
    found: Principal = getattr(request.state, "principal", ANONYMOUS)
    return found


def parse_count(what: str, text: str, minimum: int = 0) -> int:
    """
    Parse a number in a path or query.

    Raises:
        InvalidRequest: It is not a number, or less than *minimum*.
    """
    is_number = text.isascii() and text.isdigit() and len(text) <= 18
    if not is_number or int(text) < minimum:
        bound = f" of at least {minimum}" if minimum else ""
        raise InvalidRequest(f"{what} is {text!r}; it must be a number{bound}")
    return int(text)
