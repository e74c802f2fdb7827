"""The JSON API for administrators, below ``/api/v1``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import Mount, Route

from pydanube.servers.http.namespaces import NAMESPACES
from pydanube.servers.http.openapi import openapi_document
from pydanube.servers.http.responses import json_response, on_http_error
from pydanube.servers.http.schemas import SCHEMAS
from pydanube.servers.http.subscriptions import SUBSCRIPTIONS
from pydanube.servers.http.topics import TOPICS

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request
    from starlette.responses import Response

    from pydanube.broker.broker import Broker

ENDPOINTS = [*NAMESPACES, *TOPICS, *SUBSCRIPTIONS, *SCHEMAS]


def api(broker: Callable[[], Broker]) -> Mount:
    """
    Return the API over the broker that *broker* returns.

    *broker* is called for each request.  If it raises, that error is the response.
    """

    async def openapi(_: Request) -> Response:
        return json_response(openapi_document(ENDPOINTS))

    routes = [
        Route("/openapi.json", openapi),
        *(each.route(broker) for each in ENDPOINTS),
    ]
    return Mount(
        "/api/v1",
        Starlette(routes=routes, exception_handlers={HTTPException: on_http_error}),
    )
