"""The order in which the offsets of topics have changed."""

from __future__ import annotations

TOPICS_MAX = 100_000
"""For how many topics the last change is known."""


class OffsetChanges:
    """
    The topics of a broker whose offsets have changed, by the time of their last change.

    Time is a revision, which rises with each change.  A reader that knows the offsets
    of many topics as of a revision needs only those that have changed since.

    Bounds: ``TOPICS_MAX`` topics; the older changes are forgotten, and readers that are
        older than these read all topics again.
    """

    def __init__(self, topics_max: int = TOPICS_MAX) -> None:
        self.revision = 0
        self._topics_max = topics_max
        self._complete_from = 0
        """All changes after this revision are known."""
        self._changed: dict[str, int] = {}
        """The revision of the last change of each topic, in the order of changes."""

    def note(self, topic: str) -> None:
        """Note that the offsets of *topic* have changed, or that it came or went."""
        self.revision += 1
        changed = self._changed
        # Assigning would leave the topic at its old place.
        changed.pop(topic, None)
        changed[topic] = self.revision
        if len(changed) > self._topics_max:
            self._complete_from = changed.pop(next(iter(changed)))

    def forget(self) -> None:
        """Let all readers read all topics again."""
        self.revision += 1
        self._complete_from = self.revision
        self._changed.clear()

    def since(self, revision: int, topics_max: int) -> list[str] | None:
        """
        Return the topics that have changed after *revision*.

        It is None if they are not known, or are more than *topics_max*.
        """
        if not self._complete_from <= revision <= self.revision:
            return None
        found: list[str] = []
        for topic, changed_at in reversed(self._changed.items()):
            if changed_at <= revision:
                break
            if len(found) == topics_max:
                return None
            found.append(topic)
        return found
