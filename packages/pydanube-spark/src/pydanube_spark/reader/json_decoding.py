"""
Decoding of payloads to JSON text, for topics of several subjects.

Each message is decoded with its own writer schema, so no reader schema is chosen, and
the column ``value`` is text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pydanube.client.messages.schema import Schema
from pydanube.model.errors import BrokerError
from pydanube.model.schemas import SchemaType
from pydanube.schemas.pure.json_text import texts
from pydanube_spark.reader.decoding import (
    Decoding,
    ValueDecoder,
    WriterSchema,
    parse_once,
)
from pydanube_spark.reader.pure.query_positions import ReaderSchema
from pydanube_spark.reader.pure.read_options import OnUndecodable
from pydanube_spark.reader.pure.spark_types import converter, spark_type

AS_JSON = ReaderSchema(subject="*", schema_id=0, version=0)
"""Stands for JSON in checkpoints and plans; no subject has this id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonDecoding:
    """The input of a task that decodes the messages of its scan to JSON."""

    definitions: Mapping[WriterSchema, Schema[Any]]
    """All versions of the subjects of the topics."""
    on_undecodable: OnUndecodable


class JsonDecoder(ValueDecoder):
    """Decodes the batches of one task to JSON."""

    def __init__(self, decoding: JsonDecoding) -> None:
        self._on_undecodable = decoding.on_undecodable
        self._definitions = decoding.definitions
        self._type = pa.string()
        self._decoders: dict[WriterSchema, Callable[[Any], Any] | str] = {}

    def _decoder_of(self, schema_id: int, version: int) -> Callable[[Any], Any] | str:
        if not schema_id:
            return "it was written without a schema"
        key = schema_id, version
        if key not in self._decoders:
            self._decoders[key] = self._make_json_decoder(key)
        return self._decoders[key]

    def _make_json_decoder(self, key: WriterSchema) -> Callable[[Any], Any] | str:
        definition = self._definitions.get(key)
        if definition is None:
            return (
                f"it was written with version {key[1]} of the schema id {key[0]}, "
                "which is of no subject of the topics (any more)"
            )
        if definition.type is SchemaType.JSON_SCHEMA:
            # The payload is JSON, perhaps with fields that the schema does not name.
            return lambda payloads: pc.cast(payloads, pa.string())
        try:
            schema = parse_once(definition)
            has = schema.arrow_type()
            decode = schema.column_decoder()
            convert = converter(has, spark_type(has), allows_missing=False)
        except BrokerError as error:
            return f"its schema cannot be used: {error}"
        return lambda payloads: texts(convert(decode(payloads)))


def decoder_for(decoding: Decoding | JsonDecoding, value_type: Any) -> ValueDecoder:
    """Return a decoder for *decoding* to the type of Spark's column."""
    if isinstance(decoding, JsonDecoding):
        return JsonDecoder(decoding)
    return ValueDecoder(decoding, value_type)
