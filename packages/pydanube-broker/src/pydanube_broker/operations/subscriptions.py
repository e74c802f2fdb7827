"""Operations on subscriptions."""

from __future__ import annotations

from typing import Any

from pydanube.model.findings import FINDINGS_MAX
from pydanube.model.names import SubscriptionName, TopicName, parse_subscription
from pydanube.model.policy import SubscriptionSettings, SubscriptionType
from pydanube.wire.native.messages import (
    RANGES_MAX,
    changes_from_wire,
    enum_from_wire,
    position_from_wire,
    ranges_from_wire,
    to_wire,
)
from pydanube.wire.pb import stream_pb2 as pb
from pydanube_broker.operations.authorization import author_of_settings
from pydanube_broker.operations.handlers import Call, operation
from pydanube_broker.operations.topic_lists import visible_findings


@operation
async def create_subscription(call: Call, m: pb.CreateSubscription) -> None:
    """Create a subscription of a topic or partition."""
    await call.broker.subscriptions.open(
        *_subscription_of(m),
        enum_from_wire(SubscriptionType, m.type),
        position_from_wire(m.position),
        exist_ok=False,
    )


def _subscription_of(message: Any) -> tuple[TopicName, SubscriptionName]:
    return TopicName.parse(message.topic), parse_subscription(message.subscription)


@operation
async def delete_subscription(call: Call, m: pb.DeleteSubscription) -> None:
    """Delete a subscription; ``force`` if it may have consumers."""
    await call.broker.subscriptions.delete(*_subscription_of(m), force=m.force)


@operation
async def describe_subscription(
    call: Call, m: pb.DescribeSubscription
) -> pb.SubscriptionDescription:
    """Return a subscription of a topic or partition."""
    name, subscription = _subscription_of(m)
    async with call.broker.views.viewing(name) as topic:
        found = topic.find_subscription(subscription)
        return to_wire(pb.SubscriptionDescription, found.describe(topic.end_offset))


@operation
async def report_progress(call: Call, m: pb.ReportProgress) -> None:
    """Record how far a reader without a subscription's cursor has read."""
    await call.broker.subscriptions.report_progress(
        *_subscription_of(m), m.offset, is_exact=m.is_exact, note=m.note
    )


@operation
async def describe_settings(call: Call, m: pb.DescribeSettings) -> pb.Settings:
    """Return the settings of a subscription, which need not exist yet."""
    settings = await call.broker.subscriptions.settings(*_subscription_of(m))
    return to_wire(pb.Settings, settings)


@operation
async def configure_subscription(call: Call, m: pb.ConfigureSubscription) -> None:
    """Change the named settings of a subscription, all or none."""
    changes = changes_from_wire(SubscriptionSettings, m.settings, m.changes)
    await call.broker.subscriptions.change_settings(
        *_subscription_of(m), author=author_of_settings(), **changes
    )


@operation
async def seek_subscription(call: Call, m: pb.SeekSubscription) -> None:
    """Move a subscription to an offset or a time."""
    name, subscription = _subscription_of(m)
    topic = await call.broker.topics.get(name)
    found = topic.find_subscription(subscription)
    await call.broker.subscriptions.seek(topic, found, position_from_wire(m.to))


@operation
async def skip(call: Call, m: pb.Skip) -> None:
    """Skip messages of a subscription."""
    await call.broker.subscriptions.skip(*_subscription_of(m), m.count)


@operation
async def mark_done(call: Call, m: pb.MarkDone) -> None:
    """Acknowledge ranges of offsets of a subscription."""
    ranges = ranges_from_wire(m.ranges, RANGES_MAX)
    await call.broker.subscriptions.mark_done(*_subscription_of(m), ranges)


@operation
async def list_findings(call: Call, m: pb.ListFindings) -> pb.Findings:
    """Return what is wrong with subscriptions, the worst first, and totals."""
    limit = min(m.limit or FINDINGS_MAX, FINDINGS_MAX)
    return to_wire(pb.Findings, await visible_findings(call.broker, limit))
