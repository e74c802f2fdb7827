"""What a subscription knows of a consumer: a name, and a way to reach it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pydanube.model.errors import BrokerError
    from pydanube.wire.batches import BatchFrame


class ConsumerPort(Protocol):
    """
    The far end of a consumer, as a server provides it.

    None of these waits: a server writes to its transport's buffer, which the
    consumer's own credit bounds.
    """

    def deliver(self, frame: BatchFrame, attempt: int) -> None:
        """Send the messages of *frame*."""

    def set_active(self, *, is_active: bool) -> None:
        """Tell whether the consumer gets messages now, or stands by."""

    def close(self, reason: BrokerError) -> None:
        """The subscription has let the consumer go."""


class Consumer:
    """One consumer of one subscription; identity is the object's."""

    __slots__ = ("key", "name", "port")

    def __init__(self, key: int, name: str, port: ConsumerPort) -> None:
        self.key = key
        """Its number in the dispatch machine."""
        self.name = name
        self.port = port
