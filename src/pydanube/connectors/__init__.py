"""
Connectors: sources publish what other systems have, sinks write messages to them.

``danube connect run FILE`` runs the connectors that a file declares.  A connector of
your own is a class that inherits from ``Source`` or ``Sink``.
"""

from pydanube.connectors.channel import Inbox
from pydanube.connectors.connector import Sink, Source
from pydanube.connectors.failures import ConnectorFailed, Rejected, Transient
from pydanube.connectors.loading import DeclaredConnector, load
from pydanube.connectors.records import Batch, Record
from pydanube.connectors.running import run_connectors
from pydanube.connectors.status import ConnectorStatus, State
from pydanube.declarations.sections import Section

__all__ = [
    "Batch",
    "ConnectorFailed",
    "ConnectorStatus",
    "DeclaredConnector",
    "Inbox",
    "Record",
    "Rejected",
    "Section",
    "Sink",
    "Source",
    "State",
    "Transient",
    "load",
    "run_connectors",
]
