"""The HTTP server: is the broker alive, is it ready, its numbers, and the JSON API."""

from pydanube.servers.http.app import BrokerState
from pydanube.servers.http.server import open_http

__all__ = ["BrokerState", "open_http"]
