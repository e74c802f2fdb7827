"""The systems under test, one file each."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench.systems.system import System

NAMES = (
    "danube",
    "danube-grpc",
    "prototype",
    "nats",
    "redis",
    "rabbitmq-quorum",
    "rabbitmq-stream",
    "danube-kafka",
    "kafka-aiokafka",
    "kafka-confluent",
)
"""In the order of the report; the file of each is its name with underscores."""


def find_system(name: str) -> System:
    """Import the file of the system *name* and return the system."""
    module = import_module(f"bench.systems.{name.replace('-', '_')}")
    system: System = module.SYSTEM
    return system
