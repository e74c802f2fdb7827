"""
The subscriptions of a broker's topics: opening, moving, configuring, deleting them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from pydanube.aio.futures import completion
from pydanube.model.errors import (
    AlreadyExists,
    BrokerError,
    InvalidRequest,
    SubscriptionInUse,
)
from pydanube.model.names import SubscriptionName, TopicName
from pydanube.model.policy import (
    AtTime,
    Position,
    Start,
    SubscriptionSettings,
    SubscriptionType,
)
from pydanube.model.ranges import Range
from pydanube.model.settings_text import settings_text
from pydanube.security.principals import ANONYMOUS, Principal
from pydanube_broker.broker.delivery.reliable_subscription import ReliableSubscription
from pydanube_broker.broker.delivery.subscription import Subscription
from pydanube_broker.broker.delivery.subscription_settings import (
    check_ack_timeout,
    check_settings,
    dead_letter_topic_of,
)
from pydanube_broker.broker.governance.catalog import Catalog
from pydanube_broker.broker.governance.indirect_targets import IndirectTargets
from pydanube_broker.broker.governance.namespaces import Namespaces
from pydanube_broker.broker.publishing.topic import ReliableTopic, Topic
from pydanube_broker.broker.topics.subscription_store import SubscriptionStore
from pydanube_broker.broker.topics.topics import Topics

log = logging.getLogger(__name__)

NOTE_LENGTH_MAX = 4096
"""The longest text, in characters, that is kept with a cursor."""


class Subscriptions:
    """The subscriptions of all topics."""

    def __init__(
        self,
        topics: Topics,
        catalog: Catalog,
        namespaces: Namespaces,
        store: SubscriptionStore,
        targets: IndirectTargets,
    ) -> None:
        self._targets = targets
        self._topics = topics
        self._catalog = catalog
        self._namespaces = namespaces
        self._store = store

    # Opening, creating, deleting.

    async def open(
        self,
        name: TopicName,
        subscription: SubscriptionName,
        type_: SubscriptionType,
        start: Position,
        *,
        ack_timeout_s: float | None = None,
        exist_ok: bool = True,
    ) -> tuple[Topic, Subscription]:
        """
        Return the subscription; create it at *start* if it does not exist.

        An existing subscription keeps its cursor and its type.  *ack_timeout_s*
        replaces the ack timeout of its failure policy from now on, unless it is None.

        Durability: On return the subscription and its cursor are on disk.

        Raises:
            TopicNotFound: There is no such topic.
            AlreadyExists: It exists, and *exist_ok* is false.
            InvalidRequest: It exists with another type, the topic has no such offset
                yet, or the timeout is out of range.
            QuotaExceeded: The topic or its namespace has its maximum number of
                subscriptions.
            Draining: The broker is stopping.
        """
        self._topics.check_not_draining()
        if ack_timeout_s is not None:
            check_ack_timeout(ack_timeout_s)
        start = await self._find_time(name, start)
        async with self._topics.opening(name) as topic:
            found = topic.subscriptions.get(subscription)
            if found is None:
                found = await self._store.create(topic, subscription, type_, start)
                topic.pacing.add("subscriptions", 1)
                log.info(
                    "created the %s subscription %s of %s",
                    type_.value,
                    subscription,
                    name,
                )
            elif not exist_ok:
                raise AlreadyExists(
                    f"{name} has a subscription {subscription!r} already"
                )
            elif found.type is not type_:
                raise InvalidRequest(
                    f"subscription {subscription} of {name} is {found.type.value}, "
                    f"not {type_.value}"
                )
            if ack_timeout_s is not None:
                found.set_ack_timeout(ack_timeout_s)
            return topic, found

    async def delete(
        self, name: TopicName, subscription: SubscriptionName, *, force: bool = False
    ) -> None:
        """
        Delete a subscription with its cursor and its settings.

        Raises:
            SubscriptionNotFound: It does not exist.
            SubscriptionInUse: It has consumers and *force* is false.
        """
        async with self._topics.opening(name) as topic:
            found = topic.find_subscription(subscription)
            if found.consumer_count and not force:
                raise SubscriptionInUse(
                    f"subscription {subscription} of {name} has consumers; disconnect "
                    "them or force the deletion"
                )
            found.close(BrokerError(f"subscription {subscription} has been deleted"))
            found.cancel()
            await self._store.delete(topic, subscription)
            topic.pacing.add("subscriptions", -1)
        log.info("deleted the subscription %s of %s", subscription, name)

    # Moving.

    async def seek(
        self, topic: Topic, subscription: Subscription, position: Position
    ) -> None:
        """
        Move the cursor of a subscription to *position*, for all of its consumers.

        Blocked, deferred and parked messages are forgotten.  Those from *position* on
        are delivered again.

        Durability: On return the new cursor is on disk.

        Raises:
            InvalidRequest: The topic is not reliable, or has no such offset yet.
        """
        if not isinstance(topic, ReliableTopic) or not isinstance(
            subscription, ReliableSubscription
        ):
            raise InvalidRequest(
                f"{topic.name} is not reliable: its subscriptions have no cursors"
            )
        offset = max(await topic.locate(position), topic.log.first_kept)
        before = subscription.cursor_offset
        subscription.hold()
        try:
            subscription.seek(offset)
            await completion(subscription.save_cursor_now)
            log.info(
                "%s: moved from offset %d to %d", subscription.log_name, before, offset
            )
        finally:
            # The caller is answered before messages from the new position arrive.
            asyncio.get_running_loop().call_soon(subscription.release)

    async def skip(
        self, name: TopicName, subscription: SubscriptionName, count: int
    ) -> None:
        """
        Acknowledge the next *count* messages that are not acknowledged.

        Durability: On return the new cursor is on disk.

        Raises:
            InvalidRequest: The topic is not reliable, or *count* is negative.
            SubscriptionNotFound: It does not exist.
        """
        if count < 0:
            raise InvalidRequest(f"the number of messages to skip is negative: {count}")
        found = await self._find_reliable(name, subscription)
        await found.skip(count)
        await completion(found.save_cursor_now)
        log.info("%s: skipped %d messages", found.log_name, count)

    async def mark_done(
        self, name: TopicName, subscription: SubscriptionName, ranges: Sequence[Range]
    ) -> None:
        """
        Acknowledge messages without a consumer.

        Durability: On return the new cursor is on disk.

        Raises:
            InvalidRequest: The topic is not reliable.
            SubscriptionNotFound: It does not exist.
        """
        found = await self._find_reliable(name, subscription)
        found.ack(ranges, 0)
        await completion(found.save_cursor_now)

    async def report_progress(
        self,
        name: TopicName,
        subscription: SubscriptionName,
        offset: int,
        *,
        is_exact: bool = False,
        note: str = "",
    ) -> None:
        """
        Advance the cursor to the *offset* that an external reader has reached.

        The subscription is created if it does not exist.  Its cursor never moves back,
        unless *is_exact*.  In both cases *note* is kept with it until it moves on.

        Durability: If *is_exact*, or *note* is kept, the cursor is on disk on return.

        Raises:
            InvalidRequest: The topic is not reliable, or ends before *offset*, or
                *note* is longer than ``NOTE_LENGTH_MAX``.
        """
        if len(note) > NOTE_LENGTH_MAX:
            raise InvalidRequest(
                f"a note has at most {NOTE_LENGTH_MAX} characters, not {len(note)}"
            )
        topic = await self._topics.get_reliable(name)
        topic.check_offset(offset)
        found = topic.subscriptions.get(subscription)
        is_new = False
        if found is None:
            start = max(offset, topic.log.first_kept) if is_exact else Start.EARLIEST
            opening = partial(
                self.open, name, subscription, SubscriptionType.SHARED, start
            )
            try:
                _, found = await opening(exist_ok=False)
                is_new = True
            except AlreadyExists:
                # Another call has created it meanwhile.
                _, found = await opening()
        assert isinstance(found, ReliableSubscription)
        if not is_exact:
            if offset > found.cursor_offset:
                found.seek(offset)
            if is_new and note:
                found.note = note
                await completion(found.save_cursor_now)
            return
        offset = max(offset, topic.log.first_kept)
        if (offset, note) != (found.cursor_offset, found.note):
            if offset != found.cursor_offset:
                found.seek(offset)
            found.note = note
            await completion(found.save_cursor_now)

    # Settings.

    async def settings(
        self, name: TopicName, subscription: SubscriptionName
    ) -> SubscriptionSettings:
        """
        Return the settings of a subscription, which need not exist.

        Raises:
            TopicNotFound: There is no such topic.
        """
        topic = await self._topics.get(name)
        return (await self._store.record_of(topic.topic_id, subscription)).settings

    async def change_settings(
        self,
        name: TopicName,
        subscription: SubscriptionName,
        *,
        author: Principal = ANONYMOUS,
        **changes: Any,
    ) -> None:
        """
        Change these fields of the settings of a subscription, which need not exist yet.

        They apply at once, also to messages that have failed already.  The broker
        publishes dead letters for the *author* of the failure policy.

        Durability: On return they are on disk, and stay until the subscription or
            the topic is deleted.

        Raises:
            TopicNotFound: There is no such topic.
            InvalidRequest: The topic is not reliable, a value is out of range, or the
                dead-letter topic cannot be used.
            NamespaceNotFound: The dead-letter topic's namespace does not exist.
            InvalidName: The dead-letter topic's name is malformed.
            PermissionDenied, Unauthenticated: *author* may not publish there.
            NotOwner: Another broker serves the topic now; nothing was changed.
        """
        async with self._topics.opening(name) as topic:
            if not isinstance(topic, ReliableTopic):
                raise InvalidRequest(
                    "subscription failure policy can only be configured for reliable "
                    "topics"
                )
            record = await self._store.record_of(topic.topic_id, subscription)
            settings, acts_for = replace(record.settings, **changes), record.author
            check_settings(settings, name)
            if "failure_policy" in changes:
                target = dead_letter_topic_of(settings)
                acts_for = None
                if target is not None:
                    await self._check_dead_letter_topic(target, author)
                    acts_for = replace(author, expires_at_s=None)
            await self._store.save_settings(topic, subscription, settings, acts_for)
            found = topic.subscriptions.get(subscription)
            if isinstance(found, ReliableSubscription):
                found.apply(settings, acts_for)
        log.info(
            "changed the subscription %s of %s: %s",
            subscription,
            name,
            settings_text(changes),
        )

    async def _check_dead_letter_topic(
        self, name: TopicName, author: Principal
    ) -> None:
        await self._targets.check(author, name)
        await self._namespaces.find(name.namespace)
        if await self._catalog.find_partitioned(name) is not None:
            raise InvalidRequest(
                f"the dead-letter topic {name} has partitions; name one of them"
            )
        stored = await self._catalog.find(name)
        if stored is not None and not stored.value.policy.is_reliable:
            raise InvalidRequest(f"the dead-letter topic {name} is not reliable")

    # Helpers.

    async def _find_time(self, name: TopicName, start: Position) -> Position:
        """Resolve a time, which may take long, before the lock is acquired."""
        if isinstance(start, AtTime):
            topic = await self._topics.get(name)
            if isinstance(topic, ReliableTopic):
                return await topic.locate(start)
        return start

    async def _find_reliable(
        self, name: TopicName, subscription: SubscriptionName
    ) -> ReliableSubscription:
        topic = await self._topics.get_reliable(name)
        found = topic.find_subscription(subscription)
        assert isinstance(found, ReliableSubscription)
        return found
