"""The interfaces of the two states that each subscription type implements."""

from __future__ import annotations

from typing import Protocol

from pydanube.dispatch.message_spans import MessageSpan


class ReadyMessages(Protocol):
    """Messages that can be delivered as soon as a consumer has credit."""

    def add_new(self, span: MessageSpan, /) -> None:
        """Add a new span, which lies above all spans added before."""

    def put_back(self, span: MessageSpan, /) -> None:
        """Add a span that a consumer returned, or that is due."""

    def withdraw(self, base: int, end: int) -> list[MessageSpan]:
        """Remove and return the messages of ``base … end`` that are not done."""

    def clear(self) -> None:
        """Remove all messages."""


class InFlightMessages(Protocol):
    """Messages that consumers have and have not acknowledged."""

    count: int
    """The number of messages, without those that are done."""

    def withdraw(self, base: int, end: int) -> list[MessageSpan]:
        """Remove and return the messages of ``base … end`` that are not done."""

    def withdraw_due(self, now: float) -> list[MessageSpan]:
        """Remove and return the messages whose deadline has passed."""

    def next_time(self) -> float | None:
        """Return the time at which to call withdraw_due(), or None."""

    def limit_times(self, latest: float | None) -> None:
        """Move later deadlines to *latest*; None removes all deadlines."""

    def clear(self) -> None:
        """Remove all messages."""
