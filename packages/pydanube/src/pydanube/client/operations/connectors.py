"""The operations of a client on the connectors that a broker stores."""

from __future__ import annotations

from collections.abc import Sequence

from pydanube.client.connections.requester import Requester
from pydanube.model.arguments import checks_arguments
from pydanube.model.errors import NotFound
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.stored_connectors import (
    REPORTS_MAX,
    WORKERS_TOPIC,
    ConnectorReport,
    StoredConnector,
)
from pydanube.model.suggestions import did_you_mean
from pydanube.wire.native.messages import from_wire, to_wire
from pydanube.wire.pb import stream_pb2 as pb


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredConnectorList:
    """The stored connectors that a client may see, at one moment."""

    connectors: tuple[StoredConnector, ...]
    """By name, without their definitions."""
    now: int
    """The time of the broker, in microseconds since 1970."""


@checks_arguments
class Connectors:
    """Definitions of connectors, which workers run; ``Client.connectors``."""

    def __init__(self, requester: Requester) -> None:
        self._requester = requester

    async def list(self) -> StoredConnectorList:
        """Return the connectors whose topics the client may see."""
        found: list[StoredConnector] = []
        has_more, now = True, 0
        while has_more:
            after = found[-1].name if found else ""
            answer = await self._requester.send_request(pb.ListConnectors(after=after))
            found += map(_from_wire, answer.connectors)
            has_more, now = answer.has_more, answer.now
        return StoredConnectorList(connectors=tuple(found), now=now)

    async def describe(self, name: str) -> StoredConnector:
        """
        Return the connector *name* with its definition.

        Raises:
            NotFound: It is not stored, or the client may not see its topic.
        """
        answer = await self._requester.send_request(pb.ListConnectors(name=name))
        if not answer.connectors:
            known = [each.name for each in (await self.list()).connectors]
            hint = did_you_mean(name, known) or "; 'danube connect list' lists them"
            raise NotFound(f"there is no stored connector {name}{hint}")
        return _from_wire(answer.connectors[0])

    async def set(
        self,
        name: str,
        topic: str,
        definition: str,
        *,
        expected_revision: int | None = None,
        is_paused: bool | None = None,
    ) -> int:
        """
        Store the definition of a connector, or change it; return its revision.

        Workers run it within seconds.  This client becomes its author: the connector
        may do what both the author and the worker may.

        Args:
            name: The name of the connector.
            topic: Its topic, which never changes.
            definition: A JSON object as in a file of connectors.  Secrets are
                references such as ``${file:NAME}``.
            expected_revision: Refuse the change if it has another one; 0: if it exists.
            is_paused: Whether it is paused from now on; None: as before.  No worker
                runs the definition before it is paused.

        Durability: On return it is on disk.

        Raises:
            InvalidRequest: The definition is malformed, has a literal secret or another
                topic.
            AlreadyExists, Conflict: The connector has another revision.
            PermissionDenied: The client has not the permission ``cluster_admin``.
        """
        request = pb.SetConnector(
            name=name,
            topic=topic,
            definition=definition,
            expected_revision=expected_revision,
        )
        if is_paused is not None:
            request.is_paused = is_paused
        return int((await self._requester.send_request(request)).revision)

    async def delete(self, name: str) -> None:
        """
        Delete a connector; its worker stops it within seconds.

        Its topic, its positions and its subscription stay.

        Raises:
            NotFound: It is not stored.
            PermissionDenied: The client has not the permission ``cluster_admin``.
        """
        topic = (await self.describe(name)).topic
        await self._requester.send_request(pb.DeleteConnector(name=name, topic=topic))

    async def pause(self, name: str) -> None:
        """
        Pause a connector, which finishes what it has in hand and disconnects.

        Raises:
            NotFound: It is not stored.
            PermissionDenied: The client may not manage its topic.
        """
        await self._operate(name, is_paused=True)

    async def resume(self, name: str) -> None:
        """
        Run a paused connector from where it stopped.

        Raises: As ``pause``.
        """
        await self._operate(name, is_paused=False)

    async def restart(self, name: str) -> None:
        """
        Open a connector anew, also one that has failed or finished.

        Raises: As ``pause``.
        """
        await self._operate(name, is_restarted=True)

    async def _operate(
        self, name: str, *, is_paused: bool | None = None, is_restarted: bool = False
    ) -> None:
        topic = (await self.describe(name)).topic
        request = pb.OperateConnector(name=name, topic=topic, is_restarted=is_restarted)
        if is_paused is not None:
            request.is_paused = is_paused
        await self._requester.send_request(request)

    async def report(self, reports: Sequence[ConnectorReport]) -> None:
        """
        Tell the broker what a worker runs.

        Raises:
            PermissionDenied: The client may not consume the topic of workers.
        """
        for base in range(0, len(reports), REPORTS_MAX):
            portion = reports[base : base + REPORTS_MAX]
            request = pb.ReportConnectors(
                topic=WORKERS_TOPIC,
                reports=[to_wire(pb.ConnectorReport, each) for each in portion],
            )
            await self._requester.send_request(request)


def _from_wire(message: pb.StoredConnector) -> StoredConnector:
    report = None
    if message.HasField("report"):
        report = from_wire(ConnectorReport, message.report)
    return from_wire(StoredConnector, message, report=report)
