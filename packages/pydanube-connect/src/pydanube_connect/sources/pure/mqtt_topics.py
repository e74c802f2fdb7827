"""The topics of MQTT: which filter matches a name, and the topic it maps to.  Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from pydanube.model.errors import InvalidConfig
from pydanube.model.names import TopicName

_LEVEL = re.compile(r"\{(\d+)\}")
_NOT_IN_NAMES = re.compile(r"[^\w-]+")

MATCHES_CACHED_MAX = 10_000
"""For how many MQTT topics the mapping is remembered."""


class MqttFilter:
    """A filter of MQTT topics, and the topics of Danube that it maps to."""

    def __init__(self, text: str, target: str | None) -> None:
        """
        Parse *text*, such as ``sensors/+/temperature`` or ``$share/group/sensors/#``.

        *target* is a topic in which ``{1}`` stands for the level of the first ``+``;
        None: the topic of the connector.

        Raises:
            InvalidConfig: The filter is malformed, or has too few ``+`` for *target*.
            InvalidName: *target* cannot be the name of a topic.
        """
        self.text = text
        self.target = target
        levels = text.split("/")
        self._group: list[str] = []
        if levels[0] == "$share":
            self._group, levels = levels[:2], levels[2:]
        is_valid = bool(text) and bool(levels) and levels != [""]
        for number, level in enumerate(levels):
            if ("+" in level and level != "+") or (
                "#" in level and (level != "#" or number < len(levels) - 1)
            ):
                is_valid = False
        if not is_valid:
            raise InvalidConfig(
                f"{text!r} is not an MQTT filter: + stands for a whole level, and # "
                "for all last ones"
            )
        self._levels = levels
        count = levels.count("+")
        if target is not None:
            for found in _LEVEL.finditer(target):
                if not 1 <= int(found[1]) <= count:
                    raise InvalidConfig(
                        f"{target!r} uses {found[0]}, and {text!r} has {count} times +"
                    )
            TopicName.parse(_LEVEL.sub("x", target))

    def covers(self, other: MqttFilter) -> bool:
        """Return whether it matches all topics that *other* matches."""
        if self._group != other._group:
            return False
        theirs = other._levels
        for number, level in enumerate(self._levels):
            if level == "#":
                return True
            if number >= len(theirs) or theirs[number] == "#":
                return False
            if level not in {"+", theirs[number]}:
                return False
        return len(self._levels) == len(theirs)

    def match(self, topic: str) -> list[str] | None:
        """Return the levels of *topic* at each ``+``, or None if it does not match."""
        names = topic.split("/")
        if topic.startswith("$") and self._levels[0] in {"+", "#"}:
            return None
        found: list[str] = []
        for number, level in enumerate(self._levels):
            if level == "#":
                return found
            if number >= len(names):
                return None
            if level == "+":
                found.append(names[number])
            elif level != names[number]:
                return None
        return found if len(names) == len(self._levels) else None

    def topic_of(self, levels: list[str]) -> str | None:
        """Return the topic for these levels; what names cannot have becomes ``_``."""
        if self.target is None:
            return None
        return _LEVEL.sub(
            lambda found: _NOT_IN_NAMES.sub("_", levels[int(found[1]) - 1]) or "_",
            self.target,
        )


class MqttTopics:
    """The mapping of MQTT topics by filters, of which the first that matches counts."""

    def __init__(self, filters: Mapping[str, str | None]) -> None:
        """Raise as ``MqttFilter``."""
        self._filters = [MqttFilter(*each) for each in filters.items()]
        self._found: dict[str, str | None] = {}

    @property
    def subscriptions(self) -> list[str]:
        """
        The filters to subscribe to: those that no other covers.

        An MQTT broker sends a message once for each subscription that it matches.
        """
        return [
            each.text
            for number, each in enumerate(self._filters)
            if not any(
                other.covers(each) and (at < number or not each.covers(other))
                for at, other in enumerate(self._filters)
                if at != number
            )
        ]

    def topic_of(self, topic: str) -> str | None:
        """Return the topic for messages of *topic*; None: that of the connector."""
        if topic not in self._found:
            if len(self._found) >= MATCHES_CACHED_MAX:
                self._found.clear()
            self._found[topic] = self._find(topic)
        return self._found[topic]

    def _find(self, topic: str) -> str | None:
        for each in self._filters:
            levels = each.match(topic)
            if levels is not None:
                return each.topic_of(levels)
        return None
