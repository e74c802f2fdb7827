"""The world of the test that runs, and the brokers that tests open in it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pydanube.client.blocking import loop_thread
from pydanube.client.client import Client
from pydanube_broker.testing import MemoryBroker, SyncMemoryBroker
from support.worlds.chance import Chance
from support.worlds.cluster import cluster_world
from support.worlds.memory import memory_world, without_arrow_world
from support.worlds.processes import processes_world
from support.worlds.restarts import restarting_world
from support.worlds.secured import secured_world

MEMORY = "memory"
OTHER_WORLDS = {
    "cluster": cluster_world,
    "processes": processes_world,
    "secured": secured_world,
    "restarts": restarting_world,
    "without-arrow": without_arrow_world,
}
WORLDS = (MEMORY, *OTHER_WORLDS)


@dataclass
class CurrentWorld:
    """The world of one test."""

    name: str = MEMORY
    seed: str = ""
    chances: list[Chance] = field(default_factory=list)
    """What happens to the brokers that the test has opened."""


_current = CurrentWorld()


@contextmanager
def entered(name: str, seed: str) -> Iterator[CurrentWorld]:
    """Let the brokers that are opened in the body be those of a world."""
    global _current  # noqa: PLW0603  # Tests open brokers in any thread.
    before, _current = _current, CurrentWorld(name, seed)
    try:
        yield _current
    finally:
        _current = before


@asynccontextmanager
async def memory_broker(**options: Any) -> AsyncIterator[MemoryBroker]:
    """
    Run a broker of the test's world; see ``pydanube_broker.testing.memory_broker``.

    The option *authenticator* decides who its clients are.
    """
    if _current.name == MEMORY:
        opening: Any = memory_world(**options)
    else:
        chance = Chance(f"{_current.seed} {len(_current.chances)}")
        _current.chances.append(chance)
        opening = OTHER_WORLDS[_current.name](chance, **options)
    async with opening as broker:
        yield broker


@asynccontextmanager
async def two_brokers() -> AsyncIterator[
    tuple[tuple[MemoryBroker, Client], tuple[MemoryBroker, Client]]
]:
    """Run two brokers, each with a client."""
    async with (
        memory_broker() as one,
        memory_broker() as two,
        one.connect() as source,
        two.connect() as target,
    ):
        yield (one, source), (two, target)


@contextmanager
def sync_memory_broker(**options: Any) -> Iterator[SyncMemoryBroker]:
    """Run such a broker in a thread; see ``pydanube_broker.testing``."""
    with (
        loop_thread() as loop,
        loop.entered(
            memory_broker(**options), partial(SyncMemoryBroker, loop)
        ) as broker,
    ):
        yield broker
