"""The operations of a client on subscriptions."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Unpack

from pydanube.aio.tasks import gather
from pydanube.client.connections.partitions import existing_partitions, one_partition
from pydanube.client.connections.requester import Requester
from pydanube.client.operations.changes import SubscriptionChanges, settings_of
from pydanube.client.pure.offsets import AckTarget, parts_of
from pydanube.model.arguments import checks_arguments
from pydanube.model.choices import SubscriptionTypeName
from pydanube.model.descriptions import SubscriptionDescription
from pydanube.model.errors import (
    AlreadyExists,
    BrokerError,
    InvalidRequest,
    PermissionDenied,
    SubscriptionNotFound,
)
from pydanube.model.names import TopicName, parse_subscription
from pydanube.model.policy import SubscriptionSettings, SubscriptionType
from pydanube.model.positions import PositionLike, parse_choice, to_position
from pydanube.wire.native.messages import (
    divided_to_wire,
    enum_to_wire,
    from_wire,
    position_to_wire,
    to_wire,
)
from pydanube.wire.pb import stream_pb2 as pb


@checks_arguments
class Subscriptions:
    """The subscriptions of all topics; ``Client.subscriptions``."""

    def __init__(self, requester: Requester) -> None:
        self._requester = requester

    async def configure(
        self, topic: str, subscription: str, **changes: Unpack[SubscriptionChanges]
    ) -> None:
        """
        Change several settings of a subscription, all or none; the others stay.

        This takes effect at once, also for messages that have failed already.  The
        subscription need not exist yet.  In a partitioned topic, each partition changes
        all settings or none, one partition after the other.

        Args:
            topic: A topic, or a partitioned topic.
            subscription: The name of the subscription.
            changes: The settings, as in ``configure(topic, subscription,
                limits=DispatchLimits(unacked_messages_max=100), is_paused=False)``.

        Durability: On return the changes are on disk.

        Raises:
            TopicNotFound: There is no such topic.
            InvalidRequest: The topic is not reliable, a value is invalid, or no
                setting is given.
        """
        settings = settings_of(SubscriptionSettings, changes)
        message = pb.ConfigureSubscription(
            settings=to_wire(pb.Settings, settings), changes=list(changes)
        )
        await _request_all(self._requester, topic, subscription, message)

    async def create(
        self,
        topic: str,
        subscription: str,
        *,
        type: SubscriptionTypeName = "exclusive",  # noqa: A002  # It is what users call it.
        start: PositionLike = "latest",
    ) -> None:
        """
        Create a subscription that has no consumer yet.

        In a partitioned topic, each partition gets one, one partition after the other.
        Partitions that have it with this type keep it, so repeat the call if it has
        failed half way, or after partitions were added.

        Raises:
            AlreadyExists: There is a subscription of this name, in all partitions or
                with another type.
            TopicNotFound: There is no such topic.
        """
        type_ = parse_choice("type", type, SubscriptionType)
        message = pb.CreateSubscription(
            type=enum_to_wire(type_),
            position=position_to_wire(to_position(start), pb.Position),
        )
        partitions = await existing_partitions(self._requester, topic)
        left = len(partitions)
        for each in partitions:
            try:
                await _request_one(self._requester, each, subscription, message)
            except AlreadyExists:
                left -= 1
                if not left or not await self._has_type(each, subscription, type_):
                    raise

    async def _has_type(
        self, topic: str, subscription: str, type_: SubscriptionType
    ) -> bool:
        """Return whether a subscription is known to be of a type."""
        with suppress(PermissionDenied, SubscriptionNotFound):
            return (await self.describe(topic, subscription)).type is type_
        return False

    async def delete(
        self, topic: str, subscription: str, *, force: bool = False
    ) -> None:
        """
        Delete a subscription and its progress.

        In a partitioned topic, those of all partitions are deleted, one after the
        other; repeat the call if it has failed half way.

        Raises:
            SubscriptionNotFound: There is no such subscription, in no partition.
            SubscriptionInUse: It has consumers, and *force* is false.
        """
        message = pb.DeleteSubscription(force=force)
        partitions = await existing_partitions(self._requester, topic)
        left = len(partitions)
        for each in partitions:
            try:
                await _request_one(self._requester, each, subscription, message)
            except SubscriptionNotFound:
                left -= 1
                if not left:
                    raise

    async def describe(self, topic: str, subscription: str) -> SubscriptionDescription:
        """
        Describe a subscription of one topic or partition.

        Raises:
            SubscriptionNotFound: There is no such subscription.
        """
        message = pb.DescribeSubscription()
        answer = await _request_one(self._requester, topic, subscription, message)
        return from_wire(SubscriptionDescription, answer)

    async def report_progress(self, topic: str, subscription: str, offset: int) -> None:
        """
        Report that a reader, which stores its own progress, has reached *offset*.

        The subscription, which is created if necessary, then shows the reader's lag.
        Its position only rises.
        """
        await _request_one(
            self._requester, topic, subscription, pb.ReportProgress(offset=offset)
        )

    async def report_positions(
        self, subscription: str, offsets: Mapping[str, int]
    ) -> dict[str, BrokerError]:
        """
        Report the progress in several topics as ``report_progress`` does, concurrently.

        Returns: The errors of those topics whose progress was not reported.
        """

        async def report(topic: str, offset: int) -> BrokerError | None:
            try:
                await self.report_progress(topic, subscription, offset)
            except BrokerError as error:
                return error
            return None

        errors = await gather(report(*each) for each in offsets.items())
        return {
            topic: error
            for topic, error in zip(offsets, errors, strict=True)
            if error is not None
        }

    # Settings.

    async def settings(self, topic: str, subscription: str) -> SubscriptionSettings:
        """
        Return the settings of a subscription, even if it does not exist yet.

        For a partitioned topic, these are the settings in the first partition.

        Raises:
            TopicNotFound: There is no such topic.
        """
        first, *_ = await existing_partitions(self._requester, topic)
        answer = await _request_one(
            self._requester, first, subscription, pb.DescribeSettings()
        )
        return from_wire(SubscriptionSettings, answer)

    # The cursor.

    async def seek(self, topic: str, subscription: str, to: PositionLike) -> None:
        """
        Continue at an offset, at ``"earliest"``, at ``"latest"``, or at a time.

        Durability: On return the new position is on disk.

        Raises:
            SubscriptionNotFound: There is no such subscription.
            InvalidRequest: The topic is not reliable, has no such offset yet, or
                has several partitions, and an offset needs one.
        """
        position = to_position(to)
        message = pb.SeekSubscription(to=position_to_wire(position, pb.Position))
        if isinstance(position, int):
            topic = await one_partition(self._requester, topic, "an offset")
            await _request_one(self._requester, topic, subscription, message)
        else:
            await _request_all(self._requester, topic, subscription, message)

    async def skip(self, topic: str, subscription: str, count: int) -> None:
        """
        Acknowledge the next *count* messages without delivering them.

        Durability: On return the acknowledgements are on disk.

        Raises:
            SubscriptionNotFound: There is no such subscription.
            InvalidRequest: The topic is not reliable, or has several partitions.
        """
        if count < 1:
            raise InvalidRequest(f"count is {count}: skip at least one message")
        topic = await one_partition(self._requester, topic, "skipping")
        await _request_one(self._requester, topic, subscription, pb.Skip(count=count))

    async def mark_done(
        self, topic: str, subscription: str, messages: AckTarget
    ) -> None:
        """
        Acknowledge *messages* without a consumer.

        If a message blocks its subscription, the subscription continues after it.

        Durability: On return the acknowledgements are on disk.

        Raises:
            SubscriptionNotFound: There is no such subscription.
            InvalidRequest: A message is neither of *topic* nor of its partitions.
        """
        name = TopicName.parse(topic)
        for each, _, ranges in parts_of(messages):
            partition = TopicName.parse(each).split_partition()
            if name not in (TopicName.parse(each), partition and partition[0]):
                raise InvalidRequest(
                    f"cannot acknowledge a message of {each} on topic {topic}"
                )
            for some in divided_to_wire(ranges):
                await _request_one(
                    self._requester, each, subscription, pb.MarkDone(ranges=some)
                )


async def _request_one(
    requester: Requester, topic: str, subscription: str, message: Any
) -> Any:
    """Send *message* about one topic or partition, and return the answer."""
    message.subscription = parse_subscription(subscription)
    return await requester.request_topic(topic, message)


async def _request_all(
    requester: Requester, topic: str, subscription: str, message: Any
) -> None:
    """Send *message* about each partition of *topic*."""
    for each in await existing_partitions(requester, topic):
        await _request_one(requester, each, subscription, message)
