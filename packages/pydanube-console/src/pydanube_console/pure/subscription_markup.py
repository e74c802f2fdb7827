"""The subscriptions of a topic as HTML.  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from pydanube.model.descriptions import SubscriptionDescription, TopicDescription
from pydanube.model.policy import FailurePolicy
from pydanube.model.quantity_formats import (
    format_age,
    format_count,
    format_duration,
    format_messages,
    format_offset_range,
)
from pydanube.model.subscription_lag import SubscriptionLag
from pydanube_console.pure.charts import (
    short_number,
    sparkline,
)
from pydanube_console.pure.history import History
from pydanube_console.pure.markup import (
    Column,
    Html,
    badge,
    facts,
    join,
    link,
    panel,
    table,
)

RANGES_SHOWN = 50
"""The blocked and skipped ranges of offsets that are shown."""
CONSUMERS_SHOWN = 20

Parts = list[tuple[str, SubscriptionDescription]]
"""A subscription in each partition of its topic, by the partition's name."""


def render_subscriptions(
    parts: Sequence[TopicDescription],
    lags: Iterable[SubscriptionLag],
    history: History,
) -> Html:
    """Return the list of the subscriptions of a topic."""
    types = {
        each.subscription: each.type.name.lower().replace("_", "-")
        for part in parts
        for each in part.subscriptions
    }
    rows = [
        (
            each.subscription,
            types[each.subscription],
            _state(each),
            format_count(each.lag),
            _trend(each, history),
            format_age(each.age_s) if each.age_s is not None else "",
            format_count(each.in_flight),
            each.consumers,
        )
        for each in lags
    ]
    columns = [
        Column("Subscription"),
        Column("Type", is_wide_only=True),
        Column("State"),
        Column("Lag", is_number=True),
        Column("", is_wide_only=True),
        Column("Oldest", is_number=True),
        Column("In flight", is_number=True, is_wide_only=True),
        Column("Consumers", is_number=True, is_wide_only=True),
    ]
    shown = table(
        columns,
        rows,
        caption="Subscriptions",
        empty="There are no subscriptions: the first consumer creates one.",
    )
    return panel("Subscriptions", shown)


def render_subscription(
    topics: Iterable[TopicDescription], lag: SubscriptionLag, charts: Html
) -> Html:
    """Return the *charts* of one subscription, its messages and its settings."""
    parts = [
        (topic.topic, each)
        for topic in topics
        for each in topic.subscriptions
        if each.subscription == lag.subscription
    ]
    return join(
        [
            charts,
            panel(f"Messages of {lag.subscription}", facts(_messages(lag, parts))),
            _waiting(parts),
            panel(f"Settings of {lag.subscription}", facts(_settings(parts[0][1]))),
        ]
    )


def _state(lag: SubscriptionLag) -> Html:
    if lag.blocked_by == ("paused",):
        return badge("paused", "warn")
    if lag.blocked_by:
        return badge(f"blocked: {', '.join(lag.blocked_by)}", "bad")
    return badge("running", "good") if lag.consumers else badge("no consumer")


def _trend(lag: SubscriptionLag, history: History) -> Html:
    points = history.of_subscription(lag.topic, lag.subscription)
    label = f"lag over time, now {format_messages(lag.lag)}"
    return sparkline([each.lag for each in points], label=label)


def _messages(lag: SubscriptionLag, parts: Parts) -> Iterator[tuple[str, object]]:
    found = [each for _, each in parts]
    consumers = list(dict.fromkeys(name for each in found for name in each.consumers))
    delayed = sum(each.delayed for each in found)
    parked = sum(each.parked for each in found)
    yield "Not acknowledged", format_messages(lag.lag)
    yield "In flight", format_messages(lag.in_flight)
    yield "Delayed", f"{format_messages(delayed)}, until their time or a redelivery"
    if parked:
        yield "Dead letters", f"{format_messages(parked)} are being copied"
    counts = [each.counts for each in found]
    for name, values in (
        ("Delivered", [each.delivered for each in counts]),
        ("Redelivered", [each.redelivered for each in counts]),
        ("Refused", [each.nacked for each in counts]),
        ("Timed out", [each.timed_out for each in counts]),
        ("Expired", [each.expired for each in counts]),
        ("Dead-lettered", [each.dead_lettered for each in counts]),
        ("Dropped as poison", [each.given_up for each in counts]),
    ):
        if total := sum(values):
            yield name, f"{short_number(total)} since the broker started"
    more = len(consumers) - CONSUMERS_SHOWN
    names = ", ".join(consumers[:CONSUMERS_SHOWN]) or "none"
    yield "Consumers", f"{names} and {more} more" if more > 0 else names


def _waiting(parts: Parts) -> Html:
    """Return what prevents deliveries, and which messages were skipped."""
    rows: list[tuple[object, ...]] = []
    for name, each in parts:
        if each.is_paused:
            rows.append((name, badge("paused", "warn"), "", "Resume the subscription."))
        if each.stopped_by is not None:
            rows.append((name, badge("corrupt segment", "bad"), "", each.stopped_by))
        if each.dead_letter_error is not None:
            kind = badge("dead letters", "bad")
            rows.append((name, kind, "", each.dead_letter_error))
        failed = "It failed too often, and the next ones wait."
        lost = "Its segment could not be read."
        for ranges, kind, why in (
            (each.blocked, badge("blocked", "bad"), failed),
            (each.skipped, badge("skipped", "warn"), lost),
        ):
            for base, end in ranges[:RANGES_SHOWN]:
                shown = format_offset_range(base, end)
                offsets = link(shown, "/messages", topic=name, start=base)
                rows.append((name, kind, offsets, why))
    if not rows:
        return Html("")
    columns = [
        Column("Topic", is_wide_only=True),
        Column("State"),
        Column("Offsets", is_number=True),
        Column("Why"),
    ]
    title = "Blocked and skipped messages"
    return panel(title, table(columns, rows[:RANGES_SHOWN], caption=title))


def _settings(each: SubscriptionDescription) -> Iterator[tuple[str, object]]:
    policy = each.settings.failure_policy or FailurePolicy()
    timeout_s = policy.ack_timeout_s
    within = "no limit" if timeout_s is None else format_duration(timeout_s)
    yield "Acknowledge within", within
    yield "Redeliveries", f"at most {policy.redeliveries_max}"
    first = format_duration(policy.redelivery_delay_s)
    longest = format_duration(policy.redelivery_delay_s_max)
    yield "Redelivery after", f"{first} to {longest}, {policy.backoff.value}"
    poison = policy.poison.value.replace("_", " ")
    if policy.dead_letter_topic is not None:
        topic = policy.dead_letter_topic
        shown = join([poison, ": ", link(topic, "/topic", name=topic)])
        yield "After the last one", shown
    else:
        yield "After the last one", poison
    limits = each.settings.limits
    if limits is not None:
        yield "In flight at most", limits.unacked_messages_max or "no limit"
