"""A subscription is shown with what it waits for."""

from dataclasses import replace

from pydanube.model.descriptions import SubscriptionCounts
from pydanube.model.policy import FailurePolicy, PoisonPolicy, SubscriptionSettings
from pydanube.model.subscription_lag import lags_of
from pydanube_console.pure.history import History
from pydanube_console.pure.markup import Html
from pydanube_console.pure.subscription_markup import (
    RANGES_SHOWN,
    render_subscription,
    render_subscriptions,
)
from support.fakes.descriptions import SUBSCRIPTION, TOPIC


def shown(subscription):
    topics = [replace(TOPIC, subscriptions=(subscription,))]
    [lag] = lags_of(topics, 0)
    return render_subscription(topics, lag, Html("charts"))


def test_list_has_the_state_of_each_subscription():
    paused = replace(SUBSCRIPTION, subscription="p", is_paused=True)
    topics = [replace(TOPIC, subscriptions=(SUBSCRIPTION, paused))]
    found = render_subscriptions(topics, lags_of(topics, 0), History())
    assert "no consumer" in found
    assert "paused" in found
    assert "lag over time, now 5 messages" in found


def test_blocked_and_skipped_messages_lead_to_the_messages():
    found = shown(replace(SUBSCRIPTION, blocked=((3, 4),), skipped=((5, 9),)))
    assert 'href="/messages?topic=/default/t&amp;start=3">3<' in found
    assert "5\u20138" in found
    assert "It failed too often" in found


def test_blocked_messages_are_bounded():
    ranges = tuple((2 * at, 2 * at + 1) for at in range(RANGES_SHOWN + 9))
    assert shown(replace(SUBSCRIPTION, blocked=ranges)).count("start=") == RANGES_SHOWN


def test_errors_are_shown_as_text():
    found = shown(replace(SUBSCRIPTION, dead_letter_error="<b>no</b>", delayed=2))
    assert "&lt;b&gt;no&lt;/b&gt;" in found
    assert "2 messages, until" in found


def test_healthy_subscription_has_no_list_of_blocked_messages():
    assert "Blocked" not in shown(SUBSCRIPTION)


def test_settings_and_counts_are_shown():
    policy = FailurePolicy(
        redeliveries_max=3,
        ack_timeout_s=None,
        poison=PoisonPolicy.DEAD_LETTER,
        dead_letter_topic="/default/dead",
    )
    found = shown(
        replace(
            SUBSCRIPTION,
            settings=SubscriptionSettings(failure_policy=policy),
            counts=SubscriptionCounts(delivered=12_000),
            consumers=tuple(f"c{number}" for number in range(22)),
        )
    )
    assert "at most 3" in found
    assert "no limit" in found
    assert "/default/dead" in found
    assert "12 k since the broker started" in found
    assert "and 2 more" in found
