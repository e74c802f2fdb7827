"""Patterns of topic names."""

from __future__ import annotations

from collections.abc import Iterable

from pydanube.model.errors import InvalidName
from pydanube.model.names import PARTITION_MARK, SYSTEM_NAMESPACE, TopicName
from pydanube.model.wildcards import compile_wildcards, has_wildcards


class TopicPattern:
    """
    A pattern of topic names: ``*`` is any text without a slash, ``?`` one character.

    The partitions of a topic match if the topic's own name matches.  A pattern that
    contains ``-part-`` is compared with the names of partitions instead.
    """

    __slots__ = ("_names_partitions", "_namespace", "_topic", "namespace")

    def __init__(self, text: str) -> None:
        """
        Parse a pattern.

        Raises:
            InvalidName: *text* without its wildcards is not like a topic's name.
        """
        try:
            TopicName.parse(text.replace("*", "x").replace("?", "x"))
        except InvalidName:
            raise InvalidName(
                f"the pattern {text} must be /namespace/topic, such as "
                "/default/orders-*, in which * stands for any text without a slash "
                "and ? for one character"
            ) from None
        _, namespace, topic = text.split("/")
        self.namespace = None if has_wildcards(namespace) else namespace
        """The only namespace with matching topics; None: there may be several."""
        self._namespace = compile_wildcards(namespace)
        self._topic = compile_wildcards(topic)
        self._names_partitions = PARTITION_MARK in topic

    def matches(self, name: TopicName) -> bool:
        """Return whether *name* is a topic, or a partition of one, that matches."""
        if self.namespace is None and name.namespace == SYSTEM_NAMESPACE:
            return False
        partition = None if self._names_partitions else name.split_partition()
        compared = name if partition is None else partition[0]
        return bool(
            self._namespace.match(compared.namespace)
            and self._topic.match(compared.topic)
        )

    def select(self, topics: Iterable[str]) -> list[str]:
        """Return the topics and partitions of *topics* that match, in order."""
        names = map(TopicName.parse, topics)
        return list(map(str, sorted(filter(self.matches, names), key=_order)))


def _order(name: TopicName) -> tuple[TopicName, int]:
    return name.split_partition() or (name, -1)
