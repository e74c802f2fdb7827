"""
Forked processes, which must leave the connections and tasks of their parent alone.

Both processes have the sockets.  When the child ends, Python finalizes the copies of
the parent's coroutines, whose last words would reach the broker in the parent's name.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

_transports: WeakKeyDictionary[Any, asyncio.BaseTransport] = WeakKeyDictionary()
"""The transports of this process by their protocols."""


def call_in_child(callback: Callable[[], None]) -> None:
    """Call *callback* in each process that is forked from this one."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=callback)


def disconnect_in_child(protocol: Any, transport: asyncio.BaseTransport) -> None:
    """Let forked processes have no part in the connection of *transport*."""
    _transports[protocol] = transport


def _disconnect() -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for transport in _transports.values():
        found: socket.socket | None = transport.get_extra_info("socket")
        if found is not None and found.fileno() >= 0:
            # The socket itself stays open in the parent.
            os.dup2(null, found.fileno())
    os.close(null)
    _transports.clear()


call_in_child(_disconnect)
