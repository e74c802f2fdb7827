"""The HTTP application; it asks the broker and holds no logic of its own."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Protocol

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from pydanube.model.version import __version__
from pydanube.servers.errors import http_status_of
from pydanube.servers.http.api import api
from pydanube.servers.http.responses import on_http_error
from pydanube.servers.http.same_origin import SameOriginMiddleware

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from starlette.requests import Request

    from pydanube.broker.broker import Broker
    from pydanube.model.errors import BrokerError
    from pydanube.model.metrics import Sample


class BrokerState(Protocol):
    """What the HTTP server needs to know of a broker; asked on the broker's loop."""

    def why_not_ready(self) -> BrokerError | None:
        """Why no topics are served at the moment, or None if they are."""

    def problems(self) -> Sequence[str]:
        """What is not well although topics are served."""

    def samples(self) -> Iterable[Sample]:
        """What the broker counts, at this moment and without waiting."""

    def broker(self) -> Broker:
        """
        The broker.

        Raises:
            Unavailable: There is none yet.
        """


PLACES = {
    "/healthz": "Whether the process is alive: always 200 while it answers.",
    "/readyz": (
        "Whether topics are served: 200 with what is not well, or 503 with the reason."
    ),
    "/metrics": "What is counted, for Prometheus.",
}
"""What is here, as the page at ``/`` says it."""


def make_app(state: BrokerState, hosts: Iterable[str] = ()) -> Starlette:
    """
    The application of the HTTP server over a broker's *state*.

    *hosts* are the names with dots under which it is reached; see ``guard``.
    """

    async def healthz(_: Request) -> Response:
        return JSONResponse({"alive": True})

    async def readyz(_: Request) -> Response:
        reason = state.why_not_ready()
        if reason is None:
            problems = list(state.problems())
            return JSONResponse(
                {"ready": True, "problems": problems} if problems else {"ready": True}
            )
        return JSONResponse(
            {"ready": False, "code": reason.code, "message": str(reason)},
            status_code=http_status_of(reason),
        )

    async def metrics(request: Request) -> Response:
        # Imported by the first scrape: starting a broker does not wait for it.
        from pydanube.servers.http.exposition import expose  # noqa: PLC0415

        body, content_type = expose(state.samples(), request.headers.get("accept", ""))
        # As a header, because a media type would be given a second charset.
        return Response(body, headers={"content-type": content_type})

    async def index(_: Request) -> Response:
        return HTMLResponse(_index_page())

    return Starlette(
        routes=[
            Route("/", index),
            Route("/healthz", healthz),
            Route("/readyz", readyz),
            Route("/metrics", metrics),
            api(state.broker),
        ],
        middleware=[Middleware(SameOriginMiddleware, hosts=hosts)],
        exception_handlers={HTTPException: on_http_error},
    )


def _index_page() -> str:
    rows = "\n".join(
        f'<dt><a href="{path}">{path}</a></dt><dd>{escape(meaning)}</dd>'
        for path, meaning in PLACES.items()
    )
    return f"""<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>pydanube broker</title></head>
<body style="font-family: sans-serif; max-width: 40em; margin: 3em auto">
<h1>pydanube broker {__version__}</h1>
<p>Messages do not come through this port: clients connect to the port of the
native protocol, 6651 unless the broker was told otherwise.</p>
<dl>
{rows}
</dl>
<p>Administrators find a JSON API below <code>/api/v1</code>.</p>
</body>
</html>
"""
