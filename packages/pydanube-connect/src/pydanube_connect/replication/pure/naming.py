"""Which topics are replicated, and their names at the target.  Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pydanube.model.errors import InvalidRequest
from pydanube.model.names import SYSTEM_NAMESPACE, TopicName
from pydanube.model.topic_patterns import TopicPattern

INTERNAL_PREFIX = "/default/replicate-"
"""The topics of replications themselves; they are never replicated."""


@dataclass(frozen=True, slots=True)
class TopicNaming:
    """The patterns of the topics to replicate, and the prefixes to replace."""

    patterns: tuple[TopicPattern, ...]
    renames: tuple[tuple[str, str], ...]

    @classmethod
    def parse(cls, patterns: Sequence[str], renames: Sequence[str]) -> TopicNaming:
        """
        Return the naming for patterns such as ``/shop/*``, and ``OLD=NEW`` prefixes.

        Raises:
            InvalidName: A pattern is malformed.
            InvalidRequest: A rename is malformed.
        """
        pairs = []
        for text in renames:
            old, equals, new = text.partition("=")
            if not (equals and old.startswith("/") and new.startswith("/")):
                raise InvalidRequest(
                    f"--rename is {text!r}; write OLD=NEW, two beginnings of names "
                    "such as /shop/=/eu-shop/"
                )
            pairs.append((old, new))
        return cls(tuple(map(TopicPattern, patterns)), tuple(pairs))

    def matches(self, topic: str) -> bool:
        """Return whether *topic*, which may be a partition, is replicated."""
        name = TopicName.parse(topic)
        if name.namespace == SYSTEM_NAMESPACE or topic.startswith(INTERNAL_PREFIX):
            return False
        return any(each.matches(name) for each in self.patterns)

    def target_of(self, topic: str) -> str:
        """
        Return the name of *topic* at the target; the first rename that fits applies.

        Raises:
            InvalidName: The new name is malformed.
        """
        for old, new in self.renames:
            if topic.startswith(old):
                topic = new + topic.removeprefix(old)
                break
        return str(TopicName.parse(topic))
