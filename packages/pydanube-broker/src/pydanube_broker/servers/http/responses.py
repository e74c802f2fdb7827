"""Responses of the JSON API."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from pydanube.model.errors import BrokerError, InvalidRequest, NotFound
from pydanube_broker.servers.connections.errors import http_status_of

JSON = "application/json"


def json_response(value: object, status: int = 200) -> Response:
    """Return *value* as JSON; dataclasses become objects and enums their values."""
    return Response(msgspec.json.encode(value), status, media_type=JSON)


def error_response(error: BrokerError) -> Response:
    """Return the response for a request that failed with *error*."""
    return Response(error_body(error), http_status_of(error), media_type=JSON)


def error_body(error: BrokerError) -> bytes:
    """Return the JSON with the code and the message of *error*."""
    return msgspec.json.encode({"code": error.code, "message": str(error)})


async def on_http_error(request: Request, error: Exception) -> Response:
    """Return the response for an unknown path or a method that is not allowed."""
    status = getattr(error, "status_code", 500)
    kind = NotFound if status == 404 else InvalidRequest
    message = f"{getattr(error, 'detail', error)}: {request.method} {request.url.path}"
    headers = getattr(error, "headers", None)
    body = msgspec.json.encode({"code": kind.code, "message": message})
    return Response(body, status, headers, media_type=JSON)
