"""What a client asks about subscriptions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydanube.client.offsets import ranges_by_topic
from pydanube.client.topics import TopicRequests
from pydanube.model.errors import InvalidRequest
from pydanube.model.names import TopicName, parse_subscription
from pydanube.model.policy import Start, SubscriptionType
from pydanube.model.positions import parse_choice, to_position
from pydanube.wire.native.messages import (
    dispatch_limits_to_wire,
    divided_to_wire,
    failure_policy_to_wire,
    position_to_wire,
    settings_from_wire,
    start_to_wire,
    subscription_from_wire,
    type_to_wire,
)
from pydanube.wire.pb import stream_pb2 as pb

if TYPE_CHECKING:
    from pydanube.client.offsets import AckTarget
    from pydanube.model.descriptions import SubscriptionDescription
    from pydanube.model.policy import (
        DispatchLimits,
        FailurePolicy,
        SubscriptionSettings,
    )
    from pydanube.model.positions import PositionLike


class SubscriptionRequests(TopicRequests):
    """
    Subscriptions; a part of ``Client``.

    Where nothing else is said, the name of a partitioned topic means all of its
    partitions, one after the other.
    """

    async def create_subscription(
        self,
        topic: str,
        subscription: str,
        *,
        type: str = "exclusive",  # noqa: A002  # It is what users call it.
        start: PositionLike = "latest",
    ) -> None:
        """
        Create a subscription that has no consumer yet.

        Raises:
            AlreadyExists: There is one of this name.
            TopicNotFound: There is no such topic.
        """
        type_ = parse_choice("type", type, SubscriptionType)
        position = to_position(start)
        if type_ is SubscriptionType.KEY_SHARED or not isinstance(position, Start):
            self.require(1, "key-shared subscriptions and starts by time")
        for each in await self.existing_partitions(topic):
            await self.request(
                pb.CreateSubscription(
                    topic=each,
                    subscription=parse_subscription(subscription),
                    type=type_to_wire(type_),
                    start=(
                        start_to_wire(position) if isinstance(position, Start) else None
                    ),
                    position=position_to_wire(position),
                ),
            )

    async def delete_subscription(
        self, topic: str, subscription: str, *, force: bool = False
    ) -> None:
        """
        Forget a subscription and what it has done.

        Raises:
            SubscriptionNotFound: There is none.
            SubscriptionInUse: It has consumers, and *force* is false.
        """
        for each in await self.existing_partitions(topic):
            await self.request(
                pb.DeleteSubscription(
                    topic=each,
                    subscription=parse_subscription(subscription),
                    force=force,
                ),
            )

    async def describe_subscription(
        self, topic: str, subscription: str
    ) -> SubscriptionDescription:
        """
        What is known of a subscription of one topic or partition at the moment.

        Raises:
            SubscriptionNotFound: There is none.
        """
        message = pb.DescribeSubscription(
            topic=str(TopicName.parse(topic)),
            subscription=parse_subscription(subscription),
        )
        return subscription_from_wire(await self.request(message))

    async def report_progress(self, topic: str, subscription: str, offset: int) -> None:
        """
        Say that a reader with positions of its own has come to *offset*.

        The subscription, created if needed, then shows how far behind it is; its
        position only rises.
        """
        await self.request(
            pb.ReportProgress(
                topic=str(TopicName.parse(topic)),
                subscription=parse_subscription(subscription),
                offset=offset,
            )
        )

    # What is decided about a subscription.

    async def subscription_settings(
        self, topic: str, subscription: str
    ) -> SubscriptionSettings:
        """
        What was decided about a subscription, whether it exists yet or not.

        Of several partitions, that of the first is told.

        Raises:
            TopicNotFound: There is no such topic.
        """
        names = await self.existing_partitions(topic)
        message = pb.DescribeSettings(
            topic=names[0], subscription=parse_subscription(subscription)
        )
        return settings_from_wire(await self.request(message))

    async def set_failure_policy(
        self, topic: str, subscription: str, policy: FailurePolicy | None
    ) -> None:
        """
        Decide what becomes of messages that are not acknowledged; None: as usual.

        It holds at once, also for messages that have failed already, and may be
        decided before the subscription exists.

        Raises:
            TopicNotFound: There is no such topic.
            InvalidRequest: The topic is not reliable, or the policy is impossible.
        """
        for each in await self.existing_partitions(topic):
            await self.request(
                pb.SetFailurePolicy(
                    topic=each,
                    subscription=parse_subscription(subscription),
                    policy=None if policy is None else failure_policy_to_wire(policy),
                )
            )

    async def set_dispatch_limits(
        self, topic: str, subscription: str, limits: DispatchLimits | None
    ) -> None:
        """
        Decide how much may be unacknowledged at a time; None: what consumers take.

        It holds at once, and may be decided before the subscription exists.

        Raises:
            TopicNotFound: There is no such topic.
            InvalidRequest: The topic is not reliable, or the limits are impossible.
        """
        for each in await self.existing_partitions(topic):
            await self.request(
                pb.SetDispatchLimits(
                    topic=each,
                    subscription=parse_subscription(subscription),
                    limits=None if limits is None else dispatch_limits_to_wire(limits),
                )
            )

    async def pause_subscription(self, topic: str, subscription: str) -> None:
        """
        Deliver nothing until ``resume_subscription``; what is published waits.

        Consumers stay, and may acknowledge what they have.  It survives a restart
        of the broker.

        Raises:
            TopicNotFound: There is no such topic.
            InvalidRequest: The topic is not reliable.
        """
        await self._set_paused(topic, subscription, is_paused=True)

    async def resume_subscription(self, topic: str, subscription: str) -> None:
        """
        Go on delivering.

        Raises: As ``pause_subscription``.
        """
        await self._set_paused(topic, subscription, is_paused=False)

    # Where a subscription is.

    async def seek_subscription(
        self, topic: str, subscription: str, to: PositionLike
    ) -> None:
        """
        Go on at an offset, at ``"earliest"``, at ``"latest"``, or at a time.

        Durability: On return the new position is on disk.

        Raises:
            SubscriptionNotFound: There is none.
            InvalidRequest: The topic is not reliable, has no such offset yet, or
                has several partitions, of which an offset is only in one.
        """
        position = to_position(to)
        names = (
            [await self.one_partition(topic, "an offset")]
            if isinstance(position, int)
            else await self.existing_partitions(topic)
        )
        for each in names:
            await self.request(
                pb.SeekSubscription(
                    topic=each,
                    subscription=parse_subscription(subscription),
                    to=position_to_wire(position),
                )
            )

    async def skip(self, topic: str, subscription: str, count: int) -> None:
        """
        Have the next *count* messages that are not done count as done.

        Durability: On return that is on disk.

        Raises:
            SubscriptionNotFound: There is none.
            InvalidRequest: The topic is not reliable, or has several partitions.
        """
        if count < 1:
            raise InvalidRequest("skip at least one message")
        await self.request(
            pb.Skip(
                topic=await self.one_partition(topic, "skipping"),
                subscription=parse_subscription(subscription),
                count=count,
            ),
        )

    async def mark_done(
        self, topic: str, subscription: str, messages: AckTarget
    ) -> None:
        """
        Acknowledge *messages* without being a consumer.

        Also a message that blocks its subscription: then it goes on.

        Durability: On return that is on disk.

        Raises:
            SubscriptionNotFound: There is none.
            InvalidRequest: A message is not of *topic*, nor of a partition of it.
        """
        name = TopicName.parse(topic)
        for each, ranges in ranges_by_topic(messages).items():
            partition = TopicName.parse(each).split_partition()
            if name not in (TopicName.parse(each), partition and partition[0]):
                raise InvalidRequest(f"a message of {each} is not one of {topic}")
            for some in divided_to_wire(ranges):
                await self.request(
                    pb.MarkDone(
                        topic=each,
                        subscription=parse_subscription(subscription),
                        ranges=some,
                    )
                )

    async def _set_paused(
        self, topic: str, subscription: str, *, is_paused: bool
    ) -> None:
        for each in await self.existing_partitions(topic):
            await self.request(
                pb.Pause(
                    topic=each,
                    subscription=parse_subscription(subscription),
                    is_paused=is_paused,
                )
            )
