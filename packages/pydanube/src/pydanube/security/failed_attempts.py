"""The limit of failed attempts to authenticate, by address."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address

ATTEMPTS_MAX = 20
"""The failed attempts of an address at once."""
ATTEMPTS_PER_S = 1.0
"""The failed attempts of an address that are forgotten per second.  Clients that try
again regularly wait longer, so they do not keep others at their address out."""
ADDRESSES_MAX = 10_000


class FailedAttempts:
    """
    The recent failed attempts of each address.

    Bounds: It remembers ``ADDRESSES_MAX`` addresses, and forgets the one whose last
        failure is longest ago first.  The addresses of a network of IPv6 (/64) count as
        one.
    """

    def __init__(
        self,
        *,
        attempts_max: int = ATTEMPTS_MAX,
        attempts_per_s: float = ATTEMPTS_PER_S,
    ) -> None:
        self._attempts_max = attempts_max
        self._attempts_per_s = attempts_per_s
        # The attempts at a time, in the order of the last failures.
        self._failures: dict[str, tuple[float, float]] = {}

    def wait_s(self, address: str, now: float) -> float:
        """Return for how long no attempt from *address* is allowed; 0: it is."""
        excess = self._count(network_of(address), now) - (self._attempts_max - 1)
        return max(0.0, excess / self._attempts_per_s)

    def add(self, address: str, now: float) -> None:
        """Record a failed attempt."""
        network = network_of(address)
        count = self._count(network, now) + 1
        self._failures.pop(network, None)
        self._failures[network] = count, now
        if len(self._failures) > ADDRESSES_MAX:
            del self._failures[next(iter(self._failures))]

    def __len__(self) -> int:
        return len(self._failures)

    def _count(self, network: str, now: float) -> float:
        count, at = self._failures.get(network, (0.0, now))
        return max(0.0, count - max(0.0, now - at) * self._attempts_per_s)


def network_of(address: str) -> str:
    """Return *address*, or its network (/64) if it is one of IPv6."""
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        return parsed.exploded[:19]
    return str(parsed)
