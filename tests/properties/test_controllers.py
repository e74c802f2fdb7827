"""
Whatever happens to the brokers of a cluster, every shard has one owner in the end.

Several brokers run the controller, with a store that is late and fails; they are
killed, stopped, started and drained at random moments.  Time is simulated.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random

import pytest

from pydanube.aio.tasks import task_scope
from pydanube.model.clusters import BrokerMode
from pydanube_broker.cluster.controller import create_shards
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.cluster_records import (
    BrokerModeRecord,
    ShardState,
)
from simulation.loop import SimulatedLoop
from support.fakes.clusters import LateStore, Ledger, Member
from support.fakes.memory_store import MemoryStore

SHARDS = 24
BROKERS = ("a", "b", "c", "d")
DISTURBED_S = 60.0
CALM_S = 300.0
"""After this time, nothing changes any more."""


class World:
    """A cluster whose brokers come and go."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.store = MemoryStore()
        self.ledger = Ledger()
        self.members: dict[str, Member] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.runs = 0

    def start(self, broker_id: str, scope) -> None:
        self.runs += 1
        session_id = f"{broker_id}-{self.runs}"
        link = LateStore(self.store, self.rng)
        member = Member(link, broker_id, session_id, self.ledger, self.rng)
        self.members[broker_id] = member
        self.tasks[broker_id] = scope.run(member.run(), session_id)

    async def end(self, broker_id: str, *, is_killed: bool) -> None:
        member = self.members.pop(broker_id)
        member.link.is_dead = is_killed
        task = self.tasks.pop(broker_id)
        task.cancel()
        await asyncio.wait([task])

    async def set_mode(self, broker_id: str, mode: BrokerMode) -> None:
        record = BrokerModeRecord(mode=mode, changed_at=0)
        await self.store.put(keys.BROKER_MODES.key(broker_id), record)

    async def disturb(self, scope) -> None:
        """Do one thing to a broker."""
        rng = self.rng
        broker_id = rng.choice(BROKERS)
        if broker_id not in self.members:
            self.start(broker_id, scope)
            return
        match rng.randrange(5):
            case 0:
                await self.end(broker_id, is_killed=True)
            case 1:
                await self.end(broker_id, is_killed=False)
            case 2:
                await self.set_mode(broker_id, BrokerMode.DRAINING)
            case 3:
                await self.set_mode(broker_id, BrokerMode.ACTIVE)
            case 4:
                rate = rng.choice([0.0, 0.3])
                member = self.members[broker_id]
                member.link.error_rate = member.host.error_rate = rate

    async def run(self) -> None:
        await create_shards(self.store, SHARDS)
        loop = asyncio.get_running_loop()
        async with task_scope() as scope:
            for broker_id in BROKERS[:2]:
                self.start(broker_id, scope)
            while loop.time() < DISTURBED_S:
                await asyncio.sleep(self.rng.expovariate(0.5))
                await self.disturb(scope)
            for broker_id in BROKERS[:3]:
                if broker_id not in self.members:
                    self.start(broker_id, scope)
                await self.set_mode(broker_id, BrokerMode.ACTIVE)
            for member in self.members.values():
                member.link.error_rate = member.host.error_rate = 0.0
            await asyncio.sleep(CALM_S)
            before = await self.store.revision()
            await self.check()
            await asyncio.sleep(CALM_S)
            assert await self.store.revision() == before

    async def check(self) -> None:
        records = [stored.value for _, stored in await self.store.scan(keys.SHARDS)]
        modes = {
            keys.BROKER_MODES.name_of(path): stored.value.mode
            for path, stored in await self.store.scan(keys.BROKER_MODES)
        }
        active = {
            member.session_id
            for broker_id, member in self.members.items()
            if modes.get(broker_id, BrokerMode.ACTIVE) is BrokerMode.ACTIVE
        }
        assert {record.state for record in records} == {ShardState.OPEN}
        owned = Counter(record.owner for record in records)
        assert owned.keys() == active
        share = SHARDS / len(active)
        assert all(abs(count - share) <= 0.2 * share for count in owned.values())
        assert len(self.ledger.serving) == SHARDS
        assert Counter(self.ledger.serving.values()) == owned
        draining = {name for name, mode in modes.items() if mode is BrokerMode.DRAINING}
        assert draining.isdisjoint(self.members)
        controllers = [m for m in self.members.values() if m.controller.is_controller]
        assert len(controllers) == 1


def simulate(seed: int) -> World:
    world = World(seed)
    loop = SimulatedLoop(Random(seed))
    try:
        loop.run_until_complete(world.run())
        assert not loop.failures
    finally:
        loop.close()
    return world


@pytest.mark.rotated
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_every_shard_has_one_owner_in_the_end(seed: int) -> None:
    world = simulate(seed)
    assert max(world.ledger.epochs.values()) > 1


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.timeout(900)
def test_every_shard_has_one_owner_in_the_end_with_many_seeds() -> None:
    for seed in range(1000, 1300):
        simulate(seed)
