"""Middleware that ends requests whose client has gone."""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Receive, Scope, Send

READING_REQUEST = "reading_request"
"""The entry of the state of requests with the ``ReadingRequest`` of the connection."""

_READING = frozenset({"GET", "HEAD"})


class ReadingRequest:
    """The request of one connection that changes nothing, if it has one."""

    def __init__(self) -> None:
        self.task: asyncio.Task[object] | None = None
        self.is_lost = False
        """Whether the connection was lost."""

    def lose(self) -> None:
        """End the request, because the connection was lost."""
        self.is_lost = True
        if self.task is not None:
            self.task.cancel()


class DisconnectMiddleware:
    """
    Cancels requests that change nothing when their connection is lost.

    Other requests finish what they have begun.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Carry out a request until its end, or until its client is gone; see ASGI."""
        reading: ReadingRequest | None = scope.get("state", {}).get(READING_REQUEST)
        task = asyncio.current_task()
        if reading is None or task is None or scope["method"] not in _READING:
            await self._app(scope, receive, send)
            return
        reading.task = task
        try:
            await self._app(scope, receive, send)
        except asyncio.CancelledError:
            if not reading.is_lost or task.uncancel():
                raise
        finally:
            reading.task = None
