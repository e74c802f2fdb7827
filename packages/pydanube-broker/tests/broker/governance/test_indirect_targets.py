"""The broker publishes only where the author of a setting may publish."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from pydanube.model.errors import (
    InvalidRequest,
    PermissionDenied,
    QuotaExceeded,
    Unauthenticated,
)
from pydanube.model.names import NamespaceName, TopicName
from pydanube.model.policy import FailurePolicy, PoisonPolicy
from pydanube.model.retry import RetryPolicy
from pydanube.security.permissions import Permission
from pydanube.security.policy import Binding, Role
from pydanube.security.principals import ANONYMOUS, Principal
from pydanube.security.quotas import Quota, QuotaTarget
from pydanube_broker.broker.topics import dead_letters
from support.fakes.brokers import A_TOPIC, RELIABLE, BrokerWorld
from support.fakes.readers import S, attach, publish, stored, subscribe
from support.fakes.storages import until

ROOT = Principal("root", "certificate")
BILLING = Principal("billing", "token", ("traders",), expires_at_s=1.0)
LEDGER = TopicName.parse("/bank/ledger")
NEW = TopicName.parse("/bank/new")


@pytest.fixture(autouse=True)
def retries_at_once(monkeypatch):
    """Make the pauses after failures very short."""
    monkeypatch.setattr(dead_letters, "RETRIES", RetryPolicy(0.001, 0.002))


def policy(target: TopicName) -> FailurePolicy:
    return FailurePolicy(
        redeliveries_max=0,
        redelivery_delay_s=0.0,
        poison=PoisonPolicy.DEAD_LETTER,
        dead_letter_topic=str(target),
    )


@asynccontextmanager
async def guarded(world: BrokerWorld) -> AsyncIterator:
    """Run a broker that enforces its policy."""
    async with world.broker(is_superuser=lambda who: who == ROOT) as broker:
        if await broker.catalog.find(LEDGER) is None:
            await broker.namespaces.create(NamespaceName("bank"))
            for name in (A_TOPIC, LEDGER):
                await broker.topics.create(name, RELIABLE)
        yield broker


async def bind(broker, *permissions: Permission, member="user:billing") -> None:
    """Give a member these permissions on the topics of the bank, and no others."""
    await broker.access.set_role(ROOT, Role("banker", frozenset(permissions)))
    binding = Binding(member, ("banker",), ("/bank/*",), "bank")
    await broker.access.add_binding(ROOT, binding)


async def write(broker, target: TopicName, author: Principal = BILLING, **changes):
    await broker.subscriptions.change_settings(
        *(A_TOPIC, S), author=author, failure_policy=policy(target), **changes
    )


async def fail_one(broker):
    """Let one message fail; return its subscription."""
    topic = await broker.topics.get(A_TOPIC)
    subscription = await subscribe(broker)
    reader, _ = attach(subscription)
    await publish(topic, b"bad")
    await reader.offsets(1)
    subscription.nack([(0, 1)], reason="broken")
    return subscription


async def letters(broker, target: TopicName = LEDGER) -> list[bytes]:
    return [each[0] for each in await stored(await broker.topics.get(target))]


async def test_setting_with_a_topic_where_the_author_may_not_publish_is_refused(world):
    async with guarded(world) as broker:
        with pytest.raises(PermissionDenied, match="produce on /bank/ledger"):
            await write(broker, LEDGER)
        with pytest.raises(Unauthenticated):
            await write(broker, LEDGER, ANONYMOUS)
        await bind(broker, *(set(Permission) - {Permission.PRODUCE}))
        with pytest.raises(PermissionDenied, match="produce on /bank/ledger"):
            await write(broker, LEDGER)
        settings = await broker.subscriptions.settings(A_TOPIC, S)
        assert settings.failure_policy is None


async def test_topic_that_does_not_exist_needs_the_permission_to_create_it(world):
    async with guarded(world) as broker:
        await bind(broker, Permission.PRODUCE)
        with pytest.raises(PermissionDenied, match="create on /bank/new"):
            await write(broker, NEW)
        await bind(broker, Permission.PRODUCE, Permission.CREATE)
        await write(broker, NEW)
        await fail_one(broker)
        await until(lambda: NEW in broker.topics.opened)
        await until(lambda: broker.topics.opened[NEW].end_offset == 1)


@pytest.mark.parametrize("name", ["/system/audit", "/system/forged"])
@pytest.mark.parametrize("is_guarded", [False, True])
async def test_system_topics_are_no_targets(world, name, is_guarded):
    opening = guarded(world) if is_guarded else world.broker()
    async with opening as broker:
        await broker.topics.create(A_TOPIC, RELIABLE, exist_ok=True)
        with pytest.raises(InvalidRequest, match="is a system topic"):
            await write(broker, TopicName.parse(name), ROOT)


async def test_target_does_not_become_that_of_somebody_who_changes_other_fields(world):
    async with guarded(world) as broker:
        await bind(broker, Permission.PRODUCE)
        await write(broker, LEDGER)
        eve = Principal("eve", "token")
        await broker.subscriptions.change_settings(
            A_TOPIC, S, author=eve, is_paused=False
        )
        # A change of the policy needs the permission, also if the topic stays.
        with pytest.raises(PermissionDenied, match="user:eve"):
            await broker.subscriptions.change_settings(
                *(A_TOPIC, S),
                author=eve,
                failure_policy=replace(policy(LEDGER), redeliveries_max=9),
            )
        subscription = await fail_one(broker)
        await until(lambda: subscription.cursor_offset == 1)
        assert await letters(broker) == [b"bad"]


async def test_messages_are_kept_while_the_author_may_not_publish_any_more(world):
    async with guarded(world) as broker:
        await bind(broker, Permission.PRODUCE)
        await write(broker, LEDGER)
        await broker.access.remove_binding(ROOT, "bank")
        subscription = await fail_one(broker)
        await until(lambda: subscription.counts.dead_letter_failures)
        described = subscription.describe(1)
        assert described.parked == 1
        assert "may not publish to /bank/ledger for user:billing" in (
            described.dead_letter_error
        )
        assert await letters(broker) == []
        await bind(broker, Permission.PRODUCE)
        await until(lambda: subscription.cursor_offset == 1)
        assert await letters(broker) == [b"bad"]


async def test_author_is_known_after_a_restart_with_its_groups(world):
    async with guarded(world) as broker:
        await bind(broker, Permission.PRODUCE, member="group:traders")
        await write(broker, LEDGER)
    async with guarded(world) as broker:
        subscription = await fail_one(broker)
        await until(lambda: subscription.cursor_offset == 1)
        assert await letters(broker) == [b"bad"]
        await broker.access.remove_binding(ROOT, "bank")
        assert subscription.author == replace(BILLING, expires_at_s=None)


async def test_setting_without_an_author_publishes_nothing_under_a_policy(world):
    async with world.broker() as broker:
        await broker.namespaces.create(NamespaceName("bank"))
        for name in (A_TOPIC, LEDGER):
            await broker.topics.create(name, RELIABLE)
        await write(broker, LEDGER, ANONYMOUS)
    async with guarded(world) as broker:
        subscription = await fail_one(broker)
        await until(lambda: subscription.counts.dead_letter_failures)
        assert "for anonymous" in str(subscription.dead_letter_error)
        await write(broker, LEDGER, ROOT)
        await until(lambda: subscription.cursor_offset == 1)


async def test_messages_are_kept_while_the_quota_of_the_target_is_used_up(world):
    async with guarded(world) as broker:
        await write(broker, LEDGER, ROOT)
        target = QuotaTarget.parse("/bank")
        await broker.quotas.set(target, Quota(storage_bytes=1000))
        (await broker.topics.get(LEDGER)).pacing.add("storage_bytes", 1000)
        subscription = await fail_one(broker)
        await until(lambda: subscription.counts.dead_letter_failures)
        assert isinstance(subscription.dead_letter_error, QuotaExceeded)
        assert subscription.describe(1).parked == 1
        await broker.quotas.remove(target)
        await until(lambda: subscription.cursor_offset == 1)
