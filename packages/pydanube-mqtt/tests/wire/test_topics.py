"""Filters match the topics that the standard says, and no others."""

from __future__ import annotations

import pytest

from pydanube_mqtt.wire.packets import PacketError
from pydanube_mqtt.wire.topics import (
    LEVELS_MAX,
    TopicFilter,
    TopicTree,
    check_topic,
)


@pytest.mark.parametrize(
    ("text", "matching", "others"),
    [
        ("a/b", ["a/b"], ["a", "a/b/c", "a/B", "/a/b"]),
        ("a/+/c", ["a/b/c", "a//c"], ["a/c", "a/b/c/d"]),
        ("a/#", ["a", "a/", "a/b/c"], ["b", "ab"]),
        ("#", ["a", "a/b", "/"], ["$SYS/a"]),
        ("+/+", ["a/b", "/"], ["a", "$SYS/a"]),
        ("+", ["a"], ["/a", "$SYS"]),
        ("$SYS/#", ["$SYS", "$SYS/a"], ["a"]),
    ],
)
def test_filters_match(text, matching, others):
    parsed = TopicFilter.parse(text)
    assert [each for each in matching + others if parsed.matches(each)] == matching


@pytest.mark.parametrize(
    "text",
    [
        *("", "a#", "#/a", "a/b+", "+a", "a/#/b"),
        *("$share", "$share/g", "$share/g/", "$share//a", "$share/+/a"),
        "/" * LEVELS_MAX,
    ],
)
def test_other_texts_are_no_filters(text):
    with pytest.raises(PacketError):
        TopicFilter.parse(text)


def test_shared_filters_have_a_group():
    shared = TopicFilter.parse("$share/g/a/#")
    assert (shared.group, shared.text, shared.levels) == ("g", "a/#", ("a", "#"))


@pytest.mark.parametrize("topic", ["", "a/+", "#", "a\0", "/" * LEVELS_MAX])
def test_other_texts_are_no_topics(topic):
    with pytest.raises(PacketError):
        check_topic(topic)


@pytest.mark.parametrize(
    ("one", "two", "overlap"),
    [
        ("a/+", "+/b", True),
        ("a/#", "a", True),
        ("a/b", "a/c", False),
        ("a", "a/b", False),
        ("+/b", "a/+/c", False),
    ],
)
def test_filters_overlap(one, two, overlap):
    assert TopicFilter.parse(one).overlaps(TopicFilter.parse(two)) is overlap


def test_a_topic_tree_has_one_value_for_each_topic():
    tree = TopicTree()
    assert tree.put("a/b", 1) is None
    assert tree.put("a/b", 2) == 1
    assert (tree.get("a/b"), tree.get("a"), tree.get("x")) == (2, None, None)
    assert tree.pop("a") is None
    assert tree.pop("x/y") is None
    assert tree.pop("a/b") == 2
