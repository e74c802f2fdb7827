"""
The handlers of operations, found through the table of operations.

There is one module of handlers for each noun.  A handler has the name of its
operation: ``create_topic`` carries out ``Kind.CREATE_TOPIC``.  It translates the
request, calls the broker, and translates the result.  Its docstring describes the
operation to users of the JSON API.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Protocol, TypeVar

from google.protobuf.message import Message

from pydanube.model.lazy_dataclasses import dataclass
from pydanube.security.principals import Principal
from pydanube.wire.native.kinds import Kind
from pydanube_broker import operations
from pydanube_broker.broker.broker import Broker
from pydanube_broker.broker.governance.api_keys import ApiKeys

PAGE_MAX = 5000
"""The maximum number of names or descriptions in one answer, to fit into a frame."""


class KeyManagement(Protocol):
    """Decides who manages API keys."""

    def managed_api_keys(self, principal: Principal) -> ApiKeys:
        """Return the API keys for *principal* to manage; raises if it may not."""


@dataclass(frozen=True, slots=True)
class Call:
    """A request, apart from its message."""

    broker: Broker
    principal: Principal
    """The client that makes the request."""
    key_management: KeyManagement

    def api_keys(self) -> ApiKeys:
        """Return the API keys for the client to manage; raises if it may not."""
        return self.key_management.managed_api_keys(self.principal)


Handler = Callable[[Call, Any], Awaitable[Message | None]]
"""Carries out a request and returns the answer; None stands for OK."""

H = TypeVar("H", bound=Handler)

_HANDLERS: dict[Kind, Handler] = {}


def operation(handler: H) -> H:
    """Make a function the handler of the operation of its name."""
    kind = Kind[handler.__name__.upper()]
    assert kind.permission is not None
    assert kind not in _HANDLERS
    assert handler.__doc__, f"{handler.__name__} has no description"
    _HANDLERS[kind] = handler
    return handler


@cache
def handlers() -> Mapping[Kind, Handler]:
    """Return the handlers of all operations that need no connection."""
    for module in iter_modules(operations.__path__, f"{operations.__name__}."):
        import_module(module.name)
    return _HANDLERS
