"""A consumer as its subscription knows it: a name and a port."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pydanube.model.errors import BrokerError
    from pydanube.wire.batches import BatchFrame


class ConsumerPort(Protocol):
    """
    The connection to a consumer, implemented by a server.

    The methods do not wait: they write to the transport's buffer, which the consumer's
    credit bounds.
    """

    def deliver(self, frame: BatchFrame, attempt: int) -> None:
        """Send the messages of *frame*."""

    def set_active(self, *, is_active: bool) -> None:
        """Tell the consumer whether it is active or a standby."""

    def close(self, reason: BrokerError) -> None:
        """Tell the consumer that the subscription has detached it."""


class Consumer:
    """A consumer of a subscription; compared by identity."""

    __slots__ = ("key", "name", "port")

    def __init__(self, key: int, name: str, port: ConsumerPort) -> None:
        self.key = key
        """Its number in the dispatch machine."""
        self.name = name
        self.port = port
