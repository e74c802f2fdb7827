"""Requests about the partitions of a topic, which producers and consumers also send."""

from __future__ import annotations

from typing import Any

from pydanube.client.connections.requester import Requester
from pydanube.model.errors import InvalidRequest, ProtocolViolation, TopicNotFound
from pydanube.model.policy import TopicPolicy
from pydanube.wire.native.messages import to_wire
from pydanube.wire.pb import stream_pb2 as pb


async def create_topic(
    requester: Requester,
    topic: str,
    policy: TopicPolicy,
    partitions: int | None,
    *,
    exist_ok: bool,
) -> None:
    """Create *topic* with *policy*; None: without partitions."""
    check_partitions(partitions)
    message = pb.CreateTopic(
        policy=to_wire(pb.TopicPolicy, policy),
        partitions=partitions or 0,
        exist_ok=exist_ok,
    )
    await requester.request_topic(topic, message)


async def find_partitions(requester: Requester, topic: str) -> Any:
    """Return whether *topic* is partitioned, and its partitions."""
    answer = await requester.request_topic(topic, pb.ListPartitions())
    if answer.is_partitioned and not answer.topics:
        raise ProtocolViolation(f"the broker answered that {topic} has no partitions")
    return answer


async def existing_partitions(requester: Requester, topic: str) -> list[str]:
    """
    Return the partitions of *topic*, at least one.

    Raises:
        TopicNotFound: There is no such topic.
    """
    names = list((await find_partitions(requester, topic)).topics)
    if not names:
        raise TopicNotFound(f"Unable to find the topic: {topic}")
    return names


async def one_partition(requester: Requester, topic: str, what: str) -> str:
    """
    Return *topic* or its only partition.

    Raises:
        InvalidRequest: It has several partitions, and *what* needs one.
    """
    names = await existing_partitions(requester, topic)
    if len(names) > 1:
        raise InvalidRequest(
            f"{topic} has {len(names)} partitions, and {what} needs one: name it, "
            f"for example {names[0]}"
        )
    return names[0]


def check_partitions(partitions: int | None) -> None:
    """Raise unless a topic may have *partitions*."""
    if partitions is not None and partitions < 1:
        raise InvalidRequest(
            f"partitions is {partitions}: a topic has at least one partition"
        )
