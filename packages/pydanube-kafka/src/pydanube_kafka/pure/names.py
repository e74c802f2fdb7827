"""The names of Kafka topics, and those of the broker."""

from __future__ import annotations

import re

from pydanube.model.errors import InvalidName
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.names import DEFAULT_NAMESPACE, SYSTEM_NAMESPACE, TopicName

KAFKA_NAME_LENGTH_MAX = 249

_KAFKA = re.compile(r"[A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class TopicNames:
    """The names that Kafka clients use, which may begin with a namespace."""

    has_namespaces: bool

    def parse(self, name: str) -> TopicName:
        """
        Return the topic of the broker that clients call *name*.

        Raises:
            InvalidName: No topic is called so.
        """
        namespace, topic = str(DEFAULT_NAMESPACE), name
        if self.has_namespaces:
            before, dot, after = name.partition(".")
            if dot:
                namespace, topic = before, after
        if len(name) > KAFKA_NAME_LENGTH_MAX or not _KAFKA.fullmatch(name):
            raise InvalidName(
                f"The topic {name[:80]!r} must have 1 to {KAFKA_NAME_LENGTH_MAX} "
                "letters, digits, dots, '_' and '-'"
            )
        found = TopicName.parse(f"/{namespace}/{topic}")
        if found.split_partition() is not None:
            raise InvalidName(f"The topic {name!r} is a partition; name its topic")
        return found

    def name_of(self, topic: TopicName) -> str | None:
        """Return what clients call *topic*; None if they cannot name it."""
        name = topic.topic
        if topic.namespace != DEFAULT_NAMESPACE or (
            self.has_namespaces and "." in topic.topic
        ):
            if not self.has_namespaces or topic.namespace == SYSTEM_NAMESPACE:
                return None
            name = f"{topic.namespace}.{topic.topic}"
        if len(name) > KAFKA_NAME_LENGTH_MAX or not _KAFKA.fullmatch(name):
            return None
        return name
