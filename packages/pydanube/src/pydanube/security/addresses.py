"""Addresses to listen on, and those that only the same machine can reach."""

from __future__ import annotations

import re
from ipaddress import ip_address, ip_network

from pydanube.model.errors import InvalidConfig

_PORT_MAX = 65535


def is_loopback(host: str) -> bool:
    """Return whether *host*, a name or an address, is always the machine's own."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def host_in_url(host: str) -> str:
    """Return *host* in the form for URLs."""
    return f"[{host}]" if ":" in host else host


def parse_listen(text: str) -> tuple[str, int]:
    """
    Return the host and the port of ``HOST:PORT``.

    Raises:
        InvalidConfig: *text* is no such address.
    """
    found = re.fullmatch(r"\[?([^\[\]]+)\]?:(\d{1,5})", text)
    if found is None or int(found[2]) > _PORT_MAX:
        raise InvalidConfig(f"{text!r} is not an address such as 127.0.0.1:9400")
    return found[1], int(found[2])


def parse_proxies(text: str) -> tuple[str, ...]:
    """
    Return the addresses and networks in *text*, which has commas between them.

    Raises:
        InvalidConfig: One is neither.
    """
    found = [each.strip() for each in text.split(",") if each.strip()]
    for each in found:
        try:
            ip_network(each)
        except ValueError:
            raise InvalidConfig(
                "trusted_proxies: expected addresses and networks with commas between "
                f"them, such as 127.0.0.1,10.0.0.0/8, got {each!r}"
            ) from None
    return tuple(found)
