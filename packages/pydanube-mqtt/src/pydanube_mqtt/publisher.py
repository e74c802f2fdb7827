"""The way of messages from clients of MQTT into the topics of the broker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from pydanube.aio.futures import Done
from pydanube.aio.tasks import TaskScope
from pydanube.model.dead_letters import ORIGINAL_PRODUCER, ORIGINAL_TOPIC, REASON
from pydanube.model.errors import (
    BrokerError,
    ConnectionLost,
    InvalidPayload,
    NotOwner,
    QuotaExceeded,
    SchemaMismatch,
    TopicNotFound,
)
from pydanube.model.names import TopicName
from pydanube.model.policy import TopicPolicy
from pydanube_broker.broker.broker import Broker
from pydanube_broker.broker.publishing.message_batcher import SingleMessage
from pydanube_broker.broker.publishing.topic import Topic
from pydanube_mqtt.counts import MqttCounts
from pydanube_mqtt.feeds import Feed, Feeds
from pydanube_mqtt.peers.elsewhere import Elsewhere
from pydanube_mqtt.peers.peer_serving import wait_to_publish
from pydanube_mqtt.peers.remote_topics import RemoteTopic
from pydanube_mqtt.pure.messages import (
    TOPIC,
    Message,
    attributes_to_store,
    expires_at_us_of,
    kept_properties,
)
from pydanube_mqtt.pure.reasons import REASON_CHARACTERS_MAX
from pydanube_mqtt.pure.retained import RetainedMessages
from pydanube_mqtt.pure.rules import Rule, Rules
from pydanube_mqtt.rule_schemas import RuleSchema
from pydanube_mqtt.state import StateWriter
from pydanube_mqtt.wire.packets import PacketError, Publish, Will

log = logging.getLogger(__name__)

MOVE_TIMEOUT_S = 10.0
"""How long a message waits for a topic that no process serves."""
MOVE_RETRY_S = 0.05
_MOVING = (NotOwner, ConnectionLost, TopicNotFound)
"""Errors of topics that move to another process, or whose process has ended."""


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
        elsewhere: Elsewhere | None = None,
    ) -> None:
        self._elsewhere = elsewhere
        self.broker = broker
        self.rules = rules
        self.counts = counts
        self._tasks = tasks
        self._feeds = feeds
        self._retained = retained
        self._writer = writer
        self._wall_clock_us = wall_clock_us
        self._clock = asyncio.get_running_loop().time
        self._schemas = {
            rule: RuleSchema(broker, rule) for rule in rules.rules if rule.schema
        }

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

    async def open(self) -> None:
        """Look up the schemas of rules, and open the topics of dead letters."""
        for rule, schema in self._schemas.items():
            try:
                await schema.look_up()
            except BrokerError as error:
                log.warning(
                    "messages for %r are refused until this is mended: %s",
                    rule.filter.text,
                    error,
                )
        for rule in self.rules.rules:
            if rule.dead_letter_topic is not None and self._elsewhere is None:
                await self._open_dead_letters(rule.dead_letter_topic)

    def can_publish(self, packet: Publish, rule: Rule) -> bool:
        """Return whether a message for *rule* can be published without waiting."""
        feed, schema = self._feeds.find(rule.target), self._schemas.get(rule)
        if feed is None or not (schema is None or schema.is_ready(packet.payload)):
            return False
        if isinstance(feed.topic, RemoteTopic):
            return feed.topic.link.has_room and not feed.topic.has_moved
        return (
            self.broker.topics.has_room
            and feed.topic.publish_delay_s(self._clock()) <= 0
        )

    async def publish_later(
        self, packet: Publish, client_id: str, rule: Rule, done: Done
    ) -> None:
        """Publish a message when its topic, memory and quotas allow it."""
        settle = partial(self._settle, packet, client_id, rule, done)
        try:
            if (schema := self._schemas.get(rule)) is not None:
                await schema.check_later(packet.payload)
            await self._wait_to_publish(rule)
        except BrokerError as error:
            settle(error)
            return
        self._store(packet, client_id, rule, settle)

    async def _wait_to_publish(self, rule: Rule) -> None:
        feed = await self._feed_of(rule)
        if isinstance(feed.topic, RemoteTopic):
            await feed.topic.link.wait_for_room()
        else:
            await wait_to_publish(self.broker, feed.topic)

    async def _feed_of(self, rule: Rule) -> Feed:
        """Return the feed of the topic of *rule*; wait while the topic moves."""
        give_up_at = self._clock() + MOVE_TIMEOUT_S
        while True:
            try:
                return await self._feeds.get(rule.target)
            except _MOVING:
                if self._elsewhere is None or self._clock() > give_up_at:
                    raise
            await asyncio.sleep(MOVE_RETRY_S)

    def publish(self, packet: Publish, client_id: str, rule: Rule, done: Done) -> None:
        """
        Publish a message to the topic of its rule.

        Durability: When *done* is called without an error, the message of a reliable
            topic is on disk, and it is retained if it is to be; or it did not match its
            schema, and was dropped or became a dead letter, as its rule says.
        """
        schema = self._schemas.get(rule)
        if schema is not None and not schema.is_ready(packet.payload):
            self._tasks.run(self.publish_later(packet, client_id, rule, done))
            return
        settle = partial(self._settle, packet, client_id, rule, done)
        try:
            if schema is not None:
                schema.check(packet.payload)
        except BrokerError as error:
            settle(error)
            return
        self._store(packet, client_id, rule, settle)

    def _store(self, packet: Publish, client_id: str, rule: Rule, done: Done) -> None:
        """Store a message that matches the schema of its rule."""
        now_us = self._wall_clock_us()
        feed = self._feeds.find(rule.target)
        if feed is None:
            # The topic was deleted meanwhile.
            self._tasks.run(self.publish_later(packet, client_id, rule, done))
            return
        self.counts.received += 1
        message = _to_store(packet, client_id, rule.key, now_us)
        if (schema := self._schemas.get(rule)) is not None:
            message.schema_id = schema.schema_id
            message.schema_version = schema.version
        stored = done
        if packet.retain:
            stored = partial(self._retain, packet, client_id, now_us, done)
        if self._elsewhere is not None:
            again = partial(self.publish_later, packet, client_id, rule, done)
            stored = partial(self._on_outcome, feed.topic, again, stored)
        if isinstance(feed.topic, RemoteTopic):
            feed.topic.publish(message, stored)
        else:
            self.broker.batcher.publish(
                feed.topic, message, partial(_on_stored, stored)
            )

    def _on_outcome(
        self,
        topic: Topic | RemoteTopic,
        again: Callable[[], Coroutine[Any, Any, None]],
        stored: Done,
        error: BrokerError | None,
    ) -> None:
        """Publish a message *again* whose topic has moved; otherwise call *stored*."""
        if not isinstance(error, _MOVING):
            stored(error)
            return
        if isinstance(topic, RemoteTopic):
            topic.note(error)
        self.counts.received -= 1
        self._tasks.run(again())

    def _settle(
        self,
        packet: Publish,
        client_id: str,
        rule: Rule,
        done: Done,
        error: BrokerError | None,
    ) -> None:
        """Do with a message that does not match its schema what its rule says."""
        if not isinstance(error, InvalidPayload | SchemaMismatch):
            done(error)
            return
        schema = self._schemas.get(rule)
        if isinstance(error, SchemaMismatch) and schema and not schema.is_fresh:
            # The subject has changed since the message was validated.
            self._tasks.run(self.publish_later(packet, client_id, rule, done))
            return
        self.counts.invalid[rule.on_invalid] += 1
        match rule.on_invalid:
            case "refuse":
                done(error)
            case "drop":
                log.debug("dropping a message of %r: %s", client_id, error)
                done(None)
            case "dead_letter":
                assert rule.dead_letter_topic is not None
                message = self._dead_letter(packet, client_id, rule, error)
                topic = self.broker.topics.opened.get(rule.dead_letter_topic)
                if topic is not None and topic.refusal is None:
                    self.broker.batcher.publish(
                        topic, message, partial(_on_stored, done)
                    )
                else:
                    self._tasks.run(
                        self._bury_later(rule.dead_letter_topic, message, done)
                    )

    def _dead_letter(
        self, packet: Publish, client_id: str, rule: Rule, error: BrokerError
    ) -> SingleMessage:
        message = _to_store(packet, client_id, rule.key, self._wall_clock_us())
        message.attributes = {
            **(message.attributes or {}),
            TOPIC: packet.topic,
            ORIGINAL_TOPIC: str(rule.target),
            ORIGINAL_PRODUCER: client_id,
            REASON: str(error)[:REASON_CHARACTERS_MAX],
        }
        return message

    async def _bury_later(
        self, name: TopicName, message: SingleMessage, done: Done
    ) -> None:
        """Publish a dead letter whose topic is not open."""
        try:
            topic = await self._open_dead_letters(name)
        except BrokerError as error:
            done(error)
            return
        if isinstance(topic, RemoteTopic):
            topic.publish(message, done)
        else:
            self.broker.batcher.publish(topic, message, partial(_on_stored, done))

    async def _open_dead_letters(self, name: TopicName) -> Topic | RemoteTopic:
        if await self.broker.catalog.find(name) is None:
            await self.broker.namespaces.create(name.namespace, exist_ok=True)
            await self.broker.topics.add(name, TopicPolicy(), exist_ok=True)
        try:
            return await self.broker.topics.get(name)
        except NotOwner:
            if self._elsewhere is None:
                raise
        return await self._elsewhere.find(name)

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
