"""Tests of MQTT filters, and of the topics that they map to."""

import pytest

from pydanube.model.errors import InvalidConfig, InvalidName
from pydanube_connect.sources.pure.mqtt_topics import MqttFilter, MqttTopics


@pytest.mark.parametrize(
    ("text", "topic", "levels"),
    [
        ("a/b", "a/b", []),
        ("a/b", "a/b/c", None),
        ("a/+", "a/b", ["b"]),
        ("a/+", "a", None),
        ("a/+/c/+", "a/b/c/", ["b", ""]),
        ("+", "/a", None),
        ("/+", "/a", ["a"]),
        ("a/#", "a", []),
        ("a/#", "a/b/c", []),
        ("a/#", "ab", None),
        ("#", "a/b", []),
        ("#", "$SYS/uptime", None),
        ("+/uptime", "$SYS/uptime", None),
        ("$SYS/#", "$SYS/uptime", []),
        ("$share/g/a/+", "a/b", ["b"]),
    ],
)
def test_filters_match_as_mqtt_says(text, topic, levels):
    assert MqttFilter(text, None).match(topic) == levels


@pytest.mark.parametrize("text", ["", "a+/b", "a/#/b", "a/b#", "$share/g"])
def test_malformed_filter_is_refused(text):
    with pytest.raises(InvalidConfig, match="not an MQTT filter"):
        MqttFilter(text, None)


def test_target_uses_levels_of_its_filter():
    with pytest.raises(InvalidConfig, match="has 1 times"):
        MqttFilter("a/+", "/default/{2}")
    with pytest.raises(InvalidName):
        MqttFilter("a/+", "default-{1}")


def test_first_filter_that_matches_names_the_topic():
    topics = MqttTopics(
        {"s/+/temperature": "/default/t-{1}", "s/#": None, "#": "/default/rest"}
    )
    assert topics.topic_of("s/hall 1/temperature") == "/default/t-hall_1"
    assert topics.topic_of("s//temperature") == "/default/t-_"
    assert topics.topic_of("s/1/pressure") is None
    assert topics.topic_of("x") == "/default/rest"


@pytest.mark.parametrize(
    ("filters", "subscriptions"),
    [
        (["a/+", "a/#"], ["a/#"]),
        (["a/b", "a/+", "+/+"], ["+/+"]),
        (["a/+", "+/b"], ["a/+", "+/b"]),
        (["a/#", "a/+"], ["a/#"]),
        (["$share/g/a/#", "a/b"], ["$share/g/a/#", "a/b"]),
        (["$share/g/a/#", "$share/g/a/b"], ["$share/g/a/#"]),
        (["a", "a/#"], ["a/#"]),
    ],
)
def test_covered_filters_are_not_subscribed_to(filters, subscriptions):
    assert MqttTopics(dict.fromkeys(filters)).subscriptions == subscriptions
