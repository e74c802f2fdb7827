"""What a client asks about topics and their partitions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pydanube.client.requester import Requester
from pydanube.model.errors import (
    InvalidRequest,
    NotFound,
    ProtocolViolation,
    TopicNotFound,
)
from pydanube.model.names import TopicName, parse_namespace
from pydanube.model.policy import (
    CorruptionPolicy,
    DispatchMode,
    Durability,
    Retention,
    TopicPolicy,
)
from pydanube.model.positions import parse_choice, to_microseconds
from pydanube.wire.batches import TIME_MAX, TIME_MIN
from pydanube.wire.native.messages import (
    limits_to_wire,
    on_corruption_to_wire,
    policy_to_wire,
    segments_from_wire,
    topic_from_wire,
)
from pydanube.wire.pb import stream_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from pydanube.model.descriptions import Segments, TopicDescription
    from pydanube.model.policy import NamespacePolicy

PAGE = 1000
"""The most names, or descriptions, requested at a time."""


class TopicRequests(Requester):
    """Topics and partitions; a part of ``Client``."""

    async def create_topic(
        self,
        topic: str,
        *,
        partitions: int | None = None,
        reliable: bool = True,
        durability: str = "durable",
        retention_age_s: float | None = None,
        retention_bytes_max: int | None = None,
        ttl_s: float | None = None,
        on_corruption: str = "stop",
        exist_ok: bool = False,
    ) -> None:
        """
        Create *topic*.

        Args:
            topic: ``/{namespace}/{topic}``.
            partitions: Create so many topics instead, its partitions
                ``{topic}-part-0``, ``{topic}-part-1`` …; producers and consumers
                of *topic* spread over them.
            reliable: On disk and replayable, or in memory only.
            durability: What an acknowledgement means: ``"durable"`` (on disk) or
                ``"written"`` (with the operating system).
            retention_age_s: Drop history that is older; None: never.
            retention_bytes_max: Drop the oldest history beyond this; None: never.
            ttl_s: Do not deliver what is older; None: deliver it however old.
            on_corruption: What subscriptions do if a segment cannot be read:
                ``"stop"`` with an error, or ``"skip"`` its messages.
            exist_ok: Whether it may exist already, with the same settings.

        Raises:
            AlreadyExists: It exists.
            NamespaceNotFound: Its namespace does not exist.
        """
        if ttl_s is not None and ttl_s <= 0:
            raise InvalidRequest("a topic's ttl_s is more than 0, or None")
        policy = TopicPolicy(
            dispatch=DispatchMode.RELIABLE if reliable else DispatchMode.NON_RELIABLE,
            durability=parse_choice("durability", durability, Durability),
            retention=Retention(age_s=retention_age_s, bytes_max=retention_bytes_max),
            ttl_s=ttl_s,
            on_corruption=parse_choice(
                "on_corruption", on_corruption, CorruptionPolicy
            ),
        )
        await self.create_topics(topic, policy, partitions, exist_ok=exist_ok)

    async def create_topics(
        self, topic: str, policy: TopicPolicy, partitions: int | None, *, exist_ok: bool
    ) -> None:
        """For the parts of the client: ``create_topic`` in the words of the model."""
        _check_partitions(partitions)
        if partitions is not None or policy.ttl_s is not None:
            self.require(1, "partitions and times to live")
        await self.request(
            pb.CreateTopic(
                topic=str(TopicName.parse(topic)),
                policy=policy_to_wire(policy),
                partitions=partitions or 0,
                exist_ok=exist_ok,
            )
        )

    async def delete_topic(self, topic: str, *, force: bool = False) -> None:
        """
        Remove *topic*, with all its partitions, messages and subscriptions.

        Raises:
            TopicNotFound: There is no such topic.
            InvalidRequest: It is one partition of several.
            SubscriptionInUse: Somebody produces or consumes, and *force* is false.
            TopicHeld: Somebody relies on its segments, and *force* is false.
        """
        await self.request(
            pb.DeleteTopic(topic=str(TopicName.parse(topic)), force=force),
        )

    async def topics(self, namespace: str | None = None) -> list[str]:
        """The names of all topics, or of those of *namespace*; also of partitions."""
        names: list[str] = []
        has_more = True
        while has_more:
            message = pb.ListTopics(
                namespace=parse_namespace(namespace) if namespace else "",
                after=names[-1] if names else "",
                limit=PAGE,
            )
            answer = await self.request(message)
            names += answer.topics
            has_more = answer.has_more
        return names

    async def describe_topic(self, topic: str) -> TopicDescription:
        """
        What is known of *topic*, or of one partition, at the moment.

        Raises:
            TopicNotFound: There is no such topic; a name that stands for several
                partitions is none.
        """
        name, first = str(TopicName.parse(topic)), 0
        described: TopicDescription | None = None
        while True:
            message = pb.DescribeTopic(topic=name, limit=PAGE, first=first)
            answer = await self.request(message)
            page = topic_from_wire(answer)
            if described is not None:
                page = replace(
                    page,
                    producers=described.producers + page.producers,
                    subscriptions=described.subscriptions + page.subscriptions,
                )
            if not answer.has_more:
                return page
            described, first = page, first + PAGE

    async def segments(self, topic: str, base: int = 0, end: int = 0) -> Segments:
        """
        The immutable files that hold messages ``base … end`` (0: all) of *topic*.

        Raises:
            TopicNotFound: There is no such topic.
        """
        message = pb.ListSegments(
            topic=str(TopicName.parse(topic)), base_offset=base, end_offset=end
        )
        return segments_from_wire(await self.request(message))

    async def replace_segments(
        self,
        topic: str,
        topic_id: int,
        old: Sequence[str],
        new: Sequence[tuple[str, int, int]],
    ) -> int:
        """
        For maintenance: put objects in the place of segments of *topic*.

        Args:
            topic: A topic, or one partition.
            topic_id: Which one it was when the objects were made.
            old: The object names of segments that follow each other.
            new: Of each object its name, length and CRC-32C.

        Returns: How many messages that removed.

        Durability: The broker has compared the objects with what they replace, and the
            topic consists of them, or nothing has changed.

        Raises:
            TopicNotFound: There is no such topic any more.
            TopicHeld: Its segments are to stay as they are.
            SegmentsChanged: It does not consist of the old ones any more.
            InvalidRequest: The objects cannot take their place; or the broker is too
                old.
        """
        self.require(3, "replacing segments")
        message = pb.ReplaceSegments(
            topic=str(TopicName.parse(topic)), topic_id=topic_id, old=old
        )
        for name, byte_count, checksum in new:
            message.new.add(object_name=name, byte_count=byte_count, checksum=checksum)
        answer = await self.request(message)
        return int(answer.removed)

    async def hold_topic(self, topic: str, name: str, reason: str = "") -> None:
        """
        Have the segments of *topic*, or of each of its partitions, stay as they are.

        Until ``release_topic``, retention and maintenance leave them, and the topic is
        not deleted without force.  Ask which segments there are after this, not
        before.  Holding again with the same *name* changes the reason.

        Durability: It is on disk on return, and outlives the broker.

        Raises:
            TopicNotFound: There is no such topic.
            InvalidRequest: It does not store its messages, or too many hold it; or the
                broker is too old.
        """
        self.require(3, "holds")
        for each in await self.existing_partitions(topic):
            message = pb.HoldTopic(topic=each, name=name, reason=reason)
            await self.request(message)

    async def release_topic(self, topic: str, name: str) -> None:
        """
        End the hold called *name* on *topic*, or on each of its partitions.

        Raises:
            TopicNotFound: There is no such topic.
            NotFound: There is no such hold; of partitions, on none of them.
        """
        self.require(3, "holds")
        missing: NotFound | None = None
        topics = await self.existing_partitions(topic)
        released = 0
        for each in topics:
            message = pb.ReleaseTopic(topic=each, name=name)
            try:
                await self.request(message)
            except TopicNotFound:
                raise
            except NotFound as error:
                missing = error
            else:
                released += 1
        if missing is not None and not released:
            raise missing

    async def find_offsets(
        self, topic: str, times: Sequence[datetime | float]
    ) -> list[int | None]:
        """
        Where *topic* stood at each of *times*: datetimes, or seconds since 1970.

        That is the offset of the first message that was published then or later, and
        None where there is no such message yet.  Publish times are the producers',
        who may disagree; the first is the one with the lowest offset.

        Raises:
            TopicNotFound: There is no such topic; a name that stands for several
                partitions is none.
            InvalidRequest: It does not store its messages, a time is none, or there
                are more than a thousand; or the broker is too old.
        """
        self.require(3, "offsets by time")
        message = pb.FindOffsets(
            topic=str(TopicName.parse(topic)),
            # Further away there are no times; all messages are later, or none is.
            publish_time=[
                max(TIME_MIN, min(to_microseconds(time), TIME_MAX + 1))
                for time in times
            ],
        )
        answer = await self.request(message)
        if len(answer.offset) != len(times):
            raise ProtocolViolation(
                f"the broker answered {len(times)} times with {len(answer.offset)} "
                "offsets"
            )
        return [
            offset if offset < answer.end_offset else None for offset in answer.offset
        ]

    async def set_topic_limits(
        self, topic: str, limits: NamespacePolicy | None
    ) -> None:
        """
        Have *limits* hold for *topic*, or for each of its partitions, later ones too.

        None: those of its namespace hold again.

        Raises:
            TopicNotFound: There is no such topic.
        """
        await self.request(
            pb.SetTopicLimits(
                topic=str(TopicName.parse(topic)),
                limits=None if limits is None else limits_to_wire(limits),
            )
        )

    async def set_on_corruption(self, topic: str, on_corruption: str) -> None:
        """
        Have subscriptions of *topic* ``"stop"`` or ``"skip"`` at corrupt segments.

        It holds at once, for each of its partitions; see ``create_topic``.

        Raises:
            TopicNotFound: There is no such topic.
        """
        policy = parse_choice("on_corruption", on_corruption, CorruptionPolicy)
        await self.request(
            pb.SetOnCorruption(
                topic=str(TopicName.parse(topic)),
                on_corruption=on_corruption_to_wire(policy),
            )
        )

    # Partitions.

    async def add_partitions(self, topic: str, partitions: int) -> None:
        """
        Have *topic* consist of so many *partitions* from now on.

        Messages that are there stay where they are.  A key that is published from
        now on may be in another partition than before.

        Raises:
            InvalidRequest: It has as many or more.
            TopicNotFound: There is no partitioned topic of this name.
        """
        _check_partitions(partitions)
        await self.request(
            pb.AddPartitions(topic=str(TopicName.parse(topic)), partitions=partitions),
        )

    async def partitions(self, topic: str) -> list[str]:
        """
        The topics that *topic* consists of: its partitions by number.

        A topic without partitions is the only one; where there is no topic, there
        are none.
        """
        return list((await self.find_partitions(topic)).topics)

    async def find_partitions(self, topic: str) -> Any:
        """For the parts of the client: the same, and whether it is partitioned."""
        message = pb.ListPartitions(topic=str(TopicName.parse(topic)))
        if self.peer_revision < 1:
            # A broker that knows no partitions has none.
            return pb.Partitions(topics=[message.topic])
        return await self.request(message)

    async def existing_partitions(self, topic: str) -> list[str]:
        """
        For the parts of the client: the same as ``partitions``, at least one.

        Raises:
            TopicNotFound: There is no such topic.
        """
        names = await self.partitions(topic)
        if not names:
            raise TopicNotFound(f"Unable to find the topic: {topic}")
        return names

    async def one_partition(self, topic: str, what: str) -> str:
        """
        For the parts of the client: the one topic that *topic* stands for.

        Raises:
            InvalidRequest: It stands for several, and *what* is of one.
        """
        names = await self.existing_partitions(topic)
        if len(names) > 1:
            raise InvalidRequest(
                f"{topic} has {len(names)} partitions, and {what} is of one: name it, "
                f"for example {names[0]}"
            )
        return names[0]


def _check_partitions(partitions: int | None) -> None:
    if partitions is not None and partitions < 1:
        raise InvalidRequest("a topic has at least one partition")
