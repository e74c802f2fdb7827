"""Operations on the brokers of a cluster."""

from __future__ import annotations

from dataclasses import replace

from pydanube.model.clusters import BrokerMode, ShardMoves
from pydanube.model.errors import InvalidRequest
from pydanube.model.names import TopicName
from pydanube.wire.native.messages import to_wire
from pydanube.wire.pb import stream_pb2 as pb
from pydanube_broker.operations.handlers import Call, operation

MODE_REASON_LENGTH_MAX = 1000
MOVED_TOPICS_MAX = 5
"""How many topics of each shard are named in a plan."""


@operation
async def describe_cluster(call: Call, m: pb.DescribeCluster) -> pb.ClusterDescription:
    """Return the brokers of the cluster and their shards."""
    found = await call.broker.describe_cluster(counts_topics=m.counts_topics)
    return to_wire(pb.ClusterDescription, found)


@operation
async def set_broker_mode(call: Call, m: pb.SetBrokerMode) -> None:
    """Set the mode of a broker: active, cordoned or draining."""
    if len(m.reason) > MODE_REASON_LENGTH_MAX:
        raise InvalidRequest(
            f"the reason for the mode of a broker has {len(m.reason)} characters; at "
            f"most {MODE_REASON_LENGTH_MAX} are allowed"
        )
    await call.broker.set_broker_mode(m.broker_id, BrokerMode.parse(m.mode), m.reason)


@operation
async def move_topic(call: Call, m: pb.MoveTopic) -> pb.ShardMoves:
    """Move the shard of a topic to another broker."""
    move = await call.broker.move_topic(TopicName.parse(m.topic), m.broker_id or None)
    return to_wire(pb.ShardMoves, ShardMoves(moves=(move,)))


@operation
async def forget_broker(call: Call, m: pb.ForgetBroker) -> pb.ShardMoves:
    """Remove a broker that is gone from the cluster."""
    shards = await call.broker.forget_broker(m.broker_id, accept_loss=m.accept_loss)
    return to_wire(pb.ShardMoves, shards)


@operation
async def rebalance(call: Call, m: pb.Rebalance) -> pb.ShardMoves:
    """Move shards to less loaded brokers, or plan to."""
    moves = (await call.broker.rebalance(dry_run=m.dry_run)).moves
    # The answer must fit into a frame, so only some of the topics are named.
    named = [replace(each, topics=each.topics[:MOVED_TOPICS_MAX]) for each in moves]
    return to_wire(pb.ShardMoves, ShardMoves(moves=tuple(named)))
