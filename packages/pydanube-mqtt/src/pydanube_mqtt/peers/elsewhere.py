"""The topics of a broker with several processes that other processes serve."""

from __future__ import annotations

from pydanube.aio.tasks import TaskScope
from pydanube.model.names import SubscriptionName, TopicName
from pydanube_broker.broker.broker import Broker
from pydanube_broker.servers.connections.process_sockets import ProcessGroup
from pydanube_broker.servers.settings.process_config import process_number
from pydanube_mqtt.peers.peer_links import PeerLink, PeerLinks
from pydanube_mqtt.peers.remote_topics import RemoteTopic


class Elsewhere:
    """Finds topics at the other processes."""

    def __init__(self, broker: Broker, group: ProcessGroup, tasks: TaskScope) -> None:
        self.number = group.number
        """The number of this process."""
        self._broker = broker
        self._tasks = tasks
        self._links = PeerLinks(group)

    async def find(self, name: TopicName) -> RemoteTopic:
        """
        Return a topic as another process serves it.

        Raises:
            TopicNotFound: It does not exist.
            NotOwner: No other process serves it at the moment.
            ConnectionLost: The process that serves it does not answer.
        """
        record = (await self._broker.catalog.get_topic(name)).value
        link = await self._link_of(name)
        return RemoteTopic(name, record.policy, record.shard, link, self._tasks)

    async def delete_subscription(
        self, name: TopicName, subscription: SubscriptionName
    ) -> None:
        """
        Delete a subscription of a topic if it has no consumers.

        Raises:
            SubscriptionInUse, SubscriptionNotFound: It is not deleted.
            BrokerError: As ``find``.
        """
        link = await self._link_of(name)
        await link.delete(name, subscription)

    async def _link_of(self, name: TopicName) -> PeerLink:
        owner = await self._broker.topics.find_owner(name)
        # This process may serve it since a moment ago; it can ask itself, too.
        number = self.number if owner is None else process_number(owner.broker_id)
        return await self._links.to(number)

    def close(self) -> None:
        """Close the connections to the other processes."""
        self._links.close()
