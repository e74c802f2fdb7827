"""
The refusal of requests that web pages of other sites cause.

A server on somebody's machine can be reached by any web page in a browser there.  Three
checks prevent that a page uses it:

- The Host header must be an address or a known name.  This stops DNS rebinding, where
  an attacker points the name of a web page to this machine.
- The Origin header, which browsers send with requests that change something, must be
  the server's own.
- ``Sec-Fetch-Site`` must not be ``cross-site``, unless the user follows a link.

Other clients do not send the last two headers, and use an address or a configured name.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address

from pydanube.model.errors import BrokerError, InvalidRequest, PermissionDenied

ANY_HOST = "*"
_SHOWN_MAX = 100


class SameOrigin:
    """The checks of one server."""

    def __init__(self, hosts: Iterable[str], *, remedy: str) -> None:
        """
        Accept *hosts*, addresses and names without a dot as names of the server.

        *remedy* says how to add a name.
        """
        self._hosts = frozenset(host.lower().rstrip(".") for host in hosts if host)
        self._remedy = remedy

    def refusal(
        self, method: str, scheme: str, headers: Iterable[tuple[bytes, bytes]]
    ) -> BrokerError | None:
        """
        Return the error for a request that is refused, or None.

        *scheme* is ``http`` or ``https``, also for a WebSocket.
        """
        fields: dict[bytes, str] = {}
        for name, value in headers:
            if name in (b"host", b"origin") and name in fields:
                return InvalidRequest(
                    f"the request has several {name.decode()} headers"
                )
            fields[name] = value.decode("latin-1")
        host = fields.get(b"host", "")
        # Only HTTP/1.0 allows a request without Host, and no browser speaks it.
        if host and not self._is_known(host):
            return PermissionDenied(
                f"the Host header names {host[:_SHOWN_MAX]!r}, which is not a known "
                f"name of this server: use its address, or {self._remedy}"
            )
        origin = fields.get(b"origin")
        if origin is not None and origin.lower() != f"{scheme}://{host}".lower():
            return PermissionDenied(
                f"the Origin header is {origin[:_SHOWN_MAX]!r}: requests from web "
                "pages of other sites are not allowed"
            )
        if fields.get(b"sec-fetch-site") == "cross-site" and not (
            method == "GET"
            and fields.get(b"sec-fetch-mode") == "navigate"
            and fields.get(b"sec-fetch-dest") == "document"
        ):
            return PermissionDenied(
                "the Sec-Fetch-Site header is 'cross-site': requests from web pages of "
                "other sites are not allowed"
            )
        return None

    def _is_known(self, host: str) -> bool:
        name = _name_of(host)
        # A name without a dot is not in the public DNS, so no attacker owns one.
        return (
            _is_address(name)
            or "." not in name
            or name in self._hosts
            or ANY_HOST in self._hosts
        )


def _name_of(host: str) -> str:
    """Return the host of a Host header without port, brackets and last dot."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].lower().rstrip(".")


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
