"""
The endpoints of the JSON API: how requests are parsed, and how handlers are called.

Requests with a body must have the content type JSON.  A web page of another origin
cannot send that content type, or DELETE, without permission, so it cannot administer
a broker on the machine of the person who visits it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Generic, TypeVar, get_args, get_type_hints

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from pydanube.broker.broker import Broker
from pydanube.model.errors import (
    BrokerError,
    InvalidRequest,
    MessageTooLarge,
    TopicNotFound,
)
from pydanube.model.names import (
    NamespaceName,
    SubscriptionName,
    TopicName,
    parse_namespace,
    parse_subscription,
)
from pydanube.security.principals import ANONYMOUS, Principal
from pydanube.servers.authentication import Authenticator
from pydanube.servers.authorization import Caller, authorized, is_checked
from pydanube.servers.errors import as_broker_error
from pydanube.servers.http.responses import JSON, error_response, json_response
from pydanube.wire.native.kinds import Kind, On

B = TypeVar("B")

BODY_BYTES_MAX = 1024 * 1024

NAMESPACE = "/namespaces/{namespace}"
TOPIC = "/topics/{namespace}/{topic}"
SUBSCRIPTION = f"{TOPIC}/subscriptions/{{subscription}}"


@dataclass(frozen=True, slots=True)
class Call(Generic[B]):
    """A request to an endpoint, with its parsed body."""

    broker: Broker
    body: B
    path: dict[str, str]
    """The parameters in the path."""
    query: dict[str, str]
    principal: Principal
    """The client that makes the request."""
    authenticator: Authenticator

    @property
    def namespace(self) -> NamespaceName:
        """The namespace in the path."""
        return parse_namespace(self.path["namespace"])

    @property
    def topic(self) -> TopicName:
        """The topic in the path."""
        return TopicName.parse(f"/{self.path['namespace']}/{self.path['topic']}")

    @property
    def subscription(self) -> SubscriptionName:
        """The subscription in the path."""
        return parse_subscription(self.path["subscription"])

    @property
    def is_forced(self) -> bool:
        """True if the query has ``force=true``."""
        return self.query.get("force") == "true"

    async def topics(self, name: TopicName | None = None) -> list[TopicName]:
        """
        Return the topic *name*, by default the one in the path, or its partitions.

        Raises:
            TopicNotFound: The topic does not exist.
        """
        name = name or self.topic
        topics = await self.broker.catalog.partitions_of(name)
        if not topics:
            raise TopicNotFound(f"Unable to find the topic: {name}")
        return topics

    async def single_topic(self) -> TopicName:
        """
        Return the topic in the path, which must not be partitioned.

        Raises:
            TopicNotFound: The topic does not exist, or is partitioned.
        """
        topics = await self.topics()
        if topics != [self.topic]:
            raise TopicNotFound(
                f"{self.topic} has {len(topics)} partitions: ask about one, such as "
                f"{topics[0]}"
            )
        return self.topic


Handler = Callable[[Call[Any]], Awaitable[object]]
"""Returns the value for the response; None for one without content."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A method of a path, and the operations that it carries out."""

    method: str
    path: str
    operations: tuple[Kind, ...]
    handler: Handler
    body: type[Any] | None
    """The class to which the body is converted; see ``is_change``."""
    query: tuple[str, ...]
    status: int

    @property
    def is_change(self) -> bool:
        """True if the body has some of the fields, which the handler gets as a dict."""
        return self.method == "PATCH"

    def route(
        self,
        broker: Callable[[], Broker],
        authenticator: Authenticator,
        on_error: Callable[[BrokerError], Response] = error_response,
    ) -> Route:
        """
        Return the route that serves the endpoint for *broker*.

        *on_error* returns the response to a request that failed.
        """

        async def respond(request: Request) -> Response:
            try:
                body = await self._body_of(request)
                query = dict(request.query_params)
                call = Call(
                    *(broker(), body, request.path_params, query),
                    *(_principal_of(request), authenticator),
                )
                value = await self._carry_out(request, call)
            except ClientDisconnect:
                return on_error(InvalidRequest("the request ended before its body"))
            except Exception as error:  # noqa: BLE001  # The client gets it.
                doing = f"{request.method} {request.url.path}"
                return on_error(as_broker_error(error, doing))
            if isinstance(value, Response):
                return value
            if value is None:
                return Response(status_code=self.status)
            return json_response(value, self.status)

        return Route(self.path, respond, methods=[self.method])

    async def _body_of(self, request: Request) -> object:
        if self.body is None:
            return None
        value, given = await _body_of(request, self.body)
        if not self.is_change:
            return value
        if not given:
            names = ", ".join(each.name for each in fields(self.body))
            raise InvalidRequest(
                f"no setting is given; the settings that can change are {names}"
            )
        return {name: getattr(value, name) for name in given}

    async def _carry_out(self, request: Request, call: Call[Any]) -> object:
        if not is_checked(call.broker):
            return await self.handler(call)
        caller = caller_of(request, call.broker)
        async with AsyncExitStack() as operations:
            for kind in self.operations:
                named = self._native_request(kind, call)
                sent = call.query if call.body is None else call.body
                await operations.enter_async_context(
                    authorized(caller, kind, named, sent or None)
                )
            return await self.handler(call)

    def _native_request(self, kind: Kind, call: Call[Any]) -> Any:
        """Return a native request that names the same things as *call*."""
        assert kind.body is not None
        names: dict[str, Any] = dict(call.path)
        if "topic" in names:
            names["topic"] = f"/{names['namespace']}/{names['topic']}"
        elif "name" in getattr(call.body, "__dataclass_fields__", {}):
            # The body names the topic or namespace that is created.
            field = "topic" if kind.on is On.TOPIC else "namespace"
            names[field] = call.body.name
        known = kind.body.DESCRIPTOR.fields_by_name
        texts = {
            name: value
            for name, value in names.items()
            if name in known and known[name].type == known[name].TYPE_STRING
        }
        if kind.on is On.SUBJECT and "schema_id" in names:
            texts["schema_id"] = parse_count("schema_id", names["schema_id"])
        return kind.body(**texts)


class Endpoints(list[Endpoint]):
    """The endpoints of one part of the API."""

    def add(
        self,
        method: str,
        path: str,
        *operations: Kind,
        body: type[Any] | None = None,
        query: tuple[str, ...] = (),
        status: int = 200,
    ) -> Callable[[Handler], Handler]:
        """Return a decorator that adds its function as an endpoint."""

        def add(handler: Handler) -> Handler:
            self.append(
                Endpoint(method, path, operations, handler, body, query, status)
            )
            return handler

        return add


def caller_of(request: Request, broker: Broker) -> Caller:
    """Return the client of *request* as the one that makes it."""
    address = request.client
    at = "?" if address is None else f"{address.host}:{address.port}"
    return Caller(broker, _principal_of(request), at, "http")


def _principal_of(request: Request) -> Principal:
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


async def _body_of(request: Request, kind: type[B]) -> tuple[B, list[str]]:
    """
    Return the JSON of *request* as the dataclass *kind*, and the fields that it has.

    Raises:
        InvalidRequest: The body is not JSON, a field is missing or unknown, or a value
            has the wrong type.
        MessageTooLarge: The body has more than ``BODY_BYTES_MAX`` bytes.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0]
    if media_type.strip().lower() != JSON:
        raise InvalidRequest(f"the request must carry JSON: 'content-type: {JSON}'")
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > BODY_BYTES_MAX:
            raise MessageTooLarge(f"the request has more than {BODY_BYTES_MAX} bytes")
    try:
        value = msgspec.json.decode(bytes(body))
        _refuse_long_numbers(value, "request")
        _refuse_unknown(value, kind, "request")
        return msgspec.convert(value, kind), list(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        message = str(error).replace("`", "").replace("$", "request")
        raise InvalidRequest(message) from None


def _refuse_long_numbers(value: object, path: str) -> None:
    """Raise unless all integers in *value* have 64 bits, as in all other protocols."""
    if isinstance(value, int) and value.bit_length() >= 64:
        # Not the number, which may have a million digits.
        raise InvalidRequest(f"{path}: an integer has 64 bits, and this one has more")
    if isinstance(value, dict):
        for name, inner in value.items():
            _refuse_long_numbers(inner, f"{path}.{name}")
    if isinstance(value, list):
        for at, inner in enumerate(value):
            _refuse_long_numbers(inner, f"{path}[{at}]")


def _refuse_unknown(value: object, kind: Any, path: str) -> None:
    for each in get_args(kind) or (kind,):
        if not isinstance(value, dict) or not is_dataclass(each):
            continue
        known = get_type_hints(each)
        if unknown := value.keys() - known.keys():
            raise InvalidRequest(
                f"{path}: unknown field {min(unknown)!r}; there are {', '.join(known)}"
            )
        for name, inner in value.items():
            _refuse_unknown(inner, known[name], f"{path}.{name}")
