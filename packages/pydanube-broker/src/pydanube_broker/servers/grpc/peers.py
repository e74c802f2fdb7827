"""
Calls between the brokers of a cluster, over gRPC.

A broker that publishes messages itself asks the owner of their topic to store them.
Listeners whose clients cannot be redirected ask it to carry out operations for which
they have authorized the client.  No credentials of a client go with them: the caller
shows the key that the owner has put into the record of its session.  Only those that
read the metadata of the cluster know that.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterator, Sequence
from typing import Any

from google.protobuf.message import Message

from pydanube.model.errors import (
    BrokerError,
    ConnectionLost,
    CorruptBatch,
    InvalidRequest,
    TimedOut,
    Unauthenticated,
    error_of,
)
from pydanube.model.names import TopicName
from pydanube.wire.batches import decode
from pydanube.wire.files.journal_format import INTERNAL_PREFIX
from pydanube.wire.native.kinds import Kind
from pydanube.wire.pb import peers_pb2 as pb
from pydanube_broker.broker.broker import Broker
from pydanube_broker.broker.delivery.internal_batches import InternalBatch, Source
from pydanube_broker.cluster.overview import PEER_GRPC
from pydanube_broker.metadata.cluster_records import SessionRecord
from pydanube_broker.operations.at_owner import operate_for_peer
from pydanube_broker.servers.connections.errors import as_broker_error
from pydanube_broker.servers.grpc.peer_channels import PeerChannels, Unreachable
from pydanube_broker.servers.grpc.services import Service

TIMEOUT_S = 10.0
"""How long a broker waits for the answer of another one."""
REQUEST_BYTES = 8 * 1024 * 1024
"""The size of a request, unless one batch is larger."""
_SERVICE = pb.DESCRIPTOR.services_by_name["Peers"]
_APPEND = f"/{_SERVICE.full_name}/Append"
_OPERATE = f"/{_SERVICE.full_name}/Operate"


class PeerService:
    """The service ``pydanube.peers.Peers``, for other brokers of the cluster."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def append(self, request: pb.AppendRequest) -> pb.AppendAnswer:
        """Store messages that the calling broker publishes."""
        try:
            await self._append(request)
        except Exception as error:  # noqa: BLE001  # The caller gets every error.
            failure = as_broker_error(error, "a request of another broker")
            return pb.AppendAnswer(error_code=failure.code, message=str(failure))
        return pb.AppendAnswer()

    async def operate(self, request: pb.OperateRequest) -> pb.OperateAnswer:
        """Carry out an operation that the calling broker has authorized."""
        try:
            answer = await self._operate(request)
        except Exception as error:  # noqa: BLE001  # The caller gets every error.
            failure = as_broker_error(error, "a request of another broker")
            return pb.OperateAnswer(error_code=failure.code, error=str(failure))
        message = b"" if answer is None else answer.SerializeToString()
        return pb.OperateAnswer(message=message)

    async def _operate(self, request: pb.OperateRequest) -> Message | None:
        return await operate_for_peer(
            self._broker, request.kind, bytes(request.message)
        )

    async def _append(self, request: pb.AppendRequest) -> None:
        if not request.producer.startswith(INTERNAL_PREFIX):
            raise InvalidRequest(
                f"the producer {request.producer!r} does not begin with "
                f"{INTERNAL_PREFIX}"
            )
        source = Source(
            producer=request.producer,
            generation=request.generation,
            epoch=request.epoch,
            settled=request.settled,
        )
        batches = [_batch_of(each) for each in request.batches]
        topic = TopicName.parse(request.topic)
        await self._broker.internal.append(topic, source, batches)


def _batch_of(given: pb.InternalBatch) -> InternalBatch:
    try:
        frame = decode(bytearray(given.frame))
        frame.verify()
    except CorruptBatch as error:
        raise InvalidRequest(f"a batch of another broker is damaged: {error}") from None
    if len(given.positions) != frame.count:
        raise InvalidRequest(
            f"{len(given.positions)} positions were given for {frame.count} messages"
        )
    return InternalBatch(list(given.positions), frame)


def peer_service(broker: Broker, peer_key: str) -> Service:
    """Return the service for other brokers, which show *peer_key*."""

    def check_caller(credential: str) -> None:
        # As bytes: only texts of ASCII can be compared, and callers send any.
        is_key = hmac.compare_digest(credential.encode(), peer_key.encode())
        if not (peer_key and is_key):
            raise Unauthenticated(
                "only brokers of this cluster may call this: the credential is not the "
                "key of this broker's present session"
            )

    return Service(_SERVICE, PeerService(broker), check_caller=check_caller)


class PeerCalls:
    """Asks other brokers; implements ``broker.internal_publishing.Peers``."""

    def __init__(self, channels: PeerChannels) -> None:
        self._channels = channels

    async def append(
        self,
        peer: SessionRecord,
        topic: TopicName,
        source: Source,
        batches: Sequence[InternalBatch],
    ) -> None:
        """
        Let *peer* store messages in a topic that it serves.

        Raises:
            ConnectionLost, TimedOut: It did not answer; it may have stored them.
            BrokerError: It has refused them.
        """
        for request in _requests(topic, source, batches):
            data = await self._ask(peer, _APPEND, request, f"serves {topic}")
            answer = pb.AppendAnswer.FromString(data)
            if answer.error_code:
                raise error_of(answer.error_code, answer.message)

    async def operate(self, peer: SessionRecord, kind: Kind, message: Any) -> Any:
        """
        Let *peer* carry out an operation on a topic that it serves, or on its part.

        Raises:
            ConnectionLost, TimedOut: It did not answer; it may have carried it out.
            BrokerError: It has refused.
        """
        request = pb.OperateRequest(kind=kind, message=message.SerializeToString())
        data = await self._ask(peer, _OPERATE, request, _subject_of(message))
        answer = pb.OperateAnswer.FromString(data)
        if answer.error_code:
            raise error_of(answer.error_code, answer.error)
        return kind.answer_body.FromString(answer.message) if kind.answer_body else None

    async def _ask(
        self, peer: SessionRecord, method: str, request: Message, does: str
    ) -> bytes:
        import grpc.aio  # noqa: PLC0415  # Only brokers of a cluster need it.

        url = peer.addresses.get(PEER_GRPC)
        if url is None:
            raise ConnectionLost(
                f"the broker {peer.broker_id}, which {does}, has no gRPC "
                "listener for other brokers: set listen.grpc_port"
            )
        try:
            channel: Any = await self._channels.to(url)
            data: bytes = await channel.unary_unary(method)(
                request.SerializeToString(),
                metadata=[("authorization", f"Bearer {peer.peer_key}")],
                timeout=TIMEOUT_S,
            )
        except (Unreachable, grpc.aio.AioRpcError) as error:
            raise _failure(peer, does, error) from error
        return data


def _requests(
    topic: TopicName, source: Source, batches: Sequence[InternalBatch]
) -> Iterator[pb.AppendRequest]:
    """Yield requests with about ``REQUEST_BYTES`` of *batches* each."""
    byte_count = 0
    request = _request(topic, source)
    for each in batches:
        if byte_count and byte_count + each.frame.byte_count > REQUEST_BYTES:
            yield request
            request, byte_count = _request(topic, source), 0
        request.batches.add(positions=each.positions, frame=bytes(each.frame.buffer))
        byte_count += each.frame.byte_count
    yield request


def _subject_of(message: Any) -> str:
    if "topic" in message.DESCRIPTOR.fields_by_name:
        return f"serves {message.topic}"
    return f"has the part {message.part}"


def _request(topic: TopicName, source: Source) -> pb.AppendRequest:
    return pb.AppendRequest(
        topic=str(topic),
        producer=source.producer,
        generation=source.generation,
        epoch=source.epoch,
        settled=source.settled,
    )


def _failure(peer: SessionRecord, does: str, error: Exception) -> BrokerError:
    """Return the error for a call that the other broker has not answered."""
    import grpc  # noqa: PLC0415  # As above.

    reason, is_late = str(error), False
    if isinstance(error, grpc.aio.AioRpcError):
        reason = error.details() or error.code().name
        is_late = error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    text = f"the broker {peer.broker_id}, which {does}, did not answer: {reason}"
    return TimedOut(text) if is_late else ConnectionLost(text)
