"""The OpenAPI document of the JSON API, derived from the table of operations."""

from __future__ import annotations

from functools import cache
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from pydanube.model.version import __version__
from pydanube.wire.native.kinds import Kind
from pydanube_broker.operations.handlers import handlers
from pydanube_broker.servers.http.operations import is_readable, path_of
from pydanube_broker.servers.http.responses import JSON

_ERROR = {
    "type": "object",
    "required": ["code", "message"],
    "properties": {"code": {"type": "string"}, "message": {"type": "string"}},
}
_LONG = {"type": "string", "format": "int64"}
"""A number of 64 bits, which many programs cannot read as a number of JSON."""
_TYPES: dict[int, dict[str, Any]] = {
    FieldDescriptor.CPPTYPE_BOOL: {"type": "boolean"},
    FieldDescriptor.CPPTYPE_DOUBLE: {"type": "number"},
    FieldDescriptor.CPPTYPE_FLOAT: {"type": "number"},
    FieldDescriptor.CPPTYPE_INT32: {"type": "integer"},
    FieldDescriptor.CPPTYPE_UINT32: {"type": "integer"},
    FieldDescriptor.CPPTYPE_INT64: _LONG,
    FieldDescriptor.CPPTYPE_UINT64: _LONG,
    FieldDescriptor.CPPTYPE_STRING: {"type": "string"},
}


@cache
def openapi_document() -> dict[str, Any]:
    """Return the OpenAPI 3.1 document that describes the operations."""
    schemas: dict[str, Any] = {"Error": _ERROR}
    return {
        "openapi": "3.1.0",
        "info": {"title": "pydanube broker", "version": __version__},
        "servers": [{"url": "/api/v1"}],
        "paths": {
            path_of(kind): _methods(kind, handler.__doc__ or "", schemas)
            for kind, handler in handlers().items()
        },
        "components": {"schemas": schemas},
    }


def _methods(kind: Kind, text: str, schemas: dict[str, Any]) -> dict[str, Any]:
    assert kind.body is not None
    assert kind.answer_body is not None
    assert kind.permission is not None
    assert kind.on is not None
    summary, _, description = text.partition("\n\n")
    operation: dict[str, Any] = {
        "operationId": kind.name.lower(),
        "summary": summary.strip(),
        "description": " ".join(description.split()),
        "x-permission": kind.permission.value,
        "x-resource": kind.on.value,
        "responses": {
            "200": {
                "description": "The request succeeded.",
                **_content(_reference(kind.answer_body.DESCRIPTOR, schemas)),
            },
            "default": {
                "description": "The request failed.",
                **_content({"$ref": "#/components/schemas/Error"}),
            },
        },
    }
    body = _content(_reference(kind.body.DESCRIPTOR, schemas))
    methods = {"post": {**operation, "requestBody": {"required": True, **body}}}
    if is_readable(kind):
        parameters = [
            {"name": each.name, "in": "query", "schema": _type_of(each, schemas)}
            for each in kind.body.DESCRIPTOR.fields
        ]
        by_query = {"operationId": f"{kind.name.lower()}_by_query"}
        methods["get"] = {**operation, **by_query, "parameters": parameters}
    return methods


def _content(schema: dict[str, Any]) -> dict[str, Any]:
    return {"content": {JSON: {"schema": schema}}}


def _reference(message: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    """Return a reference to the schema of *message*, which is added to *schemas*."""
    if message.name not in schemas:
        properties = schemas[message.name] = {"type": "object", "properties": {}}
        properties["properties"] = {
            each.name: _type_of(each, schemas) for each in message.fields
        }
    return {"$ref": f"#/components/schemas/{message.name}"}


def _type_of(field: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    inner = field.message_type
    if inner is not None and inner.GetOptions().map_entry:
        values = _type_of(inner.fields_by_name["value"], schemas)
        return {"type": "object", "additionalProperties": values}
    if inner is not None:
        one = _reference(inner, schemas)
    elif field.enum_type is not None:
        names = [each.name for each in field.enum_type.values]
        one = {"type": "string", "enum": names}
    elif field.type == FieldDescriptor.TYPE_BYTES:
        one = {"type": "string", "format": "byte"}
    else:
        one = _TYPES[field.cpp_type]
    return {"type": "array", "items": one} if field.is_repeated else one
