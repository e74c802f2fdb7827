"""The HTTP server: health, readiness, metrics and the JSON API."""

from pydanube.servers.http.app import BrokerState
from pydanube.servers.http.server import open_http

__all__ = ["BrokerState", "open_http"]
