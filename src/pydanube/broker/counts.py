"""Counters of topics and subscriptions."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Counts:
    """
    Counters that only rise, and the current number of consumers.

    Each event is counted here and in the parent, so the totals stay when a topic or
    subscription is deleted.
    """

    parent: Counts | None = None
    published: int = 0
    published_bytes: int = 0
    delivered: int = 0
    delivered_bytes: int = 0
    redelivered: int = 0
    dropped: int = 0
    nacked: int = 0
    timed_out: int = 0
    expired: int = 0
    dead_lettered: int = 0
    dead_letter_failures: int = 0
    given_up: int = 0
    skipped: int = 0
    consumers: int = 0

    def attach(self, change: int) -> None:
        """Change the number of consumers by *change*."""
        self.consumers += change
        if self.parent is not None:
            self.parent.attach(change)

    def publish(self, count: int, byte_count: int) -> None:
        """Count a published batch."""
        self.published += count
        self.published_bytes += byte_count
        if self.parent is not None:
            self.parent.publish(count, byte_count)

    def deliver(self, count: int, byte_count: int, *, is_again: bool) -> None:
        """Count a delivered batch."""
        self.delivered += count
        self.delivered_bytes += byte_count
        if is_again:
            self.redelivered += count
        if self.parent is not None:
            self.parent.deliver(count, byte_count, is_again=is_again)

    def drop(self, count: int) -> None:
        """Count dropped messages."""
        self.dropped += count
        if self.parent is not None:
            self.parent.drop(count)

    def fail(self, *, nacked: int = 0, timed_out: int = 0) -> None:
        """Count messages that were nacked or not acknowledged in time."""
        self.nacked += nacked
        self.timed_out += timed_out
        if self.parent is not None:
            self.parent.fail(nacked=nacked, timed_out=timed_out)

    def end(
        self,
        *,
        expired: int = 0,
        dead_lettered: int = 0,
        given_up: int = 0,
        skipped: int = 0,
    ) -> None:
        """Count messages that were completed without an acknowledgement."""
        self.expired += expired
        self.dead_lettered += dead_lettered
        self.given_up += given_up
        self.skipped += skipped
        if self.parent is not None:
            self.parent.end(
                expired=expired,
                dead_lettered=dead_lettered,
                given_up=given_up,
                skipped=skipped,
            )

    def fail_to_dead_letter(self) -> None:
        """Count a failure to copy messages to a dead-letter topic."""
        self.dead_letter_failures += 1
        if self.parent is not None:
            self.parent.fail_to_dead_letter()
