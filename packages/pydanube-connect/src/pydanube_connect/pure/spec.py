"""
The contents of a file that declares connectors.

The classes define the fields of the file; ``loading`` checks what they mean.
"""

from __future__ import annotations

from typing import Any

from pydanube.declarations.pure import sections
from pydanube.declarations.pure.sections import Section
from pydanube.model.policy import Start, SubscriptionType


class Mapping(Section, frozen=True):
    """How values become messages."""

    key: str | None = None
    """The field of the value that is the key, such as ``customer.id``."""
    id: str | None = None
    """The field that identifies the message, for a topic that deduplicates."""
    payload: str | None = None
    """The field that is the payload; by default the whole value."""
    attributes: dict[str, str] = {}
    """The fields that are attributes, by the name of the attribute."""


class ValueSchema(Section, frozen=True):
    """The schema of the values that a source publishes."""

    type: str | None = None
    """``json_schema``, ``avro`` or ``protobuf``; None: the schema of the topic."""
    file: str | None = None
    """The file with the schema; relative to the directory of the file."""
    message: str | None = None
    """Protobuf only: the message; by default the first one of the file."""


class BatchLimits(Section, frozen=True):
    """How many messages are published or written together."""

    messages: int | None = None
    """By default at most 10,000 of a source, and 1,000 of a sink."""
    bytes: str = "1MiB"
    wait: str | None = None
    """How long to wait for more messages; by default not at all."""


class Retries(sections.Retries, frozen=True):
    """The retries of a connector, by default without limit."""

    count: int | None = None


class ConnectorSpec(Section, frozen=True):
    """The declaration of a connector."""

    kind: str
    """The name of a kind, or a class of your own: ``connectors.py:Ticker``."""
    topic: str
    subscription: str | None = None
    """Sinks: the subscription; by default the name of the connector."""
    type: SubscriptionType = SubscriptionType.FAILOVER
    """Sinks: the type of the subscription."""
    start: Start = Start.EARLIEST
    """Sinks: where a new subscription begins."""
    partitions: int | None = None
    """Sources: the number of partitions if the topic does not exist yet."""
    deduplicate: str | None = None
    """Sources: for how long the topic recognises the ids of messages."""
    transform: list[Any] = []
    """
    Sources: steps before the mapping.

    Each is a JMESPath expression, or ``function: FILE.py:NAME``.
    """
    mapping: Mapping = Mapping()
    schema: ValueSchema | None = None
    batch: BatchLimits = BatchLimits()
    retries: Retries = Retries()
    unhealthy_after: str = "5m"
    """How long the connector may retry until its health is degraded."""
    dead_letters: str | None = None
    """The topic for messages that cannot be published or written."""
    broker: str | None = None
    options: dict[str, Any] = {}


class ConnectFile(Section, frozen=True):
    """A file that declares connectors."""

    connectors: dict[str, ConnectorSpec]
    broker: str | None = None
    parameters: dict[str, Any] = {}
