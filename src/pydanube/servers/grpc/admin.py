"""The services of ``danube_admin`` over one broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydanube.model.ids import stable_id
from pydanube.servers.grpc.admin_brokers import NO_CLUSTER, BrokerAdmin
from pydanube.servers.grpc.admin_namespaces import NamespaceAdmin
from pydanube.servers.grpc.admin_topics import TopicAdmin
from pydanube.servers.grpc.services import Service, UnimplementedService
from pydanube.wire.pb import danube_admin_pb2 as pb

if TYPE_CHECKING:
    from pydanube.broker.broker import Broker
    from pydanube.servers.grpc.admin_brokers import BrokerAddresses

NO_SECURITY = "this broker has no roles: every client may do everything"


def admin_services(broker: Broker, addresses: BrokerAddresses) -> list[Service]:
    """Return the services for the administrators of *broker*."""
    # The original's tools expect that a broker id is a number.
    broker_id = str(stable_id(("broker", broker.broker_id)))
    services = pb.DESCRIPTOR.services_by_name
    cluster, security = services["ClusterAdmin"], services["SecurityAdmin"]
    return [
        Service(services["BrokerAdmin"], BrokerAdmin(broker, broker_id, addresses)),
        Service(services["NamespaceAdmin"], NamespaceAdmin(broker)),
        Service(services["TopicAdmin"], TopicAdmin(broker, broker_id)),
        Service(cluster, UnimplementedService(cluster, NO_CLUSTER)),
        Service(security, UnimplementedService(security, NO_SECURITY)),
    ]
