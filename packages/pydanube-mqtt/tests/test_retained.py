"""Retained messages are found by filter, and stay within their bounds."""

from __future__ import annotations

import pytest

from pydanube_mqtt.pure.messages import Message
from pydanube_mqtt.pure.retained import RetainedMessages
from pydanube_mqtt.wire.packets import PacketError, Property, Reason
from pydanube_mqtt.wire.topics import TopicFilter


def retained(**bounds):
    return RetainedMessages(**{"messages_max": 10, "bytes_max": 10_000} | bounds)


def found_by(messages, text, now_us=0):
    matching = messages.match(TopicFilter.parse(text), now_us)
    return sorted(each.payload for each in matching)


def test_the_last_message_of_each_topic_is_retained():
    messages = retained()
    for topic, payload in (("a/b", b"1"), ("a/c", b"2"), ("a/b", b"3")):
        messages.put(Message(topic, payload))
    assert found_by(messages, "a/+") == [b"2", b"3"]
    assert messages.count == 2
    assert messages.remove("a/b")
    assert not messages.remove("a/b")
    assert found_by(messages, "#") == [b"2"]
    messages.remove("a/c")
    assert (messages.count, messages.byte_count) == (0, 0)


@pytest.mark.parametrize("bounds", [{"messages_max": 1}, {"bytes_max": 300}])
def test_no_more_are_retained_than_there_is_room_for(bounds):
    messages = retained(**bounds)
    messages.put(Message("a", b"1"))
    with pytest.raises(PacketError) as refusal:
        messages.check(Message("b", b"1"))
    assert refusal.value.reason is Reason.QUOTA_EXCEEDED
    messages.check(Message("a", b"2"))


def test_properties_count():
    messages = retained()
    large = {Property.USER_PROPERTY: (("a", "x" * 10_000),)}
    with pytest.raises(PacketError):
        messages.check(Message("a", b"1", properties=large))


def test_expired_messages_are_not_found():
    messages = retained()
    messages.put(Message("a", b"1", expires_at_us=100))
    messages.put(Message("b", b"2"))
    assert found_by(messages, "#", 99) == [b"1", b"2"]
    assert found_by(messages, "#", 100) == [b"2"]
    assert messages.expired(100) == ["a"]
