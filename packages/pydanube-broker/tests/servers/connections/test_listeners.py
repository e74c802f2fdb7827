"""Listeners bind all their ports or none."""

import asyncio
import socket

import pytest

from pydanube.model.errors import InvalidConfig
from pydanube_broker.servers.connections.listeners import accepting


async def test_port_is_free_again_if_the_other_is_taken():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        async with accepting(
            asyncio.Protocol, "127.0.0.1", 0, name="X", flag="--x-port"
        ) as free:
            pass
        with pytest.raises(InvalidConfig, match=r"for X: .* with --x-port"):
            async with accepting(
                asyncio.Protocol,
                "127.0.0.1",
                port,
                name="X",
                flag="--x-port",
                own_port=free,
            ):
                pytest.fail("the port is taken")
        with socket.create_server(("127.0.0.1", free)):
            pass
