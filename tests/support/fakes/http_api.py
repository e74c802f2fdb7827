"""The JSON API over a whole broker of this process."""

from __future__ import annotations

from dataclasses import dataclass

import httpx

from pydanube.model.errors import Unavailable
from pydanube.model.metrics import SERIES_MAX
from pydanube_broker.servers.http.app import make_app


@dataclass
class State:
    """What the HTTP server knows of a broker."""

    found: object = None
    ports = None
    series_max = SERIES_MAX
    processes = None

    def problems(self):
        return ()

    def why_not_ready(self):
        return None

    async def samples(self, pattern=None):
        return ()

    def broker(self):
        if self.found is None:
            raise Unavailable("the broker is starting")
        return self.found


class Api:
    """Asks the API, and the broker by a client."""

    def __init__(self, http, client):
        self.http = http
        self.client = client

    async def ask(self, method, path, body=None, status=200, **options):
        """The answer, which must have this status."""
        answer = await self.http.request(method, f"/api/v1{path}", json=body, **options)
        assert answer.status_code == status, answer.text
        if not answer.content:
            return None
        assert answer.headers["content-type"] == "application/json"
        return answer.json()

    async def get(self, path, status=200):
        return await self.ask("GET", path, status=status)

    async def post(self, operation, status=200, **fields):
        """Ask for an operation."""
        return await self.ask("POST", f"/{operation}", fields, status)

    async def published(self, topic, *payloads):
        async with self.client.producer(topic) as producer:
            await producer.send_batch(payloads)


def http_of(state, **options):
    transport = httpx.ASGITransport(make_app(state, **options))
    return httpx.AsyncClient(transport=transport, base_url="http://broker")
