"""The operations of a client on brokers, also of a cluster."""

from __future__ import annotations

from typing import Any

from google.protobuf.message import Message

from pydanube.aio.tasks import gather
from pydanube.client.connections.requester import Requester
from pydanube.client.connections.urls import http_url_of
from pydanube.model.activity_history import (
    POINTS_MAX,
    SHORT_STEP_S,
    ActivityHistory,
    added_up,
)
from pydanube.model.arguments import checks_arguments
from pydanube.model.clusters import (
    BrokerMode,
    ClusterBroker,
    ClusterDescription,
    ShardMove,
    ShardMoves,
)
from pydanube.model.connections import (
    CONNECTIONS_MAX,
    ConnectionDescription,
    Connections,
)
from pydanube.model.descriptions import BrokerDescription
from pydanube.model.errors import InvalidRequest, PermissionDenied
from pydanube.model.findings import FINDINGS_MAX, Findings, merged
from pydanube.wire.native.messages import from_wire
from pydanube.wire.pb import stream_pb2 as pb


@checks_arguments
class Cluster:
    """
    The brokers that this client can reach; ``Client.cluster``.

    A broker that is not part of a cluster is the only one.
    """

    def __init__(self, requester: Requester) -> None:
        self._requester = requester

    async def describe_broker(self) -> BrokerDescription:
        """Describe the broker that this client is connected to."""
        connection = await self._requester.connection()
        welcome, url = connection.welcome, connection.url
        port = welcome.http_port
        return BrokerDescription(
            broker_id=welcome.broker_id,
            version=welcome.broker,
            url=url,
            http_url=http_url_of(url, port) if port else "",
        )

    async def describe(self, *, counts_topics: bool = False) -> ClusterDescription:
        """
        Return the brokers of the cluster, and how many shards each of them serves.

        A broker that is not part of a cluster returns no brokers.

        Args:
            counts_topics: Also count the topics of each broker, which reads the names
                of all topics.
        """
        answer = await self._requester.send_request(
            pb.DescribeCluster(counts_topics=counts_topics)
        )
        return from_wire(ClusterDescription, answer)

    async def list_findings(self, limit: int = FINDINGS_MAX) -> Findings:
        """
        Return what is wrong with subscriptions, found by the brokers, and totals.

        They are about the topics that the client may describe.  In a cluster, all
        brokers are asked; a client that may not describe the cluster asks one.

        Args:
            limit: How many findings are returned at most; 1 to 1,000.

        Raises:
            ConnectionLost: A broker does not answer.
        """
        if not 1 <= limit <= FINDINGS_MAX:
            raise InvalidRequest(f"limit is {limit}: it must be 1 to {FINDINGS_MAX}")
        answers = await self._ask_all(pb.ListFindings(limit=limit))
        return merged([from_wire(Findings, each) for each in answers], limit)

    async def describe_activity(
        self,
        topic: str | None = None,
        subscription: str | None = None,
        *,
        step_s: int = SHORT_STEP_S,
    ) -> ActivityHistory:
        """
        Return the rates and the lag of the last hours, as the brokers remember them.

        A broker remembers them until it stops.  In a cluster, all brokers are asked; a
        client that may not describe the cluster asks one.

        Args:
            topic: A topic, or the base name of a partitioned one; by default all
                topics together.
            subscription: A subscription of the topic.
            step_s: 10 for a point each ten seconds of the last hour, 300 for one each
                five minutes of the last 48 hours.

        Raises:
            InvalidRequest: *step_s* is another number, or *subscription* has no topic.
            ConnectionLost: A broker does not answer.
        """
        if step_s not in POINTS_MAX:
            allowed = " or ".join(map(str, POINTS_MAX))
            raise InvalidRequest(f"step_s is {step_s}: it must be {allowed}")
        if topic is None and subscription is not None:
            raise InvalidRequest(f"subscription is {subscription!r}: name its topic")
        request: Message = pb.DescribeActivity(step_s=step_s)
        if topic is not None:
            request = pb.DescribeTopicActivity(
                topic=topic, subscription=subscription or "", step_s=step_s
            )
        answers = await self._ask_all(request)
        return added_up([from_wire(ActivityHistory, each) for each in answers], step_s)

    async def _ask_all(self, request: Message) -> list[Any]:
        """Return the answers of all brokers that the client may know."""
        try:
            brokers = await self.running_brokers()
        except PermissionDenied:
            brokers = []
        if not brokers:
            return [await self._requester.send_request(request)]
        return await gather(
            self._requester.request_of(each.url, request) for each in brokers
        )

    async def running_brokers(self) -> list[ClusterBroker]:
        """Return the brokers that run, by name; none outside of a cluster."""
        if not (await self._requester.connection()).welcome.is_clustered:
            return []
        brokers = (await self.describe()).brokers
        return [each for each in brokers if each.url]

    async def drain_broker(self, broker_id: str, *, reason: str = "") -> None:
        """
        Move all topics of a broker to other brokers, and give it no more.

        The call does not wait for the moves: the broker's mode is ``DRAINING`` until
        ``describe`` shows ``DRAINED``.  The broker stays drained when it
        restarts.

        Args:
            broker_id: Its name in ``describe``.
            reason: Why, for other people.

        Raises:
            InvalidRequest: There is no such broker, or no other active one.
        """
        await self._set_mode(broker_id, BrokerMode.DRAINING, reason)

    async def activate_broker(self, broker_id: str, *, reason: str = "") -> None:
        """
        Let a drained broker serve topics again.

        Args:
            broker_id: Its name in ``describe``.
            reason: Why, for other people.

        Raises:
            InvalidRequest: There is no such broker.
        """
        await self._set_mode(broker_id, BrokerMode.ACTIVE, reason)

    async def move_topic(self, topic: str, broker_id: str | None = None) -> ShardMove:
        """
        Move a topic to another broker, with all topics of its shard.

        The call does not wait for the move: ``describe`` shows the shard as
        incoming until the broker serves it.  Later the shard may be moved again, to
        balance the load.

        Args:
            topic: ``/{namespace}/{topic}``, or one partition of a topic.
            broker_id: The broker; by default the one with the fewest shards, except
                the one that serves the topic.

        Raises:
            InvalidRequest: There is no such broker, or it is draining, or another
                broker is taking the topic over at this moment.
        """
        answer = await self._requester.send_request(
            pb.MoveTopic(topic=topic, broker_id=broker_id or "")
        )
        return from_wire(ShardMoves, answer).moves[0]

    async def rebalance(self, *, dry_run: bool = False) -> tuple[ShardMove, ...]:
        """
        Balance the load of the brokers, also if it differs little.

        The call returns the planned moves and does not wait for them.  They are fewer
        if the load changes meanwhile.

        Args:
            dry_run: Whether to only return the moves.
        """
        answer = await self._requester.send_request(pb.Rebalance(dry_run=dry_run))
        return from_wire(ShardMoves, answer).moves

    async def forget_broker(
        self, broker_id: str, *, accept_loss: bool = False
    ) -> tuple[ShardMove, ...]:
        """
        Return the shards that wait for journals of a broker that does not come back.

        They wait for a moment after each failure of a broker. They wait for ever if
        objects of its journal are lost or damaged.

        Args:
            broker_id: The name of the broker.
            accept_loss: Whether to go on without these journals where they are damaged.
                Messages that were not uploaded, and cursors of subscriptions, are lost.
        """
        answer = await self._requester.send_request(
            pb.ForgetBroker(broker_id=broker_id, accept_loss=accept_loss)
        )
        return from_wire(ShardMoves, answer).moves

    async def list_connections(self, limit: int | None = None) -> Connections:
        """
        Return the clients that are connected, the oldest of each broker first.

        In a cluster, and of a broker with several processes, they are those of all.

        Args:
            limit: How many of each broker are returned at most; by default all.

        Raises:
            InvalidRequest: *limit* is less than 1.
            ConnectionLost: A broker does not answer.
        """
        if limit is not None and limit < 1:
            raise InvalidRequest(f"limit is {limit}: it must be 1 or more")
        brokers = await self.running_brokers()
        urls: list[str | None] = [each.url for each in brokers]
        urls = urls or [None]
        parts = await gather(self._connections_at(url, limit) for url in urls)
        return Connections(
            connections=tuple(each for part, _ in parts for each in part),
            connection_count=sum(count for _, count in parts),
        )

    async def close_connection(
        self, connection_id: int, broker_id: str | None = None, *, reason: str = ""
    ) -> None:
        """
        Close the connection of a client.

        The client connects again, unless its credentials are revoked before.

        Args:
            connection_id: As ``list_connections`` returns it.
            broker_id: The broker that has the connection; in a cluster it is needed.
            reason: The reason, for the client and for the broker's log.

        Raises:
            InvalidRequest: There is no such connection, or no such broker.
        """
        request = pb.CloseConnection(connection_id=connection_id, reason=reason)
        brokers = await self.running_brokers()
        if not brokers:
            await self._requester.send_request(request)
            return
        urls = {each.broker_id: each.url for each in brokers}
        if broker_id not in urls:
            raise InvalidRequest(
                f"broker_id is {broker_id!r}: it must be one of {', '.join(urls)}"
            )
        await self._requester.request_of(urls[broker_id], request)

    async def _connections_at(
        self, url: str | None, limit: int | None
    ) -> tuple[list[ConnectionDescription], int]:
        """Return the connections of one broker, and how many it has."""
        found: list[ConnectionDescription] = []
        has_more, count = True, 0
        while has_more and (limit is None or len(found) < limit):
            left = CONNECTIONS_MAX if limit is None else limit - len(found)
            request = pb.ListConnections(
                after=found[-1].connection_id if found else 0,
                limit=min(left, CONNECTIONS_MAX),
            )
            answer = (
                await self._requester.send_request(request)
                if url is None
                else await self._requester.request_of(url, request)
            )
            found += [
                from_wire(ConnectionDescription, each, broker_id=answer.broker_id)
                for each in answer.connections
            ]
            has_more, count = answer.has_more, answer.connection_count
        return found, count

    async def _set_mode(self, broker_id: str, mode: BrokerMode, reason: str) -> None:
        await self._requester.send_request(
            pb.SetBrokerMode(broker_id=broker_id, mode=mode.value, reason=reason)
        )
