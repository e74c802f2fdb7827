"""
The topics of a fetch session, of which a request looks only at those with news.

A consumer may have thousands of partitions without new messages.  Its session keeps
their topics and watches them; what changes in between is found by the broker's order
of changes of offsets, which also has topics that were trimmed, moved or deleted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

from pydanube_broker.broker.broker import Broker
from pydanube_broker.broker.publishing.topic import ReliableTopic
from pydanube_kafka.pure.fetch_sessions import PARTITIONS_MAX, Partition, Wanted


class SessionTopics:
    """
    The topics of the partitions of a session.

    Bounds: One watcher for each partition of the session, until ``close``.
    """

    def __init__(self, broker: Broker) -> None:
        self.has_news = asyncio.Event()
        """Set when there are messages in a partition."""
        self._broker = broker
        self._topics: dict[Partition, tuple[ReliableTopic, Callable[[], None]]] = {}
        # With namespaces, clients have two names for a topic of the default one.
        self._by_name: dict[str, set[Partition]] = {}
        # The next to look at; those that had no records last time are first.
        self._due: dict[Partition, None] = {}
        # All changes up to this revision were seen, with the permissions of these.
        self._revision = -1
        self._permissions: object = None
        self._is_closed = False

    def take_due(
        self,
        wanted: Mapping[Partition, Wanted],
        named: Iterable[Partition],
        permissions: object,
    ) -> list[Partition]:
        """
        Return those of the *wanted* partitions that a request must look at.

        Besides the *named* ones, these are those that may have changed, and all if the
        *permissions* differ from those of the last request.
        """
        changes, revision = self._broker.storage.offset_changes, self._revision
        changed = None
        if permissions == self._permissions:
            changed = changes.since(revision, PARTITIONS_MAX)
        self._revision, self._permissions = changes.revision, permissions
        if changed is None:
            self._due.clear()
            return list(wanted)
        self._due.update(dict.fromkeys(named))
        for name in changed:
            self._due.update(dict.fromkeys(self._by_name.get(name, ())))
        return self.take_news(wanted)

    def take_news(self, wanted: Mapping[Partition, Wanted]) -> list[Partition]:
        """Return those of the *wanted* partitions that were noted since, once."""
        due = [each for each in self._due if each in wanted]
        self._due.clear()
        return due

    def note(self, partition: Partition) -> None:
        """Let the next request look at a partition, after those noted before."""
        self._due.pop(partition, None)
        self._due[partition] = None

    def watch(self, partition: Partition, topic: ReliableTopic | None) -> None:
        """Follow the topic that a partition is now; None: it is none."""
        known = self._topics.get(partition)
        if known is not None:
            if known[0] is topic:
                return
            self._forget(partition)
        if topic is not None and not self._is_closed:

            def on_news() -> None:
                self._due[partition] = None
                self.has_news.set()

            self._topics[partition] = topic, topic.log.watch(on_news)
            self._by_name.setdefault(str(topic.name), set()).add(partition)

    def forget(self, partitions: Iterable[Partition]) -> None:
        """End following partitions that are not wanted any more."""
        for each in partitions:
            self._due.pop(each, None)
            if each in self._topics:
                self._forget(each)

    def _forget(self, partition: Partition) -> None:
        topic, unwatch = self._topics.pop(partition)
        unwatch()
        named = self._by_name[str(topic.name)]
        named.discard(partition)
        if not named:
            del self._by_name[str(topic.name)]

    def close(self) -> None:
        """End following all partitions."""
        self._is_closed = True
        self.forget(list(self._topics))
