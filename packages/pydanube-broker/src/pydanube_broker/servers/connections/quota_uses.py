"""The use of quotas by a connection whose requests each have their own credentials."""

from __future__ import annotations

from pydanube.security.principals import Principal
from pydanube_broker.broker.governance.quotas import Quotas
from pydanube_broker.dispatch.quota_meter import QuotaMeter


class QuotaUses:
    """
    The principals that use one connection.

    A connection counts for each of them from its first request on.
    """

    def __init__(self) -> None:
        self._meters: dict[str, QuotaMeter] = {}

    def admit(self, quotas: Quotas, principal: Principal) -> QuotaMeter:
        """
        Return the meter of a request's principal.

        Raises:
            QuotaExceeded: It has as many connections as allowed, without this one.
        """
        meter = self._meters.get(principal.name)
        if meter is None:
            meter = quotas.of_principal(principal)
            meter.connect()
            self._meters[principal.name] = meter
        return meter

    def leave(self) -> None:
        """Release the connection, which was lost."""
        for meter in self._meters.values():
            meter.disconnect()
        self._meters.clear()
