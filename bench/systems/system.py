"""
What a system under test is: a server that we start, and a driver for its client.

A system is one file in this package.  Its server half runs in the harness, its driver
in the worker processes, where nothing but its own client need be installed; so a file
imports its client's packages only where it uses them.
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

    from bench.durability import Durability

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A system with one durability setting: one line of every comparison."""

    name: str
    """Unique within the system; part of the line's name."""
    durability: Durability
    setting: str
    """What was set to have it, in the system's own words."""
    cannot: Mapping[str, str] = field(default_factory=dict)
    """Workloads that it has no way to do, and why."""
    missing: str | None = None
    """Why this installation cannot be set like this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server that runs."""

    endpoint: dict[str, Any]
    """What a driver needs to find it; goes to the workers as JSON."""
    pids: tuple[int, ...]
    """Its processes; their children count as well."""


class System(ABC):
    """A broker that can be measured."""

    name: str
    title: str
    client: str
    """The packages it is driven with, as they are called on PyPI."""
    how: str
    """How it is driven, in a few words; the reasons are in its driver's docstring."""
    warm_s: float = 0.5
    """So long it works before it is measured: compilers at run time need time."""
    first_messages: int = 2000
    """The first run of a calibration."""

    @abstractmethod
    def variants(self) -> Sequence[Variant]:
        """The settings that it is measured with."""

    @abstractmethod
    def missing(self) -> str | None:
        """What would have to be installed; None if everything is there."""

    @abstractmethod
    def version(self) -> str:
        """Of the server and of the client that are installed."""

    @abstractmethod
    def serve(
        self, variant: Variant, directory: Path, workload: str
    ) -> AbstractContextManager[Server]:
        """A server with its data in *directory*, while the body runs."""

    def python(self) -> Path:
        """The interpreter that has the client."""
        return Path(sys.executable)

    @abstractmethod
    def driver(self, endpoint: dict[str, Any]) -> Driver:
        """In a worker: the client's half."""


class Driver(ABC):
    """The client of a system, as one worker process uses it."""

    def __init__(self, endpoint: dict[str, Any]) -> None:
        self.endpoint = endpoint

    @abstractmethod
    async def create(
        self, topics: Sequence[str], subscriptions: Sequence[str], *, sharing: int
    ) -> None:
        """
        Make *topics*, and subscriptions of each that get all from now on.

        *sharing* is how many consumers each subscription will have.
        """

    @abstractmethod
    async def delete(self, topics: Sequence[str]) -> None:
        """Remove *topics* and what they take on the disk, if that can be done."""

    async def settle(self, topic: str) -> None:  # noqa: B027  # May be nothing.
        """Wait until what was published is where old messages are kept."""

    @abstractmethod
    def publisher(
        self, topics: Sequence[str]
    ) -> AbstractAsyncContextManager[Publisher]:
        """A connection of its own that publishes to *topics*."""

    @abstractmethod
    def consumer(
        self, topics: Sequence[str], subscription: str, *, number: int, sharing: int
    ) -> AbstractAsyncContextManager[Consumer]:
        """
        A connection of its own: consumer *number* of *sharing* of a subscription.

        It is ready for what is published when the context is entered.
        """


class Publisher(ABC):
    """Publishes; the order of the calls is the order of the messages."""

    chunk: int = 1000
    """How many messages it is best given at once."""

    @abstractmethod
    async def send(self, topic: str, payloads: list[bytes]) -> None:
        """Publish; returns when there is room for more, not when they are taken."""

    async def push(self) -> None:  # noqa: B027  # May be nothing.
        """Have what was sent leave now, if the client has gathered it."""

    @abstractmethod
    async def flush(self) -> None:
        """Wait until everything is acknowledged; raises if something was not."""

    @abstractmethod
    async def send_one(self, topic: str, payload: bytes) -> None:
        """Publish one message; returns when it is acknowledged."""


class Consumer(ABC):
    """Receives and acknowledges."""

    @abstractmethod
    async def receive(self, timeout_s: float) -> Sequence[bytes]:
        """Messages, at least one; none if none came in time."""

    @abstractmethod
    async def ack(self) -> None:
        """Acknowledge what was received."""


class BenchFailed(Exception):
    """A server, a worker or a run failed; the message says how."""
