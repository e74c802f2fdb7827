"""What a topic counts, and how the counts of many are kept when some go away."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Counts:
    """
    Numbers that only rise, and the number of consumers at this moment.

    A topic or subscription counts into its own and its parent's at once, so a
    deleted one leaves the totals as they are.
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
        """Count *change* more consumers, or fewer if it is negative."""
        self.consumers += change
        if self.parent is not None:
            self.parent.attach(change)

    def publish(self, count: int, byte_count: int) -> None:
        """A batch came in."""
        self.published += count
        self.published_bytes += byte_count
        if self.parent is not None:
            self.parent.publish(count, byte_count)

    def deliver(self, count: int, byte_count: int, *, is_again: bool) -> None:
        """A batch went out."""
        self.delivered += count
        self.delivered_bytes += byte_count
        if is_again:
            self.redelivered += count
        if self.parent is not None:
            self.parent.deliver(count, byte_count, is_again=is_again)

    def drop(self, count: int) -> None:
        """Messages were dropped."""
        self.dropped += count
        if self.parent is not None:
            self.parent.drop(count)

    def fail(self, *, nacked: int = 0, timed_out: int = 0) -> None:
        """Messages came back, or did not come back in time."""
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
        """Messages are done although nobody acknowledged them."""
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
        """Messages did not come to the dead-letter topic; it is tried again."""
        self.dead_letter_failures += 1
        if self.parent is not None:
            self.parent.fail_to_dead_letter()
