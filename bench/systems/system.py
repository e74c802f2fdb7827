"""
The interface of a system under test: its server, and a driver for its client.

Each system is one file in this package.  The server part runs in the harness, the
driver in worker processes, where only its own client needs to be installed.  A file
therefore imports its client's packages only where it uses them.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractAsyncContextManager, AbstractContextManager

    from pydanube_cli.bench.figures import Durability

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A durability setting of a system, which is one line of every comparison."""

    name: str
    """The name within the system; part of the line's name."""
    durability: Durability
    setting: str
    """The settings of the variant, in the terms of the system."""
    cannot: Mapping[str, str] = field(default_factory=dict)
    """Unsupported workloads with the reasons."""
    missing: str | None = None
    """Why this installation does not support the variant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A running server."""

    endpoint: dict[str, Any]
    """The address for drivers, sent to the workers as JSON."""
    pids: tuple[int, ...]
    """Its processes, whose children count as well."""


class System(ABC):
    """A broker that can be measured."""

    name: str
    title: str
    client: str
    """The client packages on PyPI."""
    how: str
    """A short description of the driver; its docstring has the reasons."""
    warm_s: float = 0.5
    """The warm-up before the measurement, for just-in-time compilers."""
    first_messages: int = 2000
    """The number of messages in the first run of a calibration."""

    @abstractmethod
    def variants(self) -> Sequence[Variant]:
        """Return the variants to measure."""

    @abstractmethod
    def missing(self) -> str | None:
        """Return what to install; None if everything is installed."""

    @abstractmethod
    def version(self) -> str:
        """Return the versions of server and client."""

    @abstractmethod
    def serve(
        self, variant: Variant, directory: Path, workload: str
    ) -> AbstractContextManager[Server]:
        """Run a server with its data in *directory* while the body runs."""

    def python(self) -> Path:
        """Return the interpreter that has the client."""
        return Path(sys.executable)

    @abstractmethod
    def driver(self, endpoint: dict[str, Any]) -> Driver:
        """Return the driver, in a worker."""


class Driver(ABC):
    """The client of a system, as one worker process uses it."""

    def __init__(self, endpoint: dict[str, Any]) -> None:
        self.endpoint = endpoint

    @abstractmethod
    async def create(
        self, topics: Sequence[str], subscriptions: Sequence[str], *, sharing: int
    ) -> None:
        """
        Create *topics*, and subscriptions of each for all messages from now on.

        *sharing* is the number of consumers of each subscription.
        """

    @abstractmethod
    async def delete(self, topics: Sequence[str]) -> None:
        """Delete *topics* and their data, if possible."""

    async def settle(self, topic: str) -> None:  # noqa: B027  # May be nothing.
        """Wait until published messages are in their final storage."""

    @abstractmethod
    def publisher(
        self, topics: Sequence[str]
    ) -> AbstractAsyncContextManager[Publisher]:
        """Open a connection that publishes to *topics*."""

    @abstractmethod
    def consumer(
        self, topics: Sequence[str], subscription: str, *, number: int, sharing: int
    ) -> AbstractAsyncContextManager[Consumer]:
        """
        Open a connection for consumer *number* of *sharing* of a subscription.

        It receives everything that is published after the context is entered.
        """


class Publisher(ABC):
    """A publisher; messages keep the order of the calls."""

    chunk: int = 1000
    """The best number of messages per call."""

    @abstractmethod
    async def send(self, topic: str, payloads: list[bytes]) -> None:
        """Publish; return when more may be sent, before they are acknowledged."""

    async def push(self) -> None:  # noqa: B027  # May be nothing.
        """Send messages that the client has batched."""

    @abstractmethod
    async def flush(self) -> None:
        """Wait until all messages are acknowledged; raise if one was not."""

    @abstractmethod
    async def send_one(self, topic: str, payload: bytes) -> None:
        """Publish one message and wait for its acknowledgement."""


class Consumer(ABC):
    """A consumer that receives and acknowledges."""

    @abstractmethod
    async def receive(self, timeout_s: float) -> Sequence[bytes]:
        """Receive at least one message; none after the timeout."""

    @abstractmethod
    async def ack(self) -> None:
        """Acknowledge received messages."""


class BenchFailed(Exception):
    """A server, a worker or a run has failed."""
