"""
Calls that another broker of the cluster answers.

Clients of Danube look up the broker that serves a topic, and connect to it.  Two kinds
of calls reach another broker nevertheless, which then makes the call at the owner and
passes the answer on:

- Tools for administrators look nothing up.  Their calls are forwarded if this broker
  refuses them with ``NotOwner``.
- Clients whose lookup said that there is a proxy (``listen.connect_url``) make all
  calls at its address, and name the broker that they mean in a header.  If the address
  is that of all brokers, any of them may get the call.

A forwarded call carries the credentials of the caller, so the owner checks them again.
A caller that is known by its certificate has none to pass on, and is refused.  Brokers
with TLS make these calls with their own certificates, which prove nothing about the
caller: the owner ignores them when it decides who calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Protocol

from pydanube.model.errors import NotOwner, TopicNotFound
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.names import TopicName
from pydanube.wire.pb import danube_api_pb2 as pb
from pydanube_broker.cluster.overview import GRPC
from pydanube_broker.servers.grpc.peer_channels import PeerChannels, Unreachable
from pydanube_broker.servers.grpc.services import Method, StatusError
from pydanube_broker.wire.grpc.connection import FORWARDED, CallStarted
from pydanube_broker.wire.grpc.status import StatusCode

OWNER_WAIT_S = 20.0
"""How long a client that opens a producer or subscribes waits for an owner that can be
reached.  The published clients give up after about 3 seconds of refusals."""
OWNER_INTERVAL_S = 0.2
"""The interval at which the owner is looked up while a client waits for it."""
_WAITING = {"CreateProducer", "Subscribe"}
"""Methods that wait for an owner.  They may be repeated without an effect."""
SUBSCRIBED_MAX = 10_000
"""The most consumers of which the broker remembers where they have subscribed."""
_LOOKED_UP = {"danube.ProducerService", "danube.ConsumerService"}
"""Services whose clients look up the owner when they get ``NotOwner``."""


class AnswerWriter(Protocol):
    """The caller of a method with a streamed answer."""

    async def send_initial_metadata(self) -> None:
        """Tell the client that its call was accepted."""

    async def write_bytes(self, message: bytes) -> None:
        """Send one message of the answer."""


@dataclass(frozen=True, slots=True)
class Owners:
    """Where the topics of the cluster are served."""

    find: Callable[[TopicName], Awaitable[Mapping[str, str]]]
    """Returns the addresses of another broker that serves a topic; none if this one."""
    addresses: Callable[[], Iterable[Mapping[str, str]]]
    """Returns the addresses of all other brokers that serve topics."""


class Forwarding:
    """The forwarded calls of one gRPC server."""

    def __init__(
        self,
        owners: Owners,
        *,
        listener: str,
        channels: PeerChannels,
        proof: str = "1",
    ) -> None:
        """
        *listener* is the name of the owner's listener among its addresses.

        *proof* shows other processes of the broker that calls are charged; see
        ``SharedCounts``.
        """
        self._proof = proof
        self._owners = owners
        self._listener = listener
        self._channels = channels
        # The addresses of other brokers by the URL that clients know.
        self._by_url: dict[str, str] = {}
        # Where consumers have subscribed, by their id; empty for this broker.
        self._subscribed: dict[int, str] = {}

    async def answer(
        self,
        method: Method,
        started: CallStarted,
        request: Any,
        context: AnswerWriter,
        here: Callable[[], Awaitable[Any]],
    ) -> Any:
        """
        Return the answer of the broker that *request* is for; *here* is this broker.

        The answer of another broker are bytes, or None for a stream.
        """
        if started.is_forwarded:
            return await here()
        if started.broker_url:
            return await self._answer_as_proxy(method, started, request, context, here)
        try:
            return await here()
        except NotOwner:
            if method.service.name in _LOOKED_UP or not _names_topic(method):
                raise
            target = await self._find(method, request)
            if not target:
                # It has moved to this broker.
                return await here()
        return await self._call(target, method, started, request, context)

    async def _answer_as_proxy(
        self,
        method: Method,
        started: CallStarted,
        request: Any,
        context: AnswerWriter,
        here: Callable[[], Awaitable[Any]],
    ) -> Any:
        if not _names_topic(method):
            target = self._subscribed.get(_consumer_of(request))
            if target is None:
                target = self._target_of(started.broker_url)
            if not target:
                return await here()
            try:
                return await self._call(target, method, started, request, context)
            except Unreachable:
                if method.streams_answers:
                    raise
                # This broker does not know the client, and tells it to begin again.
                return await here()
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + OWNER_WAIT_S
        while True:
            try:
                target = await self._find(method, request)
                answer = await (
                    self._call(target, method, started, request, context)
                    if target
                    else here()
                )
            except TopicNotFound:
                # Any broker may create it; then it may have another owner.
                with suppress(NotOwner):
                    return await here()
            except (NotOwner, Unreachable):
                name = method.path.rpartition("/")[2]
                if name not in _WAITING or loop.time() > give_up_at:
                    raise
            else:
                if method.path.endswith("/Subscribe"):
                    self._note_subscribed(answer, target)
                return answer
            await asyncio.sleep(OWNER_INTERVAL_S)

    def _note_subscribed(self, answer: Any, target: str) -> None:
        """
        Note at which broker a consumer has subscribed, which *answer* is about.

        The consumer's next stream goes there.  Its header may name a former owner,
        because clients subscribe again without another lookup.
        """
        if isinstance(answer, bytes):
            answer = pb.ConsumerResponse.FromString(answer)
        number = answer.consumer_id
        self._subscribed.pop(number, None)
        self._subscribed[number] = target
        if len(self._subscribed) > SUBSCRIBED_MAX:
            del self._subscribed[next(iter(self._subscribed))]

    async def _find(self, method: Method, request: Any) -> str:
        """Return the owner's URL for brokers; empty if this one is the owner."""
        assert method.rule is not None
        topic = TopicName.parse(method.rule.topic_of(request))
        addresses = await self._owners.find(topic)
        if addresses and self._listener not in addresses:
            raise NotOwner(
                f"another broker of the cluster serves {topic}, and it does not accept "
                "calls of other brokers: its version is older"
            )
        return addresses.get(self._listener, "")

    def _target_of(self, broker_url: str) -> str:
        """Return the URL for brokers of the one that clients know as *broker_url*."""
        # Some clients add a slash.
        url = broker_url.rstrip("/")
        if url not in self._by_url:
            self._by_url = {
                each[GRPC].rstrip("/"): each[self._listener]
                for each in self._owners.addresses()
                if GRPC in each and self._listener in each
            }
        return self._by_url.get(url, "")

    async def _call(
        self,
        target: str,
        method: Method,
        started: CallStarted,
        request: Any,
        context: AnswerWriter,
    ) -> bytes | None:
        import grpc.aio  # noqa: PLC0415  # Only brokers of a cluster need it.

        channel = await self._channels.to(target)
        metadata = [
            *(
                (name.decode(), value.decode("latin-1"))
                for name, value in started.credentials
            ),
            (FORWARDED.decode(), self._proof),
        ]
        data = request.SerializeToString()
        try:
            if not method.streams_answers:
                answer: bytes = await channel.unary_unary(method.path)(
                    data, metadata=metadata
                )
                return answer
            call: Any = channel.unary_stream(method.path)(data, metadata=metadata)
            try:
                await call.initial_metadata()
                await context.send_initial_metadata()
                async for message in call:
                    await context.write_bytes(message)
            finally:
                call.cancel()
        except grpc.aio.AioRpcError as error:
            status = StatusCode(error.code().value[0])
            is_connected = channel.get_state() is grpc.ChannelConnectivity.READY
            if status is StatusCode.UNAVAILABLE and not is_connected:
                raise Unreachable(
                    status,
                    f"the broker at {target}, which serves the topic, cannot be "
                    f"reached: {error.details()}",
                ) from error
            raise StatusError(status, error.details() or "") from error
        return None


def _consumer_of(request: Any) -> int:
    """Return the id of the consumer that *request* is of; 0 for other requests."""
    if isinstance(request, pb.ReceiveRequest):
        return request.consumer_id
    is_health = isinstance(request, pb.HealthCheckRequest)
    is_consumer = is_health and request.client == pb.HealthCheckRequest.Consumer
    return int(request.id) if is_consumer else 0


def _names_topic(method: Method) -> bool:
    return method.rule is not None and "topic" in method.rule.fields
