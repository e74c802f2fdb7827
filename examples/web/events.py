"""
Server-sent events: a browser follows a topic, and continues where it was interrupted.

    pip install pydanube starlette uvicorn
    uvicorn events:app
    curl -N http://127.0.0.1:8000/events?topic=/default/orders

The id of an event is the offset of its message.  A browser whose connection breaks
sends the last id that it has seen as ``Last-Event-ID``.
"""

from collections.abc import AsyncIterator
from typing import Literal

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

import pydanube
import pydanube.asgi


async def follow(
    client: pydanube.Client, topic: str, last: str | None
) -> AsyncIterator[str]:
    start: int | Literal["latest"] = "latest" if last is None else int(last) + 1
    async for batch in client.read(topic, start=start, follow=True):
        for message in batch:
            lines = message.payload.decode(errors="replace").splitlines() or [""]
            data = "".join(f"data: {line}\n" for line in lines)
            yield f"id: {message.offset}\n{data}\n"


async def events(request: Request) -> StreamingResponse:
    last = request.headers.get("last-event-id")
    topic = request.query_params["topic"]
    return StreamingResponse(
        follow(request.app.state.danube, topic, last),
        media_type="text/event-stream",
        headers={"cache-control": "no-store"},
    )


app = Starlette(
    routes=[Route("/events", events)], lifespan=pydanube.asgi.lifespan(wait_s=30)
)
