"""
Payloads to values in a Spark task, whole columns at a time.

The messages of a batch are sorted by the version of the subject that they were written
with, which their header names; each group is decoded by Arrow at once and brought into
the columns of the version that they are read as.  Where a group does not go as a
whole it is halved, until the messages that are to blame stand alone.  A task gets all
texts with its plan and asks nobody.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from pydanube.model.errors import BrokerError, InvalidPayload
from pydanube.reader.read_options import OnUndecodable
from pydanube.reader.spark_types import fitter, spark_type
from pydanube.schemas.language import reason_of
from pydanube.schemas.parsing import parse_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pydanube.model.schemas import SchemaType
    from pydanube.reader.offsets import ReaderSchema
    from pydanube.schemas.parsed_schema import ParsedSchema

VALUE = "value"
ERROR = "_error"

Header = tuple[int, int]
"""The schema id and the version that a message names."""

BadMessage = tuple[int, str]
"""The index of a message, and why it has no value."""

# Whatever a value makes Arrow raise: ArrowInvalid is a ValueError, and so on.
_REFUSALS = (
    InvalidPayload,
    ValueError,
    TypeError,
    ArithmeticError,
    RecursionError,
)


@dataclass(frozen=True, slots=True)
class Definition:
    """One version of a subject, as far as decoding needs it."""

    type: SchemaType
    text: str
    message: str | None = None

    def parse(self) -> ParsedSchema:
        """
        The schema; parsed once in each process.

        Raises:
            InvalidSchema: It is not well-formed, or what knows its language is not
                installed.
        """
        return _parse(self)


@lru_cache(maxsize=256)
def _parse(definition: Definition) -> ParsedSchema:
    return parse_schema(definition.type, definition.text, message=definition.message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoding:
    """All that a task needs to know to decode; it travels with its scan."""

    reader_schema: ReaderSchema
    definitions: Mapping[int, Definition]
    """By version: all that the subject has."""
    on_undecodable: OnUndecodable
    may_lack: bool = False
    """Whether the plan may have columns that the version does not have."""


class ValueDecoder:
    """Decodes the batches of one task."""

    def __init__(self, decoding: Decoding, value_type: Any = None) -> None:
        """
        Prepare for columns of *value_type*, by default what the values become.

        Raises:
            InvalidRequest: Values of that version cannot become such columns.
            InvalidSchema: Its text cannot be used.
        """
        self._decoding = decoding
        self._reader = decoding.definitions[decoding.reader_schema.version].parse()
        has = self._reader.arrow_type()
        self._type = spark_type(has) if value_type is None else value_type
        self._fit = fitter(has, self._type, may_lack=decoding.may_lack)
        self._by_version: dict[int, Callable[[Any], Any] | str] = {}

    def decode(self, batch: pa.RecordBatch, topic: str) -> tuple[Any, Any]:
        """
        The values of *batch*, a piece of *topic*, and why some have none.

        It has one message or more.

        Raises:
            InvalidPayload: A message has none, and the plan is to fail then.
        """
        payloads = batch.column("payload")
        values, members = [], groups_of(batch)
        bad: list[BadMessage] = []
        for header, indices in members.items():
            is_all = len(members) == 1
            some = payloads if is_all else payloads.take(indices)
            found, wrong = self._decode_group(header, some)
            values.append(found)
            bad += [
                (at if is_all else indices[at].as_py(), reason) for at, reason in wrong
            ]
        if bad and self._decoding.on_undecodable is OnUndecodable.FAIL:
            index, reason = min(bad)
            raise InvalidPayload(
                f"{topic}: message {batch.column('offset')[index]} cannot be decoded: "
                f"{reason}. onUndecodable=null reads such messages as null."
            )
        return scatter(values, list(members.values())), _reasons(bad, batch.num_rows)

    def _decode_group(
        self, header: Header, payloads: Any
    ) -> tuple[Any, list[BadMessage]]:
        decode = self._decoder_of(*header)
        if isinstance(decode, str):
            bad = [(index, decode) for index in range(len(payloads))]
            return pa.nulls(len(payloads), self._type), bad
        is_first_enough = self._decoding.on_undecodable is OnUndecodable.FAIL
        return decode_each(
            decode, payloads, self._type, is_first_enough=is_first_enough
        )

    def _decoder_of(self, schema_id: int, version: int) -> Callable[[Any], Any] | str:
        """What decodes messages of this header, or why nothing does."""
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
            decode = self._reader.column_decoder(definition.parse())
        except BrokerError as error:
            return f"version {version} cannot be read as {reader_schema}: {error}"
        fit = self._fit
        return lambda payloads: fit(decode(payloads))


def groups_of(batch: pa.RecordBatch) -> dict[Header, Any]:
    """The indices of the messages with each schema id and version in *batch*."""
    ids, versions = (batch.column(name) for name in ("schema_id", "schema_version"))
    table = pa.table({"id": ids, "version": versions})
    headers = table.group_by(["id", "version"], use_threads=False).aggregate([])
    return {
        (row["id"], row["version"]): pc.indices_nonzero(
            pc.and_(pc.equal(ids, row["id"]), pc.equal(versions, row["version"]))
        )
        for row in headers.to_pylist()
    }


def decode_each(
    decode: Callable[[Any], Any],
    payloads: Any,
    value_type: Any,
    *,
    is_first_enough: bool,
) -> tuple[Any, list[BadMessage]]:
    """
    The values of *payloads*, null where there is none, and which those are and why.

    If *is_first_enough*, the values are of no use once there is a bad one, and no
    more are looked for.
    """
    try:
        return decode(payloads), []
    except _REFUSALS as error:
        if len(payloads) == 1:
            return pa.nulls(1, value_type), [(0, _reason(error))]
    half = len(payloads) // 2
    values, bad = decode_each(
        decode, payloads[:half], value_type, is_first_enough=is_first_enough
    )
    if bad and is_first_enough:
        return values, bad
    others, more = decode_each(
        decode, payloads[half:], value_type, is_first_enough=is_first_enough
    )
    bad += [(half + index, reason) for index, reason in more]
    return pa.concat_arrays([values, others]), bad


def scatter(values: list[Any], indices: list[Any]) -> Any:
    """The groups *values* as one column, each value at its one of *indices*."""
    if len(values) == 1:
        return values[0]
    where = pa.concat_arrays(indices)
    return pa.concat_arrays(values).take(pc.sort_indices(where))


def _reasons(bad: list[BadMessage], count: int) -> Any:
    if not bad:
        return pa.nulls(count, pa.string())
    reasons: list[str | None] = [None] * count
    for index, reason in bad:
        reasons[index] = reason
    return pa.array(reasons, pa.string())


def _reason(error: Exception) -> str:
    said = reason_of(error) if isinstance(error, InvalidPayload) else str(error)
    return " ".join(said.split()) or type(error).__name__
