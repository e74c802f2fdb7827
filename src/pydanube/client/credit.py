"""The credit of a consumer: what the broker may send."""

from __future__ import annotations

from pydanube.model.errors import ProtocolViolation
from pydanube.wire.batches import BODY_BYTES_MAX

OVERDRAFT_BYTES_MAX = 4 * BODY_BYTES_MAX
"""
The most bytes that a correct broker sends beyond a consumer's credit.

It overdraws by a batch, and it estimates pieces of batches.
"""


class Credit:
    """
    The messages and bytes that the broker may still send to one consumer.

    Batches that arrive use credit.  When they are handed out or dropped, their credit
    is free, and the consumer returns it to the broker, that of several batches at a
    time.
    """

    def __init__(self, messages_max: int, bytes_max: int) -> None:
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._granted_messages = self._granted_bytes = 0
        self._free_messages = self._free_bytes = 0

    def grant_all(self) -> tuple[int, int]:
        """Return the messages and bytes to grant to the broker on a new channel."""
        self._granted_messages = self._messages_max
        self._granted_bytes = self._bytes_max
        self._free_messages = self._free_bytes = 0
        return self._messages_max, self._bytes_max

    def use(self, messages: int, byte_count: int) -> None:
        """
        Note that a batch arrived.

        Raises:
            ProtocolViolation: It exceeds the credit by far.
        """
        self._granted_messages -= messages
        self._granted_bytes -= byte_count
        if self._granted_messages < 0 or self._granted_bytes < -OVERDRAFT_BYTES_MAX:
            raise ProtocolViolation(
                f"the broker sent {max(0, -self._granted_messages)} messages and "
                f"{max(0, -self._granted_bytes)} bytes more than the consumer's credit"
            )

    def free(self, messages: int, byte_count: int) -> None:
        """Note that messages were handed out or dropped."""
        self._free_messages += messages
        self._free_bytes += byte_count

    def has_free(self, part: int) -> bool:
        """Return whether at least one *part*-th of all credit is free."""
        return (
            self._free_messages * part >= self._messages_max
            or self._free_bytes * part >= self._bytes_max
        )

    def take_free(self) -> tuple[int, int]:
        """Return the messages and bytes to grant to the broker again; 0 if none."""
        messages, byte_count = self._free_messages, self._free_bytes
        self._granted_messages += messages
        self._granted_bytes += byte_count
        self._free_messages = self._free_bytes = 0
        return messages, byte_count
