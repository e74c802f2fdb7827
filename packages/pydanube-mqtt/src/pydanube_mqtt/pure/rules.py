"""The rules that map topics of MQTT to topics of the broker.  Pure."""

from __future__ import annotations

from collections.abc import Sequence

from pydanube.model.names import TopicName
from pydanube_mqtt.pure.messages import TOPIC, Row
from pydanube_mqtt.rule_config import MqttRule
from pydanube_mqtt.wire.packets import PacketError, Reason
from pydanube_mqtt.wire.topics import TopicFilter, check_topic

TOPIC_BYTES_MAX = 1024
"""The longest topic of MQTT."""
CACHED_MAX = 10_000
"""The most topics whose rule is remembered."""


class Rule:
    """A rule of the settings."""

    __slots__ = (
        "dead_letter_topic",
        "filter",
        "key",
        "on_invalid",
        "only_topic",
        "schema",
        "schema_version",
        "target",
    )

    def __init__(self, config: MqttRule) -> None:
        self.filter = TopicFilter.parse(config.filter)
        self.target = TopicName.parse(config.topic)
        self.key = config.key
        self.schema = config.schema
        self.schema_version = config.schema_version
        self.on_invalid = config.on_invalid
        self.dead_letter_topic = (
            TopicName.parse(config.dead_letter_topic)
            if config.dead_letter_topic
            else None
        )
        self.only_topic = None if self.filter.has_wildcards else self.filter.text


class Rules:
    """
    All rules; the first one that matches counts.

    Bounds: ``CACHED_MAX`` topics of at most ``TOPIC_BYTES_MAX`` are remembered.
    """

    def __init__(self, rules: Sequence[MqttRule]) -> None:
        self.rules = [Rule(each) for each in rules]
        self._found: dict[str, Rule | PacketError] = {}

    def check(self, topic: str) -> Rule:
        """
        Return the rule of a topic that a client publishes to.

        Raises:
            PacketError: The topic is not valid, or no rule matches.
        """
        found = self._found.get(topic)
        if found is None:
            found = self._find(topic)
            if len(self._found) >= CACHED_MAX:
                self._found.clear()
            if len(topic) <= TOPIC_BYTES_MAX:
                self._found[topic] = found
        if isinstance(found, PacketError):
            try:
                # The same exception object is raised repeatedly: drop its traceback.
                raise found.with_traceback(None)
            finally:
                # Its traceback has this frame, which would keep it and the topic.
                del found
        return found

    def _find(self, topic: str) -> Rule | PacketError:
        try:
            check_topic(topic)
        except PacketError as error:
            return error
        reason, shown = Reason.TOPIC_NAME_INVALID, repr(topic[:80])
        if topic.startswith("$"):
            return PacketError(
                reason, f"{shown} begins with $: clients do not publish to such topics"
            )
        byte_count = len(topic.encode())
        if byte_count > TOPIC_BYTES_MAX:
            return PacketError(
                reason,
                f"the topic {shown}… has {byte_count} bytes; topics have at most "
                f"{TOPIC_BYTES_MAX}",
            )
        for rule in self.rules:
            if rule.filter.matches(topic):
                return rule
        return PacketError(
            reason, f"no rule of this broker (mqtt.rules) matches the topic {shown}"
        )

    def targets_of(self, topic_filter: TopicFilter) -> list[TopicName]:
        """Return the topics that may have messages for a subscription."""
        found = {
            rule.target: None
            for rule in self.rules
            if rule.filter.overlaps(topic_filter)
        }
        return list(found)

    def topic_of(self, row: Row, target: TopicName) -> str | None:
        """
        Return the topic of MQTT of a message in *target*; None if it has none.

        It is in an attribute or the key, or the only one that a rule maps to *target*.
        A topic counts only if its rule maps it to *target*, so that those who may
        publish there cannot publish to other topics of MQTT.
        """
        topic = row.attributes.get(TOPIC) if row.attributes else None
        if topic is None and row.key is not None:
            try:
                topic = row.key.decode()
            except UnicodeDecodeError:
                topic = None
        if topic is not None and self._is_mapped(topic, target):
            return topic
        for rule in self.rules:
            if rule.target == target and rule.only_topic is not None:
                return rule.only_topic
        return None

    def _is_mapped(self, topic: str, target: TopicName) -> bool:
        try:
            return self.check(topic).target == target
        except PacketError:
            return False
