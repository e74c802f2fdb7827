"""
Avro: this package parses and compares schemas and encodes values; fastavro decodes.

A payload is one datum in binary encoding.  An object container file with one datum is
accepted too, because the original's validator requires that.  ``bounds.py`` limits the
cost of decoding a datum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property, lru_cache, partial
from io import BytesIO
from typing import Any

import fastavro
import msgspec

from pydanube.model.arrow import pa
from pydanube.model.errors import InvalidPayload, InvalidSchema
from pydanube.model.schemas import SchemaType
from pydanube.schemas.avro.bounds import VALUE_DEPTH_MAX, bounds_of, check_datum
from pydanube.schemas.avro.container import CONTAINER_MAGIC, open_container
from pydanube.schemas.avro.encoding import AvroEncoder
from pydanube.schemas.avro.parser import parse_avro
from pydanube.schemas.avro.reading import INT, form_for_reading
from pydanube.schemas.avro.resolution import find_incompatibilities
from pydanube.schemas.avro.types import AvroType, Record, canonical_form
from pydanube.schemas.language import (
    Column,
    ColumnDecoder,
    Decoder,
    Encoder,
    Incompatibility,
    Validate,
    convert_each,
    convert_items,
    does_not_fit,
    error_text,
    find_bad_payloads,
)
from pydanube.schemas.parsed_schema import ParsedSchema

_WIDER = {"float": "double"}
_NAMED = "__named_schemas"
"""The key under which fastavro keeps named types."""

Defaults = dict[tuple[str, str], Any]
"""The values of defaults, None without one, by the names of record and field."""


class AvroSchema(ParsedSchema):
    """An Avro schema."""

    type = SchemaType.AVRO

    def __init__(self, definition: bytes | str) -> None:
        """
        Parse *definition*.

        Raises:
            InvalidSchema: It violates the Avro specification, or its values could be
                too
                expensive to decode.
        """
        super().__init__(definition)
        self.root, self._records = parse_avro(self.text)
        self.bounds = bounds_of(self.root, self._records)
        self.steps_per_byte = self.bounds.steps_per_byte

    @cached_property
    def canonical(self) -> bytes:
        return msgspec.json.encode(canonical_form(self.root), order="deterministic")

    def incompatibilities_in_process(
        self, writer: ParsedSchema
    ) -> list[Incompatibility]:
        assert isinstance(writer, AvroSchema)
        return find_incompatibilities(self.root, writer.root)

    def validator_in_process(self) -> Validate:
        return partial(find_bad_payloads, read=self._reader())

    def decoder(self) -> Decoder:
        return self._batch_reader()

    def encoder(self) -> Encoder:
        return self.value_encoder()

    def value_encoder(
        self, *, takes_json: bool = False, writes_texts: bool = False
    ) -> Encoder:
        """Return an encoder with the options of ``AvroEncoder``."""
        encode = AvroEncoder(
            self.root, takes_json=takes_json, writes_texts=writes_texts
        ).encode
        is_recursive = self.bounds.is_recursive

        def encode_one(value: Any) -> bytes:
            if is_recursive:
                _check_depth(value)
            return encode(value)

        return partial(
            convert_each, convert=encode_one, refusals=Exception, reason=does_not_fit
        )

    def arrow_type(self) -> pa.DataType:
        return _column_of(self.root).type

    def _column_decoder(self, writer: ParsedSchema) -> ColumnDecoder:
        """
        See the base class; follows the specification's schema resolution, with
        additions.

        A field that the writer does not have and that has no default is null, and a
        number of a wider type is accepted if it fits.
        """
        assert isinstance(writer, AvroSchema)
        is_same = writer is self or writer.text == self.text
        reader = None if is_same else _lenient(self._parsed, _defaults(self._records))
        arrow_type, convert = _column_of(self.root)
        read_all = writer._batch_reader(reader)  # noqa: SLF001

        def decode(payloads: pa.Array) -> pa.Array:
            values = read_all(payloads.to_pylist())
            if convert is not None:
                values = convert_items(convert, values)
            return pa.array(values, arrow_type)

        return decode

    def _batch_reader(
        self, reader: Any = None
    ) -> Callable[[Sequence[bytes | None]], list[Any]]:
        """
        Return a decoder of a batch; nulls stay null.

        *reader* is the parsed schema of the resulting values.
        """
        read_one = self._reader(reader)
        parsed, read = self._parsed, fastavro.schemaless_reader
        root, walked_min = self.root, self.bounds.walked_bytes_min

        def read_joined(payloads: Sequence[bytes | None]) -> list[Any]:
            # Reading all payloads as one source is a quarter faster than one by one.
            joined = b"".join(payload for payload in payloads if payload)
            if len(joined) >= walked_min:
                for payload in payloads:
                    if payload is not None and len(payload) >= walked_min:
                        check_datum(payload, root)
            source = BytesIO(joined)
            tell, end = source.tell, 0
            values: list[Any] = []
            for payload in payloads:
                if payload is None:
                    values.append(None)
                    continue
                end += len(payload)
                values.append(read(source, parsed, reader))
                if tell() != end:
                    raise InvalidPayload("it has another length than its datum")
            return values

        def read_all(payloads: Sequence[bytes | None]) -> list[Any]:
            # If it fails, read the payloads one by one to find the invalid one.
            with suppress(Exception):
                return read_joined(payloads)
            return convert_each(payloads, read_one)

        return read_all

    def _reader(self, reader: Any = None) -> Callable[[bytes | None], Any]:
        """Return a decoder of one payload that raises InvalidPayload."""
        read_datum = self._datum_reader(reader)

        def read_one(payload: bytes | None) -> Any:
            if payload is None:
                return None
            try:
                return read_datum(payload)
            except InvalidPayload:
                if not payload.startswith(CONTAINER_MAGIC):
                    raise
            return _read_container(payload, reader or self._parsed)

        return read_one

    def _datum_reader(self, reader: Any) -> Callable[[bytes], Any]:
        parsed, read = self._parsed, fastavro.schemaless_reader
        root, walked_min = self.root, self.bounds.walked_bytes_min

        def read_datum(payload: bytes) -> Any:
            if len(payload) >= walked_min:
                check_datum(payload, root)
            source = BytesIO(payload)
            try:
                value = read(source, parsed, reader)
            # fastavro raises arbitrary exceptions for malformed data.
            except Exception as error:
                reason = f"not a datum of the Avro schema: {error_text(error)}"
                raise InvalidPayload(reason) from error
            left = len(payload) - source.tell()
            if left:
                raise InvalidPayload(
                    f"not a datum of the Avro schema: {left} bytes are left over"
                )
            return value

        return read_datum

    @cached_property
    def _parsed(self) -> Any:
        try:
            # fastavro would read logical types that are not valid, too.
            form = canonical_form(self.root)
            return fastavro.parse_schema(form_for_reading(form))
        except Exception as error:
            raise InvalidSchema(
                f"fastavro cannot use the Avro schema: {error}"
            ) from error


def _column_of(root: AvroType) -> Column:
    # Only Arrow data needs Arrow.
    from pydanube.schemas.avro.columns import column_of  # noqa: PLC0415

    return column_of(root)


def _defaults(records: Sequence[Record]) -> Defaults:
    return {
        (record.name, part.name): part.default_value
        for record in records
        for part in record.fields
    }


def _lenient(part: Any, defaults: Defaults) -> Any:
    """
    Return a parsed schema that also reads wider types; Arrow checks the result.

    The *defaults* are values, which fastavro takes as they are.
    """
    if isinstance(part, list):
        return [_lenient(each, defaults) for each in part]
    if not isinstance(part, dict):
        return _WIDER.get(part, part)
    if "logicalType" in part:
        return "long" if part["logicalType"] == INT else part
    wide = {
        key: _lenient(inner, defaults) if key in ("type", "items", "values") else inner
        for key, inner in part.items()
    }
    if "fields" in part:
        wide["fields"] = [
            {
                **each,
                "type": _lenient(each["type"], defaults),
                "default": defaults[part["name"], each["name"]],
            }
            for each in part["fields"]
        ]
    if _NAMED in part:
        wide[_NAMED] = {
            name: _lenient(each, defaults) for name, each in part[_NAMED].items()
        }
    return wide


def _read_container(payload: bytes, reader: Any) -> Any:
    """Return the only datum of a container file, read as the parsed schema *reader*."""
    definition, datum = open_container(payload)
    try:
        writer = _written_in_containers(definition)
        return writer._datum_reader(reader)(datum)  # noqa: SLF001
    except InvalidSchema as error:
        raise InvalidPayload(f"the container file's schema: {error}") from error


@lru_cache(maxsize=64)
def _written_in_containers(definition: str) -> AvroSchema:
    return AvroSchema(definition)


def _check_depth(value: Any) -> None:
    pending: list[tuple[Any, int]] = [(value, 0)]
    while pending:
        found, depth = pending.pop()
        if isinstance(found, dict):
            inner: Any = found.values()
        elif isinstance(found, list | tuple):
            inner = found
        else:
            continue
        if depth >= VALUE_DEPTH_MAX:
            raise ValueError(f"it is nested deeper than {VALUE_DEPTH_MAX} values")
        pending += [(each, depth + 1) for each in inner]
