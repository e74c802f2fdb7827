"""
Connectors: sources publish what other systems have, sinks write messages to them.

``danube connect run FILE`` runs the connectors that a file declares.  A connector of
your own is a class that inherits from ``Source`` or ``Sink``.
"""

from typing import TYPE_CHECKING

from pydanube.model.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from pydanube.declarations.pure.sections import Section as Section
    from pydanube_connect.channel import Inbox as Inbox
    from pydanube_connect.connector import Sink as Sink
    from pydanube_connect.connector import Source as Source
    from pydanube_connect.loading import DeclaredConnector as DeclaredConnector
    from pydanube_connect.loading import load as load
    from pydanube_connect.pure.failures import ConnectorFailed as ConnectorFailed
    from pydanube_connect.pure.failures import Rejected as Rejected
    from pydanube_connect.pure.failures import Transient as Transient
    from pydanube_connect.pure.records import Batch as Batch
    from pydanube_connect.pure.records import Record as Record
    from pydanube_connect.pure.records import RecordSchema as RecordSchema
    from pydanube_connect.running import run_connectors as run_connectors
    from pydanube_connect.status import ConnectorStatus as ConnectorStatus
    from pydanube_connect.status import State as State

# `danube --help` imports this package, and needs nothing of it.
_HOMES = {
    "Batch": "pydanube_connect.pure.records",
    "ConnectorFailed": "pydanube_connect.pure.failures",
    "ConnectorStatus": "pydanube_connect.status",
    "DeclaredConnector": "pydanube_connect.loading",
    "Inbox": "pydanube_connect.channel",
    "Record": "pydanube_connect.pure.records",
    "RecordSchema": "pydanube_connect.pure.records",
    "Rejected": "pydanube_connect.pure.failures",
    "Section": "pydanube.declarations.pure.sections",
    "Sink": "pydanube_connect.connector",
    "Source": "pydanube_connect.connector",
    "State": "pydanube_connect.status",
    "Transient": "pydanube_connect.pure.failures",
    "load": "pydanube_connect.loading",
    "run_connectors": "pydanube_connect.running",
}

__all__ = list(_HOMES)  # They are imported when they are used.

__getattr__ = lazy_exports(__name__, _HOMES)
