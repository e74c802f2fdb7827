"""
A client and workers in the lifespan of an ASGI application: FastAPI, Starlette.

    app = FastAPI(lifespan=pydanube.asgi.lifespan("danube://127.0.0.1:6651"))

    @app.post("/orders")
    async def order(request: Request):
        async with request.app.state.danube.producer("/default/orders") as producer:
            await producer.send(await request.body())

The module needs neither of the two: it only uses ``app.state``.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from types import FrameType
from typing import Any, TypedDict, Unpack

from pydanube.client.client import connect
from pydanube.client.workers.client_parts import STOP_TIMEOUT_S
from pydanube.client.workers.workers import Workers

Lifespan = Callable[[Any], AbstractAsyncContextManager[None]]


class ConnectKeywords(TypedDict, total=False):
    """The options of ``pydanube.connect``."""

    token: str
    wait_s: float
    connect_timeout_s: float
    close_timeout_s: float
    retry_s: float


def lifespan(
    url: str | None = None,
    *,
    workers: Workers | None = None,
    stop_timeout_s: float = STOP_TIMEOUT_S,
    **options: Unpack[ConnectKeywords],
) -> Lifespan:
    """
    Return a lifespan that connects a client, and runs workers, for an application.

    While the application runs, ``app.state.danube`` is the client and
    ``app.state.danube_workers`` the ``RunningWorkers``, or None if there are none.  A
    worker that can receive no more messages logs the error and sets
    ``app.state.danube_workers.failure``; the application continues.

    A server waits for the responses that run before it ends the lifespan, and those
    that follow a topic have no end.  At the signal that ends the server, such as
    SIGTERM or SIGINT, the client therefore ends all ``read`` with *follow*, after the
    messages that they have.  It notices signals in the main thread, where servers
    handle them.

    Args:
        url: As for ``pydanube.connect``.
        workers: The workers to run in the event loop of the application.
        stop_timeout_s: How long the shutdown waits for calls of workers; see
            ``Client.run_workers``.
        options: Further options of ``pydanube.connect``.

    Raises, when the application starts: As ``pydanube.connect`` and
        ``Client.consumer``.
    """

    @asynccontextmanager
    async def run(app: Any) -> AsyncIterator[None]:
        async with connect(url, **options) as client:
            app.state.danube = client
            app.state.danube_workers = None
            with _at_signals(client.requester.stop_following):
                if workers is None:
                    yield
                    return
                async with client.running_workers(
                    workers, stop_timeout_s=stop_timeout_s
                ) as running:
                    app.state.danube_workers = running
                    yield

    return run


@contextmanager
def _at_signals(act: Callable[[], None]) -> Iterator[None]:
    """During the body, call *act* in this loop when the server is told to end."""
    loop = asyncio.get_running_loop()
    handled: list[tuple[int, Any, Any]] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        before = signal.getsignal(number)
        if not callable(before):
            # The server does not handle it: the signal ends the process, or nothing.
            continue

        def handle(number: int, frame: FrameType | None, before: Any = before) -> None:
            # Another handler on top of this one may call it after the body.
            if not loop.is_closed():
                loop.call_soon_threadsafe(act)
            before(number, frame)

        with suppress(ValueError):  # In another thread than the main one.
            signal.signal(number, handle)
            handled.append((number, handle, before))
    try:
        yield
    finally:
        for each, handler, before in handled:
            if signal.getsignal(each) is handler:
                signal.signal(each, before)
