"""A client that outlives the request that it was opened for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from pydanube.client.client import Client, connect
from pydanube.model.errors import Unavailable
from pydanube.security.api_keys import KEY_PREFIX


class HeldClient:
    """
    A client with some credentials, which the task ``run`` owns until ``release``.

    Servers keep one for each of their users, who come and go with their requests.
    """

    def __init__(
        self,
        url: str,
        credentials: str = "",
        *,
        check: Callable[[Client], Awaitable[None]] | None = None,
        **options: Any,
    ) -> None:
        """
        Prepare to connect to *url*.

        Args:
            url: As for ``connect``.
            credentials: An API key or a token; empty: those of this process.
            check: Called with the new client; what it raises, ``get`` raises.
            options: Further arguments of ``connect``.
        """
        is_key = credentials.startswith(KEY_PREFIX)
        self._url = url
        self._options: dict[str, Any] = {
            **options,
            "api_key": credentials if is_key else "",
            "token": "" if is_key else credentials,
        }
        self._check = check
        self._client: asyncio.Future[Client] = (
            asyncio.get_running_loop().create_future()
        )
        self._released = asyncio.Event()

    async def run(self) -> None:
        """Connect, and stay connected until ``release``; ``get`` raises failures."""
        try:
            async with connect(self._url, **self._options) as client:
                if self._check is not None:
                    await self._check(client)
                self._client.set_result(client)
                await self._released.wait()
        except Exception as error:  # noqa: BLE001  # Those who wait for it raise it.
            self._fail(error)
        finally:
            self._fail(Unavailable("the client was closed before it had connected"))

    async def get(self) -> Client:
        """
        Return the client when it has connected.

        Cancellation: The client stays.

        Raises: As ``connect``, and as *check*.
        """
        return await asyncio.shield(self._client)

    def release(self) -> None:
        """Let the client disconnect."""
        self._released.set()

    def _fail(self, error: Exception) -> None:
        if not self._client.done():
            self._client.set_exception(error)
            # Perhaps no task is waiting for it, and asyncio must not log it.
            self._client.exception()
