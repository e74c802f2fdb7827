"""
The encoding of values as payloads, for each topic that a task writes.

If a topic is bound to a subject, values are encoded with a version of it; otherwise
they are encoded as JSON.  A task looks up each topic once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa

from pydanube.client.messages.schema import Schema, schema_of
from pydanube.model.errors import BrokerError, InvalidRequest, TopicNotFound
from pydanube.model.schemas import SchemaReference, SchemaType
from pydanube.schemas.pure.value_limits import JSON, ValueLimits, check_values
from pydanube.sync import Client
from pydanube_spark.pure.message_rows import PAYLOAD, VALUE
from pydanube_spark.pure.write_options import Encode, WriteOptions
from pydanube_spark.reader.decoding import parse_once
from pydanube_spark.reader.pure.bounds import split_name


@dataclass(frozen=True, slots=True)
class TopicEncoding:
    """How messages of one topic are encoded."""

    reference: SchemaReference | None
    """The writer schema that the messages name."""
    encode: Callable[[Any], Any] | None
    """None if rows have payloads already."""
    limits: ValueLimits | None = None
    """The limits of the encoding beyond those of all messages."""

    def messages(
        self, rows: pa.RecordBatch, topic: str, first: int = 0
    ) -> pa.RecordBatch:
        """
        Return *rows*, whose first is number *first*, with values encoded as payloads.

        Raises:
            InvalidPayload: A value does not fit the schema.
        """
        if self.encode is None:
            return rows
        at = rows.schema.get_field_index(VALUE)
        try:
            if self.limits is not None:
                check_values(rows, self.limits, first)
            payloads = self.encode(rows.column(at))
        except BrokerError as error:
            raise type(error)(f"{topic}: {error}") from error
        return rows.set_column(at, pa.field(PAYLOAD, pa.binary()), payloads)


class TopicEncodings:
    """The encodings of all topics that one task writes."""

    def __init__(
        self, client: Client, options: WriteOptions, value_type: pa.DataType | None
    ) -> None:
        self._client = client
        self._options = options
        self._value_type = value_type
        """None if rows have payloads already."""
        self._known: dict[str, TopicEncoding] = {}

    def of(self, topic: str) -> TopicEncoding:
        """
        Return the encoding of *topic*.

        Raises:
            InvalidRequest: The column ``value`` does not fit the topic's schema.
            SchemaNotFound: The subject does not have the version in ``schemaVersion``.
            TopicNotFound: The topic does not exist.
        """
        base, _ = split_name(topic)
        if base not in self._known:
            self._known[base] = self._find(base, topic)
        return self._known[base]

    def _find(self, base: str, topic: str) -> TopicEncoding:
        bound = None
        if self._options.encode is Encode.AUTO:
            bound = self._client.schemas.topic_schema(topic)
        has = self._value_type
        if bound is None:
            encode = None if has is None else _encoder(None, has)
            return TopicEncoding(None, encode, None if has is None else JSON)
        wanted = self._options.version or bound.version
        found = (
            self._client.schemas.latest(bound.subject)
            if wanted is None
            else self._client.schemas.get(bound.subject, wanted)
        )
        reference = SchemaReference(subject=found.subject, version=found.version)
        if has is None:
            return TopicEncoding(reference, None)
        try:
            limits = JSON if found.type is SchemaType.JSON_SCHEMA else None
            return TopicEncoding(reference, _encoder(schema_of(found), has), limits)
        except InvalidRequest as error:
            raise type(error)(
                f"{base} takes version {found.version} of {found.subject}: {error}"
            ) from error


def require_topic(client: Client, topic: str) -> None:
    """
    Raise if *topic* cannot be written to.

    Raises:
        TopicNotFound: The topic does not exist.
        InvalidRequest: The topic is non-reliable.
    """
    partitions = client.topics.partitions(topic)
    if not partitions:
        raise TopicNotFound(
            f"no such topic: {topic}; create it first, for example with "
            f"'danube topics create {topic}'"
        )
    if not client.topics.describe(partitions[0]).policy.is_reliable:
        raise InvalidRequest(
            f"{topic} is non-reliable: it does not store its messages, so the sink "
            "cannot promise delivery; write to a reliable topic"
        )


@lru_cache(maxsize=256)
def _encoder(schema: Schema[Any] | None, has: Any) -> Callable[[Any], Any]:
    # The schema languages are not needed if rows have payloads.
    from pydanube.schemas.column_encoding import column_encoder  # noqa: PLC0415

    return column_encoder(None if schema is None else parse_once(schema), has)
