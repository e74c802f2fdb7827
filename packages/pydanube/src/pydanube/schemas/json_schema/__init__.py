"""
JSON Schema: jsonschema-rs validates and proves containment, msgspec decodes.

A payload is one JSON value in UTF-8.  All drafts from 4 on are supported; formats are
constraints.  References must stay inside the document.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property, partial
from typing import Any

import jsonschema_rs
import msgspec

from pydanube.model.arrow import pa
from pydanube.model.errors import InvalidPayload, InvalidSchema
from pydanube.model.schemas import SchemaType
from pydanube.schemas.json_schema.containment import (
    find_incompatibilities,
    is_quick_to_compare,
)
from pydanube.schemas.json_schema.document import (
    LINEAR_PATTERNS_MAX,
    LINEAR_REGEX,
    check_document,
    patterns_in,
    regex_of,
)
from pydanube.schemas.json_schema.validation_cost import UNBOUNDED, ValidationCost
from pydanube.schemas.language import (
    REASON_LENGTH_MAX,
    ColumnDecoder,
    Decoder,
    Encoder,
    Incompatibility,
    Validate,
    convert_each,
    refuse_bad_payloads,
)
from pydanube.schemas.parsed_schema import ParsedSchema

ERRORS_LISTED_MAX = 3
EXPLAINED_STEPS_MAX = 16 * 1024
"""If a value may have more errors, they are not listed."""
EXPLAINED_TEXT_BYTES_MAX = 1024
"""Errors in longer payloads count as more steps, because each quotes the value."""

_NOT_JSON = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)
AT_ONCE_MIN = 16
"""With fewer payloads, starting the column reader takes longer than reading them."""


class JsonSchema(ParsedSchema):
    """A JSON Schema document."""

    type = SchemaType.JSON_SCHEMA

    def __init__(self, definition: bytes | str) -> None:
        """
        Parse *definition*.

        Raises:
            InvalidSchema: It is not a JSON Schema, or refers to another document.
        """
        super().__init__(definition)
        try:
            self.document: Any = msgspec.json.decode(self.text)
        except _NOT_JSON as error:
            raise InvalidSchema(f"the JSON Schema is not JSON: {error}") from error
        check_document(self.document)
        self._cost = ValidationCost(self.document)
        patterns = patterns_in(self.document)
        rules = None
        if patterns and patterns <= LINEAR_PATTERNS_MAX:
            with suppress(jsonschema_rs.ValidationError, ValueError):
                rules = self._make_rules(LINEAR_REGEX)
        is_linear = rules is not None or not patterns
        # Patterns that may backtrack have no bound.
        self.steps_per_byte = self._cost.steps if is_linear else UNBOUNDED
        if rules is None:
            try:
                rules = self._make_rules(regex_of(patterns))
            except (jsonschema_rs.ValidationError, ValueError) as error:
                raise InvalidSchema(f"not a JSON Schema: {_reason(error)}") from error
        if is_linear:
            # Other validators are made when needed, which is not in a broker.
            self._rules = rules

    @cached_property
    def canonical(self) -> bytes:
        return msgspec.json.encode(self.document, order="deterministic")

    def is_quick_to_compare(self, writer: ParsedSchema) -> bool:
        assert isinstance(writer, JsonSchema)
        return is_quick_to_compare(self.document, writer.document)

    def incompatibilities_in_process(
        self, writer: ParsedSchema
    ) -> list[Incompatibility]:
        """
        See the base class.

        A property that the writer's schema does not name counts as absent, unless the
        schema allows it with ``additionalProperties``.
        """
        assert isinstance(writer, JsonSchema)
        return find_incompatibilities(self.document, writer.document)

    def validator_in_process(self) -> Validate:
        decode, is_valid = msgspec.json.decode, self._rules.is_valid

        def validate(payloads: Sequence[bytes]) -> list[tuple[int, str]]:
            bad = []
            for index, payload in enumerate(payloads):
                try:
                    value = decode(payload)
                    if is_valid(value):
                        continue
                    reason = self._why(value, payload)
                except _NOT_JSON as error:
                    reason = f"not JSON: {error}"
                except ValueError as error:
                    # The library refuses values that nest deeper than 255.
                    reason = f"cannot be validated: {_reason(error)}"
                bad.append((index, reason))
            return bad

        return validate

    def decoder(self) -> Decoder:
        """See the base class; the values are not validated against the schema."""
        return partial(
            convert_each,
            convert=msgspec.json.Decoder().decode,
            refusals=_NOT_JSON,
            reason=_not_json,
        )

    def encoder(self) -> Encoder:
        """See the base class; values that the schema does not allow are refused."""
        encode_one, validate = msgspec.json.Encoder().encode, self.validator()

        def encode(values: Sequence[Any]) -> list[bytes]:
            payloads: list[bytes] = convert_each(
                values,
                encode_one,
                (TypeError, ValueError, OverflowError, RecursionError),
                lambda error, _value: f"cannot be written as JSON: {error}",
            )
            refuse_bad_payloads(validate, payloads)
            return payloads

        return encode

    def arrow_type(self) -> pa.DataType:
        # Only Arrow data needs Arrow.
        from pydanube.schemas.json_schema.columns import column_of  # noqa: PLC0415

        return column_of(self.document).type

    def _column_decoder(self, writer: ParsedSchema) -> ColumnDecoder:
        """
        See the base class; values that the column's type cannot hold are refused.

        JSON describes itself, so the writer's schema does not matter.
        """
        # Only Arrow data needs Arrow.
        from pydanube.schemas.json_schema.column_reader import (  # noqa: PLC0415
            read_objects,
        )
        from pydanube.schemas.json_schema.columns import column_of  # noqa: PLC0415

        assert isinstance(writer, JsonSchema)
        decode_json = msgspec.json.Decoder().decode
        arrow_type, convert, is_plain = column_of(self.document)
        may_read_at_once = is_plain and pa.types.is_struct(arrow_type)

        def decode_one(payload: bytes | None) -> Any:
            value = None if payload is None else decode_json(payload)
            return None if value is None else convert(value)

        def decode(payloads: pa.Array) -> pa.Array:
            if may_read_at_once and len(payloads) >= AT_ONCE_MIN:
                found = read_objects(payloads, arrow_type)
                if found is not None:
                    return found
            values = convert_each(
                payloads.to_pylist(),
                decode_one,
                (InvalidPayload, *_NOT_JSON),
                _not_json,
            )
            return pa.array(values, arrow_type)

        return decode

    @cached_property
    def _rules(self) -> Any:
        return self._make_rules(regex_of(patterns_in(self.document)))

    def _make_rules(self, regex: Any) -> Any:
        return jsonschema_rs.validator_for(
            self.document, validate_formats=True, pattern_options=regex, offline=True
        )

    def _why(self, value: Any, payload: bytes) -> str:
        if self._steps_to_explain(payload) > EXPLAINED_STEPS_MAX:
            return "the value is invalid; it is too large or too deep to say where"
        said = []
        for error in self._rules.iter_errors(value):
            where = (
                "".join(f"[{part!r}]" for part in error.instance_path) or "the value"
            )
            said.append(f"{where:.100}: {error.message:.{REASON_LENGTH_MAX}}")
            if len(said) == ERRORS_LISTED_MAX:
                break
        return "; ".join(said)

    def _steps_to_explain(self, payload: bytes) -> int:
        """
        Return the maximum number of errors.

        The library collects the errors of all alternatives at every depth, which are
        exponentially many if the schema refers to itself.  Each quotes its value.
        """
        depth = payload.count(b"{") + payload.count(b"[")
        steps_per_value = self._cost.steps
        if steps_per_value > EXPLAINED_STEPS_MAX:
            return steps_per_value
        if self._cost.is_recursive:
            steps_per_value **= min(depth, 16)
        steps = steps_per_value * (payload.count(b",") + depth + 1)
        return max(steps, steps * len(payload) // EXPLAINED_TEXT_BYTES_MAX)


def _not_json(error: Exception, _payload: Any) -> str:
    return str(error) if isinstance(error, InvalidPayload) else f"not JSON: {error}"


def _reason(error: Exception) -> str:
    return str(getattr(error, "message", None) or error).split("\n", 1)[0]
