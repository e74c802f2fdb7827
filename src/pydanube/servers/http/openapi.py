"""The OpenAPI document of the JSON API, derived from its endpoints."""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import NoneType
from typing import Any, get_type_hints

import msgspec

from pydanube.model.version import __version__
from pydanube.servers.http.endpoints import Endpoint
from pydanube.servers.http.responses import JSON

_ERROR = {
    "type": "object",
    "required": ["code", "message"],
    "properties": {"code": {"type": "string"}, "message": {"type": "string"}},
}


def openapi_document(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document that describes *endpoints*."""
    kinds = {kind for each in endpoints for kind in (each.body, _answer_of(each))}
    ordered = sorted(kinds - {None}, key=str)
    references, schemas = msgspec.json.schema_components(
        ordered, ref_template="#/components/schemas/{name}"
    )
    schema_of = dict(zip(ordered, references, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for each in endpoints:
        operation = _operation(each, schema_of.get(_answer_of(each)))
        if each.body is not None:
            content = {JSON: {"schema": schema_of[each.body]}}
            operation["requestBody"] = {"required": True, "content": content}
        paths.setdefault(each.path, {})[each.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "pydanube broker", "version": __version__},
        "servers": [{"url": "/api/v1"}],
        "paths": paths,
        "components": {"schemas": {**schemas, "Error": _ERROR}},
    }


def _answer_of(endpoint: Endpoint) -> Any:
    """Return the type of the response; Any if it depends on the request."""
    answer = get_type_hints(endpoint.handler)["return"]
    return {object: Any, NoneType: None}.get(answer, answer)


def _operation(endpoint: Endpoint, schema: dict[str, Any] | None) -> dict[str, Any]:
    [permission] = {
        kind.permission.value for kind in endpoint.operations if kind.permission
    }
    summary, _, description = (endpoint.handler.__doc__ or "").partition("\n\n")
    path = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"{(\w+)}", endpoint.path)
    ]
    query = [
        {"name": name, "in": "query", "schema": {"type": "string"}}
        for name in endpoint.query
    ]
    answer: dict[str, Any] = {"description": "The request succeeded."}
    if schema is not None:
        answer["content"] = {JSON: {"schema": schema}}
    error = {"$ref": "#/components/schemas/Error"}
    return {
        "operationId": endpoint.handler.__name__,
        "summary": summary.strip(),
        "description": " ".join(description.split()),
        "x-permission": permission,
        "parameters": [*path, *query],
        "responses": {
            str(endpoint.status): answer,
            "default": {
                "description": "The request failed.",
                "content": {JSON: {"schema": error}},
            },
        },
    }
