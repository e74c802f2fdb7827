"""The address of the server over HTTP, and the rules for it.  Pure."""

from __future__ import annotations

from collections.abc import Iterable

from pydanube.model.errors import InvalidRequest
from pydanube.security.addresses import host_in_url, is_loopback

LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")


def check_exposure(host: str, *, uses_tls: bool, may_be_plain: bool) -> bool:
    """
    Return whether requests need credentials: those from other machines do.

    Raises:
        InvalidRequest: They would be sent to other machines without TLS.
    """
    if is_loopback(host):
        return False
    if not uses_tls and not may_be_plain:
        raise InvalidRequest(
            f"{host} can be reached from other machines, which would send their "
            "credentials without encryption: give --certificate-file and --key-file, "
            "or --allow-plaintext-credentials if a proxy encrypts"
        )
    return True


def allowed_hosts(host: str, port: int, named: Iterable[str]) -> list[str]:
    """Return the values of the Host header that requests may have."""
    names = [*LOOPBACK_NAMES, host_in_url(host), *named]
    with_ports = [each if _has_port(each) else f"{each}:{port}" for each in names]
    # A proxy may use the usual port of HTTPS, which the header leaves out.
    return list(dict.fromkeys([*with_ports, *named]))


def _has_port(name: str) -> bool:
    return name.rpartition(":")[2].isdecimal() and not name.endswith("]")
