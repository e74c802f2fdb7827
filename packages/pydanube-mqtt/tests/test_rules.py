"""The first rule that matches decides about a topic of MQTT."""

from __future__ import annotations

import tracemalloc

import msgspec
import pytest

from pydanube.model.errors import InvalidConfig
from pydanube.model.names import TopicName
from pydanube_mqtt.config import MqttConfig
from pydanube_mqtt.pure.messages import TOPIC, Row
from pydanube_mqtt.pure.rules import TOPIC_BYTES_MAX, Rules
from pydanube_mqtt.rule_config import MqttRule
from pydanube_mqtt.wire.packets import PacketError
from pydanube_mqtt.wire.topics import TopicFilter

SENSORS, ALARM = TopicName.parse("/iot/sensors"), TopicName.parse("/iot/alarm")
RULES = Rules(
    [
        MqttRule(filter="sensors/+/alarm", topic=str(ALARM)),
        MqttRule(filter="sensors/#", topic=str(SENSORS)),
        MqttRule(filter="alarm", topic=str(ALARM)),
    ]
)


def row(key=None, **attributes):
    return Row(
        offset=0,
        payload=b"",
        key=key,
        attributes=attributes,
        expires_at_us=None,
        producer="",
    )


@pytest.mark.parametrize(
    ("topic", "target"),
    [("sensors/1/alarm", ALARM), ("sensors/1", SENSORS), ("alarm", ALARM)],
)
def test_the_first_rule_counts(topic, target):
    for _ in range(2):
        assert RULES.check(topic).target == target


@pytest.mark.parametrize(
    "topic", ["other", "", "sensors/+", "$SYS/a", "sensors/" + "é" * TOPIC_BYTES_MAX]
)
def test_other_topics_are_refused(topic):
    with pytest.raises(PacketError):
        RULES.check(topic)


def test_long_topics_are_not_remembered():
    rules = Rules([MqttRule(filter="#", topic=str(ALARM))])
    tracemalloc.start()
    try:
        for number in range(100):
            with pytest.raises(PacketError):
                rules.check(f"{number}/" + "x" * 60_000)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 10 * 60_000


def test_subscriptions_read_all_topics_that_may_match():
    def targets(text):
        return RULES.targets_of(TopicFilter.parse(text))

    assert targets("#") == [ALARM, SENSORS]
    assert targets("sensors/1/temperature") == [SENSORS]
    assert targets("other/#") == []


def test_stored_messages_have_the_topic_of_attribute_key_or_rule():
    assert RULES.topic_of(row(b"sensors/1"), SENSORS) == "sensors/1"
    named = row(b"device", **{TOPIC: "sensors/2"})
    assert RULES.topic_of(named, SENSORS) == "sensors/2"
    assert RULES.topic_of(row(), SENSORS) is None
    assert RULES.topic_of(row(b"\xff"), SENSORS) is None
    assert RULES.topic_of(row(b"customer 7"), ALARM) == "alarm"


def test_a_topic_of_the_broker_has_no_messages_for_topics_of_others():
    assert RULES.topic_of(row(b"sensors/1/alarm"), SENSORS) is None
    assert RULES.topic_of(row(b"sensors/1/alarm"), ALARM) == "sensors/1/alarm"


@pytest.mark.parametrize(
    "fields",
    [
        {"filter": "a/#/b", "topic": "/a/b"},
        {"filter": "$share/g/a", "topic": "/a/b"},
        {"filter": "$SYS/#", "topic": "/a/b"},
        {"filter": "a", "topic": "b"},
        {"filter": "a", "topic": "/a/b", "key": "x"},
        {"filter": "a", "topic": "/a/b", "unknown": 1},
    ],
)
def test_invalid_rules_are_refused(fields):
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(fields, MqttRule)


def test_a_topic_is_reliable_or_not_in_all_rules():
    with pytest.raises(InvalidConfig, match="same value of reliable"):
        MqttConfig(
            rules=(
                MqttRule(filter="a", topic="/a/b"),
                MqttRule(filter="b", topic="/a/b", reliable=False),
            )
        )
