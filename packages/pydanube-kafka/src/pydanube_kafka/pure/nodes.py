"""The brokers of a cluster as Kafka clients know them: numbers, hosts and ports."""

from __future__ import annotations

from crc32c import crc32c

from pydanube.model.lazy_dataclasses import dataclass

ALONE = 0
"""The number of a broker that is in no cluster."""
NOBODY = -1
"""The number that stands for no broker."""
_NUMBER_END = 2**31


@dataclass(frozen=True, slots=True)
class Node:
    """A broker that clients can connect to."""

    number: int
    host: str
    port: int


def number_of(broker_id: str) -> int:
    """
    Return the number of a broker of a cluster, which is the same in all brokers.

    Two of 100 brokers have the same number with a probability of 1 to 400,000.
    """
    checksum: int = crc32c(broker_id.encode())
    return 1 + checksum % (_NUMBER_END - 1)


def shard_of(key: str, shard_count: int) -> int:
    """Return the shard whose owner coordinates a group or a transactional id."""
    checksum: int = crc32c(key.encode())
    return checksum % shard_count


def parse_address(address: str, default_port: int) -> tuple[str, int]:
    """Return the host and the port of an address, which may lack a port."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit():
        return address.strip("[]"), default_port
    return host.strip("[]"), int(port)
