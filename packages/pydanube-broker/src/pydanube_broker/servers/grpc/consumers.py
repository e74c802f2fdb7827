"""
The service ``danube.ConsumerService``: subscribe, receive, acknowledge.

A consumer subscribes in one call and opens its stream in another, so the server keeps
its state in between.  A *registration* is a consumer that has subscribed, by name.  It
has a *session* while it is attached to its subscription: from the call to Subscribe
until its stream ends, or until the consumer is silent for too long.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import field
from functools import lru_cache, partial

import msgspec

from pydanube.aio.futures import Done, completion
from pydanube.model.errors import (
    BrokerError,
    ConsumerBusy,
    ConsumerReplaced,
    Corrupt,
    Draining,
    InvalidRequest,
    NotFound,
    QuotaExceeded,
    Refused,
    SubscriptionNotFound,
    Unavailable,
)
from pydanube.model.ids import producer_id_of
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.names import (
    SubscriptionName,
    TopicName,
    parse_client_name,
    parse_subscription,
)
from pydanube.model.policy import Start, SubscriptionType
from pydanube.model.range_blocks import ranges_of_offsets
from pydanube.security.permissions import Permission
from pydanube.security.resources import Resource
from pydanube.wire.batches import BatchFrame
from pydanube.wire.pb import danube_api_pb2 as pb
from pydanube_broker.broker.broker import Broker
from pydanube_broker.broker.delivery.subscription import Consumer, Subscription
from pydanube_broker.broker.publishing.topic import ReliableTopic, Topic
from pydanube_broker.dispatch.quota_meter import (
    UNLIMITED,
    QuotaMeter,
    credit_bytes_of,
    delay_out_s,
    take_out,
)
from pydanube_broker.metadata.records import ConsumerRecord
from pydanube_broker.operations.authorization import (
    Caller,
    Need,
    check_now,
    current_caller,
)
from pydanube_broker.operations.quota_holds import wait_for_quota
from pydanube_broker.servers.grpc.calls import CallContext, written_together
from pydanube_broker.servers.grpc.pure.id_registry import IdRegistry
from pydanube_broker.servers.grpc.pure.window import AdaptiveWindow
from pydanube_broker.servers.grpc.services import OnAnswer, StatusError, refusing
from pydanube_broker.wire.grpc.danube_api import member_of, messages_to_wire
from pydanube_broker.wire.grpc.status import StatusCode

SILENT_AFTER_S = 15.0
"""A consumer without a stream loses its session if it is silent for this time.  Clients
check their health every 5 s."""

FORGOTTEN_AFTER_S = 600.0
"""A consumer without a session may open its stream within this time without subscribing
again, even if the broker was restarted meanwhile."""

REGISTRATIONS_MAX = 100_000
"""Beyond this number, registrations that were silent longest are forgotten early."""

REPLACED_PEERS_MAX = 16

REFUSAL_PAUSE_S = 1.0
"""The delay before a stream is refused, because some clients retry at once and without
end, whatever the status is."""

DIRECT_WINDOW = 4096
"""The maximum number of messages of a non-reliable topic that wait for a stream; more
messages are dropped."""

GRANTED_PART = 1 / 4
"""The part of a consumer's window that acknowledgements must free before it gets more
messages."""

WINDOW_BYTES = 4 * 1024 * 1024
"""The maximum number of bytes that wait for one stream."""

_Progress = defaultdict[Subscription, tuple[list[int], list[Done]]]

_parse_topic = lru_cache(maxsize=4096)(TopicName.parse)


@dataclass(slots=True, eq=False)
class ConsumerRegistration:
    """A consumer that subscribed through this server, by name."""

    record: ConsumerRecord
    last_seen: float
    number: int = 0
    session: ConsumerSession | None = None
    stored: ConsumerRecord | None = None
    """The record that the broker loads after a restart."""
    replaced: dict[str, None] = field(default_factory=dict)
    """
    Connections whose consumer was replaced by another one of the same name.

    Clients reopen a stream that ended at once.  These may not, because the two
    consumers would replace each other forever.
    """

    @property
    def key(self) -> tuple[str, str, str]:
        """The names of its topic and subscription, and its own."""
        return self.record.topic, self.record.subscription, self.record.consumer


class ConsumerSession:
    """The attached consumer of a registration, and the messages for its stream."""

    def __init__(
        self,
        owner: Consumers,
        registration: ConsumerRegistration,
        topic: Topic,
        subscription: Subscription,
        peer: str,
    ) -> None:
        self._owner = owner
        self.registration = registration
        self.topic = topic
        self.subscription = subscription
        self.peer = peer
        """The connection of the consumer, as gRPC names it."""
        self.caller: Caller | None = None
        """The client that receives its messages; None: the policy is not enforced."""
        self.successor = ""
        """The connection of the consumer that is about to replace this one."""
        self.has_stream = False
        self.consumer: Consumer
        self.key = 0
        """The key of its consumer, from the moment at which that is attached."""
        self.reason: BrokerError | None = None
        """The reason why the session ended; None while it lasts."""
        # Without acknowledgements, as on non-reliable topics, there is no window.
        self._window = (
            AdaptiveWindow(owner.window_messages_max)
            if isinstance(topic, ReliableTopic)
            else None
        )
        self._queue: deque[BatchFrame] = deque()
        self._delivered = 0
        self._unwritten = 0
        self._unwritten_bytes = 0
        self._wake = asyncio.Event()
        self._meter = UNLIMITED

    # The interface for the subscription.

    def deliver(self, frame: BatchFrame, attempt: int) -> None:
        self._queue.append(frame)
        self._delivered += frame.count
        self._unwritten += frame.count
        self._unwritten_bytes += frame.plain_bytes
        self._wake.set()

    def set_state(self, *, is_active: bool, ack_timeout_s: float | None) -> None:
        """Do nothing: the protocol of Danube has no message for it."""

    def close(self, reason: BrokerError) -> None:
        self.reason = reason
        self._queue.clear()
        self._wake.set()
        registration = self.registration
        if isinstance(reason, ConsumerReplaced) and self.successor != self.peer:
            registration.replaced[self.peer] = None
            if len(registration.replaced) > REPLACED_PEERS_MAX:
                del registration.replaced[next(iter(registration.replaced))]
        self._owner.on_lost(self)

    # The stream.

    async def send(self, context: CallContext) -> None:
        """
        Send messages until the session or the client's call ends.

        Raises:
            StatusError, Unavailable, Corrupt: The session ended.
        """
        topic = str(self.topic.name)
        self._meter = self._owner.quotas.of_principal(context.principal)
        self.grant()
        while self.reason is None:
            if not self._queue:
                self._wake.clear()
                await self._wake.wait()
                continue
            frame = self._queue.popleft()
            messages = messages_to_wire(
                frame,
                topic=topic,
                broker_url=self._owner.broker_url,
                producer_id_of=partial(producer_id_of, topic),
                is_reliable=isinstance(self.topic, ReliableTopic),
            )
            for together in written_together(messages):
                await context.write_bytes(*together)
                self._unwritten -= len(together)
                if self.reason is not None:
                    break
            await self._wait_for_quotas(frame.byte_count)
            self._unwritten_bytes -= frame.plain_bytes
            self.grant(at_once=False)
        if isinstance(self.reason, Corrupt | Refused):
            # After UNAVAILABLE clients would come back at once.
            raise self.reason
        if not isinstance(self.reason, ConsumerReplaced):
            raise Unavailable(f"The stream ended: {self.reason}") from self.reason
        if self.successor != self.peer:
            # After UNAVAILABLE clients would come back at once.
            raise StatusError(StatusCode.ALREADY_EXISTS, str(self.reason))

    def grant(self, *, at_once: bool = True) -> None:
        """
        Give the subscription credit up to the consumer's window.

        Unless *at_once*, less than ``GRANTED_PART`` of the window waits for more: each
        delivery costs as much as several messages.
        """
        if not self.has_stream or self.reason is not None:
            return
        in_flight, messages, byte_count = self.subscription.flow_of(self.consumer)
        if self._window is None:
            room = DIRECT_WINDOW - self._unwritten - messages
        else:
            done = self._delivered - in_flight
            self._window.on_progress(done, in_flight, self._owner.clock())
            room = self._window.size - in_flight - messages
            if room < self._window.size * GRANTED_PART and not at_once:
                room = 0
        window_bytes = credit_bytes_of(self._meters, WINDOW_BYTES)
        room_bytes = window_bytes - self._unwritten_bytes - byte_count
        if room > 0 or room_bytes * 2 > window_bytes:
            self.subscription.credit(self.consumer, max(0, room), max(0, room_bytes))

    @property
    def _meters(self) -> tuple[QuotaMeter, ...]:
        """The meters that limit what is sent."""
        return (self._meter, *self.topic.pacing.meters)

    async def _wait_for_quotas(self, byte_count: int) -> None:
        """Charge sent bytes to quotas, and wait until they are due."""
        delay_s = take_out(self._meters, byte_count, self._owner.quotas.now())
        if delay_s > 0:
            await wait_for_quota(delay_s, partial(delay_out_s, self._meters))


class Consumers:
    """The service and its consumers."""

    def __init__(
        self,
        broker: Broker,
        clock: Callable[[], float],
        *,
        broker_url: str,
        window_messages_max: int,
        refusal_pause_s: float = REFUSAL_PAUSE_S,
    ) -> None:
        self._broker = broker
        self.quotas = broker.quotas
        self.broker_url = broker_url
        self.window_messages_max = window_messages_max
        self.clock = clock
        self._refusal_pause_s = refusal_pause_s
        self._loop = asyncio.get_running_loop()
        self._known: IdRegistry[ConsumerRegistration] = IdRegistry("consumer")
        # The sessions of each subscription, by the keys of their consumers.
        self._sessions: defaultdict[Subscription, dict[int, ConsumerSession]] = (
            defaultdict(dict)
        )
        # The offsets that this turn of the event loop acknowledges, by subscription,
        # and those that wait for them.
        self._progressed = _new_progress()
        # Forgotten registrations that are still stored.
        self._forgotten: list[int] = []
        self._is_closed = False
        broker.access.on_change.append(self._check_sessions)

    async def load(self) -> None:
        """Load the consumers that were stored before the broker started."""
        now = self.clock()
        for number, record in (await self._broker.consumer_registry.load()).items():
            registration = ConsumerRegistration(record, now)
            registration.number, registration.stored = number, record
            self._known.restore(registration.key, number, registration)

    # The service.

    async def subscribe(
        self, request: pb.ConsumerRequest, context: CallContext
    ) -> pb.ConsumerResponse:
        """
        Attach a consumer, which replaces another one of the same name.

        Durability: On return the consumer's number is on disk.
        """
        topic_name = _parse_topic(request.topic_name)
        name = parse_subscription(request.subscription)
        consumer_name = parse_client_name("consumer", request.consumer_name)
        type_ = member_of(
            SubscriptionType,
            pb.ConsumerRequest.SubscriptionType,
            request.subscription_type,
            "Unknown subscription type:",
        )
        self._refuse_when_closed()
        with refusing(QuotaExceeded, status=StatusCode.PERMISSION_DENIED):
            topic, subscription = await self._broker.subscriptions.open(
                topic_name, name, type_, Start.LATEST
            )
        record = ConsumerRecord(
            topic=str(topic_name),
            subscription=name,
            consumer=consumer_name,
            type=type_,
            key_filters=(
                tuple(request.key_filters)
                if type_ is SubscriptionType.KEY_SHARED
                else ()
            ),
        )
        known = self._known.find((record.topic, name, consumer_name))
        registration = known or ConsumerRegistration(record, self.clock())
        if registration.session is not None:
            # A consumer that is attached keeps its filters.
            filters = registration.record.key_filters
            record = msgspec.structs.replace(record, key_filters=filters)
        registration.record = record
        self._attach_new(registration, topic, subscription, context.peer())
        if not registration.number:
            registration.number = self._known.add(registration.key, registration)
        await self._store(registration)
        return pb.ConsumerResponse(
            request_id=request.request_id,
            consumer_id=registration.number,
            consumer_name=consumer_name,
        )

    async def receive_messages(
        self, request: pb.ReceiveRequest, context: CallContext
    ) -> None:
        """
        Send messages to one consumer until its call ends.

        At the end, messages that the consumer has not acknowledged are delivered again
        at once, to another consumer or to the next stream of this one.
        """
        try:
            session = await self._session_for_stream(
                request.consumer_id, context.peer()
            )
        except (StatusError, BrokerError):
            await asyncio.sleep(self._refusal_pause_s)
            raise
        try:
            # Some clients wait for the metadata before they use the stream.
            await context.send_initial_metadata()
            await session.send(context)
        finally:
            self._leave(session)

    async def ack(self, request: pb.AckRequest) -> pb.AckResponse:
        """
        Acknowledge one message, from any connection.

        Durability: On return the acknowledgement is on disk.
        """
        subscription, offset = await self._message_of(request, "acknowledging")
        if offset is not None:
            await completion(partial(self._gather_ack, subscription, offset))
        return pb.AckResponse(request_id=request.request_id)

    def ack_nowait(self, request: pb.AckRequest, on_answer: OnAnswer) -> bool:
        """Acknowledge one message if that is possible without waiting."""
        if not request.HasField("msg_id"):
            return False
        topic = self._broker.topics.find_open(_parse_topic(request.msg_id.topic_name))
        if not isinstance(topic, ReliableTopic):
            return False
        name = SubscriptionName(request.subscription_name)
        subscription = topic.subscriptions.get(name)
        offset = request.msg_id.topic_offset
        if subscription is None or offset >= topic.end_offset:
            return False
        acknowledged = partial(_answer_ack, on_answer, request.request_id)
        self._gather_ack(subscription, offset, acknowledged)
        return True

    async def nack(self, request: pb.NackRequest) -> pb.NackResponse:
        """Have one message delivered again."""
        subscription, offset = await self._message_of(
            request, "negatively acknowledging"
        )
        if offset is not None:
            subscription.nack(
                [(offset, offset + 1)],
                delay_s=request.delay_ms / 1000,
                reason=request.reason,
            )
        return pb.NackResponse(request_id=request.request_id)

    # The interface for other services.

    def is_healthy(self, number: int) -> bool:
        """Return whether a consumer has a session, and record that it is alive."""
        registration = self._known.get(number)
        if registration is None or registration.session is None:
            return False
        registration.last_seen = self.clock()
        return True

    def sweep(self) -> None:
        """End the sessions of silent consumers, and forget those silent for long."""
        now = self.clock()
        known = self._known.values()
        for registration in known:
            session = registration.session
            if session is None:
                continue
            if session.has_stream:
                # A part of the window that is too small to be granted at once.
                session.grant()
            elif now - registration.last_seen >= SILENT_AFTER_S:
                self._leave(session)
        silent = [each for each in known if each.session is None]
        silent.sort(key=lambda registration: registration.last_seen)
        excess = len(known) - REGISTRATIONS_MAX
        for at, registration in enumerate(silent):
            if at < excess or now - registration.last_seen >= FORGOTTEN_AFTER_S:
                self._known.remove(registration.key)
                self._forgotten.append(registration.number)

    def close(self) -> None:
        """End every stream because the broker is stopping."""
        if not self._is_closed:
            self._is_closed = True
            self._broker.access.on_change.remove(self._check_sessions)
        for registration in self._known.values():
            session = registration.session
            if session is not None:
                self._leave(session)
                session.close(Draining("the broker is stopping (draining)"))

    # Sessions.

    def _attach_new(
        self,
        registration: ConsumerRegistration,
        topic: Topic,
        subscription: Subscription,
        peer: str,
    ) -> None:
        """Open a new session for a consumer that subscribes."""
        try:
            self._attach(registration, topic, subscription, peer)
        except ConsumerBusy as error:
            raise StatusError(
                StatusCode.PERMISSION_DENIED,
                f"Not able to subscribe to the topic {topic.name} due to Not allowed "
                f"to add the Consumer: {registration.record.consumer}, the Exclusive "
                "subscription can't be shared with other consumers",
            ) from error
        except QuotaExceeded as error:
            limit = topic.limits.max_consumers_per_subscription
            if 0 < limit <= subscription.consumer_count:
                raise StatusError(
                    StatusCode.PERMISSION_DENIED,
                    f"Not able to subscribe to the topic {topic.name} due to {error}",
                ) from error
            raise
        registration.replaced.pop(peer, None)

    async def _session_for_stream(self, number: int, peer: str) -> ConsumerSession:
        """Return the session for a consumer that opens its stream."""
        self._refuse_when_closed()
        registration = self._known.get(number)
        if registration is None:
            # After NOT_FOUND some clients would never come back.
            raise Unavailable(
                f"The consumer with the id {number} does not exist; subscribe again"
            )
        topic = _parse_topic(registration.record.topic)
        check_now(Permission.CONSUME, topic, "receive_messages")
        if peer in registration.replaced:
            raise StatusError(
                StatusCode.NOT_FOUND,
                f"The consumer with the id {number} is another one now, which "
                f"subscribed under the same name {registration.record.consumer}",
            )
        session = registration.session
        if session is None or session.has_stream:
            session = await self._attach_again(registration, peer)
        session.has_stream = True
        session.peer = peer
        session.caller = current_caller()
        return session

    def _check_sessions(self) -> None:
        """End the streams that the access policy permits no longer."""
        for registration in self._known.values():
            session = registration.session
            if session is None or session.caller is None:
                continue
            need = Need(Permission.CONSUME, Resource.topic(session.topic.name))
            try:
                session.caller.check([need], "the open stream")
            except BrokerError as error:
                self._leave(session)
                session.close(error)

    async def _store(self, registration: ConsumerRegistration) -> None:
        record = registration.record
        if record == registration.stored:
            return
        forgotten, self._forgotten = self._forgotten, []
        gone = [number for number in forgotten if self._known.get(number) is None]
        await self._broker.consumer_registry.change({registration.number: record}, gone)
        registration.stored = record

    async def _attach_again(
        self, registration: ConsumerRegistration, peer: str
    ) -> ConsumerSession:
        """Return a new session for a consumer that reopens its stream."""
        try:
            record = registration.record
            topic = await self._broker.topics.get(_parse_topic(record.topic))
            subscription = topic.find_subscription(
                SubscriptionName(record.subscription)
            )
            if subscription.type is not record.type:
                raise SubscriptionNotFound(
                    f"{subscription.name} is {subscription.type.value} now"
                )
            return self._attach(registration, topic, subscription, peer)
        except BrokerError as error:
            # The next call to Subscribe gets the exact error.
            raise Unavailable(
                f"The consumer with the id {registration.number} has lost its session: "
                f"{error}; subscribe again"
            ) from error

    def _attach(
        self,
        registration: ConsumerRegistration,
        topic: Topic,
        subscription: Subscription,
        peer: str,
    ) -> ConsumerSession:
        session = ConsumerSession(self, registration, topic, subscription, peer)
        before = registration.session
        if before is not None:
            before.successor = peer
        record = registration.record
        session.consumer = subscription.attach(
            record.consumer,
            session,
            key_filters=record.key_filters,
            on_freed=self._on_freed,
        )
        registration.session = session
        registration.last_seen = self.clock()
        session.key = session.consumer.key
        self._sessions[subscription][session.key] = session
        return session

    def _leave(self, session: ConsumerSession) -> None:
        """Detach the consumer, so that its messages are delivered again."""
        session.subscription.detach(session.consumer)
        self.on_lost(session)

    def on_lost(self, session: ConsumerSession) -> None:
        """Forget a session that has ended."""
        sessions = self._sessions.get(session.subscription)
        if sessions is not None and sessions.get(session.key) is session:
            del sessions[session.key]
            if not sessions:
                del self._sessions[session.subscription]
        registration = session.registration
        if registration.session is session:
            registration.session = None
            registration.last_seen = self.clock()

    async def _message_of(
        self, request: pb.AckRequest | pb.NackRequest, doing: str
    ) -> tuple[Subscription, int | None]:
        """
        Return the subscription and the offset of a message, or None without offset.

        Messages of non-reliable topics have no offset, because they need no ack.
        """
        if not request.HasField("msg_id"):
            raise InvalidRequest(f"Error {doing} message: it has no msg_id")
        msg_id = request.msg_id
        try:
            topic = await self._broker.topics.get(_parse_topic(msg_id.topic_name))
            subscription = topic.find_subscription(
                SubscriptionName(request.subscription_name)
            )
        except NotFound as error:
            raise type(error)(f"Error {doing} message: {error}") from error
        offset = msg_id.topic_offset
        is_known = isinstance(topic, ReliableTopic) and offset < topic.end_offset
        return subscription, offset if is_known else None

    def _gather_ack(self, subscription: Subscription, offset: int, done: Done) -> None:
        """
        Acknowledge a message at the end of this turn; *done* gets the outcome.

        All messages of one turn take one step of the subscription and one journal
        entry.
        """
        offsets, waiting = self._progress_of(subscription)
        offsets.append(offset)
        waiting.append(done)

    def _progress_of(self, subscription: Subscription) -> tuple[list[int], list[Done]]:
        """Return what the end of this turn acknowledges; then it grants credit."""
        if not self._progressed:
            self._loop.call_soon(self._end_turn)
        return self._progressed[subscription]

    def _on_freed(self, subscription: Subscription) -> None:
        """Grant credit at the end of this turn, whatever has made room."""
        if subscription in self._sessions:
            self._progress_of(subscription)

    def _end_turn(self) -> None:
        progressed, self._progressed = self._progressed, _new_progress()
        for subscription, (offsets, waiting) in progressed.items():
            if offsets:
                subscription.ack(ranges_of_offsets(offsets), 0)
                subscription.save_cursor_now(partial(_complete, waiting))
            sessions = self._sessions.get(subscription, {})
            for key in subscription.take_freed():
                if (session := sessions.get(key)) is not None:
                    session.grant(at_once=False)

    def _refuse_when_closed(self) -> None:
        if self._is_closed:
            raise Draining("the broker is stopping (draining)")


def _new_progress() -> _Progress:
    return defaultdict(lambda: ([], []))


def _complete(waiting: Iterable[Done], error: BrokerError | None) -> None:
    for done in waiting:
        done(error)


def _answer_ack(
    on_answer: OnAnswer, request_id: int, error: BrokerError | None
) -> None:
    on_answer(pb.AckResponse(request_id=request_id) if error is None else error)
