"""The operations ``cluster`` of ``pydanube.sync``, generated."""

from __future__ import annotations

from pydanube.client.blocking import Facade, blocking
from pydanube.client.operations.cluster import Cluster as AsyncCluster


class Cluster(Facade):
    """See ``pydanube.Cluster``."""

    describe_broker = blocking(AsyncCluster.describe_broker)
    describe = blocking(AsyncCluster.describe)
    list_findings = blocking(AsyncCluster.list_findings)
    describe_activity = blocking(AsyncCluster.describe_activity)
    running_brokers = blocking(AsyncCluster.running_brokers)
    drain_broker = blocking(AsyncCluster.drain_broker)
    activate_broker = blocking(AsyncCluster.activate_broker)
    move_topic = blocking(AsyncCluster.move_topic)
    rebalance = blocking(AsyncCluster.rebalance)
    forget_broker = blocking(AsyncCluster.forget_broker)
    list_connections = blocking(AsyncCluster.list_connections)
    close_connection = blocking(AsyncCluster.close_connection)
