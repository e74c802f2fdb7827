"""The JSON API: everything an administrator may ask or decide, below ``/api/v1``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import Mount

from pydanube.servers.http.answers import on_http_error
from pydanube.servers.http.namespaces import NamespaceApi
from pydanube.servers.http.schemas import SchemaApi
from pydanube.servers.http.subscriptions import SubscriptionApi
from pydanube.servers.http.topics import TopicApi

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydanube.broker.broker import Broker


def api(broker: Callable[[], Broker]) -> Mount:
    """
    The API over what *broker* gives.

    It is called for each request, and raises what the request is answered with while
    there is none.
    """
    routes = [
        *NamespaceApi(broker).routes(),
        *TopicApi(broker).routes(),
        *SubscriptionApi(broker).routes(),
        *SchemaApi(broker).routes(),
    ]
    return Mount(
        "/api/v1",
        Starlette(routes=routes, exception_handlers={HTTPException: on_http_error}),
    )
