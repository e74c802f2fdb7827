"""Operations on the connections of clients."""

from __future__ import annotations

from pydanube.aio.long_work import LongWork
from pydanube.model.connections import CONNECTIONS_MAX
from pydanube.model.errors import InvalidRequest
from pydanube.model.names import TopicName
from pydanube.model.shown_text import printable
from pydanube.security.resources import Resource
from pydanube.wire.native.messages import to_wire
from pydanube.wire.pb import stream_pb2 as pb
from pydanube_broker.operations.authorization import may_see
from pydanube_broker.operations.handlers import Call, operation

REASON_LENGTH_MAX = 200


@operation
async def list_connections(call: Call, m: pb.ListConnections) -> pb.Connections:
    """Return the clients that are connected to this broker, the oldest first."""
    limit = min(m.limit or CONNECTIONS_MAX, CONNECTIONS_MAX)
    found = call.broker.connections.page(m.after, limit + 1)
    answer = pb.Connections(
        broker_id=call.broker.broker_id,
        has_more=len(found) > limit,
        connection_count=len(call.broker.connections),
    )

    def may_see_topic(name: TopicName) -> bool:
        return may_see(Resource.topic(name))

    work = LongWork()
    for number, connection in found[:limit]:
        facts = connection.facts(may_see_topic)
        described = to_wire(pb.ConnectionDescription, facts, connection_id=number)
        answer.connections.append(described)
        await work.did(1 + facts.member_count)
    return answer


@operation
async def close_connection(call: Call, m: pb.CloseConnection) -> None:
    """Close the connection of a client, which may connect again."""
    if len(m.reason) > REASON_LENGTH_MAX:
        raise InvalidRequest(
            f"the reason has {len(m.reason)} characters; at most {REASON_LENGTH_MAX} "
            "are allowed"
        )
    reason = printable(m.reason) or "an administrator has closed the connection"
    call.broker.connections.close(m.connection_id, reason)
