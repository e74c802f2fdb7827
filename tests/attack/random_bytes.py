"""Random bytes, and bytes of other protocols, on every port of the broker."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

    from attack.target import Target

CONNECTIONS = 20
BYTES_MAX = 20_000
READ_TIMEOUT_S = 0.05
FOREIGN_PREFACES = (
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"SSH-2.0-OpenSSH_9.6\r\n",
    b"PROXY TCP4 127.0.0.1 127.0.0.1 1 2\r\n",
    b"",
)


async def attack(target: Target, rng: Random) -> None:
    """Open connections, send random bytes, and close or abort."""
    ports = (
        target.broker.stream_port,
        target.broker.grpc_port,
        target.broker.admin_port,
        target.broker.http_port,
        target.broker.mqtt_port,
    )
    for _ in range(CONNECTIONS):
        await _connect_and_send(rng.choice(ports), rng)


async def _connect_and_send(port: int, rng: Random) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(rng.choice(FOREIGN_PREFACES))
        writer.write(rng.randbytes(rng.randrange(BYTES_MAX)))
        await writer.drain()
        async with asyncio.timeout(READ_TIMEOUT_S):
            await reader.read(1)
    except (ConnectionError, TimeoutError):
        pass
    finally:
        if rng.random() < 0.5:
            writer.transport.abort()
        else:
            writer.close()
