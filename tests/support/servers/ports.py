"""Ports for servers that a test starts more than once."""

import os
import socket
from random import SystemRandom

RANGE = range(10_240, 32_768)
"""Below the ports that the system gives to outgoing connections: one of those might
take the port of a server while it is down."""
WORKERS_MAX = 8
"""As many worker processes of the tests have ports of their own."""

_given: set[int] = set()


def free_port() -> int:
    """
    Return a port of the loopback interface that nothing uses, another one each time.

    Between this call and the start of the server, no other test takes it.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    ports = RANGE[worker % WORKERS_MAX :: WORKERS_MAX]
    while True:
        port = SystemRandom().choice(ports)
        if port in _given:
            continue
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        _given.add(port)
        return port
