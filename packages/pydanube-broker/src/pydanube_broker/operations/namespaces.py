"""Operations on namespaces."""

from __future__ import annotations

from pydanube.model.names import parse_namespace
from pydanube.model.policy import NamespacePolicy, NamespaceSettings
from pydanube.wire.native.messages import changes_from_wire, from_wire, to_wire
from pydanube.wire.pb import stream_pb2 as pb
from pydanube_broker.operations.authorization import visible_namespaces
from pydanube_broker.operations.handlers import Call, operation
from pydanube_broker.operations.topic_lists import visible_names


@operation
async def create_namespace(call: Call, m: pb.CreateNamespace) -> None:
    """Create a namespace."""
    await call.broker.namespaces.create(
        parse_namespace(m.namespace),
        from_wire(NamespacePolicy, m.policy),
        exist_ok=m.exist_ok,
    )


@operation
async def delete_namespace(call: Call, m: pb.DeleteNamespace) -> None:
    """Delete a namespace, which must have no topics."""
    await call.broker.namespaces.delete(parse_namespace(m.namespace))


@operation
async def list_namespaces(call: Call, _: pb.ListNamespaces) -> pb.Namespaces:
    """Return the names of the namespaces that the client may see."""
    names = visible_namespaces(await call.broker.namespaces.names())
    return pb.Namespaces(namespaces=names)


@operation
async def describe_namespace(
    call: Call, m: pb.DescribeNamespace
) -> pb.NamespaceDescription:
    """Return a namespace with its settings and its number of topics."""
    name = parse_namespace(m.namespace)
    record = (await call.broker.namespaces.find(name)).value
    return pb.NamespaceDescription(
        namespace=name,
        policy=to_wire(pb.NamespacePolicy, record.policy),
        topic_count=len(await visible_names(call.broker, name)),
        retention=to_wire(pb.Retention, record.retention),
    )


@operation
async def configure_namespace(call: Call, m: pb.ConfigureNamespace) -> None:
    """Change the named settings of a namespace, all or none."""
    changes = changes_from_wire(NamespaceSettings, m.settings, m.changes)
    await call.broker.namespaces.configure(parse_namespace(m.namespace), **changes)
