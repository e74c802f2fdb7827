"""The way of messages from clients of MQTT into the topics of the broker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from pydanube.aio.futures import Done
from pydanube.aio.tasks import TaskScope
from pydanube.broker.broker import Broker
from pydanube.broker.message_batcher import SingleMessage
from pydanube.model.errors import BrokerError, QuotaExceeded
from pydanube.servers.mqtt.counts import MqttCounts
from pydanube.servers.mqtt.feeds import Feeds
from pydanube.servers.mqtt.messages import (
    Message,
    attributes_to_store,
    expires_at_us_of,
    kept_properties,
)
from pydanube.servers.mqtt.retained import RetainedMessages
from pydanube.servers.mqtt.rules import Rule, Rules
from pydanube.servers.mqtt.state import StateWriter
from pydanube.wire.mqtt.packets import PacketError, Publish, Will

log = logging.getLogger(__name__)


class Publisher:
    """Publishes and retains the messages of all clients."""

    def __init__(
        self,
        broker: Broker,
        tasks: TaskScope,
        *,
        rules: Rules,
        feeds: Feeds,
        retained: RetainedMessages,
        writer: StateWriter,
        counts: MqttCounts,
        wall_clock_us: Callable[[], int],
    ) -> None:
        self.broker = broker
        self.rules = rules
        self.counts = counts
        self._tasks = tasks
        self._feeds = feeds
        self._retained = retained
        self._writer = writer
        self._wall_clock_us = wall_clock_us
        self._clock = asyncio.get_running_loop().time

    def check_retained(self, packet: Publish) -> None:
        """
        Raise if there is no room to retain a message.

        Raises:
            PacketError: There is none.
        """
        if packet.payload:
            properties = kept_properties(packet.properties)
            self._retained.check(
                Message(packet.topic, packet.payload, properties=properties)
            )

    def can_publish(self, rule: Rule) -> bool:
        """Return whether a message for *rule* can be published without waiting."""
        feed = self._feeds.find(rule.target)
        return (
            feed is not None
            and self.broker.topics.has_room
            and feed.topic.publish_delay_s(self._clock()) <= 0
        )

    async def publish_later(
        self, packet: Publish, client_id: str, rule: Rule, done: Done
    ) -> None:
        """Publish a message when its topic, memory and quotas allow it."""
        try:
            await self._wait_to_publish(rule)
        except BrokerError as error:
            done(error)
            return
        self.publish(packet, client_id, rule, done)

    async def _wait_to_publish(self, rule: Rule) -> None:
        feed = await self._feeds.get(rule.target)
        delay_s = feed.topic.publish_delay_s(self._clock())
        while delay_s > 0:
            await asyncio.sleep(delay_s)
            delay_s = feed.topic.publish_delay_s(self._clock())
        if not self.broker.topics.has_room:
            await self.broker.topics.wait_for_room()

    def publish(self, packet: Publish, client_id: str, rule: Rule, done: Done) -> None:
        """
        Publish a message to the topic of its rule.

        Durability: When *done* is called without an error, the message of a reliable
            topic is on disk, and it is retained if it is to be.
        """
        now_us = self._wall_clock_us()
        feed = self._feeds.find(rule.target)
        if feed is None:
            # The topic was deleted meanwhile.
            self._tasks.run(self.publish_later(packet, client_id, rule, done))
            return
        self.counts.received += 1
        if packet.retain:
            done = partial(self._retain, packet, client_id, now_us, done)
        self.broker.batcher.publish(
            feed.topic,
            _to_store(packet, client_id, rule.key, now_us),
            partial(_on_stored, done),
        )

    def _retain(
        self,
        packet: Publish,
        client_id: str,
        now_us: int,
        done: Done,
        error: BrokerError | None,
    ) -> None:
        """Retain a message that was stored, and then call *done*."""
        if error is not None:
            done(error)
            return
        if not packet.payload:
            if self._retained.remove(packet.topic):
                self._writer.release(packet.topic, done)
            else:
                done(None)
            return
        message = Message(
            packet.topic,
            packet.payload,
            qos=packet.qos,
            retain=True,
            properties=kept_properties(packet.properties),
            expires_at_us=expires_at_us_of(packet.properties, now_us),
            publisher=client_id,
        )
        try:
            self._retained.check(message)
        except PacketError as refusal:
            done(QuotaExceeded(str(refusal)))
            return
        self._retained.put(message)
        self._writer.retain(message, done)

    def publish_will(self, client_id: str, will: Will) -> None:
        """Publish the will of a client whose connection was lost."""
        try:
            rule = self.rules.check(will.topic)
            packet = Publish(
                topic=will.topic,
                payload=will.payload,
                qos=will.qos,
                retain=will.retain,
                properties=will.properties,
            )
            if packet.retain:
                self.check_retained(packet)
        except PacketError as error:
            log.warning("the will of %r: %s", client_id, error)
            return
        self.counts.wills += 1
        self.publish(packet, client_id, rule, partial(_on_will, client_id))


def _to_store(packet: Publish, client_id: str, key: str, now_us: int) -> SingleMessage:
    """
    Return the message for the topic of the broker.

    *key* is that of the rule: ``topic``, ``client_id`` or ``none``.
    """
    key_text = {"topic": packet.topic, "client_id": client_id}.get(key)
    return SingleMessage(
        client_id,
        packet.payload,
        now_us,
        None if key_text is None else key_text.encode(),
        attributes_to_store(packet, key),
        expires_at_us=expires_at_us_of(packet.properties, now_us),
    )


def _on_stored(done: Done, _: object, error: BrokerError | None) -> None:
    done(error)


def _on_will(client_id: str, error: BrokerError | None) -> None:
    if error is not None:
        log.warning("the will of %r is not published: %s", client_id, error)
