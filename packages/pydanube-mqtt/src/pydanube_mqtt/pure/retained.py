"""
The retained messages: the last one of each topic that was published with RETAIN.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydanube_mqtt.pure.messages import Message
from pydanube_mqtt.wire.packets import PacketError, Reason
from pydanube_mqtt.wire.topics import TopicFilter, TopicTree


class RetainedMessages:
    """
    The retained messages in memory.

    Bounds: *messages_max* messages and *bytes_max* bytes.
    """

    def __init__(self, *, messages_max: int, bytes_max: int) -> None:
        self.count = 0
        self.byte_count = 0
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._tree: TopicTree[Message] = TopicTree()

    def check(self, message: Message) -> None:
        """
        Raise if there is no room for *message*.

        Raises:
            PacketError: There are too many, or they are too large together.
        """
        before = self._tree.get(message.topic)
        count = self.count + (before is None)
        byte_count = self.byte_count + message.byte_count
        if before is not None:
            byte_count -= before.byte_count
        if count > self._messages_max or byte_count > self._bytes_max:
            raise PacketError(
                Reason.QUOTA_EXCEEDED,
                f"the broker retains {self.count} messages of {self.byte_count} bytes; "
                "mqtt.retained_messages_max and mqtt.retained_bytes_max allow no more",
            )

    def put(self, message: Message) -> None:
        """Replace the retained message of a topic; call ``check`` before."""
        before = self._tree.put(message.topic, message)
        self.count += before is None
        self.byte_count += message.byte_count
        if before is not None:
            self.byte_count -= before.byte_count

    def remove(self, topic: str) -> bool:
        """Remove the retained message of *topic*; return whether there was one."""
        before = self._tree.pop(topic)
        if before is None:
            return False
        self.count -= 1
        self.byte_count -= before.byte_count
        return True

    def match(self, topic_filter: TopicFilter, now_us: int) -> Iterator[Message]:
        """Yield the messages of the topics that match a filter."""
        for message in self._tree.match(topic_filter):
            if not message.is_expired(now_us):
                yield message

    def expired(self, now_us: int) -> list[str]:
        """Return the topics whose message has expired."""
        everything = TopicFilter("#", ("#",))
        return [
            each.topic
            for each in self._tree.match(everything)
            if each.is_expired(now_us)
        ]
