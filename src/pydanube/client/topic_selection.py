"""The topics that a consumer selects, by name or by pattern.  Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import translate

from pydanube.model.errors import InvalidName, InvalidRequest
from pydanube.model.names import SYSTEM_NAMESPACE, TopicName

_WILDCARD = re.compile(r"[*?]")


class TopicPattern:
    """
    A pattern of topic names: ``*`` is any text without a slash, ``?`` one character.

    The partitions of a topic match if the topic's own name matches.
    """

    __slots__ = ("_namespace", "_topic", "namespace")

    def __init__(self, text: str) -> None:
        """
        Parse a pattern.

        Raises:
            InvalidName: *text* without its wildcards is not like a topic's name.
        """
        try:
            TopicName.parse(_WILDCARD.sub("x", text))
        except InvalidName:
            raise InvalidName(
                f"the pattern {text} must be /namespace/topic, in which * stands for "
                "any text without a slash and ? for one character"
            ) from None
        _, namespace, topic = text.split("/")
        self.namespace = None if is_pattern(namespace) else namespace
        """The only namespace with matching topics; None: there may be several."""
        self._namespace = re.compile(translate(namespace))
        self._topic = re.compile(translate(topic))

    def matches(self, name: TopicName) -> bool:
        """Return whether *name* is a topic, or a partition of one, that matches."""
        if self.namespace is None and name.namespace == SYSTEM_NAMESPACE:
            return False
        base, _ = name.split_partition() or (name, 0)
        return bool(
            self._namespace.match(base.namespace) and self._topic.match(base.topic)
        )


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
            str(TopicName.parse(each)) for each in texts if not is_pattern(each)
        ]
        self.patterns = [TopicPattern(each) for each in texts if is_pattern(each)]
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


def is_pattern(text: str) -> bool:
    """Return whether *text* is a pattern instead of a name."""
    return _WILDCARD.search(text) is not None
