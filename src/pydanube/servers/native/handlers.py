"""Tables of the functions that carry out operations of the native protocol."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pydanube.wire.native.kinds import KIND_OF, Kind

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from pydanube.broker.broker import Broker

H = TypeVar("H", bound=Callable[..., Awaitable[Any]])

BrokerHandler = Callable[["Broker", Any], Awaitable["Message | None"]]
"""Carries out a request and returns the answer; None stands for OK."""


class Handlers(dict[Kind, H], Generic[H]):
    """The handlers of requests by kind."""

    def handler(self, body: type[Message]) -> Callable[[H], H]:
        """Return a decorator that adds the handler of the requests *body*."""

        def add(handler: H) -> H:
            kind = KIND_OF[body]
            assert kind.operation is not None
            assert kind not in self
            self[kind] = handler
            return handler

        return add
