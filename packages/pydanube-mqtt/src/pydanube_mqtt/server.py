"""The MQTT server: its connections, its sessions, and what they share."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from pydanube.aio.futures import Done, completion
from pydanube.aio.tasks import TaskScope, task_scope
from pydanube.model.errors import BrokerError, Refused
from pydanube.model.names import TopicName
from pydanube.security.principals import Principal
from pydanube_broker.operations.authorization import follow_access
from pydanube_broker.servers.connections.listeners import ListenerParts
from pydanube_mqtt.clients import Client, Connection
from pydanube_mqtt.config import MqttConfig
from pydanube_mqtt.counts import MqttCounts
from pydanube_mqtt.feeds import Feeds, read_missed, restore_in_flight
from pydanube_mqtt.peers.elsewhere import Elsewhere
from pydanube_mqtt.publisher import Publisher
from pydanube_mqtt.pure.homes import home_of, id_at_home
from pydanube_mqtt.pure.retained import RetainedMessages
from pydanube_mqtt.pure.rules import Rules
from pydanube_mqtt.pure.session import Delivery, Session, SessionLimits
from pydanube_mqtt.pure.subscribers import Subscriber, Subscribers
from pydanube_mqtt.receiving import TOPIC_ALIASES_MAX
from pydanube_mqtt.session_owners import LeftWill, SessionOwners
from pydanube_mqtt.state import (
    StateWriter,
    follow_retained,
    load_retained,
    load_sessions,
)
from pydanube_mqtt.subscribing import Subscribing
from pydanube_mqtt.wire.packets import (
    V5,
    Connack,
    Connect,
    PacketError,
    Property,
    Reason,
    Subscribe,
    Unsubscribe,
)

log = logging.getLogger(__name__)

CLIENT_ID_BYTES_MAX = 256
KEEP_ALIVE_FACTOR = 1.5
SWEEP_INTERVAL_S = 1.0
SAVE_SWEEPS = 10
"""The positions of connected sessions are saved after this many sweeps."""
HANDSHAKING_MAX = 1024
"""The most connections without CONNECT; the listener closes the oldest beyond it."""
CATCHING_UP_MAX = 16
"""The most sessions that read what they have missed at the same time."""
NEVER_EXPIRES = 0xFFFF_FFFF
RETRY_S = 5.0
"""The time until a topic that cannot be read is read again."""
UNUSED_AFTER_S = 30.0
"""When the processes of a broker delete subscriptions that nobody has any more."""
_CLOSE_TIMEOUT_S = 5.0


class MqttServer:
    """All clients of MQTT."""

    def __init__(
        self, config: MqttConfig, parts: ListenerParts, tasks: TaskScope
    ) -> None:
        self.config = config
        self.parts = parts
        broker = self.broker = parts.broker
        authenticator, wall_clock_us = parts.authenticator, parts.wall_clock_us
        self.counts = MqttCounts()
        self.loop = asyncio.get_running_loop()
        self.connections: dict[Connection, None] = {}
        self.clients: dict[str, Client] = {}
        """The sessions of this process, by the id of their client."""
        self._session_count = parts.counts.shared.of("mqtt")
        rules = self._rules = Rules(config.rules)
        self._elsewhere = (
            None
            if parts.processes is None
            else Elsewhere(broker, parts.processes, tasks)
        )
        self.retained = RetainedMessages(
            messages_max=config.retained_messages_max,
            bytes_max=config.retained_bytes_max,
        )
        self._owners = SessionOwners(broker, rules, authenticator)
        self.tasks = tasks
        self._handshaking: dict[Connection, None] = {}
        subscribers = Subscribers()
        self._limits = SessionLimits(
            in_flight_max=config.in_flight_max,
            queue_messages_max=config.queue_messages_max,
            queue_bytes_max=config.queue_bytes_max,
        )
        self._feeds = Feeds(
            broker,
            rules,
            subscribers,
            self.counts,
            reliable={
                rule.target: each.reliable
                for rule, each in zip(rules.rules, config.rules, strict=True)
            },
            elsewhere=self._elsewhere,
        )
        self._writer = StateWriter(parts.store)
        self.publisher = Publisher(
            broker,
            tasks,
            rules=rules,
            feeds=self._feeds,
            retained=self.retained,
            writer=self._writer,
            counts=self.counts,
            wall_clock_us=wall_clock_us,
            elsewhere=self._elsewhere,
        )
        self._subscribing = Subscribing(
            broker,
            tasks,
            rules=rules,
            feeds=self._feeds,
            subscribers=subscribers,
            retained=self.retained,
            counts=self.counts,
            subscriptions_max=config.subscriptions_max,
            wall_clock_us=wall_clock_us,
            elsewhere=self._elsewhere,
        )
        self._catching_up = asyncio.Semaphore(CATCHING_UP_MAX)
        self._is_stopping = False

    # Opening and closing.

    async def open(self) -> None:
        """Open the topics, and read sessions and retained messages."""
        await self._feeds.open()
        await self.publisher.open()
        if self._elsewhere is None:
            for message in await load_retained(self.parts.store):
                self.retained.put(message)
        else:
            begun = asyncio.Event()
            self.tasks.run(follow_retained(self.parts.store, self.retained, begun))
            await begun.wait()
        now_us, now = self.parts.wall_clock_us(), self.loop.time()
        for saved in await load_sessions(self.parts.store, self._limits):
            session = saved.session
            if not self._is_home_of(session.client_id):
                continue
            left_s = float(session.expiry_s)
            if saved.seen_at_us is not None:
                left_s -= (now_us - saved.seen_at_us) / 1e6
            if left_s <= 0 and session.expiry_s != NEVER_EXPIRES:
                self._writer.forget(session.client_id)
                continue
            client = Client(
                session,
                expires_at=now + left_s,
                is_counted=True,
                unread=dict(saved.positions),
            )
            self._owners.add(session.owner, is_new=False)
            self.clients[session.client_id] = client
            for each in session.subscriptions.values():
                if each.filter.group:
                    self._subscribing.shared.add(each.filter, session.client_id)
        self._session_count.put("sessions", len(self.clients))
        if self._elsewhere is None:
            await self._subscribing.shared.delete_unused()
        else:
            self.tasks.run(self._feeds.follow_owners())
            self.tasks.run(self._delete_unused_later())
        self.tasks.run(self._writer.run())
        self.tasks.run(self._sweep_regularly())
        if self.broker.access.is_enforced:
            self.tasks.run(self._follow_policy())

    async def close(self) -> None:
        """Disconnect all clients, and save the sessions."""
        self._is_stopping = True
        for connection in list(self.connections):
            connection.close(Reason.SERVER_SHUTTING_DOWN, "the broker is stopping")
            if connection.client is None:
                connection.abort()
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await self._writer.flush()
        except TimeoutError:
            log.warning("the last changes of sessions were not written")
        for connection in list(self.connections):
            connection.abort()
        self._feeds.close()
        if self._elsewhere is not None:
            self._elsewhere.close()

    # Connections.

    def on_connected(self, connection: Connection) -> bool:
        """Add a connection that was made; return whether to keep it."""
        self.connections[connection] = None
        self._handshaking[connection] = None
        if len(self._handshaking) > HANDSHAKING_MAX:
            oldest = next(iter(self._handshaking))
            del self._handshaking[oldest]
            oldest.abort()
        return self.parts.counts.admit() and not self._is_stopping

    def on_lost(self, connection: Connection) -> None:
        """Remove a connection that was lost."""
        self.connections.pop(connection, None)
        self._handshaking.pop(connection, None)
        self.parts.counts.lose()

    def check_will(self, connection: Connection, packet: Connect) -> None:
        """
        Raise if the client may not publish the will that it brings.

        Raises:
            PacketError: Its topic has no rule, or there is no room to retain it.
            PermissionDenied, Unauthenticated: The client may not publish there.
        """
        will = packet.will
        if will is None:
            return
        self._owners.check_will(connection.caller, will)

    async def connect(self, connection: Connection, packet: Connect) -> None:
        """
        Connect a client with its session, or a new one.

        Raises:
            PacketError: The client is refused.
            QuotaExceeded: Its principal has too many sessions.
        """
        self._handshaking.pop(connection, None)
        client_id = self._client_id_of(packet)
        principal = connection.identity.principal
        self._owners.check(connection.caller)
        known = self._find(client_id, principal)
        if known is not None and known.connection is not None:
            known.connection.close(
                Reason.SESSION_TAKEN_OVER, "another connection uses the client id"
            )
            # The session may have ended with its connection.
            known = self.clients.get(client_id)
        if known is not None and packet.clean_start:
            self._end(known)
            known = None
        is_present = known is not None
        if known is None:
            count = len(self.clients) + self._session_count.others("sessions")
            if count >= self.config.sessions_max:
                raise PacketError(
                    Reason.QUOTA_EXCEEDED,
                    f"the broker has {count} sessions, as many as mqtt.sessions_max "
                    "allows",
                )
            session = Session(client_id=client_id, owner=principal, limits=self._limits)
            known = Client(session)
        session = known.session
        expiry_s = self._expiry_s_of(packet)
        if expiry_s and not known.is_counted:
            self._owners.add(principal, is_new=True)
            known.is_counted = True
        self.clients[client_id] = known
        self._session_count.put("sessions", len(self.clients))
        known.connection = connection
        known.will = None
        session.owner, session.expiry_s = principal, expiry_s
        properties = packet.properties
        session.send_max = properties.get(Property.RECEIVE_MAXIMUM, 65_535)
        connection.packet_bytes_max = properties.get(Property.MAXIMUM_PACKET_SIZE, 0)
        answer = self._answer(packet, session, connection, is_present=is_present)
        subscriber = Subscriber(
            session, connection.send_waiting, connection.read_missed
        )
        try:
            await self._restore_positions(known)
            await self._subscribing.resume(connection, known, subscriber)
            await restore_in_flight(session)
            if session.is_persistent:
                await self._save_now(known, subscriber)
            elif is_present:
                self._writer.forget(client_id)
        except BaseException:
            self.disconnect(connection, known, subscriber)
            raise
        if connection.is_lost or known.connection is not connection:
            # The client has gone, or has come back, meanwhile.
            self.disconnect(connection, known, subscriber)
            return
        connection.will = packet.will
        connection.on_session(known, subscriber, answer)

    async def _restore_positions(self, client: Client) -> None:
        """Continue where the record of a session says, in topics that rules name."""
        for text in list(client.unread):
            target = TopicName.parse(text)
            if target in self._feeds.targets:
                feed = await self._feeds.get(target)
                if feed.is_reliable and text in client.unread:
                    position = min(client.unread[text], feed.position)
                    client.session.behind.setdefault(feed, position)
            client.unread.pop(text, None)

    def _is_home_of(self, client_id: str) -> bool:
        """Return whether this process has the session of a client."""
        group = self.parts.processes
        return group is None or home_of(client_id, group.count) == group.number

    def disconnect(
        self, connection: Connection, client: Client, subscriber: Subscriber
    ) -> None:
        """Separate a session from its connection, which is lost or about to be."""
        session = client.session
        positions = self._subscribing.suspend(client, subscriber)
        if client.connection is not connection:
            return
        client.connection = None
        session.requeue(positions)
        session.drop_shared()
        session.evict()
        will, connection.will = connection.will, None
        if self._is_stopping:
            will = None
        delay_s = 0.0
        if will is not None:
            delay_s = float(will.properties.get(Property.WILL_DELAY_INTERVAL, 0))
            delay_s = min(delay_s, session.expiry_s)
            client.will = LeftWill(
                will,
                self.loop.time() + delay_s,
                connection.identity,
                connection.caller,
            )
        if will is not None and delay_s <= 0:
            self._publish_will(client)
        if not session.is_persistent:
            self._end(client)
            return
        client.expires_at = self.loop.time() + session.expiry_s
        self._save(client)

    def bounded_expiry_s(self, expiry_s: int) -> int:
        """Return for how long a session is kept whose client asks for *expiry_s*."""
        return min(expiry_s, self.config.session_expiry_s_max)

    def _client_id_of(self, packet: Connect) -> str:
        client_id = packet.client_id
        if not client_id:
            if packet.version < V5 and not packet.clean_start:
                raise PacketError(
                    Reason.CLIENT_IDENTIFIER_NOT_VALID,
                    "a session that is not clean needs a client id",
                )
            group = self.parts.processes
            if group is None:
                return _new_client_id()
            # Any other connection with this id would be passed to its home.
            candidates = iter(_new_client_id, "")
            return id_at_home(candidates, group.number, group.count)
        if len(client_id.encode()) > CLIENT_ID_BYTES_MAX or not client_id.isprintable():
            raise PacketError(
                Reason.CLIENT_IDENTIFIER_NOT_VALID,
                f"a client id has at most {CLIENT_ID_BYTES_MAX} bytes, and printable "
                "characters only",
            )
        return client_id

    def _expiry_s_of(self, packet: Connect) -> int:
        if packet.version >= V5:
            asked_s = packet.properties.get(Property.SESSION_EXPIRY_INTERVAL, 0)
            return self.bounded_expiry_s(asked_s)
        return 0 if packet.clean_start else self.config.session_expiry_s_max

    def _answer(
        self,
        packet: Connect,
        session: Session,
        connection: Connection,
        *,
        is_present: bool,
    ) -> Connack:
        keep_alive_s = packet.keep_alive_s
        properties: dict[Property, Any] = {}
        if packet.version >= V5:
            properties = {
                Property.RECEIVE_MAXIMUM: self.config.in_flight_max,
                Property.MAXIMUM_PACKET_SIZE: self.config.packet_bytes_max,
                Property.TOPIC_ALIAS_MAXIMUM: TOPIC_ALIASES_MAX,
            }
            if not packet.client_id:
                properties[Property.ASSIGNED_CLIENT_IDENTIFIER] = session.client_id
            if session.expiry_s != packet.properties.get(
                Property.SESSION_EXPIRY_INTERVAL, 0
            ):
                properties[Property.SESSION_EXPIRY_INTERVAL] = session.expiry_s
            most_s = self.config.keep_alive_s_max
            if not 0 < keep_alive_s <= most_s:
                keep_alive_s = properties[Property.SERVER_KEEP_ALIVE] = most_s
        connection.keep_alive_s = keep_alive_s * KEEP_ALIVE_FACTOR
        return Connack(session_present=is_present, properties=properties)

    def _publish_will(self, client: Client) -> None:
        """Publish the will of a client whose connection was lost, if it still may."""
        assert client.will is not None
        left, client.will = client.will, None
        client_id = client.session.client_id
        try:
            self._owners.check_left_will(left)
        except (BrokerError, PacketError) as error:
            self.counts.refused[Reason.NOT_AUTHORIZED.name.lower()] += 1
            log.warning("the will of %r is not published: %s", client_id, error)
            return
        self.publisher.publish_will(client_id, left.will)

    def _find(self, client_id: str, principal: Principal) -> Client | None:
        """
        Return the session of a client id that *principal* may use.

        A session whose owner has lost its permissions makes room for others.

        Raises:
            PacketError: The client id belongs to another principal.
        """
        known = self.clients.get(client_id)
        if known is None or known.session.owner.name == principal.name:
            return known
        if self._owners.may_hold(known.session.owner):
            raise PacketError(
                Reason.CLIENT_IDENTIFIER_NOT_VALID,
                f"the client id {client_id!r} belongs to another principal",
            )
        if known.connection is not None:
            known.connection.close(
                Reason.NOT_AUTHORIZED, "another principal uses the client id"
            )
        self._end(known)
        return None

    def _end(self, client: Client) -> None:
        """End a session, unless it has ended already."""
        client_id = client.session.client_id
        if self.clients.get(client_id) is not client:
            return
        if client.will is not None:
            self._publish_will(client)
        if client.is_counted:
            client.is_counted = False
            self._owners.remove(client.session.owner)
        del self.clients[client_id]
        self._session_count.put("sessions", len(self.clients))
        self._writer.forget(client_id)
        self._subscribing.end(client)

    # Subscriptions.

    async def subscribe(
        self, connection: Connection, client: Client, packet: Subscribe
    ) -> tuple[list[Reason], list[Delivery]]:
        """
        Add subscriptions; return the reasons of SUBACK, and the retained messages.

        Durability: On return, subscriptions of a session that outlives its connection
            are on disk.
        """
        answer = await self._subscribing.subscribe(connection, client, packet)
        if client.session.is_persistent:
            await self._save_now(client)
        return answer

    async def unsubscribe(
        self, connection: Connection, client: Client, packet: Unsubscribe
    ) -> list[Reason]:
        """Remove subscriptions, and return the reasons of UNSUBACK."""
        reasons = self._subscribing.unsubscribe(connection, client, packet)
        if client.session.is_persistent:
            await self._save_now(client)
        return reasons

    async def read_missed(
        self, subscriber: Subscriber, room: Callable[[], Any]
    ) -> None:
        """Give a session what it has missed; a few sessions at a time read."""

        async def wait_for_room() -> None:
            self._catching_up.release()
            try:
                await room()
            finally:
                await self._catching_up.acquire()

        session = subscriber.session
        while session.behind:
            async with self._catching_up:
                try:
                    await read_missed(subscriber, wait_for_room)
                except BrokerError as error:
                    log.warning(
                        "the session %r waits for its messages: %s",
                        session.client_id,
                        error,
                    )
            if session.behind:
                await asyncio.sleep(RETRY_S)

    # Sessions on disk, and time.

    def _positions(
        self, client: Client, subscriber: Subscriber | None
    ) -> dict[str, int]:
        """Return from where topics must be read for a session after a crash."""
        positions: dict[Any, int] = {}
        if subscriber is not None:
            positions = {
                feed: feed.position for feed in subscriber.following if feed.is_reliable
            }
        found = positions | client.session.positions()
        for feed, position in positions.items():
            found[feed] = min(position, found[feed])
        return client.unread | {
            str(feed.target): position
            for feed, position in found.items()
            if not feed.is_closed
        }

    def _save(
        self,
        client: Client,
        done: Done | None = None,
        subscriber: Subscriber | None = None,
    ) -> None:
        """Write a session; *subscriber* is that of a connection that is beginning."""
        if subscriber is None and client.connection is not None:
            subscriber = client.connection.subscriber
        positions = client.saved = self._positions(client, subscriber)
        self._writer.save(
            client.session,
            positions,
            self.parts.wall_clock_us(),
            done,
            is_connected=client.connection is not None,
        )

    async def _save_now(
        self, client: Client, subscriber: Subscriber | None = None
    ) -> None:
        """Write a session, and wait until it is on disk."""
        await completion(lambda done: self._save(client, done, subscriber))

    async def _delete_unused_later(self) -> None:
        """Delete shared subscriptions, when topics are served and clients are back."""
        await asyncio.sleep(UNUSED_AFTER_S)
        try:
            await self._subscribing.shared.delete_unused()
        except BrokerError as error:
            log.warning("unused shared subscriptions stay: %s", error)

    async def _sweep_regularly(self) -> None:
        number = 0
        while True:
            await asyncio.sleep(SWEEP_INTERVAL_S)
            number += 1
            self.sweep(saves_positions=number % SAVE_SWEEPS == 0)

    def sweep(self, *, saves_positions: bool) -> None:
        """Do what is due: disconnect silent clients, end sessions, publish wills."""
        now = self.loop.time()
        for connection in list(self.connections):
            connection.sweep(now)
        for client in list(self.clients.values()):
            if client.connection is not None:
                if (
                    saves_positions
                    and client.session.is_persistent
                    and self._positions(client, client.connection.subscriber)
                    != client.saved
                ):
                    self._save(client)
                continue
            if client.will is not None and client.will.due_at <= now:
                self._publish_will(client)
            is_over = client.expires_at <= now
            if is_over and client.session.expiry_s != NEVER_EXPIRES:
                self._end(client)
        if any(feed.is_closed for feed in self._feeds):
            self.tasks.run(self._feeds.reopen())
        if saves_positions:
            for topic in self.retained.expired(self.parts.wall_clock_us()):
                self.retained.remove(topic)
                self._writer.release(topic)

    async def _follow_policy(self) -> None:
        """Disconnect clients that lost what they need, when the policy changes."""
        await follow_access(self.broker, self.clients.values, self._check_access)

    def _check_access(self, client: Client) -> None:
        connection = client.connection
        if connection is None:
            return
        try:
            self._owners.check(connection.caller)
            for each in client.session.subscriptions.values():
                self._subscribing.check_allowed(connection.caller, each)
        except (Refused, PacketError) as error:
            connection.close(Reason.NOT_AUTHORIZED, str(error))


def _new_client_id() -> str:
    return f"mqtt-{secrets.token_hex(8)}"


@asynccontextmanager
async def open_mqtt_server(
    config: MqttConfig, parts: ListenerParts
) -> AsyncIterator[MqttServer]:
    """
    Open the MQTT server over a broker, without a listener.

    The metadata has the sessions and the retained messages.
    """
    async with task_scope() as tasks:
        server = MqttServer(config, parts, tasks)
        await server.open()
        try:
            yield server
        finally:
            await server.close()
