"""Parsing of definitions; the libraries of a language are imported when needed."""

from __future__ import annotations

from pydanube.model.errors import InvalidSchema
from pydanube.model.extras import require
from pydanube.model.schemas import SchemaType
from pydanube.schemas.parsed_schema import ParsedSchema
from pydanube.schemas.primitives import PrimitiveSchema

# ruff: noqa: PLC0415  # Most processes need one of these languages, or none.


def parse_schema(
    type_: SchemaType, definition: bytes | str, *, message: str | None = None
) -> ParsedSchema:
    """
    Return the schema of *definition*; this may take long, so run it in a thread.

    *message* is the name of a Protobuf message, by default the first one.

    Raises:
        InvalidSchema: The definition is malformed, too large or too deep.
        MissingExtra: The libraries of the schema language are not installed.
    """
    if message is not None and type_ is not SchemaType.PROTOBUF:
        raise InvalidSchema(
            f"a schema of type {type_.value} has no messages to choose from"
        )
    if not type_.is_primitive:
        require("schemas", f"a schema of type {type_.value}")
    if type_ is SchemaType.PROTOBUF:
        require("protoc", "a Protobuf schema in a .proto source")
    match type_:
        case SchemaType.AVRO:
            from pydanube.schemas.avro import AvroSchema

            return AvroSchema(definition)
        case SchemaType.JSON_SCHEMA:
            from pydanube.schemas.json_schema import JsonSchema

            return JsonSchema(definition)
        case SchemaType.PROTOBUF:
            from pydanube.schemas.protobuf import ProtobufSchema

            return ProtobufSchema(definition, message)
        case _:
            return PrimitiveSchema(type_, definition)
