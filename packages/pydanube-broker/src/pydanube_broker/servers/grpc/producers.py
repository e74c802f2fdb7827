"""The service ``danube.ProducerService``: create producers, send messages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import field
from functools import partial

from pydanube.aio.futures import complete_future
from pydanube.model.errors import (
    BrokerError,
    InvalidRequest,
    NamespaceNotFound,
    ProducerBusy,
    SchemaNotFound,
    TopicNotFound,
    Unavailable,
)
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.names import TopicName, parse_client_name
from pydanube.model.policy import DispatchMode, ProducerAccess, TopicPolicy
from pydanube.model.schemas import SchemaReference
from pydanube.wire.pb import danube_api_pb2 as pb
from pydanube_broker.broker.broker import Broker
from pydanube_broker.broker.publishing.message_batcher import SingleMessage
from pydanube_broker.broker.publishing.topic import Topic
from pydanube_broker.broker.pure.producer_registrations import ProducerRegistration
from pydanube_broker.broker.pure.producer_session import OnPublished
from pydanube_broker.operations.authorization import check_may_create
from pydanube_broker.servers.connections.errors import grpc_status_of_publish
from pydanube_broker.servers.grpc.pure.id_registry import IdRegistry
from pydanube_broker.servers.grpc.services import OnAnswer, StatusError, refusing
from pydanube_broker.wire.grpc.danube_api import (
    key_from_wire,
    member_of,
    publish_time_from_wire,
)
from pydanube_broker.wire.grpc.danube_schema_api import reference_from_wire
from pydanube_broker.wire.grpc.status import StatusCode

GONE_AFTER_S = 30.0
"""A producer is detached if it neither sends nor checks its health for this time.  It
then does not count for limits and access modes.  Clients check every 5 s."""

FORGOTTEN_AFTER_S = 3600.0
"""A detached producer may send again within this time.  After that it must be created
again, which clients do by themselves."""

PRODUCERS_MAX = 100_000
"""Beyond this number, the producers that were silent longest are forgotten early."""


@dataclass(slots=True, eq=False)
class Producer:
    """A producer that was created through this server."""

    topic: Topic
    name: str
    access: ProducerAccess
    last_seen: float
    key: tuple[str, str] = field(init=False)
    number: int = 0
    registration: ProducerRegistration | None = None
    """Its right to publish; None while it is detached."""
    schema: SchemaReference | None = None
    """The schema version with which it writes."""

    def __post_init__(self) -> None:
        self.key = (str(self.topic.name), self.name)


class Producers:
    """The service and its producers."""

    def __init__(
        self,
        broker: Broker,
        clock: Callable[[], float],
        wall_clock_us: Callable[[], int],
    ) -> None:
        self._broker = broker
        self._batcher = broker.batcher
        self._clock = clock
        self._wall_clock_us = wall_clock_us
        self._loop = asyncio.get_running_loop()
        self._known: IdRegistry[Producer] = IdRegistry("producer")

    # The service.

    async def create_producer(self, request: pb.ProducerRequest) -> pb.ProducerResponse:
        """Create a producer, or attach the existing one of this name again."""
        name = TopicName.parse(request.topic_name)
        producer_name = parse_client_name("producer", request.producer_name)
        policy = TopicPolicy(
            dispatch=member_of(
                DispatchMode,
                pb.DispatchStrategy,
                request.dispatch_strategy,
                "Unknown dispatch strategy:",
            )
        )
        access = member_of(
            ProducerAccess,
            pb.ProducerAccessMode,
            request.producer_access_mode,
            "Unknown producer access mode:",
        )
        schema = reference_from_wire(request)
        await check_may_create(self._broker, name)
        await self._refuse_other_dispatch(name, policy)
        with (
            refusing(SchemaNotFound, status=StatusCode.FAILED_PRECONDITION),
            refusing(NamespaceNotFound, status=StatusCode.UNAVAILABLE),
            refusing(
                ProducerBusy,
                status=StatusCode.PERMISSION_DENIED,
                prefix="Not able to create the Producer: ",
            ),
        ):
            topic, registration = await self._broker.producers.attach(
                name, producer_name, policy=policy, access=access, schema=schema
            )
        producer = self._known.find((str(name), producer_name))
        if producer is None:
            producer = Producer(topic, producer_name, access, self._clock())
            producer.number = self._known.add(producer.key, producer)
        elif (
            producer.registration is not registration
            and producer.registration is not None
        ):
            producer.topic.registrations.leave(producer.registration)
        producer.topic, producer.access = topic, access
        producer.registration, producer.schema = registration, schema
        producer.last_seen = self._clock()
        return pb.ProducerResponse(
            request_id=request.request_id,
            producer_id=producer.number,
            producer_name=producer_name,
        )

    async def send_message(self, request: pb.StreamMessage) -> pb.MessageResponse:
        """
        Publish one message.

        Durability: On return the message of a reliable topic is on disk.

        Cancellation: The message may or may not be stored.
        """
        producer = self._producer_of(request)
        try:
            await self._publish(producer, request)
        except BrokerError as error:
            raise _refusal(error) from error
        return pb.MessageResponse(request_id=request.request_id)

    def send_message_nowait(
        self, request: pb.StreamMessage, on_answer: OnAnswer
    ) -> bool:
        """Publish one message if that is possible without waiting."""
        producer = self._producer_of(request)
        now = self._clock()
        registration, topic = producer.registration, producer.topic
        if (
            registration is None
            or not self._broker.topics.has_room
            or topic.publish_delay_s(now) > 0
        ):
            return False
        producer.last_seen = now
        try:
            registration.check()
            published = partial(_answer, on_answer, request.request_id)
            self._gather(producer, registration, request, published)
        except BrokerError as error:
            raise _refusal(error) from error
        return True

    # The interface for other services.

    def is_healthy(self, number: int) -> bool:
        """Return whether a producer may send, and record that it is alive."""
        producer = self._known.get(number)
        if producer is None:
            return False
        producer.last_seen = self._clock()
        return producer.registration is None or producer.registration.is_valid

    def sweep(self) -> None:
        """Detach silent producers, and forget those that were silent for long."""
        now = self._clock()
        known = self._known.values()
        for producer in known:
            if now - producer.last_seen >= GONE_AFTER_S:
                self._detach(producer)
        silent = [each for each in known if each.registration is None]
        excess = len(known) - PRODUCERS_MAX
        silent.sort(key=lambda producer: producer.last_seen)
        for at, producer in enumerate(silent):
            if at < excess or now - producer.last_seen >= FORGOTTEN_AFTER_S:
                self._known.remove(producer.key)

    def close(self) -> None:
        """Detach all producers."""
        for producer in self._known.values():
            self._detach(producer)

    # Publishing.

    async def _refuse_other_dispatch(
        self, name: TopicName, policy: TopicPolicy
    ) -> None:
        try:
            topic = await self._broker.topics.get(name)
        except TopicNotFound:
            return
        if topic.policy.dispatch is not policy.dispatch:
            raise StatusError(
                StatusCode.FAILED_PRECONDITION,
                "Producer requested dispatch strategy does not match topic strategy: "
                f"{name} is {topic.policy.dispatch.value}",
            )

    async def _publish(self, producer: Producer, request: pb.StreamMessage) -> None:
        now = self._clock()
        producer.last_seen = now
        if producer.registration is None:
            # It was detached because it was silent, which clients do not notice.
            producer.registration = await self._attach_again(producer)
        else:
            producer.registration.check()
        topic = producer.topic
        while (delay_s := topic.publish_delay_s(now)) > 0:
            await asyncio.sleep(delay_s)
            now = self._clock()
        if not self._broker.topics.has_room:
            await self._broker.topics.wait_for_room()
        done: asyncio.Future[None] = self._loop.create_future()

        def published(_: object, error: BrokerError | None) -> None:
            complete_future(done, error)

        self._gather(producer, producer.registration, request, published)
        await done

    def _producer_of(self, request: pb.StreamMessage) -> Producer:
        """Return the producer that sends *request*."""
        msg_id = request.msg_id
        producer = self._known.get(msg_id.producer_id)
        if producer is None:
            if not request.HasField("msg_id"):
                raise InvalidRequest("Unable to publish the message: it has no msg_id")
            # Clients then create the producer again.
            raise Unavailable(
                f"The producer with id {msg_id.producer_id} does not exist"
            )
        if msg_id.topic_name != producer.key[0]:
            raise InvalidRequest(
                f"Unable to publish the message: the producer {producer.name} belongs "
                f"to {producer.key[0]}, not to {msg_id.topic_name}"
            )
        return producer

    def _gather(
        self,
        producer: Producer,
        registration: ProducerRegistration,
        request: pb.StreamMessage,
        published: OnPublished,
    ) -> None:
        """Publish the message in a batch; *published* is called with the result."""
        topic, schema_id = producer.topic, request.schema_id
        chosen = registration.schema
        if chosen is not None and topic.schema_validation is not None:
            topic.schema_validation.check_producer_schema(
                chosen, schema_id, request.schema_version
            )
        self._batcher.publish(
            topic,
            SingleMessage(
                producer.name,
                request.payload,
                publish_time_from_wire(request, self._wall_clock_us()),
                key_from_wire(request),
                request.attributes or None,
                schema_id,
                request.schema_version if schema_id else 0,
            ),
            published,
        )

    async def _attach_again(self, producer: Producer) -> ProducerRegistration:
        topic, registration = await self._broker.producers.attach(
            producer.topic.name,
            producer.name,
            policy=None,
            takes_any_kind=True,
            access=producer.access,
            schema=producer.schema,
        )
        producer.topic = topic
        return registration

    def _detach(self, producer: Producer) -> None:
        if producer.registration is not None:
            producer.topic.registrations.leave(producer.registration)
            producer.registration = None


def _refusal(error: BrokerError) -> StatusError:
    """Return the error for a message that was not published."""
    return StatusError(
        grpc_status_of_publish(error), f"Unable to publish the message: {error}"
    )


def _answer(
    on_answer: OnAnswer, request_id: int, _: object, error: BrokerError | None
) -> None:
    on_answer(
        pb.MessageResponse(request_id=request_id) if error is None else _refusal(error)
    )
