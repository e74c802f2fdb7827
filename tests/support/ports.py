"""Ports for servers that a test starts more than once."""

import socket
from random import SystemRandom

RANGE = range(10_240, 32_768)
"""Below the ports that the system gives to outgoing connections: one of those might
take the port of a server while it is down."""


def free_port() -> int:
    """Return a port of the loopback interface that nothing uses."""
    while True:
        port = SystemRandom().choice(RANGE)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
