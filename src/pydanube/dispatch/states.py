"""What a machine asks of the two states that types keep each in their own way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pydanube.dispatch.message_spans import MessageSpan


class ReadyMessages(Protocol):
    """Messages that can be delivered as soon as a consumer may have them."""

    def add_new(self, span: MessageSpan, /) -> None:
        """Append what lies behind all new messages that came before."""

    def put_back(self, span: MessageSpan, /) -> None:
        """Take what came back, or is due."""

    def withdraw(self, base: int, end: int) -> list[MessageSpan]:
        """Take out what is not done of ``base … end``."""

    def clear(self) -> None:
        """Forget everything."""


class InFlightMessages(Protocol):
    """Messages that consumers have, until their time is over."""

    count: int
    """How many there are, without those that are done."""

    def withdraw(self, base: int, end: int) -> list[MessageSpan]:
        """Take out what is not done of ``base … end``."""

    def withdraw_due(self, now: float) -> list[MessageSpan]:
        """Take out what has not been done in time."""

    def next_time(self) -> float | None:
        """When withdraw_due() must be called, or None."""

    def limit_times(self, latest: float | None) -> None:
        """Let nothing stay longer than to *latest*; None: all may."""

    def clear(self) -> None:
        """Forget everything."""
