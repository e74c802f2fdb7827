"""Which broker of a cluster serves which topic, as far as a client knows."""

from __future__ import annotations

from google.protobuf.message import Message

from pydanube.model.errors import BrokerError, Remedy
from pydanube.wire.native.kinds import KIND_OF, Kind
from pydanube.wire.pb import stream_pb2 as pb

TOPICS_MAX = 10_000
"""The most topics whose owners a client remembers."""

_ANSWERED_BY_ALL = {
    Kind.LOOKUP,
    Kind.CREATE_TOPIC,
    Kind.ADD_PARTITIONS,
    Kind.LIST_PARTITIONS,
    Kind.GET_TOPIC_SCHEMA,
}
"""Requests with a topic that every broker of a cluster carries out."""


class TopicOwners:
    """
    The URLs of the brokers that serve topics.

    They may be outdated.  After an error the client forgets what it knew, and looks
    the topic up again.

    Bounds: It remembers ``TOPICS_MAX`` topics and forgets the oldest ones.
    """

    def __init__(self, *, topics_max: int = TOPICS_MAX) -> None:
        self._topics_max = topics_max
        self._urls: dict[str, str] = {}

    def find(self, topic: str) -> str | None:
        """Return the URL of the broker that serves *topic*; None: look it up."""
        return self._urls.get(topic)

    def on_location(self, topic: str, url: str) -> None:
        """Remember that the broker at *url* serves *topic*."""
        self._urls.pop(topic, None)
        if len(self._urls) >= self._topics_max:
            del self._urls[next(iter(self._urls))]
        self._urls[topic] = url

    def on_error(self, topic: str, url: str, error: BrokerError) -> None:
        """
        Forget the owner of *topic* if the broker at *url* cannot serve it now.

        A broker that has lost its session answers with other errors than
        ``NotOwner``, so every error that may pass is a reason to look the topic up.
        """
        if error.remedy is not Remedy.GIVE_UP and self._urls.get(topic) == url:
            del self._urls[topic]

    def on_broker_lost(self, url: str) -> None:
        """Forget the topics of the broker at *url*: another one may take them over."""
        self._urls = {
            topic: owner for topic, owner in self._urls.items() if owner != url
        }

    def forget(self, topic: str) -> None:
        """Forget the owner of *topic*."""
        self._urls.pop(topic, None)


def owned_topic_of(request: Message) -> str:
    """Return the topic whose owner carries out *request*; empty: any broker does."""
    is_forced = isinstance(request, pb.DeleteTopic) and request.force
    if is_forced or KIND_OF[type(request)] in _ANSWERED_BY_ALL:
        return ""
    return getattr(request, "topic", "")
