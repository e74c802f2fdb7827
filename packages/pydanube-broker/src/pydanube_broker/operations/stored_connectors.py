"""Operations on stored connectors."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

from pydanube.model.errors import InvalidRequest
from pydanube.model.names import TopicName
from pydanube.model.stored_connectors import (
    WORKERS_TOPIC,
    ConnectorReport,
    StoredConnector,
)
from pydanube.security.resources import Resource
from pydanube.wire.native.messages import from_wire, to_wire
from pydanube.wire.pb import stream_pb2 as pb
from pydanube_broker.operations.authorization import author_of_settings, may_see
from pydanube_broker.operations.handlers import Call, operation

PAGE_CONNECTORS_MAX = 200
"""The most connectors in one answer."""


@operation
async def set_connector(call: Call, m: pb.SetConnector) -> pb.ConnectorSet:
    """Store the definition of a connector, or change it, for workers to run."""
    expected = m.expected_revision if m.HasField("expected_revision") else None
    revision = await call.broker.connectors.set(
        m.name,
        m.topic,
        m.definition,
        author_of_settings(),
        expected_revision=expected,
        is_paused=m.is_paused if m.HasField("is_paused") else None,
    )
    return pb.ConnectorSet(revision=revision)


@operation
async def delete_connector(call: Call, m: pb.DeleteConnector) -> None:
    """Delete a stored connector, which its worker then stops; positions stay."""
    await call.broker.connectors.delete(m.name, m.topic)


@operation
async def operate_connector(call: Call, m: pb.OperateConnector) -> None:
    """Pause a stored connector, resume it, or open it anew."""
    await call.broker.connectors.operate(
        m.name,
        m.topic,
        is_paused=m.is_paused if m.HasField("is_paused") else None,
        is_restarted=m.is_restarted,
    )


@operation
async def report_connectors(call: Call, m: pb.ReportConnectors) -> None:
    """Take over what a worker reports about the connectors that it runs."""
    if m.topic != WORKERS_TOPIC:
        raise InvalidRequest(
            f"the topic of workers is {WORKERS_TOPIC}, not {m.topic[:100]!r}"
        )
    reports = [from_wire(ConnectorReport, each) for each in m.reports]
    await call.broker.connectors.report(reports)


@operation
async def list_connectors(call: Call, m: pb.ListConnectors) -> pb.Connectors:
    """Return the stored connectors whose topics the client may see."""
    connectors = call.broker.connectors
    if m.name:
        one = connectors.find(m.name)
        found = [] if one is None or not _may_see(one) else [one]
    else:
        # One more says that there are more.
        visible = filter(_may_see, connectors.list(m.after))
        found = [
            replace(each, definition="")
            for each in islice(visible, PAGE_CONNECTORS_MAX + 1)
        ]
    return pb.Connectors(
        connectors=[_to_wire(each) for each in found[:PAGE_CONNECTORS_MAX]],
        has_more=len(found) > PAGE_CONNECTORS_MAX,
        now=call.broker.wall_clock_us(),
    )


def _may_see(connector: StoredConnector) -> bool:
    return may_see(Resource.topic(TopicName.parse(connector.topic)))


def _to_wire(connector: StoredConnector) -> pb.StoredConnector:
    report = to_wire(pb.ConnectorReport, connector.report)
    return to_wire(pb.StoredConnector, replace(connector, report=None), report=report)
