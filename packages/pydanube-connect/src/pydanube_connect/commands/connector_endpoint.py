"""
The HTTP endpoint of connectors that run: health, metrics, status, and control.

``GET /health``, ``/metrics`` and ``/status`` are for everybody who reaches the port.
``GET /connectors/NAME/logs`` and ``POST /connectors/NAME/pause``, ``resume`` and
``restart`` need the token of the run.  The token is in a file, which only the user who
started the run can read.
"""

from __future__ import annotations

import hmac
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from pydanube.aio.exposition import expose
from pydanube.aio.http_server import config_of, listener_at, serving
from pydanube.model.errors import Conflict, NotFound
from pydanube.model.metrics import SERIES_MAX
from pydanube.security.addresses import host_in_url, parse_listen
from pydanube_connect.run_metrics import samples_of
from pydanube_connect.running import ConnectorRuns
from pydanube_connect.status import ConnectorStatus, State

CONNECTIONS_MAX = 100
STOP_S = 2
NUMBER_DIGITS_MAX = 18

ACTIONS: dict[str, Callable[[ConnectorRuns, str], ConnectorStatus]] = {
    "pause": ConnectorRuns.pause,
    "resume": ConnectorRuns.resume,
    "restart": ConnectorRuns.restart,
}


class Endpoint:
    """The endpoint of one run."""

    def __init__(self, runs: ConnectorRuns, token: str) -> None:
        self._runs = runs
        self._token = token

    def app(self) -> Starlette:
        """Return the application."""
        return Starlette(
            routes=[
                Route("/health", self.health),
                Route("/metrics", self.metrics),
                Route("/status", self.status),
                Route("/connectors/{name}/logs", self.logs),
                Route("/connectors/{name}/{action}", self.act, methods=["POST"]),
            ]
        )

    async def health(self, _: Request) -> Response:
        """Answer the state of each connector, and 503 if one is failed or degraded."""
        now = _now()
        states = {
            each.connector: "degraded" if each.is_degraded(now) else each.state.value
            for each in self._runs.statuses
        }
        is_ill = not {"degraded", State.FAILED.value}.isdisjoint(states.values())
        return JSONResponse(states, 503 if is_ill else 200)

    async def metrics(self, request: Request) -> Response:
        """Answer the metrics for Prometheus."""
        accept = request.headers.get("accept", "")
        samples = samples_of(self._runs.statuses, _now())
        body, content_type = await expose(samples, accept, SERIES_MAX)
        return Response(body, headers={"content-type": content_type})

    async def status(self, _: Request) -> Response:
        """Answer the status of each connector."""
        return _json(self._runs.statuses)

    async def logs(self, request: Request) -> Response:
        """Answer the last lines of a connector, after the number ``after``."""
        if not self._is_allowed(request):
            return _refused()
        after = request.query_params.get("after", "0")
        if not after.isdecimal() or len(after) > NUMBER_DIGITS_MAX:
            return JSONResponse({"error": "'after' is no number of a line"}, 400)
        try:
            return _json(self._runs.log_lines(request.path_params["name"], int(after)))
        except NotFound as error:
            return JSONResponse({"error": str(error)}, 404)

    def _is_allowed(self, request: Request) -> bool:
        given = request.headers.get("authorization", "")
        return hmac.compare_digest(given.encode(), f"Bearer {self._token}".encode())

    async def act(self, request: Request) -> Response:
        """Pause, resume or restart a connector."""
        if not self._is_allowed(request):
            return _refused()
        action = ACTIONS.get(request.path_params["action"])
        if action is None:
            return JSONResponse({"error": "there is no such action"}, 404)
        try:
            return _json(action(self._runs, request.path_params["name"]))
        except NotFound as error:
            return JSONResponse({"error": str(error)}, 404)
        except Conflict as error:
            return JSONResponse({"error": str(error)}, 409)


def _now() -> int:
    """Return microseconds since 1970."""
    return time.time_ns() // 1000


def _refused() -> Response:
    return JSONResponse({"error": "this needs the token of the run"}, 401)


def _json(value: Any) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")


@asynccontextmanager
async def serving_endpoint(
    runs: ConnectorRuns, token: str, listen: str
) -> AsyncIterator[str]:
    """
    Serve the endpoint of *runs* at *listen* during the body; yield its URL.

    Raises:
        InvalidConfig: *listen* is not an address.
        Conflict: Another process listens there, or the host has no such address.
    """
    host, port = parse_listen(listen)
    try:
        listener = listener_at(host, port)
    except OSError as error:
        raise Conflict(
            f"connectors cannot be shown at {listen}: {error.strerror or error}"
        ) from None
    config = config_of(
        Endpoint(runs, token).app(),
        http="h11",
        limit_concurrency=CONNECTIONS_MAX,
        timeout_graceful_shutdown=STOP_S,
    )
    number = listener.getsockname()[1]
    async with serving(config, listener):
        yield f"http://{host_in_url(host)}:{number}"
