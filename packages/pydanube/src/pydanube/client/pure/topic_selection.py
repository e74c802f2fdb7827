"""The topics that a consumer selects, by name or by pattern.  Pure."""

from __future__ import annotations

from collections.abc import Iterable

from pydanube.model.errors import InvalidRequest
from pydanube.model.names import TopicName
from pydanube.model.topic_patterns import TopicPattern
from pydanube.model.wildcards import has_wildcards


class TopicSelection:
    """The topics that a consumer selects: those it names, and those that match."""

    def __init__(self, topics: str | Iterable[str]) -> None:
        """
        Parse names and patterns.

        Raises:
            InvalidName: One of *topics* is neither a name nor a pattern.
            InvalidRequest: There are no *topics*.
        """
        texts = list(dict.fromkeys([topics] if isinstance(topics, str) else topics))
        if not texts:
            raise InvalidRequest(
                "the list of topics is empty: name at least one topic, or a pattern "
                "such as /default/orders-*"
            )
        self.names = [
            str(TopicName.parse(each)) for each in texts if not has_wildcards(each)
        ]
        self.patterns = [TopicPattern(each) for each in texts if has_wildcards(each)]
        self.is_single = isinstance(topics, str) and not self.patterns
        """True for the name of one topic, which is not in a list."""
        self._text = ", ".join(texts)

    def __str__(self) -> str:
        return self._text

    def namespaces(self) -> list[str | None]:
        """Return the namespaces whose topics may match a pattern; None: all."""
        found = dict.fromkeys(each.namespace for each in self.patterns)
        return [None] if None in found else list(found)

    def matching(self, listed: Iterable[str]) -> list[str]:
        """Return the topics and partitions of *listed* that match a pattern."""
        return [
            each
            for each in listed
            if any(pattern.matches(TopicName.parse(each)) for pattern in self.patterns)
        ]

    def includes(self, topic: str) -> bool:
        """Return whether *topic*, or the one that it is a partition of, is selected."""
        return self.includes_by_name(topic) or bool(self.matching([topic]))

    def includes_by_name(self, topic: str) -> bool:
        """Return whether *topic* is included whatever the patterns are."""
        base, _ = TopicName.parse(topic).split_partition() or (topic, 0)
        return topic in self.names or str(base) in self.names
