"""
JSON Schema: jsonschema-rs validates and decides containment, msgspec decodes.

A payload is one JSON value in UTF-8.  All drafts from 4 on are taken; formats count
as constraints.  References stay inside the document.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import jsonschema_rs
import msgspec
import pyarrow as pa

from pydanube.model.errors import InvalidPayload, InvalidSchema
from pydanube.model.schemas import SchemaType
from pydanube.schemas.format import (
    ColumnDecoder,
    Decoder,
    Encoder,
    Incompatibility,
    Schema,
    Validator,
    definition_text,
    invalid_payload,
)
from pydanube.schemas.json_schema.columns import (
    arrow_type_of,
    converter_of,
    is_plain_object,
)
from pydanube.schemas.json_schema.containment import contain
from pydanube.schemas.json_schema.document import REGEX, check_document
from pydanube.schemas.json_schema.objects import read_objects

if TYPE_CHECKING:
    from collections.abc import Sequence

ERRORS_SAID_MAX = 3

_NOT_JSON = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)
AT_ONCE_MIN = 16
"""For fewer payloads it takes longer to begin than to read them one by one."""


class JsonSchema(Schema):
    """One JSON Schema document."""

    type = SchemaType.JSON_SCHEMA

    def __init__(self, definition: bytes | str) -> None:
        """
        Parse *definition*.

        Raises:
            InvalidSchema: It is no JSON Schema, or refers to another document.
        """
        super().__init__(definition_text(definition))
        try:
            self.document: Any = msgspec.json.decode(self.text)
        except _NOT_JSON as error:
            raise InvalidSchema(f"the JSON Schema is not JSON: {error}") from error
        check_document(self.document)
        try:
            self._rules = jsonschema_rs.validator_for(
                self.document,
                validate_formats=True,
                pattern_options=REGEX,
                offline=True,
            )
        except (jsonschema_rs.ValidationError, ValueError) as error:
            raise InvalidSchema(f"no JSON Schema: {_said(error)}") from error

    @cached_property
    def canonical(self) -> bytes:
        """See the base class."""
        return msgspec.json.encode(self.document, order="deterministic")

    def incompatibilities(self, writer: Schema) -> list[Incompatibility]:
        """
        See the base class.

        A property that the writer's schema does not name counts as not written,
        unless the schema allows it by ``additionalProperties``.
        """
        assert isinstance(writer, JsonSchema)
        if self.canonical == writer.canonical:
            return []
        return contain(self.document, writer.document)

    def validator(self) -> Validator:
        """See the base class."""
        decode, is_valid = msgspec.json.decode, self._rules.is_valid

        def validate(payloads: Sequence[bytes]) -> list[tuple[int, str]]:
            bad = []
            for index, payload in enumerate(payloads):
                try:
                    value = decode(payload)
                except _NOT_JSON as error:
                    bad.append((index, f"not JSON: {error}"))
                    continue
                if not is_valid(value):
                    bad.append((index, self._why(value)))
            return bad

        return validate

    def decoder(self) -> Decoder:
        """See the base class; the values are not checked against the schema."""
        decode_one = msgspec.json.Decoder().decode

        def decode(payloads: Sequence[bytes]) -> list[Any]:
            values: list[Any] = []
            try:
                for payload in payloads:
                    values.append(decode_one(payload))  # noqa: PERF401
            except _NOT_JSON as error:
                raise invalid_payload(len(values), f"not JSON: {error}") from error
            return values

        return decode

    def encoder(self) -> Encoder:
        """See the base class; what the schema does not allow is refused."""
        encode_one, validate = msgspec.json.Encoder().encode, self.validator()

        def encode(values: Sequence[Any]) -> list[bytes]:
            payloads: list[bytes] = []
            try:
                for value in values:
                    payloads.append(encode_one(value))  # noqa: PERF401
            except (TypeError, ValueError, RecursionError) as error:
                reason = f"cannot be written as JSON: {error}"
                raise invalid_payload(len(payloads), reason) from error
            for index, reason in validate(payloads):
                raise invalid_payload(index, reason)
            return payloads

        return encode

    def arrow_type(self) -> pa.DataType:
        """See the base class."""
        return arrow_type_of(self.document, self.document)

    def _column_decoder(self, writer: Schema) -> ColumnDecoder:
        """
        See the base class; what the column's type does not hold is refused.

        A JSON text says itself what is in it, so who wrote it does not matter.
        """
        assert isinstance(writer, JsonSchema)
        decode_one = msgspec.json.Decoder().decode
        convert = converter_of(self.document, self.document)
        arrow_type = self.arrow_type()
        is_plain = is_plain_object(self.document, self.document)

        def decode(payloads: pa.Array) -> pa.Array:
            if is_plain and len(payloads) >= AT_ONCE_MIN:
                found = read_objects(payloads, arrow_type)
                if found is not None:
                    return found
            values: list[Any] = []
            try:
                for payload in payloads.to_pylist():
                    value = None if payload is None else decode_one(payload)
                    values.append(None if value is None else convert(value))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise invalid_payload(len(values), f"not JSON: {error}") from error
            except InvalidPayload as error:
                raise invalid_payload(len(values), str(error)) from error
            return pa.array(values, arrow_type)

        return decode

    def _why(self, value: Any) -> str:
        said = []
        for error in self._rules.iter_errors(value):
            where = (
                "".join(f"[{part!r}]" for part in error.instance_path) or "the value"
            )
            said.append(f"{where}: {error.message}")
            if len(said) == ERRORS_SAID_MAX:
                break
        return "; ".join(said)


def _said(error: Exception) -> str:
    return str(getattr(error, "message", None) or error).split("\n", 1)[0]
