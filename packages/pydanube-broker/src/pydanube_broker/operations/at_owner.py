"""Operations at the broker that serves their topic, for clients of another one."""

from __future__ import annotations

import asyncio
from typing import Any

from google.protobuf.message import DecodeError, Message

from pydanube.model.errors import InvalidRequest, NotOwner, StagedPartNotFound
from pydanube.model.names import TopicName
from pydanube.security.principals import ANONYMOUS, Principal
from pydanube.wire.native.kinds import Kind, On
from pydanube.wire.pb import stream_pb2 as pb
from pydanube_broker.broker.broker import Broker
from pydanube_broker.broker.governance.api_keys import ApiKeys
from pydanube_broker.operations.handlers import Call, handlers
from pydanube_broker.operations.staging import part_key_of

ATTEMPTS_MAX = 3
"""How often the owner of a topic is looked up for one operation."""
RETRY_S = 0.1

AT_OWNER = frozenset(
    {
        Kind.DELETE_SUBSCRIPTION,
        Kind.DESCRIBE_SUBSCRIPTION,
        Kind.DESCRIBE_TOPIC,
        Kind.REPORT_PROGRESS,
    }
)
"""The operations that brokers ask each other for: none of them acts for its caller."""
AT_BROKER = frozenset({Kind.DROP_PART, Kind.FINISH_PART})
"""Those on parts, of which each broker has its own."""
assert all(kind.on is On.TOPIC for kind in AT_OWNER)


async def operate_at_owner(call: Call, kind: Kind, message: Any) -> Any:
    """
    Carry out an operation, for which the client has permission, where the topic is.

    Raises:
        NotOwner: No broker serves the topic at the moment.
        Unavailable: Its broker cannot be reached.
        BrokerError: As the operation.
    """
    assert kind in AT_OWNER
    for _ in range(ATTEMPTS_MAX - 1):
        try:
            return await _operate(call, kind, message)
        except NotOwner:
            if call.broker.peers is None:
                raise
            await asyncio.sleep(RETRY_S)
    return await _operate(call, kind, message)


async def operate_at_broker(
    broker: Broker, broker_id: str, kind: Kind, message: Any
) -> Any:
    """
    Carry out an operation on a part, for which the client has permission, at a broker.

    FINISH_PART completes the part, whatever counts *message* names.

    Raises:
        StagedPartNotFound: The broker has left the cluster; and as the operation.
        Unavailable: It cannot be reached.
    """
    assert kind in AT_BROKER
    if broker_id == broker.broker_id:
        return await _operate_on_part(broker, kind, message)
    others = () if broker.shards is None else broker.shards.owners.others()
    peer = next((each for each in others if each.broker_id == broker_id), None)
    if peer is None or broker.peers is None:
        raise StagedPartNotFound(
            f"the broker {broker_id} with the part {message.part} is not in the "
            "cluster any more; stage it again"
        )
    return await broker.peers.operate(peer, kind, message)


async def _operate_on_part(
    broker: Broker, kind: Kind, message: Any
) -> pb.PartFinished | None:
    key = part_key_of(message)
    if kind is Kind.FINISH_PART:
        await broker.staging.complete_part(key)
        return pb.PartFinished()
    await broker.staging.drop_part(key)
    return None


async def operate_for_peer(broker: Broker, kind: int, data: bytes) -> Message | None:
    """
    Carry out an operation for another broker, which has authorized its client.

    Raises:
        InvalidRequest: Brokers do not ask each other for it, or *data* is damaged.
        BrokerError: As the operation.
    """
    if kind not in AT_OWNER | AT_BROKER:
        raise InvalidRequest(f"brokers do not ask each other for the operation {kind}")
    known = Kind(kind)
    assert known.body is not None
    try:
        message = known.body.FromString(data)
    except DecodeError as error:
        raise InvalidRequest(f"the message of {known.name} is damaged") from error
    if known in AT_BROKER:
        return await _operate_on_part(broker, known, message)
    call = Call(broker, ANONYMOUS, _NoKeys())
    return await handlers()[known](call, message)


class _NoKeys:
    """The API keys that an operation on a topic manages: none."""

    def managed_api_keys(self, principal: Principal) -> ApiKeys:
        """See KeyManagement."""
        raise InvalidRequest(f"{principal.name} manages no API keys here")


async def _operate(call: Call, kind: Kind, message: Any) -> Any:
    owner, peers, topics = None, call.broker.peers, call.broker.topics
    name = TopicName.parse(message.topic)
    if peers is not None and topics.find_open(name) is None:
        owner = await topics.find_owner(name)
    if owner is None or peers is None:
        return await handlers()[kind](call, message)
    return await peers.operate(owner, kind, message)
