"""
Decoding of payloads to values in a task, whole columns at a time.

The messages of a batch are grouped by their writer schema, which each message names.
Arrow decodes a group as a whole and converts it to the columns of the reader schema.
If that fails, the group is halved until the bad messages are found.  The plan contains
all schema definitions, so tasks make no requests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pydanube.client.messages.schema import Schema
from pydanube.model.errors import BrokerError, InvalidPayload, InvalidRequest
from pydanube.schemas.language import reason_of
from pydanube.schemas.parsed_schema import ParsedSchema
from pydanube_spark.reader.pure.query_positions import ReaderSchema
from pydanube_spark.reader.pure.read_options import OnUndecodable
from pydanube_spark.reader.pure.spark_types import converter, spark_type

VALUE = "value"
ERROR = "_error"

WriterSchema = tuple[int, int]
"""The schema id and the version that a message names."""

BadMessage = tuple[int, str]
"""The index of a message, and why it cannot be decoded."""

# The errors that Arrow raises for bad values; ArrowInvalid is a ValueError.
_DECODE_ERRORS = (
    InvalidPayload,
    ValueError,
    TypeError,
    ArithmeticError,
    RecursionError,
)


@lru_cache(maxsize=256)
def parse_once(schema: Schema[Any]) -> ParsedSchema:
    """
    Parse *schema*, once in each process.

    Raises:
        InvalidSchema: It is malformed.
        MissingExtra: The package for its language is not installed.
    """
    return schema.parse()


NEWER_VERSION = ", and this query has the columns of version "
"""A part of the error about a message of a newer version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoding:
    """The input of a task that decodes the messages of its scan."""

    reader_schema: ReaderSchema
    definitions: Mapping[int, Schema[Any]]
    """All versions of the subject, by number."""
    on_undecodable: OnUndecodable
    fails_on_new: bool = False
    """Whether a message of a newer version with other columns ends the query."""
    allows_missing: bool = False
    """True if the plan may have columns that the reader schema does not have."""


class ValueDecoder:
    """Decodes the batches of one task."""

    _fails_on_new = False

    def __init__(self, decoding: Decoding, value_type: Any = None) -> None:
        """
        Prepare to decode to *value_type*, by default that of the reader schema.

        Raises:
            InvalidRequest: Values of the reader schema do not fit *value_type*.
            InvalidSchema: The definition of the reader schema cannot be used.
        """
        self._decoding = decoding
        self._on_undecodable = decoding.on_undecodable
        self._fails_on_new = decoding.fails_on_new
        self._reader = parse_once(decoding.definitions[decoding.reader_schema.version])
        has = self._reader.arrow_type()
        self._type = spark_type(has) if value_type is None else value_type
        self._convert = converter(
            has, self._type, allows_missing=decoding.allows_missing
        )
        self._by_version: dict[int, Callable[[Any], Any] | str] = {}
        # Whether newer versions have the columns of the reader schema.
        self._has_columns: dict[int, bool] = {}

    def decode(self, batch: pa.RecordBatch, topic: str) -> tuple[Any, Any]:
        """
        Decode *batch*, one or more messages of *topic*.

        Returns: The values and the errors; one of the two is null for each message.

        Raises:
            InvalidPayload: A message cannot be decoded, and ``onUndecodable`` is
                ``fail``.
        """
        payloads = batch.column("payload")
        values, members = [], group_by_schema(batch)
        bad: list[BadMessage] = []
        for writer_schema, indices in members.items():
            if self._fails_on_new:
                self._refuse_newer(
                    writer_schema, topic, batch.column("offset")[indices[0].as_py()]
                )
            some = payloads if len(members) == 1 else payloads.take(indices)
            found, wrong = self._decode_group(writer_schema, some)
            values.append(found)
            bad += [(indices[at].as_py(), reason) for at, reason in wrong]
        if bad and self._on_undecodable is OnUndecodable.FAIL:
            index, reason = min(bad)
            raise InvalidPayload(
                f"{topic}: message {batch.column('offset')[index]} cannot be decoded: "
                f"{reason}. Set onUndecodable=null to read such messages as null."
            )
        return scatter(values, list(members.values())), _reasons(bad, batch.num_rows)

    def _refuse_newer(
        self, writer_schema: WriterSchema, topic: str, offset: Any
    ) -> None:
        """Raise if messages have columns that the reader schema does not have yet."""
        schema_id, version = writer_schema
        reader_schema = self._decoding.reader_schema
        if schema_id != reader_schema.schema_id or version <= reader_schema.version:
            return
        if version not in self._has_columns:
            self._has_columns[version] = self._has_columns_of(version)
        if not self._has_columns[version]:
            deleted = (
                ""
                if version in self._decoding.definitions
                else f". If version {version} was deleted, its messages cannot be "
                f"decoded: schemaVersion={reader_schema.version} treats them as others "
                "that cannot"
            )
            raise InvalidRequest(
                f"the message at offset {offset} of {topic} has version {version} of "
                f"{reader_schema.subject}{NEWER_VERSION}{reader_schema.version}. Start "
                "it again to read the new columns, or set schemaVersion to do without"
                f"{deleted}"
            )

    def _has_columns_of(self, version: int) -> bool:
        definition = self._decoding.definitions.get(version)
        if definition is None:
            return False
        try:
            newer = parse_once(definition).arrow_type()
        except BrokerError:
            # Its messages cannot be decoded, which is reported as for others.
            return True
        return bool(newer.equals(self._reader.arrow_type()))

    def _decode_group(
        self, writer_schema: WriterSchema, payloads: Any
    ) -> tuple[Any, list[BadMessage]]:
        decode = self._decoder_of(*writer_schema)
        if isinstance(decode, str):
            bad = [(index, decode) for index in range(len(payloads))]
            return pa.nulls(len(payloads), self._type), bad
        stops_at_first = self._on_undecodable is OnUndecodable.FAIL
        return decode_column(
            decode, payloads, self._type, stops_at_first=stops_at_first
        )

    def _decoder_of(self, schema_id: int, version: int) -> Callable[[Any], Any] | str:
        """Return the decoder for a writer schema, or why there is none."""
        reader_schema = self._decoding.reader_schema
        if not schema_id:
            return "it was written without a schema"
        if schema_id != reader_schema.schema_id:
            return (
                f"it was written with the schema id {schema_id}, and "
                f"{reader_schema.subject} has the id {reader_schema.schema_id}"
            )
        if version not in self._by_version:
            self._by_version[version] = self._make_decoder(version)
        return self._by_version[version]

    def _make_decoder(self, version: int) -> Callable[[Any], Any] | str:
        reader_schema = self._decoding.reader_schema
        definition = self._decoding.definitions.get(version)
        if definition is None:
            return (
                f"there is no version {version} of {reader_schema.subject} (any more)"
            )
        try:
            decode = self._reader.column_decoder(parse_once(definition))
        except BrokerError as error:
            return f"version {version} cannot be read as {reader_schema}: {error}"
        convert = self._convert
        return lambda payloads: convert(decode(payloads))


def value_type_of(schema: pa.Schema) -> pa.DataType | None:
    """Return the type of the column ``value`` of *schema*, or None if it has none."""
    at = schema.get_field_index(VALUE)
    return None if at < 0 else schema.field(at).type


def group_by_schema(batch: pa.RecordBatch) -> dict[WriterSchema, Any]:
    """Return the indices of the messages with each writer schema in *batch*."""
    ids, versions = (batch.column(name) for name in ("schema_id", "schema_version"))
    table = pa.table({"id": ids, "version": versions})
    headers = table.group_by(["id", "version"], use_threads=False).aggregate([])
    return {
        (row["id"], row["version"]): pc.indices_nonzero(
            pc.and_(pc.equal(ids, row["id"]), pc.equal(versions, row["version"]))
        )
        for row in headers.to_pylist()
    }


def decode_column(
    decode: Callable[[Any], Any],
    payloads: Any,
    value_type: Any,
    *,
    stops_at_first: bool,
) -> tuple[Any, list[BadMessage]]:
    """
    Decode *payloads* and return the values and the messages that cannot be decoded.

    The value of such a message is null.  With *stops_at_first* the function stops at
    the first one, and the values are incomplete.
    """
    try:
        return decode(payloads), []
    except _DECODE_ERRORS as error:
        if len(payloads) == 1:
            return pa.nulls(1, value_type), [(0, _reason(error))]
    half = len(payloads) // 2
    values, bad = decode_column(
        decode, payloads[:half], value_type, stops_at_first=stops_at_first
    )
    if bad and stops_at_first:
        return values, bad
    others, more = decode_column(
        decode, payloads[half:], value_type, stops_at_first=stops_at_first
    )
    bad += [(half + index, reason) for index, reason in more]
    return pa.concat_arrays([values, others]), bad


def scatter(values: list[Any], indices: list[Any]) -> Any:
    """Join the groups *values* to one column in the order of *indices*."""
    if len(values) == 1:
        return values[0]
    where = pa.concat_arrays(indices)
    return pa.concat_arrays(values).take(pc.sort_indices(where))


def _reasons(bad: list[BadMessage], count: int) -> Any:
    if not bad:
        return pa.nulls(count, pa.string())
    reasons = dict(bad)
    return pa.array(map(reasons.get, range(count)), pa.string())


def _reason(error: Exception) -> str:
    text = reason_of(error) if isinstance(error, InvalidPayload) else str(error)
    return " ".join(text.split()) or type(error).__name__
