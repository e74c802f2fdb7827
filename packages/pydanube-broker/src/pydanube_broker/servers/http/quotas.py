"""Middleware that charges requests to the quotas of their principals."""

from __future__ import annotations

from collections.abc import Callable

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from pydanube.model.errors import BrokerError, QuotaExceeded, Unavailable
from pydanube.security.principals import ANONYMOUS
from pydanube_broker.broker.broker import Broker
from pydanube_broker.dispatch.quota_meter import QuotaMeter
from pydanube_broker.operations.quota_holds import wait_for_quota
from pydanube_broker.servers.connections.quota_uses import QuotaUses
from pydanube_broker.servers.http.authentication import PUBLIC_PATHS
from pydanube_broker.servers.http.forwarding import FORWARDED

QUOTA_USES = "quota_uses"
"""The entry of the state of requests with the ``QuotaUses`` of the connection."""
HOLD_S_MAX = 10.0
"""Requests that would have to wait for longer are refused: a connection that gets no
answer for 30 s is closed."""


class QuotaMiddleware:
    """The quotas in front of an application, behind the verification of credentials."""

    def __init__(
        self,
        app: ASGIApp,
        broker: Callable[[], Broker],
        on_error: Callable[[str, BrokerError], Response],
    ) -> None:
        """*on_error* is the response to a path when a quota is exceeded."""
        self._app = app
        self._broker = broker
        self._on_error = on_error

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request wait, or answer that a quota is exceeded; see ASGI."""
        if scope["path"] not in PUBLIC_PATHS:
            try:
                if (meter := self._meter_of(scope)) is not None:
                    await _wait(meter, self._broker().quotas.now())
            except BrokerError as error:
                await self._on_error(scope["path"], error)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _meter_of(self, scope: Scope) -> QuotaMeter | None:
        state = scope.setdefault("state", {})
        try:
            quotas = self._broker().quotas
        except Unavailable:
            # The broker is starting, as the application will answer.
            return None
        proof = dict(scope["headers"]).get(FORWARDED.encode(), b"")
        if quotas.shared.is_proof(proof):
            # The process that forwards the request has charged it.
            return None
        principal = state.get("principal", ANONYMOUS)
        uses: QuotaUses | None = state.get(QUOTA_USES)
        if uses is None:
            return quotas.of_principal(principal)
        return uses.admit(quotas, principal)


async def _wait(meter: QuotaMeter, now: float) -> None:
    if meter.requests is None:
        return
    held_s = meter.delay_request_s(now)
    if held_s > HOLD_S_MAX:
        meter.on_refused("requests_per_s")
        raise QuotaExceeded(
            f"the quota requests_per_s of {meter.target} is "
            f"{meter.quota.requests_per_s}, and requests wait already: try again in "
            f"{held_s:.0f} s"
        )
    delay_s = meter.take_request(now)
    if delay_s > 0:
        await wait_for_quota(delay_s, meter.delay_request_s)
