"""The credit of a consumer: what the broker may send."""

from __future__ import annotations

from collections.abc import Iterable

from pydanube.model.errors import ProtocolViolation
from pydanube.wire.batches import BODY_BYTES_MAX

OVERDRAFT_BYTES_MAX = 4 * BODY_BYTES_MAX
"""
The most bytes that a correct broker sends beyond a consumer's credit.

It overdraws by a batch, and it estimates pieces of batches.
"""
OVERCOMMITMENT = 2
"""How many times its maximum shared credit may be granted while consumers join."""


class Credit:
    """
    The messages and bytes that the broker may still send to one consumer.

    Batches that arrive use credit.  When they are handed out or dropped, their credit
    is free, and the consumer returns it to the broker, that of several batches at a
    time.

    If the maximum falls, credit that becomes free is kept until the rest fits.
    """

    def __init__(self, messages_max: int, bytes_max: int) -> None:
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._granted_messages = self._granted_bytes = 0
        # Below 0, if the maximum fell below what is granted or in use.
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
        messages = max(0, self._free_messages)
        byte_count = max(0, self._free_bytes)
        self._granted_messages += messages
        self._granted_bytes += byte_count
        self._free_messages -= messages
        self._free_bytes -= byte_count
        return messages, byte_count

    def change_max(self, messages_max: int, bytes_max: int) -> None:
        """Change the maximum; what is granted stays granted."""
        self._free_messages += messages_max - self._messages_max
        self._free_bytes += bytes_max - self._bytes_max
        self._messages_max, self._bytes_max = messages_max, bytes_max

    @property
    def maximum(self) -> tuple[int, int]:
        """The most messages and bytes."""
        return self._messages_max, self._bytes_max

    @property
    def committed(self) -> tuple[int, int]:
        """The messages and bytes that are granted, or arrived and not handed out."""
        return (
            self._messages_max - self._free_messages,
            self._bytes_max - self._free_bytes,
        )


class SharedCredit:
    """
    Credit that several consumers share evenly.

    A consumer that joins gets its share at once, while the others give up theirs as
    they hand out messages.  In the meantime all together have at most
    ``OVERCOMMITMENT`` times the maximum, and each has at least one message.
    """

    def __init__(self, messages_max: int, bytes_max: int) -> None:
        self._maximum = messages_max, bytes_max
        self._share = messages_max, bytes_max
        self._room = messages_max, bytes_max
        self._members: set[Credit] = set()

    def divide(self, count: int) -> None:
        """Divide the credit among *count* consumers, some of which join later."""
        self._share = _at_least_one(each // max(1, count) for each in self._maximum)
        committed = [each.committed for each in self._members]
        self._room = _pair(
            OVERCOMMITMENT * most - sum(each[unit] for each in committed)
            for unit, most in enumerate(self._maximum)
        )
        for each in self._members:
            each.change_max(*self._allot(each.maximum))

    def join(self) -> Credit:
        """Return the credit of a consumer that joins."""
        credit = Credit(*_at_least_one(self._allot((0, 0))))
        self._members.add(credit)
        return credit

    def leave(self, credit: Credit) -> None:
        """Note that a consumer has left; ``divide`` gives its share to the others."""
        self._members.discard(credit)

    def _allot(self, current: tuple[int, int]) -> tuple[int, int]:
        """Return the share of a consumer that has *current*, if there is room."""
        granted = _pair(
            min(share - has, max(0, room))
            for share, has, room in zip(self._share, current, self._room, strict=True)
        )
        self._room = _pair(
            room - max(0, more) for room, more in zip(self._room, granted, strict=True)
        )
        return _pair(has + more for has, more in zip(current, granted, strict=True))


def _pair(values: Iterable[int]) -> tuple[int, int]:
    messages, byte_count = values
    return messages, byte_count


def _at_least_one(values: Iterable[int]) -> tuple[int, int]:
    return _pair(max(1, each) for each in values)
